"""Questions on the terminal, asked beside the event loop."""

from __future__ import annotations

import asyncio
import getpass
import sys

from sparkctl.cli import narrate
from sparkctl.model.ask import Asker, ConfirmHostKey, Nobody, SudoPassword


class Terminal:
    """Asks on the terminal: answers come from its keyboard, never from a pipe."""

    async def confirm(self, question: ConfirmHostKey) -> bool:
        """Ask about a host key; only a written yes counts, as with ssh."""
        narrate.say(f"{question.node} ({question.host}) is not known yet. Its key is\n  {question.fingerprint}")
        narrate.say("Compare it with the node's own: ssh-keygen -lf /etc/ssh/ssh_host_ed25519_key.pub")
        answer = await asyncio.to_thread(_line, "Is it the same, connect and remember it? [yes/no] ")
        return answer.strip().lower() == "yes"

    async def password(self, question: SudoPassword) -> str | None:
        """Ask for the sudo password without echo; an empty answer means no."""
        narrate.say(f"{question.node}: to {question.purpose}, sudo wants your password there (empty: go on without)")
        try:
            return await asyncio.to_thread(getpass.getpass, f"password on {question.node}: ") or None
        except (EOFError, KeyboardInterrupt):
            return None


def _line(prompt: str) -> str:
    sys.stderr.write(prompt)
    sys.stderr.flush()
    return sys.stdin.readline()


def asker(*, allowed: bool = True) -> Asker:
    """Return who can ask: the terminal, where there is one on both sides."""
    return Terminal() if allowed and sys.stdin.isatty() and sys.stderr.isatty() else Nobody()
