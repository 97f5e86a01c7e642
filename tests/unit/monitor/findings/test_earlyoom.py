"""What earlyoom does by its arguments, against its manual: both limits must hold, and a per cent of what."""

from __future__ import annotations

import pytest

from sparkctl.model.text.units import GIB, KIB
from sparkctl.monitor.findings.node_settings import EarlyoomRule, parse_earlyoom_args

TOTAL, ANONYMOUS = 120 * GIB, 2 * GIB


@pytest.mark.parametrize(
    ("line", "rule"),
    [
        ("earlyoom", EarlyoomRule()),
        ("/usr/bin/earlyoom -r 3600", EarlyoomRule()),
        ("earlyoom -m 2,1 -s 80 -p", EarlyoomRule(memory=2.0, swap=80.0)),
        (
            "earlyoom -m2 -s100 --prefer vllm|sglang --avoid ^sshd$",
            EarlyoomRule(memory=2.0, swap=100.0, memory_size=None),
        ),
        ("earlyoom -M 1048576,524288 --dryrun", EarlyoomRule(memory_size=GIB, dry=True)),
        ("earlyoom -m many", None),
        ("earlyoom --strange", None),
        ("earlyoom stray", None),
        ("", EarlyoomRule()),
    ],
)
def test_earlyoom_arguments_are_parsed(line: str, rule: EarlyoomRule | None) -> None:
    assert parse_earlyoom_args(line.split()) == rule


@pytest.mark.parametrize(
    ("rule", "version", "limit"),
    [
        (EarlyoomRule(), "1.7", 12 * GIB),
        (EarlyoomRule(memory=2.5), "1.6.2", 3 * GIB),
        (EarlyoomRule(memory_size=6 * GIB), "1.7", 6 * GIB),
        (EarlyoomRule(memory=10.0, memory_size=24 * GIB), "1.7", 12 * GIB),
        (EarlyoomRule(memory=20.0), "1.8.2", GIB // 2),  # x of x + 2 GiB is a fifth: half a GiB
        (EarlyoomRule(), None, None),
        (EarlyoomRule(), "unknown", None),
    ],
)
def test_the_available_memory_at_which_earlyoom_kills(
    rule: EarlyoomRule, version: str | None, limit: int | None
) -> None:
    found = rule.compute_kill_threshold(version, TOTAL, ANONYMOUS)
    assert found == limit or (found is not None and limit is not None and abs(found - limit) < KIB)


def test_without_the_anonymous_memory_the_newer_rule_is_not_known() -> None:
    assert EarlyoomRule().compute_kill_threshold("1.9", TOTAL, None) is None
