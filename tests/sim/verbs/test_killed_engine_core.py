"""An engine that ends with exit code 0 although nobody asked it to: status looks into its log before it calls it stopped."""

from __future__ import annotations

from pathlib import Path

import pytest

from sparkctl.commands.diagnose_log import diagnose_instance
from sparkctl.config import load_config
from sparkctl.context import CommandContext
from sparkctl.history.operation_history import OperationHistory
from sparkctl.model.phase import Phase
from sparkctl.monitor.node_status import read_node_status
from sparkctl.simulator import SimulatedSparks
from sparkctl.transport.node_session import NodeSession
from tests.support.sim_clients import FAST, wait_until_true

HEAD = "(APIServer pid=1) WARNING 11-22 02:08:43 [core_client.py:817] "
DEATH = "[shutdown] MPClient: engine core exited unexpectedly; starting cleanup"


@pytest.mark.parametrize(("line", "phase"), [(DEATH, Phase.FAILED), ("goodbye", Phase.STOPPED)])
async def test_an_engine_core_that_was_killed_is_no_stop(tmp_path: Path, line: str, phase: Phase) -> None:
    async with SimulatedSparks("two-stacks", speed=FAST["speed"], decode_speed=FAST["decode_speed"]) as sparks:
        docker = sparks.docker["spark2"]
        (process,) = docker.running.values()
        process._write_log(f"{HEAD}{line}\n", "stdout")
        process.terminate()
        await wait_until_true(lambda: not docker.running)
        ctx = CommandContext(history=OperationHistory(tmp_path), operator="tester")
        async with NodeSession(load_config(sparks.config_path).nodes[1]) as session:
            (one,) = (await read_node_status(ctx, session)).instances
        (container,) = docker.containers.values()
        assert container.exit_code == 0
        assert one.phase is phase
        assert (one.detail is not None) is (phase is Phase.FAILED)


async def test_what_went_down_with_its_machine_says_so_after_the_next_boot(tmp_path: Path) -> None:
    """Docker ends what ran when it starts again, with its own exit code."""
    async with SimulatedSparks("two-stacks", speed=FAST["speed"], decode_speed=FAST["decode_speed"]) as sparks:
        docker, spark = sparks.docker["spark2"], sparks.nodes["spark2"]
        (process,) = docker.running.values()
        process.kill()
        await wait_until_true(lambda: not docker.running)
        (container,) = docker.containers.values()
        booted = spark.unix_time() - spark.uptime
        container.exit_code, container.started = 255, int((booted - 3600) * 1e9)
        ctx = CommandContext(history=OperationHistory(tmp_path), operator="tester")
        nodes = load_config(sparks.config_path).nodes
        async with NodeSession(nodes[1]) as session:
            (one,) = (await read_node_status(ctx, session)).instances
        found = (await diagnose_instance(ctx, one.name, nodes, None)).diagnosis
    why = "ended because its machine went down while it ran, and was booted again"
    assert (one.phase, one.detail) == (Phase.FAILED, why)
    assert found.verdict is not None
    assert why in found.verdict.summary
