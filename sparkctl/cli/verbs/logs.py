"""``sparkctl logs``."""

from __future__ import annotations

import re

import click

from sparkctl.cli import stdout
from sparkctl.cli.event_printers import TextPrinter
from sparkctl.cli.options import (
    complete_profiles,
    create_context,
    json_option,
    node_option,
    parse_duration_option,
    select_configured_nodes,
)
from sparkctl.engines.line_preparer import split_carriage_returns
from sparkctl.model.events import Event, LogArrived


class LogPrinter(TextPrinter):
    """Prints lines as they are, or after their stamp. A progress bar that was rewritten in place is one line, as it was
    left, so that the nth line here is the line n that a verdict names. Where the logs of several ranks are shown together,
    the node's name stands before each line."""

    def __init__(self, timestamps: bool) -> None:
        super().__init__()
        self.timestamps = timestamps

    def print_event(self, event: Event) -> None:
        """Print a batch in one write."""
        if not isinstance(event, LogArrived):
            return super().print_event(event)
        lines = ((line.when, split_carriage_returns(line.text)[-1]) for line in event.lines)
        where = "" if event.rank is None else f"{event.node}  "
        return stdout.print_sanitized_lines(
            f"{where}{when} {text}" if self.timestamps else f"{where}{text}" for when, text in lines
        )


@click.command("logs", short_help="Show an instance's log, also of one that is gone.")
@click.argument("instance", shell_complete=complete_profiles)
@node_option(many=True)
@click.option("-f", "--follow", is_flag=True, help="Go on as lines come, through reconnects.")
@click.option("--since", callback=parse_duration_option, metavar="TIME", help="Only the last TIME, e.g. 10m.")
@click.option("--tail", type=click.IntRange(min=0), metavar="N", help="Only the last N lines.")
@click.option("--grep", metavar="RE", help="Only lines that match this regular expression.")
@click.option("-i", "--ignore-case", is_flag=True, help="For --grep.")
@click.option("-t", "--timestamps", is_flag=True, help="Docker's time stamp before each line.")
@click.option("-a", "--all", "everything", is_flag=True, help="With the access lines of sparkctl's own questions.")
@json_option
@click.pass_context
def command(
    ctx: click.Context, instance: str, node: tuple[str, ...], follow: bool, since: float | None, tail: int | None,
    grep: str | None, ignore_case: bool, timestamps: bool, everything: bool,
    as_json: bool,
) -> int:  # fmt: skip
    """Show the log of INSTANCE: from its container, or the saved one where the container is gone.

    Of a model over several Sparks those of all its ranks as one, by time, the node's name before each line; how far the
    Sparks' clocks differ is measured. --tail and --since count for each rank; --node picks one.

    An engine writes a line for each time that sparkctl asks it for its health, its figures or a token. Those lines are
    left out, other clients' are not.
    """
    from sparkctl.cli.event_printers import JsonPrinter
    from sparkctl.cli.verb_runner import run_verb
    from sparkctl.commands.show_log import ShowLog, show_log
    from sparkctl.model.text.bounded_pattern import compile_bounded

    try:
        pattern = compile_bounded(grep, re.IGNORECASE if ignore_case else 0) if grep is not None else None
    except (re.error, ValueError) as wrong:
        raise click.BadParameter(f"{grep!r} is not a regular expression: {wrong}", ctx, param_hint="--grep") from wrong
    context = create_context(may_ask=not as_json)
    request = ShowLog(
        instance=instance,
        nodes=select_configured_nodes(node),
        follow=follow,
        since=since,
        tail=tail,
        grep=pattern,
        everything=everything,
    )
    teller = JsonPrinter(logs=True) if as_json else LogPrinter(timestamps)
    return run_verb(context, lambda: show_log(context, request), teller)
