"""``sparkctl down``, ``free`` and ``restart``: stop an instance, all of a node, or to start again."""

from __future__ import annotations

import click

from sparkctl.cli.instance_cache import read_instances
from sparkctl.cli.options import (
    PreparedVerb,
    RequestCommand,
    accept_silently,
    complete_instances,
    complete_nodes,
    is_configured_node,
    is_profile,
    json_option,
    list_nodes,
    node_option,
    parse_duration_option,
    select_configured_nodes,
)
from sparkctl.errors import InvalidInput
from sparkctl.files import state_dir


@click.command("down", cls=RequestCommand, short_help="Stop an instance and wait until its memory is back.")
@click.argument("instance", nargs=-1, metavar="[INSTANCE...]", shell_complete=complete_instances)
@click.option("--all", "everything", is_flag=True, help="Every instance that sparkctl started.")
@node_option(many=True)
@click.option(
    "-t",
    "--grace",
    callback=parse_duration_option,
    metavar="TIME",
    help="Time between SIGTERM and SIGKILL (default: the profile's).",
)
@click.option("--kill", is_flag=True, help="Send SIGKILL at once, without a grace period.")
@accept_silently("-f", "--force")
@click.option("--dry-run", is_flag=True, help="Show what would be stopped and what stays; change nothing.")
@click.option("--with-needs", is_flag=True, help="Also stop what it needs, even if that was running before it.")
@json_option
@click.pass_context
def down_command(
    ctx: click.Context,
    instance: tuple[str, ...],
    everything: bool,
    node: tuple[str, ...],
    grace: float | None,
    kill: bool,
    dry_run: bool,
    with_needs: bool,
    as_json: bool,
) -> PreparedVerb:
    """Stop INSTANCE (or --all), save its log, remove its container, and check that it left nothing behind: memory,
    processes, files in /dev/shm. Several are stopped one after the other.

    \b
    sparkctl down qwen36
    sparkctl down qwen36 orpheus-tts
    sparkctl down --all --node spark2
    sparkctl down qwen36 --kill            without a grace period

    Models that were started only for it (`needs` in its profile) are stopped after it. A model over several Sparks is
    stopped on all of them. Only what sparkctl started is stopped. Where one name was started on several Sparks, --node says
    which one to stop. It is not an error if the instance does not run.

    Exit 3: a node does not answer. Its instance is not reported as stopped; the next `up`, `down`, `free` or `switch`
    that reaches the node stops it. Exit 5: something is left behind; the message names what holds it.
    """
    from sparkctl.commands.stop.stop_instance import StopInstance
    from sparkctl.history.operation_history import OperationHistory
    from sparkctl.profiles.profile_library import ProfileLibrary

    if everything and instance:
        raise click.UsageError("either INSTANCE or --all, not both", ctx)
    if not everything and not instance:
        _ask_for_instance("down", "sparkctl down --all")
        raise click.UsageError("name an instance, or use --all", ctx)
    if kill and grace is not None:
        raise click.UsageError("either --grace or --kill, not both", ctx)
    known = (*ProfileLibrary().list_names(), *OperationHistory(state_dir()).list_instances_with_logs())
    nodes, everywhere = select_configured_nodes(node), list_nodes()
    if taken := [name for name in instance if name not in known and is_configured_node(name)]:
        raise InvalidInput(
            f"{taken[0]} is a node, and down stops an instance",
            f"sparkctl free {taken[0]}        stops everything on it\nsparkctl status {taken[0]}",
        )
    requests = [
        StopInstance(
            instance=name, nodes=nodes, names_nodes=bool(node), grace=0.0 if kill else grace, known=frozenset(known),
            everywhere=everywhere, with_needs=with_needs, dry_run=dry_run,
        )
        for name in dict.fromkeys(instance) or (None,)
    ]  # fmt: skip
    return PreparedVerb(request=requests[0], later=requests[1:])


def _ask_for_instance(verb: str, *more: str) -> None:
    """Raise `InvalidInput` with the command for each instance that ran when sparkctl last looked, if any did."""
    if seen := read_instances():
        lines = (*(f"sparkctl {verb} {name}" for name in seen), *more)
        raise InvalidInput("which instance? These ran when sparkctl last looked", "\n".join(lines))


@click.command(
    "restart", cls=RequestCommand, short_help="Stop an instance, and start its profile again on the same nodes."
)
@click.argument("instance", required=False, metavar="INSTANCE", shell_complete=complete_instances)
@node_option(many=True)
@click.option(
    "--timeout", callback=parse_duration_option, metavar="TIME", help="Give up watching after this long, e.g. 20m."
)
@json_option
@click.pass_context
def restart_command(
    ctx: click.Context, instance: str | None, node: tuple[str, ...], timeout: float | None, as_json: bool
) -> PreparedVerb:
    """Stop INSTANCE as `down` does, then start its profile on the same nodes as `up` does, with the same --set.

    \b
    sparkctl restart qwen36-vllm
    sparkctl restart qwen36-vllm --node spark1 --timeout 20m

    The profile is read again, before anything is stopped: changes in its file apply, and are listed first. Exit codes are
    those of `down` and `up`. An instance that does not run is not started (exit 2).
    """
    from sparkctl.commands.restart_instance import RestartInstance

    if instance is None:
        _ask_for_instance("restart")
        raise click.MissingParameter(ctx=ctx, param_hint="'INSTANCE'", param_type="argument")
    return PreparedVerb(
        request=RestartInstance(
            instance=instance,
            nodes=select_configured_nodes(node),
            names_nodes=bool(node),
            timeout=timeout,
            everywhere=list_nodes(),
        )
    )


@click.command("free", cls=RequestCommand, short_help="Stop everything that sparkctl started on a node; list the rest.")
@click.argument("nodes", nargs=-1, metavar="NODE...", shell_complete=complete_nodes)
@node_option(many=True, about=" (as NODE)")
@click.option("--dry-run", is_flag=True, help="Show what would be stopped and what stays; change nothing.")
@click.option(
    "--grace",
    callback=parse_duration_option,
    metavar="TIME",
    help="Time between SIGTERM and SIGKILL (default: the profiles').",
)
@json_option
@click.pass_context
def free_command(
    ctx: click.Context, nodes: tuple[str, ...], node: tuple[str, ...], dry_run: bool, grace: float | None, as_json: bool
) -> PreparedVerb:
    """Stop everything that sparkctl started on these nodes, and check that nothing is left behind.

    \b
    sparkctl free spark2
    sparkctl free spark1 spark2 --dry-run

    A model over several Sparks is stopped on all of them. What sparkctl did not start is listed and keeps running. Exit 3:
    a node does not answer. Exit 5: something is left behind; the message names what holds it.
    """
    from sparkctl.commands.stop.stop_instance import StopInstance

    if not nodes and not node:  # never all of them by default: it stops what runs
        raise click.MissingParameter(ctx=ctx, param_hint="'NODE...'", param_type="argument")
    if taken := [one for one in nodes if is_profile(one) and not is_configured_node(one)]:
        raise InvalidInput(f"{taken[0]} is a profile, and free takes a node", f"sparkctl down {taken[0]}")
    request = StopInstance(
        instance=None,
        nodes=select_configured_nodes((*nodes, *node)),
        grace=grace,
        everywhere=list_nodes(),
        frees=True,
        dry_run=dry_run,
    )
    return PreparedVerb(request=request)
