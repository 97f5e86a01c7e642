"""``sparkctl tunnel``: an instance's endpoint on localhost."""

from __future__ import annotations

import click

from sparkctl.cli.options import (
    PreparedVerb,
    RequestCommand,
    complete_instances,
    json_option,
    node_option,
    select_configured_nodes,
)


@click.command(
    "tunnel", cls=RequestCommand, short_help="Bring an instance's endpoint to localhost, over the SSH connection."
)
@click.argument("instance", shell_complete=complete_instances)
@click.option(
    "--port",
    type=click.IntRange(1, 65535),
    metavar="N",
    help="The port on this machine (default: the engine's, or a free one).",
)
@node_option(many=True)
@json_option
def command(instance: str, port: int | None, node: tuple[str, ...], as_json: bool) -> PreparedVerb:
    """Make the endpoint of INSTANCE reachable at 127.0.0.1 of this machine, and nowhere else, until Ctrl-C.

    \b
    sparkctl tunnel qwen36
    sparkctl tunnel qwen36 --port 9000 &
    curl http://127.0.0.1:9000/v1/models

    The address is printed on stdout when the tunnel is open. It goes over the SSH connection: the engine may listen on the
    Spark's loopback alone, and no port is opened in a firewall. After a cut it comes back by itself, and says so.
    """
    from sparkctl.cli.event_printers import TextPrinter
    from sparkctl.commands.tunnel import OpenTunnel

    request = OpenTunnel(instance=instance, nodes=select_configured_nodes(node), names_nodes=bool(node), port=port)
    return PreparedVerb(request=request, printer=lambda: TextPrinter("closing the tunnel ..."))
