"""``sparkctl abort``."""

from __future__ import annotations

import os

import click

from sparkctl.cli.setup import json_option, make_context, node_option


@click.command("abort", short_help="Undo a switch that somebody left: what was stopped serves again.")
@node_option(many=True)
@json_option
def command(node: tuple[str, ...], as_json: bool) -> int:
    """Undo the switch that was left: what it started goes, what it had stopped is started again and proves itself.

    \b
    sparkctl abort
    sparkctl abort --node spark1

    It needs no profile: the containers that were stopped are kept until the new one has proved itself. From then on there is
    nothing to undo (exit 6).
    """
    from sparkctl.cli.drive import drive
    from sparkctl.cli.setup import chosen_nodes
    from sparkctl.cli.switch_teller import SwitchTeller
    from sparkctl.cli.tellers import JsonTeller
    from sparkctl.operations.switch_finish import FinishRequest, abort

    nodes = chosen_nodes(node)
    known = {one.name: one for one in (*nodes, *(chosen_nodes(()) if node else ()))}
    request = FinishRequest(nodes, tuple(known.values()), os.environ)
    context = make_context(may_ask=not as_json)
    return drive(context, lambda: abort(context, request), JsonTeller() if as_json else SwitchTeller())
