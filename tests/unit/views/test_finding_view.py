"""A finding as an owner reads it."""

from __future__ import annotations

from dataclasses import replace

from sparkctl.model.events import FindingReported
from sparkctl.model.finding import Finding, FindingEvidence, FindingKind, Severity
from sparkctl.model.node import NodeName
from sparkctl.views.finding_view import format_finding, format_node_findings, render_finding
from sparkctl.views.text.styled_text import join_text

STUCK = Finding(
    kind=FindingKind.STUCK_CLOCK, severity=Severity.PROBLEM, node=NodeName("spark1"), summary="the GPU is stuck at 799 of 3003 MHz",
    remedy="unplug it; then: sudo fwupdmgr refresh --force && fwupdmgr get-upgrades",
    evidence=(FindingEvidence("SM clock", "799", "MHz", "nvml"), FindingEvidence("power", "19.5", "W", "nvml")), since=1000.0,
)  # fmt: skip
ORPHAN = Finding(
    kind=FindingKind.ORPHAN,
    severity=Severity.WARNING,
    node=NodeName("spark1"),
    summary="\x1b[31mVLLM\x1b[0m holds 101.8 GiB",
)


def test_a_block_of_findings() -> None:
    assert format_node_findings([STUCK, ORPHAN], 1250.0, wanted=None, width=None) == [
        "    ✕ the GPU is stuck at 799 of 3003 MHz",
        "      SM clock 799 MHz · power 19.5 W · for 4 min 10 s",
        "      try: unplug it; then: sudo fwupdmgr refresh --force && fwupdmgr get-upgrades",
        "    ▲ VLLM holds 101.8 GiB",
        "      since before the first reading",
    ]
    assert format_node_findings([], 1250.0, wanted=None, width=None) == []
    brief = format_node_findings([STUCK], 1250.0, wanted=(), width=None)
    assert brief == ["    ✕ the GPU is stuck at 799 of 3003 MHz · for 4 min 10 s"]


def test_it_fits_a_narrow_terminal_and_what_began_now_is_said() -> None:
    lines = format_node_findings([STUCK], 1000.2, width=60, wanted=None)
    assert max(len(line) for line in lines if "fwupdmgr" not in line) <= 60
    assert "since just now" in " ".join(lines)
    assert any("sudo fwupdmgr refresh --force && fwupdmgr get-upgrades" in line for line in lines), (
        "a command stays whole"
    )


def test_each_row_of_a_finding_begins_below_its_first_word() -> None:
    found = FindingReported.from_finding(
        0.0, replace(STUCK, remedy="unplug the adapter from the wall and from the Spark for a minute")
    )
    rows = [join_text(row) for row in render_finding(found, "now", 44)]
    assert max(map(len, rows)) <= 44
    indents = {len(row) - len(row.lstrip()) for row in rows if row.startswith(" ")}
    assert indents == {len("seen   ")}, rows


def test_no_name_of_a_check_breaks_the_column_of_doctor() -> None:
    said = [
        FindingReported(
            ts=1.0, node=NodeName("spark1"), check=kind, severity=Severity.GOOD, message="words", remedy="do"
        )
        for kind in FindingKind
    ]
    lines = [line for one in said for line in format_finding(one)]
    assert {line.index("words") for line in lines[::2]} == {line.index("try: do") for line in lines[1::2]}
    assert len({line.index("words") for line in lines[::2]}) == 1
