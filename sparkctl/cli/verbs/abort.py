"""``sparkctl abort``."""

from __future__ import annotations

import click

from sparkctl.cli.options import json_option, node_option


@click.command("abort", short_help="Undo a switch that somebody left: what was stopped serves again.")
@node_option(many=True)
@click.option(
    "--give-up", "gives_up", is_flag=True, help="Bring nothing back: put both away, logs saved, and forget the switch."
)
@json_option
def command(node: tuple[str, ...], gives_up: bool, as_json: bool) -> int:
    """Undo the switch that was left: what it started goes, what it had stopped is started again and proves itself.

    \b
    sparkctl abort
    sparkctl abort --node spark1
    sparkctl abort --give-up

    It needs no profile: the containers that were stopped are kept until the new one has proved itself. From then on there is
    nothing to undo (exit 6). Where what was stopped does not come back, or is not wanted any more, --give-up stops and removes
    what is left of both models, and the Sparks are open for something else.
    """
    from sparkctl.cli.verbs.resume import finish_switch
    from sparkctl.commands.switch.finish_switch import abandon_switch, abort_switch

    return finish_switch(abandon_switch if gives_up else abort_switch, node, as_json=as_json)
