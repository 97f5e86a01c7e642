"""``sparkctl status``: show the nodes and what runs there."""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from contextlib import aclosing
from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING

import click

from sparkctl.cli import stdout, verb_runner
from sparkctl.cli.instance_cache import save_instances
from sparkctl.cli.options import (
    accept_silently,
    complete_instances,
    create_context,
    node_option,
    select_configured_nodes,
    wide_document_option,
)
from sparkctl.cli.verb_runner import run_until_interrupt
from sparkctl.errors import ExitCode, SparkctlError
from sparkctl.model.lazy_dataclass import dataclass
from sparkctl.model.text.sanitize import sanitize_line

if TYPE_CHECKING:
    from sparkctl.commands.stop.pending_stops import PendingStop
    from sparkctl.context import CommandContext
    from sparkctl.model.finding import Finding
    from sparkctl.model.node import Node, NodeName
    from sparkctl.monitor.node_views import NodeStatusView
    from sparkctl.views.text.styled_text import TextRow


@click.command("status", short_help="Show the nodes, their memory and what runs there.")
@click.argument("name", required=False, shell_complete=complete_instances)
@node_option(many=True)
@click.option("-w", "--watch", is_flag=True, help="Refresh every two seconds until Ctrl-C.")
@click.option(
    "--check",
    is_flag=True,
    help="Exit 5 unless every instance is ready or starting; problems of a node itself: doctor.",
)
@click.option("-q", "--quiet", "names_only", is_flag=True, help="Print only the names of the instances.")
@accept_silently("-a", "--all")
@click.option("-l", "--long", "--verbose", "is_long", is_flag=True, hidden=True, help="As -o wide.")
@accept_silently("--no-trunc")
@wide_document_option
@click.pass_context
def status_command(
    ctx: click.Context, name: str | None, node: tuple[str, ...], watch: bool, check: bool, names_only: bool,
    is_long: bool, as_json: bool,
) -> int:  # fmt: skip
    """Show every node: state, memory, the instances that sparkctl started and their state, and engines that it did not start.
    With NAME only that instance, with all details, or only that node. It counts the problems that one look at a node
    finds; `sparkctl doctor` names them.

    \b
    sparkctl status
    sparkctl status qwen36-vllm          everything about one instance (exit 2 if it is not running)
    sparkctl status -o wide              everything about all: image, cache, free memory
    sparkctl status --check || echo "something is wrong"

    Exit 3 if a node could not be read.
    """
    context = create_context(may_ask=not as_json)
    nodes = select_configured_nodes(node)
    if not node and (named := [one for one in nodes if one.name == name]):
        nodes, name = named, None  # a Spark is meant
    form = _Form(name, as_json, names_only, is_long or stdout.get_option(stdout.FORMAT_OPTION) == "wide")
    if watch:
        return verb_runner.run_async(_watch_status(context, nodes, form))
    return verb_runner.run_async(_print_status_once(context, nodes, check, form))


@dataclass(frozen=True, slots=True)
class _Form:
    """How to print it: ``name`` limits it to one instance."""

    name: str | None
    as_json: bool
    names_only: bool
    is_wide: bool

    def select_views(self, views: Sequence[NodeStatusView]) -> Sequence[NodeStatusView]:
        """Return the nodes that the named instance runs on, with it alone. Raises `SparkctlError` where it does not run."""
        if self.name is None:
            return views
        found = [
            replace(view, instances=chosen)
            for view in views
            if (chosen := tuple(one for one in view.instances if self.name in (one.name, one.container)))
        ]
        if not found:
            from sparkctl.monitor.node_views import choose_instance

            choose_instance(views, self.name)
        return found


async def _print_status_once(context: CommandContext, nodes: Sequence[Node], check: bool, form: _Form) -> int:
    from sparkctl.concurrency import gather_or_cancel
    from sparkctl.monitor.node_status import read_node_statuses

    async def import_status_view() -> None:
        if not form.as_json:
            importlib.import_module("sparkctl.views.status_view")

    # the connections start first; meanwhile import what printing needs
    found: dict[NodeName, tuple[Finding, ...]] = {}
    on_findings = None if form.as_json or form.names_only else found.__setitem__
    # a pipe waits for no figures: they take a second
    measures = form.name or form.is_wide or stdout.is_terminal()
    views, _ = await gather_or_cancel(read_node_statuses(context, nodes, on_findings, measures), import_status_view())
    code = _choose_exit_code(views, check)
    save_instances(
        {view.name: [one.name for one in view.instances if one.ours] for view in views if view.state == "ok"}
    )
    _print_status(context, form.select_views(views), form, found)
    return code


def _choose_exit_code(views: Sequence[NodeStatusView], check: bool) -> int:
    from sparkctl.model.node import NodeState

    if any(view.state is not NodeState.OK or not view.docker_known for view in views):
        return int(ExitCode.UNREACHABLE)
    if check and not all(view.is_healthy for view in views):
        return int(ExitCode.UNHEALTHY)
    return int(ExitCode.DONE)


def _list_pending_stops(context: CommandContext, views: Sequence[NodeStatusView]) -> tuple[PendingStop, ...]:
    from sparkctl.commands.stop.pending_stops import PendingStopFiles

    names = {view.name for view in views}
    return tuple(
        one
        for one in PendingStopFiles(context.history.directory).list_all(context.clock.unix_time())
        if one.node in names
    )


def _describe_pending_stops(context: CommandContext, views: Sequence[NodeStatusView]) -> list[str]:
    from sparkctl.commands.stop.pending_stops import COMPLETING_COMMANDS
    from sparkctl.model.text.units import format_time_of_day

    return [
        f"{sanitize_line(one.instance)} is still to be stopped on {one.node}, asked at "
        f"{format_time_of_day(one.since)}: the next {COMPLETING_COMMANDS} there does it"
        for one in _list_pending_stops(context, views)
    ]


def _print_status(
    context: CommandContext,
    views: Sequence[NodeStatusView],
    form: _Form,
    found: Mapping[NodeName, Sequence[Finding]] = MappingProxyType({}),
) -> None:
    from sparkctl.model.json_codec import to_json_data

    if form.as_json:
        stdout.print_json(
            {
                "schema": 1,
                "nodes": to_json_data(tuple(views)),
                "unfinished_stops": to_json_data(_list_pending_stops(context, views)),
            }
        )
    elif form.names_only:
        stdout.print_sanitized_lines(
            dict.fromkeys(one.name for view in views for one in view.instances if one.is_alive)
        )
    else:
        stdout.print_rows(_format_views(context, views, form, found))


def _format_views(
    context: CommandContext,
    views: Sequence[NodeStatusView],
    form: _Form,
    found: Mapping[NodeName, Sequence[Finding]] = MappingProxyType({}),
) -> list[TextRow | str]:
    from sparkctl.views.status_view import format_status, format_status_table

    width = stdout.get_terminal_width()
    if form.is_wide or form.name is not None:
        rows: list[TextRow | str] = [*format_status(views, width, found)]
    else:
        rows = [*format_status_table(views, width, found)]
    return [*rows, *_describe_pending_stops(context, views)]


async def _watch_status(context: CommandContext, nodes: Sequence[Node], form: _Form) -> int:
    """Repaint on a terminal, print again elsewhere, until Ctrl-C, which is no error here."""
    import time

    from sparkctl.model.node import NodeState
    from sparkctl.monitor.node_status import watch_node_statuses

    async def print_updates() -> None:
        is_known = False  # the instance was there once: it may come again, and a lost node, too
        painting = stdout.is_terminal() and not form.as_json
        async with aclosing(watch_node_statuses(context, nodes, measures=painting)) as updates:
            async for views in updates:
                try:
                    chosen = form.select_views(views)
                    is_known = True
                except SparkctlError:
                    if not is_known and all(view.state is NodeState.OK for view in views):
                        raise
                    chosen = views
                if painting:
                    picture = _format_views(context, chosen, form)
                    stdout.repaint_screen([time.strftime("%H:%M:%S"), "", *picture])
                else:
                    _print_status(context, chosen, form)

    await run_until_interrupt(print_updates())
    return 0
