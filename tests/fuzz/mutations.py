"""Turning a good file into a strange one: small damage, hostile values, and pieces of other files."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random

CANARY = "PROJECTOR_FUZZ_CANARY"
"""A variable of the process that no file may see; the files ask for it."""

SEEDS = Path(__file__).parent / "seeds"
COMPANIONS = {
    "deepspeed.json": "config.json",
    "accelerate.yaml": "config.json",
    "fsdp.json": "config.json",
    "run.sh": "model_config.yaml",
}
"""Seeds that are given beside a configuration, and beside which one."""
OTHERS = "others.yaml"
"""Name of all good files that are not the project's own."""
HARDWARE = "hardware.yaml"
"""The seed that describes a machine."""

HOSTILE = (
    "", "~", "null", "None", "true", "-1", "0", "1e309", "-1e309", "nan", ".inf", "0x7fffffffffffffff", "9" * 40,
    "9" * 5000, "1_000", "0o17", "1e-5", "[]", "{}", "[[[[[[[[]]]]]]]]", "'", '"', "'''", '"""', "\\", "`id`", "$(id)",
    "$((1/0))", "$((2**99999))", "$((9999999999**9999))", "${X", "${X}", "${X:${Y}}", f"${{{CANARY}}}",
    f"${{{CANARY}:-1}}", f"${CANARY}", "${X:=$X}", "${X//a/b}", "!!python/object/apply:os.system [id]", "*a",
    "&a [*a]", "<<: *a", "../../../../etc/passwd", "/etc/passwd", "/proc/self/environ", "extends: /etc/passwd",
    "([0]*999999999)", "([0]*3+[1]*58)*9", "().__class__", "__import__('os').system('id')", "lambda: 0",
    "Et*999999999|tL", "|" * 3000, "(" * 3000, "[" * 3000, "{" * 3000, "a" * 100_000, "\u0000", "\ud7ff", "\u202e",
    "é" * 50, "\U0001f600", "\r", "\t", "#", "%YAML 9.9", "---", "...", "- ", ": ", "? ", "=", "--", "--x=", "EOT",
    "<<EOF", "done", "fi", "esac", "}", ")", ";;", "eval", "exec", "source /etc/passwd", "f() { f; }; f",
    "while true; do :; done", "for i in {1..999999999}; do A=$A$A; done", "A=$A$A$A$A",
    'for x in $A; do A="$A $A"; done',
    "[a]\n[a]", "a.b.c.d.e.f = 1", "[[a]]", "1979-05-27T07:32:00Z", "a = {b = {c = {d = 1}}}", '"\\uD800"',
)  # fmt: skip
"""Values and fragments that break readers which trust what they are given."""

NAMES = (
    "micro_batch_size", "global_batch_size", "seq_length", "tensor_model_parallel_size",
    "pipeline_model_parallel_size", "virtual_pipeline_model_parallel_size", "expert_model_parallel_size",
    "context_parallel_size", "num_layers", "model",
)  # fmt: skip
"""Names that overrides use for every format."""
OVERRIDDEN = 0.2
"""Share of the files that have an override beside them."""

Mutation = Callable[[Random, str, Sequence[str]], str]


def _place(random: Random, text: str) -> int:
    return random.randrange(len(text) + 1)


def _remove(random: Random, text: str, _: Sequence[str]) -> str:
    start = _place(random, text)
    return text[:start] + text[start + random.choice((1, 1, 2, 8, 64)) :]


def _insert(random: Random, text: str, _: Sequence[str]) -> str:
    place = _place(random, text)
    return text[:place] + random.choice(HOSTILE) + text[place:]


def _character(random: Random, text: str, _: Sequence[str]) -> str:
    place = _place(random, text)
    return text[:place] + chr(random.choice((random.randrange(128), random.randrange(0xD800)))) + text[place + 1 :]


def _cut(random: Random, text: str, _: Sequence[str]) -> str:
    place = _place(random, text)
    return text[:place] if random.random() < 0.5 else text[place:]


def _value(random: Random, text: str, _: Sequence[str]) -> str:
    """Put a hostile value in the place of one word."""
    words = list(re.finditer(r"[\w.+-]+", text))
    if not words:
        return text
    word = random.choice(words)
    return text[: word.start()] + random.choice(HOSTILE) + text[word.end() :]


def _line(random: Random, text: str, _: Sequence[str]) -> str:
    """Repeat, drop, move or indent a line."""
    lines = text.split("\n")
    index = random.randrange(len(lines))
    line = lines.pop(index)
    for _again in range(random.choice((0, 1, 1, 2, 50))):
        lines.insert(random.randrange(len(lines) + 1), random.choice(("", "", "  ", "\t")) + line)
    return "\n".join(lines)


def _splice(random: Random, text: str, others: Sequence[str]) -> str:
    """Continue with a piece of another file."""
    other = random.choice(others)
    return text[: _place(random, text)] + other[_place(random, other) :]


def _nest(random: Random, text: str, _: Sequence[str]) -> str:
    """Put the same opening many times."""
    openings = ("[", "{", "(", "- ", "a: ", "a.", "--a.a", "$((", "${a:-", "&a ")
    place, opening = _place(random, text), random.choice(openings)
    return text[:place] + opening * random.choice((30, 300, 3000)) + text[place:]


MUTATIONS: tuple[Mutation, ...] = (_remove, _insert, _character, _cut, _value, _value, _value, _line, _splice, _nest)


@dataclass(frozen=True, kw_only=True, slots=True)
class Seed:
    """A file, and what is given beside it."""

    name: str
    """File name, from which its kind follows, or `OTHERS`."""
    text: str
    """Content."""
    overrides: tuple[tuple[str, str], ...] = ()
    """Names and values as typed on a command line."""


def seeds(*folders: Path) -> tuple[Seed, ...]:
    """The project's own seeds, and every YAML file below `folders`."""
    own = [Seed(name=path.name, text=path.read_text(encoding="utf-8")) for path in sorted(SEEDS.iterdir())]
    others = [path for folder in folders for path in sorted(folder.rglob("*.yaml"))]
    return (*own, *(Seed(name=OTHERS, text=path.read_text(encoding="utf-8")) for path in others))


def mutated(number: int, *, seed: int, good: Sequence[Seed]) -> Seed:
    """File `number` of the series `seed`: always the same."""
    random = Random(f"{seed}:{number}")
    own = [each for each in good if each.name != OTHERS]
    chosen = random.choice(random.choice((own, good)))
    text, others = chosen.text, [each.text for each in good]
    for _ in range(random.choice((1, 1, 2, 3, 5, 8))):
        text = random.choice(MUTATIONS)(random, text, others)
    overrides = (_override(random, text),) if random.random() < OVERRIDDEN else ()
    return Seed(name=chosen.name, text=text, overrides=overrides)


def _override(random: Random, text: str) -> tuple[str, str]:
    """A name that every format knows, or a word of the file, with a sensible or a hostile value."""
    words = re.findall(r"[A-Za-z_][\w.-]{2,40}", text)
    name = random.choice(random.choice((NAMES, words or NAMES)))
    return name, random.choice(random.choice((("1", "2", "8", "true", "bf16"), HOSTILE)))
