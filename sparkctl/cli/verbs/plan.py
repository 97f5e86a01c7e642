"""``sparkctl plan``: check whether a profile fits on a node."""

from __future__ import annotations

import os
from dataclasses import replace

import click

from sparkctl.cli import stdout
from sparkctl.cli.event_printers import TextPrinter
from sparkctl.cli.options import (
    PreparedVerb,
    RequestCommand,
    complete_profiles,
    format_overrides,
    json_document_option,
    list_nodes,
    node_option,
    select_configured_nodes,
    select_rank_nodes,
)
from sparkctl.errors import ExitCode
from sparkctl.model.events import CommandEnded, Event, MemoryFitEvaluated, PartsMissing, WarningEmitted
from sparkctl.model.json_codec import encode_event, to_json_data
from sparkctl.model.memory_fit import MemoryFit
from sparkctl.model.missing_part import MissingPart
from sparkctl.model.profile import Profile
from sparkctl.model.text.sanitize import sanitize_line
from sparkctl.views.event_text import format_missing_parts
from sparkctl.views.profiles.memory_estimate_view import (
    build_estimate_json,
    describe_answer,
    describe_missing_kinds,
    format_estimate,
    format_estimate_notes,
    format_estimate_summary,
    format_group_answer,
)
from sparkctl.views.profiles.profile_view import summarize_reference
from sparkctl.views.text.line_wrap import wrap_line, wrap_styled_line
from sparkctl.views.text.styled_text import Span, TextRow, TextStyle


class EstimatePrinter(TextPrinter):
    """Prints the answer and the calculation on stdout, warnings and errors on stderr."""

    def __init__(self, profile: Profile, assumed: str | None, obstacle: str | None) -> None:
        super().__init__()
        self._assumed = assumed
        self._obstacle = obstacle  # why `up` refuses it, however much memory there is
        self._held: list[Event] = []  # of a model over several Sparks: the answer for all of them comes first
        self._profile = profile
        self._measured = summarize_reference(profile.reference)
        self._fits: list[MemoryFit] = []
        self._missing: dict[str, tuple[MissingPart, ...]] = {}  # by node, of the profile itself
        self._shared: dict[str, None] = {}  # commands for all Sparks together, in order
        self._pulls: dict[str, None] = {}  # commands that get what is missing, in order
        self._waiting: MemoryFitEvaluated | None = None  # not printed yet: what is missing there comes next

    @property
    def _own_fits(self) -> list[MemoryFit]:
        """The answers for the profile itself, without those for what it needs."""
        return [one for one in self._fits if one.profile == self._profile.name]

    def print_event(self, event: Event) -> None:
        """Print each answer with what is missing there, and the summary of all at the end."""
        if self._profile.nodes > 1 and isinstance(event, MemoryFitEvaluated | PartsMissing):
            self._held.append(event)
            return
        if isinstance(event, CommandEnded) and self._held:
            self._print_group_answer()
            for one in self._held:
                self._print_part(one)
        self._print_part(event)

    def _print_group_answer(self) -> None:
        """Print the answer for all Sparks together."""
        fits = [one.fit for one in self._held if isinstance(one, MemoryFitEvaluated)]
        for answer in format_group_answer([one for one in fits if one.profile == self._profile.name]):
            is_bad = self._obstacle is not None or any(one.is_refused for one in fits)
            style = (
                TextStyle.BAD
                if is_bad
                else TextStyle.ATTENTION
                if any(one.margin is None for one in fits)
                else TextStyle.GOOD
            )
            stdout.print_rows(wrap_styled_line((Span(answer, style),), stdout.get_terminal_width()))
        stdout.print_line()

    def _print_part(self, event: Event) -> None:
        width = stdout.get_terminal_width()
        waiting, self._waiting = self._waiting, None
        if waiting is not None:
            self._print_fit(waiting, event if isinstance(event, PartsMissing) else None)
        if isinstance(event, CommandEnded) and self._fits:
            self._print_summary(width)
        if isinstance(event, PartsMissing):
            if event.instance == self._profile.name:
                self._missing[event.node] = event.parts
            self._pulls |= dict.fromkeys(event.commands)
            lines = format_missing_parts(replace(event, commands=()))  # the way to get them is the last word
            return stdout.print_rows(row for line in lines for row in wrap_line(line, width))
        if isinstance(event, MemoryFitEvaluated):
            self._waiting = event
            return None
        return super().print_event(event)

    def _print_fit(self, event: MemoryFitEvaluated, missing: PartsMissing | None) -> None:
        """Print an answer and its calculation; where something is ``missing``, that it cannot start."""
        width, fit = stdout.get_terminal_width(), event.fit
        if self._fits:
            stdout.print_line()
        if missing is not None and self._assumed is None and (lacking := describe_missing_kinds(missing.parts)):
            words = f"{fit.profile} cannot start on {fit.node} yet: {lacking}; its memory: {describe_answer(fit)}"
            answer: TextRow = (Span(words, TextStyle.BAD),)
        elif self._obstacle is not None and fit.profile == self._profile.name:
            words = f"{fit.profile} cannot start on {fit.node}: {self._obstacle.split('; ')[0]}; its memory: {describe_answer(fit)}"
            answer = (Span(words, TextStyle.BAD),)
        else:
            words = f"{fit.node}: {describe_answer(fit)}" if self._held else fit.summary_sentence
            answer = (Span(words, _choose_style(fit)),)
        stdout.print_rows(wrap_styled_line(answer, width))
        stdout.print_rows(format_estimate(fit, width, self._fits))
        stdout.print_rows(format_estimate_notes(fit, width, self._fits))
        self._fits.append(fit)
        if fit.sparks > 1:
            self._shared |= dict.fromkeys(event.commands)
        else:
            stdout.print_rows(f"then: {command}" for command in event.commands)

    def _print_summary(self, width: int | None) -> None:
        if self._measured is not None:
            stdout.print_rows(wrap_line(f"source: {sanitize_line(self._measured)}", width, 2))
        is_proposal = self._assumed is not None
        is_shown = len(self._own_fits) == 1 and self._own_fits[0].sparks == 1 and not is_proposal  # in the first line
        summary = format_estimate_summary(self._own_fits, self._missing, width, is_proposal=is_proposal)
        if self._held:  # the first line has the answer
            stdout.print_rows(["", *(f"then: {command}" for command in self._shared)] if self._shared else [])
        elif lines := [] if is_shown else summary:
            stdout.print_line()
            stdout.print_rows(lines)
            stdout.print_rows(f"then: {command}" for command in self._shared)
        stdout.print_rows(f"get it: {command}" for command in self._pulls)
        if self._assumed is not None:
            words = "No profile has this model yet. The figures are those of this one; save it to start it:"
            stdout.print_line()
            stdout.print_lines(wrap_line(words, width))
            stdout.print_lines(f"  {line}".rstrip() for line in self._assumed.splitlines())


def _choose_style(fit: MemoryFit) -> TextStyle:
    return TextStyle.BAD if fit.is_refused else TextStyle.GOOD if fit.margin is not None else TextStyle.ATTENTION


class EstimateJsonPrinter:
    """Prints everything at the end, as one document: ``{"schema": 1, "profile": ..., "nodes": [...], "warnings": [...]}``."""

    def __init__(self, profile: Profile, assumed: str | None) -> None:
        self._profile, self._assumed = profile, assumed
        self._judged: list[MemoryFitEvaluated] = []
        self._warnings: list[WarningEmitted] = []
        self._missing: dict[int, tuple[MissingPart, ...]] = {}  # by the number of the answer before

    def print_event(self, event: Event) -> None:
        """Keep the answers; print them when the verb has ended."""
        if isinstance(event, MemoryFitEvaluated):
            self._judged.append(event)
        if isinstance(event, WarningEmitted):
            self._warnings.append(event)
        if isinstance(event, PartsMissing):
            self._missing[len(self._judged) - 1] = event.parts
        if not isinstance(event, CommandEnded):
            return
        if not self._judged or event.exit_code not in (ExitCode.DONE, ExitCode.REFUSED):
            stdout.print_json(encode_event(event))
            return
        entries = [
            {
                **build_estimate_json(one.fit, one.commands),
                "profile": one.fit.profile,
                "missing": [to_json_data(part) for part in self._missing.get(number, ())],
            }
            for number, one in enumerate(self._judged)
        ]
        nodes = [one for one in entries if one["profile"] == self._profile.name]
        needs = [one for one in entries if one["profile"] != self._profile.name]
        fits = [one.fit for one in self._judged if one.fit.profile == self._profile.name]
        whole = {
            "schema": 1,
            "profile": self._profile.name,
            "exit_code": event.exit_code,
            "sparks": max(one.sparks for one in fits),
            "together": format_group_answer(fits),
            "reference": to_json_data(self._profile.reference),
        }
        if event.message is not None:
            whole["message"] = event.message
        if self._assumed is not None:
            whole["assumed"] = self._assumed
        whole["warnings"] = [{"node": one.node, "message": one.message, "hint": one.hint} for one in self._warnings]
        stdout.print_json({**whole, "nodes": to_json_data(nodes), "needs": to_json_data(needs)})

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
def plan_command(profile: str, node: tuple[str, ...], overrides: tuple[str, ...], as_json: bool) -> PreparedVerb:
    """Check whether PROFILE can start on a node, without starting it. Nothing is changed.

    \b
    sparkctl plan qwen36 --node spark1
    sparkctl plan qwen36 --node spark1 --set args.mem-fraction-static=0.9
    sparkctl plan qwen36 -n spark1 --json && sparkctl up qwen36 -n spark1
    sparkctl plan hf:Qwen/Qwen3-30B-A3B-FP8 --node spark1     a model without a profile

    Compares the memory that the profile needs, by the rules of its engine's version, with the memory that the node has now.
    The model's files are measured on the node; for a model that is not there yet the Hugging Face Hub is asked for sizes
    and config.json, and no weights are fetched. For hf:ORG/NAME a profile is assumed, and shown.

    Without --node every node is checked, and one that fits is enough; a model over two Sparks needs both, connected, and
    its nodes are named as for `up`. What a profile needs (`needs`) is shown before it, and its memory is counted.

    Exit 0: `up` would start it, even if it must drop the page cache first or part of the estimate is not known. Exit 6:
    `up` would refuse, even if it fits once something else stops. For hf:ORG/NAME, which is not there yet: 0 if it fits and
    can be downloaded, 6 if not, or if the Hub does not say how large it is. Exit 3: the node could not be read.
    """
    from sparkctl.commands.start.check_fit import CheckFit
    from sparkctl.profiles.profile_library import ProfileLibrary
    from sparkctl.profiles.profile_lint import list_start_warnings
    from sparkctl.transport.hub_client import HubClient

    is_proposed = profile.startswith("hf:")
    if is_proposed:
        from sparkctl.commands.start.check_fit import propose_profile
        from sparkctl.profiles.yaml_writer import render_profile_yaml

        chosen = propose_profile(profile, overrides)
        assumed = render_profile_yaml(chosen)
    else:
        chosen, assumed = ProfileLibrary().load_profile(profile, overrides=overrides), None
    obstacle = next((one.message for one in list_start_warnings(chosen, ProfileLibrary()) if one.missing_flag), None)
    nodes = select_rank_nodes(node, chosen) if chosen.nodes > 1 else select_configured_nodes(node)
    request = CheckFit(
        profile=chosen, nodes=nodes, environ=os.environ, words=(profile, *format_overrides(overrides)),
        is_proposal=is_proposed, hub=HubClient(os.environ), known=list_nodes() if chosen.needs else (), names_nodes=bool(node),
    )  # fmt: skip
    return PreparedVerb(
        request=request,
        printer=lambda: EstimatePrinter(chosen, assumed, obstacle),
        json_printer=lambda: EstimateJsonPrinter(chosen, assumed),
    )
