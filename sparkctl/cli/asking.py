"""Questions on the terminal, asked beside the event loop."""

from __future__ import annotations

import asyncio
import sys
import time

from sparkctl.cli import keyboard, narrate
from sparkctl.model.ask import Asker, ConfirmHostKey, LoginQuestion, Nobody, StartAgain, SudoPassword
from sparkctl.model.text import clean

_TRIES = 3


class Terminal:
    """Asks on the terminal, one question at a time: answers come from its keyboard, never from a pipe."""

    def __init__(self) -> None:
        self._asking = asyncio.Lock()

    async def confirm(self, question: ConfirmHostKey | StartAgain) -> bool:
        """Ask, and take nothing but a yes for one."""
        async with self._asking:
            if isinstance(question, StartAgain):
                return await self._start_again(question)
            return await self._host_key(question)

    async def _start_again(self, question: StartAgain) -> bool:
        narrate.say(f"{clean(question.profile)} failed on {question.node} the last {len(question.failures)} times:")
        for when, how in question.failures:
            narrate.say(f"  {time.strftime('%H:%M', time.localtime(when))}  {clean(how)}")
        answer = await keyboard.line("Start it once more? [y/N] ")
        if not answer:
            narrate.say()
        return answer.strip().lower() in ("y", "yes")

    async def _host_key(self, question: ConfirmHostKey) -> bool:
        """Only a written yes counts, as with ssh."""
        narrate.say(f"{question.node} ({question.host}) is not known yet. Its key is")
        narrate.say(f"  {question.fingerprint}")
        narrate.say("Compare it with the node's own: ssh-keygen -lf /etc/ssh/ssh_host_ed25519_key.pub")
        prompt = "Is it the same, connect and remember it? [yes/no] "
        for _ in range(_TRIES):
            answer = await keyboard.line(prompt)
            if answer.strip().lower() == "yes":
                return True
            if not answer or answer.strip().lower() == "no":
                break
            prompt = "type yes or no: "
        if not answer:
            narrate.say()  # the end of input leaves the cursor beside the question
        narrate.say(f"not confirmed: {question.node} is left alone, and its key is not remembered")
        return False

    async def password(self, question: SudoPassword) -> str | None:
        """Ask for the sudo password without echo; an empty answer means no."""
        async with self._asking:
            narrate.say(
                f"{question.node}: to {question.purpose}, sudo wants your password there (empty: go on without)"
            )
            return await keyboard.line(f"password on {question.node}: ", echo=False) or None

    async def answers(self, question: LoginQuestion) -> tuple[str, ...] | None:
        """Ask what the server wants to know, one after the other; the end of input, and nothing typed at all, mean no."""
        async with self._asking:
            narrate.say(
                f"{question.node}: {clean(question.host)} {'asks' if question.prompts else 'says'}, in its own words:"
            )
            for words in (*question.name.splitlines(), *question.instructions.splitlines()):
                if words.strip():
                    narrate.say(f"  {clean(words)}")
            found = [await keyboard.line(f"  {_prompt(one.text)}", echo=one.is_echoed) for one in question.prompts]
        return tuple(found) if any(found) or not question.prompts else None


def _prompt(text: str) -> str:
    """Return a server's prompt as one line, with room behind it."""
    return clean(" ".join(text.split())).rstrip() + " "


def asker(*, allowed: bool = True) -> Asker:
    """Return who can ask: the terminal, where there is one on both sides."""
    return Terminal() if allowed and sys.stdin.isatty() and sys.stderr.isatty() else Nobody()
