"""The programs of the control plane come from the first source that has them, checked, and are made once."""

import hashlib
import http.server
import io
import os
import socket
import subprocess
import sys
import tarfile
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.cluster.controlplane import ControlPlaneError, UnavailableError, versions
from tests.cluster.controlplane.binaries import REQUIRED, find_binaries
from tests.cluster.controlplane.build import find_go
from tests.cluster.controlplane.cache import cache_folder, filled_atomically, locked
from tests.cluster.controlplane.clusters import CHECKOUT
from tests.cluster.controlplane.downloads import Archive, NotDownloadableError, download_into, pinned_archives

PROGRAM = b"#!/bin/sh\necho hello\n"


def silent(_: str) -> None:
    pass


def fill(folder: Path, programs: tuple[str, ...]) -> Path:
    folder.mkdir(parents=True)
    for name in programs:
        (folder / name).touch(mode=0o755)
    return folder


def test_kubebuilder_assets_come_first_when_they_are_complete(tmp_path: Path) -> None:
    assets = fill(tmp_path / "assets", REQUIRED)
    found = find_binaries(silent, {"KUBEBUILDER_ASSETS": str(assets)}, cache=tmp_path / "cache")
    assert found.path("etcd") == str(assets / "etcd")


def test_incomplete_kubebuilder_assets_are_named_and_passed_over(tmp_path: Path) -> None:
    assets = fill(tmp_path / "assets", ("etcd", "kube-apiserver", "kubectl"))
    name = f"kubernetes-{versions.kubernetes_version()}-etcd-{versions.etcd_version()}-{versions.platform_name()}"
    cached = fill(tmp_path / "cache" / f"{name}-official", REQUIRED)
    said: list[str] = []
    found = find_binaries(said.append, {"KUBEBUILDER_ASSETS": str(assets)}, cache=tmp_path / "cache")
    assert found.folder == cached
    assert said == [f"KUBEBUILDER_ASSETS={assets} lacks kube-controller-manager, kube-scheduler: not used"]


def test_what_was_built_before_is_used_without_asking_the_network(tmp_path: Path) -> None:
    name = f"kubernetes-{versions.kubernetes_version()}-etcd-{versions.etcd_version()}-{versions.platform_name()}"
    cached = fill(tmp_path / f"{name}-{versions.modules_digest()}", REQUIRED)
    said: list[str] = []
    assert find_binaries(said.append, {}, cache=tmp_path).folder == cached
    assert said == []


def test_a_missing_go_is_answered_with_what_to_install() -> None:
    with pytest.raises(UnavailableError, match=r"install Go 1\.24 or newer"):
        find_go(search_path="/nonexistent")


def test_every_kubernetes_module_is_pinned_at_one_release() -> None:
    release = versions.kubernetes_version().removeprefix("1.")
    text = (versions.MODULES / "kubernetes" / "go.mod").read_text()
    replaced = [line.split() for line in text.splitlines() if "=>" in line]
    assert len(replaced) > 20
    assert {target[3] for target in replaced} == {f"v0.{release}"}


def test_the_official_archives_of_the_pinned_versions_have_checksums(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(versions, "platform_name", lambda: "linux-amd64")
    programs = {program for archive in pinned_archives() for program in archive.members.values()}
    assert programs >= set(REQUIRED)
    for archive in pinned_archives():
        assert archive.url.startswith("https://")
        assert len(archive.checksum) == 2 * hashlib.new(archive.algorithm).digest_size


def test_a_platform_without_checksums_is_not_downloaded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(versions, "platform_name", lambda: "plan9-mips")
    with pytest.raises(NotDownloadableError, match=r"no checksum of kubernetes .* for plan9-mips"):
        pinned_archives()


@pytest.fixture
def archive(tmp_path: Path) -> Iterator[Archive]:
    """Give an archive with one program, served by a web server on this machine."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
        for name in ("release/bin/program", "release/README"):
            member = tarfile.TarInfo(name)
            member.size = len(PROGRAM)
            tar.addfile(member, io.BytesIO(PROGRAM))
    content = buffer.getvalue()
    (tmp_path / "served").mkdir()
    (tmp_path / "served" / "release.tar.gz").write_bytes(content)

    class Handler(http.server.SimpleHTTPRequestHandler):
        def __init__(self, *arguments: object) -> None:
            super().__init__(*arguments, directory=str(tmp_path / "served"))  # type: ignore[arg-type]

        def log_message(self, *_: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield Archive(
            url=f"http://127.0.0.1:{server.server_port}/release.tar.gz",
            algorithm="sha256",
            checksum=hashlib.sha256(content).hexdigest(),
            members={"release/bin/program": "program"},
        )
        server.shutdown()
        thread.join()


def test_a_download_that_matches_its_checksum_is_unpacked(archive: Archive, tmp_path: Path) -> None:
    target = tmp_path / "programs"
    with filled_atomically(target) as scratch:
        download_into(scratch, (archive,), silent)
    assert [path.name for path in target.iterdir()] == ["program"]
    assert subprocess.run([target / "program"], capture_output=True, check=True).stdout == b"hello\n"


def test_a_download_that_differs_from_its_checksum_leaves_nothing(archive: Archive, tmp_path: Path) -> None:
    target = tmp_path / "programs"
    other = replace(archive, checksum="0" * 64)
    with pytest.raises(ControlPlaneError, match="pinned is 0000") as caught, filled_atomically(target) as scratch:
        download_into(scratch, (other,), silent)
    # Anything but "not downloadable": the next source must not paper over it.
    assert not isinstance(caught.value, NotDownloadableError)
    assert [path.name for path in tmp_path.iterdir()] == ["served"]


def test_an_archive_without_the_program_is_refused(archive: Archive, tmp_path: Path) -> None:
    with pytest.raises(ControlPlaneError, match="lacks release/bin/other"):
        download_into(tmp_path, (replace(archive, members={"release/bin/other": "other"}),), silent)


def test_a_file_that_is_not_there_leads_to_the_next_source(archive: Archive, tmp_path: Path) -> None:
    with pytest.raises(NotDownloadableError, match="404"):
        download_into(tmp_path, (replace(archive, url=f"{archive.url}.gone"),), silent)


def test_a_server_that_never_answers_leads_to_the_next_source(archive: Archive, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as mute:
        url = f"http://127.0.0.1:{mute.getsockname()[1]}/x"
        with pytest.raises(NotDownloadableError, match=r"no answer within 0\.2 s"):
            download_into(tmp_path, (replace(archive, url=url),), silent, connect_seconds=0.2)
        mute.accept()[0].close()


def test_two_processes_never_fill_one_folder_at_once(tmp_path: Path) -> None:
    script = (
        "import sys; from pathlib import Path; from tests.cluster.controlplane.cache import locked\n"
        "with locked(Path(sys.argv[1]), lambda line: print(line, flush=True)): print('mine', flush=True)"
    )
    with locked(tmp_path, silent):
        other = subprocess.Popen(
            [sys.executable, "-c", script, str(tmp_path)], cwd=CHECKOUT, stdout=subprocess.PIPE, text=True
        )
        assert other.stdout is not None
        assert other.stdout.readline() == f"another process is filling {tmp_path}; waiting for it\n"
    with other:
        assert other.stdout.read() == "mine\n"


def test_a_fill_that_fails_leaves_nothing_and_one_that_was_killed_is_cleared(tmp_path: Path) -> None:
    target = tmp_path / "programs"
    (tmp_path / ".making-programs-killed").mkdir()

    def fail() -> None:
        with filled_atomically(target) as scratch:
            (scratch / "half").touch()
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("value", "expected"), [("/somewhere", "/somewhere"), ("", "{home}/.cache"), ("relative", "{home}/.cache")]
)
def test_the_cache_follows_the_base_directory_specification(
    value: str, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", value)
    assert cache_folder() == Path(expected.format(home=Path.home())) / "projection-operator"


def test_kind_says_in_one_line_why_it_cannot_run(tmp_path: Path) -> None:
    docker = tmp_path / "docker"
    docker.write_text("#!/bin/sh\necho Cannot connect to the Docker daemon >&2\nexit 1\n")
    docker.chmod(0o755)
    for path, reason in ((str(tmp_path), "Cannot connect to the Docker daemon"), ("/nonexistent", "no `docker`")):
        done = subprocess.run(
            [sys.executable, "-m", "tests.cluster.controlplane", "kind-e2e"],
            cwd=CHECKOUT,
            env={**os.environ, "PATH": path},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 2
        assert reason in done.stderr
        assert len(done.stderr.splitlines()) == 1
