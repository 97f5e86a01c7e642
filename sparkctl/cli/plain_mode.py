"""``sparkctl --plain``: the panel as sentences, one for each change. For screen readers, and for a log of the day."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator
from contextlib import aclosing
from pathlib import Path

from sparkctl.cli import loop, stdout
from sparkctl.cli.changes import ChangeReporter
from sparkctl.cli.options import create_context, select_configured_nodes
from sparkctl.cli.verb_runner import run_until_interrupt
from sparkctl.monitor.node_views import NodeTelemetryView


def run_plain_mode(replay: Path | None = None) -> int:
    """Tell what changes until Ctrl-C, or the end of a recording."""
    if replay is not None:
        from sparkctl.clock import SystemClock
        from sparkctl.monitor import replay as playing
        from sparkctl.monitor.event_recording import read_recording

        looks = playing.replay_recording(SystemClock(), read_recording(replay))
    else:
        from sparkctl.monitor.watch_nodes import watch_load_views

        context, nodes = create_context(), select_configured_nodes(())
        stdout.print_line(
            _format_timestamped(context.clock.unix_time(), f"connecting to {' and '.join(node.name for node in nodes)}")
        )
        looks = watch_load_views(context, nodes)
    loop.run_async(run_until_interrupt(_print_changes(looks)))
    return 0


async def _print_changes(looks: AsyncGenerator[tuple[NodeTelemetryView, ...], None]) -> None:
    teller = ChangeReporter()
    async with aclosing(looks):
        async for views in looks:
            for view in views:
                for sentence in teller.describe_changes(view):
                    stdout.print_line(_format_timestamped(view.when, sentence))


def _format_timestamped(when: float, sentence: str) -> str:
    return f"{time.strftime('%H:%M:%S', time.localtime(when))}  {sentence}"
