"""`exec`: a terminal in the container only where this one is read and written."""

from __future__ import annotations

import asyncio
import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

from sparkctl.simulator import SimulatedSparks


@pytest.mark.simulation(scenario="two-stacks", speed=50.0)
@pytest.mark.parametrize(("on_stdin", "on_stdout"), [(True, True), (True, False), (False, True)])
async def test_a_terminal_only_where_both_ends_are_one(
    sparks: SimulatedSparks, tmp_path: Path, on_stdin: bool, on_stdout: bool
) -> None:
    ssh, said = tmp_path / "ssh", tmp_path / "said"  # the ssh of this machine, which tells how it was called
    ssh.write_text(f"#!/bin/sh\nprintf '%s\\n' \"$@\" >{said}\n")
    ssh.chmod(0o755)
    env = os.environ | {
        "PATH": f"{tmp_path}:{os.environ['PATH']}", "SPARKCTL_CONFIG": str(sparks.config_path), "SPARKCTL_STATE": str(tmp_path)
    }  # fmt: skip
    master, terminal = pty.openpty()
    try:
        ran = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "sparkctl", "exec", "qwen36-vllm", "--", "ls",
            stdin=terminal if on_stdin else subprocess.DEVNULL, stdout=terminal if on_stdout else subprocess.DEVNULL,
            stderr=subprocess.PIPE, env=env,
        )  # fmt: skip
        _, errors = await asyncio.wait_for(ran.communicate(), 60)
    finally:
        os.close(terminal)
        os.close(master)
    assert ran.returncode == 0, errors
    words = said.read_text().splitlines()
    assert words[-1].startswith("docker exec -i")
    assert ("-t" in words, words[-1].startswith("docker exec -it ")) == (on_stdin and on_stdout,) * 2
