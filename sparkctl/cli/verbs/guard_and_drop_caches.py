"""``sparkctl guard`` and ``drop-caches``: watch the memory of a node, and drop its page cache."""

from __future__ import annotations

import click

from sparkctl.cli import stdout, verb_runner
from sparkctl.cli.options import (
    PreparedVerb,
    RequestCommand,
    VerbGroup,
    complete_profiles,
    create_context,
    json_document_option,
    json_option,
    node_option,
    parse_duration_option,
    select_configured_nodes,
)
from sparkctl.cli.verb_runner import EventPrinter
from sparkctl.errors import ExitCode

_DAY_SECONDS = 24 * 3600.0


def _parse_size_option(ctx: click.Context, param: click.Parameter, value: str | None) -> int | None:
    if value is None:
        return None
    from sparkctl.profiles.field_types import parse_guard_floor

    try:
        return parse_guard_floor(value)
    except ValueError as wrong:
        raise click.BadParameter(str(wrong), ctx, param) from wrong


@click.group("guard", cls=VerbGroup, short_help="Watch a node's memory, and stop a model before the node freezes.")
def guard_command() -> None:
    """A small process on the node that stops an instance before the node runs out of memory and freezes.

    `up` arms it for every start, until the instance is ready. It keeps working if your connection breaks.

    \b
    sparkctl guard status
    sparkctl guard arm qwen36-vllm --node spark2
    sparkctl guard disarm --node spark2
    """


@guard_command.command("status")
@node_option(many=True)
@json_document_option
def guard_status_command(node: tuple[str, ...], as_json: bool) -> int:
    """Show what is guarded, what the guard did, and what it stopped. Exit 3 if a node or its guard cannot be read.

    \b
    sparkctl guard status
    sparkctl guard status --node spark1 --json
    """
    from sparkctl.commands.arm_guard import read_guard_status
    from sparkctl.model.guard_state import GuardRunState
    from sparkctl.model.json_codec import to_json_data
    from sparkctl.views.guard_view import format_guard_status

    views = verb_runner.run_async(read_guard_status(create_context(may_ask=not as_json), select_configured_nodes(node)))
    if as_json:
        stdout.print_json({"schema": 1, "nodes": to_json_data(views)})
    else:
        stdout.print_rows(format_guard_status(views, stdout.get_terminal_width()))
    is_known = all(view.answer in (GuardRunState.RUNS, GuardRunState.NONE) for view in views)
    return int(ExitCode.DONE if is_known else ExitCode.UNREACHABLE)


@guard_command.command("arm", cls=RequestCommand)
@click.argument("instance", required=False, shell_complete=complete_profiles)
@node_option(many=True)
@click.option(
    "--floor",
    callback=_parse_size_option,
    metavar="SIZE",
    help="Act below this much available memory (default 512MiB).",
)
@click.option(
    "--for", "limit", callback=parse_duration_option, metavar="TIME", help="How long the guard watches (default 24h)."
)
@click.option(
    "--foreign",
    multiple=True,
    metavar="NAME",
    help="Also guard this container, which sparkctl did not start (repeatable).",
)
@json_option
def guard_arm_command(
    instance: str | None,
    node: tuple[str, ...],
    floor: int | None,
    limit: float | None,
    foreign: tuple[str, ...],
    as_json: bool,
) -> PreparedVerb:
    """Guard INSTANCE, or without one every running instance that sparkctl started, for 24 hours or --for.

    \b
    sparkctl guard arm qwen36-vllm
    sparkctl guard arm --node spark2 --floor 6GiB --for 2h

    When memory runs out, the guard stops the instance that grew most, and nothing starts it again. It stops a container
    that sparkctl did not start only if you name it with --foreign.
    """
    from sparkctl.commands.arm_guard import ArmGuard, arm_guard
    from sparkctl.model.launch_plan import DEFAULT_FLOOR_BYTES, GuardRule

    rule_seconds = limit or _DAY_SECONDS
    rule = GuardRule(floor or DEFAULT_FLOOR_BYTES, 0, rule_seconds)
    request = ArmGuard(select_configured_nodes(node), instance, foreign, rule)
    hours = f"{rule_seconds / 3600:g} h"
    everything = (
        f"guards every running instance that sparkctl started, for {hours}; only one: sparkctl guard arm INSTANCE"
    )
    return PreparedVerb(
        request=lambda ctx: arm_guard(ctx, request), warnings=[] if instance or foreign or as_json else [everything]
    )


@guard_command.command("disarm", cls=RequestCommand)
@click.argument("instance", required=False, shell_complete=complete_profiles)
@node_option(many=True)
@json_option
def guard_disarm_command(instance: str | None, node: tuple[str, ...], as_json: bool) -> PreparedVerb:
    """Stop guarding INSTANCE, or everything, including a start in progress.

    \b
    sparkctl guard disarm qwen36-vllm
    sparkctl guard disarm --node spark2
    """
    from sparkctl.commands.arm_guard import disarm_guard

    nodes = select_configured_nodes(node)
    return PreparedVerb(request=lambda ctx: disarm_guard(ctx, nodes, instance))


@click.command("drop-caches", cls=RequestCommand, short_help="Drop the page cache, and show memory before and after.")
@node_option(many=True)
@json_option
def drop_caches_command(node: tuple[str, ...], as_json: bool) -> PreparedVerb:
    """Drop the page cache on the nodes, and show MemFree, page cache and MemAvailable before and after.

    \b
    sparkctl drop-caches
    sparkctl drop-caches --node spark1

    It needs the right to run `sudo tee /proc/sys/vm/drop_caches`; without it sparkctl asks for the password. If you give
    none, it drops only the files of your models, which needs no such right, and prints the sudoers line to add and how much it
    would free.
    """
    from sparkctl.commands.drop_page_cache import DropCaches

    request = DropCaches(select_configured_nodes(node), names_nodes=bool(node))
    return PreparedVerb(request=request, printer=_create_cache_drop_printer)


def _create_cache_drop_printer() -> EventPrinter:
    from sparkctl.cli.event_printers import TextPrinter
    from sparkctl.model.events import CachesDropped, Event
    from sparkctl.views.event_text import format_cache_table

    class CacheDropPrinter(TextPrinter):
        """Prints the figures on stdout."""

        def print_event(self, event: Event) -> None:
            if isinstance(event, CachesDropped):
                stdout.print_lines(format_cache_table(event))
            else:
                super().print_event(event)

    return CacheDropPrinter()
