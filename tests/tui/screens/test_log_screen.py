"""The log of an instance on simulated Sparks: followed, through breaks, after its container is gone, and by every key."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from datetime import datetime
from itertools import pairwise
from pathlib import Path

import pytest
from textual.strip import Strip
from textual.widgets import Input

from sparkctl.cli.command_line_parser import CommandLineParser as Grammar
from sparkctl.cli.main import sparkctl_command
from sparkctl.clock import SystemClock
from sparkctl.logs.line_patterns import is_own_request
from sparkctl.logs.reader import _readers
from sparkctl.model.container import ContainerState
from sparkctl.model.events import ContainersListed, Event, LogArrived, PhaseChanged, SampleArrived
from sparkctl.model.instance import InstanceView
from sparkctl.model.launch_plan import ContainerLabel
from sparkctl.model.node import NodeName
from sparkctl.model.phase import Phase, Step
from sparkctl.model.sample import MemoryReading, Sample
from sparkctl.model.text.log_line import LogLine
from sparkctl.model.text.units import GIB
from sparkctl.monitor.store import Store
from sparkctl.simulator import SimulatedSparks
from sparkctl.simulator.sim_container import ContainerLog, LogQuery
from sparkctl.tui.log_viewer.log_subscription import RECOVERY_NOTICE_SECONDS
from sparkctl.tui.log_viewer.log_view import LogView
from sparkctl.tui.screens.log_screen import (
    LogScope,
    LogSource,
    describe_clock_skew,
    format_log_title,
    list_log_sources,
)
from sparkctl.tui.search_prompt import SearchPrompt
from tests.support.sim_clients import FAST
from tests.tui.panel_driver import (
    build_panel_options,
    controller_of,
    is_idle,
    open_demo_panel,
    open_panel,
    open_panel_on,
    panel_of,
    read_screen,
    read_toasts,
    wait_for_text,
    wait_until_true,
)
from tests.tui.screens.test_instance_screen import type_line, wait_for_log_view


async def test_it_is_followed_and_every_action_is_done_by_its_name_too(tmp_path: Path) -> None:
    async with SimulatedSparks("two-stacks", **FAST) as sparks, open_panel_on(sparks, tmp_path) as pilot:
        await wait_for_text(pilot, lambda text: text.count("● ready") == 2)
        await pilot.press("l")
        shown = await wait_for_text(pilot, "sparkctl › spark1 › qwen36-ngram › log")
        assert "f follow   / find   & only   E first error   w wrap" in shown
        view = await wait_for_log_view(pilot, lambda view: len(view.buffer.spool) > 20)
        lines = len(view.buffer.spool)
        await wait_for_log_view(pilot, lambda view: len(view.buffer.spool) > lines)
        panel_of(pilot).perform_action("log.wrap")
        panel_of(pilot).perform_action("log.follow")
        await pilot.pause()
        assert (view.state.is_wrapped, view.is_following) == (True, False)
        panel_of(pilot).perform_action("log.find")
        assert view.screen.query_one(SearchPrompt).is_open
        await pilot.press(*"decode", "enter")
        await wait_for_log_view(pilot, lambda view: view.state.found)
        await pilot.press("escape", "escape")
        await wait_for_text(pilot, "spark2 ●")


async def test_a_prompt_that_opens_and_closes_leaves_the_log_as_it_is_painted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    painted: list[int] = []
    paint = LogView.render_line

    def count(view: LogView, y: int) -> Strip:
        painted.append(y)
        return paint(view, y)

    monkeypatch.setattr(LogView, "render_line", count)
    async with SimulatedSparks("two-stacks", **FAST) as sparks, open_panel_on(sparks, tmp_path) as pilot:
        await wait_for_text(pilot, lambda text: text.count("● ready") == 2)
        await pilot.press("l")
        view = await wait_for_log_view(pilot, lambda view: len(view.buffer.spool) > 40)
        await pilot.press("g")
        await wait_for_text(pilot, lambda _: not view.is_following and painted)
        await pilot.pause(0.5)
        painted.clear()
        await pilot.press("slash")
        await pilot.pause(0.1)
        assert isinstance(pilot.app.focused, Input)
        await pilot.press("escape")
        await pilot.pause(0.1)
        assert pilot.app.focused is view
        assert not painted
        await pilot.press("slash", *"decode", "escape")
        await pilot.pause(0.1)
        assert painted, "what was found was marked, and is not any more"


async def test_while_it_searches_the_keys_of_the_search_come_first_in_the_footer(tmp_path: Path) -> None:
    async with (
        SimulatedSparks("two-stacks", **FAST) as sparks,
        open_panel_on(sparks, tmp_path, size=(80, 24)) as pilot,
    ):
        await wait_for_text(pilot, lambda text: text.count("● ready") == 2)
        await pilot.press("l")
        await wait_for_log_view(pilot, lambda view: len(view.buffer.spool) > 40)
        assert "n next match" not in (await wait_for_text(pilot, "/ find"))
        await pilot.press("slash", *"decode", "enter")
        shown = await wait_for_text(pilot, "n next match   N match before")
        assert " / find   n next match" in shown.splitlines()[-1]


async def test_marks_are_those_of_its_engine(tmp_path: Path) -> None:
    async with SimulatedSparks("two-stacks", **FAST) as sparks, open_panel_on(sparks, tmp_path) as pilot:
        await wait_for_text(pilot, lambda text: text.count("● ready") == 2)
        await pilot.press("l")
        view = await wait_for_log_view(pilot, lambda view: len(view.buffer.spool) > 20)
        await pilot.press("right_square_bracket")
        await wait_for_log_view(pilot, lambda view: view.position.current is not None)
        found = view.buffer.get_line(view.position.current[1])  # type: ignore[index]
        assert found is not None
        assert "ready to roll" in found.text


def list_foreign_numbers(sparks: SimulatedSparks, node: str, last: int) -> set[int]:
    """The numbers of the lines of a Spark's only container, up to ``last``, that are not our own questions to it."""
    (one,) = sparks.docker[node].running.values()
    records = one.container.journal._records[:last]
    return {number for number, each in enumerate(records, 1) if not is_own_request(each.data.decode().rstrip())}


class HeldClock(SystemClock):
    """Time that stands still for whoever says that a break is over, until it is let go."""

    def __init__(self) -> None:
        self.let_go = asyncio.Event()

    async def sleep(self, seconds: float) -> None:
        if seconds == RECOVERY_NOTICE_SECONDS:
            await self.let_go.wait()
        else:
            await super().sleep(seconds)


async def test_a_break_is_said_and_the_log_goes_on_where_it_stopped(tmp_path: Path) -> None:
    clock = HeldClock()
    async with SimulatedSparks("two-stacks", **FAST) as sparks, open_panel_on(sparks, tmp_path, clock=clock) as pilot:
        await wait_for_text(pilot, lambda text: text.count("● ready") == 2)
        await pilot.press("l")
        view = await wait_for_log_view(pilot, lambda view: len(view.buffer.spool) > 20)
        before = len(view.buffer.spool)
        sparks.sshd["spark1"].drop_connections()
        await wait_for_text(pilot, "spark1 was away and is back: the log goes on where it stopped")
        await wait_for_log_view(pilot, lambda view: len(view.buffer.spool) > before + 3)
        assert "the log goes on where it stopped" in read_screen(pilot), (
            "lines that come do not hide that there was a break"
        )
        clock.let_go.set()
        await wait_for_text(pilot, lambda text: "goes on where it stopped" not in text)
        lines = [(line.line, line.text) for line in view.buffer.read_lines(0, view.buffer.spool.end)]
        numbers = [number for number, _ in lines]
        assert numbers == sorted(numbers)
        assert set(numbers) == list_foreign_numbers(sparks, "spark1", numbers[-1]), "no line is lost"
        assert len(set(lines)) == len(lines), "and none is twice; a progress bar has a line for each state"


async def test_of_a_container_that_is_gone_the_saved_log_is_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with SimulatedSparks("two-stacks", **FAST) as sparks:
        monkeypatch.setenv("SPARKCTL_CONFIG", str(sparks.config_path))
        async with open_panel_on(sparks, tmp_path, (120, 30), load_commands=lambda: Grammar(sparkctl_command)) as pilot:
            await wait_for_text(pilot, lambda text: text.count("● ready") == 2)
            await pilot.press("enter", "x")
            await wait_for_text(pilot, "Type qwen36-ngram to do it")
            await pilot.press(*"qwen36-ngram", "enter")
            await wait_for_text(pilot, "It is not on this Spark now.")
            await pilot.press("l")
            await wait_for_text(pilot, "this is its saved log")
            await wait_for_log_view(pilot, lambda view: len(view.buffer.spool) > 20)
            assert "is gone from spark1" in read_screen(pilot)


async def test_a_typed_line_opens_the_log_where_the_instance_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with SimulatedSparks("two-stacks", **FAST) as sparks:
        monkeypatch.setenv("SPARKCTL_CONFIG", str(sparks.config_path))
        async with open_panel_on(sparks, tmp_path, load_commands=lambda: Grammar(sparkctl_command)) as pilot:
            await wait_for_text(pilot, lambda text: text.count("● ready") == 2)
            await type_line(pilot, "logs qwen36-vllm")
            await wait_for_text(pilot, "sparkctl › spark2 › qwen36-vllm › log")
            await wait_for_log_view(pilot, lambda view: len(view.buffer.spool) > 20)


async def test_of_a_recording_the_log_is_what_it_holds(tmp_path: Path) -> None:
    node = NodeName("spark1")
    lines = tuple(
        LogLine(when="2026-11-21T21:00:00Z", text=f"line {number} of it", number=number) for number in range(1, 41)
    )
    one = InstanceView(
        name="qwen36",
        node=node,
        container="sglang-qwen36",
        image="image",
        state=ContainerState.RUNNING,
        status="Up 1 minute",
        ours=True,
        memory=None,
        phase=Phase.LOADING,
        engine="sglang",
        container_id="ab" * 32,
        port=8003,
    )
    memory = MemoryReading(
        total=122 * GIB, available=30 * GIB, free=9 * GIB, page_cache=20 * GIB, swap_total=0, swap_free=0
    )
    events: tuple[Event, ...] = (
        SampleArrived(100.0, node, Sample(sequence=1, time=100.0, uptime=100.0, memory=memory), "boot"),
        ContainersListed(ts=100.0, node=node, instances=(one,)),
        PhaseChanged(
            ts=100.1,
            node=node,
            instance="qwen36",
            phase=Phase.LOADING,
            step=Step("weights", 3, 18),
            elapsed=0.1,
            expected=60.0,
        ),
        LogArrived(ts=100.2, node=node, instance="qwen36", lines=lines),
    )
    async with open_panel(build_panel_options((), tmp_path, recording=(events, 1.0))) as pilot:
        await wait_for_text(pilot, "qwen36")
        await pilot.press("enter")
        shown = await wait_for_text(pilot, "line 40 of it")
        assert "weights" in shown
        assert "this recording does not contain it" in shown or "docker run" not in shown
        await pilot.press("l")
        view = await wait_for_log_view(pilot, lambda view: len(view.buffer.spool) == 40)
        await pilot.press("ampersand", *"line 7", "enter")
        await wait_for_log_view(pilot, lambda view: view.state.shown == 1)
        assert view.state.total == 40


async def test_a_recording_that_goes_back_tells_its_log_anew(tmp_path: Path) -> None:
    """On the instance's screen and on the log's: what was said later is not there, and nothing stands twice."""
    node = NodeName("spark1")
    one = InstanceView(
        name="qwen36",
        node=node,
        container="sglang-qwen36",
        image="image",
        state=ContainerState.RUNNING,
        status="Up 1 minute",
        ours=True,
        memory=None,
        phase=Phase.LOADING,
        engine="sglang",
        container_id="ab" * 32,
        port=8003,
    )

    def said(ts: float, text: str, number: int) -> Event:
        return LogArrived(
            ts=ts, node=node, instance="qwen36", lines=(LogLine(when="2026-11-21T21:00:00Z", text=text, number=number),)
        )

    memory = MemoryReading(
        total=122 * GIB, available=30 * GIB, free=9 * GIB, page_cache=20 * GIB, swap_total=0, swap_free=0
    )
    events: tuple[Event, ...] = (
        SampleArrived(100.0, node, Sample(sequence=1, time=100.0, uptime=100.0, memory=memory), "boot"),
        ContainersListed(ts=100.0, node=node, instances=(one,)), said(100.0, "the first line", 1), said(125.0, "the second line", 2),
        ContainersListed(ts=150.0, node=node, instances=(one,)), said(175.0, "the third line", 3),
    )  # fmt: skip
    async with open_panel(build_panel_options((), tmp_path, recording=(events, 1.0)), (120, 40)) as pilot:
        await wait_for_text(pilot, "qwen36")
        await pilot.press("space", "enter")
        await wait_for_text(pilot, "the first line")
        await pilot.press("shift+right")
        shown = await wait_for_text(pilot, "the second line")
        assert "the third line" not in shown
        await pilot.press("shift+left")
        await wait_for_text(pilot, lambda text: "the first line" in text and "the second line" not in text)
        await pilot.press("shift+right", "shift+right", "l")
        await wait_for_log_view(pilot, lambda view: len(view.buffer.spool) == 3)
        await wait_for_text(pilot, "its end")
        await pilot.press("shift+left", "comma")
        await wait_for_text(pilot, " of 1:15 paused")
        view = await wait_for_log_view(pilot, lambda view: len(view.buffer.spool) == 1)
        assert [line.text for line in view.buffer.read_lines(0, 9)] == ["the first line"]
        await pilot.press("full_stop", "full_stop", "full_stop")
        view = await wait_for_log_view(pilot, lambda view: len(view.buffer.spool) == 2)
        assert [line.text for line in view.buffer.read_lines(0, 9)] == ["the first line", "the second line"]


async def test_it_comes_over_the_connection_that_is_there(tmp_path: Path) -> None:
    async with SimulatedSparks("two-stacks", **FAST) as sparks, open_panel_on(sparks, tmp_path) as pilot:
        await wait_for_text(pilot, lambda text: text.count("● ready") == 2)
        (connection,) = sparks.sshd["spark1"].logins
        await pilot.press("l")
        await wait_for_log_view(pilot, lambda view: len(view.buffer.spool) > 20)
        assert sparks.sshd["spark1"].logins == {connection}
        await pilot.press("escape")
        await wait_for_text(pilot, "spark2 ●")
        listeners = controller_of(pilot).supervisor._followers["spark1"].session.link._listeners
        for _ in range(3):
            before = len(listeners)
            await pilot.press("l")
            await wait_for_log_view(pilot, lambda view: len(view.buffer.spool) > 20)
            await pilot.press("escape")
            await wait_for_text(pilot, "spark2 ●")
            assert len(listeners) == before, "whoever has left is told nothing any more"


def run_same_name_twice(sparks: SimulatedSparks) -> None:
    """Let both containers be parts of one instance."""
    (other,) = sparks.docker["spark2"].containers.values()
    other.body["Labels"][ContainerLabel.INSTANCE] = "qwen36-ngram"


async def test_the_parts_of_one_instance_are_merged_by_time_and_each_is_a_key_away(tmp_path: Path) -> None:
    async with SimulatedSparks("two-stacks", **FAST) as sparks, open_panel_on(sparks, tmp_path, (120, 30)) as pilot:
        run_same_name_twice(sparks)
        await wait_for_text(pilot, lambda text: text.count("qwen36-ngram") >= 2)
        await pilot.press("l")
        await wait_for_text(pilot, "sparkctl › qwen36-ngram on 2 Sparks › log")
        view = await wait_for_log_view(
            pilot, lambda view: len({line.source for line in view.buffer.read_lines(0, 10_000)}) == 2
        )
        assert view.buffer.sources == ("spark1", "spark2")
        rows = [view.buffer.get_line(view.filter.rows.get_key(at)[1]) for at in range(len(view.filter.rows))]
        stamps = [datetime.fromisoformat(one.when).timestamp() for one in rows if one is not None]
        assert all(later - one > -0.002 for one, later in pairwise(stamps)), "as far as milliseconds tell"
        assert view.state.sources == 2
        seen = []
        for _ in range(3):
            await pilot.press("m")
            await wait_for_log_view(pilot, lambda view: view.state.narrowing is None)
            seen.append(view.state.source)
        assert seen == ["spark1", "spark2", None]


async def test_all_logs_at_once_through_a_break_without_gap_or_double(tmp_path: Path) -> None:
    async with (
        SimulatedSparks("two-stacks", **FAST) as sparks,
        open_panel_on(sparks, tmp_path, (120, 30), clock=HeldClock()) as pilot,
    ):
        await wait_for_text(pilot, lambda text: text.count("● ready") == 2)
        await pilot.press("l")
        await wait_for_text(pilot, "sparkctl › spark1 › qwen36-ngram › log")
        await pilot.press("w", "t", "number_sign", "ampersand", "z", "z", "enter", "M")
        await wait_for_text(pilot, "sparkctl › all logs")
        view = await wait_for_log_view(pilot, lambda view: bool(view.buffer.sources[1:]))
        assert view.state.only == "zz", "the filter stays, too"
        await pilot.press("escape")
        view = await wait_for_log_view(
            pilot, lambda view: len({line.source for line in view.buffer.read_lines(0, 10_000)}) == 2
        )
        assert (view.state.is_wrapped, view.state.has_times, view.state.has_numbers) == (True, True, True), "as before"
        assert view.buffer.sources == ("qwen36-ngram", "qwen36-vllm")
        before = view.buffer.spool.end
        sparks.sshd["spark2"].drop_connections()
        await wait_for_text(pilot, "spark2 was away and is back: the log goes on where it stopped")
        await wait_for_log_view(
            pilot, lambda view: sum(line.source for line in view.buffer.read_lines(before, before + 10_000)) > 5
        )
        for source, name in enumerate(("spark1", "spark2")):
            lines = [line.line for line in view.buffer.read_lines(0, view.buffer.spool.end) if line.source == source]
            assert sorted(set(lines)) == lines
            assert set(lines) == list_foreign_numbers(sparks, name, lines[-1])
        await pilot.press("M")
        await wait_for_text(pilot, "sparkctl › spark1 › qwen36-ngram › log")


def test_clocks_that_differ_are_said() -> None:
    here, there = NodeName("spark1"), NodeName("spark2")
    memory = MemoryReading(
        total=122 * GIB, available=30 * GIB, free=9 * GIB, page_cache=20 * GIB, swap_total=0, swap_free=0
    )
    store = Store((here, there))
    both = (LogSource(here, "minimax"), LogSource(there, "minimax"))
    assert describe_clock_skew(store, both) is None
    store.apply_event(SampleArrived(100.0, here, Sample(sequence=1, time=100.1, uptime=100.0, memory=memory), "boot"))
    store.apply_event(SampleArrived(100.0, there, Sample(sequence=1, time=102.2, uptime=100.0, memory=memory), "boot"))
    assert describe_clock_skew(store, both) == "merged by each Spark's own clock: spark2's is 2.1 s ahead of spark1's"
    assert describe_clock_skew(store, both[:1]) is None


async def test_the_log_of_the_start_before_is_a_key_away(tmp_path: Path) -> None:
    async with SimulatedSparks("two-stacks", **FAST) as sparks, open_panel_on(sparks, tmp_path, (120, 30)) as pilot:
        await wait_for_text(pilot, lambda text: text.count("● ready") == 2)
        await pilot.press("l")
        await wait_for_log_view(pilot, lambda view: len(view.buffer.spool) > 20)
        await pilot.press("P")
        assert len(pilot.app._notifications) == 1, "there is none"
        history = controller_of(pilot).context.history
        writer = history.open_log_writer("qwen36-ngram", "spark1", "e" * 64, ())
        writer.write(
            [
                LogLine(when="2026-05-01T10:00:00.000000000Z", text=f"as it was {number}", number=number)
                for number in range(1, 6)
            ]
        )
        writer.close(whole=True)
        await pilot.press("P")
        await wait_for_text(pilot, lambda text: "› earlier log" in text and "this is its saved log" in text)
        view = await wait_for_log_view(pilot, lambda view: len(view.buffer.spool) == 5)
        assert view.buffer.get_line(4).text == "as it was 5"  # type: ignore[union-attr]
        await pilot.press("P")
        await wait_for_text(pilot, "sparkctl › spark1 › qwen36-ngram › log")
        await wait_for_log_view(pilot, lambda view: len(view.buffer.spool) > 20)


async def test_a_connection_that_is_made_anew_brings_the_log_back(tmp_path: Path) -> None:
    async with SimulatedSparks("two-stacks", **FAST) as sparks, open_panel_on(sparks, tmp_path) as pilot:
        await wait_for_text(pilot, lambda text: text.count("● ready") == 2)
        await pilot.press("l")
        first = await wait_for_log_view(pilot, lambda view: len(view.buffer.spool) > 20)
        controller_of(pilot).supervisor.reconnect_node(NodeName("spark1"))
        await wait_for_text(pilot, "read again when it answers")
        view = await wait_for_log_view(pilot, lambda view: view is not first and len(view.buffer.spool) > 20)
        await wait_for_text(pilot, lambda text: "read again when it answers" not in text)
        lines = [line.line for line in view.buffer.read_lines(0, view.buffer.spool.end)]
        assert sorted(set(lines)) == lines
        assert set(lines) == list_foreign_numbers(sparks, "spark1", lines[-1])
        assert len(sparks.sshd["spark1"].logins) == 1


async def test_more_logs_are_never_fewer_and_lead_back_to_both_ranks(tmp_path: Path) -> None:
    async with SimulatedSparks("big-model", **FAST) as sparks, open_panel_on(sparks, tmp_path, (120, 30)) as pilot:
        await wait_for_text(pilot, lambda text: text.count("● ready") == 2)
        await pilot.press("l")
        await wait_for_text(pilot, "minimax-m27 on 2 Sparks › log")
        await pilot.press("M")
        await wait_until_true(pilot, lambda: "no other log is there now" in read_toasts(pilot))
        await wait_for_text(pilot, "minimax-m27 on 2 Sparks › log")


def test_with_those_of_its_spark_the_other_ranks_stay() -> None:
    here, there = NodeName("spark1"), NodeName("spark2")
    store = Store((here, there))
    for node, names in ((here, ("big", "small")), (there, ("big", "other"))):
        listed = tuple(
            InstanceView(
                name=name,
                node=node,
                container=name,
                image="image",
                state=ContainerState.RUNNING,
                status="Up",
                ours=True,
                memory=None,
                phase=Phase.READY,
            )
            for name in names
        )
        store.apply_event(ContainersListed(ts=1.0, node=node, instances=listed))
    big = LogSource(here, "big")
    of_it = list_log_sources(store, LogScope.INSTANCE, big)
    of_spark = list_log_sources(store, LogScope.SPARK, big)
    assert set(of_it) == {big, LogSource(there, "big")}
    assert set(of_spark) == {*of_it, LogSource(here, "small")}
    assert format_log_title(LogScope.SPARK, of_spark, big) == "big and all of spark1 › logs"
    assert set(list_log_sources(store, LogScope.ALL, big)) == {*of_spark, LogSource(there, "other")}


async def test_the_start_the_log_screen_the_meters_and_the_saved_file_share_one_docker_stream(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A container's log is followed once at any time, whoever reads it: Docker here counts who follows it."""
    following = 0
    counts: list[int] = []
    read_records = ContainerLog.read_records

    async def count_follows(log: ContainerLog, wanted: LogQuery) -> AsyncGenerator[bytes, None]:
        nonlocal following
        following += wanted.follow
        counts.append(following)
        try:
            async for records in read_records(log, wanted):
                yield records
        finally:
            following -= wanted.follow

    def count_subscribers() -> int:
        return max((len(one._feeds) for readers in _readers.values() for one in readers.values()), default=0)

    def list_log_sizes() -> list[int]:
        return [path.stat().st_size for path in tmp_path.glob("state/logs/qwen36-ngram/spark1/*.log")]

    monkeypatch.setattr(ContainerLog, "read_records", count_follows)
    async with (
        SimulatedSparks("empty", speed=8.0, decode_speed=50.0) as sparks,
        open_demo_panel(sparks, tmp_path, monkeypatch) as pilot,
    ):
        await wait_for_text(pilot, lambda text: text.count("○ nothing runs") == 2)
        await type_line(
            pilot, "up qwen36-ngram --node spark1"
        )  # it answers no /metrics: its figures are those of its log
        await wait_for_text(pilot, "loading")
        await pilot.press("l")
        await wait_for_log_view(pilot, lambda view: len(view.buffer.spool) > 3)
        await wait_until_true(pilot, lambda: count_subscribers() == 2)  # the watch, which writes the file; the screen
        store = controller_of(pilot).store
        (container,) = sparks.docker["spark1"].containers
        await wait_until_true(pilot, lambda: container in store.get_record(NodeName("spark1")).drafting)
        await wait_until_true(pilot, lambda: not store.jobs.running and count_subscribers() == 2)  # meters, screen
        assert list_log_sizes() > [1000], "and the file has the log"
        await pilot.press("escape")
        await wait_for_text(pilot, is_idle)
        assert following == 1
    assert max(counts) == 1
