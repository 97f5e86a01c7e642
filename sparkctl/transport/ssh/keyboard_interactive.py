"""Keyboard-interactive SSH login: passes a server's prompts (second factor, password) to the operator."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress

from sparkctl.model.node import NodeName
from sparkctl.model.questions import LoginPrompt, LoginQuestion, NonInteractivePrompter, Prompter

_MAX_TRIES = 3  # rounds of prompts by one server in one login, as in ssh
_MAX_PROMPTS = 10
_MAX_PROMPT_CHARS = 500  # characters of a prompt
_MAX_INSTRUCTION_CHARS = 2000  # characters of the instruction above the prompts


class LoginPrompter:
    """Prompts the operator in one login of a connection. Later logins never prompt, so that reconnects in the background do
    not ask again and again."""

    def __init__(self, node: NodeName, asker: Prompter, password: str | None = None) -> None:
        self.node, self.asker = node, asker
        self.password = password  # of the user on the node, for a login without a key; None: no such login
        self._asked = False
        self.may_ask = False

    def begin_login(self) -> None:
        """Decide whether the login that begins may prompt."""
        self.may_ask = not self._asked and not isinstance(self.asker, NonInteractivePrompter)

    async def ask_operator(
        self, host: str, name: str, instructions: str, prompts: Sequence[LoginPrompt]
    ) -> Sequence[str] | None:
        """Return the operator's answers, None for no answer."""
        self._asked = self._asked or bool(prompts)
        shown = tuple(LoginPrompt(one.text[:_MAX_PROMPT_CHARS], one.is_echoed) for one in prompts)
        return await self.asker.ask_login(
            LoginQuestion(node=self.node, host=host, name=name[:_MAX_PROMPT_CHARS], instructions=instructions[:_MAX_INSTRUCTION_CHARS], prompts=shown)
        )  # fmt: skip


class KeyboardInteractive:
    """The prompts of one server in one login. ``limit``: seconds for the login, which pause while the operator types."""

    def __init__(self, questions: LoginPrompter, host: str, limit: float) -> None:
        self._questions, self._host, self._limit = questions, host, limit
        self.login_timeout: asyncio.Timeout | None = None
        self._tries = 0
        self.is_refused = False  # the server wanted to prompt, but prompts are not allowed
        self.was_cancelled = False
        self.was_asked = False

    def take_password(self) -> str | None:
        """Return the password for a login without a key, once; None: there is none, or it was wrong."""
        password, self._questions.password = self._questions.password, None
        return password

    def offer_submethods(self) -> str | None:
        """Return the submethods: empty for the server's choice; None to skip the method: no more prompts."""
        if not self._questions.may_ask:
            self.is_refused = True
            return None
        self._tries += 1
        return None if self.was_cancelled or self._tries > _MAX_TRIES else ""

    async def answer_prompts(
        self, name: str, instructions: str, prompts: Sequence[tuple[str, bool]]
    ) -> Sequence[str] | None:
        """Return an answer for each prompt (the text, whether what is typed may be seen), None for no answer."""
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
        """Set the login's time limit from now on; None: no limit."""
        if self.login_timeout is not None:
            with suppress(RuntimeError):  # the login is over
                loop = asyncio.get_running_loop()
                self.login_timeout.reschedule(None if seconds is None else loop.time() + seconds)
