"""The kernel's log of simulated Sparks through a real connection: what doctor says of it, and what it cannot say."""

from __future__ import annotations

from collections.abc import Mapping

from sparkctl.commands.doctor_checks import check_nodes
from sparkctl.config import load_config
from sparkctl.context import CommandContext
from sparkctl.model.events import FindingReported
from sparkctl.model.finding import FindingKind, Severity
from sparkctl.simulator import SimulatedSparks
from sparkctl.simulator.sim_node import SimNodeOptions
from tests.support import sim_clients

REFUSED = "NVRM: nvCheckOkFailedNoLog: Check failed: Out of memory [NV_ERR_NO_MEMORY] (0x00000051) returned"


async def run_doctor(ctx: CommandContext, sparks: SimulatedSparks) -> Mapping[str, FindingReported]:
    nodes = load_config(sparks.config_path).nodes[:1]
    events = [event async for event in check_nodes(ctx, nodes)]
    return {event.check: event for event in events if isinstance(event, FindingReported)}


async def test_a_quiet_kernel(ctx: CommandContext) -> None:
    async with SimulatedSparks(**sim_clients.FAST) as sparks:
        found = await run_doctor(ctx, sparks)
    assert found[FindingKind.KERNEL_LOG].severity is Severity.GOOD
    assert "no known problem" in found[FindingKind.KERNEL_LOG].message
    assert "the previous boot ended with a shutdown" in found[FindingKind.KERNEL_LOG].message
    assert not {FindingKind.KERNEL, FindingKind.LAST_BOOT} & found.keys()


async def test_a_kernel_that_saw_something(ctx: CommandContext) -> None:
    cut = SimNodeOptions(boot_end=("dockerd[911]: x", f"kernel: {REFUSED}"))
    async with SimulatedSparks(options={"spark1": cut}, **sim_clients.FAST) as sparks:
        sparks.nodes["spark1"].log_oom_kill(4242, "5e" * 32)
        found = await run_doctor(ctx, sparks)
    assert "OOM killer ended python3" in found[FindingKind.KERNEL].message
    assert "without a shutdown" in found[FindingKind.LAST_BOOT].message
    assert "NV_ERR_NO_MEMORY" in found[FindingKind.LAST_BOOT].message


async def test_without_the_right_it_is_unknown_and_the_right_is_named(ctx: CommandContext) -> None:
    barred = SimNodeOptions(
        kernel_log_trouble="/dev/kmsg: Operation not permitted; the journal: none, or not readable for this user"
    )
    async with SimulatedSparks(options={"spark1": barred}, **sim_clients.FAST) as sparks:
        sparks.nodes["spark1"].log_kernel_line(REFUSED)
        found = await run_doctor(ctx, sparks)
    assert found[FindingKind.KERNEL_LOG].severity is Severity.UNKNOWN
    assert "/dev/kmsg: Operation not permitted" in found[FindingKind.KERNEL_LOG].message
    assert "usermod -aG adm" in (found[FindingKind.KERNEL_LOG].remedy or "")
    assert FindingKind.KERNEL not in found
