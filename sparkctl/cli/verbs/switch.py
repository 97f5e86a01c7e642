"""``sparkctl switch``, ``resume`` and ``abort``: replace what runs with another profile; finish or undo that."""

from __future__ import annotations

import os

import click

from sparkctl.cli.options import (
    PreparedVerb,
    RequestCommand,
    add_other_nodes,
    complete_profiles,
    format_overrides,
    json_option,
    node_option,
    parse_duration_option,
    select_configured_nodes,
    select_rank_nodes,
)
from sparkctl.errors import InvalidInput


@click.command(
    "switch", cls=RequestCommand, short_help="Stop what conflicts, start another profile; roll back if that fails."
)
@click.argument("profile", required=False, shell_complete=complete_profiles)
@node_option(many=True, about=" (repeatable for a model over several Sparks; name the one that answers clients first)")
@click.option("--dry-run", is_flag=True, help="Show what would stop, stay and start; change nothing.")
@click.option(
    "--keep-going",
    is_flag=True,
    help="Continue even if a Spark where something only stops does not answer, or a mount is missing or a file of weights incomplete.",
)
@click.option(
    "--no-rollback",
    is_flag=True,
    help="If the new instance fails, leave it as it is, to examine it; the old ones stay stopped.",
)
@click.option("--again", is_flag=True, help="Start it even if its last two starts failed within an hour.")
@click.option(
    "--timeout",
    callback=parse_duration_option,
    metavar="TIME",
    help="Time for the new instance to become ready, e.g. 20m; after it, the old ones are started again.",
)
@click.option(
    "--set", "overrides", multiple=True, metavar="FIELD=VALUE", help="Change a field of the profile for this start."
)
@click.option(
    "--no-guard", is_flag=True, help="Start it without the guard that stops it before the node's memory runs out."
)
@click.option("--force", is_flag=True, help="Start it even if it has a flag that its engine's version does not know.")
@click.option("--continue", "continues", is_flag=True, help="Finish an interrupted switch, as `resume` does.")
@click.option("--abort", "aborts", is_flag=True, help="Undo an interrupted switch, as `abort` does.")
@json_option
@click.pass_context
def switch_command(
    ctx: click.Context, profile: str | None, node: tuple[str, ...], dry_run: bool, keep_going: bool, no_rollback: bool, again: bool,
    timeout: float | None, overrides: tuple[str, ...], no_guard: bool, force: bool, continues: bool, aborts: bool, as_json: bool,
) -> PreparedVerb:  # fmt: skip
    """Stop what is in the way of PROFILE, then start PROFILE. If it fails, start what was stopped again.

    \b
    sparkctl switch qwen36 --node spark1 --dry-run
    sparkctl switch qwen36 --node spark1
    sparkctl switch --continue            finish one that was interrupted
    sparkctl switch --abort               go back to what ran before it

    What holds the memory, port or container name that PROFILE needs, or has the same `group`, is in the way. Only that is
    stopped; a model over several Sparks is stopped on all of them. What sparkctl did not start is never stopped: where it is
    in the way, the switch is refused and names it.

    Stopped containers stay on their Sparks until the new instance has answered a test request; then their logs are saved,
    and they are removed. If it fails before that, it is removed, and the old ones are started again.
    """
    if continues or aborts:
        way = "resume" if continues else "abort"
        given = {"--abort": continues and aborts, "PROFILE": profile, "--dry-run": dry_run, "--keep-going": keep_going, "--no-rollback": no_rollback,
                 "--again": again, "--timeout": timeout, "--set": overrides, "--no-guard": no_guard, "--force": force}  # fmt: skip
        if idle := next((name for name, value in given.items() if value), None):
            raise click.UsageError(f"--{'continue' if continues else way} takes no {idle}", ctx)

        return prepare_finish(way, node)
    if profile is None:
        raise InvalidInput(
            "switch to which profile?",
            "sparkctl switch PROFILE --node NODE        the profiles: sparkctl profiles list\n"
            "sparkctl switch --continue                 finishes an interrupted switch; --abort undoes it",
        )
    from sparkctl.cli.event_printers import SwitchPrinter
    from sparkctl.commands.switch.switch_request import SwitchInstance
    from sparkctl.profiles.profile_library import ProfileLibrary

    chosen = ProfileLibrary().load_profile(profile, overrides=overrides)
    nodes = select_rank_nodes(node, chosen)
    request = SwitchInstance(
        profile=chosen,
        nodes=nodes,
        names_nodes=bool(node),
        known=add_other_nodes(nodes),
        dry_run=dry_run,
        keep_going=keep_going,
        rolls_back=not no_rollback,
        timeout=timeout,
        environ=os.environ,
        words=(profile, *format_overrides(overrides)),
        guarded=not no_guard,
        forced=force,
        once_more=again,
    )
    return PreparedVerb(request=request, printer=lambda: SwitchPrinter(dry_run))


def prepare_finish(way: str, names: tuple[str, ...]) -> PreparedVerb:
    """Return the request to finish a switch on these nodes, or on any; ``way``: a value of `FinishVerb`."""
    from sparkctl.cli.event_printers import SwitchPrinter
    from sparkctl.commands.switch.finish_switch import FinishSwitch, FinishVerb

    nodes = select_configured_nodes(names)
    request = FinishSwitch(
        nodes=nodes, names_nodes=bool(names), known=add_other_nodes(nodes), environ=os.environ, way=FinishVerb(way)
    )
    return PreparedVerb(request=request, printer=SwitchPrinter)


@click.command("resume", cls=RequestCommand, short_help="Finish an interrupted switch.")
@node_option(many=True)
@json_option
def resume_command(node: tuple[str, ...], as_json: bool) -> PreparedVerb:
    """Finish a switch that was interrupted, or whose operator lost the connection.

    \b
    sparkctl resume
    sparkctl resume --node spark1

    It continues at the step that the journal on the nodes names, forward or back. It is refused (exit 6) while its operator
    is still at work, and if the profile has changed here since then; in that case use sparkctl abort.
    """
    return prepare_finish("resume", node)


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
def abort_command(node: tuple[str, ...], gives_up: bool, as_json: bool) -> PreparedVerb:
    """Undo an interrupted switch: remove what it started, and start again what it had stopped.

    \b
    sparkctl abort
    sparkctl abort --node spark1
    sparkctl abort --give-up

    It needs no profile: the stopped containers stay on the nodes until the new model has answered a test request. After that
    there is nothing to undo (exit 6). If the previous model does not start again, or you no longer want it, --give-up stops and
    removes what is left of the containers of both models, so that you can use the Sparks for something else.
    """
    return prepare_finish("abort --give-up" if gives_up else "abort", node)
