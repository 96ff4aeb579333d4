"""Wrap one static program as a container image, without a registry or an image builder.

The layout is the OCI Image Layout Specification 1.0: blobs named by their digest, a manifest, an index.
"""

import hashlib
import io
import json
import tarfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.cluster.controlplane.versions import platform_name

NAME = "projection.test/stub:1"
"""Name under which containerd knows the image."""

PROGRAM_PATH = "/stub"
_TYPE = "application/vnd.oci.image"


def write_image(program: Path, archive: Path) -> None:
    """Write an image that holds `program` at PROGRAM_PATH and starts it, as an OCI archive."""
    layer = _tar({PROGRAM_PATH.lstrip("/"): program.read_bytes()}, mode=0o755)
    config = {
        "architecture": platform_name().partition("-")[2],
        "os": "linux",
        "config": {"Entrypoint": [PROGRAM_PATH], "Cmd": ["pause"]},
        "rootfs": {"type": "layers", "diff_ids": [_digest(layer)]},
    }
    blobs: dict[str, bytes] = {}
    manifest = {
        "schemaVersion": 2,
        "mediaType": f"{_TYPE}.manifest.v1+json",
        "config": _blob(blobs, _json(config), f"{_TYPE}.config.v1+json"),
        "layers": [_blob(blobs, layer, f"{_TYPE}.layer.v1.tar")],
    }
    entry = _blob(blobs, _json(manifest), f"{_TYPE}.manifest.v1+json")
    entry["annotations"] = {"io.containerd.image.name": NAME}
    index = {"schemaVersion": 2, "mediaType": f"{_TYPE}.index.v1+json", "manifests": [entry]}
    files = blobs | {"oci-layout": _json({"imageLayoutVersion": "1.0.0"}), "index.json": _json(index)}
    archive.write_bytes(_tar(files, mode=0o644))


def _blob(blobs: dict[str, bytes], content: bytes, media_type: str) -> dict[str, Any]:
    """Store a blob and return its descriptor."""
    digest = _digest(content)
    blobs[f"blobs/{digest.replace(':', '/')}"] = content
    return {"mediaType": media_type, "digest": digest, "size": len(content)}


def _digest(content: bytes) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


def _json(content: object) -> bytes:
    return json.dumps(content).encode()


def _tar(files: Mapping[str, bytes], mode: int) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size, member.mode = len(content), mode
            tar.addfile(member, io.BytesIO(content))
    return buffer.getvalue()
