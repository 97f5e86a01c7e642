"""What ends several measurements, and whether a benchmark is kept."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from dataclasses import replace
from pathlib import Path

import pytest

from sparkctl.commands.bench.run_bench import (
    BenchSeries,
    MeasureInstance,
    RunBench,
    RunBenches,
    choose_hint,
    count_measured,
    describe_saving,
    read_prefix_cache,
    read_temperature,
    save_run,
)
from sparkctl.commands.start.start_request import build_start_request
from sparkctl.context import CommandContext
from sparkctl.engines import load_engine
from sparkctl.engines.engine_flags import CommandFlags
from sparkctl.history.bench_store import BenchStore, compare_benches
from sparkctl.history.operation_history import OperationHistory
from sparkctl.model.bench import BenchCell, BenchRun, BenchSetup, CellResult, Measurements
from sparkctl.model.events import CommandEnded, Event, Outcome
from sparkctl.model.lazy_dataclass import dataclass
from sparkctl.model.node import NodeName
from sparkctl.model.questions import NonInteractivePrompter, YesNoQuestion
from sparkctl.profiles.profile_library import ProfileLibrary

CELLS = (BenchCell(pp=128, tg=16), BenchCell(pp=256, tg=16))
RUN = BenchRun(number=0, began=1e9, instance="a", nodes=(NodeName("spark1"),), setup=BenchSetup(), wanted=CELLS)
MEASURED = replace(RUN, results=(CellResult(cell=CELLS[0], generation_rate=Measurements((100 / 3,))),))


@pytest.fixture
def ctx(tmp_path: Path) -> CommandContext:
    return CommandContext(history=OperationHistory(tmp_path / "state"), operator="milo@desk")


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement(MeasureInstance):
    """A measurement that ends at once. ``presses``: Ctrl-C comes after its last cell, as while its instance is stopped."""

    exit_code: int = 0
    presses: bool = False

    async def run(self, ctx: CommandContext) -> AsyncGenerator[Event, None]:
        if self.presses:
            ctx.interrupt.record_press()
        yield CommandEnded(
            ts=0.0, outcome=Outcome.FAILED if self.exit_code else Outcome.DONE, exit_code=self.exit_code, seconds=1.0, node=None,
            instance=self.instance, message=f"of {self.instance}", hint=f"show {self.instance}",
        )  # fmt: skip


@pytest.mark.parametrize(
    ("first", "second", "end", "says", "hint"),
    [
        ({}, {}, (Outcome.DONE, 0), "of a; of b", "sparkctl bench compare"),
        ({"presses": True}, {}, (Outcome.INTERRUPTED, 130), "of a; 1 of 2 were measured completely", "show a"),
        (
            {"presses": True, "exit_code": 1}, {},
            (Outcome.INTERRUPTED, 130), "a: of a; 0 of 2 were measured completely", "show a",
        ),
        ({"exit_code": 1}, {}, (Outcome.FAILED, 1), "a: of a; 1 of 2 were measured completely", "show a"),
        ({}, {"presses": True}, (Outcome.DONE, 0), "of a; of b", "sparkctl bench compare"),
    ],
)  # fmt: skip
async def test_what_was_never_begun_is_not_done(
    ctx: CommandContext, first: dict[str, int], second: dict[str, int], end: tuple[Outcome, int], says: str, hint: str
) -> None:
    pairs = [(Measurement(instance=name, nodes=(), **more), None) for name, more in (("a", first), ("b", second))]
    ended = await BenchSeries(ctx=ctx, emit=lambda event: None, pairs=pairs, nodes=()).run()
    assert (ended.outcome, ended.exit_code) == end
    assert (ended.message, ended.hint) == (says, hint)


def test_what_cannot_be_written_is_not_called_saved_and_is_written_later(ctx: CommandContext, tmp_path: Path) -> None:
    store, warnings = BenchStore(tmp_path / "bench"), list[Event]()
    store.directory.write_text("a file in its place, as good as a full disk")
    run = save_run(ctx, warnings.append, store, MEASURED)
    assert (run, len(warnings)) == (MEASURED, 1)
    assert count_measured(store, run, 1, 2, "cells") == "1 of 2 cells are measured, and not saved"
    assert (describe_saving(store, run), choose_hint(run, 1), choose_hint(run, 0)) == (
        "the benchmark is not saved", None, None,
    )  # fmt: skip
    store.directory.unlink()
    run = save_run(ctx, warnings.append, store, run)
    assert (run, len(warnings)) == (replace(MEASURED, number=1), 1)
    assert count_measured(store, run, 1, 2, "cells") == "1 of 2 cells are measured and saved"
    assert choose_hint(run, 1) == "measure the rest: sparkctl bench --resume 1"
    assert describe_saving(store, run) == "benchmark 1 is kept"
    more = replace(run, results=(*run.results, CellResult(cell=CELLS[1])))  # a cell that could not be written
    assert count_measured(store, more, 0, 2, "cells") == "2 of 2 cells are measured, and not saved"


def test_one_that_was_interrupted_is_kept_only_with_a_result(ctx: CommandContext, tmp_path: Path) -> None:
    store = BenchStore(tmp_path / "bench")
    empty, full = store.add(RUN), store.add(MEASURED)
    kept = [save_run(ctx, lambda event: None, store, replace(one, why="interrupted")) for one in (empty, full)]
    assert [one.number for one in kept] == [0, 2]
    assert [one.number for one in store.list_runs()] == [2]
    assert count_measured(store, kept[0], 2, 2, "cells") == "0 of 2 cells are measured"


async def test_a_load_generator_that_is_not_there_is_told_before_anything_is_asked_or_started(
    ctx: CommandContext,
) -> None:
    class Unasked(NonInteractivePrompter):
        async def ask_yes_no(self, question: YesNoQuestion) -> bool:
            pytest.fail("it cannot be measured")

    bench = RunBench(instance="qwen36", nodes=(), cells=CELLS, generator="no-such-program")
    start = build_start_request(ProfileLibrary().load_profile("qwen36"), (), "qwen36")
    request = RunBenches(benches=(bench,), starts=(start,), nodes=())
    events = [event async for event in request.run(replace(ctx, prompter=Unasked()))]
    assert [getattr(event, "exit_code", None) for event in events] == [6]
    assert "'no-such-program' is not there" in getattr(events[0], "message", "")


@pytest.mark.parametrize(
    ("profile", "context", "more", "says"),
    [
        (
            "qwen36",
            "args.context-length=4096",
            {},
            "pp4096 tg8 c1 needs 4104 tokens, and qwen36 takes 4096 in one request",
        ),
        ("qwen36-vllm", "args.max-model-len=4K", {"drops_long_cells": True}, "qwen36-vllm takes 4096 in one request"),
        ("llamacpp-gpt-oss-120b", "args.ctx-size=8192", {}, "has its tokenizer inside /models/"),
    ],
)
async def test_what_the_profile_tells_cannot_be_measured_is_refused_before_anything_stops_or_starts(
    ctx: CommandContext, profile: str, context: str, more: dict[str, bool], says: str
) -> None:
    bench = RunBench(instance=profile, nodes=(), cells=(BenchCell(pp=4096, tg=8),), **more)  # type: ignore[arg-type]
    start = build_start_request(ProfileLibrary().load_profile(profile, overrides=(context,)), (), profile)
    events: list[Event] = []
    series = BenchSeries(ctx=ctx, emit=events.append, pairs=[(bench, start)], nodes=(), are_started=True)
    ended = await series.run()
    assert (ended.exit_code, says in (ended.message or ""), events) == (6, True, []), ended


def test_a_cell_that_fits_exactly_is_measured_and_an_unknown_context_leaves_out_none() -> None:
    bench = RunBench(instance="a", nodes=(), cells=CELLS, drops_long_cells=True)
    assert bench.select_cells(CELLS[0].context) == CELLS[:1]
    assert bench.select_cells(None) == CELLS


@pytest.mark.parametrize(
    ("engine", "words", "found"),
    [
        ("vllm", ("serve", "--enable-prefix-caching"), True),
        ("vllm", ("serve", "--no-enable-prefix-caching"), False),
        ("vllm", ("serve", "--port", "8000"), None),
        ("sglang", ("--disable-radix-cache",), False),
        ("llamacpp", ("--no-cache-prompt",), False),
        ("container", ("--enable-prefix-caching",), None),
    ],
)
def test_the_engines_own_prefix_cache_is_recorded_as_its_command_has_it(
    engine: str, words: tuple[str, ...], found: bool | None
) -> None:
    assert read_prefix_cache(load_engine(engine), CommandFlags(words)) is found


@pytest.mark.parametrize(
    ("engine", "words", "found"),
    [
        ("vllm", ("serve", "--override-generation-config", '{"temperature": 0}'), 0.0),
        ("vllm", ("serve", "--override-generation-config", '{"top_p": 0.9}'), None),
        ("sglang", ("--preferred-sampling-params", '{"temperature": 0.6}'), 0.6),
        ("llamacpp", ("--temp", "0.7"), 0.7),
        ("llamacpp", ("--temp", "warm"), None),
        ("llamacpp", ("--temp", "nan"), None),
        ("trtllm", ("serve",), None),
        ("container", ("--temp", "1"), None),
    ],
)
def test_the_temperature_of_requests_without_one_is_recorded_as_the_launch_sets_it(
    engine: str, words: tuple[str, ...], found: float | None
) -> None:
    assert read_temperature(load_engine(engine), CommandFlags(words)) == found


def test_a_prefix_cache_that_differs_is_named_beside_the_figures() -> None:
    on, off = (replace(MEASURED, setup=BenchSetup(prefix_cache=setting)) for setting in (True, False))
    assert [(one.what, one.before, one.after) for one in compare_benches(on, off).setup] == [
        ("prefix cache", "True", "False")
    ]
