"""Lets the users of the Sparks log in at each other's without a password: TRT-LLM over several Sparks starts its ranks so.

Runs as the nodes' own users (`node/peer_login.sh`); a private key never leaves its node and is never shown.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from sparkctl.concurrency import gather_or_cancel
from sparkctl.errors import OperationRefused, UnreadableAnswer
from sparkctl.model.node import NodeName
from sparkctl.model.setup_plan import FileChange, SetupStep, SetupStepKind
from sparkctl.model.text.sanitize import sanitize_line
from sparkctl.node.setup_program import ABSENT, decode_base64_text
from sparkctl.transport.node_session import NodeSession

_MAX_KEY_CHARS = 16_384
_NEW_KEY_FILE = "~/.ssh/id_ed25519"


@dataclass(frozen=True, slots=True, kw_only=True)
class LoginFiles:
    """What a node's user has: ``key`` the public half of a key without a passphrase; ``sum`` and ``text`` of authorized_keys."""

    key: str | None
    locked: tuple[str, ...]
    path: str
    sum: str
    text: str
    has_record: bool


@dataclass(frozen=True, slots=True)
class PeerLogins:
    """The nodes between which logins are to work, and what was read there."""

    sessions: Mapping[NodeName, NodeSession]
    found: Mapping[NodeName, LoginFiles]

    def plan_steps(self) -> dict[NodeName, SetupStep]:
        """Return what is to be done on each node; a node with nothing to do is not in it. Raises `OperationRefused`."""
        steps = {}
        for node, files in self.found.items():
            changes = []
            if files.key is None:
                if any(Path(path).name == Path(_NEW_KEY_FILE).name for path in files.locked):
                    raise OperationRefused(
                        f"{node}: {files.locked[0]} has a passphrase, so no program there can log in by it",
                        f"on {node}: ssh-keygen -p -f {files.locked[0]} takes it away; or move the key elsewhere",
                    )
                changes.append(FileChange(_NEW_KEY_FILE, None, "(a new key without a passphrase, made on the node)\n"))
            if lines := [self._format_line(peer) for peer in self._list_missing(node)]:
                before = files.text if files.sum != ABSENT else None
                start = files.text + ("" if not files.text or files.text.endswith("\n") else "\n")
                changes.append(FileChange(files.path, before, start + "".join(f"{line}\n" for line in lines)))
            if changes:
                peers = " and ".join(peer for peer in self.found if peer != node)
                words = f"its user and that of {peers} may log in at each other's without a password"
                steps[node] = SetupStep(SetupStepKind.PEER_LOGIN, words, tuple(changes))
        return steps

    async def apply(self) -> list[NodeName]:
        """Make the keys that are missing, then put each into the lists of the others. Returns the nodes that were changed."""
        made = await gather_or_cancel(
            *(
                _run(self.sessions[node], f"make_key {shlex.quote(f'sparkctl {node}')}")
                for node, files in self.found.items()
                if files.key is None
            )
        )
        keys = {node: files.key for node, files in self.found.items()}
        for node, answer in zip([node for node, key in keys.items() if key is None], made, strict=True):
            keys[node] = _read_key(node, answer)
        changed = [node for node, files in self.found.items() if files.key is None]
        for node, files in self.found.items():
            now = files.sum
            for peer in self._list_missing(node):
                line = f"{keys[peer]} sparkctl {peer}"
                await _run(self.sessions[node], f"admit {now} {shlex.quote(line)}")
                now = (await _read_files(self.sessions[node])).sum
                changed.append(node)
        return list(dict.fromkeys(changed))

    def _list_missing(self, node: NodeName) -> list[NodeName]:
        """Return the nodes whose key is not in this one's list."""
        listed = {" ".join(words[:2]) for line in self.found[node].text.splitlines() if len(words := line.split()) > 1}
        keys = {peer: files.key for peer, files in self.found.items() if peer != node}
        return [peer for peer, key in keys.items() if key is None or " ".join(key.split()[:2]) not in listed]

    def _format_line(self, peer: NodeName) -> str:
        key = self.found[peer].key
        return f"{key} sparkctl {peer}" if key is not None else f"(the public half of {peer}'s new key)"


async def read_peer_logins(sessions: Sequence[NodeSession]) -> PeerLogins:
    """Return who may log in where. Raises `OperationRefused` where a node has no ssh-keygen, or its list is no plain file."""
    found = await gather_or_cancel(*(_read_files(session) for session in sessions))
    names = [session.node.name for session in sessions]
    return PeerLogins(dict(zip(names, sessions, strict=True)), dict(zip(names, found, strict=True)))


async def undo_peer_logins(session: NodeSession) -> tuple[str, ...]:
    """Take back what `PeerLogins.apply` changed on a node; return what could not be given back byte for byte, in words."""
    answer = await _run(session, "undo")
    return tuple(words for kind, words, _ in answer if kind == "warning")


_Answer = list[tuple[str, str, list[str]]]  # each line "@@ KIND WORDS" with the lines below it


async def _run(session: NodeSession, call: str) -> _Answer:
    script = (Path(__file__).parents[2] / "node" / "peer_login.sh").read_text()
    done = await session.run(["sh", "-s"], stdin=f"{script}\n{call}\n".encode(), timeout=30.0)
    answer: _Answer = []
    for line in done.stdout.decode("utf-8", "replace").splitlines():
        if line.startswith("@@ "):
            kind, _, words = line[3:].partition(" ")
            answer.append((kind, sanitize_line(words), []))
        elif answer:
            answer[-1][2].append(line)
    name = session.node.name
    if failed := next((words for kind, words, _ in answer if kind == "failed"), None):
        raise OperationRefused(f"{name}: {failed}", None)
    if not any(kind in ("done", "list", "key") for kind, _, _ in answer):
        lines = done.stderr.decode("utf-8", "replace").strip().splitlines() or ["no answer"]
        raise UnreadableAnswer(name, f"the set-up of logins on {name} broke off: {sanitize_line(lines[-1])}", None)
    return answer


async def _read_files(session: NodeSession) -> LoginFiles:
    answer, name = await _run(session, "show"), session.node.name
    for kind, words, below in answer:
        if kind == "list":
            path, _, digest = words.rpartition(" ")
            if digest == "other":
                raise OperationRefused(f"{path} on {name} is no plain file, so sparkctl does not touch it", None)
            return LoginFiles(
                key=_read_key(name, answer) if any(kind == "key" for kind, _, _ in answer) else None,
                locked=tuple(words for kind, words, _ in answer if kind == "locked"),
                path=path,
                sum=digest,
                text=decode_base64_text(below) or "",
                has_record=any(kind == "record" for kind, _, _ in answer),
            )
    raise UnreadableAnswer(name, f"{name} did not say who may log in there", None)


def _read_key(node: NodeName, answer: _Answer) -> str:
    """Return the type and the key, without its comment."""
    words = next((words for kind, words, _ in answer if kind == "key"), "").split()
    if len(words) < 2 or len(words[1]) > _MAX_KEY_CHARS or not words[0].startswith(("ssh-", "ecdsa-")):
        raise UnreadableAnswer(node, f"{node} gave no public key", None)
    return " ".join(words[:2])
