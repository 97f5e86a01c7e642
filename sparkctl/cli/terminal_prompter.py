"""Asking the operator questions on the terminal while the event loop runs."""

from __future__ import annotations

import contextlib
import os
import sys
import termios
from collections.abc import AsyncIterator

from sparkctl.cli import stderr
from sparkctl.context import UnshownEvents
from sparkctl.model.questions import (
    BenchStartQuestion,
    HostKeyQuestion,
    LoginQuestion,
    NonInteractivePrompter,
    Prompter,
    PullQuestion,
    RetryStartQuestion,
    SetupQuestion,
    SudoPasswordQuestion,
    YesNoQuestion,
)
from sparkctl.model.text.sanitize import sanitize_line
from sparkctl.model.text.units import format_time_of_day

_MAX_ANSWER_BYTES = 4096


async def read_line(prompt: str, *, echo: bool = True) -> str:
    """Return the typed line without its newline, "" at the end of input. Live lines are paused meanwhile.

    It uses no thread: a thread that waits for a key cannot be ended, and the program could not exit before a key came.
    """
    import asyncio  # imported late, as below: verbs that reach no node do without it

    keyboard = sys.stdin.fileno()
    loop = asyncio.get_running_loop()
    typed: asyncio.Future[str] = loop.create_future()

    def read_answer() -> None:
        if typed.done():
            return
        try:
            answer = os.read(keyboard, _MAX_ANSWER_BYTES)
        except OSError:  # the terminal was closed
            answer = b""
        typed.set_result(answer.decode("utf-8", "replace").rstrip("\r\n"))

    before = termios.tcgetattr(keyboard)
    stderr.pause_live_line(True)
    try:
        if not echo:
            silent = termios.tcgetattr(keyboard)
            silent[3] &= ~termios.ECHO
            termios.tcsetattr(keyboard, termios.TCSAFLUSH, silent)
        stderr.print_prompt(prompt)
        loop.add_reader(keyboard, read_answer)
        return await typed
    finally:
        loop.remove_reader(keyboard)
        with contextlib.suppress(termios.error):  # the terminal was closed
            termios.tcsetattr(keyboard, termios.TCSADRAIN, before)
        if not echo or not typed.done():
            stderr.print_message()
        stderr.pause_live_line(False)


_MAX_TRIES = 3


class TerminalPrompter:
    """Asks on the terminal, one question at a time. Answers come only from the keyboard, never from a pipe.

    A question waits until the events before it, which ``unshown`` counts, are printed.
    """

    def __init__(self, unshown: UnshownEvents) -> None:
        import asyncio

        self._asking = asyncio.Lock()
        self._unshown = unshown

    @contextlib.asynccontextmanager
    async def _take_turn(self) -> AsyncIterator[None]:
        """Wait for the question before, and until what was emitted is printed."""
        async with self._asking:
            await self._unshown.wait_until_shown()
            yield

    async def ask_yes_no(self, question: YesNoQuestion) -> bool:
        """Ask the question; return True only for an explicit yes."""
        async with self._take_turn():
            if isinstance(question, SetupQuestion):
                names = list(dict.fromkeys(node for node, _ in question.steps))
                return await confirm(f"Make these changes on {' and '.join(names)}?")
            if isinstance(question, RetryStartQuestion):
                return await self._confirm_retry_start(question)
            if isinstance(question, PullQuestion):
                for part in question.parts:
                    stderr.print_message(f"missing: {sanitize_line(part)}")
                size = "" if (words := question.amount_words) is None else f" ({words})"
                return await confirm(f"Get what {sanitize_line(question.profile)} lacks first{size}, then start it?")
            if isinstance(question, BenchStartQuestion):
                return await confirm(sanitize_line(question.sentence))
            return await self._confirm_host_key(question)

    async def _confirm_retry_start(self, question: RetryStartQuestion) -> bool:
        stderr.print_message(
            f"{sanitize_line(question.profile)} failed on {question.node} the last {len(question.failures)} times:"
        )
        for when, how in question.failures:
            stderr.print_message(f"  {format_time_of_day(when)}  {sanitize_line(how)}")
        return await confirm("Start it again?")

    async def _confirm_host_key(self, question: HostKeyQuestion) -> bool:
        """Ask whether the host key is right; only a typed "yes" counts, as with ssh."""
        stderr.print_message(f"{question.node} ({question.host}) is not known yet. Its key is")
        stderr.print_message(f"  {question.fingerprint}")
        stderr.print_message("On the node, run `ssh-keygen -lf /etc/ssh/ssh_host_ed25519_key.pub` and compare.")
        prompt = "Are the fingerprints equal? Connect and remember the key? [yes/no] "
        for _ in range(_MAX_TRIES):
            answer = await read_line(prompt)
            if answer.strip().lower() == "yes":
                return True
            if not answer or answer.strip().lower() == "no":
                break
            prompt = "type yes or no: "
        if not answer:
            stderr.print_message()  # at the end of input the cursor is still in the line of the question
        stderr.print_message(
            f"not confirmed: sparkctl does not connect to {question.node} and does not remember its key"
        )
        return False

    async def ask_password(self, question: SudoPasswordQuestion) -> str | None:
        """Ask for the sudo password without echo; an empty answer means no."""
        async with self._take_turn():
            stderr.print_message(
                f"{question.node}: to {question.purpose}, sudo needs your password there (empty: continue without)"
            )
            return await read_line(f"password on {question.node}: ", echo=False) or None

    async def ask_login(self, question: LoginQuestion) -> tuple[str, ...] | None:
        """Ask the server's questions one after the other; None at the end of input or if nothing was typed."""
        async with self._take_turn():
            stderr.print_message(
                f"{question.node}: {sanitize_line(question.host)} {'asks' if question.prompts else 'says'}, in its own words:"
            )
            for words in (*question.name.splitlines(), *question.instructions.splitlines()):
                if words.strip():
                    stderr.print_message(f"  {sanitize_line(words)}")
            found = [await read_line(f"  {_format_prompt(one.text)}", echo=one.is_echoed) for one in question.prompts]
        return tuple(found) if any(found) or not question.prompts else None


async def confirm(question: str) -> bool:
    """Ask a question on the terminal; only y or yes means yes."""
    answer = await read_line(f"{question} [y/N] ")
    if not answer:
        stderr.print_message()
    return answer.strip().lower() in ("y", "yes")


def _format_prompt(text: str) -> str:
    """Return a server's prompt as one line with a space at its end."""
    return sanitize_line(" ".join(text.split())).rstrip() + " "


def create_prompter(unshown: UnshownEvents, *, allowed: bool) -> Prompter:
    """Return a prompter for the terminal if stdin and stderr are terminals, else one that asks nothing."""
    can_ask = allowed and sys.stdin.isatty() and sys.stderr.isatty()
    return TerminalPrompter(unshown) if can_ask else NonInteractivePrompter()
