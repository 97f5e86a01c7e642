"""Two benchmarks side by side: which is better, and whether that can be told at all."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from sparkctl.errors import InvalidInput
from sparkctl.history.bench_store import BenchFigure, BenchStore, compare_benches
from sparkctl.model.bench import BenchCell, BenchRun, BenchSetup, CellResult, DomainResult, Measurements
from sparkctl.model.node import NodeName
from sparkctl.views.bench_view import (
    build_leaderboard_document,
    format_comparison_csv,
    format_comparison_markdown,
    render_comparison,
    render_run,
)
from sparkctl.views.text.styled_text import TextRow

CELL = BenchCell(pp=2048, tg=128, depth=4096, concurrency=2)


def build_run(number: int, instance: str, rates: tuple[float, ...], ttft: tuple[float, ...]) -> BenchRun:
    setup = BenchSetup(engine="vllm", driver="580.126.09", text=f"image: {instance}\n", runs=len(rates))
    result = CellResult(cell=CELL, generation_rate=Measurements(rates), ttft=Measurements(ttft))
    return BenchRun(
        number=number, began=1e9, instance=instance, nodes=(NodeName("spark1"),), setup=setup, wanted=(CELL,), results=(result,)
    )  # fmt: skip


def _read_text(rows: list[TextRow]) -> str:
    return "\n".join("".join(span.text for span in row) for row in rows)


OLD, NEW = build_run(1, "a", (13.2, 13.4, 13.6), (1.0, 1.1, 1.2)), build_run(2, "b", (23.1, 23.3), (2.0, 2.2))


def test_more_tokens_are_better_and_more_seconds_are_worse() -> None:
    rows = {row.figure: row for row in compare_benches(OLD, NEW).rows}
    assert rows[BenchFigure.GENERATION].gain == pytest.approx(23.2 / 13.4 - 1)
    assert rows[BenchFigure.TTFT].gain == pytest.approx(1.1 / 2.1 - 1)
    assert rows[BenchFigure.GENERATION].is_distinct
    assert rows[BenchFigure.PROMPT].gain is None


def test_what_overlaps_is_not_told_apart() -> None:
    near = build_run(3, "b", (13.5, 13.9), (1.0, 1.1))
    row = compare_benches(OLD, near).rows[0]
    assert row.is_distinct is False
    assert "not distinguishable" in "\n".join(map(str, format_comparison_markdown(compare_benches(OLD, near))))
    single = build_run(4, "b", (20.0,), (1.0,))
    assert compare_benches(OLD, single).rows[0].is_distinct is None
    assert "49% better (one run of B: no spread)" in _read_text(list(render_comparison(compare_benches(OLD, single))))


def build_prose(number: int, rates: tuple[float, ...], accept: float | None = None, **more: int) -> BenchRun:
    """A benchmark by kind of text, of one kind."""
    rate = Measurements(rates)
    found = DomainResult(domain="prose", prompts=6, generation_rate=rate, ttft=rate, accept_length=accept, **more)  # type: ignore[arg-type]
    return replace(OLD, number=number, setup=replace(OLD.setup, prompts="abc"), wanted=(), results=(), domains=(found,))


UNLIKE = (10.0, 20.0, 30.0, 14.0, 25.0, 17.0)  # six prompts


def test_each_prompt_is_compared_with_itself_as_prompts_differ_more_than_stacks() -> None:
    old, faster = build_prose(1, UNLIKE, 1.5), build_prose(2, tuple(value * 1.3 for value in UNLIKE), 2.0)
    generation, ttft, accepted = compare_benches(old, faster).rows
    assert (generation.gain, generation.is_distinct) == (pytest.approx(0.3), True)
    assert (ttft.gain, ttft.is_distinct) == (pytest.approx(1 / 1.3 - 1), True)
    assert (accepted.figure, accepted.gain, accepted.is_distinct) == (BenchFigure.ACCEPTED, pytest.approx(1 / 3), None)
    table = _read_text(render_comparison(compare_benches(old, faster)))
    assert "tokens per step         1.50          2.00          33% better\n" in table
    mixed = tuple(value * share for value, share in zip(UNLIKE, (1.1, 0.9) * 3, strict=True))
    assert compare_benches(old, build_prose(2, mixed)).rows[0].is_distinct is False
    other = replace(faster, setup=replace(faster.setup, prompts="other"))
    for unpaired in (other, build_prose(2, (13.0, 26.0, 39.0), failed=3)):
        assert compare_benches(old, unpaired).rows[0].is_distinct is False, (
            "which values are of the same prompt is not known"
        )


def test_what_neither_recorded_is_not_called_the_same() -> None:
    text = _read_text(list(render_comparison(compare_benches(OLD, replace(OLD, number=3)))))
    assert "the same, as far as is known (not known of either: digest, image digest, engine version, kernel)" in text
    facts = {"digest": "1", "image_digest": "2", "engine_version": "3", "driver": "4", "kernel": "5"}
    known = replace(OLD, setup=replace(OLD.setup, **facts))
    assert "both set-ups are the same\n" in _read_text(list(render_comparison(compare_benches(known, known)))) + "\n"


def test_what_differs_in_the_set_ups_is_named() -> None:
    other = replace(NEW, setup=replace(NEW.setup, driver="590.1"))
    assert {(one.what, one.before, one.after) for one in compare_benches(OLD, other).setup} == {
        ("driver", "580.126.09", "590.1"),
        ("image", "a", "b"),
    }


def test_what_the_profiles_tell_once_more_is_named_once() -> None:
    text = "schema: 1\nname: {0}\nengine: {0}\nimage: {0}\nport: {1}\n"
    old, new = (
        replace(run, setup=replace(run.setup, engine=name, image=name, text=text.format(name, port)))
        for run, name, port in ((OLD, "a", 1), (NEW, "b", 2))
    )
    assert [one.what for one in compare_benches(old, new).setup] == ["engine", "image", "port"]


def test_cells_of_one_alone_are_not_compared() -> None:
    one = BenchCell(pp=1, tg=1)
    more = replace(
        NEW, wanted=(CELL, one), results=(*NEW.results, CellResult(cell=one, generation_rate=Measurements((1.0,))))
    )
    found = compare_benches(OLD, more)
    assert found.missing == (one,)
    assert {row.figure for row in found.rows} == set(BenchFigure) - {BenchFigure.ACCEPTED}


def test_each_form_has_the_figures() -> None:
    one = compare_benches(OLD, NEW)
    table = _read_text(render_comparison(one))
    assert "pp2048 tg128 @ d4096 c2" in table
    assert "73% better" in table
    assert "| 73% better |" in "\n".join(format_comparison_markdown(one))
    row = format_comparison_csv(one)[1]
    assert row.startswith("2048,128,4096,2,generation tok/s,13.4,23.2,0.7313,True,13.2,13.6,")
    benchmarks = build_leaderboard_document(OLD)["benchmarks"]
    assert isinstance(benchmarks, list)
    assert benchmarks[0]["tg_throughput"]["values"] == [13.2, 13.4, 13.6]
    assert benchmarks[0]["e2e_ttft"]["mean"] == pytest.approx(1100)


def test_a_run_is_read_as_it_was_written_and_a_failed_cell_is_missing(tmp_path: Path) -> None:
    store = BenchStore(tmp_path / "bench")
    failed = replace(OLD, results=(CellResult(cell=CELL, error="HTTP 400: no"),), why="interrupted")
    store.save(OLD)
    store.add(failed)
    assert store.load(1) == OLD
    assert [run.number for run in store.list_runs()] == [2, 1]
    assert store.load(2).missing == (CELL,)
    assert "not measured: HTTP 400: no" in _read_text(render_run(store.load(2), baseline=None))


def test_a_damaged_file_is_named(tmp_path: Path) -> None:
    store = BenchStore(tmp_path)
    (tmp_path / "7.json").write_text("{", encoding="utf-8")
    with pytest.raises(InvalidInput, match=r"7\.json"):
        store.load(7)
    with pytest.raises(InvalidInput, match="no benchmark 8"):
        store.load(8)
    assert store.list_runs() == ()
