"""``sparkctl resume``: finish an interrupted switch."""

from __future__ import annotations

import os

import click

from sparkctl.cli.options import (
    PreparedVerb,
    RequestCommand,
    add_other_nodes,
    json_option,
    node_option,
    select_configured_nodes,
)


def prepare_finish(way: str, names: tuple[str, ...]) -> PreparedVerb:
    """Return the request to finish a switch on these nodes, or on any; ``way``: a value of `FinishVerb`."""
    from sparkctl.cli.event_printers import SwitchPrinter
    from sparkctl.commands.switch.finish_switch import FinishSwitch, FinishVerb

    nodes = select_configured_nodes(names)
    request = FinishSwitch(
        nodes=nodes, names_nodes=bool(names), known=add_other_nodes(nodes), environ=os.environ, way=FinishVerb(way)
    )
    return PreparedVerb(request=request, printer=SwitchPrinter)


@click.command("resume", cls=RequestCommand, short_help="Finish an interrupted switch.")
@node_option(many=True)
@json_option
def command(node: tuple[str, ...], as_json: bool) -> PreparedVerb:
    """Finish a switch that was interrupted, or whose operator lost the connection.

    \b
    sparkctl resume
    sparkctl resume --node spark1

    It continues at the step that the journal on the nodes names, forward or back. It is refused (exit 6) while its operator
    is still at work, and if the profile has changed here since then; in that case use sparkctl abort.
    """
    return prepare_finish("resume", node)
