"""``sparkctl resume``."""

from __future__ import annotations

import click

from sparkctl.cli.options import json_option, node_option


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
    from sparkctl.cli.verbs.finishing import finish_switch
    from sparkctl.commands.switch.finish_switch import resume_switch

    return finish_switch(resume_switch, node, as_json=as_json)
