"""From what an image is built: contexts, their hashes, and what an import may bring."""

from __future__ import annotations

import os
import tarfile
from pathlib import Path

import pytest

from sparkctl.commands.pull.image_pull import ImageBuild
from sparkctl.errors import InvalidInput
from sparkctl.model.missing_part import GitContext, parse_build_source
from sparkctl.transport.docker.docker_client import pack_build_context


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("https://example.org/a/vllm.git", GitContext("https://example.org/a/vllm.git")),
        ("https://example.org/a/vllm.git#v1.2:docker/spark", GitContext("https://example.org/a/vllm.git", "v1.2", "docker/spark")),
        ("git@example.org:a/vllm.git#main", GitContext("git@example.org:a/vllm.git", "main")),
        ("ssh://git@example.org/a/vllm#:docker", GitContext("ssh://git@example.org/a/vllm", None, "docker")),
        ("https://example.org/a.git#v1:Dockerfile.gpu", GitContext("https://example.org/a.git", "v1", None, "Dockerfile.gpu")),
        ("https://example.org/a.git#v1:docker/gpu.Dockerfile", GitContext("https://example.org/a.git", "v1", "docker", "gpu.Dockerfile")),
        ("./image", None), ("../image", None), ("~/image", None), ("/srv/image", None), (".", None),
    ],
)  # fmt: skip
def test_a_context_is_a_repository_or_a_directory(text: str, expected: GitContext | None) -> None:
    found = parse_build_source(text)
    assert found == expected
    if found is not None:
        assert str(found) == text


def test_docker_build_gets_the_dockerfile_that_is_named() -> None:
    context = parse_build_source("https://example.org/a.git#v1:docker/Dockerfile.gpu")
    assert context is not None
    words = ImageBuild("own/a:1", context, str(context)).list_words()
    assert words[-3:] == ["--file", "Dockerfile.gpu", "https://example.org/a.git#v1:docker"]
    assert words[3].endswith("=https://example.org/a.git#v1:docker/Dockerfile.gpu")


@pytest.mark.parametrize(
    "text",
    [
        "vllm", "-fDockerfile", "https://user:password@example.org/a.git", "https://token@example.org/a.git", "ssh://a:b@example.org/a",
        "https://example.org/a.git#v1:../../etc", "https://example.org/a.git#--upload-pack=x", "file:///srv/a.git", "ext::sh -c x",
        "https://example.org/a b.git", "https://example.org/a.git#main:a b", "a" * 400, "./a\nb",
    ],
)  # fmt: skip
def test_what_is_no_context_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"\S"):
        parse_build_source(text)


def write_context(directory: Path) -> Path:
    directory.mkdir()
    (directory / "Dockerfile").write_text("FROM scratch\nCOPY run.sh /\n")
    (directory / "run.sh").write_text("#!/bin/sh\n")
    (directory / "notes.txt").write_text("not in the image")
    (directory / ".dockerignore").write_text("# what stays here\n*.txt\n")
    return directory


def test_the_same_files_have_the_same_hash_and_a_change_has_another(tmp_path: Path) -> None:
    one, two = write_context(tmp_path / "one"), write_context(tmp_path / "two")
    os.utime(two / "run.sh", (1, 1))
    (two / "notes.txt").write_text("ignored")
    first = pack_build_context(one, ".")
    assert pack_build_context(tmp_path, "./two").digest == first.digest
    with tarfile.open(fileobj=first.archive) as archive:
        assert archive.getnames() == [".dockerignore", "Dockerfile", "run.sh"]
    (two / "run.sh").chmod(0o755)
    changed = pack_build_context(tmp_path, "./two").digest
    assert changed != first.digest
    (two / "run.sh").write_text("#!/bin/sh\ntrue\n")
    assert pack_build_context(tmp_path, "./two").digest not in (changed, first.digest)


def test_a_directory_without_a_dockerfile_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="has no Dockerfile"):
        pack_build_context(tmp_path, "./nothing")
