"""Reads, writes and removes the journal of a switch on a node. It is written before each step of the switch."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Sequence
from dataclasses import asdict
from enum import StrEnum
from typing import TYPE_CHECKING

from sparkctl.context import CommandContext
from sparkctl.errors import OperationRefused
from sparkctl.model.json_codec import from_json_data
from sparkctl.model.node import NodeName
from sparkctl.model.switch_plan import FORWARD_STEPS, JournalPresence, SwitchJournal, SwitchJournalStatus, SwitchStep
from sparkctl.model.text.sanitize import sanitize_line, truncate_text
from sparkctl.model.text.units import format_time_of_day
from sparkctl.node import build_script_command, read_node_script
from sparkctl.node.node_inspection import JournalFile
from sparkctl.transport.node_session import NodeSession

if TYPE_CHECKING:
    from sparkctl.model.events import Emit

SCRIPT_MARKER = "# sparkctl journal 1"
NO_JOURNAL = ""  # the text if there is no journal
JOURNAL_PATH = "${XDG_STATE_HOME:-~/.local/state}/sparkctl/switch.json"  # its path as shown to the operator


class JournalWriteResult(StrEnum):
    """What the script did. ``OTHER``: nothing, since something else is there."""

    DONE = "done"
    OTHER = "other"
    FAILED = "failed"


def decode_write_result(answer: bytes) -> JournalWriteResult:
    lines = answer.splitlines()
    if b"@@ written" in lines or b"@@ removed" in lines:
        return JournalWriteResult.DONE
    return JournalWriteResult.OTHER if b"@@ other" in lines else JournalWriteResult.FAILED


JOURNAL_SCHEMA_VERSION = 1
_ID_PATTERN = re.compile(r"[0-9a-f]{12,64}")
_MAX_ITEMS = 256  # maximum nodes, words and containers
_MAX_TEXT_CHARS = 4096


def encode_switch_journal(journal: SwitchJournal) -> str:
    """Return one line of JSON."""
    return json.dumps({"schema": JOURNAL_SCHEMA_VERSION, **asdict(journal)}, ensure_ascii=True, separators=(",", ":"))


def decode_switch_journal(text: str) -> SwitchJournal:
    """Return the journal in a text. Raises ValueError if it is damaged, or of another version."""
    try:
        data = json.loads(text)
    except RecursionError as deep:
        raise ValueError("nested too deeply") from deep
    if not isinstance(data, dict) or data.get("schema") != JOURNAL_SCHEMA_VERSION:
        raise ValueError("not a journal that this version of sparkctl reads")
    journal = from_json_data(SwitchJournal, data)
    for name in ("words", "nodes", "stops", "old", "need_nodes", "ran_before", "unproved"):
        if len(getattr(journal, name)) > _MAX_ITEMS:
            raise ValueError(f"{name} is too long")
    texts = (journal.operator, journal.instance, journal.profile_hash, *journal.words, *journal.nodes, *journal.stops)
    for text in (*texts, *journal.need_nodes, *journal.unproved, *(node for node, _ in journal.old)):
        if len(text) > _MAX_TEXT_CHARS or sanitize_line(text) != text:
            raise ValueError(f"no usable text: {truncate_text(sanitize_line(text), 40)}")
    ids = (journal.id, *journal.ran_before, *(container for _, container in journal.old))
    if not all(_ID_PATTERN.fullmatch(one) for one in ids):
        raise ValueError("no usable id")
    if not abs(journal.since) <= 1e12:  # nor NaN
        raise ValueError("since is no time")
    if journal.timeout is not None and not 0 < journal.timeout < 1e6:
        raise ValueError("timeout is no number of seconds")
    return journal


_TIMEOUT_SECONDS = 20.0  # seconds: the write includes a sync to disk


class SwitchInProgress(OperationRefused):
    """A switch runs on the node (``is_held``) or was left unfinished: nothing else may change it meanwhile."""

    def __init__(self, message: str, hint: str, *, is_held: bool = False) -> None:
        super().__init__(message, hint)
        self.is_held = is_held


async def read_journal(session: NodeSession) -> SwitchJournalStatus:
    """Return the journal on a node. Raises `NodeError`."""
    return (await read_journal_with_text(session))[0]


async def read_journal_with_text(session: NodeSession) -> tuple[SwitchJournalStatus, str]:
    """Return the journal on a node and its exact text, as an older version may have written fewer fields. Raises `NodeError`."""
    seen = (await session.read_node("journal")).journal
    return build_journal_view(seen), NO_JOURNAL if seen is None else seen.text


def build_journal_view(seen: JournalFile | None) -> SwitchJournalStatus:
    """Return the journal's status; a damaged journal, or another user's, exists but is unreadable."""
    if seen is None:
        return SwitchJournalStatus(JournalPresence.UNREADABLE, why="the node did not report it")
    if seen.state == "none":
        return SwitchJournalStatus(JournalPresence.NONE, is_held=seen.is_held)
    if seen.state != "ours":
        return SwitchJournalStatus(JournalPresence.UNREADABLE, None, seen.is_held, "it belongs to another user")
    try:
        return SwitchJournalStatus(JournalPresence.READ, decode_switch_journal(seen.text), seen.is_held)
    except ValueError as damaged:
        return SwitchJournalStatus(JournalPresence.UNREADABLE, None, seen.is_held, f"it is damaged ({damaged})")


async def write_journal(session: NodeSession, text: str, over: Sequence[str]) -> bool:
    """Write the journal, completely or not at all. Return False if another text than one of ``over`` is there; `NO_JOURNAL` stands
    for none.

    Raises `NodeError`, and `OperationRefused` if the node cannot store it.
    """
    return await _run_journal_script(session, ["write", text, *over], "written")


async def remove_journal(session: NodeSession, over: Sequence[str]) -> bool:
    """Remove the journal, under the same conditions as `write_journal`."""
    return await _run_journal_script(session, ["remove", *over], "removed")


async def _run_journal_script(session: NodeSession, words: list[str], what: str) -> bool:
    script = read_node_script("switch_journal.sh")
    done = await session.run(build_script_command(*words), stdin=script, timeout=_TIMEOUT_SECONDS)
    match decode_write_result(done.stdout):
        case JournalWriteResult.DONE:
            return True
        case JournalWriteResult.OTHER:
            return False
    name, why = session.node.name, done.last_error
    raise OperationRefused(
        f"the journal of the switch could not be {what} on {name}" + (f": {why}" if why else ""),
        f"on {name}: df -h ~; ls -ld {JOURNAL_PATH}",
    )


async def refuse_during_switch(session: NodeSession, *, is_held: bool) -> None:
    """Raise `SwitchInProgress` if a switch runs (``is_held``: another process holds the lock) or was left unfinished."""
    view = await read_journal(session)
    if view.found is JournalPresence.NONE:
        return
    raise build_switch_refusal(session.node.name, view, is_held=is_held)


def refuse_if_journal_found(
    node: NodeName, ctx: CommandContext, seen: JournalFile | None, emit_warning: Emit | None = None
) -> None:
    """Do the same with a journal that was already read; steps of the switch itself, which hold the node's lock, may go on.

    ``emit_warning``: given for a dry run. It changes nothing, so a switch that runs is only a warning.
    """
    view = build_journal_view(seen)
    if node in ctx.holds or view.found is JournalPresence.NONE:
        return
    refusal = build_switch_refusal(node, view, is_held=view.is_held)
    if emit_warning is None or not view.is_held:
        raise refusal
    from sparkctl.model.events import WarningEmitted  # `status` needs none of the events

    emit_warning(WarningEmitted(ctx.clock.unix_time(), node, refusal.message, refusal.hint))


def build_switch_refusal(node: str, view: SwitchJournalStatus, *, is_held: bool) -> SwitchInProgress:
    """Return the error that refuses other operations during a switch."""
    if view.journal is None:
        return SwitchInProgress(
            f"there is a journal of a switch on {node}, but {view.why}: its content is not known",
            f"look at it on {node}: {JOURNAL_PATH}; what runs: sparkctl status; once nothing is left to finish, remove it",
        )
    hint = (
        f"wait for it: sparkctl status --node {node} --watch" if is_held else list_finish_commands(view.journal, node)
    )
    return SwitchInProgress(f"{node}: {describe_switch(view.journal, is_held=is_held)}", hint, is_held=is_held)


def list_finish_commands(journal: SwitchJournal, node: str | None = None) -> str:
    """Return the commands that can finish an interrupted switch at its step, one a line."""
    where = f"--node {node or journal.affected_nodes[0]}"
    new, old = journal.instance, " and ".join(journal.stops) or "what was stopped"
    resume, abort = f"sparkctl resume {where}", f"sparkctl abort {where}"
    match journal.step:
        case SwitchStep.CLEARING | SwitchStep.DONE:
            return f"{new} serves; clear away the rest of {old}: {resume}"
        case SwitchStep.UNDOING | SwitchStep.RESTORING | SwitchStep.RESTORED:
            return f"bring {old} back: {resume}\n{format_abandon_command(where)}"
        case SwitchStep.LEFT:
            return f"bring {old} back: {abort}\ntry {new} again: {resume}\n{format_abandon_command(where)}"
        case SwitchStep.CHECKING:
            return f"start over: {resume}\nforget it, nothing had been stopped: {abort}"
        case _:
            return f"finish it: {resume}\nbring {old} back: {abort}\n{format_abandon_command(where)}"


def list_start_commands(journal: SwitchJournal) -> str:
    """Return the commands that start each of what was stopped, and the new one, where neither serves any more; one a line."""
    old = [f"start {name} again: sparkctl up {name} {journal.old_node_options}" for name in journal.stops]
    profile, *settings = journal.words or (journal.instance,)
    nodes = (word for node in journal.nodes for word in ("--node", node))
    return "\n".join([*old, f"or try the new one: {shlex.join(['sparkctl', 'up', profile, *nodes, *settings])}"])


def format_abandon_command(where: str) -> str:
    """Return the command that gives a switch up; ``where`` names its node, as a flag."""
    return f"give it up, with neither serving: sparkctl abort --give-up {where}"


def describe_switch(journal: SwitchJournal, *, is_held: bool) -> str:
    """Return ``switch to qwen36 in progress, step 3 of 6 (releasing), by milo@laptop since 14:02``."""
    state = "in progress" if is_held else "was left"
    since = format_time_of_day(journal.since)
    if journal.step is SwitchStep.LEFT and not is_held:
        return (
            f"{journal.instance} failed and is kept for analysis (--no-rollback), by {journal.operator} since {since}"
        )
    return (
        f"switch to {journal.instance} {state}, {format_step_number(journal.step)}, by {journal.operator} since {since}"
    )


def format_step_number(step: SwitchStep) -> str:
    """Return ``step 3 of 6 (releasing)``; the rollback has no numbers."""
    if step is SwitchStep.LEFT:
        return "the new one's failure, for analysis"
    return (
        f"step {FORWARD_STEPS.index(step) + 1} of {len(FORWARD_STEPS)} ({step})"
        if step in FORWARD_STEPS
        else f"on its way back ({step})"
    )
