"""``sparkctl free``: stop everything that sparkctl started on a node."""

from __future__ import annotations

import click

from sparkctl.cli.options import (
    PreparedVerb,
    RequestCommand,
    complete_nodes,
    json_option,
    list_nodes,
    parse_duration_option,
    select_configured_nodes,
)


@click.command("free", cls=RequestCommand, short_help="Stop everything that sparkctl started on a node; list the rest.")
@click.argument("nodes", nargs=-1, required=True, metavar="NODE...", shell_complete=complete_nodes)
@click.option("--dry-run", is_flag=True, help="Show what would be stopped and what stays; change nothing.")
@click.option(
    "--grace",
    callback=parse_duration_option,
    metavar="TIME",
    help="Time between SIGTERM and SIGKILL (default: the profiles').",
)
@json_option
def command(nodes: tuple[str, ...], dry_run: bool, grace: float | None, as_json: bool) -> PreparedVerb:
    """Stop everything that sparkctl started on these nodes, and check that nothing is left behind.

    A model over several Sparks is stopped on all of them. What sparkctl did not start is listed and keeps running. Exit 3:
    a node does not answer. Exit 5: something is left; the message names what holds it.

    \b
      sparkctl free spark2
      sparkctl free spark1 spark2 --dry-run
    """
    from sparkctl.commands.stop.stop_instance import StopInstance

    request = StopInstance(
        instance=None, nodes=select_configured_nodes(nodes), grace=grace, everywhere=list_nodes(), frees=True, dry_run=dry_run
    )  # fmt: skip
    return PreparedVerb(request=request)
