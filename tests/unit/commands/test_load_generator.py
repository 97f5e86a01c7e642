"""The load generator as a child process: what it is asked for, and which of its requests count."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from sparkctl.commands.bench.load_generator import (
    CellFailed,
    LoadGenerator,
    LoadTarget,
    find_load_generator,
    is_same_generator,
)
from sparkctl.errors import InvalidInput, OperationRefused
from sparkctl.model.bench import BenchCell

CELL = BenchCell(pp=8, tg=4, concurrency=2)
SCRIPT = """
import json, sys
words = sys.argv[1:]
open({seen!r}, "a").write(json.dumps(words) + "\\n")
option = lambda name: words[words.index(name) + 1]
error = {error!r}
for number in range(int(option("--runs")) * int(option("--concurrency"))):
    print(json.dumps({{"type": "request_start"}}), flush=True)
    print(json.dumps({{"type": "request_end", "error": error}}), flush=True)
metric = {{"values": [10.0] * int(option("--runs"))}}
json.dump({{"benchmarks": [{{"tg_throughput": metric}}]}}, open(option("--save-result"), "w"))
"""


def build_generator(home: Path, error: str = "") -> LoadGenerator:
    script = home / "generator.py"
    script.write_text(SCRIPT.format(seen=str(home / "seen"), error=error))
    target = LoadTarget(url="http://127.0.0.1:1/v1", model="m", tokenizer="t")
    return LoadGenerator(words=(sys.executable, str(script)), target=target, home=home, runs=3)


async def test_the_warm_up_is_a_process_of_its_own_and_nothing_of_it_counts(tmp_path: Path) -> None:
    generator, marks = build_generator(tmp_path), list[str]()
    assert not generator.is_warm
    await generator.warm_up(CELL)
    assert generator.is_warm
    result = await generator.run_cell(CELL, lambda: marks.append("begin"), lambda: marks.append("end"), report=None)
    assert result.generation_rate is not None
    assert result.generation_rate.values == (10.0, 10.0, 10.0)
    assert marks == ["begin", "end"]
    asked = [json.loads(line) for line in (tmp_path / "seen").read_text().splitlines()]
    assert [words[words.index("--runs") + 1] for words in asked] == ["1", "3"]
    assert all("--no-warmup" in words for words in asked), "or it would make a run of its own in each"


async def test_a_warm_up_that_fails_is_none(tmp_path: Path) -> None:
    generator = build_generator(tmp_path, "HTTP 400: no such field")
    with pytest.raises(CellFailed, match="HTTP 400"):
        await generator.warm_up(CELL)
    assert not generator.is_warm


def test_where_no_load_generator_is_the_refusal_names_the_way_that_needs_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr("sys.executable", "/nowhere/python")
    with pytest.raises(OperationRefused) as refused:
        find_load_generator(None, "qwen36")
    ways = (refused.value.hint or "").splitlines()
    assert {"pip install llama-benchy", "pipx install llama-benchy"} < set(ways)
    assert "sparkctl bench qwen36 --by-domain " in ways[-1]


@pytest.mark.parametrize("own", ["uvx 'llama-benchy", 'uvx "llama-benchy', "uvx llama-benchy\\"])
def test_a_command_that_no_shell_would_take_is_refused(own: str) -> None:
    with pytest.raises(InvalidInput, match="the command of the load generator is not complete: No "):
        find_load_generator(own, instance="INSTANCE")


@pytest.mark.parametrize(
    ("recorded", "now", "is_same"),
    [
        ("llama-benchy 0.4.1", "llama-benchy 0.4.1", True),
        ("llama-benchy 0.4.1", "llama-benchy 0.4.10", False),
        ("llama-benchy 0.4.1", "llama-benchy 0.4.1.dev2", False),
        ("llama-benchy", "llama-benchy 0.4.1", True),  # it was recorded without its version
        ("llama", "llama-benchy 0.4.1", False),
        ("llama-benchy 0.4.1", "llama-benchy", False),
        (None, "llama-benchy 0.4.1", True),
    ],
)
def test_another_version_is_another_generator(recorded: str | None, now: str, is_same: bool) -> None:
    assert is_same_generator(recorded, now) is is_same
