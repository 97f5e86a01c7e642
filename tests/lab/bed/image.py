"""The engine's image, made here: Debian's own Python, what it links to, busybox, and the stand-in engine. No registry.

An archive as `docker save` writes it: loaded on both nodes it is one image, with one id.
"""

from __future__ import annotations

import hashlib
import io
import json
import platform
import shutil
import subprocess
import tarfile
import tempfile
from pathlib import Path

from tests.lab.bed.names import IMAGE

# The same bytes under the names that the shipped profiles ask for, so that their real command lines run here.
TAGS = (
    IMAGE,
    "scitrera/dgx-spark-sglang:0.5.12",
    "scitrera/dgx-spark-vllm:0.19.1",
)
STANDIN = Path(__file__).with_name("standin")
LEFT_OUT = {"test", "tests", "lib2to3", "pydoc_data", "ensurepip", "distutils", "idlelib", "tkinter", "turtledemo"}
APPLETS = "sh ls cat sleep ps env id echo printf seq grep true false head tail dd rm mkdir touch wc kill date df"
ENGINE_DIR = "opt/engine"
CONFIG = {
    "Env": ["PATH=/usr/local/bin:/usr/bin:/bin", f"PYTHONPATH=/{ENGINE_DIR}"],
    "Cmd": ["python", "-m", "standin"],
}
ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}  # as Docker calls them
MADE = "2026-01-01T00:00:00Z"  # part of what the id is made of


def build_image(target: Path) -> None:
    """Write the image as an archive (some 45 MB, about a second)."""
    layer = target.with_suffix(".layer")
    _write_root(layer)
    with layer.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    described = json.dumps({
        "architecture": ARCHITECTURES.get(platform.machine(), platform.machine()), "os": "linux", "created": MADE, "config": CONFIG,
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{digest}"]}, "history": [{"created": MADE}],
    }).encode()  # fmt: skip
    name = f"{hashlib.sha256(described).hexdigest()}.json"
    contents = [{"Config": name, "RepoTags": list(TAGS), "Layers": ["layer.tar"]}]
    with tarfile.open(target.with_suffix(".part"), "w") as tar:
        _add_file(tar, name, described)
        tar.add(layer, "layer.tar")
        _add_file(tar, "manifest.json", json.dumps(contents).encode())
    layer.unlink()
    target.with_suffix(".part").rename(target)


def _write_root(target: Path) -> None:
    python = Path("/usr/bin/python3").resolve()
    library = Path("/usr/lib") / python.name
    with tarfile.open(target, "w") as tar:
        for name in ("tmp", "proc", "sys", "dev", "models", "root", "usr/bin", "usr/lib", "usr/lib64", "usr/local/bin"):
            _add_directory(tar, name)
        for name in ("bin", "lib", "lib64"):
            _add_link(tar, name, f"usr/{name}")
        tar.add(python, f"usr/bin/{python.name}")
        for name in ("python", "python3"):
            _add_link(tar, f"usr/bin/{name}", python.name)
        tar.add(library, str(library).lstrip("/"), filter=_filter_entry)
        for path in _list_linked_files(python, *(library / "lib-dynload").glob("*.so")):
            tar.add(path.resolve(), str(path).lstrip("/"))
        tar.add("/bin/busybox", "usr/bin/busybox")
        for name in APPLETS.split():
            _add_link(tar, f"usr/bin/{name}", "busybox")
        _add_engine(tar, python)
        _add_file(tar, "usr/local/bin/vllm", b'#!/bin/sh\nshift\nexec python -m vllm --model "$@"\n', 0o755)
        _add_file(tar, "etc/passwd", b"root:x:0:0:root:/root:/bin/sh\n")
        _add_file(tar, "etc/group", b"root:x:0:\n")


def _add_engine(tar: tarfile.TarFile, python: Path) -> None:
    """Add the stand-in, compiled: a container keeps nothing that its Python compiles."""
    with tempfile.TemporaryDirectory() as place:
        copied = shutil.copytree(STANDIN, Path(place, "engine"), ignore=shutil.ignore_patterns("__pycache__"))
        subprocess.run([python, "-m", "compileall", "-q", "-s", copied, "-p", f"/{ENGINE_DIR}", copied], check=True)
        tar.add(copied, ENGINE_DIR)


def _list_linked_files(*binaries: Path) -> set[Path]:
    listed = subprocess.run(["ldd", *map(str, binaries)], capture_output=True, text=True, check=True).stdout
    return {Path(word) for word in listed.split() if word.startswith("/") and not word.endswith(":")}


def _filter_entry(entry: tarfile.TarInfo) -> tarfile.TarInfo | None:
    parts = Path(entry.name).parts
    if LEFT_OUT.intersection(parts) or parts[-1].startswith("config-3") or ".opt-" in parts[-1]:
        return None
    return entry


def _add_directory(tar: tarfile.TarFile, name: str) -> None:
    entry = tarfile.TarInfo(name)
    entry.type, entry.mode = tarfile.DIRTYPE, 0o1777 if name == "tmp" else 0o755
    tar.addfile(entry)


def _add_link(tar: tarfile.TarFile, name: str, target: str) -> None:
    entry = tarfile.TarInfo(name)
    entry.type, entry.linkname = tarfile.SYMTYPE, target
    tar.addfile(entry)


def _add_file(tar: tarfile.TarFile, name: str, content: bytes, mode: int = 0o644) -> None:
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode = len(content), mode
    tar.addfile(entry, io.BytesIO(content))
