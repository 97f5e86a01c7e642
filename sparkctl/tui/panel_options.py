"""The options of the panel, the table of its screens, and the protocols that its caller implements. Imports little, for a fast start."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol

from sparkctl.model.lazy_dataclass import dataclass
from sparkctl.model.node import Node, NodeName

if TYPE_CHECKING:
    from sparkctl.clock import Clock
    from sparkctl.commands.request import Request, ScreenTarget
    from sparkctl.config import Config
    from sparkctl.context import CommandContext
    from sparkctl.model.events import Event
    from sparkctl.model.questions import Prompter


# The screens other than the overview: the module in `screens`, imported when the screen opens, and the class.
# Key, help and palette entry of a screen depend on its line here.
SCREENS: dict[str, tuple[str, str]] = {
    "instance": ("instance_screen", "InstanceScreen"),
    "logs": ("log_screen", "LogScreen"),
    "profiles": ("profiles_screen", "ProfilesScreen"),
    "doctor": ("doctor_screen", "DoctorScreen"),
    "switch": ("switch_screen", "SwitchScreen"),
    "history": ("history_screen", "HistoryScreen"),
    "bench": ("bench_screen", "BenchScreen"),
    "node": ("node_screen", "NodeScreen"),
}
AVAILABLE_SCREENS = frozenset(SCREENS)


InstanceLister = Callable[[str], Sequence[str]]


class CommandParser(Protocol):
    """Parses and completes command lines."""

    def complete_line(self, line: str, instances: InstanceLister | None = None) -> tuple[str, ...]:
        """Return the completions of a line's last word. ``instances`` returns the instance names that a verb may take."""
        ...

    def parse_request(self, words: Sequence[str], nearest: Sequence[NodeName] = ()) -> Request | ScreenTarget:
        """Return what a command line asks for; ``nearest``: a switch's nodes if it names none. Raises `SparkctlError`."""
        ...


@dataclass(frozen=True, slots=True)
class DemoStep:
    """A step of a demo: ``after`` so many seconds it shows a sentence and runs a command line."""

    after: float
    says: str
    words: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class PanelOptions:
    """What the caller passes to the panel.

    ``keys`` is the operator's keymap. ``recording``: the events to play and their speed, in place of live nodes.
    ``reload`` returns the config if its file has changed, else None. ``badge`` returns a word for the header. ``story`` is
    a demo that plays until the operator starts a command.
    """

    nodes: tuple[Node, ...]
    make_context: Callable[[Prompter], CommandContext]
    load_commands: Callable[[], CommandParser] | None = None
    keys: tuple[tuple[str, tuple[str, ...]], ...] = ()
    recording: tuple[Sequence[Event], float] | None = None
    reload: Callable[[], Config | None] | None = None
    clock: Clock | None = None
    readonly: bool = False
    ascii_only: bool = False
    theme: str | None = None
    keep_theme: Callable[[str], None] | None = None
    badge: Callable[[], str] | None = None
    story: tuple[DemoStep, ...] = ()
