"""Whatever is wrong with a file that a person names, the answer is one clear line."""

import os
import threading
from pathlib import Path

import pytest

from tests.cli.lines import SAMPLE, carried_out, complaint


@pytest.mark.parametrize(
    ("content", "wanted"),
    [
        (b"", "is empty; a file with content"),
        (b" \n\t\n", "is empty; a file with content"),
        (b"\x7fELF\x02\x01\x00\x00", "is not a text file; UTF-8 text"),
        ("work_group: caf\u00e9".encode("latin-1"), "is not UTF-8: byte 0xe9 at offset 15; UTF-8 text"),
        ("work_group: amd".encode("utf-16"), "is not a text file; UTF-8 text"),
        (b"# " + b"x" * (6 << 20), "larger than 5 MiB"),
        (b"work_group: [", "cannot"),
        (b"- a\n- b\n", ""),
        (b"a: 1\n", "not a training configuration that is known"),
    ],
    ids=["empty", "blank", "binary", "latin-1", "utf-16", "6 MiB", "broken YAML", "a list", "something else"],
)
def test_wrong_content(capsys: pytest.CaptureFixture[str], tmp_path: Path, content: bytes, wanted: str) -> None:
    path = tmp_path / "job.yaml"
    path.write_bytes(content)
    line = complaint(carried_out(capsys, "both", "--config", str(path)))
    assert line.startswith(f"{path}")
    if wanted != "cannot":
        assert wanted in line


@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        ("llama.yaml", "there is no such file; did you mean {folder}/llama3.yaml?"),
        ("absent/job.yaml", "there is no such file; the folder '{folder}/absent' does not exist either"),
        ("inner", "is a folder; name a file in it"),
        ("llama3.yaml/job.yaml", "cannot be read: Not a directory"),
        ("x" * 300, "cannot be read: File name too long"),
        ("a\0b", "cannot be read: embedded null byte"),
    ],
    ids=["missing", "missing folder", "folder", "file as folder", "long name", "null byte"],
)
@pytest.mark.parametrize("option", ["--config", "--hardware-config", "--calibration", "--with"])
def test_wrong_path(capsys: pytest.CaptureFixture[str], tmp_path: Path, name: str, wanted: str, option: str) -> None:
    (tmp_path / "llama3.yaml").write_text("a: 1\n")
    (tmp_path / "inner").mkdir()
    first = () if option == "--config" else ("--config", SAMPLE)
    line = complaint(carried_out(capsys, "both", *first, option, str(tmp_path / name)))
    assert line.endswith(wanted.format(folder=tmp_path))


def test_byte_order_mark_is_no_part_of_the_text(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "job.yaml"
    path.write_bytes(b"\xef\xbb\xbf" + Path(SAMPLE).read_bytes())
    assert carried_out(capsys, "memory", "--config", str(path)).code == 0


def test_a_pipe_is_read_like_a_file(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writer = threading.Thread(target=pipe.write_bytes, args=(Path(SAMPLE).read_bytes(),))
    writer.start()
    ended = carried_out(capsys, "memory", "--config", str(pipe))
    writer.join()
    assert ended.code == 0, ended.err
