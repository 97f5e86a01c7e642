"""Questions that only the operator can answer, asked by operations without knowing who shows them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from sparkctl.model.node import NodeName


@dataclass(frozen=True, slots=True)
class ConfirmHostKey:
    """First contact: is this fingerprint the node's? Answered yes or no."""

    node: NodeName
    host: str
    fingerprint: str


@dataclass(frozen=True, slots=True)
class SudoPassword:
    """The node user's sudo password, for one command; never kept."""

    node: NodeName
    purpose: str


@dataclass(frozen=True, slots=True)
class StartAgain:
    """The last starts of this profile failed, one after the other: start it once more? Answered yes or no.

    ``failures``: (unix seconds, how it ended), oldest first.
    """

    node: NodeName
    profile: str
    failures: tuple[tuple[float, str], ...]


class Asker(Protocol):
    """Whoever can ask: a terminal, the panel's dialogs, or nobody."""

    async def confirm(self, question: ConfirmHostKey | StartAgain) -> bool:
        """Return whether the operator said yes."""
        ...

    async def password(self, question: SudoPassword) -> str | None:
        """Return the password, None where nobody can or wants to give one."""
        ...


class Nobody:
    """Answers no and nothing: scripts, pipes and tests."""

    async def confirm(self, question: ConfirmHostKey | StartAgain) -> bool:
        """Return False."""
        return False

    async def password(self, question: SudoPassword) -> str | None:
        """Return None."""
        return None
