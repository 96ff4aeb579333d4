from pathlib import Path

import pytest

from projector.config import LoadedConfiguration, Source, read, read_file
from projector.errors import ConfigurationError, ConfigurationTooLarge
from tests.config.builders import flat_text


def _write(folder: Path, **files: str) -> Path:
    for name, text in files.items():
        path = folder / f"{name.replace('__', '/')}.yaml"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder


def _overrides(**values: object) -> str:
    inner = "".join(f"      {key}: {value}\n" for key, value in values.items())
    return f"modules:\n  pre_trainer:\n    overrides:\n{inner}"


def _value(loaded: LoadedConfiguration, key: str) -> tuple[object, str | None]:
    return loaded.values[key].value, loaded.values[key].file


def test_later_files_win_and_the_file_itself_wins_over_all(tmp_path: Path) -> None:
    _write(
        tmp_path,
        base=flat_text(seq_length=1, num_layers=1, hidden_size=64, num_attention_heads=1),
        second="extends: deeper.yaml\n" + _overrides(num_layers=2, hidden_size=128),
        deeper=_overrides(num_layers=3, hidden_size=256, ffn_hidden_size=7),
        exp="extends: [base.yaml, second.yaml]\n" + _overrides(hidden_size=512),
    )
    loaded = read_file(tmp_path / "exp.yaml")
    assert _value(loaded, "hidden_size") == (512, "exp.yaml")
    assert _value(loaded, "num_layers") == (2, "second.yaml")
    assert _value(loaded, "ffn_hidden_size") == (7, "deeper.yaml")
    assert _value(loaded, "seq_length") == (1, "base.yaml")


def test_mappings_merge_and_lists_replace(tmp_path: Path) -> None:
    _write(
        tmp_path,
        base=flat_text(lora={"enabled": False, "dim": 8}, spec=["a", "b"]),
        exp="extends: base.yaml\n" + _overrides(lora="{dim: 16}", spec="[c]"),
    )
    values = read_file(tmp_path / "exp.yaml").values
    assert values["lora.dim"].value == 16
    assert values["lora.enabled"].value is False
    assert values["spec"].value == ["c"]


def test_a_name_may_come_from_a_variable(tmp_path: Path) -> None:
    _write(tmp_path, base=flat_text(), exp="extends: ${WHICH:none}.yaml\n" + _overrides(num_layers=2))
    assert read_file(tmp_path / "exp.yaml", variables={"WHICH": "base"}).job.model.hidden == 1024


def test_files_below_a_wider_root_may_be_extended(tmp_path: Path) -> None:
    _write(tmp_path, common__base=flat_text(), team__exp="extends: ../common/base.yaml\n" + _overrides(num_layers=2))
    assert len(read_file(tmp_path / "team/exp.yaml", root=tmp_path).job.model.layers) == 2


def test_a_text_extends_files_below_the_root_that_is_given_and_none_without(tmp_path: Path) -> None:
    _write(tmp_path, base=flat_text())
    text = "extends: base.yaml\n" + _overrides(num_layers=2)
    assert len(read(text, name="inline", root=tmp_path).job.model.layers) == 2
    with pytest.raises(ConfigurationError, match=r"inline: extends: 'base.yaml' cannot be read from here"):
        read(text, name="inline")


def test_a_link_that_leads_to_itself_and_a_name_too_long_are_refused(tmp_path: Path) -> None:
    (tmp_path / "loop.yaml").symlink_to("loop.yaml")
    for name in ("loop.yaml", "x" * 3000):
        _write(tmp_path, exp=f"extends: {name}\n" + flat_text())
        with pytest.raises(ConfigurationError, match=r"extends: .*(leads nowhere|there is no file)"):
            read_file(tmp_path / "exp.yaml")


OUTSIDE = [
    "../secret.yaml",
    "../../secret.yaml",
    "/etc/passwd",
    "sub/../../secret.yaml",
    "link.yaml",
    "folder/secret.yaml",
]


@pytest.mark.parametrize("name", OUTSIDE)
def test_nothing_outside_the_root_is_read(tmp_path: Path, name: str) -> None:
    inside = tmp_path / "inside"
    _write(tmp_path, secret=flat_text(), inside__exp=f"extends: {name}\n" + _overrides(num_layers=2))
    (inside / "link.yaml").symlink_to(tmp_path / "secret.yaml")
    (inside / "folder").symlink_to(tmp_path)
    with pytest.raises(ConfigurationError, match=r"exp.yaml: extends: .*leads outside the folder 'inside'"):
        read_file(inside / "exp.yaml")


REFUSED = {
    "a cycle of one": ({"exp": "extends: exp.yaml\n"}, "extends itself: exp.yaml -> exp.yaml"),
    "a cycle of two": ({"exp": "extends: b.yaml\n", "b": "extends: exp.yaml\n"}, "exp.yaml -> b.yaml -> exp.yaml"),
    "a missing file": ({"exp": "extends: none.yaml\n"}, "exp.yaml: extends: there is no file 'none.yaml'"),
    "a folder": ({"exp": "extends: sub\n", "sub__x": "a: 1"}, "there is no file 'sub'"),
    "a number": ({"exp": "extends: [1]\n"}, "extends: 1 is not a file name"),
    "a mapping": ({"exp": "extends: {a: b}\n"}, "extends: .* is not a file name"),
    "an error in an extended file": ({"exp": "extends: b.yaml\n", "b": "a: [\n"}, "b.yaml:2:1"),
}


@pytest.mark.parametrize(("files", "complaint"), REFUSED.values(), ids=REFUSED.keys())
def test_an_extends_that_cannot_be_followed_is_named(tmp_path: Path, files: dict[str, str], complaint: str) -> None:
    _write(tmp_path, **files)
    with pytest.raises(ConfigurationError, match=complaint):
        read_file(tmp_path / "exp.yaml")


def test_a_lattice_of_files_is_read_once_each_and_a_long_chain_is_refused(tmp_path: Path) -> None:
    lattice = {f"f{i}": f"extends: [f{i + 1}.yaml, f{i + 1}.yaml, f{i + 1}.yaml]\n" for i in range(40)}
    _write(tmp_path, **lattice, f40=flat_text(), exp="extends: f0.yaml\n")
    assert read_file(tmp_path / "exp.yaml").job.model.hidden == 1024
    _write(tmp_path, **{f"c{i}": f"extends: c{i + 1}.yaml\n" for i in range(100)})
    with pytest.raises(ConfigurationTooLarge, match="more than 64 files"):
        read_file(tmp_path / "c0.yaml")


def test_a_file_of_6_mib_is_refused(tmp_path: Path) -> None:
    (tmp_path / "big.yaml").write_bytes(b"#" * (6 * 1024 * 1024))
    with pytest.raises(ConfigurationTooLarge, match=r"big\.yaml: larger than 5 MiB"):
        read_file(tmp_path / "big.yaml")


def test_a_value_from_a_variable_says_so(tmp_path: Path) -> None:
    _write(tmp_path, exp=flat_text(num_layers="${N:4}"))
    assert read_file(tmp_path / "exp.yaml").values["num_layers"].source is Source.EXPERIMENT
    assert read_file(tmp_path / "exp.yaml", variables={"N": "6"}).values["num_layers"].source is Source.VARIABLE
