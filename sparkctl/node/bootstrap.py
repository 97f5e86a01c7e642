"""Start the agent and the guard on a node: the command, and the program that goes to its stdin. Nothing is written to
disk.
"""

from __future__ import annotations

import importlib.util
import re
import sys
import zlib
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from sparkctl.model.lazy_dataclass import dataclass

KEEPALIVE_SECONDS = 10.0  # seconds without a keepalive after which the agent ends itself
# `python3 -` would wait for the end of stdin, so the interpreter gets the lengths of the modules, each after those that
# it imports; the packages around them are empty. The last one's main is the program.
BOOTSTRAP_SCRIPT = """import os,sys
def take(n):
 s=b""
 while len(s)<n:
  d=os.read(0,n-len(s))
  if not d:os._exit(0)
  s+=d
 return s
for w in sys.argv[1].split(","):
 k,n=w.split(":")
 m=sys.modules[k]=type(sys)(k)
 exec(compile(take(int(n)),k,"exec",optimize=2),m.__dict__)
m.main(sys.argv[2:]) # """
GUARD_MODULES = (
    "kernel_log", "agent", "guard.decision", "guard.guard_sockets", "guard.container_watch", "guard.guard_memory",
    "guard.kill_requests", "guard.daemon",
)  # fmt: skip

WORD_PATTERN = re.compile(r"\w+")
_STATEMENT_PATTERN = re.compile(r"(?:^@.*\n)*^[\w].*\n(?:(?![@\w]).*\n?)*", re.MULTILINE)
_DEFINITION_PATTERN = re.compile(r"^(?:def |class )?(\w+) *(?:[(:]|=(?!=))", re.MULTILINE)
_NVML_NAME_PATTERN = re.compile(r"(?!NVML_ERROR_)(?:c?_?nvml[A-Z]\w*|NVML_\w+|c_nvml\w+|_?struct_\w+)$")


@dataclass(frozen=True, slots=True)
class RemoteProgram:
    """How to start a program on a node: run ``argv``, write ``stdin`` at once, then a line at least every few seconds."""

    argv: tuple[str, ...]
    stdin: bytes


def build_program(
    mark: str, modules: Sequence[str], words: Sequence[str] = (), stdin: bytes = b"", python: str = "python3"
) -> RemoteProgram:
    """Return how to run the last of these modules of `sparkctl.node`, with the others beside it.

    ``mark`` is what its command line is known by, ``stdin`` what it reads first.
    """
    sources = [(Path(__file__).parent / f"{name.replace('.', '/')}.py").read_bytes() for name in modules]
    lengths = [f"sparkctl.node.{name}:{len(source)}" for name, source in zip(modules, sources, strict=True)]
    lengths = ["sparkctl:0", "sparkctl.node:0", "sparkctl.node.guard:0", *lengths]
    argv = (python, "-ISu", "-c", BOOTSTRAP_SCRIPT + mark, ",".join(lengths), *words)
    return RemoteProgram(argv, b"".join(sources) + stdin)


def pack_pynvml(source: bytes | None, program: str = "agent") -> bytes:
    """Return what is sent of pynvml: ``source``, or for None what ``program`` uses of the installed one."""
    module = read_pynvml_source(program) if source is None else source
    return zlib.compress(module, 9) if module else b""


def build_agent_program(
    every: float,
    disks: Sequence[str] = (),
    *,
    fed: float = KEEPALIVE_SECONDS,
    root: str = "/",
    nvml: bytes | None = None,
    python: str = "python3",
) -> RemoteProgram:
    """Return how to start an agent that samples ``every`` seconds and ends after ``fed`` seconds without a keepalive.

    ``disks``: paths whose filesystems are watched. ``root``: where the node's /proc and /sys are. ``nvml``: the source
    of pynvml; None: the installed one, empty: no GPU.
    """
    packed = pack_pynvml(nvml)
    words = [str(len(packed)), "--every", f"{every:g}", "--fed", f"{fed:g}", "--root", root]
    for disk in disks:
        words += ["--disk", disk]
    return build_program("sparkctl-probe", ["kernel_log", "agent"], words, packed, python)


def build_kernel_log_program(
    *, boot_before: bool, root: str = "/", python: str = "python3", is_local: bool
) -> RemoteProgram:
    """Return how to read the kernel's log once, with ``boot_before`` also how the boot before ended."""
    words = ["--root", root, *(["--boot-before"] if boot_before else [])]
    if is_local:
        return RemoteProgram((sys.executable, "-Pu", "-m", "sparkctl.node.kernel_log", *words), b"")
    return build_program("sparkctl-kernel-log", ["kernel_log"], words, python=python)


def build_local_agent_program(
    every: float, disks: Sequence[str] = (), *, fed: float = KEEPALIVE_SECONDS
) -> RemoteProgram:
    """Return how to start an agent on this machine: with the installed pynvml and psutil, and nothing to send.

    -P prevents imports from the current directory.
    """
    words = ["--every", f"{every:g}", "--fed", f"{fed:g}"]
    if importlib.util.find_spec("pynvml") is not None:
        words += ["--nvml", "installed"]
    for disk in disks:
        words += ["--disk", disk]
    return RemoteProgram((sys.executable, "-Pu", "-m", "sparkctl.node.agent", "0", "0", *words), b"")


def build_guard_program(
    *,
    root: str = "/",
    nvml: bytes | None = None,
    python: str = "python3",
    options: Sequence[str] = (),
) -> RemoteProgram:
    """Return how to start the guard: it answers with one line (`decode_guard_start`) and goes into the background.

    Nothing is written after ``stdin``. ``options``: ``--dir``, ``--docker``, ``--sudo``, ``--linger``, ``--ask``, each
    with a value that overrides the guard's default.
    """
    packed = pack_pynvml(nvml)
    words = [str(len(packed)), "--root", root, *options]
    return build_program("sparkctl-guard", GUARD_MODULES, words, packed, python)


@cache
def read_pynvml_source(program: str) -> bytes:
    """Return the part of the installed pynvml that a program uses, b"" if it is not installed."""
    spec = importlib.util.find_spec("pynvml")
    if spec is None or spec.origin is None:
        return b""
    user = (Path(__file__).parent / f"{program}.py").read_text(encoding="utf-8")
    return trim_module_source(Path(spec.origin).read_text(encoding="utf-8"), set(WORD_PATTERN.findall(user))).encode()


def trim_module_source(module: str, wanted: set[str]) -> str:
    """Return a module's source without functions, classes and constants that are not reachable from ``wanted``.

    All of pynvml would cost a Spark 15 MiB. Its own helpers (names that are not NVML's) and all error codes stay.
    """
    pieces = _STATEMENT_PATTERN.findall(module)
    defined: dict[str, list[int]] = {}
    for at, piece in enumerate(pieces):
        match = _DEFINITION_PATTERN.search(piece)
        if match is not None:
            defined.setdefault(match[1], []).append(at)
    optional = {name for name in defined if _NVML_NAME_PATTERN.match(name)}
    kept = set(range(len(pieces))) - {at for name in optional for at in defined[name]}
    queue = sorted(kept | {at for name in wanted & optional for at in defined[name]})
    kept = set(queue)
    while queue:
        for name in set(WORD_PATTERN.findall(pieces[queue.pop()])) & optional:
            fresh = [at for at in defined[name] if at not in kept]
            kept.update(fresh)
            queue += fresh
    return _remove_unused_imports("".join(piece for at, piece in enumerate(pieces) if at in kept))


def _remove_unused_imports(module: str) -> str:
    """Return the module without unused imports: ctypes.util alone would cost a Spark 2.5 MiB."""

    def keep_used_names(line: re.Match[str]) -> str:
        names = [name for name in line[2].split(", ") if len(re.findall(rf"\b{name}\b", module)) > 1]
        return f"from {line[1]} import {', '.join(names)}\n" if names else ""

    return re.sub(r"^from ([\w.]+) import (\w+(?:, \w+)*)\n", keep_used_names, module, flags=re.MULTILINE)
