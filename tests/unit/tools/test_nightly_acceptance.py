"""The nightly comparison with vLLM's log, on pages and lines of its format: it agrees where it should, and can fail."""

from __future__ import annotations

import pytest

from sparkctl import engines
from tests.tools.nightly.acceptance import ComparedFigure, Listener, Report, compare_figures, format_table, is_agreement

HEAD = "(APIServer pid=71) INFO 05-01 10:00:{:02d} [loggers.py:259] "
ENGINE = (
    "Engine 000: Avg prompt throughput: 410.5 tokens/s, Avg generation throughput: {:.1f} tokens/s, Running: 2 reqs, "
    "Waiting: 0 reqs, GPU KV cache usage: 3.1%, Prefix cache hit rate: 12.5%"
)
SPECULATION = (
    "SpecDecoding metrics: Mean acceptance length: {:.2f}, Accepted throughput: {:.2f} tokens/s, Drafted throughput: "
    "{:.2f} tokens/s, Accepted: {} tokens, Drafted: {} tokens, Per-position acceptance rate: 0.800, 0.600, 0.400, "
    "Avg Draft acceptance rate: {:.1f}%"
)
PAGE = """# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{{engine="0",model_name="tiny"}} 2.0
# TYPE vllm:generation_tokens_total counter
vllm:generation_tokens_total{{engine="0",model_name="tiny"}} {generated}
vllm:generation_tokens_created{{engine="0",model_name="tiny"}} 1.79e+09
# TYPE vllm:prompt_tokens_total counter
vllm:prompt_tokens_total{{engine="0",model_name="tiny"}} {prompts}
# TYPE vllm:spec_decode_num_drafts_total counter
vllm:spec_decode_num_drafts_total{{engine="0",model_name="tiny"}} {drafts}
vllm:spec_decode_num_drafts_created{{engine="0",model_name="tiny"}} 1.79e+09
vllm:spec_decode_num_draft_tokens_total{{engine="0",model_name="tiny"}} {drafted}
vllm:spec_decode_num_accepted_tokens_total{{engine="0",model_name="tiny"}} {accepted}
process_start_time_seconds 1.79e+09
"""
STEPS = ((400, 720), (380, 690), (410, 700), (395, 760))  # verification steps and accepted tokens of each ten seconds


def make_reports(lag: float = 0.0, misread: float = 1.0) -> list[Report]:
    """Reports of an engine that drafts three tokens a step. ``lag``: of the page behind the line, in ten seconds."""
    totals = {"generated": 1000, "prompts": 500, "drafts": 7000, "drafted": 21000, "accepted": 13000}
    pages = [totals]
    for steps, accepted in STEPS:
        before = pages[-1]
        grown = {"generated": steps + accepted, "prompts": 4105, "drafts": steps, "drafted": 3 * steps}
        pages.append({name: before[name] + (grown | {"accepted": accepted})[name] for name in before})
    found: list[Report] = []
    for number, page in enumerate(pages):
        text = PAGE.format(**{name: count + lag * (count - pages[0][name]) for name, count in page.items()})
        listener = Listener(lambda text=text: engines.load_engine("vllm").parse_metrics(text))  # type: ignore[misc]
        steps, accepted = STEPS[number - 1] if number else (1, 1)
        said = 1 + misread * accepted / steps
        words = (said, accepted / 10, steps * 3 / 10, accepted, 3 * steps, 100 * accepted / (3 * steps))
        listener.hear(0.0, HEAD.format(10 * number) + ENGINE.format((steps + accepted) / 10))
        listener.hear(0.01, HEAD.format(10 * number) + SPECULATION.format(*words))
        (report,) = listener.reports
        found.append(Report(100.0 + 10 * number, report.decode, report.speculation, report.page))
    return found


def test_what_sparkctl_computes_is_what_vllm_logs() -> None:
    found = compare_figures(make_reports())
    assert [one.what for one in found[:3]] == ["accept length", "accept rate", "generated tokens/s"]
    assert len(found) == 3 * len(STEPS) + 3
    assert [one.stretch for one in found[-3:]] == [None, None, None], "the whole time comes last"
    assert found[-3].theirs == pytest.approx(1 + 2870 / 1585, rel=0.005)
    assert max(one.apart or 0.0 for one in found) < 0.005, "two decimals of the log are all that is lost"
    assert is_agreement(found)
    assert list(format_table(found))[-1] == "4 stretches, 0 of 12 figures apart by over 2 %"


def test_another_estimator_is_found_out() -> None:
    found = compare_figures(make_reports(misread=1.1))
    assert not is_agreement(found)
    assert {one.what for one in found if not one.holds} == {"accept length"}


def test_counters_that_are_not_of_the_same_stretch_are_found_out() -> None:
    found = compare_figures(make_reports(lag=0.05))
    assert {one.what for one in found if not one.holds} == {"generated tokens/s"}
    assert not is_agreement(found)


def test_a_page_that_came_late_is_made_up_for_by_the_next_stretch() -> None:
    first, second, third, *rest = make_reports()
    late = make_reports(lag=0.1)[2]
    found = compare_figures([first, second, Report(third.when, third.decode, third.speculation, late.page), *rest])
    assert any(not one.holds for one in found)
    assert all(one.holds for one in found if one.stretch is None)
    assert is_agreement(found)


def test_too_little_proves_nothing() -> None:
    assert not is_agreement(compare_figures(make_reports()[:3]))
    assert not is_agreement([])
    assert not ComparedFigure(0, "accept length", 10.0, 2.0, None).holds


def test_a_stretch_with_idle_time_in_it_is_left_out() -> None:
    first, second, *_ = make_reports()
    late = Report(second.when + 300, second.decode, second.speculation, second.page)
    assert compare_figures([first, late]) == []


@pytest.mark.parametrize("gap", [0.0, 5.0])
def test_lines_of_two_reports_do_not_make_one(gap: float) -> None:
    listener = Listener(lambda: engines.load_engine("vllm").parse_metrics(""))
    listener.hear(0.0, HEAD.format(0) + ENGINE.format(100.0))
    listener.hear(gap, HEAD.format(5) + SPECULATION.format(2.8, 72, 120, 720, 1200, 60.0))
    assert len(listener.reports) == (1 if gap < 1 else 0)
