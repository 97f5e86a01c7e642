"""The command itself, killed with SIGKILL in the middle of a switch: what another finds, and how it ends."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import pytest

from sparkctl.simulator import SimClock
from tests.support.sim_clients import PATIENCE, wait_until_true
from tests.support.switch_scene import NEW, SwitchScene, open_two_rank_model


class SwitchProcess:
    """An operator at a terminal, with directories of his own."""

    def __init__(self, bed: SwitchScene, home: Path, name: str) -> None:
        self.env = {
            "PATH": os.environ["PATH"], "HOME": str(home), "LANG": "C.UTF-8", "PYTHONPATH": str(Path(__file__).parents[3]),
            "SPARKCTL_CONFIG": str(bed.sparks.config_path), "SPARKCTL_STATE": str(home / "state"), "SPARKCTL_OPERATOR": name,
            "XDG_CONFIG_HOME": str(home / "config"),
        }  # fmt: skip

    async def start(self, *words: str) -> asyncio.subprocess.Process:
        return await asyncio.create_subprocess_exec(
            sys.executable, "-m", "sparkctl", *words, "--json", stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL, env=self.env, limit=1 << 20,
        )  # fmt: skip

    async def run(self, *words: str) -> dict[str, Any]:
        """Return the last line of a verb."""
        process = await self.start(*words)
        out, _ = await asyncio.wait_for(process.communicate(), PATIENCE)
        last: dict[str, Any] = json.loads(out.splitlines()[-1])
        return last


@pytest.mark.parametrize(("step", "verb"), [("stopping", "abort"), ("starting", "resume"), ("starting", "abort")])
async def test_killed_in_the_middle_another_finishes_or_undoes_it(tmp_path: Path, step: str, verb: str) -> None:
    async with open_two_rank_model(tmp_path / "state") as bed:
        milo, ada = (
            SwitchProcess(bed, tmp_path / "milo", "milo@laptop"),
            SwitchProcess(bed, tmp_path / "ada", "ada@desk"),
        )
        process = await milo.start("switch", NEW, "--node", "spark1", "--no-guard")
        assert process.stdout is not None
        async with asyncio.timeout(PATIENCE):
            async for line in process.stdout:
                event = json.loads(line)
                if event["event"] == "switch" and event["step"] == step:
                    process.kill()
                    break
            assert await process.wait() == -9
        await wait_until_true(lambda: not any(node.locks for node in bed.sparks.nodes.values()))
        status = await ada.run("status")
        assert {node["switch"]["journal"]["operator"] for node in status["nodes"]} == {"milo@laptop"}
        refused = await ada.run("up", NEW, "--node", "spark1", "--force")
        assert refused["exit_code"] == 6
        assert "switch to qwen36-ngram was left, step" in refused["message"]
        ended = await ada.run(verb)
        assert ended["exit_code"] == 0, ended
        assert bed.is_new() if verb == "resume" else bed.is_old()
        assert bed.journals == [None, None]


async def test_an_owner_who_stood_still_for_too_long_touches_nothing_of_the_next_ones(tmp_path: Path) -> None:
    """A laptop that sleeps, its connection as it was: the node gives its lock to another, who undoes it and switches."""
    clock = SimClock(elastic=True)
    async with open_two_rank_model(tmp_path / "state", clock=clock) as bed:
        milo, ada = (
            SwitchProcess(bed, tmp_path / "milo", "milo@laptop"),
            SwitchProcess(bed, tmp_path / "ada", "ada@desk"),
        )
        process = await milo.start("switch", NEW, "--node", "spark1", "--no-guard")
        assert process.stdout is not None
        async with asyncio.timeout(PATIENCE):
            async for line in process.stdout:
                event = json.loads(line)
                if event["event"] == "switch" and event["step"] == "starting":
                    os.kill(process.pid, signal.SIGSTOP)
                    break
        clock.set_rate(100.0)
        await wait_until_true(lambda: not any(node.locks for node in bed.sparks.nodes.values()))
        clock.set_rate(1.0)
        ended = await ada.run("abort")
        assert ended["exit_code"] == 0, ended
        assert bed.is_old()
        ended = await ada.run("switch", NEW, "--node", "spark1", "--no-guard")
        assert ended["exit_code"] == 0, ended
        new = bed.all()
        os.kill(process.pid, signal.SIGCONT)
        out, _ = await asyncio.wait_for(process.communicate(), PATIENCE)
        said = json.loads(out.splitlines()[-1])
        assert said["exit_code"] == 6, said
        assert "no longer belongs to this sparkctl" in said["message"]
        assert bed.is_new()
        assert bed.all() == new, "and it is hers"
        assert bed.journals == [None, None]
