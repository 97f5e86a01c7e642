"""The help of sparkctl and of a verb, its version, and what completion offers, against importing the library that parses its
command line; and the list of a thousand profiles, against a program that only parses the same files."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

from tests.tools.bench.bench_report import Goal, LoadMeter, Report, Series, measure_interleaved
from tests.tools.bench.timed_processes import measure_processor_time

ROUNDS = 21
OURS = ("--help", "status --help", "switch --help", "--version")
COMPLETED = {
    "verbs": "sparkctl ",
    "profiles": "sparkctl up ",
    "nodes": "sparkctl up x --node ",
    "instances": "sparkctl down ",
}
COMPLETION_LIMIT_MS = 100.0
THEIRS = 'python -c "import click"'
PROFILES, LIST_ROUNDS = 1000, 7
LIST, PARSE = "sparkctl profiles list, 1,000 of them", "yaml.CSafeLoader, the same files"
_PARSE = "import sys, pathlib, yaml\nfor f in pathlib.Path(sys.argv[1]).iterdir(): yaml.load(f.read_text(), yaml.CSafeLoader)"
_PROFILE = """schema: 1
name: {name}
title: Qwen3 32B, variant {number}
engine: vllm
image: vllm/vllm-openai:v0.19.1
model:
  path: Qwen/Qwen3-32B
  served_name: qwen3
port: 8000
args:
  max-model-len: 32768
  gpu-memory-utilization: 0.8
  max-num-seqs: 16
env:
  VLLM_LOGGING_LEVEL: INFO
notes: |
  one of many
"""
_CONFIG = "nodes:\n- {name: spark1, host: 192.0.2.1, user: milo}\n- {name: spark2, host: 192.0.2.2}\n"


def run(rounds: int = ROUNDS) -> Report:
    """Measure whole processes, in milliseconds of processor time."""
    load = LoadMeter()
    command = str(Path(sys.executable).with_name("sparkctl"))
    measures = {f"sparkctl {words}": [command, *words.split()] for words in OURS}
    measures[THEIRS] = [sys.executable, "-c", "import click"]
    with tempfile.TemporaryDirectory(prefix="sparkctl-bench-") as home:
        (Path(home) / "config.yaml").write_text(_CONFIG)
        env = {**os.environ, "SPARKCTL_CONFIG": f"{home}/config.yaml", "XDG_CACHE_HOME": home, "XDG_CONFIG_HOME": home}
        asking = {
            f"completion of {what}": {
                **env, "_SPARKCTL_COMPLETE": "bash_complete", "COMP_WORDS": line, "COMP_CWORD": str(len(line.split()))
            }
            for what, line in COMPLETED.items()
        }  # fmt: skip
        taken = measure_interleaved(
            rounds,
            {name: lambda argv=argv: 1000 * measure_processor_time(argv) for name, argv in measures.items()}
            | {
                name: lambda asked=asked: 1000 * measure_processor_time([command], asked)
                for name, asked in asking.items()
            },
        ) | _measure_list(Path(home), env)
    series = {name: Series(name, "ms", values) for name, values in taken.items()}
    theirs = series[THEIRS].median
    goals = (
        *(Goal(f"{name} / {THEIRS}", series[name].median / theirs, 1.5) for name in measures if name != THEIRS),
        *(Goal(name, series[name].median, COMPLETION_LIMIT_MS, unit="ms") for name in asking),
        Goal(f"{LIST} / {PARSE}", series[LIST].median / series[PARSE].median, 3.5),
    )
    return Report(
        "help",
        "the help of a cold process, completion, and a long list of profiles",
        tuple(series.values()),
        goals,
        load.read(),
    )


def _measure_list(home: Path, env: Mapping[str, str]) -> dict[str, tuple[float, ...]]:
    """Return processor times of the list and of the program that only parses; its goal means 1.5 s on a usual laptop."""
    folder = home / "sparkctl/profiles"
    folder.mkdir(parents=True)
    for number in range(PROFILES):
        name = f"variant-{number:04}"
        (folder / f"{name}.yaml").write_text(_PROFILE.format(name=name, number=number))
    argv = {LIST: [str(Path(sys.executable).with_name("sparkctl")), "profiles", "list"]}
    argv[PARSE] = [sys.executable, "-c", _PARSE, str(folder)]
    return measure_interleaved(
        LIST_ROUNDS,
        {name: lambda words=words: 1000 * measure_processor_time(words, env) for name, words in argv.items()},
    )
