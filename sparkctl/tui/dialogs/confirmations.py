"""Confirmations of dangerous commands. Cancel is the default; to stop a serving instance, its name has to be typed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from textual.widgets import Input

from sparkctl.commands.actions import Action, ActionContext, ActionId
from sparkctl.commands.stop.stop_impact import (
    find_interrupted_instances,
    find_stopped_instances,
    find_target_instances,
    find_unlisted_nodes,
    is_instance_serving,
    parse_names_and_nodes,
    parse_targets,
)
from sparkctl.model.instance import InstanceView
from sparkctl.model.node import NodeState
from sparkctl.model.phase import Phase
from sparkctl.monitor.ranks import count_ranks, list_nodes_of_instance
from sparkctl.monitor.switch_journal_io import format_step_number
from sparkctl.monitor.switch_progress import SwitchProgress
from sparkctl.tui.dialogs.base import ChoiceDialog, InputDialog, RefreshingDialog, wrap_paragraph
from sparkctl.views.command_result_view import describe_stopped_models
from sparkctl.views.text.styled_text import Span, TextRow, TextStyle, make_row, sanitize_span

if TYPE_CHECKING:
    from sparkctl.tui.panel import Panel

CONFIRM_ANSWER = "do"  # the answer of both dialogs that confirms
_STOPPING_VERBS = ("down", "up", "free")


def needs_confirmation(one: Action, words: Sequence[str], now: ActionContext) -> bool:
    """Tell whether a command line has to be confirmed."""
    return one.confirm or bool(find_interrupted_instances(now, words) or find_unlisted_nodes(now, words))


def build_confirmation(one: Action, words: Sequence[str], now: ActionContext) -> RefreshingDialog:
    """Return the dialog that asks; `CONFIRM_ANSWER` is its yes."""
    if ended := _find_ended_instances(words, now):
        return _build_removal_dialog(ended, words)
    line = [*_describe_unreachable_nodes(words, now), *wrap_paragraph(f"sparkctl {' '.join(words)}", TextStyle.LABEL)]
    serving, dark = find_interrupted_instances(now, words), find_unlisted_nodes(now, words)
    if serving or dark:
        names = {each.name for each in serving} or set(parse_names_and_nodes(words[1:])[0])
        why = [row for each in serving for row in _describe_served_clients(each, now)]
        why += [
            row
            for name in dark
            for row in wrap_paragraph(f"What runs on {name} is not known yet.", TextStyle.ATTENTION)
        ]
        body = [*_render_question(words, now), (), *why, (), *line]
        return TypeNameDialog(one.short, body, names.pop() if len(names) == 1 else "all")
    if one.id is ActionId.RESTART:
        body = [*wrap_paragraph(f"Start {words[1]} on {now.node} once more, as it was?", TextStyle.STRONG), (), *line]
        return ChoiceDialog(one.short, body, (("cancel", "Cancel"), (CONFIRM_ANSWER, "start it")), TextStyle.ATTENTION)
    does = "kill it" if "--kill" in words else "stop it" if words[0] in _STOPPING_VERBS else one.short
    return ChoiceDialog(
        one.short,
        [*_render_question(words, now), (), *line],
        (("cancel", "Cancel"), (CONFIRM_ANSWER, does)),
        TextStyle.ATTENTION,
    )


def _find_ended_instances(words: Sequence[str], now: ActionContext) -> list[InstanceView]:
    """Return the instances that a ``down`` names where all have ended already; else nothing."""
    if words[0] != "down" or "--all" in words:
        return []
    named = find_target_instances(now, words)
    return [] if any(one.is_alive for one in named) else list(named)


def _describe_unreachable_nodes(words: Sequence[str], now: ActionContext) -> list[TextRow]:
    """Return a row for each target node that does not answer; what the dialog says of it is its last known state."""
    nodes = parse_targets(words)[1] or [str(now.node)]
    rows: list[TextRow] = []
    for view in now.views:
        if view.name in nodes and view.state not in (NodeState.OK, NodeState.UNKNOWN):
            rows += wrap_paragraph(f"{view.name} is {view.state}: commands cannot reach it now.", TextStyle.BAD)
    return [*rows, ()] if rows else []


def _build_removal_dialog(ended: Sequence[InstanceView], words: Sequence[str]) -> RefreshingDialog:
    """Return the question for a `down` of instances that have ended."""
    first = ended[0]
    there = " and ".join(dict.fromkeys(str(one.node) for one in ended))
    how = "has failed" if first.phase is Phase.FAILED else "has ended"
    body = [
        *wrap_paragraph(f"Remove {first.name} from {there}?", TextStyle.STRONG),
        *wrap_paragraph(f"It {how}: nothing is running any more. Its container goes; its log is saved first."),
        (), *wrap_paragraph(f"sparkctl {' '.join(words)}", TextStyle.LABEL),
    ]  # fmt: skip
    return ChoiceDialog("remove", body, (("cancel", "Cancel"), (CONFIRM_ANSWER, "remove it")), TextStyle.ATTENTION)


def _describe_served_clients(one: InstanceView, now: ActionContext) -> list[TextRow]:
    """Return the requests that would be cut off; a rank without requests of its own adds no row."""
    there = f"{one.name} on {one.node}"
    if is_instance_serving(one, now) is None:
        return wrap_paragraph(f"Whether {there} is answering somebody right now is not known.", TextStyle.ATTENTION)
    count = round(one.numbers.running) if one.numbers and one.numbers.running else 0
    if not count and count_ranks(one) > 1:
        return []
    return wrap_paragraph(
        f"{there} is answering {'a request' if count <= 1 else f'{count} requests'} right now.", TextStyle.ATTENTION
    )


def _render_question(words: Sequence[str], now: ActionContext) -> list[TextRow]:
    """Return the question, and what happens to the other ranks of a model on several nodes."""
    ended = find_stopped_instances(now, words) if words[0] in _STOPPING_VERBS else ()
    question = wrap_paragraph(
        _format_question(words, tuple(dict.fromkeys(str(one.node) for one in ended)), now), TextStyle.STRONG
    )
    question += _describe_stopped_instances(ended, parse_targets(words)[1], now) if words[0] == "free" else []
    spread = {one.name: one for one in ended if words[0] == "down" and count_ranks(one) > 1}
    for name, one in spread.items():
        stopped, seen = {each.node for each in ended if each.name == name}, list_nodes_of_instance(one, now.views)
        left = [node for node in seen if node not in stopped]
        if left:
            question += wrap_paragraph(
                f"Its part on {' and '.join(left)} stays, and answers nobody without this one.", TextStyle.BAD
            )
        elif len(seen) < count_ranks(one):
            question += wrap_paragraph(
                f"It is one of {count_ranks(one)} parts; the others are not visible and not stopped by this.",
                TextStyle.ATTENTION,
            )
        else:
            question += wrap_paragraph(f"It is one model on {len(seen)} Sparks: its parts stop together.")
    return question


def _describe_stopped_instances(
    ended: Sequence[InstanceView], nodes: Sequence[str], now: ActionContext
) -> list[TextRow]:
    """Return what ``free`` stops, on which nodes, and which foreign containers it leaves alone."""
    rows: list[TextRow] = []
    for name in dict.fromkeys(one.name for one in ended):
        where = list(dict.fromkeys(str(one.node) for one in ended if one.name == name))
        others = [node for node in where if node not in nodes]
        apart = ": one model, so its other part stops too" if others else ""
        rows += wrap_paragraph(
            f"{name} stops on {' and '.join(where)}{apart}.", TextStyle.ATTENTION if others else TextStyle.PLAIN
        )
    there = [one for view in now.views if view.name in nodes for one in view.instances if one.is_alive]
    rows += [] if ended else wrap_paragraph("No instance of sparkctl is known to run there.")
    foreign = [f"{one.name} on {one.node}" for one in there if not one.ours]
    if foreign:
        rows += wrap_paragraph(f"Not started by sparkctl, left alone: {', '.join(foreign)}.", TextStyle.LABEL)
    return rows


def _format_question(words: Sequence[str], stopped_nodes: Sequence[str], now: ActionContext) -> str:
    """Return what a dangerous command line does, as a question."""
    names, nodes = parse_names_and_nodes(words[1:])
    nodes = nodes or list(stopped_nodes)
    does, there = "Kill" if "--kill" in words else "Stop", f" on {' and '.join(nodes)}" if nodes else ""
    if words[0] == "up":
        return f"Stop what runs as {names[0]}{there}, and start it again?"
    if words[0] == "free":
        return f"Stop everything that sparkctl started on {' and '.join(parse_targets(words)[1])}?"
    if words[0] in ("resume", "abort"):
        return _describe_left_switch(words, now)
    if words[0] != "down":
        return f"Run this{' for' + there.removeprefix(' on') if there else ''}?"
    return f"{does} {'every instance that sparkctl started' if '--all' in words else (names or ['it'])[0]}{there}?"


def _describe_left_switch(words: Sequence[str], now: ActionContext) -> str:
    """Return what happens to the models of an abandoned switch, by name where its journal is readable."""
    one = now.journal
    if one is None:
        what, new, old = "the switch that was left", "What it started", "what it stopped"
    else:
        what = f"the switch to {one.instance} that {one.operator} left at its step {one.step}"
        new, old = one.instance, " and ".join(one.stops)
    if words[0] == "resume":
        return f"Go on with {what}?"
    serves = one is not None and any(
        each.name == one.instance and each.phase is Phase.READY for view in now.views for each in view.instances
    )
    ready = ", which is ready now," if serves else ""
    if "--give-up" in words:
        both = f"{new}{ready} and {old} go" if old else f"{new}{ready} goes"
        return f"Give up {what}? {both}, logs saved, and none of its models serves."
    return f"Undo {what}? {new}{ready} goes{f', and {old} serves again' if old else ''}."


class TypeNameDialog(InputDialog):
    """A question that only the full name answers; anything else shows an error."""

    def __init__(self, title: str, body: Sequence[TextRow], wanted: str) -> None:
        super().__init__(title, body)
        self._wanted = wanted
        self._refusal = ""  # why the last answer was refused

    def render_footer_rows(self) -> Sequence[TextRow]:
        """Return the name to type, or why the last answer was refused."""
        hint = (
            make_row(sanitize_span(f"{self._refusal}; esc leaves it running.", TextStyle.BAD))
            if self._refusal
            else make_row(
                Span("Type ", TextStyle.LABEL),
                sanitize_span(self._wanted, TextStyle.KEY),
                Span(" to do it; esc leaves it running.", TextStyle.LABEL),
            )
        )
        return [hint]

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Accept the name. Nothing else closes the dialog, so that no key reaches the screen below."""
        event.prevent_default()  # Textual calls the handler of every base class, too
        if event.value.strip() == self._wanted:
            self.dismiss(CONFIRM_ANSWER)
            return
        self._refusal = f"That is not {self._wanted}" if event.value.strip() else f"Type {self._wanted} to confirm"
        self.query_one(Input).clear()
        self.draw_dialog()


LEAVE_ANSWER = "leave"


def _render_switch_question(course: SwitchProgress, question: str, way_on: str) -> list[TextRow]:
    at = "" if course.current_step is None else f" It is at {format_step_number(course.current_step)}."
    body = wrap_paragraph(f"{question}{at}", TextStyle.STRONG)
    body += [
        row for words in describe_stopped_models(course) for row in wrap_paragraph(f"{words}.", TextStyle.ATTENTION)
    ]
    return [*body, *wrap_paragraph(way_on)]


class LeaveSwitchDialog(ChoiceDialog):
    """Asks before the panel ends in the middle of its switch; `LEAVE_ANSWER` is its yes."""

    def __init__(self, course: SwitchProgress) -> None:
        way_on = "It then stays as it is until sparkctl resume continues it or sparkctl abort undoes it."
        body = _render_switch_question(course, f"Leave the switch to {course.instance} in the middle?", way_on)
        super().__init__("leave", body, (("", "stay"), (LEAVE_ANSWER, "leave it, and the panel")), TextStyle.ATTENTION)


def confirm_exit(panel: Panel, course: SwitchProgress) -> None:
    """Ask before the panel ends during its switch; a second request in the open dialog ends it."""
    if isinstance(panel.screen, LeaveSwitchDialog):
        panel.exit_panel()
    else:
        opened = panel.push_screen(LeaveSwitchDialog(course), lambda answer: panel.exit_panel() if answer else None)
        panel.keyboard.hold_until_mounted(opened)


def build_interrupt_dialog(course: SwitchProgress) -> ChoiceDialog:
    """Return the question before the switch screen interrupts its switch."""
    body = _render_switch_question(
        course,
        f"Interrupt the switch to {course.instance}?",
        "You can continue or undo it later, also from this screen.",
    )
    return ChoiceDialog("interrupt", body, (("", "let it go on"), (LEAVE_ANSWER, "interrupt it")), TextStyle.ATTENTION)
