"""Reads the commands of a script into the tree that the interpreter follows.

The grammar is that of the Bash Reference Manual (5.2), section 3.2 (shell commands) and 3.6 (redirections).
"""

import re
from collections.abc import Callable
from typing import Literal as OneOf
from typing import cast

from projector.config.shell.simple import SimpleReader
from projector.config.shell.syntax import (
    AndOr,
    ArithmeticCommand,
    Case,
    Conditional,
    Function,
    Group,
    If,
    Loop,
    Node,
    Part,
    Pipeline,
    RawWord,
)

_RESERVED = re.compile(
    r"(?:if|then|elif|else|fi|for|while|until|do|done|case|esac|select|function|time|\{|\}|!|\[\[)(?=[ \t\n;&|()<>]|\Z)"
)
_CLOSING = frozenset({"then", "elif", "else", "fi", "do", "done", "esac", "}"})
_FUNCTION = re.compile(r"([^ \t\n;&|()<>\"'`$\\={}\[\]]+)[ \t]*\([ \t]*\)")
_FUNCTION_NAME = re.compile(r"[ \t]*([^ \t\n;&|()<>\"'`$\\]+)(?:[ \t]*\([ \t]*\))?")
_TEST_OPERATOR = re.compile(r"&&|\|\||[()<>]|!(?=[ \t\n])")
_VARIABLE_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


class Parser(SimpleReader):
    """One parse of one text."""

    def script(self) -> tuple[Node, ...]:
        """The whole text; raises `ConfigurationError` where it is no script."""
        nodes = self._commands()
        if self.position < len(self.text):
            raise self.unexpected()
        return nodes

    def substituted_commands(self) -> tuple[Node, ...]:
        """The commands up to the closing parenthesis, which is passed."""
        start = self.position
        nodes = self._commands()
        if not self.text.startswith(")", self.position):
            raise self.source.wrong(start, "a parenthesis is not closed", "expected )")
        self.position += 1
        return nodes

    def _reserved(self) -> str:
        found = _RESERVED.match(self.text, self.position)
        return found.group() if found else ""

    def _accept(self, text: str) -> bool:
        """Pass `text`, a reserved word or an operator, where it stands next."""
        self.skip_lines()
        here = self._reserved() == text if text[0].isalpha() or text in "{}" else self._at(text)
        if here:
            self.position += len(text)
        return here

    def _at(self, text: str) -> bool:
        return self.text.startswith(text, self.position)

    def _expect(self, text: str, start: int, what: str) -> None:
        if not self._accept(text):
            if self.position < len(self.text):
                raise self.unexpected()
            raise self.source.wrong(start, f"{what} is not closed", f"expected {text}")

    def _commands(self) -> tuple[Node, ...]:
        """Commands up to whatever cannot begin one: a closing word, a parenthesis, `;;` or the end."""
        nodes: list[Node] = []
        while True:
            self.skip_lines()
            if self.position >= len(self.text) or self._at(")") or self._at(";;") or self._at(";&"):
                break
            if self._reserved() in _CLOSING:
                break
            node = self._and_or()
            self.skip_blanks()
            if self._at("&") and not self._at("&&"):
                self.position += 1
                node = Group(body=(node,), subshell=True)
            elif self._at(";") and not self._at(";;") and not self._at(";&"):
                self.position += 1
            elif self.position < len(self.text) and self.text[self.position] not in "\n)" and not self._at(";"):
                raise self.unexpected()
            nodes.append(node)
        if self.pending and self.position >= len(self.text):
            self.end_line()
            self.position = len(self.text)
        return tuple(nodes)

    def _and_or(self) -> Node:
        first = self._pipeline()
        rest: list[tuple[str, Node]] = []
        while True:
            self.skip_blanks()
            if not (self._at("&&") or self._at("||")):
                return AndOr(first=first, rest=tuple(rest)) if rest else first
            operator = self.text[self.position : self.position + 2]
            self.position += 2
            self.skip_lines()
            rest.append((operator, self._pipeline()))

    def _pipeline(self) -> Node:
        negated = False
        while (word := self._reserved()) in {"!", "time"}:
            negated ^= word == "!"
            self.position += len(word)
            self.skip_blanks()
        commands = [self._command()]
        while True:
            self.skip_blanks()
            if not self._at("|") or self._at("||"):
                break
            self.position += 2 if self._at("|&") else 1
            self.skip_lines()
            commands.append(self._command())
        return (
            commands[0] if len(commands) == 1 and not negated else Pipeline(commands=tuple(commands), negated=negated)
        )

    def _command(self) -> Node:
        word = self._reserved()
        if word in _CLOSING:
            raise self.unexpected()
        compound = self._compound(word) if word else None
        if compound is None and self._at("("):
            compound = self._parenthesis
        if compound is None and (found := _FUNCTION.match(self.text, self.position)):
            self.position = found.end()
            return self._body_of(found.group(1))
        if compound is None:
            return self.simple()
        with self.budget.deeper():
            node = compound()
        self.redirections()
        return node

    def _compound(self, word: str) -> Callable[[], Node] | None:
        """What reads the compound command that a reserved word begins."""
        return {
            "if": self._if,
            "for": self._for,
            "select": self._for,
            "while": self._while,
            "until": self._while,
            "case": self._case,
            "function": self._function,
            "{": self._group,
            "[[": self._conditional,
        }.get(word)

    def _parenthesis(self) -> Node:
        start = self.position
        if self._at("((") and (expression := self.arithmetic_command()):
            return ArithmeticCommand(line=self.source.line(start), written=expression.written, expression=expression)
        self.position += 1
        return Group(body=self.substituted_commands(), subshell=True)

    def _group(self) -> Node:
        start = self.position
        self.position += 1
        body = self._commands()
        self._expect("}", start, "a group")
        return Group(body=body, subshell=False)

    def _function(self) -> Node:
        self.position += len("function")
        found = _FUNCTION_NAME.match(self.text, self.position)
        if found is None:
            raise self.unexpected()
        self.position = found.end()
        return self._body_of(found.group(1))

    def _body_of(self, name: str) -> Node:
        self.skip_lines()
        with self.budget.deeper():
            return Function(name=name, body=self._command())

    def _if(self) -> Node:
        start = self.position
        branches = []
        self.position += len("if")
        while True:
            condition = self._commands()
            self._expect("then", start, "an if")
            branches.append((condition, self._commands()))
            if not self._accept("elif"):
                break
        otherwise = self._commands() if self._accept("else") else ()
        self._expect("fi", start, "an if")
        return If(branches=tuple(branches), otherwise=otherwise)

    def _while(self) -> Node:
        start = self.position
        kind = cast("OneOf['while', 'until']", self._reserved())
        self.position += len(kind)
        condition = self._commands()
        return Loop(line=self.source.line(start), kind=kind, condition=condition, body=self._loop_body(start))

    def _loop_body(self, start: int) -> tuple[Node, ...]:
        if self._accept("{"):
            body = self._commands()
            self._expect("}", start, "a loop")
            return body
        self._expect("do", start, "a loop")
        body = self._commands()
        self._expect("done", start, "a loop")
        return body

    def _for(self) -> Node:
        start = self.position
        line = self.source.line(start)
        kind = cast("OneOf['for', 'select']", self._reserved())
        self.position += len(kind)
        self.skip_blanks()
        if self._at("((") and (expression := self.arithmetic_command()):
            self._accept(";")
            condition = (ArithmeticCommand(line=line, written=expression.written, expression=expression),)
            return Loop(line=line, kind="counted", condition=condition, body=self._loop_body(start))
        found = _VARIABLE_NAME.match(self.text, self.position)
        if found is None:
            raise self.unexpected()
        self.position = found.end()
        self.skip_lines()
        words = None
        if re.compile(r"in(?=[ \t\n;\\]|\Z)").match(self.text, self.position):
            self.position += len("in")
            words = self._words()
        self._accept(";")
        body = self._loop_body(start)
        return Loop(line=line, kind=kind, condition=(), body=body, name=found.group(), words=words)

    def _words(self) -> tuple[RawWord, ...]:
        found: list[RawWord] = []
        while True:
            self.skip_blanks()
            word = self.word()
            if word is None:
                return tuple(found)
            found.append(word)

    def _case(self) -> Node:
        start = self.position
        self.position += len("case")
        self.skip_blanks()
        word = self.word()
        self.skip_lines()
        if word is None or not re.compile(r"in(?=[ \t\n])").match(self.text, self.position):
            raise self.unexpected()
        self.position += len("in")
        branches = []
        while not self._accept("esac"):
            if self.position >= len(self.text):
                raise self.source.wrong(start, "a case is not closed", "expected esac")
            branches.append(self._branch())
        return Case(line=self.source.line(start), word=word, branches=tuple(branches))

    def _branch(self) -> tuple[tuple[RawWord, ...], tuple[Node, ...], str]:
        self._accept("(")
        patterns = []
        while True:
            self.skip_blanks()
            pattern = self.word()
            if pattern is None:
                raise self.unexpected()
            patterns.append(pattern)
            self.skip_blanks()
            if not self._accept("|"):
                break
        if not self._accept(")"):
            raise self.unexpected()
        body = self._commands()
        end = next((end for end in (";;&", ";;", ";&") if self._at(end)), "")
        self.position += len(end)
        return tuple(patterns), body, end or ";;"

    def _conditional(self) -> Node:
        start = self.position
        self.position += len("[[")
        tokens: list[RawWord | str] = []
        while True:
            self.skip_lines()
            if re.compile(r"\]\](?=[ \t\n;&|)]|\Z)").match(self.text, self.position):
                self.position += len("]]")
                break
            if tokens and isinstance(tokens[-1], RawWord) and tokens[-1].plain == "=~":
                tokens.append(self._expression_word())
            elif found := _TEST_OPERATOR.match(self.text, self.position):
                self.position = found.end()
                tokens.append(found.group())
            elif word := self.word():
                tokens.append(word)
            else:
                raise self.source.wrong(start, "a [[ is not closed", "expected ]]")
        written = self.source.taken(start, self.position).plain
        return Conditional(line=self.source.line(start), written=written, tokens=tuple(tokens))

    def _expression_word(self) -> RawWord:
        """The regular expression after `=~`, which may hold parentheses and bars."""
        parts: list[Part] = []
        while self.position < len(self.text) and self.text[self.position] not in " \t\n":
            found = self.word()
            if found is not None:
                parts.extend(found.parts)
            elif self.text[self.position] not in " \t\n":
                parts.append(self._literal(self.position + 1, quoted=False))
        return RawWord(parts=tuple(parts))
