"""``sparkctl top``: show the live load of nodes and instances."""

from __future__ import annotations

from contextlib import aclosing
from pathlib import Path
from typing import TYPE_CHECKING

import click

from sparkctl.cli import stderr, stdout, verb_runner
from sparkctl.cli.options import (
    Number,
    complete_nodes,
    create_context,
    is_configured_node,
    is_profile,
    json_document_option,
    node_option,
    record_options,
    select_configured_nodes,
)
from sparkctl.cli.verb_runner import choose_exit_code, open_recorder, run_until_interrupt
from sparkctl.errors import ExitCode, InvalidInput
from sparkctl.model.lazy_dataclass import dataclass

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Sequence

    from sparkctl.context import CommandContext
    from sparkctl.model.node import Node
    from sparkctl.monitor.node_views import NodeTelemetryView
    from sparkctl.monitor.recording import EventRecorder


@dataclass(frozen=True, slots=True)
class TopPrinter:
    """Prints the views of all nodes as JSON, or as text in the width of stdout; ``plain`` prints again instead of repainting."""

    as_json: bool
    plain: bool
    explain: bool

    def format_lines(self, views: Sequence[NodeTelemetryView], height: int | None = None) -> list[str]:
        """Return the views as text, shortened if it has more lines than ``height``."""
        from sparkctl.views.top_view import format_top

        return format_top(views, stdout.get_terminal_width(), self.explain, height)

    def print_views(self, views: Sequence[NodeTelemetryView]) -> None:
        """Print the views once."""
        from sparkctl.views.top_view import build_top_json

        if self.as_json:
            stdout.print_json(build_top_json(views))
        else:
            stdout.print_rows([*self.format_lines(views), ""])


@click.command("top", short_help="Show memory, GPU, CPU, links and instances, live.")
@node_option(many=True)
@click.argument("nodes", nargs=-1, metavar="[NODE...]", shell_complete=complete_nodes)
@click.option("--once", is_flag=True, help="Print once and exit.")
@click.option("--no-stream", "is_single", is_flag=True, hidden=True, help="As --once, for hands that know Docker.")
@click.option(
    "-d",
    "--delay",
    type=Number(0.5, 60.0),
    metavar="SECONDS",
    help="Take a sample every so many seconds: 0.5 to 60 (default 2).",
)
@click.option("--plain", is_flag=True, help="Print again instead of repainting the screen.")
@json_document_option
@click.option(
    "--explain",
    is_flag=True,
    help="Explain under each instance how its memory bandwidth was estimated or measured, or why not.",
)
@record_options
@click.option(
    "--replay",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Show a recording; connects to no node. --once shows its end.",
)
@click.option("--speed", type=Number(min=0.01), metavar="N", help="Replay N times as fast.")
@click.pass_context
def top_command(
    ctx: click.Context, nodes: tuple[str, ...], node: tuple[str, ...], once: bool, is_single: bool, delay: float | None,
    plain: bool, as_json: bool, explain: bool, record: Path | None, overwrite: bool, replay: Path | None, speed: float | None,
) -> int:  # fmt: skip
    """Show the load of every NODE, every two seconds (or --delay) until Ctrl-C. The agent is sent over SSH and leaves no files behind.

    \b
    sparkctl top
    sparkctl top --once --explain              once, and where the bandwidth comes from
    sparkctl top --record evening.jsonl        later: sparkctl --replay evening.jsonl

    Page cache is memory that the kernel can reclaim; it is never counted as used. Exit 3 (--once) if a node could not be
    read.
    """
    if taken := [one for one in nodes if is_profile(one) and not is_configured_node(one)]:
        hints = f"sparkctl status {taken[0]} --watch\nsparkctl top --once"
        raise InvalidInput(f"{taken[0]} is a profile, and top shows nodes with all that runs there", hints)
    node, once = (*nodes, *node), once or is_single
    printer = TopPrinter(as_json, plain, explain)
    if delay is not None and (once or replay is not None):
        raise click.UsageError("--delay is for a live display, not for --once or --replay", ctx)
    if replay is not None:
        return _play_recording(
            ctx, replay, names=node, once=once, printer=printer, record=record, overwrite=overwrite, speed=speed
        )
    if speed is not None:
        raise click.UsageError("--speed needs --replay", ctx)
    context = create_context(may_ask=not as_json)
    chosen = select_configured_nodes(node)
    if not once and not as_json and not plain and not stdout.is_terminal():
        stderr.print_message("top goes on until Ctrl-C; for one look: sparkctl top --once")
    with open_recorder(ctx, record, overwrite) as recording:
        if once:
            return choose_exit_code(
                verb_runner.run_async(_print_top_once(context, chosen, printer, recording)), recording
            )
        return choose_exit_code(
            verb_runner.run_async(_watch_top(context, chosen, printer, recording, delay)), recording
        )


def _play_recording(
    ctx: click.Context, path: Path, names: Sequence[str], once: bool, printer: TopPrinter, record: Path | None,
    overwrite: bool, speed: float | None,
) -> int:  # fmt: skip
    """Show a recording until its end."""
    if record is not None or overwrite:
        raise click.UsageError("either --record or --replay, not both", ctx)
    if once and speed is not None:
        raise click.UsageError("either --once, which shows the end of the recording, or --speed, not both", ctx)
    from sparkctl.clock import SystemClock
    from sparkctl.monitor.recording import load_final_views, read_recording, replay_recording

    events = read_recording(path, lambda cut: stderr.print_warning(None, cut, None))
    if once:
        printer.print_views(load_final_views(events, names))
    else:
        verb_runner.run_async(_print_updates(replay_recording(SystemClock(), events, names, speed or 1.0), printer))
    return 0


async def _print_top_once(
    context: CommandContext, nodes: Sequence[Node], printer: TopPrinter, recording: EventRecorder | None
) -> int:
    from sparkctl.model.node import NodeState
    from sparkctl.monitor.watch_nodes import read_load_views

    views = await read_load_views(context, nodes, recording.write if recording else None)
    printer.print_views(views)
    known = all(view.state is NodeState.OK and view.docker_known for view in views)
    return int(ExitCode.DONE if known else ExitCode.UNREACHABLE)


async def _watch_top(
    context: CommandContext,
    nodes: Sequence[Node],
    printer: TopPrinter,
    recording: EventRecorder | None,
    delay: float | None,
) -> int:
    from sparkctl.monitor.sampler import INTERACTIVE_INTERVAL
    from sparkctl.monitor.watch_nodes import watch_load_views

    record = recording.write if recording else None
    await _print_updates(watch_load_views(context, nodes, delay or INTERACTIVE_INTERVAL, record), printer, waits=True)
    return 0


_FIRST_READING_SECONDS = 6.0


def _is_complete(view: NodeTelemetryView) -> bool:
    """Tell whether a node told its load and what runs there, or why it cannot."""
    from sparkctl.model.node import NodeState

    if view.state is NodeState.OK:
        has_rates = view.sample is not None and view.sample.sequence > 1  # they need two samples
        return has_rates and (view.instances_seen is not None or not view.docker_known)
    return view.state is not NodeState.UNKNOWN


def _has_figures(view: NodeTelemetryView) -> bool:
    """Tell whether the figures of all that serves were read once. Some programs have none."""
    from sparkctl.model.phase import Phase
    from sparkctl.views.overview.tile_rows import tells_figures

    return all(one.numbers is not None for one in view.instances if one.phase is Phase.READY and tells_figures(one))


async def _print_updates(
    updates: AsyncGenerator[tuple[NodeTelemetryView, ...], None], printer: TopPrinter, *, waits: bool = False
) -> None:
    """Repaint on a terminal, print again elsewhere, until Ctrl-C or the end. The time shown is that of the newest view.

    ``waits``: text begins with the first look that is complete; on a terminal, where it does not stay, after some seconds anyway.
    """
    import time

    from sparkctl.model.text.units import format_time_of_day

    painting = stdout.is_terminal() and not printer.as_json and not printer.plain

    async def print_all_views() -> None:
        is_shown = not waits or printer.as_json
        until = time.monotonic() + _FIRST_READING_SECONDS
        if painting and not is_shown:
            stdout.repaint_screen(["reading ..."])
        async with aclosing(updates):
            async for views in updates:
                is_late = time.monotonic() > until
                is_whole = all(map(_is_complete, views)) and (is_late or all(map(_has_figures, views)))
                if not (is_shown or is_whole or (is_late and painting)):
                    continue
                is_shown = True
                if painting:
                    clock = format_time_of_day(max((view.when for view in views), default=0), has_seconds=True)
                    stdout.repaint_screen([clock, "", *printer.format_lines(views, stdout.get_terminal_height() - 3)])
                else:
                    printer.print_views(views)

    await run_until_interrupt(print_all_views())
