"""Ctrl-C is heard by every verb, whatever its event loop is about to do."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys

import pytest

from sparkctl.cli import verb_runner


def test_a_signal_wakes_the_loop() -> None:
    async def woken_by() -> int:
        before = signal.set_wakeup_fd(-1)
        signal.set_wakeup_fd(before)
        return before

    assert verb_runner.run_async(woken_by()) != -1, "a signal just before the loop goes to sleep would be slept through"
    assert signal.set_wakeup_fd(-1) == -1


def test_ctrl_c_is_a_keyboard_interrupt() -> None:
    async def pressed() -> None:
        os.kill(os.getpid(), signal.SIGINT)
        await asyncio.get_running_loop().create_future()

    with pytest.raises(KeyboardInterrupt):
        verb_runner.run_async(pressed())


def test_a_ctrl_c_while_the_command_line_is_imported_is_no_traceback() -> None:
    program = """
import sys
class Interrupt:
    def find_spec(self, name, path, target=None):
        if name == "sparkctl.cli.invocation":
            raise KeyboardInterrupt
sys.meta_path.insert(0, Interrupt())
from sparkctl.cli import main
main()
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")
