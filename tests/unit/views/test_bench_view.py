"""What drafts gain or cost, in words; a series keeps its colour; one line for the instance page."""

from __future__ import annotations

from sparkctl.history.bench_diff import compare_benches
from sparkctl.model.bench import BenchRun, BenchSetup, DomainResult, Measurements
from sparkctl.model.node import NodeName
from sparkctl.views.bench_chart import build_charts, list_series
from sparkctl.views.bench_view import format_comparison_csv, format_last_result, render_comparison, render_run
from sparkctl.views.text.styled_text import TextRow


def build_run(number: int, drafts: int, **rates: tuple[float, ...]) -> BenchRun:
    found = tuple(
        DomainResult(
            domain=name,
            prompts=len(values),
            generation_rate=Measurements(values),
            accept_length=2.5 if drafts else None,
        )
        for name, values in rates.items()
    )
    setup = BenchSetup(prompts="abc", answer_tokens=64, draft_tokens=drafts, engine="sglang")
    return BenchRun(
        number=number, began=0.0, instance=f"model-{number}", nodes=(NodeName("spark1"),), setup=setup, wanted=(), domains=found
    )  # fmt: skip


def join(rows: list[TextRow]) -> str:
    return "\n".join("".join(span.text for span in row) for row in rows)


def test_a_loss_and_the_best_gain_are_told() -> None:
    run, plain = build_run(2, 3, coding=(20.0, 22.0), prose=(9.0, 9.0)), build_run(1, 0, coding=(10.0,), prose=(10.0,))
    told = join(render_run(run, plain))
    assert "drafts cost on prose: 0.90x" in told
    assert "drafts gain most on coding: 2.10x" in told
    assert "every 40 steps" not in told
    assert "every 40 steps" in join(render_run(plain))


def test_a_baseline_that_drafts_is_no_proof_of_drafts() -> None:
    told = join(render_run(build_run(2, 3, prose=(9.0,)), build_run(1, 3, prose=(10.0,))))
    assert "model-1 drafts too" in told
    assert "slower on prose: 0.90x" in told
    assert "drafts cost" not in told


def test_kinds_of_text_are_compared_and_what_one_has_not_is_named() -> None:
    one = compare_benches(build_run(1, 0, prose=(10.0, 11.0)), build_run(2, 3, prose=(10.5, 12.0), math=(1.0,)))
    assert format_comparison_csv(one)[1] == ",,,,generation tok/s,10.5,11.25,0.0714,False,10.0,11.0,10.5,12.0,prose"
    told = join(render_comparison(one))
    assert "not distinguishable" in told
    assert "measured in one of them only: math" in told


def test_a_series_keeps_its_place_where_another_has_no_values() -> None:
    charts = build_charts([build_run(1, 0, prose=(10.0,)), build_run(2, 3, prose=(10.5,))])
    assert [len(one.series) for one in charts] == [1, 2]
    assert list_series(charts) == ["model-1", "model-2"]


def test_the_last_result_is_one_line() -> None:
    assert format_last_result(build_run(4, 3, prose=(10.0,), math=(9.0,))).endswith("prose 2.50 · math 2.50")
