"""Devices and models answer to all their names, and to no other."""

import json
import subprocess
import sys
from collections import Counter
from itertools import chain

import pytest
import yaml

from projector import catalog
from projector.catalog import names
from projector.errors import DeviceUnknown, PresetUnknown
from tests.catalog.files import content, files


@pytest.mark.parametrize(
    ("name", "device"),
    [
        ("MI300X", "MI300X"),
        ("mi300x", "MI300X"),
        ("gfx942", "MI300X"),
        ("AMD_Instinct_MI300X_OAM", "MI300X"),
        ("AMD Instinct MI300X OAM", "MI300X"),
        ("74a1", "MI300X"),
        ("74A5", "MI325X"),
        ("gfx950", "MI355X"),
        ("75a0", "MI350X"),
        ("mi355x", "MI355X"),
        ("gfx90a", "MI250X"),
        ("A100", "A100-80GB"),
        ("A100-SXM4-40GB", "A100-40GB"),
        ("NVIDIA-H100-80GB-HBM3", "H100"),
        ("gb200", "GB200"),
    ],
)
def test_a_device_is_found_by_any_of_its_names(name: str, device: str) -> None:
    assert catalog.device(name).name == device


@pytest.mark.parametrize(
    ("name", "model"),
    [
        ("llama3.1_70B", "llama3.1-70b"),
        ("meta-llama/Llama-3.1-70B", "llama3.1-70b"),
        ("qwen3_30B_A3B", "qwen3-30b-a3b"),
        ("mixtral-8x7b", "mixtral-8x7b-v0.1"),
        ("DeepSeek-R1", "deepseek-v3"),
    ],
)
def test_a_model_is_found_by_any_of_its_names(name: str, model: str) -> None:
    assert catalog.model(name).name == model


@pytest.mark.parametrize("kind", ["devices", "models"])
def test_no_two_files_claim_one_name(kind: str) -> None:
    claims = chain.from_iterable({path.stem, *map(names.normalised, names.aliases_of(path))} for path in files(kind))
    assert [name for name, count in Counter(claims).items() if count > 1] == []


@pytest.mark.parametrize("kind", ["devices", "models"])
def test_the_aliases_of_a_file_stand_on_one_line(kind: str) -> None:
    for path in files(kind):
        assert list(names.aliases_of(path)) == content(path).get("aliases", [])


@pytest.mark.parametrize("kind", ["devices", "models"])
def test_a_file_is_called_after_what_it_describes(kind: str) -> None:
    assert {path.stem: names.normalised(content(path)["name"]) for path in files(kind)} == {
        path.stem: path.stem for path in files(kind)
    }


@pytest.mark.parametrize(
    ("name", "said"),
    [
        pytest.param("MI300Y", "did you mean mi300", id="near"),
        pytest.param("", "known are A100-40GB, A100-80GB, B200", id="empty"),
        pytest.param("../devices/mi300x", "known are", id="a path is not a name"),
    ],
)
def test_an_unknown_device_is_refused_with_those_that_are_known(name: str, said: str) -> None:
    with pytest.raises(DeviceUnknown) as refused:
        catalog.device(name)
    assert repr(name) in str(refused.value)
    assert said in str(refused.value)
    assert "MI355X" in str(refused.value)


@pytest.mark.parametrize(
    ("name", "said"),
    [("llama3.1_71B", "llama3.1-70b"), ("nothing-like-it-anywhere", "`projector models` lists what is known")],
)
def test_an_unknown_model_is_refused_with_the_nearest(name: str, said: str) -> None:
    with pytest.raises(PresetUnknown) as refused:
        catalog.model(name)
    assert said in str(refused.value)


@pytest.mark.parametrize(
    ("call", "read"),
    [
        ("device('MI300X')", ["mi300x.yaml"]),
        ("model('llama3.1_70B')", ["llama3.1-70b.yaml"]),
        ("host_costs('x86')", ["hosts.yaml"]),
    ],
)
def test_only_the_file_that_is_asked_for_is_read(call: str, read: list[str]) -> None:
    program = (
        "import json, sys\n"
        "from projector import catalog\n"
        "opened = []\n"
        "sys.addaudithook(lambda event, args: event == 'open' and opened.append(str(args[0])))\n"
        f"catalog.{call}\n"
        "heavy = {'jsonschema', 'torch', 'numpy'} & set(sys.modules)\n"
        "print(json.dumps([[name.rsplit('/', 1)[-1] for name in opened if name.endswith('.yaml')], sorted(heavy)]))\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == [read, []]


def test_the_fast_parser_reads_what_the_strict_one_reads() -> None:
    for path in chain(files("devices"), files("models")):
        assert yaml.load(path.read_bytes(), Loader=yaml.CSafeLoader) == content(path)
