"""Training configurations in ConfigMaps: noticed when they come, change and go."""

from collections.abc import Iterator

import pytest

from tests.cluster.controlplane import ControlPlane
from tests.cluster.operator_process import OperatorProcess, account, eventually, running_operator
from tests.cluster.requests_for_tests import (
    SAMPLE,
    condition,
    config_map,
    events,
    get,
    request,
    wait_completed,
    wait_refused,
)

REFERENCE = {"configMapRef": {"name": "training", "key": "job.yaml"}}
SHORTER = SAMPLE.replace("seq_length: 8192", "seq_length: 4096")


pytestmark = pytest.mark.usefixtures("installed")


@pytest.fixture(scope="module")
def operator(installed: ControlPlane) -> Iterator[OperatorProcess]:
    """An operator that looks at everything again only after an hour."""
    with running_operator(account(installed), "--resync-seconds=3600", "--probe-seconds=3600") as running:
        yield running


def sequence_length(plane: ControlPlane, namespace: str, name: str) -> str:
    message: str = condition(get(plane, namespace, name), "Accepted")["message"]
    return message.rpartition("sequence length ")[2].rstrip(".")


def test_a_labelled_config_map_is_projected_again_when_it_changes(
    control_plane: ControlPlane, namespace: str, operator: OperatorProcess
) -> None:
    control_plane.apply(
        config_map("training", namespace, {"job.yaml": SAMPLE}), request("watching", namespace, training=REFERENCE)
    )
    wait_completed(control_plane, namespace, "watching")
    before = get(control_plane, namespace, "watching")["status"]
    control_plane.apply(config_map("training", namespace, {"job.yaml": SHORTER}))
    eventually(
        lambda: sequence_length(control_plane, namespace, "watching") == "4096", what="the new content to be answered"
    )
    after = get(control_plane, namespace, "watching")["status"]
    assert after["specHash"] != before["specHash"]
    assert after["reportRef"] == before["reportRef"]
    assert after["completionTime"] == before["completionTime"]
    assert operator.process.poll() is None


def test_a_missing_config_map_and_a_missing_key_are_answered_once_they_are_there(
    control_plane: ControlPlane, namespace: str, operator: OperatorProcess
) -> None:
    control_plane.apply(request("waiting", namespace, training=REFERENCE))
    wait_refused(control_plane, namespace, "waiting")
    assert condition(get(control_plane, namespace, "waiting"), "Accepted")["reason"] == "ConfigMapNotFound"
    control_plane.apply(config_map("training", namespace, {"other": "x"}))
    eventually(
        lambda: condition(get(control_plane, namespace, "waiting"), "Accepted")["reason"] == "ConfigMapKeyNotFound",
        what="the missing key to be named",
    )
    control_plane.apply(config_map("training", namespace, {"job.yaml": SAMPLE}))
    wait_completed(control_plane, namespace, "waiting")
    assert operator.process.poll() is None


def test_a_config_map_that_goes_away_takes_the_answer_with_it(
    control_plane: ControlPlane, namespace: str, operator: OperatorProcess
) -> None:
    control_plane.apply(
        config_map("training", namespace, {"job.yaml": SAMPLE}), request("losing", namespace, training=REFERENCE)
    )
    wait_completed(control_plane, namespace, "losing")
    for _ in range(2):
        control_plane.kubectl("delete", "configmap", "training", f"--namespace={namespace}")
        wait_refused(control_plane, namespace, "losing")
        assert "verdict" not in get(control_plane, namespace, "losing")["status"]
        control_plane.apply(config_map("training", namespace, {"job.yaml": SAMPLE}))
        wait_completed(control_plane, namespace, "losing")
    assert not any("fits" in series and value == 0 for series, value in operator.series(namespace, "losing").items())
    # What happens again is the same Event, counted.
    told = {
        event["reason"]: event.get("series", {}).get("count", 1) for event in events(control_plane, namespace, "losing")
    }
    assert told == {"Projected": 3, "ConfigMapNotFound": 2}


def test_a_config_map_without_the_label_is_read_and_not_watched(
    control_plane: ControlPlane, namespace: str, operator: OperatorProcess
) -> None:
    control_plane.apply(
        config_map("training", namespace, {"job.yaml": SAMPLE}, labelled=False),
        request("quiet", namespace, training=REFERENCE),
        config_map("watched", namespace, {"job.yaml": SAMPLE}),
        request("loud", namespace, training={"configMapRef": {"name": "watched", "key": "job.yaml"}}),
    )
    wait_completed(control_plane, namespace, "quiet", "loud")
    control_plane.apply(
        config_map("training", namespace, {"job.yaml": SHORTER}, labelled=False),
        config_map("watched", namespace, {"job.yaml": SHORTER}),
    )
    eventually(lambda: sequence_length(control_plane, namespace, "loud") == "4096", what="the watched one")
    assert sequence_length(control_plane, namespace, "quiet") == "8192"
    assert operator.process.poll() is None


def test_the_next_resync_reads_config_maps_without_the_label(control_plane: ControlPlane, namespace: str) -> None:
    with running_operator(account(control_plane), "--resync-seconds=0.2", "--probe-seconds=0.2"):
        control_plane.apply(
            config_map("training", namespace, {"job.yaml": SAMPLE}, labelled=False),
            request("patient", namespace, training=REFERENCE),
        )
        wait_completed(control_plane, namespace, "patient")
        control_plane.apply(config_map("training", namespace, {"job.yaml": SHORTER}, labelled=False))
        eventually(lambda: sequence_length(control_plane, namespace, "patient") == "4096", what="the resync")


def test_the_hardware_description_of_a_config_map_is_used(
    control_plane: ControlPlane, namespace: str, operator: OperatorProcess
) -> None:
    slow = "hardware_config:\n  pod_bw: 0.5\n  node_bw: 50.0\n"
    target = {"nodes": 8, "device": "MI300X", "hardwareConfigRef": {"name": "links", "key": "hardware.yaml"}}
    control_plane.apply(
        config_map("links", namespace, {"hardware.yaml": slow}),
        request("slow", namespace, target=target),
        request("catalog", namespace),
    )
    wait_completed(control_plane, namespace, "slow", "catalog")
    times = [
        get(control_plane, namespace, name)["status"]["throughput"]["iterationTimeMilliseconds"]
        for name in ("slow", "catalog")
    ]
    assert times[0] > times[1]
    assert operator.process.poll() is None
