"""``sparkctl down``: stop an instance."""

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


@click.command("down", cls=RequestCommand, short_help="Stop an instance and wait until its memory is back.")
@click.argument("instance", required=False, shell_complete=complete_instances)
@click.option("--all", "everything", is_flag=True, help="Every instance that sparkctl started.")
@node_option(many=True)
@click.option(
    "--grace",
    callback=parse_duration_option,
    metavar="TIME",
    help="Time between SIGTERM and SIGKILL (default: the profile's).",
)
@click.option("--kill", is_flag=True, help="Send SIGKILL at once, without a grace period.")
@click.option("--with-needs", is_flag=True, help="Also stop what it needs, even if that was running before it.")
@json_option
@click.pass_context
def command(
    ctx: click.Context,
    instance: str | None,
    everything: bool,
    node: tuple[str, ...],
    grace: float | None,
    kill: bool,
    with_needs: bool,
    as_json: bool,
) -> PreparedVerb:
    """Stop INSTANCE (or --all), save its log, remove its container, and check that it left nothing behind: memory,
    processes, files in /dev/shm.

    What was started only for it (`needs` in its profile) is stopped after it. A model over several Sparks is stopped on
    all of them. Only what sparkctl started is stopped. It is no error if the
    instance does not run. Exit 3: a node does not answer; it is never reported as stopped, and the next contact with the
    node finishes the stop. Exit 5: something is left; the message names what holds it.

    \b
      sparkctl down qwen36
      sparkctl down --all --node spark2
      sparkctl down qwen36 --kill            without a grace period
    """
    from sparkctl.commands.stop.stop_instance import StopInstance
    from sparkctl.history.operation_history import OperationHistory
    from sparkctl.paths import state_dir
    from sparkctl.profiles.profile_library import ProfileLibrary

    if everything and instance is not None:
        raise click.UsageError("either INSTANCE or --all, not both", ctx)
    if not everything and instance is None:
        raise click.UsageError("name an instance, or use --all", ctx)
    if kill and grace is not None:
        raise click.UsageError("either --grace or --kill, not both", ctx)
    known = (*ProfileLibrary().list_names(), *OperationHistory(state_dir()).list_instances_with_logs())
    request = StopInstance(
        instance=instance, nodes=select_configured_nodes(node), names_nodes=bool(node), grace=0.0 if kill else grace,
        known=frozenset(known), everywhere=list_nodes(), with_needs=with_needs,
    )  # fmt: skip
    return PreparedVerb(request=request)
