"""``sparkctl resume``."""

from __future__ import annotations

import os

import click

from sparkctl.cli.setup import json_option, make_context, node_option


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
    from sparkctl.cli.drive import drive
    from sparkctl.cli.setup import chosen_nodes
    from sparkctl.cli.switch_teller import SwitchTeller
    from sparkctl.cli.tellers import JsonTeller
    from sparkctl.operations.switch_finish import FinishRequest, resume

    nodes = chosen_nodes(node)
    known = {one.name: one for one in (*nodes, *(chosen_nodes(()) if node else ()))}
    request = FinishRequest(nodes, tuple(known.values()), os.environ)
    context = make_context(may_ask=not as_json)
    return drive(context, lambda: resume(context, request), JsonTeller() if as_json else SwitchTeller())
