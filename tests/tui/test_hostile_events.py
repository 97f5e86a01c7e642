"""Whatever a node, a log or an error says: the panel shows it as text, and no control character gets to the terminal."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Sequence
from pathlib import Path

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sparkctl.model.container import ContainerState
from sparkctl.model.events import (
    ContainersListed,
    Event,
    FindingReported,
    LogArrived,
    MemorySampled,
    NodeStateChanged,
    PhaseChanged,
)
from sparkctl.model.finding import FindingKind, Severity
from sparkctl.model.instance import InstanceView
from sparkctl.model.node import NodeName, NodeState
from sparkctl.model.phase import Phase, Step
from sparkctl.model.sample import MemoryReading
from sparkctl.model.text.log_line import LogLine
from tests.tui.panel_driver import build_panel_options, open_panel, panel_of, wait_until_true

HOSTILE = (
    "[/red]", "[link=file:///x]x[/link]", "[@click=app.quit]x[/]", "[INST] hi [/INST]", "\x1b]52;c;aGk=\x07", "\x1b[2J",
    "\x1b]0;owned\x07", "\x9b6n", "\x90q\x9c", "\u202eevil", "a\x00b", "\r\n\t", "日本語のログ", "👩‍👩‍👧", "e\u0301", "\ud800",
)  # fmt: skip
TEXT = st.one_of(
    st.sampled_from(HOSTILE), st.text(max_size=40), st.binary(max_size=40).map(lambda b: b.decode("latin-1"))
)
NODE = NodeName("spark1")
MEMORY = MemoryReading(
    total=128 << 30, available=40 << 30, free=10 << 30, page_cache=30 << 30, swap_total=16 << 30, swap_free=16 << 30
)


@st.composite
def draw_hostile_event(draw: st.DrawFn) -> Event:
    """An event of which every word is the node's."""
    which = draw(st.integers(0, 5))
    if which == 0:
        state = draw(st.sampled_from(list(NodeState)))
        return NodeStateChanged(
            ts=2.0,
            node=NODE,
            state=state,
            detail=draw(TEXT),
            attempt=draw(st.integers(0, 9)),
            next_try=3.0,
            hint=draw(TEXT),
        )
    if which == 1:
        listed = InstanceView(
            name=draw(TEXT),
            node=NODE,
            container=draw(TEXT),
            image=draw(TEXT),
            state=ContainerState.RUNNING,
            status=draw(TEXT),
            ours=draw(st.booleans()),
            memory=None,
            phase=draw(st.sampled_from(list(Phase))),
            step=Step(draw(TEXT), 1, 3),
            profile=draw(TEXT),
            engine=draw(TEXT),
            detail=draw(TEXT),
            container_id="c1",
            port=8000,
        )
        return ContainersListed(
            ts=2.0, node=NODE, instances=(listed,), known=draw(st.booleans()), detail=draw(TEXT), hint=draw(TEXT)
        )
    if which == 2:
        return PhaseChanged(
            ts=2.0,
            node=NODE,
            instance=draw(TEXT),
            phase=draw(st.sampled_from(list(Phase))),
            step=Step(draw(TEXT)),
            elapsed=1.0,
            expected=9.0,
            detail=draw(TEXT),
        )
    if which == 3:
        kind = draw(st.sampled_from(list(FindingKind)))
        return FindingReported(
            ts=2.0,
            node=NODE,
            check=kind.value,
            severity=Severity.PROBLEM,
            message=draw(TEXT),
            remedy=draw(TEXT),
            instance=draw(TEXT),
        )
    if which == 4:
        return MemorySampled(2.0, NODE, MEMORY)
    return LogArrived(
        ts=2.0, node=NODE, instance=draw(TEXT), lines=(LogLine(when="2026-05-01T00:00:00Z", text=draw(TEXT), number=1),)
    )


KEYS = ("i", "escape", "question_mark")


async def paint_events(
    events: Sequence[Event], words: str, size: tuple[int, int], keys: Sequence[str] = KEYS
) -> list[str]:
    """Play the events, say something, open what can be read; return every line that the terminal would get."""
    first = NodeStateChanged(ts=1.0, node=NODE, state=NodeState.OK)
    with tempfile.TemporaryDirectory() as state:
        made = build_panel_options((), Path(state), recording=((first, *events), 1000.0))
        async with open_panel(made, size) as pilot:
            panel = pilot.app
            lines: list[str] = []
            await wait_until_true(
                pilot,
                lambda: panel_of(pilot).controller is not None and panel_of(pilot).controller.player.progress.is_over,
            )
            panel_of(pilot).show_toast(words, severity="error")
            await pilot.pause()
            for key in keys:
                await pilot.press(key)
                lines += ["".join(part.text for part in strip) for strip in panel.screen._compositor.render_strips()]
            assert panel.is_running
            return lines


def test_an_instance_of_any_name_is_text_on_its_own_screens_too() -> None:
    for name in ("\x1b]52;c;aGk=\x07", "[@click=app.quit]x[/]"):
        event = PhaseChanged(
            ts=2.0,
            node=NODE,
            instance=name,
            phase=Phase.LOADING,
            step=Step(name),
            elapsed=1.0,
            expected=9.0,
            detail=name,
        )
        line = LogArrived(
            ts=2.0, node=NODE, instance=name, lines=(LogLine(when="2026-05-01T00:00:00Z", text=name, number=1),)
        )
        lines = asyncio.run(paint_events((event, line), name, (80, 24), ("enter", "d", "escape", "l")))
        assert [line for line in lines if "› log" in line]
        assert not [line for line in lines if not line.isprintable()]


@settings(max_examples=30, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(draw_hostile_event(), max_size=12), TEXT, st.sampled_from([(80, 24), (120, 40), (50, 12)]))
def test_nothing_raises_and_no_control_gets_through(events: list[Event], words: str, size: tuple[int, int]) -> None:
    lines = asyncio.run(paint_events(events, words, size))
    assert lines
    assert not [line for line in lines if not line.isprintable()]
