"""What SSH servers ask on the way to a node before they let anybody in: a second factor, a password. Put to the operator."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress

from sparkctl.model.node import NodeName
from sparkctl.model.questions import LoginPrompt, LoginQuestion, NonInteractivePrompter, Prompter

_MAX_TRIES = 3  # questionings by one server in one login, as ssh has it
_MAX_PROMPTS = 10
_MAX_PROMPT_CHARS = 500  # characters of a prompt
_MAX_INSTRUCTION_CHARS = 2000  # and of what stands above all of them


class LoginPrompter:
    """Asked in one login of a link. One that comes back after it was lost does so without, or not at all: nobody is to be
    asked again and again by what goes on in the background."""

    def __init__(self, node: NodeName, asker: Prompter) -> None:
        self.node, self.asker = node, asker
        self._asked = False
        self.may_ask = False

    def begin_login(self) -> None:
        """A login begins."""
        self.may_ask = not self._asked and not isinstance(self.asker, NonInteractivePrompter)

    async def ask_operator(
        self, host: str, name: str, instructions: str, prompts: Sequence[LoginPrompt]
    ) -> Sequence[str] | None:
        """Return what the operator answers, None for no answer."""
        self._asked = self._asked or bool(prompts)
        shown = tuple(LoginPrompt(one.text[:_MAX_PROMPT_CHARS], one.is_echoed) for one in prompts)
        return await self.asker.ask_login(
            LoginQuestion(node=self.node, host=host, name=name[:_MAX_PROMPT_CHARS], instructions=instructions[:_MAX_INSTRUCTION_CHARS], prompts=shown)
        )  # fmt: skip


class KeyboardInteractive:
    """What one server asks in one login. ``patience`` is the login's time limit: it stands still while somebody types."""

    def __init__(self, questions: LoginPrompter, host: str, limit: float) -> None:
        self._questions, self._host, self._limit = questions, host, limit
        self.login_timeout: asyncio.Timeout | None = None
        self._tries = 0
        self.is_refused = False  # it wanted to ask, and nobody may be asked
        self.was_cancelled = False
        self.was_asked = False

    def offer_submethods(self) -> str | None:
        """Return how we would be asked: as the server likes; None for not at all, which it is not told to begin then."""
        if not self._questions.may_ask:
            self.is_refused = True
            return None
        self._tries += 1
        return None if self.was_cancelled or self._tries > _MAX_TRIES else ""

    async def answer_prompts(
        self, name: str, instructions: str, prompts: Sequence[tuple[str, bool]]
    ) -> Sequence[str] | None:
        """Return an answer for each prompt (the text, whether what is typed may be seen), None for none at all."""
        if len(prompts) > _MAX_PROMPTS:
            return None
        if not prompts and not (name.strip() or instructions.strip()):
            return ()
        self.was_asked = self.was_asked or bool(prompts)
        self.extend_timeout(None)
        try:
            found = await self._questions.ask_operator(
                self._host, name, instructions, [LoginPrompt(text, echoed) for text, echoed in prompts]
            )
        finally:
            self.extend_timeout(self._limit)
        self.was_cancelled = found is None
        return found

    def extend_timeout(self, seconds: float | None) -> None:
        """Let the login take so long from now on; None: as long as it takes."""
        if self.login_timeout is not None:
            with suppress(RuntimeError):  # it is over
                loop = asyncio.get_running_loop()
                self.login_timeout.reschedule(None if seconds is None else loop.time() + seconds)
