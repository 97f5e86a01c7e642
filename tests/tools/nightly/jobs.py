"""The jobs of a night: what each runs, what it needs, and what its output has to say before it counts as well done."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.lab.bed.lab import why_not
from tests.tools.nightly.engines.install import VLLM, Install

ROOT = Path(__file__).parents[3]
ENGINES = ROOT / "sparkctl" / "engines"
_LLAMA = "0.5.0"  # as the source that the job ``engines`` builds calls itself
_HOUR = 3600.0


def _no_reason() -> str | None:
    return None


def _no_mpirun() -> str | None:
    from tests.tools.nightly import mpirun  # with all that the tests need installed, which --list does without

    return mpirun.why_not_here()


@dataclass(frozen=True, slots=True)
class Job:
    """``words`` is the command, ``proof`` a regular expression that its output matches where it did its work.

    ``why_not`` tells, just before it would run, why it cannot; ``limit`` is in seconds. What only ``informs`` cannot fail.
    """

    name: str
    what: str
    words: tuple[str, ...]
    proof: str
    limit: float
    why_not: Callable[[], str | None] = _no_reason
    env: tuple[tuple[str, str], ...] = ()
    informs: bool = False


def list_jobs(cache: Path, recipes: Sequence[Path]) -> tuple[Job, ...]:
    """Return all of them in their order; engines are kept below ``cache``, ``recipes`` are directories to import from."""
    install = Install(cache)
    return tuple(_list_jobs(cache, install, tuple(str(one.absolute()) for one in recipes)))


def _list_jobs(cache: Path, install: Install, recipes: tuple[str, ...]) -> Iterator[Job]:
    python, passed = sys.executable, r"\d+ passed"
    pytest = (python, "-m", "pytest", "-q", "-rs", "-p", "no:cacheprovider")
    yield Job(
        "switch-kills", "a switch killed at every moment, with resume and with abort",
        (*pytest, "--timeout=1800", "tests/lab/test_lab_switch.py", "-k", "killed"), passed, _HOUR, why_not,
        env=(("SPARKCTL_LAB_ALL", "1"),),
    )  # fmt: skip
    site = cache / "site"
    yield Job(
        "site", "the documentation as a site: every link and anchor of it leads somewhere",
        ("sh", "-ec", f"{python} -m venv {site}; {site}/bin/pip install -q 'mkdocs>=1.6,<2' 'mkdocs-material>=9.5'; "
                      f"{site}/bin/mkdocs build --strict -d {site}/html"), "Documentation built", _HOUR,
    )  # fmt: skip
    yield Job(
        "faults", "everything of docs/what-was-tried.md, tried again", (python, "-m", "tests.lab.faults"),
        r"(\d+) faults: \d+ survived", _HOUR, why_not,
    )  # fmt: skip
    yield Job(
        "login-shells", "every login shell that is installed, on a node: all verbs, the lock, the guard, the probe",
        (*pytest, "--timeout=1800", "tests/lab/test_login_shells.py"), passed, _HOUR, why_not,
        env=(("SPARKCTL_LAB_ALL", "1"),),
    )  # fmt: skip
    yield Job(
        "hunt", "properties with new random examples",
        (*pytest, "--timeout=1800", "--hypothesis-profile=hunt", "tests/unit"), passed, 2 * _HOUR,
    )  # fmt: skip
    yield Job(
        "patterns", "every regular expression held against hostile texts of 64 KiB and 1 MiB",
        (*pytest, "--timeout=1800", "-n", "2", "tests/unit/test_patterns_are_linear.py"), passed, _HOUR,
        env=(("SPARKCTL_LAB_ALL", "1"),),
    )  # fmt: skip
    yield Job(
        "garbage", "a node that answers with garbage, every way with every part of it",
        (*pytest, "--timeout=1800", "-n", "2", "tests/sim/nodes/test_garbage_answers.py"), passed, _HOUR,
        env=(("SPARKCTL_GARBAGE_SEEDS", "3"),),
    )  # fmt: skip
    yield Job(
        "ray", "a model over two nodes by a real Ray", (python, "-m", "tests.tools.nightly.ray_cluster", "--cache", str(cache)),
        r" s  down: ", _HOUR, why_not,
    )  # fmt: skip
    yield Job(
        "mpirun", "TensorRT-LLM's ranks on two nodes by a real Open MPI", (python, "-m", "tests.tools.nightly.mpirun"),
        r" s  a rank that ran out of memory: ", _HOUR, _no_mpirun,
    )  # fmt: skip
    yield Job(
        "engines", "a real vLLM and llama-server, started, loaded and broken",
        (python, "-m", "tests.tools.nightly.engines", "--cache", str(cache)), r"(\d+) of \1 as they should be", 3 * _HOUR,
    )  # fmt: skip
    yield Job(
        "llama-benchy", "`sparkctl bench` with the real llama-benchy against real engines: its table and its acceptance",
        (python, "-m", "tests.tools.nightly.engines.bench_start", "--cache", str(cache)), r"(\d+) of \1 as they should be",
        3 * _HOUR, why_not,
    )  # fmt: skip
    yield Job(
        "parsers", "our reading of command lines against vLLM's own parser",
        (python, "-m", "tests.tools.nightly.parsers", "vllm", VLLM, "--python", str(install.python)), r"\d+ lines, \d+ refused",
        _HOUR, lambda: _why_lacking(install.python),
    )  # fmt: skip
    yield Job(
        "flags-vllm", "the shipped catalogue against vLLM's own parser",
        (str(install.python), str(ROOT / "tests/tools/nightly/flags.py"), "vllm", "--against", str(ENGINES / "vllm" / f"flags-{VLLM}.json")),
        r"\d+ flags, none differs", _HOUR, lambda: _why_lacking(install.python),
    )  # fmt: skip
    yield Job(
        "flags-llamacpp", "the shipped catalogue against llama-server's own help",
        (python, "-m", "tests.tools.nightly.flags", "llamacpp", "--program", str(install.llama_server), "--against",
         str(ENGINES / "llamacpp" / f"flags-{_LLAMA}.json")),
        r"\d+ flags, none differs", _HOUR, lambda: _why_lacking(install.llama_server),
    )  # fmt: skip
    yield Job(
        "recipes", "every recipe of a directory, imported and held against its own tool's command",
        (python, "-m", "tests.tools.nightly.recipes", *recipes), r"\b[1-9]\d* recipes", _HOUR,
        lambda: None if recipes else "no directory of recipes was named (--recipes DIRECTORY)",
    )  # fmt: skip
    yield Job(
        "bench",
        "what the claims about speed in README and docs rest on",
        (python, "-m", "tests.tools.bench"),
        "",
        4 * _HOUR,
        informs=True,
    )


def _why_lacking(program: Path) -> str | None:
    return None if program.exists() else f"{program.name} of the job engines is not there"
