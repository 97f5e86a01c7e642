"""``sparkctl`` without a verb: open the panel on a terminal, and parse its command line."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import click
from click.core import ParameterSource

from sparkctl.cli import stderr
from sparkctl.cli.options import use_context
from sparkctl.cli.verb_runner import capture_verbs
from sparkctl.commands.actions import ACTIONS, PANEL_VERBS
from sparkctl.context import CommandContext
from sparkctl.errors import InvalidInput
from sparkctl.model.text.suggestions import format_did_you_mean
from sparkctl.tui.panel_options import PreparedCommand
from sparkctl.tui.screens.registry import AVAILABLE_SCREENS

if TYPE_CHECKING:
    from sparkctl.clock import Clock
    from sparkctl.config import Config
    from sparkctl.model.events import Event
    from sparkctl.model.questions import Prompter
    from sparkctl.tui.panel_options import DemoStep


_CLI_ONLY_OPTIONS = ("--json", "--record", "--format")
_HIDDEN_OPTIONS = frozenset(_CLI_ONLY_OPTIONS)
_LOG_SCREEN_OPTIONS = frozenset(("--node", "--follow"))
_LOG_SCREEN_PARAMETERS = ("instance", "node", "follow")  # the log screen knows these; it always follows
_EXPLICIT_SOURCES = (ParameterSource.COMMANDLINE, ParameterSource.ENVIRONMENT)


class CommandLineParser:
    """Parses and completes the panel's command line (`:`) with the click commands. ``verbs`` are those of its actions."""

    verbs = tuple(
        dict.fromkeys(
            action.verb
            for action in ACTIONS
            if action.verb and (action.screen is None or action.screen in AVAILABLE_SCREENS)
        )
    )

    def __init__(self, root_command: click.Group) -> None:
        self._root_command = root_command

    def complete_line(self, line: str) -> tuple[str, ...]:
        """Return completions of the last word, as whole words; none for a line that cannot be parsed."""
        from click.shell_completion import ShellComplete

        try:
            words = shlex.split(line)
        except ValueError:
            return ()
        last = words.pop() if words and not line.endswith(" ") else ""
        if not words:
            return tuple(verb for verb in self.verbs if verb.startswith(last))
        if words[0] == "help" and len(words) == 1:
            return tuple(verb for verb in self.verbs if verb not in PANEL_VERBS and verb.startswith(last))
        if words[0] not in self.verbs or words[0] in PANEL_VERBS:
            return ()
        if isinstance(self._root_command.get_command(click.Context(self._root_command), words[0]), click.Group):
            return ()  # subcommands are for the command line only
        items = ShellComplete(self._root_command, {}, "sparkctl", "_SPARKCTL_COMPLETE").get_completions(words, last)
        taken = (
            _HIDDEN_OPTIONS
            if words[0] != "logs"
            else {item.value for item in items if item.value[:1] == "-"} - _LOG_SCREEN_OPTIONS
        )
        return tuple(item.value for item in items if item.type == "plain" and item.value not in taken)

    def parse_screen_target(self, words: Sequence[str]) -> tuple[str, ...]:
        """Parse a line that opens a screen; return its words as ``verb instance --node NAME``, without missing parts.

        Raises `InvalidInput` as the command line does, and for an option that no screen knows."""
        verb, *rest = words
        outer = click.Context(self._root_command, info_name="sparkctl")
        command = self._root_command.get_command(outer, verb)
        assert command is not None
        try:
            with command.make_context(verb, list(rest), parent=outer) as ctx:
                given = [one for one in command.params if ctx.get_parameter_source(one.name or "") in _EXPLICIT_SOURCES]
                idle = [one.opts[-1] for one in given if one.name not in _LOG_SCREEN_PARAMETERS]
                instance, nodes = ctx.params.get("instance"), ctx.params.get("node") or ()
        except click.ClickException as wrong:
            usage = wrong.ctx.get_usage() if isinstance(wrong, click.UsageError) and wrong.ctx else None
            raise InvalidInput(wrong.format_message(), usage) from wrong
        if idle:
            raise InvalidInput(
                f"{idle[0]} is for the command line: sparkctl {shlex.join(words)}",
                "in the panel's log: / searches, & filters, T jumps to a time",
            )
        return (verb, *([str(instance)] if instance else []), *(["--node", str(nodes[0])] if nodes else []))

    def parse_command(self, words: Sequence[str], context: CommandContext) -> PreparedCommand:
        """Parse a command line without running it. Raises `SparkctlError` as the command line does."""
        if not words:
            raise InvalidInput("type a verb", ", ".join(self.verbs))
        verb, *rest = words
        if verb not in self.verbs:
            elsewhere = verb in self._root_command.list_commands(click.Context(self._root_command))
            raise InvalidInput(
                f"`{verb}` is for the command line"
                if elsewhere
                else f"no such verb: {verb}{format_did_you_mean(verb, self.verbs)}",
                f"here: {', '.join(self.verbs)}",
            )
        if verb in PANEL_VERBS:
            raise InvalidInput(f"`{verb}` takes nothing else" if rest else f"`{verb}` is for the panel")
        if idle := [word for word in rest if word.partition("=")[0] in _CLI_ONLY_OPTIONS]:
            raise InvalidInput(f"{idle[0]} is for the command line: sparkctl {shlex.join(words)}")
        return self._parse_with_click(verb, rest, context)

    def _parse_with_click(self, verb: str, rest: Sequence[str], context: CommandContext) -> PreparedCommand:
        outer = click.Context(self._root_command, info_name="sparkctl")
        command = self._root_command.get_command(outer, verb)
        assert command is not None
        if "--help" in rest or "-h" in rest:
            raise InvalidInput(command.get_usage(click.Context(command, info_name=verb)), command.short_help)
        with capture_verbs() as verbs, use_context(context):
            try:
                with command.make_context(verb, list(rest), parent=outer) as ctx:
                    nodes = _target_nodes(ctx.params.get("node") or ctx.params.get("nodes"))
                    command.invoke(ctx)
            except click.ClickException as wrong:
                usage = wrong.ctx.get_usage() if isinstance(wrong, click.UsageError) and wrong.ctx else None
                raise InvalidInput(wrong.format_message(), usage) from wrong
        if not verbs:
            raise InvalidInput(f"`{verb}` is for the command line: sparkctl {shlex.join((verb, *rest))}")
        return PreparedCommand(verb=verb, words=(verb, *rest), nodes=nodes, context=context, events=verbs[0])


def _target_nodes(given: object) -> tuple[str, ...]:
    """Return the nodes that a command line names, or the only configured node."""
    if isinstance(given, str):
        return (given,)
    if isinstance(given, tuple) and given:
        return tuple(map(str, given))
    from sparkctl.config import load_config

    names = [node.name for node in load_config(required=False).nodes]
    return tuple(names) if len(names) == 1 or given == () else ()


@dataclass(frozen=True, slots=True)
class DemoOptions:
    """Options of the demo panel: its ``clock``, the header's ``badge``, and the steps of the guided tour."""

    clock: Clock
    badge: Callable[[], str]
    story: tuple[DemoStep, ...] = ()


_THEME_FILE_NAME = "theme"  # in the state directory


def can_open_panel() -> bool:
    """Tell whether stdin and stdout are a terminal that can show the panel."""
    return sys.stdin.isatty() and sys.stdout.isatty() and os.environ.get("TERM", "dumb") != "dumb"


def open_panel(
    root_command: click.Group,
    *,
    readonly: bool = False,
    replay: Path | None = None,
    demo: DemoOptions | None = None,
) -> int:
    """Open the panel, return when it is closed, and print what keeps running.

    Raises `InvalidInput` for an invalid config or recording.
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
            commands=CommandLineParser(root_command),
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
    closing_lines = panel.run()
    if panel.defect is not None:
        raise panel.defect
    for warning in config.warnings:
        stderr.print_warning(None, warning, None)
    if demo is not None:
        stderr.print_message("the simulated Sparks ended with the panel; `sparkctl demo --serve` keeps them running")
        return 0
    for line in closing_lines or ():
        stderr.print_message(line)
    return 0


def _load_theme() -> str | None:
    """Return the name of the theme chosen last, None if not known."""
    from sparkctl.files import read_regular_file
    from sparkctl.paths import state_dir

    with suppress(OSError, UnicodeDecodeError):
        return read_regular_file(state_dir() / _THEME_FILE_NAME, 1024).decode("utf-8").strip()
    return None


def _save_theme(name: str) -> None:
    from sparkctl.history.database import make_private_directory
    from sparkctl.paths import state_dir

    with suppress(OSError):  # a theme that cannot be saved is no reason to fail
        make_private_directory(state_dir())
        (state_dir() / _THEME_FILE_NAME).write_text(f"{name}\n", encoding="utf-8")


class _ConfigReloader:
    """Reloads the config when its file changed; a missing or invalid file is reported once.

    ``readonly``: set on the command line; no config can unset it.
    """

    def __init__(self, path: Path | None, *, readonly: bool = False) -> None:
        from sparkctl.paths import config_file

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
