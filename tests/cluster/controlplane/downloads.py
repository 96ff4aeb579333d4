"""Fetch the official release archives, checked against the checksums in `downloads.yaml`."""

import contextlib
import hashlib
import tarfile
import tempfile
import threading
import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from http.client import HTTPException, HTTPResponse
from pathlib import Path
from typing import IO

import yaml

from tests.cluster.controlplane import versions
from tests.cluster.controlplane.cache import Say
from tests.cluster.controlplane.errors import ControlPlaneError

CONNECT_SECONDS = 5.0
"""How long a server may take to answer before the next source is tried."""

READ_SECONDS = 30.0
"""How long a download that has begun may stand still."""

CHUNK_BYTES = 1 << 20


class NotDownloadableError(ControlPlaneError):
    """This source has nothing for this machine; another one may."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Archive:
    """One release archive."""

    url: str
    """Where it lies; https."""
    algorithm: str
    """Name of the checksum's algorithm in hashlib."""
    checksum: str
    """Checksum of the whole archive in lower-case hexadecimal."""
    members: Mapping[str, str]
    """Path inside the archive -> name of the extracted program."""


def pinned_archives() -> tuple[Archive, ...]:
    """Return the archives for the pinned versions and this platform.

    Raises:
        NotDownloadableError: `downloads.yaml` has no checksum for one of them.
    """
    table = yaml.safe_load((Path(__file__).parent / "downloads.yaml").read_text())
    platform = versions.platform_name()
    wanted = {"kubernetes": versions.kubernetes_version(), "etcd": versions.etcd_version()}
    archives = []
    for name, version in wanted.items():
        entry = table[name]
        pinned = entry["checksums"].get(version, {})
        if platform not in pinned:
            raise NotDownloadableError(f"downloads.yaml pins no checksum of {name} {version} for {platform}")
        names = {"version": version, "platform": platform}
        archives.append(
            Archive(
                url=entry["url"].format(**names),
                algorithm=pinned["algorithm"],
                checksum=pinned[platform],
                members={path.format(**names): program for path, program in entry["members"].items()},
            )
        )
    return tuple(archives)


def download_into(
    folder: Path, archives: tuple[Archive, ...], say: Say, connect_seconds: float = CONNECT_SECONDS
) -> None:
    """Fetch, check and unpack `archives` into `folder`.

    Raises:
        NotDownloadableError: a server cannot be reached or does not have the file.
        ControlPlaneError: what came is not what was pinned.
    """
    with contextlib.ExitStack() as stack:
        # All connections first: no large archive is fetched in vain because the next server is out of reach.
        responses = [stack.enter_context(_open(archive.url, connect_seconds)) for archive in archives]
        for archive, response in zip(archives, responses, strict=True):
            say(f"downloading {archive.url}")
            with tempfile.TemporaryFile(dir=folder) as file:
                _copy_checked(response, file, archive)
                file.seek(0)
                _extract(file, archive, folder)


def _open(url: str, seconds: float) -> HTTPResponse:
    """Open `url`, waiting at most `seconds`, name resolution and redirects included."""
    outcome: list[HTTPResponse | Exception] = []
    given_up = threading.Event()

    def connect() -> None:
        try:
            response = urllib.request.urlopen(url, timeout=READ_SECONDS)  # noqa: S310 - the table holds https only
        except (OSError, HTTPException) as error:
            outcome.append(error)
        else:
            outcome.append(response)
            if given_up.is_set():
                response.close()

    # The resolver cannot be interrupted and knows no time limit, so it waits in a thread of its own.
    thread = threading.Thread(target=connect, daemon=True)
    thread.start()
    thread.join(seconds)
    if not outcome:
        given_up.set()
        raise NotDownloadableError(f"{url}: no answer within {seconds:g} s")
    result = outcome[0]
    if isinstance(result, urllib.error.HTTPError):
        # The error is an open response, too.
        result.close()
        raise NotDownloadableError(f"{url}: {result.code} {result.reason}")
    if isinstance(result, Exception):
        reason = result.reason if isinstance(result, urllib.error.URLError) else result
        raise NotDownloadableError(f"{url}: {reason}") from result
    return result


def _copy_checked(response: HTTPResponse, file: IO[bytes], archive: Archive) -> None:
    digest = hashlib.new(archive.algorithm)
    try:
        while chunk := response.read(CHUNK_BYTES):
            digest.update(chunk)
            file.write(chunk)
    except (OSError, HTTPException) as error:
        raise NotDownloadableError(f"{archive.url}: the download broke off: {error}") from error
    if digest.hexdigest() != archive.checksum:
        raise ControlPlaneError(
            f"{archive.url}: its {archive.algorithm} is {digest.hexdigest()}, pinned is {archive.checksum}; "
            "nothing of it was used"
        )


def _extract(file: IO[bytes], archive: Archive, folder: Path) -> None:
    missing = dict(archive.members)
    with tarfile.open(fileobj=file, mode="r:gz") as tar:
        for member in tar:
            program = missing.pop(member.name, None)
            source = tar.extractfile(member) if program else None
            if program is None or source is None:
                continue
            with (folder / program).open("wb") as target:
                while chunk := source.read(CHUNK_BYTES):
                    target.write(chunk)
            (folder / program).chmod(0o755)
    if missing:
        raise ControlPlaneError(f"{archive.url} lacks {', '.join(missing)}")
