"""Benchmarks on the disk: their numbers, and who measures one now."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from sparkctl.errors import InvalidInput, OperationRefused
from sparkctl.history.bench_store import BenchStore
from sparkctl.model.bench import BenchCell, BenchRun, BenchSetup, CellResult
from sparkctl.model.node import NodeName

CELL = BenchCell(pp=128, tg=16)
RUN = BenchRun(number=0, began=1e9, instance="a", nodes=(NodeName("spark1"),), setup=BenchSetup(), wanted=(CELL,))


def test_those_that_begin_at_the_same_moment_get_different_numbers(tmp_path: Path) -> None:
    store = BenchStore(tmp_path / "bench")
    with ThreadPoolExecutor(8) as pool:
        added = list(pool.map(lambda at: store.add(replace(RUN, instance=f"i{at}")), range(24)))
    assert sorted(one.number for one in added) == list(range(1, 25))
    assert {store.load(one.number).instance for one in added} == {f"i{at}" for at in range(24)}


def test_one_without_a_result_is_forgotten_and_one_with_a_result_stays(tmp_path: Path) -> None:
    store = BenchStore(tmp_path / "bench")
    empty, full = store.add(RUN), store.add(RUN)
    store.save(replace(full, results=(CellResult(cell=CELL),)))
    for one in (empty, full):
        store.discard_empty(one.number)
    with pytest.raises(InvalidInput, match="there is no benchmark 1"):
        store.load(1)
    assert store.load(2).results


def test_one_is_measured_by_one_process_and_free_again_when_that_was_killed(tmp_path: Path) -> None:
    store = BenchStore(tmp_path / "bench")
    run = store.add(RUN)
    code = (
        "import sys,time; from pathlib import Path; from sparkctl.history.bench_store import BenchStore\n"
        f"with BenchStore(Path({str(tmp_path / 'bench')!r})).hold({run.number}): print('held', flush=True); time.sleep(60)"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, env=os.environ) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == b"held\n"
        with pytest.raises(OperationRefused, match="is being measured now"), store.hold(run.number):
            pytest.fail("two measure it")
        other.kill()
    for _ in range(2):
        with store.hold(run.number), pytest.raises(OperationRefused), store.hold(run.number):
            pytest.fail("two measure it")
    assert json.loads((tmp_path / "bench" / "1.json").read_text())["run"]["instance"] == "a"


def test_a_damaged_file_hides_no_other_benchmark(tmp_path: Path) -> None:
    store = BenchStore(tmp_path / "bench")
    kept, damaged = store.add(RUN), store.add(RUN)
    (store.directory / f"{damaged.number}.json").write_text("[" * 100_000)
    assert store.list_runs() == (kept,)


def test_a_file_of_a_newer_version_asks_for_an_update_and_not_to_be_removed(tmp_path: Path) -> None:
    store = BenchStore(tmp_path / "bench")
    path = store.directory / f"{store.add(RUN).number}.json"
    data = json.loads(path.read_text())
    path.write_text(json.dumps(data | {"schema": 2}))
    with pytest.raises(InvalidInput, match="a newer sparkctl wrote it") as newer:
        store.load(1)
    assert newer.value.hint == "update sparkctl to read it"
    for damaged in ("[]", "3", '{"schema": 1}'):
        path.write_text(damaged)
        with pytest.raises(InvalidInput, match="not a benchmark of sparkctl"):
            store.load(1)
