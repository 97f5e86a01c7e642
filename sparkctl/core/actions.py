"""Everything a key does, as one table: footer, help, palette, `:` line and keymap are made of it. Pure.

An action of a verb is written as the command line has it (`words`), so that a key, a palette entry and a typed line are
the same thing.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import TYPE_CHECKING

from sparkctl.model.node import NodeName, NodeState
from sparkctl.model.phase import Phase

if TYPE_CHECKING:  # the first picture is painted without them
    from sparkctl.core.store import LoadView
    from sparkctl.model.instance import InstanceView

FOOTER = 6  # what fits into 80 columns
_LOADING = (Phase.CREATING, Phase.STARTING, Phase.LOADING, Phase.WARMING)


class ActionId(StrEnum):
    """Closed. The names that ``keys:`` in the config knows."""

    UP = "up"
    DOWN = "down"
    INSTANCE = "instance"
    LOGS = "logs"
    DROP_CACHES = "drop-caches"
    PROFILES = "profiles"
    DOCTOR = "doctor"
    WRONG = "findings"
    RECONNECT = "reconnect"
    NEXT = "next-spark"
    PREVIOUS = "previous-spark"
    LOWER = "next-instance"
    UPPER = "previous-instance"
    PAUSE = "pause"
    COMMAND = "command"
    PALETTE = "palette"
    HELP = "help"
    BACK = "back"
    EDIT = "edit"
    FILTER = "filter"
    EXAMINE = "examine"
    COPY = "copy"
    MEND = "mend"
    FURTHER = "further"
    NEARER = "nearer"
    QUIT = "quit"
    QUIT_AT_ONCE = "quit-at-once"
    PLAN = "plan"
    COPY_VERDICT = "copy-verdict"
    LOG_FOLLOW = "log.follow"
    LOG_FIND = "log.find"
    LOG_ONLY = "log.only"
    LOG_NEXT = "log.next"
    LOG_PREVIOUS = "log.previous"
    LOG_FIRST_ERROR = "log.first_error"
    LOG_NEXT_MARK = "log.next_mark"
    LOG_PREVIOUS_MARK = "log.previous_mark"
    LOG_WRAP = "log.wrap"
    LOG_TIMES = "log.times"
    LOG_COPY = "log.copy"
    LOG_SAVE = "log.save"


@dataclass(frozen=True, slots=True)
class Situation:
    """What an action's availability depends on. ``screens`` are those that there are.

    What the screen in front has selected: ``profile``; a finding's ``remedy``, and the command line that is its ``deed``
    where it is one of ours; whether it ``has_verdict``: of its instance it is known why its start failed.
    """

    names: tuple[NodeName, ...] = ()
    views: tuple[LoadView, ...] = ()
    node: NodeName | None = None
    instance: str | None = None
    readonly: bool = False
    replaying: bool = False
    screens: frozenset[str] = frozenset()
    profile: str | None = None
    remedy: str | None = None
    deed: tuple[str, ...] | None = None
    has_verdict: bool = False

    @property
    def view(self) -> LoadView | None:
        """The selected node's, None without nodes."""
        return next((view for view in self.views if view.name == self.node), None)

    @property
    def selected(self) -> InstanceView | None:
        """The selected instance."""
        view = self.view
        return None if view is None else next((one for one in view.instances if one.name == self.instance), None)


Why = Callable[[Situation], str | None]  # None: it can be done; else why not
Words = Callable[[Situation], tuple[str, ...]]


@dataclass(frozen=True, slots=True)
class Action:
    """``short`` stands in the footer, ``title`` in palette and help. ``changes``: something on a node, so that
    ``--readonly`` removes it; ``confirm``: asks first, with Cancel as the default. ``verb`` and ``words`` are its command
    line. ``screen`` names the screen that it opens: without that there is no such action. ``on`` are the screens on which
    it means something; none: all of them."""

    id: ActionId
    keys: tuple[str, ...]
    short: str
    title: str
    why_not: Why = field(default=lambda _: None)
    changes: bool = False
    confirm: bool = False
    verb: str | None = None
    words: Words | None = None
    screen: str | None = None
    on: frozenset[str] = frozenset()
    footer: int | None = None  # its place among those of the footer, the smallest first


def _no_node(now: Situation) -> str | None:
    if now.replaying:
        return "this is a recording"
    if now.node is None:
        return "no Spark is configured"
    return f"{now.node} was not looked at yet" if now.view is None else None


def _node_silent(now: Situation) -> str | None:
    if why := _no_node(now):
        return why
    assert now.view is not None
    return None if now.view.state is NodeState.OK else f"{now.node} does not answer: {now.view.state}"


def _no_instance(now: Situation) -> str | None:
    if now.view is None:
        return "no Spark is configured" if now.node is None else f"{now.node} was not looked at yet"
    return None if now.selected is not None else f"nothing runs on {now.node}"


def _no_log(now: Situation) -> str | None:
    """An instance that is gone has a log, too: the one that was saved."""
    return None if now.instance is not None else _no_instance(now)


def _no_verdict(now: Situation) -> str | None:
    return None if now.has_verdict else "there is no verdict: no start that was watched here has failed"


def _cannot_stop(now: Situation) -> str | None:
    if why := _node_silent(now) or _no_instance(now):
        return why
    assert now.selected is not None
    return None if now.selected.ours else f"{now.selected.name} was not started by sparkctl and is left alone"


def _cannot_drop(now: Situation) -> str | None:
    if why := _node_silent(now):
        return why
    assert now.view is not None
    loading = [one.name for one in now.view.instances if one.phase in _LOADING]
    return f"{loading[0]} is loading on {now.node}, out of the page cache" if loading else None


def _nothing_wrong(now: Situation) -> str | None:
    if now.view is None:
        return "no Spark was looked at yet"
    return None if now.view.findings else f"nothing is found wrong with {now.node}"


def _is_connected(now: Situation) -> str | None:
    if why := _no_node(now):
        return why
    assert now.view is not None
    return f"{now.node} answers" if now.view.state is NodeState.OK else None


def _alone(now: Situation) -> str | None:
    return None if len(now.names) > 1 else "there is one Spark" if now.names else "no Spark is configured"


def _no_profile(now: Situation) -> str | None:
    return None if now.profile is not None else "no profile is selected"


def _cannot_copy(now: Situation) -> str | None:
    return None if now.remedy or now.profile else "there is nothing to copy"


def _cannot_mend(now: Situation) -> str | None:
    if now.remedy is None:
        return "no finding with a remedy is selected"
    return None if now.deed is not None else "this is for your own hands: y copies it"


def _on_node(verb: str) -> Words:
    return lambda now: (verb, "--node", str(now.node))


def _of_instance(verb: str) -> Words:
    return lambda now: (verb, str(now.instance), "--node", str(now.node))


OVERVIEW, INSTANCE, LOGS, PROFILES, DOCTOR = "overview", "instance", "logs", "profiles", "doctor"
_HERE = frozenset((OVERVIEW,))
_RUNNING = frozenset((OVERVIEW, INSTANCE))
_LISTS = frozenset((OVERVIEW, PROFILES, DOCTOR))
_READ = frozenset((PROFILES, DOCTOR))
_ONE = frozenset((INSTANCE,))
_LOG = frozenset((LOGS,))

ACTIONS: tuple[Action, ...] = (
    Action(ActionId.UP, ("u",), "up", "start a profile", _node_silent, changes=True, verb="up",
           on=_RUNNING | {PROFILES}, footer=0),
    Action(
        ActionId.DOWN, ("x",), "stop", "stop the instance and wait for its memory", _cannot_stop, changes=True,
        confirm=True, verb="down", words=_of_instance("down"), on=_RUNNING, footer=1,
    ),
    Action(ActionId.INSTANCE, ("enter",), "open", "open the instance", _no_instance, screen=INSTANCE, on=_HERE),
    Action(
        ActionId.LOGS, ("l",), "logs", "show the instance's log", _no_log, verb="logs", words=_of_instance("logs"),
        screen=LOGS, on=_RUNNING, footer=2,
    ),
    Action(
        ActionId.DROP_CACHES, ("c",), "drop caches", "drop the page cache, memory before and after", _cannot_drop,
        changes=True, verb="drop-caches", words=_on_node("drop-caches"), on=_RUNNING | {PROFILES}, footer=3,
    ),
    Action(ActionId.PROFILES, ("p",), "profiles", "show the profiles", verb="profiles", screen=PROFILES, footer=4),
    Action(
        ActionId.DOCTOR, ("!",), "doctor", "say what is missing on the Sparks", verb="doctor", screen=DOCTOR, footer=6,
    ),
    Action(ActionId.WRONG, ("i",), "findings", "say what is wrong, why, and what to do", _nothing_wrong, on=_RUNNING, footer=7),
    Action(ActionId.RECONNECT, ("r",), "try now", "connect to the Spark now", _is_connected, on=_RUNNING, footer=8),
    Action(ActionId.EDIT, ("e",), "edit", "edit the profile in your editor, and check it", _no_profile,
           on=frozenset((PROFILES,)), footer=1),
    Action(ActionId.FILTER, ("/",), "filter", "show only what matches: text, !text or /regex/",
           on=frozenset((PROFILES,)), footer=2),
    Action(ActionId.MEND, ("enter",), "do it", "do what the remedy says, where it is a command of ours", _cannot_mend,
           changes=True, confirm=True, on=frozenset((DOCTOR,)), footer=1),
    Action(ActionId.COPY, ("y",), "copy", "copy the command", _cannot_copy, on=_READ, footer=2),
    Action(ActionId.EXAMINE, ("r",), "again", "examine the Sparks again", _no_node, on=frozenset((DOCTOR,)), footer=0),
    Action(ActionId.NEXT, ("tab", "right"), "next", "the next Spark", _alone, on=_LISTS - {DOCTOR}),
    Action(ActionId.PREVIOUS, ("shift+tab", "left"), "previous", "the Spark before", _alone, on=_LISTS - {DOCTOR}),
    Action(ActionId.LOWER, ("down", "j"), "lower", "the next instance, profile or finding", on=_LISTS),
    Action(ActionId.UPPER, ("up", "k"), "upper", "the instance, profile or finding before", on=_LISTS),
    Action(ActionId.FURTHER, ("pagedown",), "further", "read on below", on=_READ),
    Action(ActionId.NEARER, ("pageup",), "nearer", "back in what is below", on=_READ),
    Action(ActionId.PAUSE, ("space",), "pause", "hold the picture; what happens is still taken in"),
    Action(ActionId.COMMAND, (":",), "command", "type a command, as on the command line", footer=9),
    Action(ActionId.PALETTE, ("ctrl+p",), "palette", "find an action by its name"),
    Action(ActionId.HELP, ("?", "f1"), "help", "all keys of this screen", footer=5),
    Action(ActionId.BACK, ("escape",), "back", "go back"),
    Action(ActionId.QUIT, ("q",), "quit", "go back; from the overview, end the panel"),
    Action(ActionId.QUIT_AT_ONCE, ("ctrl+q",), "end", "end the panel; engines go on running", footer=10),
    Action(ActionId.PLAN, ("d",), "plan", "what it runs with, in full", on=_ONE, footer=4),
    Action(ActionId.COPY_VERDICT, ("y",), "copy verdict", "copy why it failed, with its proof", _no_verdict, on=_ONE),
    Action(ActionId.LOG_FOLLOW, ("f",), "follow", "follow the log, or stay where you read", on=_LOG, footer=0),
    Action(ActionId.LOG_FIND, ("/",), "find", "find text, !text or /regex/ while it is typed", on=_LOG, footer=1),
    Action(ActionId.LOG_ONLY, ("&",), "only", "show only the lines that match", on=_LOG, footer=2),
    Action(ActionId.LOG_NEXT, ("n",), "next match", "the next match", on=_LOG),
    Action(ActionId.LOG_PREVIOUS, ("N",), "match before", "the match before", on=_LOG),
    Action(ActionId.LOG_FIRST_ERROR, ("E",), "first error", "the first error", on=_LOG, footer=3),
    Action(ActionId.LOG_NEXT_MARK, ("]",), "next mark", "the next ready line or failure", on=_LOG),
    Action(ActionId.LOG_PREVIOUS_MARK, ("[",), "mark before", "the ready line or failure before", on=_LOG),
    Action(ActionId.LOG_WRAP, ("w",), "wrap", "wrap long lines, or not", on=_LOG, footer=4),
    Action(ActionId.LOG_TIMES, ("t",), "times", "show when each line came, or not", on=_LOG),
    Action(ActionId.LOG_COPY, ("y",), "copy lines", "copy what is selected, else the line, else the screen", on=_LOG),
    Action(ActionId.LOG_SAVE, ("ctrl+s",), "save", "save the shown lines to a file", on=_LOG),
)  # fmt: skip

_BY_ID = {action.id: action for action in ACTIONS}


def action(name: str) -> Action:
    """Return an action by its id. Raises KeyError."""
    return _BY_ID[ActionId(name)]


def aimed(now: Situation, words: Sequence[str]) -> Situation:
    """Return the situation that a command line of a screen means: its instance and its node in place of the selected.

    Where no node is named it is the one on which that instance is, the selected one before others.
    """
    node, instance, rest = None, now.instance, list(words[1:])
    while rest:
        word, *rest = rest
        name, given, value = word.partition("=")
        if name in ("--node", "-n") and (given or rest):
            node = NodeName(value if given else rest.pop(0))
        elif not word.startswith("-"):
            instance = word
    if node is None:
        there = [view.name for view in now.views if any(one.name == instance for one in view.instances)]
        node = now.node if now.node in there or not there else there[0]
    return replace(now, node=node, instance=instance)


def there_are(now: Situation, keys: Iterable[tuple[str, tuple[str, ...]]] = ()) -> tuple[Action, ...]:
    """Return the actions that this panel has, with the operator's keys: those of screens that are there, and with
    ``readonly`` none that changes anything."""
    own = dict(keys)
    return tuple(
        _keyed(one, own.get(one.id))
        for one in ACTIONS
        if is_there(one, now.screens) and not (one.changes and now.readonly)
    )


def is_there(one: Action, screens: frozenset[str]) -> bool:
    """Tell whether the screens that it opens and is on are there."""
    return (one.screen is None or one.screen in screens) and (not one.on or bool(one.on & (screens | {OVERVIEW})))


def meant_on(actions: Iterable[Action], place: str) -> tuple[Action, ...]:
    """Return those that mean something on a screen; what opens the screen itself does not."""
    return tuple(one for one in actions if (not one.on or place in one.on) and one.screen != place)


def _meet(one: Action, other: Action) -> bool:
    return not one.on or not other.on or bool(one.on & other.on)


def _keyed(one: Action, keys: tuple[str, ...] | None) -> Action:
    if keys is None:
        return one
    return replace(one, keys=keys)


def available(actions: Sequence[Action], now: Situation) -> tuple[Action, ...]:
    """Return those that can be done now."""
    return tuple(one for one in actions if one.why_not(now) is None)


def for_footer(actions: Sequence[Action]) -> tuple[Action, ...]:
    """Return the six of the footer, a screen's own before what is on many; help is the last of them."""

    def rank(one: Action) -> tuple[int, int]:
        return one.footer or 0, len(one.on) or len(ActionId)

    placed = sorted((one for one in actions if one.footer is not None), key=rank)
    rest = [one for one in placed if one.id is not ActionId.HELP][: FOOTER - 1]
    return (*rest, *(one for one in placed if one.id is ActionId.HELP))


# --- keys -------------------------------------------------------------------------------------------------------------

_KEY = re.compile(r"(?:(?:ctrl|shift|alt)\+)*(?:[a-z][a-z0-9_]*|[a-zA-Z0-9])")
_NAMED = frozenset(
    ("up", "down", "left", "right", "home", "end", "pageup", "pagedown", "enter", "escape", "tab", "space", "backspace",
     "delete", "insert", *(f"f{number}" for number in range(1, 25)))
)  # fmt: skip
_TERMINALS_SAY = {
    "solidus": "slash", "reverse_solidus": "backslash", "commercial_at": "at", "hyphen_minus": "minus",
    "plus_sign": "plus", "low_line": "underscore",
}  # fmt: skip
NEVER = frozenset(("ctrl+c",))  # copies a selection; the terminal's own way out stays what it is


def key_name(text: str) -> str:
    """Return a key as terminals are told of it: ``?`` is ``question_mark``. Raises ValueError for what is no key."""
    if len(text) == 1 and text.isprintable() and not text.isspace():
        if text.isalnum():
            return text
        name = unicodedata.name(text).lower().replace("-", "_").replace(" ", "_")
        return _TERMINALS_SAY.get(name, name)
    *_, last = text.split("+")
    if not _KEY.fullmatch(text) or (len(last) > 1 and last not in _NAMED and not _is_sign(last)):
        raise ValueError(f"{text!r} is no key; write for example x, ?, f5, ctrl+d or shift+tab")
    if text in NEVER:
        raise ValueError(f"{text} stays what it is in every terminal")
    return text


def _is_sign(name: str) -> bool:
    if name in _TERMINALS_SAY.values():
        return True
    try:
        unicodedata.lookup(name.replace("_", " "))
    except KeyError:
        return False
    return True


def clashes(own: Iterable[tuple[str, tuple[str, ...]]]) -> tuple[tuple[str, str, str], ...]:
    """Return (key, action, other action) for each key that would do two things on one screen."""
    changed = dict(own)
    taken: dict[str, list[Action]] = {}
    found = []
    for one in ACTIONS:
        for key in changed.get(one.id, one.keys):
            there = taken.setdefault(key_name(key), [])
            found += [(key, str(other.id), str(one.id)) for other in there if _meet(one, other)][:1]
            there.append(one)
    return tuple(found)
