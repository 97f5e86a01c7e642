"""Questions that only the operator can answer, asked by operations without knowing who shows them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from sparkctl.model.node import NodeName


@dataclass(frozen=True, slots=True)
class HostKeyQuestion:
    """First contact: is this fingerprint the node's? Answered yes or no."""

    node: NodeName
    host: str
    fingerprint: str


@dataclass(frozen=True, slots=True)
class SudoPasswordQuestion:
    """The node user's sudo password, for one command; never kept."""

    node: NodeName
    purpose: str


@dataclass(frozen=True, slots=True)
class RetryStartQuestion:
    """The last starts of this profile failed, one after the other: start it once more? Answered yes or no.

    ``failures``: (unix seconds, how it ended), oldest first.
    """

    node: NodeName
    profile: str
    failures: tuple[tuple[float, str], ...]


@dataclass(frozen=True, slots=True)
class LoginPrompt:
    """One thing that an SSH server wants to know. ``text`` is its own; ``is_echoed``: what is typed may be seen."""

    text: str
    is_echoed: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class LoginQuestion:
    """What an SSH server asks before it lets the user in, as for a second factor; no answer is kept.

    ``name`` and ``instructions`` are the server's own words, each may be empty. Without prompts it only tells something.
    """

    node: NodeName
    host: str
    name: str
    instructions: str
    prompts: tuple[LoginPrompt, ...]


class Prompter(Protocol):
    """Whoever can ask: a terminal, the panel's dialogs, or nobody."""

    async def ask_yes_no(self, question: HostKeyQuestion | RetryStartQuestion) -> bool:
        """Return whether the operator said yes."""
        ...

    async def ask_password(self, question: SudoPasswordQuestion) -> str | None:
        """Return the password, None where nobody can or wants to give one."""
        ...

    async def ask_login(self, question: LoginQuestion) -> tuple[str, ...] | None:
        """Return an answer for each prompt, None where nobody can or wants to answer."""
        ...


class NonInteractivePrompter:
    """Answers no and nothing: scripts, pipes and tests."""

    async def ask_yes_no(self, question: HostKeyQuestion | RetryStartQuestion) -> bool:
        """Return False."""
        return False

    async def ask_password(self, question: SudoPasswordQuestion) -> str | None:
        """Return None."""
        return None

    async def ask_login(self, question: LoginQuestion) -> tuple[str, ...] | None:
        """Return None."""
        return None
