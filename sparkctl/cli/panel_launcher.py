"""``sparkctl`` without a verb: open the panel on a terminal, and parse its command line; with ``--plain``
print one sentence for each change instead, for screen readers and logs.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from sparkctl.cli import stderr, stdout, verb_runner
from sparkctl.cli.options import create_context, select_configured_nodes
from sparkctl.cli.verb_runner import run_until_interrupt
from sparkctl.errors import InvalidInput
from sparkctl.model.finding import Finding
from sparkctl.model.instance import InstanceView
from sparkctl.model.node import NodeState
from sparkctl.model.phase import Phase
from sparkctl.model.text.sanitize import sanitize_line
from sparkctl.model.text.units import GIB
from sparkctl.monitor.node_views import NodeTelemetryView
from sparkctl.views.event_text import format_phase_name

if TYPE_CHECKING:
    import click

    from sparkctl.clock import Clock
    from sparkctl.config import Config
    from sparkctl.model.events import Event
    from sparkctl.tui.panel_options import DemoStep


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
    from sparkctl.cli.command_line_parser import CommandLineParser
    from sparkctl.cli.options import create_context
    from sparkctl.cli.stdout import is_ascii_only
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
            make_context=lambda asker: create_context(asker=asker, clock=clock),
            commands=CommandLineParser(root_command),
            keys=config.keys,
            reload=None if replay is not None else _ConfigReloader(config.path, readonly=readonly),
            recording=recording,
            readonly=readonly or config.readonly,
            ascii_only=is_ascii_only(sys.stdout),
            theme=config.theme or _load_theme(),
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
    """Reloads the config when its file changed; a missing or invalid file is reported once.

    ``readonly``: set on the command line; no config can unset it.
    """

    def __init__(self, path: Path | None, *, readonly: bool = False) -> None:
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


def _load_recording(path: Path) -> Sequence[Event]:
    from sparkctl.monitor.recording import read_recording

    return tuple(read_recording(path))


_MIN_MEMORY_CHANGE_BYTES = 8 * GIB  # smaller changes of memory are not printed


class ChangeReporter:
    """Remembers the last state of each node and describes what changed."""

    def __init__(self) -> None:
        self._before: dict[str, NodeTelemetryView] = {}
        self._used: dict[str, int] = {}

    def describe_changes(self, view: NodeTelemetryView) -> list[str]:
        """Return a sentence for each change since the last view of this node."""
        before = self._before.get(view.name)
        self._before[view.name] = view
        sentences = self._describe_state_change(before, view)
        if view.state is not NodeState.OK:
            return sentences
        return [
            *sentences,
            *_describe_instance_changes(before, view),
            *_describe_finding_changes(before, view),
            *self._describe_memory_change(view),
        ]

    def _describe_state_change(self, before: NodeTelemetryView | None, view: NodeTelemetryView) -> list[str]:
        known = (NodeState.UNKNOWN, None) if before is None else (before.state, before.detail)
        is_reason = view.state is NodeState.UNKNOWN and known[1] is None and view.detail is not None
        if known[0] is view.state and not is_reason:
            return []  # also for a node that was not read yet: the line "connecting to" was printed
        if view.state is NodeState.OK:
            return [f"{view.name} answers"]
        return [f"{view.name}: {view.state}" + (f", {sanitize_line(view.detail)}" if view.detail else "")]

    def _describe_memory_change(self, view: NodeTelemetryView) -> list[str]:
        bar = view.memory
        if bar is None:
            return []
        used = bar.total - bar.free - bar.page_cache
        if view.name in self._used and abs(used - self._used[view.name]) < _MIN_MEMORY_CHANGE_BYTES:
            return []
        self._used[view.name] = used
        return [
            f"{view.name}: {used / GIB:.1f} of {bar.total / GIB:.1f} GiB used, page cache {bar.page_cache / GIB:.1f}, "
            f"free {bar.free / GIB:.1f}"
        ]


def _describe_instance_changes(before: NodeTelemetryView | None, view: NodeTelemetryView) -> list[str]:
    old = {} if before is None else {one.name: one for one in before.instances}
    if view.instances_seen is not None and (before is None or before.instances_seen is None) and not view.instances:
        return [f"{view.name}: nothing runs"]
    sentences = [
        _describe_instance(one)
        for one in view.instances
        if one.name not in old or (one.ours and old[one.name].phase is not one.phase)
    ]
    names = {one.name for one in view.instances}
    return sentences + [f"{sanitize_line(name)} on {view.name} is gone" for name in old if name not in names]


def _describe_instance(one: InstanceView) -> str:
    state = "runs, not started by sparkctl" if one.phase is None else format_phase_name(one.phase)
    port = f", port {one.port}" if one.phase is Phase.READY and one.port is not None else ""
    why = f", {sanitize_line(one.detail)}" if one.detail and one.phase is Phase.FAILED else ""
    return f"{sanitize_line(one.name)} on {one.node}: {state}{port}{why}"


def _describe_finding_changes(before: NodeTelemetryView | None, view: NodeTelemetryView) -> list[str]:
    old = () if before is None else before.findings
    known, now = {_finding_key(one) for one in old}, {_finding_key(one) for one in view.findings}
    sentences = [
        f"{view.name}: {one.severity}: {sanitize_line(one.summary)}"
        for one in view.findings
        if _finding_key(one) not in known
    ]
    return sentences + [
        f"{view.name}: over: {sanitize_line(one.summary)}" for one in old if _finding_key(one) not in now
    ]


def _finding_key(one: Finding) -> tuple[str, str | None]:
    return one.kind, one.instance


def run_plain_mode(replay: Path | None = None) -> int:
    """Print changes until Ctrl-C or the end of the recording."""
    if replay is not None:
        from sparkctl.clock import SystemClock
        from sparkctl.monitor.recording import read_recording, replay_recording

        updates = replay_recording(SystemClock(), read_recording(replay))
    else:
        from sparkctl.monitor.watch_nodes import watch_load_views

        context, nodes = create_context(), select_configured_nodes(())
        stdout.print_line(
            _format_timestamped(context.clock.unix_time(), f"connecting to {' and '.join(node.name for node in nodes)}")
        )
        updates = watch_load_views(context, nodes)
    verb_runner.run_async(run_until_interrupt(_print_changes(updates)))
    return 0


async def _print_changes(updates: AsyncGenerator[tuple[NodeTelemetryView, ...], None]) -> None:
    reporter = ChangeReporter()
    async with aclosing(updates):
        async for views in updates:
            for view in views:
                for sentence in reporter.describe_changes(view):
                    stdout.print_line(_format_timestamped(view.when, sentence))


def _format_timestamped(when: float, sentence: str) -> str:
    return f"{time.strftime('%H:%M:%S', time.localtime(when))}  {sentence}"
