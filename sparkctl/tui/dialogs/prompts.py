"""Asks the operator's questions (host keys, passwords, logins, retries) as dialogs, one at a time."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

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
from sparkctl.tui.dialogs.base import ChoiceDialog, InputDialog, render_sentence
from sparkctl.views.event_text import render_setup_step
from sparkctl.views.text.line_wrap import wrap_text
from sparkctl.views.text.styled_text import Span, TextStyle, make_row, sanitize_span

if TYPE_CHECKING:
    from textual.screen import ModalScreen

    from sparkctl.tui.panel import Panel


_QUOTE_COLUMNS = 66


class DialogPrompter:
    """A `Prompter` that asks with dialogs on the panel. Only the asking task waits."""

    def __init__(self, panel: Panel) -> None:
        self._panel = panel
        self._asking = asyncio.Lock()

    async def ask_yes_no(self, question: YesNoQuestion) -> bool:
        """Ask; the default is no."""
        if isinstance(question, SetupQuestion):
            return await self._ask_about_setup(question)
        if isinstance(question, PullQuestion):
            return await self._ask_to_pull(question)
        if isinstance(question, BenchStartQuestion):
            return await self._ask_to_start_for_bench(question)
        return await (
            self._ask_to_retry_start(question)
            if isinstance(question, RetryStartQuestion)
            else self._ask_about_host_key(question)
        )

    async def _ask_about_setup(self, question: SetupQuestion) -> bool:
        body = [row for node, step in question.steps for row in render_setup_step(node, step)]
        choices = (("no", "Cancel"), ("yes", "make these changes"))
        return (
            await self._show_unrequested_dialog(ChoiceDialog("set it up?", body, choices, TextStyle.ATTENTION)) == "yes"
        )

    async def _ask_to_pull(self, question: PullQuestion) -> bool:
        body = [row for part in question.parts for row in render_sentence(f"{part}.")]
        if (words := question.amount_words) is not None:
            body += render_sentence(f"To come: {words}.")
        choices = (("no", "Cancel"), ("yes", "get it, then start"))
        title = f"get what {question.profile} lacks?"
        return await self._show_unrequested_dialog(ChoiceDialog(title, body, choices, TextStyle.ATTENTION)) == "yes"

    async def _ask_to_start_for_bench(self, question: BenchStartQuestion) -> bool:
        body, choices = render_sentence(question.sentence), (("no", "Cancel"), ("yes", "measure it"))
        return (
            await self._show_unrequested_dialog(
                ChoiceDialog("start it to measure it?", body, choices, TextStyle.ATTENTION)
            )
            == "yes"
        )

    async def _ask_to_retry_start(self, question: RetryStartQuestion) -> bool:
        body = render_sentence(f"{question.profile} failed on {question.node} the last {len(question.failures)} times:")
        for when, how in question.failures:
            clock = time.strftime("%H:%M", time.localtime(when))
            body.append(make_row(Span(f"  {clock}  ", TextStyle.LABEL), sanitize_span(how, TextStyle.VALUE)))
        choices = (("no", "Cancel"), ("yes", "start it again"))
        return (
            await self._show_unrequested_dialog(ChoiceDialog("start it again?", body, choices, TextStyle.ATTENTION))
            == "yes"
        )

    async def _ask_about_host_key(self, question: HostKeyQuestion) -> bool:
        body = [
            *render_sentence(f"{question.node} ({question.host}) is not known yet. Its key is"),
            make_row("  ", sanitize_span(question.fingerprint, TextStyle.STRONG)),
            *render_sentence("Compare it with the node's own:"),
            make_row("  ", sanitize_span("ssh-keygen -lf /etc/ssh/ssh_host_ed25519_key.pub", TextStyle.KEY)),
        ]
        choices = (("no", "leave it alone"), ("yes", "they match: connect and remember it"))
        return (
            await self._show_unrequested_dialog(ChoiceDialog("an unknown host key", body, choices, TextStyle.ATTENTION))
            == "yes"
        )

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
            body = render_sentence(f"Before it lets you in, {question.node} ({question.host}) asks in its own words:")
            for line in (*words, *one.text.splitlines()):
                body += [make_row("  ", *part) for part in wrap_text(line, _QUOTE_COLUMNS, TextStyle.STRONG)]
            many = f" ({at} of {len(question.prompts)})" if len(question.prompts) > 1 else ""
            dialog = InputDialog(f"login on {question.node}{many}", body, password=not one.is_echoed, may_be_empty=True)
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
