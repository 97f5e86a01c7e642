"""Asks the operator with dialogs: the questions of commands (host keys, passwords, logins, retries), one at a time, and
confirmations of what is dangerous: Cancel is the default, and to stop a serving instance its name has to be typed. Shows what
`plan` and `diagnose` tell.
"""

from __future__ import annotations

import asyncio
import os
import shlex
import sys
from asyncio.subprocess import DEVNULL, PIPE, STDOUT
from collections.abc import Callable, Sequence
from contextlib import aclosing
from typing import TYPE_CHECKING

from textual.widgets import Input

from sparkctl.commands.actions import INSTANCE, Action, ActionContext, retarget_context
from sparkctl.commands.request import Request, ScreenTarget
from sparkctl.errors import InvalidInput, SparkctlError
from sparkctl.model.events import CommandEnded, Event, MemoryFitEvaluated, PartsMissing, WarningEmitted
from sparkctl.model.finding import Severity
from sparkctl.model.phase import Phase
from sparkctl.model.questions import (
    BenchStartQuestion,
    HostKeyQuestion,
    LoginQuestion,
    PullQuestion,
    RetryStartQuestion,
    SetupQuestion,
    SudoPasswordQuestion,
    YesNoQuestion,
)
from sparkctl.model.text.sanitize import sanitize_lines
from sparkctl.model.text.units import format_time_of_day
from sparkctl.monitor.switch_journal_io import format_step_number
from sparkctl.monitor.switch_progress import SwitchProgress
from sparkctl.tui.dialogs.base import (
    ChoiceDialog,
    DialogBody,
    InputDialog,
    RefreshingDialog,
    TextDialog,
    render_sentence,
)
from sparkctl.views.event_log_view import describe_stopped_models
from sparkctl.views.event_text import format_missing_parts, render_setup_step
from sparkctl.views.text.line_wrap import wrap_text
from sparkctl.views.text.styled_text import Span, TextRow, TextStyle, get_state_symbol, make_row, sanitize_span

if TYPE_CHECKING:
    from textual.screen import ModalScreen

    from sparkctl.commands.diagnose_file import DiagnosisReport
    from sparkctl.commands.start.check_fit import CheckFit
    from sparkctl.tui.controller import PreparedCommand
    from sparkctl.tui.panel import Panel


CONFIRM_ANSWER = "do"  # the answer of a confirmation that confirms
LEAVE_ANSWER = "leave"
_QUOTE_COLUMNS = 66
_MAX_COLUMNS = 104  # of a result
_READ_BYTES = 1 << 16
_MIN_PRINTED_COLUMNS = 40
_HANGING_INDENT = 10  # columns, below the labels of a diagnosis


class DialogPrompter:
    """A `Prompter` that asks with dialogs on the panel. Only the asking task waits."""

    def __init__(self, panel: Panel) -> None:
        self._panel = panel
        self._asking = asyncio.Lock()

    async def ask_yes_no(self, question: YesNoQuestion) -> bool:
        """Ask; the default is no."""
        no = "Cancel"
        match question:
            case SetupQuestion():
                title, yes = "set it up?", "make these changes"
                body = [row for node, step in question.steps for row in render_setup_step(node, step)]
            case PullQuestion():
                title, yes = f"get what {question.profile} lacks?", "get it, then start"
                body = [row for part in question.parts for row in render_sentence(f"{part}.")]
                if (words := question.amount_words) is not None:
                    body += render_sentence(f"To come: {words}.")
            case BenchStartQuestion():
                title, yes, body = "start it to measure it?", "measure it", render_sentence(question.sentence)
            case RetryStartQuestion():
                title, yes = "start it again?", "start it again"
                count = len(question.failures)
                body = render_sentence(f"{question.profile} failed on {question.node} the last {count} times:")
                for when, how in question.failures:
                    clock = format_time_of_day(when)
                    body.append(make_row(Span(f"  {clock}  ", TextStyle.LABEL), sanitize_span(how, TextStyle.VALUE)))
            case HostKeyQuestion():
                title, no, yes = "an unknown host key", "leave it alone", "they match: connect and remember it"
                body = [
                    *render_sentence(f"{question.node} ({question.host}) is not known yet. Its key is"),
                    make_row("  ", sanitize_span(question.fingerprint, TextStyle.STRONG)),
                    *render_sentence("Compare it with the node's own:"),
                    make_row("  ", sanitize_span("ssh-keygen -lf /etc/ssh/ssh_host_ed25519_key.pub", TextStyle.KEY)),
                ]
        dialog = ChoiceDialog(title, body, (("no", no), ("yes", yes)), TextStyle.ATTENTION)
        return await self._show_unrequested_dialog(dialog) == "yes"

    async def ask_password(self, question: SudoPasswordQuestion) -> str | None:
        """Ask for the sudo password; it is used once and not kept."""
        body = render_sentence(f"To {question.purpose}, sudo on {question.node} asks for your password there.")
        return await self._show_unrequested_dialog(InputDialog(f"password on {question.node}", body, password=True))

    async def ask_login(self, question: LoginQuestion) -> tuple[str, ...] | None:
        """Ask the prompts of an SSH server, a dialog each; escape cancels all. An empty answer is valid."""
        words = [line for line in (*question.name.splitlines(), *question.instructions.splitlines()) if line.strip()]
        if not question.prompts:
            self._panel.show_toast("\n".join([f"{question.host}, before it lets you in on {question.node}:", *words]))
            return ()
        found: list[str] = []
        for at, one in enumerate(question.prompts, 1):
            asks = f"Before it lets you in, {question.node} ({question.host}) asks in its own words:"

            def build_body(
                columns: int, asks: str = asks, quoted: Sequence[str] = (*words, *one.text.splitlines())
            ) -> list[TextRow]:
                wide = min(_QUOTE_COLUMNS, columns - 2)
                lines = [part for line in quoted for part in wrap_text(line, wide, TextStyle.STRONG)]
                return [*render_sentence(asks), *(make_row("  ", *part) for part in lines)]

            many = f" ({at} of {len(question.prompts)})" if len(question.prompts) > 1 else ""
            dialog = InputDialog(
                f"login on {question.node}{many}", build_body, password=not one.is_echoed, may_be_empty=True
            )
            answer = await self._show_unrequested_dialog(dialog)
            if answer is None:
                return None
            found.append(answer)
        return tuple(found)

    async def _show_unrequested_dialog(self, dialog: ModalScreen[str]) -> str | None:
        return await self.show_dialog(dialog, self._panel.keyboard.discard_keys_briefly)

    async def show_dialog(self, dialog: ModalScreen[str], opened: Callable[[], None] = lambda: None) -> str | None:
        """Show a dialog after those that are open and return the answer; None for no answer.

        ``opened`` is called when it is shown.
        """
        async with self._asking:
            answered: asyncio.Future[str | None] = asyncio.get_running_loop().create_future()

            def resolve_answer(answer: str | None) -> None:
                if not answered.done():
                    answered.set_result(answer)

            self._panel.push_screen(dialog, resolve_answer)
            opened()
            try:
                return await answered
            except asyncio.CancelledError:
                if self._panel.screen_stack[-1:] == [dialog]:  # empty after the panel has ended
                    dialog.dismiss(None)  # the asking task is gone
                raise


def build_confirmation(request: Request, one: Action, now: ActionContext) -> RefreshingDialog:
    """Return the dialog that asks before an action; `CONFIRM_ANSWER` is its yes."""
    preview = request.preview(now)
    body: list[TextRow] = []
    for section in preview.sections:
        body += [row for text, tone in section for row in render_sentence(text, TextStyle(tone))]
        body += [()]
    body += render_sentence(f"sparkctl {' '.join(request.format_as_command())}", TextStyle.LABEL)
    title = preview.title or one.short
    if preview.wanted is not None:
        return TypeNameDialog(title, body, preview.wanted)
    choices = (("cancel", "Cancel"), (CONFIRM_ANSWER, preview.accept or one.short))
    return ChoiceDialog(title, body, choices, TextStyle.ATTENTION)


class TypeNameDialog(InputDialog):
    """A question that only the full name answers; anything else shows an error."""

    def __init__(self, title: str, body: DialogBody, wanted: str) -> None:
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


def _render_switch_question(progress: SwitchProgress, question: str, way_on: str) -> list[TextRow]:
    at = "" if progress.current_step is None else f" It is at {format_step_number(progress.current_step)}."
    body = render_sentence(f"{question}{at}", TextStyle.STRONG)
    body += [
        row for words in describe_stopped_models(progress) for row in render_sentence(f"{words}.", TextStyle.ATTENTION)
    ]
    return [*body, *render_sentence(way_on)]


class LeaveSwitchDialog(ChoiceDialog):
    """Asks before the panel ends in the middle of its switch; `LEAVE_ANSWER` is its yes."""

    def __init__(self, progress: SwitchProgress) -> None:
        way_on = "It then stays as it is until sparkctl resume continues it or sparkctl abort undoes it."
        body = _render_switch_question(progress, f"Leave the switch to {progress.instance} in the middle?", way_on)
        super().__init__("leave", body, (("", "stay"), (LEAVE_ANSWER, "leave it, and the panel")), TextStyle.ATTENTION)


def confirm_exit(panel: Panel, progress: SwitchProgress) -> None:
    """Ask before the panel ends during its switch; a second request in the open dialog ends it."""
    if isinstance(panel.screen, LeaveSwitchDialog):
        panel.exit_panel()
    else:
        opened = panel.push_screen(LeaveSwitchDialog(progress), lambda answer: panel.exit_panel() if answer else None)
        panel.keyboard.hold_until_mounted(opened)


def build_interrupt_dialog(progress: SwitchProgress) -> ChoiceDialog:
    """Return the question before the switch screen interrupts its switch."""
    body = _render_switch_question(
        progress,
        f"Interrupt the switch to {progress.instance}?",
        "You can continue or undo it later, also from this screen.",
    )
    return ChoiceDialog("interrupt", body, (("", "let it go on"), (LEAVE_ANSWER, "interrupt it")), TextStyle.ATTENTION)


def show_memory_estimate(panel: Panel, request: CheckFit) -> None:
    """Show whether a profile fits, as ``plan`` does."""
    assert panel.controller is not None
    panel.spawn_dialog_task(_show_fit(panel, panel.controller.prepare_command(request)))


async def _show_fit(panel: Panel, started: PreparedCommand) -> None:
    received: list[Event] = []
    try:
        async with aclosing(started.events()) as events:
            async for event in events:
                received.append(event)
    except SparkctlError as error:
        panel.show_error(error)
        return
    name = started.words[1]
    panel.push_screen(
        TextDialog(
            f"does {name} fit",
            lambda columns: [(), *render_estimate_result(received, min(_MAX_COLUMNS, columns)), ()],
        )
    )


def render_estimate_result(received: Sequence[Event], columns: int) -> list[TextRow]:
    """Return the result of ``plan``: the summary, the estimate of each node, the next commands, and errors."""
    from sparkctl.views.profiles.memory_estimate_view import (
        format_estimate,
        format_estimate_notes,
        format_estimate_summary,
    )

    judged = [one for one in received if isinstance(one, MemoryFitEvaluated)]
    lacking = [one for one in received if isinstance(one, PartsMissing)]
    summary = format_estimate_summary([one.fit for one in judged], {one.node: one.parts for one in lacking})
    rows = wrap_text("\n".join(summary), columns, TextStyle.STRONG, 2)
    for at, one in enumerate(judged):
        before = [other.fit for other in judged[:at]]
        rows += [()] if rows else []
        rows += wrap_text(one.fit.summary_sentence, columns, TextStyle.STRONG)
        lines = (*format_estimate(one.fit, columns, before), *format_estimate_notes(one.fit, columns, before))
        rows += [make_row(sanitize_span(line, TextStyle.LABEL)) for line in lines]
    missing = [line for one in lacking for line in format_missing_parts(one)]
    rows += [()] if missing else []
    rows += [row for line in missing for row in wrap_text(line, columns, hang=2)]
    commands = dict.fromkeys(each for one in judged for each in one.commands)
    rows += [()] if commands else []
    rows += [row for each in commands for row in wrap_text(f"then: {each}", columns, hang=6)]
    sign = get_state_symbol(Severity.WARNING)
    for event in received:
        if isinstance(event, WarningEmitted):
            where = f"{event.node}: " if event.node else ""
            rows += _render_error(f"{sign} {where}{event.message}", event.hint, columns)
        elif isinstance(event, CommandEnded) and event.message:
            rows += _render_error(event.message, event.hint, columns)
    return rows


def _render_error(message: str, hint: str | None, columns: int) -> list[TextRow]:
    lines = [*message.splitlines(), *(f"try: {line}" for line in (hint or "").splitlines())]
    return wrap_text("\n".join(lines), columns, TextStyle.ATTENTION, 2)


def show_printed_text(panel: Panel, words: Sequence[str]) -> None:
    """Show what a read-only command line prints, as it comes. Its process asks nothing and ends with the dialog."""
    dialog = TextDialog(f"sparkctl {shlex.join(words)}", _build_printed_rows(b"", is_running=True))
    task = panel.spawn_task(_show_printed_text(panel, words, dialog))

    def end_program(_: None) -> None:
        task.cancel()

    panel.keyboard.hold_until_mounted(panel.push_screen(dialog, end_program))


async def _show_printed_text(panel: Panel, words: Sequence[str], dialog: TextDialog) -> None:
    columns = max(_MIN_PRINTED_COLUMNS, min(_MAX_COLUMNS, panel.size.width - 8))
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "sparkctl", *words, stdin=DEVNULL, stdout=PIPE, stderr=STDOUT,
        env={**os.environ, "COLUMNS": str(columns), "NO_COLOR": "1", "PYTHONUNBUFFERED": "1"},
    )  # fmt: skip
    assert process.stdout is not None
    printed = b""
    try:
        while some := await process.stdout.read(_READ_BYTES):
            printed += some
            dialog.set_body(_build_printed_rows(printed, is_running=True))
        await process.wait()
    finally:
        if process.returncode is None:
            process.kill()
    dialog.set_body(_build_printed_rows(printed, is_running=False))


def _build_printed_rows(printed: bytes, *, is_running: bool) -> list[TextRow]:
    rows = [make_row(sanitize_span(line)) for line in sanitize_lines(printed.decode(errors="replace"))]
    return [(), *rows, make_row(Span("running ...", TextStyle.LABEL)) if is_running else ()]


def show_diagnosis(panel: Panel, target: ScreenTarget) -> None:
    """Open the screen of a failed instance; diagnose the log of any other. Raises `InvalidInput` for an unknown node."""
    if unknown := [node for node in target.nodes if node not in panel.node_names]:
        raise InvalidInput(f"no node is called {unknown[0]}", f"there are: {', '.join(panel.node_names)}")
    now = retarget_context(panel.build_action_context(), target.name, next(iter(target.nodes), None))
    if now.selected_instance is not None and now.selected_instance.ours and now.selected_instance.phase is Phase.FAILED:
        panel.open_screen(INSTANCE, now)
    else:
        panel.spawn_dialog_task(_show_diagnosis(panel, str(target.name), target.nodes))


async def _show_diagnosis(panel: Panel, name: str, nodes: Sequence[str]) -> None:
    from sparkctl.commands.diagnose_log import diagnose_instance

    assert panel.controller is not None
    targets = [node for node in panel.config_nodes if not nodes or node.name in nodes]
    try:
        found = await diagnose_instance(panel.controller.non_interactive_context, name, targets, None)
    except SparkctlError as error:
        panel.show_error(error)
        return
    panel.push_screen(
        TextDialog(
            f"what the log of {name} shows",
            lambda columns: [(), *render_diagnosis_result(found, min(_MAX_COLUMNS, columns)), ()],
        )
    )


def render_diagnosis_result(found: DiagnosisReport, columns: int) -> list[TextRow]:
    from sparkctl.engines import load_engine
    from sparkctl.views.diagnosis_view import format_diagnosis

    lines = format_diagnosis(found.diagnosis, lambda name: load_engine(name).title, found.instance)
    rows = [make_row(sanitize_span(found.source, TextStyle.LABEL)), ()]
    rows += [row for line in lines for row in (wrap_text(line, columns, hang=_HANGING_INDENT) or [()])]
    for where, error in found.silent:
        rows += _render_error(f"{where}: {error.message}", error.hint, columns)
    return rows
