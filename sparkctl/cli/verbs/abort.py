"""``sparkctl abort``."""

from __future__ import annotations

import click

from sparkctl.cli.setup import json_option, node_option


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
    from sparkctl.cli.finishing import finish
    from sparkctl.operations.switch_finish import abort

    return finish(abort, node, as_json=as_json)
