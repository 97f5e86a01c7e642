"""``sparkctl logs``: show the log of an instance."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from sparkctl.cli.options import (
    PreparedVerb,
    RequestCommand,
    WholeNumber,
    complete_logged_instances,
    create_context,
    is_configured_node,
    json_option,
    node_option,
    parse_duration_option,
    select_configured_nodes,
)
from sparkctl.errors import InvalidInput, NodeError

if TYPE_CHECKING:
    from sparkctl.context import CommandContext
    from sparkctl.model.node import Node


@click.command("logs", cls=RequestCommand, short_help="Show an instance's log, even after its container is gone.")
@click.argument("instance", required=False, shell_complete=complete_logged_instances)
@node_option(many=True)
@click.option("-f", "--follow", is_flag=True, help="Print new lines as they arrive, through reconnects.")
@click.option("--since", callback=parse_duration_option, metavar="TIME", help="Show only the last TIME, e.g. 10m.")
@click.option("--tail", "--lines", type=WholeNumber(min=0), metavar="N", help="Show only the last N lines.")
@click.option("--grep", metavar="RE", help="Show only lines that match this regular expression.")
@click.option("-i", "--ignore-case", is_flag=True, help="Ignore case in --grep.")
@click.option("-t", "--timestamps", is_flag=True, help="Print Docker's timestamp before each line.")
@click.option("-a", "--all", "everything", is_flag=True, help="Include the access lines of sparkctl's own requests.")
@json_option
@click.pass_context
def logs_command(
    ctx: click.Context, instance: str | None, node: tuple[str, ...], follow: bool, since: float | None, tail: int | None,
    grep: str | None, ignore_case: bool, timestamps: bool, everything: bool,
    as_json: bool,
) -> PreparedVerb:  # fmt: skip
    """Show the log of INSTANCE: from its container, or the saved log if the container is gone. Without INSTANCE: of the only one that runs.

    \b
    sparkctl logs qwen36-vllm -f
    sparkctl logs qwen36-vllm --tail 50 --grep ERROR

    For a model over several Sparks the logs of all ranks are merged by time, with the node's name before each line; the
    difference of the Sparks' clocks is measured. --tail and --since apply to each rank; --node picks one.

    The engine also logs sparkctl's own requests, for its health, its metrics or a token. Those lines are left out; lines of
    other clients are shown.
    """
    from sparkctl.cli.event_printers import JsonPrinter, LogPrinter
    from sparkctl.cli.verb_runner import run_async
    from sparkctl.commands.show_log import ShowLog, show_log
    from sparkctl.model.text.bounded_pattern import compile_bounded

    try:
        pattern = compile_bounded(grep, re.IGNORECASE if ignore_case else 0) if grep is not None else None
    except (re.error, ValueError) as wrong:
        raise click.BadParameter(f"{grep!r} is not a regular expression: {wrong}", ctx, param_hint="--grep") from wrong
    if number := next((one for one in node if one.isdecimal() and not is_configured_node(one)), None):
        words = shlex.join(["sparkctl", "logs", *([instance] if instance else []), "--tail", number])
        raise InvalidInput("-n names a node", words)  # for docker, tail and journalctl it is a number of lines
    if not node and instance is not None and is_configured_node(instance):
        node, instance = (instance,), None  # the log of the only one that runs there
    nodes = select_configured_nodes(node)
    request = ShowLog(
        instance=instance
        or run_async(_find_only_instance(create_context(may_ask=not as_json), nodes, " --follow" if follow else "")),
        nodes=nodes,
        follow=follow,
        since=since,
        tail=tail,
        grep=pattern,
        everything=everything,
        stamped=timestamps or as_json,
    )
    return PreparedVerb(
        request=lambda ctx: show_log(ctx, request),
        printer=lambda: LogPrinter(timestamps),
        json_printer=lambda: JsonPrinter(logs=True),
    )


async def _find_only_instance(context: CommandContext, nodes: Sequence[Node], flags: str) -> str:
    """Return the only instance of sparkctl that runs. Raises `SparkctlError` where none or several do, or a node is silent.

    ``flags``: what was typed besides, for the commands to choose from.
    """
    from sparkctl.model.node import NodeState
    from sparkctl.monitor.node_status import read_node_statuses

    views = await read_node_statuses(context, nodes)
    for view in views:
        if view.state is not NodeState.OK or not view.docker_known:
            raise NodeError(view.name, view.detail or f"{view.name} could not be read", view.hint)
    names = sorted({one.name for view in views for one in view.instances if one.ours and one.is_alive})
    if not names:
        raise InvalidInput("nothing runs: name an instance to see its saved log", "sparkctl history")
    if len(names) > 1:
        lines = "\n".join(f"sparkctl logs {name}{flags}" for name in names)
        raise InvalidInput("several instances run: name one", lines)
    return names[0]
