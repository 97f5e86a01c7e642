"""``sparkctl`` without a verb: the panel, where there is a terminal to paint it on."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from sparkctl.cli import stderr
from sparkctl.errors import InvalidInput

if TYPE_CHECKING:
    from sparkctl.clock import Clock
    from sparkctl.config import Config
    from sparkctl.context import CommandContext
    from sparkctl.model.events import Event
    from sparkctl.model.questions import Prompter
    from sparkctl.tui.panel_options import DemoStep, PreparedCommand


@dataclass(frozen=True, slots=True)
class DemoOptions:
    """Simulated Sparks, their ``clock``, what the header says of it, and what happens there by itself."""

    clock: Clock
    badge: Callable[[], str]
    story: tuple[DemoStep, ...] = ()


_THEME_FILE_NAME = "theme"  # the file in the state directory


def can_open_panel() -> bool:
    """Tell whether keys can be read and a picture painted."""
    return sys.stdin.isatty() and sys.stdout.isatty() and os.environ.get("TERM", "dumb") != "dumb"


def open_panel(*, readonly: bool = False, replay: Path | None = None, demo: DemoOptions | None = None) -> int:
    """Open the panel and return when it is closed; what goes on running is said then.

    Raises `InvalidInput` for a config or a recording that is none.
    """
    from sparkctl.cli.terminal_style import is_ascii_only
    from sparkctl.config import load_config
    from sparkctl.tui.app import PanelApp
    from sparkctl.tui.panel_options import PanelOptions

    config = load_config(required=False)
    recording, clock = None, None if demo is None else demo.clock
    if replay is not None:
        events = _load_recording(replay)
        recording = lambda: (events, 1.0)  # noqa: E731
    panel = PanelApp(
        PanelOptions(
            nodes=() if replay is not None else config.nodes,
            make_context=_build_context_factory(clock),
            commands=_LazyCommandParser(),
            keys=config.keys,
            reload=None if replay is not None else _ConfigReloader(config.path, readonly=readonly),
            recording=recording,
            readonly=readonly or config.readonly,
            ascii_only=is_ascii_only(sys.stdout),
            theme=_load_theme(),
            keep_theme=_save_theme,
            clock=clock,
            badge=None if demo is None else demo.badge,
            story=() if demo is None else demo.story,
        )
    )
    said = panel.run()
    if panel.defect is not None:
        raise panel.defect
    for warning in config.warnings:
        stderr.print_warning(None, warning, None)
    if demo is not None:
        stderr.print_message("the simulated Sparks ended with the panel; `sparkctl demo --serve` keeps them")
        return 0
    for line in said or ():
        stderr.print_message(line)
    return 0


def _load_theme() -> str | None:
    """Return the colours that were chosen last."""
    from sparkctl.files import read_regular_file
    from sparkctl.paths import state_dir

    with suppress(OSError, UnicodeDecodeError):
        return read_regular_file(state_dir() / _THEME_FILE_NAME, 1024).decode("utf-8").strip()
    return None


def _save_theme(name: str) -> None:
    from sparkctl.history.database import make_private_directory
    from sparkctl.paths import state_dir

    with suppress(OSError):  # a choice that is not kept is no reason to end anything
        make_private_directory(state_dir())
        (state_dir() / _THEME_FILE_NAME).write_text(f"{name}\n", encoding="utf-8")


class _ConfigReloader:
    """Reads the config again where it was written since; one that cannot be read, or is gone, is told once.

    ``readonly``: it was asked for on the command line, and no config takes that back.
    """

    def __init__(self, path: Path | None, *, readonly: bool = False) -> None:
        from sparkctl.paths import config_file

        self._readonly = readonly
        self._path = path or config_file()
        self._stamp = self._read_file_stamp()
        self._is_missed = False  # it was not there a moment ago: many an editor takes it away before it puts it back

    def __call__(self) -> Config | None:
        """Return the config where it is another one, None where it is not. Raises `InvalidInput` with its faults, and where
        it is gone: that is no empty config."""
        from sparkctl.config import load_config

        stamp = self._read_file_stamp()
        if stamp == self._stamp:
            self._is_missed = False
            return None
        if stamp is None and not self._is_missed:
            self._is_missed = True
            return None
        self._stamp, self._is_missed = stamp, False
        if stamp is None:
            raise InvalidInput(
                f"{self._path} is gone, or empty: the config that was read last stays",
                "it is read again as soon as there is something in it",
            )
        config = load_config(self._path)
        return replace(config, readonly=config.readonly or self._readonly)

    def _read_file_stamp(self) -> tuple[int, int] | None:
        try:
            seen = self._path.stat()
        except OSError:
            return None
        if not seen.st_size:  # as an editor leaves it for a moment
            return None
        return seen.st_mtime_ns, seen.st_size


class _LazyCommandParser:
    """The command line's grammar, loaded when somebody uses it: not before the first picture."""

    def complete_line(self, line: str) -> tuple[str, ...]:
        """Return what the last word of a line may become."""
        from sparkctl.cli.command_line_parser import CommandLineParser

        return CommandLineParser().complete_line(line)

    def parse_screen_target(self, words: Sequence[str]) -> tuple[str, ...]:
        """Return a line that opens a screen with nothing but what the screen needs."""
        from sparkctl.cli.command_line_parser import CommandLineParser

        return CommandLineParser().parse_screen_target(words)

    def parse_command(self, words: Sequence[str], context: CommandContext) -> PreparedCommand:
        """Understand a command line."""
        from sparkctl.cli.command_line_parser import CommandLineParser

        return CommandLineParser().parse_command(words, context)


def _load_recording(path: Path) -> Sequence[Event]:
    from sparkctl.monitor.recording.recording_file import read_recording

    return tuple(read_recording(path))


def _build_context_factory(clock: Clock | None) -> Callable[[Prompter], CommandContext]:
    def create_context(asker: Prompter) -> CommandContext:
        from sparkctl.cli.options import get_operator
        from sparkctl.context import CommandContext
        from sparkctl.history.operation_history import OperationHistory
        from sparkctl.paths import state_dir

        ctx = CommandContext(history=OperationHistory(state_dir()), operator=get_operator(), asker=asker)
        return ctx if clock is None else replace(ctx, clock=clock)

    return create_context
