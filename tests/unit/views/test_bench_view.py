"""What drafts gain or cost, in words; a series keeps its colour; one line for the instance page."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from sparkctl.commands.bench.run_domains import load_prompts
from sparkctl.files import shipped_profiles_dir
from sparkctl.history.bench_store import BenchFigure, SourceFigure, compare_benches, find_source_figure
from sparkctl.model.bench import BenchCell, BenchRun, BenchSetup, CellResult, DomainKey, DomainResult, Measurements
from sparkctl.model.node import NodeName
from sparkctl.model.reference import FigureRange
from sparkctl.profiles.profile_library import ProfileLibrary
from sparkctl.views.bench_chart import build_charts, list_series
from sparkctl.views.bench_view import (
    build_leaderboard_document,
    format_comparison_csv,
    format_comparison_markdown,
    format_last_result,
    render_comparison,
    render_run,
)
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
    text = join(render_run(run, plain))
    assert "drafts cost on prose: 0.90x" in text
    assert "drafts gain most on coding: 2.10x" in text
    assert "every 40 steps" not in text
    assert "every 40 steps" not in join(render_run(plain, baseline=None)), "it does not draft"
    untold = replace(run, domains=tuple(replace(one, accept_length=None) for one in run.domains))
    assert "every 40 steps" in join(render_run(untold, baseline=None))


def test_a_baseline_that_drafts_is_no_proof_of_drafts() -> None:
    text = join(render_run(build_run(2, 3, prose=(9.0,)), build_run(1, 3, prose=(10.0,))))
    assert "model-1 drafts too" in text
    assert "slower on prose: 0.90x" in text
    assert "drafts cost" not in text


def test_kinds_of_text_are_compared_and_what_one_has_not_is_named() -> None:
    one = compare_benches(build_run(1, 0, prose=(10.0, 11.0)), build_run(2, 3, prose=(10.5, 12.0), math=(1.0,)))
    assert format_comparison_csv(one)[1] == ",,,,generation tok/s,10.5,11.25,0.0714,False,10.0,11.0,10.5,12.0,prose,,,,"
    text = join(render_comparison(one))
    assert "not distinguishable" in text
    assert "measured in one of them only: math" in text


def test_a_comparison_says_which_figures_are_in_doubt_in_every_form() -> None:
    one, two = BenchCell(pp=512, tg=128, concurrency=1), BenchCell(pp=512, tg=128, concurrency=8)
    old = build_cell_run(1, "qwen36", {one: (20.0, 0.4), two: (90.0, 9.0)})
    new = build_cell_run(2, "qwen36-vllm", {one: (23.2, 0.9), two: (50.0, 9.0)})
    assert "meanwhile" not in join(render_comparison(compare_benches(old, new)))
    results = (replace(new.results[0], disturbed=True), replace(new.results[1], throttled=True))
    doubtful = compare_benches(old, replace(new, results=results))
    for text in (join(render_comparison(doubtful)), "\n".join(format_comparison_markdown(doubtful))):
        assert f"B {one}: other clients generated tokens meanwhile" in text
        assert f"B {two}: the GPU was slowed down" in text
        assert "A throughout" not in text
        assert "are not known" not in text
    assert [line.split(",")[-2:] for line in format_comparison_csv(doubtful)[1:]] == [["", "disturbed"]] * 3 + [
        ["", "throttled"]
    ] * 3
    started_elsewhere = replace(old, setup=replace(old.setup, text=None))
    text = join(render_comparison(compare_benches(started_elsewhere, new)))
    assert "the settings of A are not known, as this computer did not start it" in text


def test_a_series_keeps_its_place_where_another_has_no_values() -> None:
    charts = build_charts([build_run(1, 0, prose=(10.0,)), build_run(2, 3, prose=(10.5,))])
    assert [len(one.series) for one in charts] == [1, 2]
    assert list_series(charts) == ["model-1", "model-2"]


def test_the_last_result_is_one_line() -> None:
    assert format_last_result(build_run(4, 3, prose=(10.0,), math=(9.0,))).endswith("prose 2.50 · math 2.50")


def build_cell_run(number: int, profile: str, cells: dict[BenchCell, tuple[float, float]]) -> BenchRun:
    """A run of cells with tok/s and seconds to the first token, as the named shipped profile would have it."""
    text = (shipped_profiles_dir() / f"{profile}.yaml").read_text(encoding="utf-8")
    results = tuple(
        CellResult(cell=cell, generation_rate=Measurements((rate,)), ttft=Measurements((ttft,)))
        for cell, (rate, ttft) in cells.items()
    )
    return BenchRun(
        number=number, began=0.0, instance=profile, nodes=(NodeName("spark1"),), setup=BenchSetup(text=text),
        wanted=tuple(cells), results=results,
    )  # fmt: skip


def test_what_the_sources_measured_stands_beside_both_runs() -> None:
    near, far = BenchCell(pp=512, tg=128, concurrency=1), BenchCell(pp=512, tg=128, depth=4096, concurrency=8)
    other = BenchCell(pp=512, tg=32, concurrency=1)
    old = build_cell_run(1, "qwen36", {near: (20.0, 0.4), far: (90.0, 9.0), other: (20.0, 0.4)})
    new = build_cell_run(2, "qwen36-vllm", {near: (23.2, 0.9), far: (50.0, 9.0), other: (20.0, 0.4)})
    one = compare_benches(old, new)
    rows = {(row.cell, row.figure): row for row in one.rows}
    told = rows[near, BenchFigure.GENERATION]
    assert told.source_before == SourceFigure(FigureRange(22.6, 22.6), "al-engr.com"), (
        "the row of 128 tokens, not of 256"
    )
    assert told.source_after == SourceFigure(FigureRange(23.3, 23.3), "al-engr.com")
    assert rows[near, BenchFigure.TTFT].source_before is None, "the post has that of 2048 prompt tokens alone"
    assert rows[far, BenchFigure.GENERATION].source_before is None, "its post measured generation without context"
    assert rows[far, BenchFigure.GENERATION].source_after == SourceFigure(FigureRange(44.7, 44.7), "al-engr.com")
    assert rows[other, BenchFigure.GENERATION].source_before is None, "no source has answers of 32 tokens"
    lines = [" ".join(line.split()) for line in join(render_comparison(one)).splitlines()]
    assert "A: qwen36 pp512 tg128 c1 generation tok/s 20.0 published 22.6 -12% al-engr.com" in lines
    assert "B: qwen36-vllm pp512 tg128 c1 generation tok/s 23.2 published 23.3 as published al-engr.com" in lines
    row = "| B: qwen36-vllm | pp512 tg128 @ d4096 c8 | generation tok/s | 50.0 | published 44.7 | +12% | al-engr.com |"
    assert row in format_comparison_markdown(one)
    assert format_comparison_csv(one)[0].endswith(",a_source,b_source,a_marks,b_marks")
    assert format_comparison_csv(one)[1].endswith(",22.6,23.3,,")


def test_a_kind_of_text_stands_beside_the_source_s_rows_of_it() -> None:
    found = {}
    for profile in ("qwen35-35b-dflash", "qwen3-coder-next-dflash"):
        reference = ProfileLibrary(user=Path("no-such-folder")).load_profile(profile).reference
        for domain in load_prompts(None).domains:
            if one := find_source_figure(reference, DomainKey(domain, None), BenchFigure.GENERATION):
                found[profile, domain] = one.figure.as_text()
    assert found == {
        ("qwen35-35b-dflash", "coding"): "154.2–175.4",
        ("qwen35-35b-dflash", "json"): "120.8–129.9",
        ("qwen35-35b-dflash", "math"): "125.4–148.8",
        ("qwen35-35b-dflash", "qa"): "119.6",
        ("qwen3-coder-next-dflash", "coding"): "27–36",
    }


def test_a_cell_that_failed_has_its_row_and_what_was_not_reached_is_told_once() -> None:
    cells = tuple(BenchCell(pp=64, tg=8, concurrency=number) for number in (1, 2, 3))
    results = (
        CellResult(cell=cells[0], generation_rate=Measurements((10.0, 12.0))),
        CellResult(cell=cells[1], error="no result within 60 s"),
    )
    run = BenchRun(
        number=4, began=0.0, instance="model", nodes=(NodeName("spark1"),), setup=BenchSetup(), wanted=cells, results=results,
        why="the guard stopped model: MemAvailable was 0.9 GiB, the floor is 1.0 GiB",
    )  # fmt: skip
    text = join(render_run(run, baseline=None))
    assert "1 run of each cell" in text
    assert text.count("pp64 tg8 c2") == 1
    assert "not measured: no result within 60 s" in text
    assert "ended early: the guard stopped model" in text
    assert "not measured: pp64 tg8 c3" in text


def test_the_leaderboards_document_has_every_field_that_llama_benchys_own_report_requires() -> None:
    cell = BenchCell(pp=64, tg=8, depth=16, concurrency=2)
    result = CellResult(
        cell=cell,
        generation_rate=Measurements((10.0, 12.0)),
        ttft=Measurements((0.25,)),
        peak_rate=Measurements((15.0,)),
        first_response=Measurements((0.2,)),
        latency=0.002,
    )
    setup = BenchSetup(generator="llama-benchy 0.4.0", served="tiny")
    run = BenchRun(
        number=1,
        began=0.0,
        instance="model",
        nodes=(NodeName("spark1"),),
        setup=setup,
        wanted=(cell,),
        results=(result,),
    )
    assert build_leaderboard_document(run) == {
        "version": "0.4.0", "timestamp": "1970-01-01 00:00:00Z", "latency_mode": "api", "latency_ms": 2.0, "model": "tiny",
        "prefix_caching_enabled": False, "max_concurrency": 2,
        "benchmarks": [
            {
                "concurrency": 2, "context_size": 16, "prompt_size": 64, "response_size": 8, "is_context_prefill_phase": False,
                "pp_throughput": None, "tg_throughput": {"mean": 11.0, "std": 1.0, "values": [10.0, 12.0]},
                "peak_throughput": {"mean": 15.0, "std": 0.0, "values": [15.0]},
                "e2e_ttft": {"mean": 250.0, "std": 0.0, "values": [250.0]},
                "ttfr": {"mean": 200.0, "std": 0.0, "values": [200.0]},
                "pp_req_throughput": None, "tg_req_throughput": None, "peak_req_throughput": None, "est_ppt": None,
            }
        ],
    }  # fmt: skip


def test_a_picture_shows_the_same_cells_of_both_and_says_which() -> None:
    def measure(number: int, *prompts: int) -> BenchRun:
        cells = tuple(BenchCell(pp=pp, tg=8, concurrency=at) for pp in prompts for at in (1, 2))
        results = tuple(CellResult(cell=cell, generation_rate=Measurements((float(cell.pp),))) for cell in cells)
        return BenchRun(
            number=number, began=0.0, instance=f"model-{number}", nodes=(NodeName("spark1"),), setup=BenchSetup(), wanted=cells,
            results=results,
        )  # fmt: skip

    (chart,) = build_charts([measure(1, 512, 2048), measure(2, 2048)])
    assert chart.title == "Generation by concurrency, pp2048 tg8"
    assert [[point.value for point in points] for _, points in chart.series] == [[2048.0, 2048.0]] * 2
    (chart,) = build_charts([measure(1, 512), measure(2, 2048)])
    assert chart.title == "Generation by concurrency"
    assert [name for name, _ in chart.series] == ["model-1, pp512 tg8", "model-2, pp2048 tg8"]
