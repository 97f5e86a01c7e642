"""``sparkctl up``: start a profile and wait until it is ready."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from sparkctl.cli import stdout
from sparkctl.cli.event_printers import TextPrinter
from sparkctl.cli.options import (
    RecordingPrinter,
    choose_exit_code,
    complete_profiles,
    create_context,
    json_option,
    node_option,
    open_recorder,
    overwrite_option,
    parse_duration_option,
    record_option,
    select_rank_nodes,
)
from sparkctl.model.events import Event, LaunchPlanned
from sparkctl.model.json_codec import redact_launch_plan, to_json_data
from sparkctl.profiles.exporters.docker_command import format_docker_run
from sparkctl.views.profiles.launch_plan_view import format_launch_plan

if TYPE_CHECKING:
    from sparkctl.commands.start.start_request import StartInstance
    from sparkctl.commands.switch.switch_request import SwitchInstance


class LaunchPlanPrinter(TextPrinter):
    """Prints the launch plan on stdout, warnings and errors on stderr."""

    def __init__(self, plan_format: str) -> None:
        super().__init__()
        self.plan_format = plan_format

    def print_event(self, event: Event) -> None:
        """Print the plan when it arrives."""
        if not isinstance(event, LaunchPlanned):
            return super().print_event(event)
        if self.plan_format == "docker":
            if event.plan.ranks > 1:
                stdout.print_line(f"# on {event.node}, rank {event.plan.rank} of {event.plan.ranks}")
            return stdout.print_line(format_docker_run(event.plan))
        if self.plan_format == "json":
            return stdout.print_json(to_json_data(redact_launch_plan(event.plan)))
        return stdout.print_lines(format_launch_plan(event.plan, stdout.get_terminal_width()))


@click.command("up", short_help="Start a profile on a node and wait until it is ready.")
@click.argument("profile", shell_complete=complete_profiles)
@node_option(many=True, about=" (repeatable for a model over several Sparks; name the one that answers clients first)")
@click.option("--dry-run", is_flag=True, help="Check the node and print the plan; change nothing.")
@click.option(
    "--format", "plan_format", type=click.Choice(["text", "docker", "json"]), show_default="text",
    help="The format of the plan of --dry-run; docker prints a docker run line.",
)  # fmt: skip
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
@click.option("--force", is_flag=True, help="Start it even if it does not fit.")
@record_option
@overwrite_option
@json_option
@click.pass_context
def command(
    ctx: click.Context, profile: str, node: tuple[str, ...], dry_run: bool, plan_format: str | None, detach: bool,
    timeout: float | None, overrides: tuple[str, ...], replace: bool, again: bool, no_guard: bool, record: Path | None,
    force: bool, overwrite: bool, as_json: bool,
) -> int:  # fmt: skip
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
    never the engine.
    """
    _check_format_option(ctx, dry_run, plan_format, as_json)
    from functools import partial

    from sparkctl.cli import stderr
    from sparkctl.cli.verb_runner import EventSource, run_verb
    from sparkctl.commands.start.start_instance import start_instance
    from sparkctl.commands.start.start_request import StartInstance
    from sparkctl.engines import load_engine
    from sparkctl.profiles.engine_environment import check_env_file_permissions
    from sparkctl.profiles.profile_library import ProfileLibrary

    chosen = ProfileLibrary().load_profile(profile, overrides=overrides)
    request = StartInstance(
        profile=chosen, engine=load_engine(chosen.engine), nodes=select_rank_nodes(node, chosen), dry_run=dry_run, detach=detach,
        replace=replace, timeout=timeout, environ=os.environ, guarded=not no_guard, once_more=again, forced=force,
        words=(profile, *(word for override in overrides for word in ("--set", override))),
    )  # fmt: skip
    for warning in check_env_file_permissions(chosen):
        stderr.print_warning(None, warning, None)
    context = create_context(may_ask=not as_json)
    printer = _create_start_printer(as_json, dry_run, plan_format)
    verb: EventSource = partial(start_instance, context, request)
    if replace and not (detach or force or plan_format):
        from sparkctl.cli.event_printers import SwitchPrinter
        from sparkctl.commands.switch.switch_instance import switch_instance

        printer = printer if as_json else SwitchPrinter(dry_run)
        verb = partial(switch_instance, context, _as_switch_request(request))
    with open_recorder(ctx, record, overwrite) as recording:
        if recording is not None:
            printer = RecordingPrinter(printer, recording)
        return choose_exit_code(run_verb(context, verb, printer), recording)


def _as_switch_request(request: StartInstance) -> SwitchInstance:
    """Return the request as a switch, which stops what conflicts and starts it again if this start fails."""
    from sparkctl.cli.options import add_other_nodes
    from sparkctl.commands.switch.switch_request import SwitchInstance

    return SwitchInstance(
        profile=request.profile, engine=request.engine, nodes=request.nodes, known=add_other_nodes(request.nodes), dry_run=request.dry_run,
        timeout=request.timeout, environ=request.environ, words=request.words, guarded=request.guarded,
    )  # fmt: skip


def _check_format_option(ctx: click.Context, dry_run: bool, plan_format: str | None, as_json: bool) -> None:
    if plan_format is not None and not dry_run:
        raise click.UsageError("--format needs --dry-run", ctx)
    if plan_format is not None and as_json:
        raise click.UsageError(f"either --json (events) or --format {plan_format} (the plan alone), not both", ctx)


def _create_start_printer(as_json: bool, dry_run: bool, plan_format: str | None) -> Any:
    from sparkctl.cli.event_printers import JsonPrinter, TextPrinter

    if as_json:
        return JsonPrinter()
    if not dry_run:
        return TextPrinter("stopping to watch ...")

    return LaunchPlanPrinter(plan_format or "text")
