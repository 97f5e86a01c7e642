"""`sparkctl bench` with the real llama-benchy against real engines, each in a container of a lab's node, on this machine's CPU.

``python -m tests.tools.nightly.engines.bench_start`` installs what is missing as the job ``engines`` does, and llama-benchy into an
environment of its own; starts each engine by `sparkctl up`, measures it, and holds the table against llama-benchy's own result, and
the acceptance beside each cell against the engine's counters over the same time. Then `sparkctl bench` starts, measures and stops one
engine after the other, and the comparison is printed: the one of docs/bench.md. Exit 0: all was as it should be.
"""

from __future__ import annotations

import argparse
import json
import math
import re
import shlex
import sys
import tempfile
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from tests.lab.bed.node import LabNode
from tests.lab.support.sparkctl_process import Sparkctl
from tests.tools.nightly.engines import benchy_spy, random_model
from tests.tools.nightly.engines.install import VLLM, Install, NotInstalled, cache_directory
from tests.tools.nightly.engines.lab_start import NODE, mount_install, run_on_node
from tests.tools.nightly.engines.scenes import SPECULATION, Bench, format_row
from tests.tools.nightly.lab_job import WITHIN

TOLERANCE = 0.02
_ENDED_AT_ONCE = "no request generated more than one token"
_SIZES = ("--pp", "128", "--tg", "512", "--depth", "0,256", "--concurrency", "1,2", "--runs", "3")
_CELLS = 4
_COMPARED = (*_SIZES, "--tg", "1536", "--runs", "5")  # long enough to tell two engines apart
PORT = 8202
_DRAFTS_SINCE = (0, 20)  # of vLLM on a CPU
_NAMES = {  # of the engines' counters: steps that drafted, drafts, accepted drafts
    "vllm": "vllm:spec_decode_num_{}_total",
    "llamacpp": "llamacpp:spec_decode_num_{}_total",
}
_FIGURES = (
    ("generation_rate", "tg_throughput", 1.0),
    ("prompt_rate", "pp_throughput", 1.0),
    ("ttft", "e2e_ttft", 1000.0),
)


def measure_engine(engine: str, bench: Bench, node: LabNode, command: Sparkctl) -> None:
    """Start one engine, measure it, and compare."""
    del node
    name = f"{engine}-real"
    write_profile(bench, command, engine, name)
    began = time.monotonic()
    ran = command("up", name, "--node", NODE, "--json", timeout=WITHIN)
    if ran.code:
        bench.note(f"bench {engine}: up", time.monotonic() - began, f"exit {ran.code}", f"{ran!r}"[-1500:])
        return
    with tempfile.TemporaryDirectory(prefix="sparkctl-nightly-bench-") as scratch:
        spy = shlex.join([sys.executable, benchy_spy.__file__, scratch, str(bench.install.benchy)])
        model = bench.models / random_model.NAME
        is_private = any(
            not one.stat().st_mode & 0o001 for one in model.parents
        )  # to the user on the node, as /root is
        more = ("--tokenizer", str(model)) if engine == "llamacpp" or is_private else ()  # a GGUF has none
        began = time.monotonic()
        ran = command("bench", name, *_SIZES, *more, "--command", spy, "--json", timeout=WITHIN)
        cells = [event for event in ran.events if event["event"] == "cell"] if ran.out else []
        measured = [cell for cell in cells if cell["result"]["error"] is None]
        known = all(cell["result"]["error"] in (None, _ENDED_AT_ONCE) for cell in cells)
        is_good = (
            known and len(cells) == _CELLS and 2 * len(measured) >= _CELLS and (ran.code == 0) == (measured == cells)
        )
        wrong = None if is_good else f"exit {ran.code}, {len(cells)} cells: {ran!r}"[-1500:]
        bench.note(
            f"bench {engine}", time.monotonic() - began, f"{len(measured)} of {len(cells)} cells with figures", wrong
        )
        seen = [json.loads((Path(scratch) / f"{number}.json").read_text()) for number in range(len(cells) + 1)]
        warm_up, *measured_ones = seen
        bench.note(
            f"bench {engine}: warm-up",
            0.0,
            "a process of its own",
            None if warm_up["runs"] == 1 else "the first has more runs",
        )
        for cell, one in zip(cells, measured_ones, strict=True):
            _compare_cell(bench, engine, cell, one)
        whole = command("bench", "show", str(cells[-1]["benchmark"]), "--as", "llama-benchy")
        document = {_read_sizes(one): one for one in json.loads(whole.out)["benchmarks"]}
        theirs = [one["result"]["benchmarks"][-1] for one in measured_ones if one["result"] is not None]
        apart = [
            f"{name} of {_read_sizes(own)}"
            for own in theirs
            if (ours := document.get(_read_sizes(own))) is not None
            for name, value in own.items()
            if isinstance(value, dict) and not _is_same(value, ours.get(name))
        ]
        bench.note(
            f"bench {engine}: its document",
            0.0,
            f"{len(document)} cells",
            None if document and not apart else ", ".join(apart) or "none",
        )
    command("down", "--all", "--node", NODE, "--json", timeout=WITHIN)


def compare_engines(bench: Bench, node: LabNode, command: Sparkctl) -> None:
    """Have `bench --start` start, measure and stop one engine after the other, and print what `bench compare` makes of it."""
    names = [f"{engine}-real" for engine in ("vllm", "llamacpp")]
    for name in names:
        write_profile(bench, command, name.removesuffix("-real"), name)
    tools = ("--tokenizer", str(bench.models / random_model.NAME), "--command", str(bench.install.benchy))
    began = time.monotonic()
    ran = command("bench", *names, "--node", NODE, "--start", *_COMPARED, *tools, "--json", timeout=WITHIN)
    cells = [event for event in ran.events if event["event"] == "cell"]
    left = node.docker("ps", "-q")
    is_good = ran.code == 0 and len(cells) == 2 * _CELLS and not left
    wrong = None if is_good else f"exit {ran.code}, {len(cells)} cells, left: {left}: {ran!r}"[-1500:]
    bench.note("bench: one after the other", time.monotonic() - began, f"{len(cells)} cells", wrong)
    for form, begin in (("json", "{"), ("csv", "pp,tg"), ("table", "cell"), ("markdown", "| cell")):
        result = command("bench", "compare", *names, "--as", form)
        is_told = result.code == 0 and result.out.lstrip().startswith(begin)
        bench.note(f"bench compare --as {form}", 0.0, "told", None if is_told else f"{result!r}"[-600:])
    print(result.out, flush=True)


def _read_sizes(one: dict[str, Any]) -> tuple[int, ...]:
    return tuple(one[name] for name in ("prompt_size", "response_size", "context_size", "concurrency"))


def _is_same(theirs: dict[str, Any], ours: dict[str, Any] | None) -> bool:
    """Tell whether two figures are the same: ours have six digits."""
    return ours is not None and all(
        math.isclose(one, other, rel_tol=1e-4, abs_tol=1e-2)
        for one, other in zip(
            (theirs["mean"], theirs["std"], *theirs["values"]),
            (ours["mean"], ours["std"], *ours["values"]),
            strict=True,
        )
    )


def _can_draft(install: Install) -> bool:
    """Tell whether this vLLM drafts on a CPU."""
    major, minor, *_ = install.vllm_version.split(".")
    return (int(major), int(minor)) >= _DRAFTS_SINCE


def write_profile(bench: Bench, command: Sparkctl, engine: str, name: str, *, drafts: bool = True) -> None:
    """Write a profile of an engine that this machine has; it drafts where it can, unless told otherwise."""
    common: dict[str, Any] = {
        "engine": engine, "port": PORT, "container": {"gpus": "none", "network": "host", "shm_size": "1g"},
        "mounts": mount_install(bench),
    }  # fmt: skip
    fields: dict[str, Any]
    environment = {"PATH": f"{bench.install.vllm.parent}:/usr/bin:/bin", "HOME": "/tmp", "PYTHONPATH": ""}
    model = bench.models / random_model.NAME
    if engine == "vllm":
        quiet = {
            "VLLM_CPU_KVCACHE_SPACE": "1",
            "VLLM_NO_USAGE_STATS": "1",
            "HF_HUB_OFFLINE": "1",
            "OMP_NUM_THREADS": "1",
        }
        args = {
            "enforce-eager": True, "max-model-len": 2048, "override-generation-config": {"temperature": 0},
            **({"speculative-config": SPECULATION} if drafts and _can_draft(bench.install) else {}),
        }  # fmt: skip
        fields = {"model": {"path": str(model), "served_name": random_model.NAME}, "env": environment | quiet}
    else:
        args = {
            "ctx-size": 4096, "parallel": 2, "threads": 1, "poll": 0, "metrics": True, "temp": 0, "spec-type": "ngram-simple",
            "spec-ngram-simple-size-n": 4, "spec-ngram-simple-size-m": 8,
        }  # fmt: skip
        fields = {
            "model": {"path": f"{model}.gguf", "served_name": random_model.NAME}, "env": environment,
            "command": [str(bench.install.llama_server)],
        }  # fmt: skip
    command.profile(name, **common, **fields, args=args)


def _compare_cell(bench: Bench, engine: str, cell: dict[str, Any], seen: dict[str, Any]) -> None:
    """Hold one cell against llama-benchy's own file, and against the engine's two pages."""
    label, ours = "pp{pp} tg{tg} d{depth} c{concurrency}".format(**cell["cell"]), cell["result"]
    if ours["error"] not in (None, _ENDED_AT_ONCE) or seen["result"] is None:
        bench.note(f"bench {engine}: {label}", 0.0, "no figures", f"not measured: {ours['error']}")
        return
    own = seen["result"]["benchmarks"][-1]
    if ours["error"] == _ENDED_AT_ONCE and own["tg_throughput"] is None:  # both say so
        bench.note(f"bench {engine}: {label}", 0.0, "random weights ended each answer at once", None)
        return
    wrong = None
    for name, theirs, factor in _FIGURES:
        values = [
            round(value / factor, 6) for value in (own[theirs] or {"values": []})["values"]
        ]  # our JSON has six digits
        result = [round(value, 6) for value in (ours[name] or {"values": []})["values"]]
        if result != values:
            wrong = f"{name}: {result}, and llama-benchy has {values}"
    sizes = {"pp": "prompt_size", "tg": "response_size", "depth": "context_size", "concurrency": "concurrency"}
    if wrong is None and any(cell["cell"][name] != own[theirs] for name, theirs in sizes.items()):
        wrong = f"the cell is {cell['cell']}, and llama-benchy's is of another size"
    steps, accepted = (_count(engine, seen["pages"], name) for name in ("drafts", "accepted_tokens"))
    length = 1 + accepted / steps if steps else None
    far = None if length is None or cell["accept_length"] is None else abs(cell["accept_length"] / length - 1)
    is_without = engine == "vllm" and not _can_draft(bench.install)
    is_told = (cell["accept_length"] is None and steps == 0) if is_without else (far is not None and far <= TOLERANCE)
    if wrong is None and not is_told:
        wrong = f"accepted {cell['accept_length']} a step, the counters say {length}"
    apart = "" if far is None else f", {100 * far:.3f} % apart"
    what = f"{cell['tokens_per_second']:.1f} tok/s; accepted {cell['accept_length']}, counters {length}{apart} ({steps:.0f} steps)"
    bench.note(f"bench {engine}: {label}", ours["seconds"] or 0.0, what, wrong)


def _count(engine: str, pages: Sequence[str], name: str) -> float:
    pattern = re.compile(rf"^{re.escape(_NAMES[engine].format(name))}(?:\{{.*\}})? (\S+)$", re.MULTILINE)
    before, after = (sum(map(float, pattern.findall(page))) for page in pages)
    return after - before


def main() -> int:
    """Install, run, print."""
    parser = argparse.ArgumentParser(prog="python -m tests.tools.nightly.engines.bench_start", description=__doc__)
    parser.add_argument("--cache", type=Path, default=cache_directory(), help="where the engines are installed")
    parser.add_argument("--jobs", type=int, default=1, help="compilers at a time")
    parser.add_argument(
        "--vllm", default=VLLM, metavar="VERSION", help="another vLLM; before 0.20 it drafts nothing on a CPU"
    )
    parser.add_argument("--engine", choices=sorted(_NAMES), action="append", help="this one alone; repeatable")
    parser.add_argument("--compare", action="store_true", help="the comparison of both alone")
    options = parser.parse_args()
    install = Install(options.cache, options.jobs, options.vllm)
    bench = Bench(install, install.root / "models", Path(tempfile.gettempdir()), 0.0)
    random_model.write_directory(bench.models / random_model.NAME)
    random_model.write_gguf(bench.models / f"{random_model.NAME}.gguf")
    wanted = options.engine or sorted(_NAMES)
    for engine in wanted:
        try:
            install.install_vllm()  # its pip is the one of all
            install.install_benchy()
            if engine == "llamacpp":
                install.install_llama()
        except NotInstalled as why:
            bench.note(f"bench {engine}", 0.0, "could not be installed", str(why))
            continue
        if not options.compare and (reason := run_on_node(bench, partial(measure_engine, engine))):
            bench.note(f"bench {engine}", 0.0, "could not be run", reason)
    if wanted == sorted(_NAMES) and (reason := run_on_node(bench, compare_engines)):
        bench.note("bench: one after the other", 0.0, "could not be run", reason)
    wrong = [row for row in bench.rows if row.wrong is not None]
    for row in wrong:
        print(format_row(row))
    print(f"{len(bench.rows) - len(wrong)} of {len(bench.rows)} as they should be")
    return 1 if wrong or not bench.rows else 0


if __name__ == "__main__":
    sys.exit(main())
