"""The options of the panel, the table of its screens, and the protocols that its caller implements. Imports little, for a fast start."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from sparkctl.model.node import Node
from sparkctl.model.questions import Prompter

if TYPE_CHECKING:
    from sparkctl.clock import Clock
    from sparkctl.config import Config
    from sparkctl.context import CommandContext
    from sparkctl.model.events import Event


# The screens other than the overview: the module in `screens`, imported when the screen opens, and the function that
# creates the screen for an action context. Key, help and palette entry of a screen depend on its line here.
SCREENS: dict[str, tuple[str, str]] = {
    "instance": ("instance_screen", "create_instance_screen"),
    "logs": ("log_screen", "create_log_screen"),
    "profiles": ("profiles_screen", "create_profiles_screen"),
    "doctor": ("doctor_screen", "create_doctor_screen"),
    "switch": ("switch_screen", "create_switch_screen"),
    "history": ("history_screen", "create_history_screen"),
}
AVAILABLE_SCREENS = frozenset(SCREENS)


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedCommand:
    """A parsed command that is ready to run; empty ``nodes`` means all nodes."""

    verb: str
    words: tuple[str, ...]
    nodes: tuple[str, ...]
    context: CommandContext
    events: Callable[[], AsyncGenerator[Event, None]]


class CommandParser(Protocol):
    """Parses and completes command lines."""

    def complete_line(self, line: str) -> tuple[str, ...]:
        """Return the completions of the last word of a line, as whole words."""
        ...

    def parse_screen_target(self, words: Sequence[str]) -> tuple[str, ...]:
        """Return the line of a screen reduced to its instance and node. Raises `SparkctlError` where it is not valid."""
        ...

    def parse_command(self, words: Sequence[str], context: CommandContext) -> PreparedCommand:
        """Parse a command line. Raises `SparkctlError` with what is wrong and what to do."""
        ...


@dataclass(frozen=True, slots=True)
class DemoStep:
    """A step of a demo: ``after`` so many seconds it shows a sentence and runs a command line."""

    after: float
    says: str = ""
    words: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class PanelOptions:
    """What the caller passes to the panel.

    ``keys`` is the operator's keymap. ``recording`` returns the events to play and their speed, in place of live nodes.
    ``reload`` returns the config if its file has changed, else None. ``badge`` returns a word for the header. ``story`` is
    a demo that plays until the operator starts a command.
    """

    nodes: tuple[Node, ...]
    make_context: Callable[[Prompter], CommandContext]
    commands: CommandParser | None = None
    keys: tuple[tuple[str, tuple[str, ...]], ...] = ()
    recording: Callable[[], tuple[Sequence[Event], float]] | None = None
    reload: Callable[[], Config | None] | None = None
    clock: Clock | None = None
    readonly: bool = False
    ascii_only: bool = False
    theme: str | None = None
    keep_theme: Callable[[str], None] | None = None
    badge: Callable[[], str] | None = None
    story: tuple[DemoStep, ...] = ()
