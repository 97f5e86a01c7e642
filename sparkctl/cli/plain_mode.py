"""``sparkctl --plain``: one sentence for each change instead of the panel, for screen readers and logs."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from pathlib import Path

from sparkctl.cli import stdout, verb_runner
from sparkctl.cli.options import create_context, select_configured_nodes
from sparkctl.cli.verb_runner import run_until_interrupt
from sparkctl.model.finding import Finding
from sparkctl.model.instance import InstanceView
from sparkctl.model.node import NodeState
from sparkctl.model.phase import Phase
from sparkctl.model.text.sanitize import sanitize_line
from sparkctl.model.text.units import GIB, format_time_of_day
from sparkctl.monitor.node_views import NodeTelemetryView
from sparkctl.views.event_text import format_phase_name

_MIN_MEMORY_CHANGE_BYTES = 8 * GIB  # smaller changes of memory are not printed


class ChangeReporter:
    """Remembers the last state of each node and describes what changed."""

    def __init__(self) -> None:
        self._before: dict[str, NodeTelemetryView] = {}
        self._used: dict[str, int] = {}

    def describe_changes(self, view: NodeTelemetryView) -> list[str]:
        """Return a sentence for each change since the last view of this node."""
        before = self._before.get(view.name)
        self._before[view.name] = view
        sentences = self._describe_state_change(before, view)
        if view.state is not NodeState.OK:
            return sentences
        return [
            *sentences,
            *_describe_instance_changes(before, view),
            *_describe_finding_changes(before, view),
            *self._describe_memory_change(view),
        ]

    def _describe_state_change(self, before: NodeTelemetryView | None, view: NodeTelemetryView) -> list[str]:
        known = (NodeState.UNKNOWN, None) if before is None else (before.state, before.detail)
        is_reason = view.state is NodeState.UNKNOWN and known[1] is None and view.detail is not None
        if known[0] is view.state and not is_reason:
            return []  # also for a node that was not read yet: the line "connecting to" was printed
        if view.state is NodeState.OK:
            return [f"{view.name} answers"]
        return [f"{view.name}: {view.state}" + (f", {sanitize_line(view.detail)}" if view.detail else "")]

    def _describe_memory_change(self, view: NodeTelemetryView) -> list[str]:
        bar = view.memory
        if bar is None:
            return []
        used = bar.total - bar.free - bar.page_cache
        if view.name in self._used and abs(used - self._used[view.name]) < _MIN_MEMORY_CHANGE_BYTES:
            return []
        self._used[view.name] = used
        return [
            f"{view.name}: {used / GIB:.1f} of {bar.total / GIB:.1f} GiB used, page cache {bar.page_cache / GIB:.1f}, "
            f"free {bar.free / GIB:.1f}"
        ]


def _describe_instance_changes(before: NodeTelemetryView | None, view: NodeTelemetryView) -> list[str]:
    old = {} if before is None else {one.name: one for one in before.instances}
    if view.instances_seen is not None and (before is None or before.instances_seen is None) and not view.instances:
        return [f"{view.name}: nothing runs"]
    sentences = [
        _describe_instance(one)
        for one in view.instances
        if one.name not in old or (one.ours and old[one.name].phase is not one.phase)
    ]
    names = {one.name for one in view.instances}
    return sentences + [f"{sanitize_line(name)} on {view.name} is gone" for name in old if name not in names]


def _describe_instance(one: InstanceView) -> str:
    state = "runs, not started by sparkctl" if one.phase is None else format_phase_name(one.phase)
    port = f", port {one.port}" if one.phase is Phase.READY and one.port is not None else ""
    why = f", {sanitize_line(one.detail)}" if one.detail and one.phase is Phase.FAILED else ""
    return f"{sanitize_line(one.name)} on {one.node}: {state}{port}{why}"


def _describe_finding_changes(before: NodeTelemetryView | None, view: NodeTelemetryView) -> list[str]:
    old = () if before is None else before.findings
    known, now = {_finding_key(one) for one in old}, {_finding_key(one) for one in view.findings}
    sentences = [
        f"{view.name}: {one.severity}: {sanitize_line(one.summary)}"
        for one in view.findings
        if _finding_key(one) not in known
    ]
    return sentences + [
        f"{view.name}: over: {sanitize_line(one.summary)}" for one in old if _finding_key(one) not in now
    ]


def _finding_key(one: Finding) -> tuple[str, str | None]:
    return one.kind, one.instance


def run_plain_mode(replay: Path | None = None) -> int:
    """Print changes until Ctrl-C or the end of the recording."""
    if replay is not None:
        from sparkctl.clock import SystemClock
        from sparkctl.monitor.recording import read_recording, replay_recording

        updates = replay_recording(SystemClock(), read_recording(replay))
    else:
        from sparkctl.monitor.watch_nodes import watch_load_views

        context, nodes = create_context(), select_configured_nodes(())
        stdout.print_line(
            _format_timestamped(context.clock.unix_time(), f"connecting to {' and '.join(node.name for node in nodes)}")
        )
        updates = watch_load_views(context, nodes)
    verb_runner.run_async(run_until_interrupt(_print_changes(updates)))
    return 0


async def _print_changes(updates: AsyncGenerator[tuple[NodeTelemetryView, ...], None]) -> None:
    reporter = ChangeReporter()
    async with aclosing(updates):
        async for views in updates:
            for view in views:
                for sentence in reporter.describe_changes(view):
                    stdout.print_line(_format_timestamped(view.when, sentence))


def _format_timestamped(when: float, sentence: str) -> str:
    return f"{format_time_of_day(when, has_seconds=True)}  {sentence}"
