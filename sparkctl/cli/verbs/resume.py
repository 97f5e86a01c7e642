"""``sparkctl resume``: finish an interrupted switch."""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator, Callable

import click

from sparkctl.cli.event_printers import JsonPrinter, SwitchPrinter
from sparkctl.cli.options import add_other_nodes, create_context, json_option, node_option, select_configured_nodes
from sparkctl.cli.verb_runner import run_verb
from sparkctl.commands.switch.finish_switch import FinishSwitch
from sparkctl.context import CommandContext
from sparkctl.model.events import Event

FinishOperation = Callable[[CommandContext, FinishSwitch], AsyncGenerator[Event, None]]


def finish_switch(finish_operation: FinishOperation, names: tuple[str, ...], *, as_json: bool) -> int:
    """Run `resume` or `abort` for the interrupted switch on these nodes, or on any node; return the exit code."""
    nodes = select_configured_nodes(names)
    request = FinishSwitch(nodes=nodes, known=add_other_nodes(nodes), environ=os.environ)
    context = create_context(may_ask=not as_json)
    return run_verb(context, lambda: finish_operation(context, request), JsonPrinter() if as_json else SwitchPrinter())


@click.command("resume", short_help="Finish an interrupted switch.")
@node_option(many=True)
@json_option
def command(node: tuple[str, ...], as_json: bool) -> int:
    """Finish a switch that was interrupted, or whose operator lost the connection.

    \b
    sparkctl resume
    sparkctl resume --node spark1

    It continues at the step that the journal on the nodes names, forward or back. It is refused (exit 6) while its operator
    is still at work, and if the profile has changed here since then; in that case use sparkctl abort.
    """
    from sparkctl.commands.switch.finish_switch import resume_switch

    return finish_switch(resume_switch, node, as_json=as_json)
