"""``sparkctl up``: start a profile and wait until it is ready."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import click

from sparkctl.cli.options import (
    PreparedVerb,
    RequestCommand,
    accept_silently,
    complete_profiles,
    format_overrides,
    json_option,
    list_nodes,
    node_option,
    overwrite_option,
    parse_duration_option,
    record_option,
    select_configured_nodes,
    select_rank_nodes,
)

if TYPE_CHECKING:
    from sparkctl.cli.verb_runner import EventPrinter


@click.command("up", cls=RequestCommand, short_help="Start a profile on a node and wait until it is ready.")
@click.argument("profile", shell_complete=complete_profiles)
@node_option(many=True, about=" (repeatable for a model over several Sparks; name the one that answers clients first)")
@click.option("--dry-run", is_flag=True, help="Check the node and print the plan; change nothing.")
@click.option(
    "--format",
    "plan_format",
    type=click.Choice(["text", "docker", "json"]),
    show_default="text",
    help="The format of the plan of --dry-run; docker prints a docker run line.",
)
@click.option(
    "--detach", "-d", is_flag=True, help="Return when the container runs; do not wait until the model is ready."
)
@click.option(
    "--timeout", callback=parse_duration_option, metavar="TIME", help="Give up watching after this long, e.g. 20m."
)
@click.option(
    "--set", "overrides", multiple=True, metavar="FIELD=VALUE", help="Change a field of the profile for this start."
)
@click.option("--replace", is_flag=True, help="Stop what conflicts first and roll back on failure, as `switch` does.")
@click.option("--again", is_flag=True, help="Start it even if its last two starts failed within an hour.")
@click.option(
    "--no-guard", is_flag=True, help="Start it without the guard that stops it before the node's memory runs out."
)
@click.option("--pull", is_flag=True, help="Get the image and the model first where the node lacks them.")
@accept_silently("--wait")
@click.option(
    "--queue",
    is_flag=True,
    help="If another command works on the node, wait until it has ended, then start. `down` ends the waiting.",
)
@click.option("--tunnel", is_flag=True, help="Once it is ready, keep its endpoint on localhost until Ctrl-C.")
@click.option(
    "--force", is_flag=True, help="Start it even if it does not fit, or has a flag that its engine does not know."
)
@click.option("--strict", is_flag=True, help="Exit 5 if it is ready and its answers make no sense.")
@record_option
@overwrite_option
@json_option
@click.pass_context
def up_command(
    ctx: click.Context, profile: str, node: tuple[str, ...], dry_run: bool, plan_format: str | None, detach: bool,
    timeout: float | None, overrides: tuple[str, ...], replace: bool, again: bool, no_guard: bool, record: Path | None,
    force: bool, pull: bool, queue: bool, tunnel: bool, strict: bool, overwrite: bool, as_json: bool,
) -> PreparedVerb:  # fmt: skip
    """Start PROFILE on a node: check the node, drop the page cache, create the container, and wait until a token is generated.

    \b
    sparkctl up qwen36 --node spark1
    sparkctl up qwen36 --node spark1 --set args.mem-fraction-static=0.7
    sparkctl up qwen36 --node spark1 --dry-run --format docker
    sparkctl up minimax-m27                                     on both Sparks of the config
    sparkctl up minimax-m27 --node spark2 --node spark1         spark2 answers clients

    It is refused (exit 6, with the calculation) if it does not fit. `sparkctl plan` shows only the calculation; --force
    starts it anyway.

    Ready means: the log has the ready line, the health path answers, and one token was generated. Ctrl-C stops watching,
    never the engine. Once ready, the model is asked a question with a known answer (`start.check` in the profile); an answer that makes no
    sense is a warning, and exit 5 with --strict.
    """
    _check_format_option(ctx, dry_run, plan_format, as_json)
    if tunnel and (
        other := [f"--{name}" for name in ("dry-run", "detach", "replace") if ctx.params[name.replace("-", "_")]]
    ):
        raise click.UsageError(f"either --tunnel or {other[0]}, not both", ctx)
    from sparkctl.cli.event_printers import SwitchPrinter
    from sparkctl.commands.start.start_request import StartInstance
    from sparkctl.commands.switch.switch_request import SwitchInstance
    from sparkctl.profiles.env_references import check_env_file_permissions, list_literal_values
    from sparkctl.profiles.profile_library import ProfileLibrary

    chosen = ProfileLibrary().load_profile(profile, overrides=overrides)
    request = StartInstance(
        profile=chosen, nodes=select_rank_nodes(node, chosen), names_nodes=bool(node),
        dry_run=dry_run, detach=detach, replace=replace, timeout=timeout, environ=os.environ, guarded=not no_guard,
        once_more=again, forced=force, pull=pull, queue=queue, tunnel=tunnel, strict=strict,
        known=list_nodes() if chosen.needs else (),
        words=(profile, *format_overrides(overrides)),
    )  # fmt: skip
    warnings = (*check_env_file_permissions(chosen), *map(str, list_literal_values(chosen)))
    if replace and not (detach or force or plan_format):
        return PreparedVerb(
            request=SwitchInstance.from_start(request, select_configured_nodes(()), from_up=True),
            printer=lambda: SwitchPrinter(dry_run),
            warnings=warnings,
        )
    return PreparedVerb(request=request, printer=lambda: _create_start_printer(dry_run, plan_format), warnings=warnings)


def _check_format_option(ctx: click.Context, dry_run: bool, plan_format: str | None, as_json: bool) -> None:
    if plan_format is not None and not dry_run:
        raise click.UsageError("--format needs --dry-run", ctx)
    if plan_format is not None and as_json:
        raise click.UsageError(f"either --json (events) or --format {plan_format} (the plan alone), not both", ctx)


def _create_start_printer(dry_run: bool, plan_format: str | None) -> EventPrinter:
    from sparkctl.cli.event_printers import LaunchPlanPrinter, TextPrinter

    return LaunchPlanPrinter(plan_format or "text") if dry_run else TextPrinter("no longer watching ...")
