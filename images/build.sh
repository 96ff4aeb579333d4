#!/usr/bin/env bash
# Builds the container images with whichever builder this machine has.
#   images/build.sh [TAG [BUILDER_OPTION...]]
# TAG is the version in pyproject.toml when empty; options, such as --pull or --build-arg, go to the builder as they are.
set -euo pipefail
cd "$(dirname "$0")/.."
version=$(sed -n 's/^version = "\(.*\)"$/\1/p' pyproject.toml)
tag=${1:-$version}
options=("${@:2}")

builder() {
    if command -v docker >/dev/null && docker info >/dev/null 2>&1; then echo "docker build"
    elif command -v podman >/dev/null; then echo "podman build"
    elif command -v buildah >/dev/null; then echo "buildah bud --isolation chroot"
    fi
}

build=$(builder)
if [ -z "$build" ]; then
    echo "images: no builder found: install buildah or podman, or start a Docker daemon" >&2
    exit 2
fi
for image in images/*/Dockerfile; do
    name=projection-$(basename "$(dirname "$image")")
    echo "Building $name:$tag with $build ..."
    $build "${options[@]}" --file "$image" --tag "$name:$tag" . || {
        echo "images: building $name failed. Where docker.io cannot be reached, tag a base of your own as" \
            "docker.io/library/python:3.11-slim and give BUILD_FLAGS='--pull-never'" >&2
        exit 1
    }
done
