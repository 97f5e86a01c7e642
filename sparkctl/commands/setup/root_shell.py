"""Runs the set-up's program as root on a node: with sudo's password where it wants one, which is asked for once and not kept."""

from __future__ import annotations

from sparkctl.context import CommandContext
from sparkctl.errors import OperationRefused, UnreadableAnswer
from sparkctl.model.questions import SudoPasswordQuestion
from sparkctl.model.text.sanitize import sanitize_line
from sparkctl.node.setup_program import SCRIPT_MARKER, SetupReport, build_program, decode_report
from sparkctl.transport.node_session import NodeSession

_SUDO_TIMEOUT_SECONDS = 30.0  # seconds: PAM delays a wrong password
_PROGRAM_TIMEOUT_SECONDS = 90.0  # seconds: netplan waits for its backend
_MAX_TRIES = 3
# Lines before the program's first are dropped: where sudo asks for no password after all, it is not run as a command.
_SHELL = ("sh", "-c", f"while IFS= read -r line; do [ \"$line\" = '{SCRIPT_MARKER}' ] && exec sh -s; done")


class SudoRefused(OperationRefused):
    """The node's user may not become root there, or gave no password."""


class PasswordHolder:
    """The password of this one command: tried on each node in turn, asked for where none or another is right."""

    def __init__(self, ctx: CommandContext) -> None:
        self._ctx = ctx
        self._password: str | None = None

    async def find_password(self, session: NodeSession) -> str:
        """Return the password for a node. Raises `SudoRefused`."""
        if self._password is not None and await self._is_right(session, self._password) is None:
            return self._password
        said = "a password is required"
        for _ in range(_MAX_TRIES):
            question = SudoPasswordQuestion(session.node.name, "make these changes")
            password = await self._ctx.asker.ask_password(question)
            if not password:
                break
            said = await self._is_right(session, password) or ""
            if not said:
                self._password = password
                return password
        raise SudoRefused(
            f"sudo on {session.node.name} does not let this user make the changes ({said})",
            "on a terminal sparkctl asks for the password; sudo needs none where the user has NOPASSWD",
        )

    async def _is_right(self, session: NodeSession, password: str) -> str | None:
        """Return None for the right password, else what sudo says. Only one line is on stdin, so sudo tries once."""
        done = await session.run(
            ["sudo", "-S", "-k", "-p", "", "true"], stdin=password.encode() + b"\n", timeout=_SUDO_TIMEOUT_SECONDS
        )
        if done.status == 0:
            return None
        lines = [sanitize_line(line) for line in done.stderr.decode("utf-8", "replace").splitlines() if line.strip()]
        return lines[-1] if lines else "it gave no reason"


class RootShell:
    """One node's root shell: each `run` is one call of sudo. Without a holder it is a shell of the node's own user."""

    def __init__(self, session: NodeSession, holder: PasswordHolder | None) -> None:
        self.session = session
        self._holder = holder
        self._argv: tuple[str, ...] | None = None
        self._first_line = b""

    async def prepare(self) -> None:
        """Find out how to become root. Raises `SudoRefused`."""
        if self._holder is None:
            self._argv = _SHELL
            return
        who = await self.session.run(["id", "-u"])
        if who.stdout.strip() == b"0":
            self._argv = _SHELL
        elif (await self.session.run(["sudo", "-n", "true"], timeout=_SUDO_TIMEOUT_SECONDS)).status == 0:
            self._argv = ("sudo", "-n", *_SHELL)
        else:
            self._first_line = (await self._holder.find_password(self.session)).encode() + b"\n"
            self._argv = ("sudo", "-S", "-k", "-p", "", *_SHELL)

    async def run(self, *calls: str, timeout: float = _PROGRAM_TIMEOUT_SECONDS) -> SetupReport:
        """Run calls and return what they printed. Raises `OperationRefused` where one failed."""
        if self._argv is None:
            await self.prepare()
        assert self._argv is not None
        own = ("as_user",) if self._holder is None else ()
        done = await self.session.run(self._argv, stdin=self._first_line + build_program(*own, *calls), timeout=timeout)
        report = decode_report(done.stdout)
        name = self.session.node.name
        if not report.began:
            lines = done.stderr.decode("utf-8", "replace").strip().splitlines() or [f"it ended with {done.status}"]
            raise SudoRefused(
                f"{'the shell' if self._holder is None else 'sudo'} on {name} did not run the set-up: {sanitize_line(lines[-1])}",
                None if self._holder is None else f"on {name}: sudo -l",
            )
        if report.failure is not None:
            raise OperationRefused(f"{name}: {report.failure}", None)
        if report.changed_path is not None:
            raise OperationRefused(
                f"{name}: {report.changed_path} changed after it was shown; it was left as it is",
                "look at it again: sparkctl setup",
            )
        if "end" not in report.words and not report.words & {"late"}:
            lines = done.stderr.decode("utf-8", "replace").strip().splitlines()
            why = f": {sanitize_line(lines[-1])}" if lines else ""
            raise UnreadableAnswer(
                name,
                f"the set-up on {name} broke off{why}",
                f"see its state: sparkctl setup {name} --dry-run",
            )
        return report
