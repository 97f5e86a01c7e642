"""The table of all actions: footer, help, palette, `:` line and key map are built from it. Pure.

An action with a command makes the same request as a typed line and a verb of the command line.
"""

from __future__ import annotations

import os
import re
import unicodedata
from collections.abc import Callable, Iterable, Sequence
from dataclasses import field, replace
from enum import StrEnum
from functools import lru_cache
from typing import TYPE_CHECKING

from sparkctl.commands import action_context as why
from sparkctl.commands.action_context import ActionContext as ActionContext
from sparkctl.model.lazy_dataclass import dataclass
from sparkctl.model.node import NodeName
from sparkctl.model.phase import Phase

if TYPE_CHECKING:  # a key is shown without them
    from sparkctl.commands.request import Request, ScreenTarget

_KEY_PATTERN = re.compile(r"(?:(?:ctrl|shift|alt)\+)*(?:[a-z][a-z0-9_]*|[a-zA-Z0-9])")
_NAMED_KEYS = frozenset(
    ("up", "down", "left", "right", "home", "end", "pageup", "pagedown", "enter", "escape", "tab", "space", "backspace",
     "delete", "insert", *(f"f{number}" for number in range(1, 25)))
)  # fmt: skip
_KEY_ALIASES = {
    "solidus": "slash",
    "reverse_solidus": "backslash",
    "commercial_at": "at",
    "hyphen_minus": "minus",
    "plus_sign": "plus",
    "low_line": "underscore",
}
RESERVED_KEYS = frozenset(("ctrl+c",))  # copies a selection; terminals use it themselves


def parse_key(text: str) -> str:
    """Return a key by the name that Textual gives it: ``?`` is ``question_mark``. Raises ValueError for an invalid
    key.
    """
    if len(text) == 1 and text.isprintable() and not text.isspace():
        if text.isalnum():
            return text
        name = unicodedata.name(text).lower().replace("-", "_").replace(" ", "_")
        return _KEY_ALIASES.get(name, name)
    *_, last = text.split("+")
    if not _KEY_PATTERN.fullmatch(text) or (len(last) > 1 and last not in _NAMED_KEYS and not _is_key_name(last)):
        raise ValueError(f"{text!r} is not a key; write for example x, ?, f5, ctrl+d or shift+tab")
    if text in RESERVED_KEYS:
        raise ValueError(f"{text} is reserved by terminals")
    return text


def _is_key_name(name: str) -> bool:
    if name in _KEY_ALIASES.values():
        return True
    try:
        unicodedata.lookup(name.replace("_", " "))
    except KeyError:
        return False
    return True


PANEL_VERBS = ("quit", "help")  # of the `:` line only: the CLI has nothing to quit, and its help is `--help`


class ActionId(StrEnum):
    """The ids of all actions: the names that ``keys:`` in the config accepts. Do not rename them."""

    UP = "up"
    DOWN = "down"
    KILL = "kill"
    INSTANCE = "instance"
    VIEW_OVERVIEW = "view.overview"
    VIEW_INSTANCE = "view.instance"
    LOGS = "logs"
    DROP_CACHES = "drop-caches"
    PROFILES = "profiles"
    DOCTOR = "doctor"
    SWITCH = "switch"
    HISTORY = "history"
    NODE = "node"
    KILL_PROCESS = "kill-process"
    BENCH = "bench"
    BENCH_RUN = "bench-run"
    BENCH_STOP = "bench-stop"
    SWITCH_DO = "switch-do"
    SWITCH_AGAIN = "switch-again"
    INTERRUPT = "interrupt"
    RESUME = "resume"
    ABORT = "abort"
    WRONG = "findings"
    RECONNECT = "reconnect"
    NEXT = "next-spark"
    PREVIOUS = "previous-spark"
    LOWER = "next-instance"
    UPPER = "previous-instance"
    PAUSE = "pause"
    FASTER = "faster"
    SLOWER = "slower"
    PLAY_FASTER = "play-faster"
    PLAY_SLOWER = "play-slower"
    PLAY_ON = "play-on"
    PLAY_BACK = "play-back"
    PLAY_FAR_ON = "play-far-on"
    PLAY_FAR_BACK = "play-far-back"
    COMMAND = "command"
    PALETTE = "palette"
    HELP = "help"
    BACK = "back"
    EDIT = "edit"
    EDIT_ITS = "edit-its-profile"
    MEND_PROFILE = "mend-profile"
    IMPORT = "import"
    SYNC = "sync"
    PULL = "pull"
    RESTART = "restart"
    RESTART_RUNNING = "restart-running"
    SHELL = "shell"
    SHELL_INSIDE = "shell-inside"
    FILTER = "filter"
    SORT = "sort"
    EXAMINE = "examine"
    COPY = "copy"
    COPY_ADDRESS = "copy-address"
    TUNNEL = "tunnel"
    SETUP = "setup"
    MEND = "mend"
    FURTHER = "further"
    NEARER = "nearer"
    PAGE_DOWN = "page-down"
    PAGE_UP = "page-up"
    HALF_PAGE_DOWN = "half-page-down"
    HALF_PAGE_UP = "half-page-up"
    QUIT = "quit"
    QUIT_AT_ONCE = "quit-at-once"
    FREE = "free"
    FIT = "fit"
    DIAGNOSE = "diagnose"
    PLAN = "plan"
    PLAN_OF = "plan-of-selected"
    SAVE_SCREEN = "save-screen"
    BACKGROUND = "background"
    FIRST = "first"
    LAST = "last"
    COPY_VERDICT = "copy-verdict"
    PROOF = "proof"
    ACCEPT = "accept"
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
    LOG_NUMBERS = "log.numbers"
    LOG_BACK = "log.back"
    LOG_SOURCE = "log.source"
    LOG_SCOPE = "log.scope"
    LOG_EARLIER = "log.earlier"
    LOG_COPY = "log.copy"
    LOG_SAVE = "log.save"


class ActionRole(StrEnum):
    """What a key shared by several actions means on every screen; such an action has no other key there."""

    TAKE = "take what is selected"
    STOP = "stop it"
    KILL = "end it at once"
    COPY = "copy"
    SEARCH = "search"
    AGAIN = "ask the Sparks again"
    EDIT = "edit a profile"
    DESCRIBE = "what it runs with"
    RESTART = "start it again"


ReasonFunction = Callable[[ActionContext], str | None]  # None: enabled; else the reason why not
RequestBuilder = Callable[[ActionContext], "Request | ScreenTarget"]  # may raise `SparkctlError`


@dataclass(frozen=True, slots=True, kw_only=True)
class Action:
    """One action of the panel.

    Attributes:
        keys: without any, the action is in the palette and on the `:` line, and an operator may bind a key to it.
        short: the label in the footer.
        title: the sentence in palette and help.
        changes: it changes something on a node or a profile of the operator; ``--readonly`` removes it.
        verb, build_request: its command, and what makes its request.
        screen: the screen that it opens; without that screen the action does not exist.
        on: the screens where it applies; empty: all of them.
        role: its role, where actions of other screens share its key.
    """

    id: ActionId
    keys: tuple[str, ...]
    short: str
    title: str
    why_not: ReasonFunction = field(default=lambda _: None)
    changes: bool = False
    verb: str | None = None
    build_request: RequestBuilder | None = None
    screen: str | None = None
    on: frozenset[str] = frozenset()
    footer: int | None = None  # its place in the footer, the smallest first
    role: ActionRole | None = None


# --- the requests of actions; what makes them is imported when a key needs it ---


def _drop_caches(now: ActionContext) -> Request:
    from sparkctl.commands.drop_page_cache import DropCaches

    return DropCaches(now.find_nodes(now.node))


def _stop_selected(now: ActionContext, grace: float | None = None) -> Request:
    """Return the request to stop all ranks of the selected instance."""
    from sparkctl.commands.stop.stop_instance import StopInstance
    from sparkctl.monitor.ranks import list_nodes_of_instance

    one = now.selected_instance
    names = (now.node,) if one is None else list_nodes_of_instance(one, now.views)
    name = str(now.instance)
    return StopInstance(
        instance=name, nodes=now.find_nodes(*names), grace=grace, known=frozenset((name,)), everywhere=now.config_nodes
    )


def _kill_selected(now: ActionContext) -> Request:
    return _stop_selected(now, 0.0)


def _free_node(now: ActionContext) -> Request:
    from sparkctl.commands.stop.stop_instance import StopInstance

    return StopInstance(instance=None, nodes=now.find_nodes(now.node), everywhere=now.config_nodes, frees=True)


def _finish_switch(way: str) -> RequestBuilder:
    def build_request(now: ActionContext) -> Request:
        from sparkctl.commands.switch.finish_switch import FinishSwitch, FinishVerb

        return FinishSwitch(
            nodes=now.config_nodes, names_nodes=False, known=now.config_nodes, environ=os.environ, way=FinishVerb(way)
        )

    return build_request


def _restart_selected(now: ActionContext) -> Request:
    """Return the start of one that has ended, else a restart, which asks first."""
    from sparkctl.commands.restart_instance import RestartInstance
    from sparkctl.commands.start.start_request import build_start_request
    from sparkctl.profiles.profile_library import ProfileLibrary

    one = now.selected_instance
    assert one is not None
    if one.phase not in (Phase.FAILED, Phase.STOPPED):
        return RestartInstance(
            instance=one.name, nodes=now.find_nodes(one.node), names_nodes=True, everywhere=now.config_nodes
        )
    profile = str(one.profile)
    start = build_start_request(
        ProfileLibrary().load_profile(profile), now.find_nodes(now.node), profile, now.config_nodes
    )
    return replace(start, restarts=True)


def _check_fit(now: ActionContext) -> Request:
    from sparkctl.commands.start.check_fit import CheckFit
    from sparkctl.commands.start.start_preflight import assign_nodes_to_ranks
    from sparkctl.profiles.profile_library import ProfileLibrary

    profile = ProfileLibrary().load_profile(str(now.profile))
    nodes = assign_nodes_to_ranks(profile, (), now.config_nodes) if profile.nodes > 1 else now.config_nodes
    return CheckFit(
        profile=profile,
        nodes=nodes,
        environ=os.environ,
        words=(str(now.profile),),
        known=now.config_nodes,
        names_nodes=False,
    )


def _open_tunnel(now: ActionContext) -> Request:
    from sparkctl.commands.tunnel import OpenTunnel

    return OpenTunnel(instance=str(now.instance), nodes=now.find_nodes(now.node))


def _set_up_nodes(now: ActionContext) -> Request:
    from sparkctl.commands.setup.setup_nodes import SetUpNodes

    return SetUpNodes(nodes=now.config_nodes, names_nodes=False)


def _target_selected(verb: str) -> RequestBuilder:
    def build_target(now: ActionContext) -> ScreenTarget:
        from sparkctl.commands.request import ScreenTarget

        return ScreenTarget(verb=verb, name=now.instance, nodes=(NodeName(str(now.node)),))

    return build_target


OVERVIEW, INSTANCE, LOGS, PROFILES, DOCTOR = "overview", "instance", "logs", "profiles", "doctor"
SWITCH, HISTORY, NODE, BENCH = "switch", "history", "node", "bench"
_OVERVIEW_SCREEN = frozenset((OVERVIEW,))
_RUNNING_SCREENS = frozenset((OVERVIEW, INSTANCE))
_LIST_SCREENS = frozenset((OVERVIEW, PROFILES, DOCTOR, HISTORY, NODE, BENCH))
_READING_SCREENS = frozenset((PROFILES, DOCTOR, HISTORY, BENCH))
_BENCH_SCREEN = frozenset((BENCH,))
_NODE_SCREENS = frozenset((OVERVIEW, PROFILES, SWITCH, NODE))  # screens where a profile or a node is selected
_SWITCH_SCREEN = frozenset((SWITCH,))
_SCROLLING_SCREENS = frozenset((SWITCH, INSTANCE))  # screens that scroll where they are longer than the terminal
_PAGED_SCREENS = _READING_SCREENS | _SCROLLING_SCREENS | {NODE}
_INSTANCE_SCREEN = frozenset((INSTANCE,))
_LOG_SCREEN = frozenset((LOGS,))

# The key `x` is three actions, one a screen: DOWN (`down`, StopInstance), INTERRUPT on the switch screen, BENCH_STOP on the bench screen.
ACTIONS: tuple[Action, ...] = (
    Action(id=ActionId.UP, keys=("u",), short="up", title="start a profile", why_not=why.reason_cannot_start, changes=True,
           verb="up", on=_RUNNING_SCREENS | {PROFILES}, footer=0),
    Action(id=ActionId.DOWN, keys=("x",), short="stop", title="stop the instance and wait for its memory",
           why_not=why.reason_cannot_stop, changes=True, verb="down", build_request=_stop_selected,
           on=_RUNNING_SCREENS | {PROFILES, NODE}, footer=1, role=ActionRole.STOP),
    Action(id=ActionId.KILL, keys=("X",), short="kill", title="stop the instance at once, without time to finish",
           why_not=why.reason_cannot_stop, changes=True, verb="down",
           build_request=_kill_selected, on=_RUNNING_SCREENS | {PROFILES}, role=ActionRole.KILL),
    Action(id=ActionId.SWITCH, keys=("s",), short="switch",
           title="switch to a profile: what would stop, stay and start, then do it", why_not=why.reason_no_switch_to_show,
           changes=True, verb="switch", screen=SWITCH, on=_RUNNING_SCREENS | {PROFILES}, footer=2),
    Action(id=ActionId.SWITCH_DO, keys=("enter",), short="do it", title="do the switch that is shown",
           why_not=why.reason_cannot_switch, changes=True, on=_SWITCH_SCREEN, role=ActionRole.TAKE, footer=0),
    Action(id=ActionId.SWITCH_AGAIN, keys=("r",), short="again", title="inspect the Sparks again and make a new plan",
           why_not=why.reason_recording, on=_SWITCH_SCREEN, role=ActionRole.AGAIN, footer=1),
    Action(id=ActionId.INTERRUPT, keys=("x",), short="interrupt",
           title="interrupt this panel's own switch and leave it where it is, as Ctrl-C does",
           why_not=why.reason_cannot_interrupt, changes=True, on=_SWITCH_SCREEN, role=ActionRole.STOP, footer=3),
    Action(id=ActionId.RESUME, keys=("o",), short="resume", title="resume an unfinished switch",
           why_not=why.reason_no_switch_left, changes=True, verb="resume", build_request=_finish_switch("resume"),
           on=_OVERVIEW_SCREEN | _SWITCH_SCREEN),
    Action(id=ActionId.ABORT, keys=("A",), short="abort", title="undo an unfinished switch: start what was stopped again",
           why_not=why.reason_no_switch_left, changes=True, verb="abort", build_request=_finish_switch("abort"),
           on=_OVERVIEW_SCREEN | _SWITCH_SCREEN),
    Action(id=ActionId.INSTANCE, keys=("enter",), short="open", title="open the instance or finding", why_not=why.reason_nothing_to_open,
           screen=INSTANCE, on=_OVERVIEW_SCREEN, role=ActionRole.TAKE, footer=5),
    Action(id=ActionId.LOGS, keys=("l", "3"), short="logs", title="show the instance's log", why_not=why.reason_no_log,
           verb="logs", build_request=_target_selected("logs"), screen=LOGS, on=_RUNNING_SCREENS | _READING_SCREENS, footer=2),
    Action(id=ActionId.DROP_CACHES, keys=("c",), short="drop caches",
           title="drop the page cache; shows memory before and after", why_not=why.reason_cannot_drop_caches, changes=True,
           verb="drop-caches", build_request=_drop_caches, on=_RUNNING_SCREENS | {PROFILES}, footer=3),
    Action(id=ActionId.PROFILES, keys=("p", "4"), short="profiles", title="show the profiles", verb="profiles", screen=PROFILES,
           footer=4),
    Action(id=ActionId.DOCTOR, keys=("!", "5"), short="doctor", title="show what is missing on the Sparks", verb="doctor",
           screen=DOCTOR, footer=6),
    Action(id=ActionId.HISTORY, keys=("h", "6"), short="history", title="show past operations, results, and what changed since",
           verb="history", screen=HISTORY, footer=8),
    Action(id=ActionId.BENCH_STOP, keys=("x",), short="stop", title="stop measuring; what was measured is kept",
           why_not=why.reason_nothing_measured, on=_BENCH_SCREEN, footer=0, role=ActionRole.STOP),
    Action(id=ActionId.BENCH_RUN, keys=("B",), short="measure",
           title="measure how fast it is, cell by cell; a profile that does not run is started for it; asks first",
           why_not=why.reason_cannot_measure, changes=True, verb="bench",
           on=_RUNNING_SCREENS | {PROFILES, BENCH}, footer=15),
    Action(id=ActionId.BENCH, keys=("7",), short="benchmarks",
           title="show what is being measured, and all benchmarks of this machine", screen=BENCH),
    Action(id=ActionId.NODE, keys=("n",), short="node", title="the machine: CPU, memory, disks, links, heat and processes, live",
           why_not=why.reason_no_view, screen=NODE, on=_RUNNING_SCREENS, footer=14),
    Action(id=ActionId.WRONG, keys=("i",), short="findings", title="show what is wrong, why, and what to do",
           why_not=why.reason_no_problems, on=_RUNNING_SCREENS | {NODE}, footer=7),
    Action(id=ActionId.RECONNECT, keys=("r",), short="try now", title="connect to the Spark now",
           why_not=why.reason_already_connected, on=_RUNNING_SCREENS, footer=8, role=ActionRole.AGAIN),
    Action(id=ActionId.VIEW_OVERVIEW, keys=("1",), short="overview", title="all Sparks at a glance", screen=OVERVIEW),
    Action(id=ActionId.VIEW_INSTANCE, keys=("2",), short="instance", title="the selected instance",
           why_not=why.reason_no_instance, screen=INSTANCE),
    Action(id=ActionId.EDIT, keys=("e",), short="edit", title="edit the profile in your editor, and check it",
           why_not=why.reason_no_profile, changes=True, on=frozenset((PROFILES,)), footer=1, role=ActionRole.EDIT),
    Action(id=ActionId.MEND_PROFILE, keys=("F",), short="mend", title="fix in the profile what its check can fix safely",
           why_not=why.reason_no_profile, changes=True, on=frozenset((PROFILES,))),
    Action(id=ActionId.IMPORT, keys=("I",), short="import",
           title="make a profile from a pasted docker run line, compose file or recipe", why_not=why.reason_recording,
           changes=True, on=frozenset((PROFILES,)), footer=4),
    Action(id=ActionId.SYNC, keys=("Y",), short="sync",
           title="copy the profile's image and model from one Spark to another; asks for the direction",
           why_not=why.reason_cannot_sync, changes=True, verb="sync", on=frozenset((PROFILES,)), footer=6),
    Action(id=ActionId.PULL, keys=("O",), short="pull", title="download the profile's image and model; asks onto which Spark",
           why_not=why.reason_no_profile, changes=True, verb="pull", on=frozenset((PROFILES,)), footer=6),
    Action(id=ActionId.EDIT_ITS, keys=("e",), short="edit", title="edit the profile that the instance was started from",
           why_not=why.reason_no_instance_profile, changes=True, on=_RUNNING_SCREENS, role=ActionRole.EDIT, footer=12),
    Action(id=ActionId.RESTART, keys=("R",), short="restart", title="start the instance again, unchanged; one that runs is stopped first",
           why_not=why.reason_cannot_restart, changes=True, verb="up", build_request=_restart_selected,
           on=_INSTANCE_SCREEN, footer=3, role=ActionRole.RESTART),
    Action(id=ActionId.RESTART_RUNNING, keys=("R",), short="restart",
           title="start the instance again, unchanged; one that runs is stopped first", why_not=why.reason_cannot_restart,
           changes=True, verb="restart", build_request=_restart_selected, on=_OVERVIEW_SCREEN, role=ActionRole.RESTART),
    Action(id=ActionId.SHELL, keys=("$",), short="shell", title="open a shell on the Spark with your own ssh",
           why_not=why.reason_no_shell, changes=True, footer=14),
    Action(id=ActionId.SHELL_INSIDE, keys=("b",), short="inside", title="open a shell in the container with your own ssh",
           why_not=why.reason_no_container_shell, changes=True, on=_RUNNING_SCREENS),
    Action(id=ActionId.FILTER, keys=("/",), short="filter", title="show only what matches: text, !text or /regex/",
           on=_READING_SCREENS | {NODE}, footer=2, role=ActionRole.SEARCH),
    Action(id=ActionId.SORT, keys=("S",), short="sort", title="sort by the next column; a click on a column sorts by it",
           on=frozenset((PROFILES, NODE)), footer=5),
    Action(id=ActionId.KILL_PROCESS, keys=("X",), short="end process", title="end the selected process with TERM or KILL; asks first",
           why_not=why.reason_cannot_end_process, changes=True, on=frozenset((NODE,)), footer=1, role=ActionRole.KILL),
    Action(id=ActionId.MEND, keys=("enter",), short="do it", title="run the remedy, where it is a sparkctl command",
           why_not=why.reason_cannot_apply_remedy, changes=True, on=frozenset((DOCTOR,)), footer=1,
           role=ActionRole.TAKE),
    Action(id=ActionId.COPY, keys=("y",), short="copy", title="copy the command", why_not=why.reason_nothing_to_copy,
           on=_READING_SCREENS | _SWITCH_SCREEN, footer=2, role=ActionRole.COPY),
    Action(id=ActionId.COPY_ADDRESS, keys=("y",), short="copy", title="copy the address at which the instance answers",
           why_not=why.reason_no_address, on=_OVERVIEW_SCREEN, role=ActionRole.COPY, footer=13),
    Action(id=ActionId.TUNNEL, keys=("L",), short="tunnel",
           title="bring the instance's endpoint to localhost over SSH; again: end it", why_not=why.reason_no_address,
           verb="tunnel", build_request=_open_tunnel, on=_RUNNING_SCREENS),
    Action(id=ActionId.EXAMINE, keys=("r",), short="again", title="check the Sparks again", why_not=why.reason_no_node,
           on=frozenset((DOCTOR,)), footer=0, role=ActionRole.AGAIN),
    Action(id=ActionId.NEXT, keys=("tab", "right"), short="next", title="the next Spark", why_not=why.reason_single_node,
           on=_NODE_SCREENS, footer=15),
    Action(id=ActionId.PREVIOUS, keys=("shift+tab", "left"), short="previous", title="the previous Spark",
           why_not=why.reason_single_node, on=_NODE_SCREENS),
    Action(id=ActionId.LOWER, keys=("down", "j"), short="lower",
           title="the next instance, profile, finding or row; or scroll down", on=_LIST_SCREENS | _SCROLLING_SCREENS),
    Action(id=ActionId.UPPER, keys=("up", "k"), short="upper", title="the previous one; or scroll up",
           on=_LIST_SCREENS | _SCROLLING_SCREENS),
    Action(id=ActionId.FIRST, keys=("g", "home"), short="first", title="the first Spark, profile or finding; the beginning",
           on=_LIST_SCREENS | _SCROLLING_SCREENS),
    Action(id=ActionId.LAST, keys=("G", "end"), short="last", title="the last Spark, profile or finding; the end",
           on=_LIST_SCREENS | _SCROLLING_SCREENS),
    Action(id=ActionId.FURTHER, keys=("pagedown",), short="further", title="scroll down",
           on=_READING_SCREENS | _SCROLLING_SCREENS),
    Action(id=ActionId.NEARER, keys=("pageup",), short="nearer", title="scroll up", on=_READING_SCREENS | _SCROLLING_SCREENS),
    Action(id=ActionId.PAGE_DOWN, keys=("ctrl+f",), short="page down", title="a page further in the list, or down", on=_PAGED_SCREENS),
    Action(id=ActionId.PAGE_UP, keys=("ctrl+b",), short="page up", title="a page back in the list, or up", on=_PAGED_SCREENS),
    Action(id=ActionId.HALF_PAGE_DOWN, keys=("ctrl+d",), short="half down", title="half a page further in the list, or down",
           on=_PAGED_SCREENS),
    Action(id=ActionId.HALF_PAGE_UP, keys=("ctrl+u",), short="half up", title="half a page back in the list, or up", on=_PAGED_SCREENS),
    Action(id=ActionId.PAUSE, keys=("space",), short="pause", title="pause the display; on overview, node, instance, and a recording anywhere",
           footer=16),
    Action(id=ActionId.FASTER, keys=("+",), short="faster", title="read the Sparks more often", why_not=why.reason_recording),
    Action(id=ActionId.SLOWER, keys=("-",), short="slower", title="read the Sparks less often", why_not=why.reason_recording),
    Action(id=ActionId.PLAY_FASTER, keys=(">",), short="faster", title="play a recording faster",
           why_not=why.reason_no_recording),
    Action(id=ActionId.PLAY_SLOWER, keys=("<",), short="slower", title="play a recording slower",
           why_not=why.reason_no_recording),
    Action(id=ActionId.PLAY_ON, keys=(".",), short="10 s on", title="go 10 seconds forward in a recording",
           why_not=why.reason_no_recording),
    Action(id=ActionId.PLAY_BACK, keys=(",",), short="10 s back", title="go 10 seconds back in a recording",
           why_not=why.reason_no_recording),
    Action(id=ActionId.PLAY_FAR_ON, keys=("shift+right",), short="1 min on", title="go a minute forward in a recording",
           why_not=why.reason_no_recording),
    Action(id=ActionId.PLAY_FAR_BACK, keys=("shift+left",), short="1 min back", title="go a minute back in a recording",
           why_not=why.reason_no_recording),
    Action(id=ActionId.COMMAND, keys=(":",), short="command", title="type a command, as on the command line", footer=9),
    Action(id=ActionId.PALETTE, keys=("ctrl+p",), short="palette", title="find an action by its name", footer=17),
    Action(id=ActionId.HELP, keys=("?", "f1"), short="help", title="all keys of this screen", verb="help", footer=5),
    Action(id=ActionId.SAVE_SCREEN, keys=("f8",), short="picture", title="save the screen as an SVG file"),
    Action(id=ActionId.BACKGROUND, keys=("ctrl+z",), short="background",
           title="suspend the panel; fg in your shell brings it back"),
    Action(id=ActionId.BACK, keys=("escape",), short="back", title="go back"),
    Action(id=ActionId.QUIT, keys=("q",), short="quit", title="go back or quit: on the overview it ends the panel"),
    Action(id=ActionId.QUIT_AT_ONCE, keys=("ctrl+q",), short="end", title="end the panel; engines go on running", verb="quit",
           footer=10),
    Action(id=ActionId.FREE, keys=(), short="free",
           title="stop everything that sparkctl started on the Spark; shows what stays", why_not=why.reason_cannot_free,
           changes=True, verb="free", build_request=_free_node, on=_OVERVIEW_SCREEN),
    Action(id=ActionId.SETUP, keys=(), short="set up",
           title="set up Docker's group, the right to drop the page cache, and the cable; shows each file first",
           why_not=why.reason_recording, changes=True, verb="setup", build_request=_set_up_nodes, on=_OVERVIEW_SCREEN | {DOCTOR}),
    Action(id=ActionId.FIT, keys=(), short="fit", title="check whether the profile fits, with the full calculation",
           why_not=why.reason_cannot_check_fit, verb="plan", build_request=_check_fit,
           on=frozenset((PROFILES,))),
    Action(id=ActionId.DIAGNOSE, keys=(), short="diagnose",
           title="diagnose the instance's log: how far it got, and why it went no further", why_not=why.reason_no_diagnosis,
           verb="diagnose", build_request=_target_selected("diagnose"), on=_RUNNING_SCREENS),
    Action(id=ActionId.PLAN, keys=("d",), short="plan", title="what it runs with, in full", on=_INSTANCE_SCREEN, footer=4,
           role=ActionRole.DESCRIBE),
    Action(id=ActionId.PLAN_OF, keys=("d",), short="plan", title="what the instance runs with, in full",
           why_not=why.reason_no_plan, on=_OVERVIEW_SCREEN, role=ActionRole.DESCRIBE, footer=11),
    Action(id=ActionId.COPY_VERDICT, keys=("y",), short="copy", title="copy why it failed, with its proof, or its address",
           why_not=why.reason_no_verdict_or_address, on=_INSTANCE_SCREEN, role=ActionRole.COPY, footer=5),
    Action(id=ActionId.PROOF, keys=("enter",), short="proof", title="the log at the line that proves why it failed",
           why_not=why.reason_no_proof, screen=LOGS, on=_INSTANCE_SCREEN, role=ActionRole.TAKE, footer=2),
    Action(id=ActionId.ACCEPT, keys=("a",), short="change",
           title="try the change that the verdict proposes, or keep it in the profile", why_not=why.reason_no_change,
           changes=True, on=_INSTANCE_SCREEN, footer=1),
    Action(id=ActionId.LOG_FOLLOW, keys=("f",), short="follow", title="follow the log, or stay where you read", on=_LOG_SCREEN,
           footer=0),
    Action(id=ActionId.LOG_FIND, keys=("/",), short="find", title="find text, !text or /regex/ as you type", on=_LOG_SCREEN,
           footer=1, role=ActionRole.SEARCH),
    Action(id=ActionId.LOG_ONLY, keys=("&",), short="only", title="show only the lines that match", on=_LOG_SCREEN, footer=2),
    Action(id=ActionId.LOG_NEXT, keys=("n",), short="next match", title="the next match, or proof of a verdict", on=_LOG_SCREEN,
           footer=12),
    Action(id=ActionId.LOG_PREVIOUS, keys=("N",), short="match before", title="the previous match, or proof of a verdict",
           on=_LOG_SCREEN),
    Action(id=ActionId.LOG_FIRST_ERROR, keys=("E",), short="first error", title="the first error", on=_LOG_SCREEN, footer=3),
    Action(id=ActionId.LOG_NEXT_MARK, keys=("]",), short="next mark", title="the next ready line or failure", on=_LOG_SCREEN),
    Action(id=ActionId.LOG_PREVIOUS_MARK, keys=("[",), short="mark before", title="the previous ready line or failure",
           on=_LOG_SCREEN),
    Action(id=ActionId.LOG_WRAP, keys=("w",), short="wrap", title="wrap long lines, or not", on=_LOG_SCREEN, footer=4),
    Action(id=ActionId.LOG_TIMES, keys=("t",), short="times", title="show or hide the time of each line", on=_LOG_SCREEN,
           footer=5),
    Action(id=ActionId.LOG_NUMBERS, keys=("#",), short="numbers", title="show or hide line numbers, as a verdict names them",
           on=_LOG_SCREEN),
    Action(id=ActionId.LOG_BACK, keys=("T",), short="back",
           title="back to the last minute; again: 5 minutes, 15, an hour, the first line", on=_LOG_SCREEN, footer=8),
    Action(id=ActionId.LOG_SOURCE, keys=("m",), short="merged", title="all of these logs merged by time, then each alone",
           on=_LOG_SCREEN, footer=9),
    Action(id=ActionId.LOG_SCOPE, keys=("M",), short="more logs",
           title="add the logs of all instances on its Spark, then of all Sparks", on=_LOG_SCREEN),
    Action(id=ActionId.LOG_EARLIER, keys=("P",), short="earlier",
           title="the saved log of the previous start, then back to this one", on=_LOG_SCREEN, footer=11),
    Action(id=ActionId.LOG_COPY, keys=("y",), short="copy lines", title="copy the selection, else the line, else the screen",
           on=_LOG_SCREEN, role=ActionRole.COPY, footer=6),
    Action(id=ActionId.LOG_SAVE, keys=("ctrl+s",), short="save", title="save the shown lines to a file", on=_LOG_SCREEN,
           footer=7),
)  # fmt: skip

_BY_ID = {action.id: action for action in ACTIONS}


def find_action(name: str) -> Action:
    """Return an action by its id. Raises KeyError."""
    return _BY_ID[ActionId(name)]


def find_verb_action(verb: str) -> Action | None:
    """Return the action of a verb; None where the panel has no such verb."""
    return next((one for one in ACTIONS if one.verb == verb), None)


def retarget_context(context: ActionContext, instance: str | None, node: NodeName | None) -> ActionContext:
    """Return the context with another instance and node selected, where they are given.

    Without a node, use the node where that instance is, the selected node before others.
    """
    instance = instance or context.instance
    if node is None:
        there = [view.name for view in context.views if any(one.name == instance for one in view.instances)]
        node = context.node if context.node in there or not there else there[0]
    return replace(context, node=node, instance=instance)


def list_enabled_actions(
    context: ActionContext, keys: Iterable[tuple[str, tuple[str, ...]]] = ()
) -> tuple[Action, ...]:
    """Return the actions that this panel has, with the operator's keys: without those of missing screens and, with
    ``readonly``, without those that change anything.
    """
    return _list_enabled_actions(context.screens, context.readonly, tuple(keys))


@lru_cache(maxsize=8)  # the panel asks for them with every key and every part of a screen that names one
def _list_enabled_actions(
    screens: frozenset[str], readonly: bool, keys: tuple[tuple[str, tuple[str, ...]], ...]
) -> tuple[Action, ...]:
    assigned = assign_keys(keys)
    return tuple(
        replace(one, keys=assigned[one.id])
        for one in ACTIONS
        if has_screens(one, screens) and not (one.changes and readonly)
    )


def has_screens(one: Action, screens: frozenset[str]) -> bool:
    """Tell whether the screens that the action opens or needs exist."""
    return (one.screen is None or one.screen in screens | {OVERVIEW}) and (
        not one.on or bool(one.on & (screens | {OVERVIEW}))
    )


def list_screen_actions(actions: Iterable[Action], place: str) -> tuple[Action, ...]:
    """Return the actions that apply on a screen; without the one that opens this very screen."""
    return tuple(one for one in actions if (not one.on or place in one.on) and one.screen != place)


def _share_a_screen(one: Action, other: Action) -> bool:
    return not one.on or not other.on or bool(one.on & other.on)


def list_available_actions(actions: Sequence[Action], context: ActionContext) -> tuple[Action, ...]:
    """Return the actions that can be done now."""
    return tuple(one for one in actions if one.why_not(context) is None)


def list_footer_actions(actions: Sequence[Action]) -> tuple[Action, ...]:
    """Return the actions of the footer, most important first: the screen's own before the general ones, help last."""

    def footer_order(one: Action) -> tuple[int, int]:
        return one.footer or 0, len(one.on) or len(ActionId)

    placed = sorted((one for one in actions if one.footer is not None), key=footer_order)
    return (
        *(one for one in placed if one.id is not ActionId.HELP),
        *(one for one in placed if one.id is ActionId.HELP),
    )


_YIELDING_ACTIONS = (ActionId.PAGE_DOWN, ActionId.PAGE_UP, ActionId.HALF_PAGE_DOWN, ActionId.HALF_PAGE_UP)


def assign_keys(own: Iterable[tuple[str, tuple[str, ...]]]) -> dict[ActionId, tuple[str, ...]]:
    """Return the keys of all actions with the operator's ``own``, which take theirs from the actions that scroll by pages."""
    changed = dict(own)
    taken = {parse_key(key) for keys in changed.values() for key in keys}
    return {
        one.id: changed.get(one.id)
        or tuple(key for key in one.keys if one.id not in _YIELDING_ACTIONS or parse_key(key) not in taken)
        for one in ACTIONS
    }


def find_key_conflicts(own: Iterable[tuple[str, tuple[str, ...]]]) -> tuple[tuple[str, str, str], ...]:
    """Return (key, action, other action) for each key with two actions on one screen."""
    assigned = assign_keys(own)
    taken: dict[str, list[Action]] = {}
    found = []
    for one in ACTIONS:
        for key in assigned[one.id]:
            there = taken.setdefault(parse_key(key), [])
            found += [(key, str(other.id), str(one.id)) for other in there if _share_a_screen(one, other)][:1]
            there.append(one)
    return tuple(found)
