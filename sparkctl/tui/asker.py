"""Questions that only the operator can answer, as dialogs; one at a time."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from sparkctl.model.ask import ConfirmHostKey, LoginQuestion, StartAgain, SudoPassword
from sparkctl.present.spans import Span, Tone, row, said
from sparkctl.tui.dialogs import Choice, Question, paragraph

if TYPE_CHECKING:
    from textual.screen import ModalScreen

    from sparkctl.tui.app import Panel


_QUOTED = 66  # columns


class Dialogs:
    """Asks on the panel. Whoever asks waits, and nobody else does."""

    def __init__(self, panel: Panel) -> None:
        self._panel = panel
        self._asking = asyncio.Lock()

    async def confirm(self, question: ConfirmHostKey | StartAgain) -> bool:
        """Ask; no is the default."""
        return await (self._start_again(question) if isinstance(question, StartAgain) else self._host_key(question))

    async def _start_again(self, question: StartAgain) -> bool:
        body = paragraph(f"{question.profile} failed on {question.node} the last {len(question.failures)} times:")
        for when, how in question.failures:
            clock = time.strftime("%H:%M", time.localtime(when))
            body.append(row(Span(f"  {clock}  ", Tone.LABEL), said(how, Tone.VALUE)))
        choices = (("no", "Cancel"), ("yes", "start it once more"))
        return await self._ask_unbidden(Choice("start it again?", body, choices, Tone.ATTENTION)) == "yes"

    async def _host_key(self, question: ConfirmHostKey) -> bool:
        body = [
            *paragraph(f"{question.node} ({question.host}) is not known yet. Its key is"),
            row("  ", said(question.fingerprint, Tone.STRONG)),
            *paragraph("Compare it with the node's own:"),
            row("  ", said("ssh-keygen -lf /etc/ssh/ssh_host_ed25519_key.pub", Tone.KEY)),
        ]
        choices = (("no", "leave it alone"), ("yes", "it is the same: connect and remember it"))
        return await self._ask_unbidden(Choice("an unknown host key", body, choices, Tone.ATTENTION)) == "yes"

    async def password(self, question: SudoPassword) -> str | None:
        """Ask for the sudo password; it is used once and kept nowhere."""
        body = paragraph(f"To {question.purpose}, sudo on {question.node} wants your password there.")
        return await self._ask_unbidden(Question(f"password on {question.node}", body, password=True))

    async def answers(self, question: LoginQuestion) -> tuple[str, ...] | None:
        """Ask what an SSH server wants to know, a dialog for each prompt; escape ends all of it. An empty answer is one."""
        words = [line for line in (*question.name.splitlines(), *question.instructions.splitlines()) if line.strip()]
        if not question.prompts:
            self._panel.say("\n".join([f"{question.host}, before it lets you in on {question.node}:", *words]))
            return ()
        found: list[str] = []
        for at, one in enumerate(question.prompts, 1):
            body = paragraph(f"Before it lets you in, {question.node} ({question.host}) asks in its own words:")
            for line in (*words, *one.text.splitlines()):
                body += [row("  ", *part) for part in paragraph(line, Tone.STRONG, _QUOTED)]
            many = f" ({at} of {len(question.prompts)})" if len(question.prompts) > 1 else ""
            dialog = Question(f"login on {question.node}{many}", body, password=not one.is_echoed, may_be_empty=True)
            answer = await self._ask_unbidden(dialog)
            if answer is None:
                return None
            found.append(answer)
        return tuple(found)

    async def _ask_unbidden(self, dialog: ModalScreen[str]) -> str | None:
        return await self.ask(dialog, self._panel.keyboard.startle)

    async def ask(self, dialog: ModalScreen[str], opened: Callable[[], None] = lambda: None) -> str | None:
        """Show a dialog, after those that are open, and return what was answered; None for no answer.

        ``opened`` is called when it is shown.
        """
        async with self._asking:
            answered: asyncio.Future[str | None] = asyncio.get_running_loop().create_future()

            def take(answer: str | None) -> None:
                if not answered.done():
                    answered.set_result(answer)

            self._panel.push_screen(dialog, take)
            opened()
            try:
                return await answered
            except asyncio.CancelledError:
                if self._panel.screen_stack[-1:] == [dialog]:  # none are left where the panel has ended
                    dialog.dismiss(None)  # nobody waits for an answer any more
                raise
