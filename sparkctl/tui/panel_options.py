"""What the panel is given by whoever opens it. Light: nothing here waits for a node."""

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


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedCommand:
    """A verb that was understood and waits to be run; ``nodes`` are those that it is about, all where there are none."""

    verb: str
    words: tuple[str, ...]
    nodes: tuple[str, ...]
    context: CommandContext
    events: Callable[[], AsyncGenerator[Event, None]]


class CommandParser(Protocol):
    """The command line's own grammar."""

    def complete_line(self, line: str) -> tuple[str, ...]:
        """Return what the last word of a line may become, as (whole) words."""
        ...

    def parse_screen_target(self, words: Sequence[str]) -> tuple[str, ...]:
        """Return a line that opens a screen with nothing but its instance and node. Raises `SparkctlError` where it is none."""
        ...

    def parse_command(self, words: Sequence[str], context: CommandContext) -> PreparedCommand:
        """Understand a command line. Raises `SparkctlError` with what is wrong and what to do."""
        ...


@dataclass(frozen=True, slots=True)
class DemoStep:
    """A part of a story: ``after`` so many seconds something is said, and a command line is done as if it had been typed."""

    after: float
    says: str = ""
    words: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class PanelOptions:
    """``keys`` is the operator's keymap. ``recording`` returns events to play and how fast, in place of asking nodes.
    ``reload`` reads the config again where its file was written, None where nothing is to be read. ``badge`` returns a word
    for the header; ``story`` goes on by itself until somebody starts something."""

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
