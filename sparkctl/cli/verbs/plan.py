"""``sparkctl plan``: check whether a profile fits on a node."""

from __future__ import annotations

import os

import click

from sparkctl.cli import stdout
from sparkctl.cli.event_printers import TextPrinter
from sparkctl.cli.options import (
    PreparedVerb,
    RequestCommand,
    complete_profiles,
    format_overrides,
    json_document_option,
    node_option,
    select_configured_nodes,
    select_rank_nodes,
)
from sparkctl.errors import ExitCode
from sparkctl.model.events import CommandEnded, Event, MemoryFitEvaluated, PartsMissing
from sparkctl.model.json_codec import encode_event, to_json_data
from sparkctl.model.memory_fit import MemoryFit
from sparkctl.model.missing_part import MissingPart
from sparkctl.model.profile import Profile
from sparkctl.model.text.sanitize import sanitize_line
from sparkctl.views.event_text import format_missing_parts
from sparkctl.views.profiles.memory_estimate_view import (
    build_estimate_json,
    format_estimate,
    format_estimate_notes,
    format_estimate_summary,
    format_group_answer,
)
from sparkctl.views.profiles.profile_view import summarize_reference
from sparkctl.views.text.line_wrap import wrap_line


class EstimatePrinter(TextPrinter):
    """Prints the answer and the calculation on stdout, warnings and errors on stderr."""

    def __init__(self, profile: Profile) -> None:
        super().__init__()
        self._measured = summarize_reference(profile.reference)
        self._fits: list[MemoryFit] = []
        self._shared: dict[str, None] = {}  # commands for all Sparks together, in order

    def print_event(self, event: Event) -> None:
        """Print each answer as it arrives, and the summary of all at the end."""
        if isinstance(event, CommandEnded) and self._fits and self._measured is not None:
            stdout.print_lines(wrap_line(f"source: {sanitize_line(self._measured)}", stdout.get_terminal_width(), 2))
        if isinstance(event, CommandEnded) and (lines := format_estimate_summary(self._fits)):
            stdout.print_line()
            stdout.print_lines(lines)
            stdout.print_lines(f"then: {command}" for command in self._shared)
        if isinstance(event, PartsMissing):
            return stdout.print_lines(format_missing_parts(event))
        if not isinstance(event, MemoryFitEvaluated):
            return super().print_event(event)
        if self._fits:
            stdout.print_line()
        stdout.print_line(event.fit.summary_sentence)
        stdout.print_lines(format_estimate(event.fit, stdout.get_terminal_width(), self._fits))
        stdout.print_lines(format_estimate_notes(event.fit, stdout.get_terminal_width(), self._fits))
        self._fits.append(event.fit)
        if event.fit.sparks > 1:
            self._shared |= dict.fromkeys(event.commands)
        else:
            stdout.print_lines(f"then: {command}" for command in event.commands)
        return None


class EstimateJsonPrinter:
    """Prints everything at the end, as one document: ``{"schema": 1, "profile": ..., "nodes": [...]}``."""

    def __init__(self, profile: Profile) -> None:
        self._profile = profile
        self._judged: list[MemoryFitEvaluated] = []
        self._missing: dict[str, tuple[MissingPart, ...]] = {}

    def print_event(self, event: Event) -> None:
        """Keep the answers; print them when the verb has ended."""
        if isinstance(event, MemoryFitEvaluated):
            self._judged.append(event)
        if isinstance(event, PartsMissing):
            self._missing[event.node] = event.parts
        if not isinstance(event, CommandEnded):
            return
        if not self._judged or event.exit_code not in (ExitCode.DONE, ExitCode.REFUSED):
            stdout.print_json(encode_event(event))
            return
        nodes = [
            {
                **build_estimate_json(one.fit, one.commands),
                "missing": [to_json_data(part) for part in self._missing.get(one.node, ())],
            }
            for one in self._judged
        ]
        fits = [one.fit for one in self._judged]
        whole = {
            "schema": 1, "profile": self._profile.name, "exit_code": event.exit_code, "sparks": max(one.sparks for one in fits),
            "together": format_group_answer(fits), "reference": to_json_data(self._profile.reference),
        }  # fmt: skip
        stdout.print_json({**whole, "nodes": to_json_data(nodes)})

    def refresh(self) -> None:
        """Do nothing: there is no live line."""

    def print_interrupt(self, presses: int) -> None:
        """Do nothing: the result line reports the interrupt."""


@click.command(
    "plan", cls=RequestCommand, short_help="Check whether a profile fits on a node, and show the calculation."
)
@click.argument("profile", shell_complete=complete_profiles)
@node_option(many=True)
@click.option(
    "--set",
    "overrides",
    multiple=True,
    metavar="FIELD=VALUE",
    help="Change a field of the profile for this calculation.",
)
@json_document_option
def command(profile: str, node: tuple[str, ...], overrides: tuple[str, ...], as_json: bool) -> PreparedVerb:
    """Check whether PROFILE can start on a node, without starting it. Nothing is changed.

    \b
    sparkctl plan qwen36 --node spark1
    sparkctl plan qwen36 --node spark1 --set args.mem-fraction-static=0.9
    sparkctl plan qwen36 -n spark1 --json && sparkctl up qwen36 -n spark1

    Compares the memory that the profile needs, by the rules of its engine's version, with the memory that the node has now.
    The model's files are measured on the node. Without --node every node is checked, and one that fits is enough; a model
    over two Sparks needs both, connected, and its nodes are named as for `up`.

    Exit 0: `up` would start it, even if it must drop the page cache first or part of the estimate is not known. Exit 6: `up`
    would refuse, even if it fits once something else stops. Exit 3: the node could not be read.
    """
    from sparkctl.commands.start.check_fit import CheckFit
    from sparkctl.profiles.profile_library import ProfileLibrary

    chosen = ProfileLibrary().load_profile(profile, overrides=overrides)
    nodes = select_rank_nodes(node, chosen) if chosen.nodes > 1 else select_configured_nodes(node)
    request = CheckFit(chosen, nodes, os.environ, (profile, *format_overrides(overrides)), names_nodes=bool(node))
    return PreparedVerb(
        request=request, printer=lambda: EstimatePrinter(chosen), json_printer=lambda: EstimateJsonPrinter(chosen)
    )
