"""The journal of a switch on a node: read, written before each step, and removed when there is nothing to finish."""

from __future__ import annotations

import time
from collections.abc import Sequence

from sparkctl.core import journal as text_of
from sparkctl.core.context import Context
from sparkctl.core.session import Session
from sparkctl.errors import Refused
from sparkctl.model.node import NodeName
from sparkctl.model.switch import FORWARD, Found, Journal, JournalView, SwitchStep
from sparkctl.probe import journal as travelling
from sparkctl.probe.look import JournalFile

_TIMEOUT = 20.0  # seconds: it is written through to the disk


class SwitchUnderway(Refused):
    """A switch goes on here, or was left: nothing else is changed meanwhile."""


async def read(session: Session) -> JournalView:
    """Return the journal that lies on a node. Raises `NodeError`."""
    return (await lying(session))[0]


async def lying(session: Session) -> tuple[JournalView, str]:
    """Return the journal that lies on a node, and its very text: an older version may have written less. Raises `NodeError`."""
    seen = (await session.look("journal")).journal
    return view_of(seen), travelling.NOTHING if seen is None else seen.text


def view_of(seen: JournalFile | None) -> JournalView:
    """Return what was found; one that is damaged, or another user's, is there and unknown."""
    if seen is None:
        return JournalView(Found.UNREADABLE, why="the node did not say")
    if seen.state == "none":
        return JournalView(Found.NONE, is_held=seen.is_held)
    if seen.state != "ours":
        return JournalView(Found.UNREADABLE, None, seen.is_held, "it belongs to another user")
    try:
        return JournalView(Found.READ, text_of.decode(seen.text), seen.is_held)
    except ValueError as damaged:
        return JournalView(Found.UNREADABLE, None, seen.is_held, f"it is damaged ({damaged})")


async def write(session: Session, text: str, over: Sequence[str]) -> bool:
    """Write it, whole or not at all, where one of the texts ``over`` lies, or nothing; False where something else does.

    Raises `NodeError`, and `Refused` where the node does not take it.
    """
    return await _run(session, travelling.writing(text, over), "written")


async def remove(session: Session, over: Sequence[str]) -> bool:
    """Remove it; as `write` does."""
    return await _run(session, travelling.removing(over), "removed")


async def _run(session: Session, argv: list[str], what: str) -> bool:
    done = await session.run(argv, stdin=travelling.script(), timeout=_TIMEOUT)
    match travelling.answered(done.stdout):
        case travelling.Answer.DONE:
            return True
        case travelling.Answer.OTHER:
            return False
    said = done.stderr.decode("utf-8", "replace").strip().splitlines()
    name = session.node.name
    raise Refused(
        f"the journal of the switch could not be {what} on {name}" + (f": {said[-1]}" if said else ""),
        f"on {name}: df -h ~; ls -ld {travelling.PATH}",
    )


async def refuse_during(session: Session, *, is_held: bool) -> None:
    """Raise `SwitchUnderway` where a switch goes on (``is_held``: somebody else has the lock) or was left."""
    view = await read(session)
    if view.found is Found.NONE:
        return
    raise underway(session.node.name, view, is_held=is_held)


def refuse_seen(node: NodeName, ctx: Context, seen: JournalFile | None) -> None:
    """The same by a look that was made anyway; steps of the switch itself, which hold the node's lock, are let through."""
    view = view_of(seen)
    if node not in ctx.holds and view.found is not Found.NONE:
        raise underway(node, view, is_held=view.is_held)


def underway(node: str, view: JournalView, *, is_held: bool) -> SwitchUnderway:
    """Return the refusal of anything else."""
    if view.journal is None:
        return SwitchUnderway(
            f"a journal of a switch lies on {node}, and {view.why}: what it was about is not known",
            f"look at it on {node}: {travelling.PATH}; what runs: sparkctl status; once nothing is left to finish, remove it",
        )
    hint = f"wait for it: sparkctl status --node {node} --watch" if is_held else ways(view.journal, node)
    return SwitchUnderway(f"{node}: {words(view.journal, is_held=is_held)}", hint)


def ways(journal: Journal, node: str | None = None) -> str:
    """Return what can be done about a switch that was left, a line each: only what is not refused at its step."""
    where = f"--node {node or journal.touched[0]}"
    new, old = journal.instance, " and ".join(journal.stops) or "what was stopped"
    resume, abort = f"sparkctl resume {where}", f"sparkctl abort {where}"
    match journal.step:
        case SwitchStep.CLEARING | SwitchStep.DONE:
            return f"{new} serves; clear away the rest of {old}: {resume}"
        case SwitchStep.UNDOING | SwitchStep.RESTORING | SwitchStep.RESTORED:
            return f"bring {old} back: {resume}\n{neither(where)}"
        case SwitchStep.LEFT:
            return f"bring {old} back: {abort}\nstart {new} once more: {resume}\n{neither(where)}"
        case SwitchStep.CHECKING:
            return f"begin anew: {resume}\nforget it, nothing had been stopped: {abort}"
        case _:
            return f"finish it: {resume}\nbring {old} back: {abort}\n{neither(where)}"


def neither(where: str) -> str:
    """Return how a switch is ended with nothing of it left; ``where`` names its node, as a flag."""
    return f"give it up, with neither serving: sparkctl abort --give-up {where}"


def words(journal: Journal, *, is_held: bool) -> str:
    """Return ``switch to qwen36 in progress, step 3 of 6 (releasing), by milo@laptop since 14:02``."""
    state = "in progress" if is_held else "was left"
    since = time.strftime("%H:%M", time.localtime(journal.since))
    if journal.step is SwitchStep.LEFT and not is_held:
        return f"{journal.instance} failed and is left for study (--no-rollback), by {journal.operator} since {since}"
    return f"switch to {journal.instance} {state}, {step_number(journal.step)}, by {journal.operator} since {since}"


def step_number(step: SwitchStep) -> str:
    """Return ``step 3 of 6 (releasing)``; the way back has no numbers."""
    if step is SwitchStep.LEFT:
        return "the new one's failure, for study"
    return (
        f"step {FORWARD.index(step) + 1} of {len(FORWARD)} ({step})" if step in FORWARD else f"on its way back ({step})"
    )
