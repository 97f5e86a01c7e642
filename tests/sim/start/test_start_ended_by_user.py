"""A start that somebody stops or kills while `up` watches it: who asked for it is told, and no line of its log is blamed."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from sparkctl.commands.diagnose_log import diagnose_instance
from sparkctl.commands.start.start_instance import start_instance
from sparkctl.commands.start.start_request import StartInstance
from sparkctl.config import load_config
from sparkctl.context import CommandContext
from sparkctl.files import shipped_profiles_dir
from sparkctl.history.operation_history import OperationHistory
from sparkctl.model.events import CommandEnded, PhaseChanged
from sparkctl.model.phase import Phase
from sparkctl.model.verdict import FailureCause, Verdict
from sparkctl.profiles.profile_library import ProfileLibrary
from sparkctl.simulator import SimulatedSparks
from sparkctl.transport.node_session import NodeSession

pytestmark = pytest.mark.simulation(speed=5)  # a start can be met in the middle

ULIMIT = (
    "(APIServer pid=1) WARNING 11-22 10:00:01 [system_utils.py:265] Found ulimit of 20000 and failed to automatically "
    "increase with error current limit exceeds maximum limit.\n"
)


async def start_and_end_by(sparks: SimulatedSparks, state: Path, profile: str, how: str) -> tuple[Verdict, Verdict]:
    """Start a profile, end it ``how`` once it loads, and return the verdicts of `up` and of `diagnose`."""
    node = load_config(sparks.config_path).nodes[0]
    chosen = ProfileLibrary(user=shipped_profiles_dir()).load_profile(profile)
    request = StartInstance(profile=chosen, nodes=(node,), words=(profile,), guarded=False)
    ctx = CommandContext(history=OperationHistory(state), operator="milo@desk")
    docker, last = sparks.docker["spark1"], None
    ending: list[asyncio.Future[None]] = []
    async for event in start_instance(ctx, request):
        last = event
        if not ending and isinstance(event, PhaseChanged) and event.phase is Phase.LOADING:
            ((container, process),) = docker.running.items()
            process._write_log(ULIMIT, "stdout")
            if how == "stop":
                ending.append(asyncio.ensure_future(docker.stop_container(docker.containers[container], 10)))
            elif how == "kill":
                async with NodeSession(node) as session:
                    await session.link.connect()
                    killing = session.docker.signal_container(container, "SIGKILL")
                    ending.append(asyncio.ensure_future(killing))
                    await ending[0]
            else:
                if how == "oom":
                    sparks.nodes["spark1"].log_oom_kill(process.main_pid, container)
                process.kill()  # as the kernel does, or kill -9 on the node
                ending.append(asyncio.ensure_future(asyncio.sleep(0)))
    await asyncio.gather(*ending)
    assert isinstance(last, CommandEnded)
    assert last.exit_code == 1
    assert last.verdict is not None
    found = (await diagnose_instance(ctx, profile, [node], None)).diagnosis.verdict
    assert found is not None
    return last.verdict, found


@pytest.mark.parametrize("profile", ["qwen36-vllm", "qwen36", "llamacpp-gpt-oss-120b"])
@pytest.mark.parametrize(
    ("how", "cause"),
    [
        ("stop", FailureCause.STOPPED_BY_OTHERS),
        ("kill", FailureCause.STOPPED_BY_OTHERS),
        ("kill -9", FailureCause.KILLED),
        ("oom", FailureCause.HOST_OOM_KILL),
    ],
)
async def test_what_ended_it_is_told_and_no_warning_is(
    sparks: SimulatedSparks, tmp_path: Path, profile: str, how: str, cause: FailureCause
) -> None:
    for verdict in await start_and_end_by(sparks, tmp_path, profile, how):
        assert verdict.cause is cause
        assert "ulimit" not in verdict.summary
        result = [one.text for one in verdict.evidence if one.origin == "docker"]
        wanted = {
            "stop": "asked to send it SIGTERM",
            "kill": "asked to send it SIGKILL",
            "kill -9": "nobody asked Docker",
            "oom": "nobody asked Docker",
        }
        assert any(wanted[how] in one for one in result), result
        assert (verdict.evidence[0].origin == "kernel") is (how == "oom")
