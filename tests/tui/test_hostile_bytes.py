"""To the terminal Textual talks and nobody else, whatever bytes a node sends: on every screen of the panel.

The Spark is simulated and lies: what its commands, its probe, its Docker and its engines say is spoilt behind its sshd, so that
it comes in as bytes and through every decoder. What is looked at is what the driver would write.
"""

from __future__ import annotations

import asyncio
import json
import random
import re
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from textual.driver import Driver
from textual.drivers.headless_driver import HeadlessDriver

from sparkctl.cli.command_line_parser import CommandLineParser as Grammar
from sparkctl.cli.main import sparkctl_command
from sparkctl.config import load_config
from sparkctl.simulator import SimulatedSparks
from sparkctl.simulator.http_server import RequestHandler, SimHttpReply, SimHttpRequest
from sparkctl.simulator.node_programs import shell_commands
from sparkctl.simulator.node_programs.shell_commands import CommandStreams, run_command
from sparkctl.simulator.sim_node import SimNode
from sparkctl.tui.app import PanelApp
from tests.tui.panel_driver import Driver as Pilot
from tests.tui.panel_driver import build_panel_options, wait_until_true

# What Textual writes of its own: rows one below the other, colours, where the cursor is, modes and questions about them, keyboard
# protocols, the pointer's shape.
OWN = re.compile(r"\n(?=\x1b\[\d+;\d+H)|\x1b\[(?:[0-9;:]*m|\d+;\d+H|\?\d+[hl]|\?\d+\$p|[<>=]\d*u)|\x1b\]22;[a-z-]*\x07")
NASTY = (
    b"\x1b]52;c;aGk=\x07", b"\x1b[2J", b"\x1b]0;owned\x07", b"\x1b]8;;file:///x\x1b\\x\x1b]8;;\x1b\\", b"\x1b[5n",
    b"\x1bc", b"\x9b6n", b"\xc2\x9b6n", b"\x1bP+q\x1b\\", b"\x1b_Gi=1\x1b\\", "\u202eevil\u2066".encode(),
    "a\u200b\u200db".encode(), b"a\x00b\x08\x7f", b"\r\n\t\x0b\x0c", b"[@click=app.quit]x[/]", b"[/red]",
    "日本語".encode(), "👩\u200d👧e\u0301".encode(), b"\xed\xa0\x80", b"\xff\xfe", b"\x1b[31mERROR\x1b[0m Traceback",
    b"\x1b[", b"\x1b", "\u2028\u2029\ufeff".encode(),
)  # fmt: skip
KEPT = frozenset(("Id", "kind", "Type", "status", "Action", "State", "Created", "StartedAt", "FinishedAt", "container"))
SCREENS = {
    "OverviewScreen", "InstanceScreen", "LogScreen", "ProfilesScreen", "DoctorScreen", "TextDialog", "TypeNameDialog",
    "CommandLineDialog", "ActionPalette",
}  # fmt: skip


@dataclass(slots=True)
class HostileBytes:
    """Spoils what a node says: the same words always in the same way, so that there is something to be seen."""

    blobs: Sequence[bytes]
    dice: random.Random
    _lies: dict[tuple[str, str], str] = field(default_factory=dict)

    def blob(self) -> bytes:
        return self.dice.choice(self.blobs)

    def text(self, key: str, true: str) -> str:
        if key in KEPT:
            return true
        if (key, true) not in self._lies:
            lie = self.blob().decode("utf-8", "surrogateescape")
            self._lies[key, true] = self.dice.choice((true, true + lie, lie + true, lie))
        return self._lies[key, true]

    def value(self, key: str, value: Any) -> Any:
        if isinstance(value, str):
            return self.text(key, value)
        if isinstance(value, dict):
            return {name: self.value(name, one) for name, one in value.items()}
        return [self.value(key, one) for one in value] if isinstance(value, list) else value

    def said(self, data: bytes) -> bytes:
        """Spoil JSON from within, and other text line by line."""
        return b"\n".join(self._line(line) if line else line for line in data.split(b"\n"))

    def _line(self, line: bytes) -> bytes:
        try:
            spoilt = json.dumps(self.value("", json.loads(line)), ensure_ascii=self.dice.random() < 0.5)
        except ValueError:
            if line.startswith(b"@@") or self.dice.random() < 0.6:
                return line
            return line + b" " + self.blob().replace(b"\n", b"")
        return spoilt.encode("utf-8", "surrogateescape")


@dataclass(frozen=True, slots=True)
class Spoilt:
    """A stream of a command, with whole lines of rubbish in between."""

    liar: HostileBytes
    to: Any

    def write(self, data: bytes) -> None:
        if self.liar.dice.random() < 0.2 and data.startswith(b'{"probe"'):
            self.to.write(self.liar.blob() + b"\n")
        self.to.write(self.liar.said(data))


@contextmanager
def serve_hostile_bytes(liar: HostileBytes) -> Iterator[None]:
    """Every simulated Spark lies, in all that leaves it."""
    attendant = shell_commands._build_forward_handler

    async def spoilt_run(node: SimNode, line: str, streams: CommandStreams) -> int:
        return await run_command(
            node, line, CommandStreams(streams.stdin, Spoilt(liar, streams.stdout), Spoilt(liar, streams.stderr))
        )

    def spoilt_attendant(handler: RequestHandler, server: str) -> shell_commands.ForwardHandler:
        async def handle(request: SimHttpRequest) -> SimHttpReply:
            reply = await handler(request)
            return replace(reply, body=liar.said(reply.body))

        return attendant(handle, server)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(shell_commands, "run_command", spoilt_run)
        patched.setattr(shell_commands, "_build_forward_handler", spoilt_attendant)
        yield


class Collected(HeadlessDriver):
    """Writes nowhere, and keeps what a terminal would get; as bytes, which text that cannot be encoded never becomes."""

    def __init__(self, *args: Any, **words: Any) -> None:
        super().__init__(*args, **words)
        self.written: list[bytes] = []

    @property
    def is_headless(self) -> bool:
        return False

    def write(self, data: str) -> None:
        self.written.append(data.encode())


class Watched(PanelApp):
    """The panel on such a driver."""

    def _build_driver(self, headless: bool, inline: bool, mouse: bool, size: tuple[int, int] | None) -> Driver:
        return Collected(self, debug=False, mouse=mouse, size=size)


WALK = (
    "i escape question_mark escape d escape x escape colon d o w n space tab escape "
    "enter d pagedown escape i escape "
    "l f w t slash e enter n ampersand o enter ampersand backspace escape E m g 1 "
    "p slash q enter escape 1 "
    "exclamation_mark r slash a enter 1 "
    "ctrl+p s escape "
)


async def open_and_walk_panel(liar: HostileBytes, size: tuple[int, int]) -> tuple[bytes, set[str]]:
    """Walk through the panel of a Spark that lies; return what was written, and which screens were seen."""
    with serve_hostile_bytes(liar), tempfile.TemporaryDirectory() as state:
        async with SimulatedSparks("two-stacks", speed=50, decode_speed=200, nodes=("spark1",)) as sparks:
            with pytest.MonkeyPatch.context() as patched:
                patched.setenv("SPARKCTL_CONFIG", str(sparks.config_path))
                for one in sparks.docker["spark1"].containers.values():
                    for blob in liar.blobs:
                        one.journal.write(blob + b"\n", liar.dice.choice(("stdout", "stderr")))
                panel = Watched(
                    build_panel_options(
                        load_config(sparks.config_path).nodes,
                        Path(state),
                        load_commands=lambda: Grammar(sparkctl_command),
                    )
                )
                async with panel.run_test(size=size, notifications=True) as pilot:
                    seen = await _walk_panel(pilot, panel)
                assert isinstance(panel._driver, Collected)
                return b"".join(panel._driver.written), seen


async def _walk_panel(pilot: Pilot, panel: PanelApp) -> set[str]:
    await wait_until_true(pilot, lambda: panel.build_action_context().instance is not None)
    await wait_until_true(
        pilot,
        lambda: (
            panel.controller is not None
            and panel.controller.store.get_last_known_view(panel.node_names[0]).sample is not None
        ),
    )
    seen = set()
    for key in WALK.split():
        await pilot.press(key)
        seen.add(type(panel.screen).__name__)
        assert panel.is_running
    return seen


def find_foreign_bytes(written: bytes) -> list[str]:
    """Return what is neither text nor Textual's own, with a little of what stands around it."""
    text = OWN.sub("", written.decode())
    return [text[max(0, at - 9) : at + 9] for at, char in enumerate(text) if not char.isprintable()]


@pytest.mark.parametrize(
    "sent", ["\x1b]52;c;aGk=\x07", "\x1b[2J", "\x1b]0;x\x07", "\x9b6n", "\u202e", "\u200b", "\x00", "\n"]
)
def test_what_is_looked_for_would_be_found(sent: str) -> None:
    assert find_foreign_bytes(f"\x1b[?2026h\x1b[3;4H\x1b[1;31mtext{sent}\x1b[0m".encode())
    assert not find_foreign_bytes(b"\x1b[?2026h\x1b[3;4H\x1b[1;31mtext\x1b[0m")


@settings(
    max_examples=2 if settings.default.derandomize else 30,
    deadline=None,
    phases=(Phase.explicit, Phase.generate),
    suppress_health_check=list(HealthCheck),
)
@given(
    st.lists(st.binary(min_size=1, max_size=60), min_size=8, max_size=24), st.integers(0, 1 << 32),
    st.sampled_from([(80, 24), (120, 40), (50, 12)]),
)  # fmt: skip
def test_no_byte_of_a_node_gets_to_the_terminal_but_as_text(
    blobs: list[bytes], seed: int, size: tuple[int, int]
) -> None:
    written, seen = asyncio.run(open_and_walk_panel(HostileBytes((*NASTY, *blobs), random.Random(seed)), size))
    assert "\N{REPLACEMENT CHARACTER}".encode() in written, "no lie was shown"
    assert seen >= SCREENS
    assert find_foreign_bytes(written) == []
