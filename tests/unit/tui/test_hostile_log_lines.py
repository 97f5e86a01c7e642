"""Nothing that a log says reaches the terminal as anything but text."""

from __future__ import annotations

import asyncio
import os
import pty
import re
import subprocess
import sys
import textwrap
import time
from pathlib import Path

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sparkctl.tui.log_viewer.log_pane import LogStatusLine
from tests.unit.tui.log_app import LogApp, make_log_lines, wait_until_settled

NASTY = (
    b"\x1b]52;c;TEFOR0VS\x07clipboard",
    b"\x1b]0;title-of-evil\x07title",
    b"\x1b[2J\x1b[Hclear",
    b"\x1b[6nreport",
    b"\x1bP+q544e\x1b\\dcs",
    "\x9b31mred \x9d0;c1-title\x9c".encode(),
    b"\x9b31m \x9d0;x\x9c",
    "‮override⁦isolate".encode(),
    b"[/red][@click=app.quit]quit[/] [link=file:///x]x[/link] [/INST]",
    b"\x00\x07\x08\x0b\x0c\x0e\x7f bell",
    b"\xff\xfe invalid",
    b"tab\tbed\rrewritten\r",
    b"W" * 300,
)
PIECES = st.sampled_from([*NASTY, b"\x1b[", b"\x1b]", b"\x9b", b"m", b";", b"[", b"]", b"/", b"\r", b"\n"])
ARBITRARY = st.lists(st.binary(max_size=40) | PIECES, max_size=6).map(b"".join)


@settings(
    max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow], deadline=None
)
@given(said=st.lists(ARBITRARY, max_size=12), typed=st.text(max_size=10), name=st.text(min_size=1, max_size=10))
def test_arbitrary_bytes_are_printable_text(tmp_path: Path, said: list[bytes], typed: str, name: str) -> None:
    async def drive() -> list[str]:
        app = LogApp(tmp_path, (name, "spark2"))
        shown: list[str] = []
        async with app.run_test(size=(60, 8)) as pilot:
            app.view.add_lines(0, make_log_lines(raw.decode("utf-8", "replace") for raw in said))
            app.view.add_lines(1, make_log_lines(["plain"]))
            for step in (
                lambda: app.view.set_search(typed),
                lambda: app.view.set_filter(typed),
                app.view.toggle_times,
                app.view.toggle_wrap,
                lambda: app.view.set_filter(""),
                app.view.action_scroll_home,
                app.view.copy_lines,
                lambda: app.view.show_source(0),
            ):
                step()
                app.view.render_line(0)
                shown += app.rows()
                shown.append(app.pane.query_one(LogStatusLine).render().plain)
            await wait_until_settled(pilot)
        return shown

    for row in asyncio.run(drive()):
        assert row.isprintable(), ascii(row)


PROGRAM = textwrap.dedent(
    """
    import sys
    from pathlib import Path
    from tests.unit.tui.log_app import LogApp, make_log_lines
    from tests.unit.tui.test_hostile_log_lines import NASTY

    class Hostile(LogApp):
        def on_ready(self):
            self.view.add_lines(0, make_log_lines(raw.decode("utf-8", "replace") for raw in NASTY))
            self.view.toggle_wrap()
            self.view.add_lines(0, make_log_lines(["the very end"]))
            self.set_timer(0.5, self.exit)

    Hostile(Path(sys.argv[1])).run()
    """
)


def test_the_terminal_gets_only_text(tmp_path: Path) -> None:
    """A real terminal: what Textual itself writes is known, the payloads of the log are not in it."""
    master, slave = pty.openpty()
    env = {**os.environ, "TERM": "xterm-256color", "COLUMNS": "100", "LINES": "40", "PYTHONPATH": str(Path.cwd())}
    command = [sys.executable, "-c", PROGRAM, str(tmp_path)]
    with subprocess.Popen(command, stdin=slave, stdout=slave, stderr=slave, env=env, cwd=Path.cwd()) as process:
        os.close(slave)
        wrote = b""
        until = time.monotonic() + 60
        while time.monotonic() < until:
            try:
                piece = os.read(master, 65536)
            except OSError:
                break
            if not piece:
                break
            wrote += piece
    os.close(master)
    assert process.returncode == 0, wrote.decode("utf-8", "replace")
    text = re.sub(r"\x1b\]22;[\w-]*(\x07|\x1b\\)", "", wrote.decode("utf-8"))  # Textual sets the pointer's shape
    assert "the very end" in text
    assert "[@click=app.quit]" in text, "markup is text"
    for payload in ("]52;", "TEFOR0VS", "title-of-evil", "c1-title", "+q544e", "[6n", "\x07", "\x00", "‮", "⁦"):
        assert payload not in text, ascii(payload)
    assert not re.search(r"[\x80-\x9f]", text)
