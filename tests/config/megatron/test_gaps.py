"""Words of a launch that stand for arguments which nothing gives, or only a condition, a command or a file."""

import pytest

from projector.errors import ConfigurationError
from tests.config.megatron.builders import BASE, assumed, load, unmodelled

RUN = f"torchrun pretrain_gpt.py {BASE}"
CHOICE = "if [ $BIG = 1 ]; then EXTRA='--tensor-model-parallel-size 2'; else EXTRA='--swiglu'; fi"
ARRAY = "EXTRA=(--log-throughput)\nif [ $BIG = 1 ]; then EXTRA+=(--num-layers 96); fi"
DECIDE = {
    "a condition": (f"{CHOICE}\n{RUN} $EXTRA", ("line 2: [ $BIG = 1 ]", "--tensor-model-parallel-size 2", "--swiglu")),
    "what a condition appends": (f'{ARRAY}\n{RUN} "${{EXTRA[@]}}"', ("[ $BIG = 1 ]", "--num-layers 96")),
    "what a command prints": (f"{RUN} $(cat args.txt)", ("what a command prints",)),
    "a file that the script reads": (f"source config.env\n{RUN} $EXTRA_ARGS", ("config.env",)),
}


@pytest.mark.parametrize("source", DECIDE)
def test_arguments_that_the_script_gives_decide(source: str) -> None:
    text, parts = DECIDE[source]
    deciding = [note for note in load(f"#!/bin/bash\n{text}\n").unmodelled if note.decides]
    assert len(deciding) == 1
    assert all(part in deciding[0].effect for part in parts)


OPEN = {
    "nothing": f"{RUN} $EXTRA_ARGS",
    "what is asked of a person": f"{RUN} $@",
    "a condition on ignored arguments": f"if [ $LOG = 1 ]; then EXTRA='--log-throughput'; fi\n{RUN} $EXTRA",
    "an environment that sets no arguments": f"source /opt/venv/bin/activate\n{RUN} $EXTRA_ARGS",
}


@pytest.mark.parametrize("source", OPEN)
def test_arguments_are_assumed_to_be_none_where_they_come_from(source: str) -> None:
    loaded = load(f"#!/bin/bash\n{OPEN[source]}\n")
    assert "no arguments in" in assumed(loaded)
    assert not any(unmodelled(loaded).values())


def test_a_script_that_only_starts_another_says_which_is_needed() -> None:
    with pytest.raises(ConfigurationError, match=r"--config run/pai.sh --with launch.sh"):
        load("#!/bin/bash\nbash run/pai.sh 7B 1 8\n", name="launch.sh")


def test_a_script_gets_what_the_one_beside_it_hands_over() -> None:
    inner = f"#!/bin/bash\ntorchrun pretrain_gpt.py {BASE} --tensor-model-parallel-size $2 --bf16 $EXTRA\n"
    outer = "#!/bin/bash\nexport EXTRA=--swiglu\nbash run/pai.sh 7B 4\n"
    loaded = load(inner, name="pai.sh", launch_sh=outer)
    assert loaded.job.parallelism.tensor == 4
    assert loaded.job.model.layers[0].feed_forward.gated  # type: ignore[union-attr]
