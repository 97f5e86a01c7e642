"""What others measured stands beside a live figure only where it was measured in the same situation."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from sparkctl.model.engine_metrics import EngineActivity, EngineFact, EngineFactName, EngineMeter
from sparkctl.model.reference import (
    ComparableReference,
    FigureRange,
    Reference,
    ReferenceFigure,
    estimate_request_context,
    find_cold_rate,
    find_comparable_rate,
    find_ready_seconds,
    format_reference_label,
    name_source,
    parse_reference_label,
    select_comparable,
)


def figure(concurrency: int | None, generation: float | None, context: int = 0, **more: object) -> ReferenceFigure:
    rate = None if generation is None else FigureRange(generation, generation)
    return ReferenceFigure(concurrency=concurrency, generation=rate, depth=context, **more)  # type: ignore[arg-type]


POST = Reference(
    source="https://example.org/ngram",
    figures=(
        figure(1, 12.7, 512),
        figure(8, 43.1, 512),
        figure(1, 12.2, 4608),
        figure(8, 19.4, 4608),
        figure(None, None, accept_length=FigureRange(1.65, 1.85), accept_rate=FigureRange(0.2, 0.2)),
    ),
)


def decode(running: float | None, rate: float | None = 10.0, **more: object) -> EngineMeter:
    return EngineMeter(activity=EngineActivity.DECODING, generation_rate=rate, running=running, **more)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("numbers", "context", "expected"),
    [
        (decode(1), 600, 12.7),
        (decode(1), None, 12.7),
        (decode(1), 5000, 12.2),
        (decode(8), 900, 43.1),
        (decode(7), 900, 43.1),
        (decode(8), 5000, 19.4),
        (decode(1), 60_000, None),  # nobody measured so long a context
        (decode(2), 600, None),
        (decode(4), 600, None),
        (decode(10), 600, None),
        (decode(1, waiting=2.0), 600, None),
        (decode(0), 600, None),
        (decode(None), 600, None),
        (decode(1, None), 600, None),
        (EngineMeter(activity=EngineActivity.PREFILL, generation_rate=0.0, running=1), 600, None),
        (EngineMeter(activity=EngineActivity.IDLE, generation_rate=0.0, running=0), 600, None),
        (None, 600, None),
    ],
)
def test_a_figure_of_the_same_situation_is_found(
    numbers: EngineMeter | None, context: float | None, expected: float | None
) -> None:
    found = find_comparable_rate(select_comparable([POST]), numbers, context)
    assert found == (None if expected is None else FigureRange(expected, expected))


def test_several_figures_of_one_situation_give_a_range() -> None:
    tasks = Reference(source="a thread", figures=(figure(1, 31.0), figure(1, 70.0), figure(1, 100.0)))
    assert find_comparable_rate(select_comparable([tasks]), decode(1), context=None) == FigureRange(31.0, 100.0)


def test_a_task_is_compared_only_where_all_are_of_the_same_one() -> None:
    def tell(*tasks: str | None) -> ComparableReference | None:
        rows = (figure(1, 10.0 * at, task=task) for at, task in enumerate(tasks, 1))
        return select_comparable([Reference(source="a thread", figures=tuple(rows))])

    assert tell("prose", "code") is None
    assert find_comparable_rate(tell("code", "code"), decode(1), context=None) == FigureRange(10.0, 20.0)
    assert find_comparable_rate(tell(None, "code"), decode(1), context=None) == FigureRange(10.0, 10.0)
    shares = Reference(source="x", figures=(figure(None, None, accept_rate=FigureRange(0.2, 0.3)),))
    both = select_comparable([Reference(source="y", figures=(figure(1, 30.0, task="code"),)), shares])
    assert both is not None
    assert (len(both.rates), both.accept_rate) == (1, FigureRange(0.2, 0.3)), "each measure by itself"


def test_each_source_of_a_figure_is_named() -> None:
    first, second, third = (f"https://{name}.example.org/post" for name in ("a", "b", "c"))
    share = figure(None, None, accept_rate=FigureRange(0.2, 0.3))
    result = select_comparable(
        [Reference(source=third, ready_warm=90.0), Reference(source=first, figures=(figure(1, 12.0), figure(1, 13.0))),
         Reference(source=second, figures=(share,))]
    )  # fmt: skip
    assert result is not None
    assert result.source == f"{first}, {second}"
    assert result.source_names == "a.example.org, b.example.org"
    assert parse_reference_label(format_reference_label(result)) == result
    alone = select_comparable([Reference(source=first, figures=(figure(1, 12.0),))])
    assert alone is not None
    assert alone.source == first
    long = [Reference(source=f"https://{name * 60}.org/p", figures=(share,)) for name in "abcd"]
    cut = select_comparable(long)
    assert cut is not None
    assert cut.source == ", ".join(one.source for one in long[:2]), "no half of a source"


def test_what_ran_otherwise_is_never_compared() -> None:
    other = Reference(source="x", differs="another image", ready_warm=60.0, figures=POST.figures)
    assert select_comparable([other]) is None
    assert find_ready_seconds([other]) is None
    assert select_comparable([other, POST]) == select_comparable([POST])


def test_the_time_of_a_cold_start_comes_before_that_of_a_warm_one() -> None:
    warm, cold = Reference(source="x", ready_warm=90.0), Reference(source="y", ready_cold=570.0)
    assert find_ready_seconds([warm]) == 90.0
    assert find_ready_seconds([warm, cold]) == 570.0
    assert find_ready_seconds([]) is None


def test_the_first_request_of_a_start_is_no_rate_to_compare_with_a_live_one() -> None:
    cold = Reference(source="x", generation_cold=FigureRange(9.3, 9.3))
    assert find_cold_rate([cold]) == FigureRange(9.3, 9.3)
    assert select_comparable([cold, POST]) == select_comparable([POST])
    assert find_cold_rate([replace(cold, differs="compiled")]) is None


def test_the_label_carries_what_is_comparable() -> None:
    comparable = select_comparable([POST])
    assert comparable is not None
    assert parse_reference_label(format_reference_label(comparable)) == comparable
    assert comparable.accept_length == FigureRange(1.65, 1.85)
    assert comparable.rates_by_concurrency == {1: FigureRange(12.7, 12.7), 8: FigureRange(43.1, 43.1)}


@pytest.mark.parametrize(
    "text",
    [
        None,
        "",
        "[]",
        "{}",
        "5",
        '{"source": "x"}',
        '{"source": "x", "rates": [[1, 2]]}',
        '{"source": "x", "rates": [[0, 5, 5, 0]]}',
        '{"source": "x", "rates": [[1, 9, 5, 0]]}',
        '{"source": "x", "rates": [[1, -1, 5, 0]]}',
        '{"source": "x", "rates": [[1, NaN, NaN, 0]]}',
        '{"source": "x", "rates": [[true, 5, 5, 0]]}',
        '{"source": "x", "rates": [], "length": [1]}',
        '{"source": "x", "rates": [], "length": "12"}',
    ],
)
def test_a_label_that_anybody_wrote_is_not_trusted(text: str | None) -> None:
    assert parse_reference_label(text) is None


def test_a_label_keeps_no_control_characters() -> None:
    text = json.dumps({"source": "a\x1b[31mb" + "c" * 500, "rates": []})
    found = parse_reference_label(text)
    assert isinstance(found, ComparableReference)
    assert "\x1b" not in found.source
    assert len(found.source) <= 200


def test_the_context_of_a_request_is_known_or_not_told() -> None:
    tokens = EngineFact(EngineFactName.KV_CACHE_TOKENS, "100,000")
    assert estimate_request_context(decode(2, kv_tokens=3000.0), ()) == 1500.0
    assert estimate_request_context(decode(2, kv_usage=0.1), (tokens,)) == 5000.0
    assert estimate_request_context(decode(2, kv_usage=0.1), ()) is None
    assert estimate_request_context(decode(0, kv_tokens=0.0), ()) is None


@pytest.mark.parametrize(
    ("source", "name"),
    [
        ("https://www.example.org/a/page.html?x=1", "example.org"),
        ("https://github.com/someone/thing/blob/main/README.md#speed", "github.com/someone/thing"),
        ("https://github.com/someone/thing", "github.com/someone/thing"),
        ("measured at home", "measured at home"),
    ],
)
def test_a_source_has_a_short_name(source: str, name: str) -> None:
    assert name_source(source) == name
