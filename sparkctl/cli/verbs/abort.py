"""``sparkctl abort``: undo an interrupted switch."""

from __future__ import annotations

import click

from sparkctl.cli.options import PreparedVerb, RequestCommand, json_option, node_option
from sparkctl.cli.verbs.resume import prepare_finish


@click.command(
    "abort", cls=RequestCommand, short_help="Undo an interrupted switch and start the previous models again."
)
@node_option(many=True)
@click.option(
    "--give-up",
    "gives_up",
    is_flag=True,
    help="Start neither model: save the logs, remove the containers of both, forget the switch.",
)
@json_option
def command(node: tuple[str, ...], gives_up: bool, as_json: bool) -> PreparedVerb:
    """Undo an interrupted switch: remove what it started, and start again what it had stopped.

    \b
    sparkctl abort
    sparkctl abort --node spark1
    sparkctl abort --give-up

    It needs no profile: the stopped containers stay on the nodes until the new model has generated a token. After that there
    is nothing to undo (exit 6). If the previous model does not start again, or you no longer want it, --give-up stops and
    removes what is left of the containers of both models, so that you can use the Sparks for something else.
    """
    return prepare_finish("abort --give-up" if gives_up else "abort", node)
