"""``sparkctl resume``."""

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


def finish_switch(way: FinishOperation, names: tuple[str, ...], *, as_json: bool) -> int:
    """Run either verb for the switch that lies on the named nodes, or on any; return its exit code."""
    nodes = select_configured_nodes(names)
    request = FinishSwitch(nodes=nodes, known=add_other_nodes(nodes), environ=os.environ)
    context = create_context(may_ask=not as_json)
    return run_verb(context, lambda: way(context, request), JsonPrinter() if as_json else SwitchPrinter())


@click.command("resume", short_help="Finish a switch that somebody left.")
@node_option(many=True)
@json_option
def command(node: tuple[str, ...], as_json: bool) -> int:
    """Finish the switch that was left: interrupted, or its operator's connection lost.

    \b
    sparkctl resume
    sparkctl resume --node spark1

    It goes on at the step that the journal on the nodes names, forward or back, and is refused (exit 6) while its operator is
    still at work, and where the profile here is another one by now: then sparkctl abort.
    """
    from sparkctl.commands.switch.finish_switch import resume_switch

    return finish_switch(resume_switch, node, as_json=as_json)
