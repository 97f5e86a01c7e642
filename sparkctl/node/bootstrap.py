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

_NAME_PATTERN = re.compile(r"[_cnNs]\w+")  # words that begin as a name of NVML does, and ends of others
# a function, class or constant of NVML: its whole statement, and its name
_NVML_STATEMENT_PATTERN = re.compile(
    r"^((?:@.*\n)*(?:def |class )?((?!NVML_ERROR_)(?:c?_?nvml[A-Z]|NVML_\w|c_nvml\w|_?struct_\w)\w*) *(?:[(:]|=(?!=)).*\n"
    r"(?:(?![@\w]).*\n?)*)",
    re.MULTILINE,
)


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


@cache
def pack_pynvml(source: bytes | None, program: str = "agent") -> bytes:
    """Return what is sent of pynvml: ``source``, or for None what ``program`` uses of the installed one."""
    module = read_pynvml_source(program) if source is None else source
    return zlib.compress(module) if module else b""


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


def read_pynvml_source(program: str) -> bytes:
    """Return the part of the installed pynvml that a program uses, b"" if it is not installed."""
    spec = importlib.util.find_spec("pynvml")
    if spec is None or spec.origin is None:
        return b""
    user = (Path(__file__).parent / f"{program}.py").read_text(encoding="utf-8")
    return trim_module_source(Path(spec.origin).read_text(encoding="utf-8"), user).encode()


def trim_module_source(module: str, user: str) -> str:
    """Return a module's source without functions, classes and constants that its ``user``, a source, does not reach.

    All of pynvml would cost a Spark 15 MiB. Its own helpers (names that are not NVML's) and all error codes stay.
    """
    parts = _NVML_STATEMENT_PATTERN.split(module)  # what stays, a statement, its name, what stays, ...
    defined: dict[str, list[int]] = {}
    for at, name in enumerate(parts[2::3]):
        defined.setdefault(name, []).append(3 * at + 1)
    kept, queue = set(range(0, len(parts), 3)), ["".join(parts[::3]), user]
    while queue:
        for name in defined.keys() & _NAME_PATTERN.findall(queue.pop()):
            fresh = [at for at in defined.pop(name) if at not in kept]
            kept.update(fresh)
            queue += [parts[at] for at in fresh]
    return _remove_unused_imports("".join(part for at, part in enumerate(parts) if at in kept))


def _remove_unused_imports(module: str) -> str:
    """Return the module without unused imports: ctypes.util alone would cost a Spark 2.5 MiB."""

    def keep_used_names(line: re.Match[str]) -> str:
        names = [name for name in line[2].split(", ") if module.count(name) > 1]
        return f"from {line[1]} import {', '.join(names)}\n" if names else ""

    return re.sub(r"^from ([\w.]+) import (\w+(?:, \w+)*)\n", keep_used_names, module, flags=re.MULTILINE)
