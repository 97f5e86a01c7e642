"""``sparkctl`` without a verb: open the panel on a terminal. Imports little: what the panel waits for here, its user waits for."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from sparkctl.cli import stderr
from sparkctl.cli.stdout import is_ascii_only
from sparkctl.errors import InvalidInput

if TYPE_CHECKING:
    from sparkctl.clock import Clock
    from sparkctl.config import Config
    from sparkctl.context import CommandContext
    from sparkctl.model.events import Event
    from sparkctl.model.questions import Prompter
    from sparkctl.tui.panel_options import CommandParser, DemoStep


_THEME_FILE_NAME = "theme"  # in the state directory


def can_open_panel() -> bool:
    """Tell whether stdin and stdout are a terminal that can show the panel."""
    return sys.stdin.isatty() and sys.stdout.isatty() and os.environ.get("TERM", "dumb") != "dumb"


def open_panel(
    load_commands: Callable[[], CommandParser],
    *,
    readonly: bool = False,
    replay: Path | None = None,
    clock: Clock | None = None,
    badge: Callable[[], str] | None = None,
    story: tuple[DemoStep, ...] = (),
) -> int:
    """Open the panel, return when it is closed, and print what keeps running. ``load_commands`` imports click and the verbs, which
    the first picture does without. A demo has a ``clock``, a ``badge`` for the header and the steps of a ``story``.

    Raises `InvalidInput` for an invalid config or recording.
    """
    gc.disable()  # what is imported from here on stays; `freeze_gc` collects again after the first picture
    from sparkctl.config import build_theme_error, load_config
    from sparkctl.tui.app import PanelApp
    from sparkctl.tui.panel_options import PanelOptions

    config = load_config(required=False)
    recording: tuple[Sequence[Event], float] | None = None
    if replay is not None:
        from sparkctl.monitor.recording import read_recording

        recording = tuple(read_recording(replay)), 1.0

    panel = PanelApp(
        PanelOptions(
            nodes=() if replay is not None else config.nodes,
            make_context=partial(create_panel_context, clock),
            load_commands=load_commands,
            keys=config.keys,
            reload=None if replay is not None else _ConfigReloader(config.path, readonly=readonly),
            recording=recording,
            readonly=readonly or config.readonly,
            ascii_only=is_ascii_only(sys.stdout),
            theme=config.theme or _load_theme(),
            keep_theme=_save_theme,
            clock=clock,
            badge=badge,
            story=story,
        )
    )
    if config.theme is not None and config.path is not None and config.theme not in panel.available_themes:
        raise build_theme_error(config.path, config.theme, sorted(panel.available_themes))
    closing_lines = panel.run()
    if panel.defect is not None:
        raise panel.defect
    for warning in config.warnings:
        stderr.print_warning(None, warning, None)
    if badge is not None:
        stderr.print_message("the simulated Sparks ended with the panel; `sparkctl demo --serve` keeps them running")
        return 0
    for line in closing_lines or ():
        stderr.print_message(line)
    return 0


def create_panel_context(clock: Clock | None, prompter: Prompter) -> CommandContext:
    """Return the context of the panel's commands; without what a command line needs, which stays in memory."""
    from sparkctl.clock import SystemClock
    from sparkctl.context import CommandContext, get_operator
    from sparkctl.files import state_dir
    from sparkctl.history.operation_history import OperationHistory

    history = OperationHistory(state_dir())
    return CommandContext(history=history, operator=get_operator(), prompter=prompter, clock=clock or SystemClock())


def _load_theme() -> str | None:
    """Return the name of the theme chosen last, None if not known."""
    from sparkctl.files import read_regular_file, state_dir

    with suppress(OSError, UnicodeDecodeError):
        return read_regular_file(state_dir() / _THEME_FILE_NAME, 1024).decode("utf-8").strip()
    return None


def _save_theme(name: str) -> None:
    from sparkctl.files import state_dir
    from sparkctl.history.database import make_private_directory

    with suppress(OSError):  # a theme that cannot be saved is no reason to fail
        make_private_directory(state_dir())
        (state_dir() / _THEME_FILE_NAME).write_text(f"{name}\n", encoding="utf-8")


class _ConfigReloader:
    """Reloads the config when its file changed, and reports a bad file once. ``readonly``: set on the command line; no config unsets it."""

    def __init__(self, path: Path | None, *, readonly: bool) -> None:
        from sparkctl.files import config_file

        self._readonly = readonly
        self._path = path or config_file()
        self._stamp = self._read_file_stamp()
        self._is_missed = (
            False  # it was missing at the last check: many editors remove the file before they write it again
        )

    def __call__(self) -> Config | None:
        """Return the config if its file changed, else None.

        Raises `InvalidInput` with its faults, and if the file is gone, because that is no empty config."""
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
                f"{self._path} is gone, or empty: sparkctl keeps the previous config",
                "sparkctl reads it again as soon as it has content",
            )
        config = load_config(self._path)
        return replace(config, readonly=config.readonly or self._readonly)

    def _read_file_stamp(self) -> tuple[int, int] | None:
        try:
            state = self._path.stat()
        except OSError:
            return None
        if not state.st_size:  # editors leave it empty for a moment
            return None
        return state.st_mtime_ns, state.st_size
