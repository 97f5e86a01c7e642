"""``sparkctl --plain``: the panel as sentences, one for each change. For screen readers, and for a log of the day."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator
from contextlib import aclosing
from pathlib import Path

from sparkctl.cli import loop, output
from sparkctl.cli.drive import run_until_interrupt
from sparkctl.cli.setup import create_context, select_configured_nodes
from sparkctl.core.store import NodeTelemetryView
from sparkctl.present.changes import ChangeReporter


def run_plain_mode(replay: Path | None = None) -> int:
    """Tell what changes until Ctrl-C, or the end of a recording."""
    if replay is not None:
        from sparkctl.core.clock import SystemClock
        from sparkctl.core.recording import read_recording
        from sparkctl.operations import replay as playing

        looks = playing.replay_recording(SystemClock(), read_recording(replay))
    else:
        from sparkctl.operations.top import watch_load_views

        context, nodes = create_context(), select_configured_nodes(())
        output.print_line(
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
                    output.print_line(_format_timestamped(view.when, sentence))


def _format_timestamped(when: float, sentence: str) -> str:
    return f"{time.strftime('%H:%M:%S', time.localtime(when))}  {sentence}"
