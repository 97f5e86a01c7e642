"""``sparkctl restart``: stop an instance and start it again."""

from __future__ import annotations

import click

from sparkctl.cli.options import (
    PreparedVerb,
    RequestCommand,
    complete_instances,
    json_option,
    list_nodes,
    node_option,
    parse_duration_option,
    select_configured_nodes,
)


@click.command(
    "restart", cls=RequestCommand, short_help="Stop an instance, and start its profile again on the same nodes."
)
@click.argument("instance", shell_complete=complete_instances)
@node_option(many=True)
@click.option(
    "--timeout", callback=parse_duration_option, metavar="TIME", help="Give up watching after this long, e.g. 20m."
)
@json_option
def command(instance: str, node: tuple[str, ...], timeout: float | None, as_json: bool) -> PreparedVerb:
    """Stop INSTANCE as `down` does, then start its profile on the same nodes as `up` does, with the same --set.

    \b
    sparkctl restart qwen36-vllm
    sparkctl restart qwen36-vllm --node spark1 --timeout 20m

    The profile is read anew: what you changed in its file applies. It is read before anything is stopped. Exit codes are
    those of `down` and `up`; what does not run is not started (exit 2).
    """
    from sparkctl.commands.restart_instance import RestartInstance

    return PreparedVerb(
        request=RestartInstance(
            instance=instance,
            nodes=select_configured_nodes(node),
            names_nodes=bool(node),
            timeout=timeout,
            everywhere=list_nodes(),
        )
    )
