"""``sparkctl doctor``: check the nodes."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import click

from sparkctl.cli import stderr, stdout
from sparkctl.cli.options import (
    PreparedVerb,
    RequestCommand,
    json_option,
    node_option,
    record_options,
    select_configured_nodes,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sparkctl.cli.verb_runner import EventPrinter
    from sparkctl.model.node import Node

_FINDING_INDENT = 18  # below the words of a finding


@click.command("doctor", cls=RequestCommand, short_help="Check the nodes and show the command that fixes each problem.")
@node_option(many=True)
@click.option(
    "--collect",
    is_flag=False,
    flag_value="",
    metavar="[FILE]",
    help="Write all raw readings of the nodes to FILE (tar.gz) instead; secrets are masked.",
)
@click.option(
    "--fabric",
    is_flag=True,
    help="Measure the links between the Sparks instead; sends some GiB over each for a few seconds.",
)
@record_options
@json_option
@click.pass_context
def doctor_command(
    ctx: click.Context,
    node: tuple[str, ...],
    collect: str | None,
    fabric: bool,
    record: Path | None,
    overwrite: bool,
    as_json: bool,
) -> PreparedVerb:
    """Examine the nodes: connection, memory, Docker, GPU access, the right to drop caches, disks.

    \b
    sparkctl doctor
    sparkctl doctor --fabric -n spark1 -n spark2

    --fabric finds the lanes between the Sparks, checks that they connect and carry packets of 9000 bytes, and measures
    each in both directions with TCP, and with ib_write_bw if both Sparks have it; it installs nothing. --collect
    changes nothing on the nodes and judges nothing. Exit 5 if there is a problem, 3 if a node could not be read.
    """
    from sparkctl.commands.request import Request

    if collect is not None and record is not None:
        raise click.UsageError("either --collect or --record, not both", ctx)
    if collect is not None and fabric:
        raise click.UsageError("either --collect or --fabric, not both", ctx)
    nodes = select_configured_nodes(node)
    if collect is not None:
        ctx.params["overwrite"] = False  # nothing is recorded
        return _prepare_collection(nodes, collect, names_nodes=bool(node))
    request: Request
    if fabric:
        from sparkctl.commands.doctor_fabric import MeasureFabric

        request = MeasureFabric(nodes, names_nodes=bool(node))
    else:
        from sparkctl.commands.doctor_checks import CheckNodes

        request = CheckNodes(nodes, names_nodes=bool(node))
    names = [node.name for node in nodes]
    return PreparedVerb(request=request, printer=lambda: _create_findings_printer(names, at_once=fabric))


def _prepare_collection(nodes: Sequence[Node], file: str, *, names_nodes: bool) -> PreparedVerb:
    """Return the request for the bundle; its path is printed on stdout."""
    import time

    from sparkctl.cli.event_printers import TextPrinter
    from sparkctl.commands.doctor_bundle import CollectSupportBundle, SupportBundle
    from sparkctl.files import config_file, read_regular_file
    from sparkctl.model.events import CommandEnded, Event

    class BundlePrinter(TextPrinter):
        def __init__(self) -> None:
            super().__init__()
            stderr.print_message(f"reading {', '.join(node.name for node in nodes)}; this may take a minute")

        def print_event(self, event: Event) -> None:
            super().print_event(event)
            if isinstance(event, CommandEnded) and event.file:
                stdout.print_line(event.file)

    path = Path(file or time.strftime("sparkctl-collect-%Y%m%d-%H%M%S.tar.gz"))
    try:
        config = read_regular_file(config_file(), 1 << 20).decode("utf-8", "replace")
    except OSError:
        config = None
    with SupportBundle(path):  # refuse an impossible file name before any node is read
        pass
    request = CollectSupportBundle(nodes=nodes, names_nodes=names_nodes, path=path, config=config, environ=os.environ)
    return PreparedVerb(request=request, printer=BundlePrinter)


def _create_findings_printer(names: Sequence[str], *, at_once: bool) -> EventPrinter:
    from sparkctl.cli.event_printers import TextPrinter
    from sparkctl.model.events import CheckCompleted, CommandEnded, Event, FindingReported
    from sparkctl.views.finding_view import format_finding
    from sparkctl.views.text.line_wrap import wrap_line
    from sparkctl.views.text.styled_text import Span, TextStyle

    class FindingsPrinter(TextPrinter):
        """Prints findings on stdout by node, in the nodes' order: each as soon as it and all before it are examined."""

        def __init__(self) -> None:
            super().__init__()
            self.node: str | None = None  # whose findings were printed last
            self.unprinted: dict[str | None, list[FindingReported]] = {}
            self.through: set[str | None] = set()
            self.waiting: list[str] = [] if at_once or len(names) == 1 else list(names)

        def print_event(self, event: Event) -> None:
            match event:
                case FindingReported():
                    self.unprinted.setdefault(event.node, []).append(event)
                    if not self.waiting or (event.node is not None and event.node not in self.waiting):
                        self.print(event.node)
                case CheckCompleted():
                    self.through.add(event.node)
                    while self.waiting and self.waiting[0] in self.through:
                        self.print(self.waiting.pop(0))
                case CommandEnded():
                    for node in (*self.waiting, *self.unprinted.copy()):
                        self.print(node)
                    super().print_event(event)
                    if self.node is not None and not at_once:
                        stderr.print_message(
                            "some problems show only over time, such as a stuck clock: sparkctl top finds them"
                        )
                case _:
                    super().print_event(event)

        def print(self, node: str | None) -> None:
            found = self.unprinted.pop(node, [])
            if found and node != self.node:
                self.node = node
                stdout.print_rows([(Span(f"{node}", TextStyle.STRONG),)])
            lines = [line for one in found for line in format_finding(one)]
            stdout.print_rows(
                part for line in lines for part in wrap_line(line, stdout.get_terminal_width(), _FINDING_INDENT)
            )

    return FindingsPrinter()
