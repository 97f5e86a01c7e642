"""``sparkctl switch``: replace what runs with another profile."""

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
    select_rank_nodes,
)


@click.command(
    "switch", cls=RequestCommand, short_help="Stop what conflicts, start another profile; roll back if that fails."
)
@click.argument("profile", required=False, shell_complete=complete_profiles)
@node_option(many=True, about=" (repeatable for a model over several Sparks; name the one that answers clients first)")
@click.option("--dry-run", is_flag=True, help="Show what would stop, stay and start; change nothing.")
@click.option(
    "--keep-going",
    is_flag=True,
    help="Continue even if a Spark that only loses a rank does not answer, or a check gives no result.",
)
@click.option("--no-rollback", is_flag=True, help="Keep a new instance that failed as it is, for analysis.")
@click.option(
    "--timeout",
    callback=parse_duration_option,
    metavar="TIME",
    help="Time for the new instance to become ready, e.g. 20m.",
)
@click.option(
    "--set", "overrides", multiple=True, metavar="FIELD=VALUE", help="Change a field of the profile for this start."
)
@click.option(
    "--no-guard", is_flag=True, help="Start it without the guard that stops it before the node's memory runs out."
)
@click.option("--continue", "continues", is_flag=True, help="Finish an interrupted switch, as `resume` does.")
@click.option("--abort", "aborts", is_flag=True, help="Undo an interrupted switch, as `abort` does.")
@json_option
@click.pass_context
def command(
    ctx: click.Context, profile: str | None, node: tuple[str, ...], dry_run: bool, keep_going: bool, no_rollback: bool,
    timeout: float | None, overrides: tuple[str, ...], no_guard: bool, continues: bool, aborts: bool, as_json: bool,
) -> PreparedVerb:  # fmt: skip
    """Stop what conflicts with PROFILE, start PROFILE, and start the old instances again if that fails.

    \b
    sparkctl switch qwen36 --node spark1 --dry-run
    sparkctl switch qwen36 --node spark1
    sparkctl switch --continue            finish one that was interrupted
    sparkctl switch --abort               go back to what ran before it

    Stops only what conflicts by memory, port, exclusive group or name, and always whole models. What sparkctl did not start
    is listed and left alone. The old containers are kept until the new instance has generated a token.
    """
    if continues or aborts:
        way = "resume" if continues else "abort"
        given = {"--abort": continues and aborts, "PROFILE": profile, "--dry-run": dry_run, "--keep-going": keep_going, "--no-rollback": no_rollback,
                 "--timeout": timeout, "--set": overrides, "--no-guard": no_guard}  # fmt: skip
        if idle := next((name for name, value in given.items() if value), None):
            raise click.UsageError(f"--{'continue' if continues else way} takes no {idle}", ctx)
        from sparkctl.cli.verbs.resume import prepare_finish

        return prepare_finish(way, node)
    if profile is None:
        raise click.UsageError("name a profile, or use --continue or --abort", ctx)
    from sparkctl.cli.event_printers import SwitchPrinter
    from sparkctl.commands.switch.switch_request import SwitchInstance
    from sparkctl.engines import load_engine
    from sparkctl.profiles.profile_library import ProfileLibrary

    chosen = ProfileLibrary().load_profile(profile, overrides=overrides)
    nodes = select_rank_nodes(node, chosen)
    request = SwitchInstance(
        profile=chosen,
        engine=load_engine(chosen.engine),
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
    )
    return PreparedVerb(request=request, printer=lambda: SwitchPrinter(dry_run))
