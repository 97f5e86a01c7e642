"""sparkctl's own token is no work of an engine: it stays idle for the table, the panel and the metrics, without a bandwidth."""

from __future__ import annotations

import pytest

from sparkctl.commands.start.start_instance import start_instance
from sparkctl.commands.start.start_request import StartInstance
from sparkctl.context import CommandContext
from sparkctl.files import shipped_profiles_dir
from sparkctl.model.engine_metrics import EngineActivity
from sparkctl.model.launch_plan import ReadinessTarget
from sparkctl.model.node import Node
from sparkctl.monitor import engine_probe
from sparkctl.monitor.meters.engine_meters import EngineMeters
from sparkctl.monitor.node_status import build_instance_view
from sparkctl.profiles.container_labels import parse_ready_rule_label
from sparkctl.profiles.profile_library import ProfileLibrary
from sparkctl.simulator import SimulatedSparks
from tests.support.events import collect_events


@pytest.mark.simulation(speed=50.0)
@pytest.mark.parametrize("name", ["qwen36-vllm", "qwen36", "llamacpp-gpt-oss-120b"])
async def test_an_engine_that_is_only_asked_whether_it_lives_is_idle(
    sparks: SimulatedSparks, ctx: CommandContext, node: Node, name: str
) -> None:
    profile = ProfileLibrary(shipped_profiles_dir()).load_profile(name)
    await collect_events(start_instance(ctx, StartInstance(profile=profile, nodes=(node,))))
    async with ctx.create_session(node) as session:
        await session.link.connect()
        (container,) = await session.docker.list_containers()
        meters = EngineMeters(session)
        for second in range(45):
            view = await build_instance_view(session, container, None)
            assert view is not None
            if second in (15, 30):
                rule = parse_ready_rule_label(container)
                assert rule is not None
                service = ReadinessTarget(view.port, rule, None, None)
                service = await engine_probe.resolve_served_model(session.link, service)
                assert (await engine_probe.request_token(session.link, service)).good
            await meters.read_metrics([view])
            (reading,) = meters.get_current_readings(0.0).values()
            if second > 2:
                seen = reading.numbers
                assert seen is not None
                assert (seen.activity, seen.generation_rate, seen.steps) == (EngineActivity.IDLE, 0, 0), second
                assert (seen.prompt_rate, seen.ttft, seen.step_load) == (0, None, None)
            await ctx.clock.sleep(1.0)
        await meters.aclose()
