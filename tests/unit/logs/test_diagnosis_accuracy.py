"""How often `diagnose` is right about logs that owners posted: the table of ``python -m tests.tools.diagnosis_table`` has a floor."""

from __future__ import annotations

from collections import Counter

from tests.tools.diagnosis_table import format_table, judge_log, load_posted_logs


def test_posted_logs_are_read_right() -> None:
    judged = [judge_log(one) for one in load_posted_logs()]
    counts = Counter(one.judgement for one in judged)
    table = "\n".join(format_table(judged))
    assert len(judged) >= 265
    assert counts["right"] >= 0.95 * len(judged), table
    assert counts["wrong"] + counts["missed"] == 0, table
    assert counts["false alarm"] == 0, table


def test_a_certain_verdict_is_right() -> None:
    certain = [one for one in map(judge_log, load_posted_logs()) if one.confidence == "certain"]
    assert len(certain) >= 60
    assert {one.judgement for one in certain} == {"right"}
