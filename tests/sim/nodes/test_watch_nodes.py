"""A node that is followed: its samples go on whatever Docker does, and come faster while something loads."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing
from dataclasses import asdict, replace
from pathlib import Path

import asyncssh
import pytest

from sparkctl.clock import SystemClock
from sparkctl.commands.arm_guard import ArmGuard, arm_guard, disarm_guard
from sparkctl.context import CommandContext
from sparkctl.history.operation_history import OperationHistory
from sparkctl.model.events import Event, GuardStatusChanged
from sparkctl.model.launch_plan import ContainerLabel, GuardRule, ReadinessRule
from sparkctl.model.node import Node, NodeName, NodeState
from sparkctl.monitor.node_monitor import NodeMonitor
from sparkctl.monitor.node_status import build_instance_view
from sparkctl.monitor.node_views import NodeTelemetryView
from sparkctl.monitor.watch_nodes import watch_load_views
from sparkctl.simulator import SimulatedSparks, docker_daemon
from sparkctl.simulator.http_server import SimHttpReply
from sparkctl.transport.node_session import NodeSession
from tests.support import sim_clients

pytestmark = pytest.mark.simulation("two-stacks", **sim_clients.FAST)


class Hasty(SystemClock):
    """Pauses are a fiftieth of what they should be."""

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds / 50)


def make_context(directory: Path) -> CommandContext:
    return CommandContext(history=OperationHistory(directory), operator="tester", clock=Hasty())


def get_first_node(sparks: SimulatedSparks) -> Node:
    return Node(
        name=NodeName("spark1"), host="127.0.0.1", user="milo", port=sparks.ports["spark1"], identity=str(sparks.identity_path),
        known_hosts=str(sparks.known_hosts_path),
    )  # fmt: skip


async def wait_for_view(
    views: AsyncIterator[tuple[NodeTelemetryView, ...]],
    claim: Callable[[NodeTelemetryView], object],
    within: float = sim_clients.PATIENCE,
) -> NodeTelemetryView:
    async with asyncio.timeout(within):
        async for (view,) in views:
            if claim(view):
                return view
    raise AssertionError("it goes on until it is closed")


async def test_a_docker_that_hangs_holds_up_no_sample(
    sparks: SimulatedSparks, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    views = watch_load_views(make_context(tmp_path), [get_first_node(sparks)], every=0.1)
    seen = await wait_for_view(views, lambda view: view.instances)
    hanging, asked = asyncio.Event(), asyncio.Event()

    async def hang(*_: object) -> SimHttpReply:
        asked.set()
        await hanging.wait()
        return SimHttpReply()

    monkeypatch.setattr(docker_daemon, "_dispatch_request", hang)
    await wait_for_view(views, lambda _: asked.is_set())
    assert seen.sample is not None
    first = (await wait_for_view(views, lambda view: view.sample)).sample
    assert first is not None
    later = await wait_for_view(views, lambda view: view.sample and view.sample.sequence >= first.sequence + 5)
    assert [one.name for one in later.instances] == ["qwen36-ngram"]
    assert later.instances_seen == seen.instances_seen
    assert later.instances[0].memory is not None, "what it holds is the probe's to say"
    hanging.set()
    await views.aclose()


async def test_a_defect_at_one_node_is_its_state_and_the_others_go_on(
    sparks: SimulatedSparks, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    whole = NodeMonitor.run

    async def run(self: NodeMonitor) -> None:
        if self.node.name == "broken":
            raise ZeroDivisionError("a defect")
        await whole(self)

    monkeypatch.setattr(NodeMonitor, "run", run)
    broken = replace(get_first_node(sparks), name=NodeName("broken"))
    views = watch_load_views(make_context(tmp_path), [broken, get_first_node(sparks)], every=0.1)
    async with asyncio.timeout(sim_clients.PATIENCE), aclosing(views):
        async for first, second in views:
            if first.detail is not None and second.sample is not None and second.sample.sequence >= 3:
                break
    assert "ZeroDivisionError" in (first.detail or "")
    assert first.state is NodeState.UNKNOWN
    with pytest.raises(ZeroDivisionError):
        async for _ in watch_load_views(make_context(tmp_path), [broken], every=0.1):
            pass


async def test_samples_come_faster_while_something_of_ours_loads(tmp_path: Path) -> None:
    rule = json.dumps(asdict(ReadinessRule(line="The server is fired up", health="/health")))
    labels = {
        ContainerLabel.INSTANCE: "a",
        ContainerLabel.ENGINE: "sglang",
        ContainerLabel.READY: rule,
        ContainerLabel.PORT: "8003",
    }
    body = {
        "Image": sim_clients.SGLANG_IMAGE, "Cmd": sim_clients.SGLANG, "HostConfig": {"NetworkMode": "host"}, "Labels": labels
    }  # fmt: skip
    async with SimulatedSparks(speed=0.2) as sparks:  # a start takes fifty seconds
        views = watch_load_views(make_context(tmp_path), [get_first_node(sparks)], every=60)
        slow = await wait_for_view(views, lambda view: view.instances_seen)
        docker = sparks.docker["spark1"]
        docker.start_container(docker.create_container("sglang-a", body))
        # At the old rate none of these would come within the time that this waits.
        await wait_for_view(views, lambda view: view.sample and view.sample.sequence >= 3)
        assert slow.sample is not None
        assert slow.sample.sequence == 1
        await views.aclose()


async def test_a_login_that_was_refused_is_tried_again_where_that_is_wanted(
    sparks: SimulatedSparks, tmp_path: Path
) -> None:
    sshd = sparks.sshd["spark1"]
    ours, sshd.authorized = sshd.authorized, asyncssh.import_authorized_keys("")
    for again in (None, 5.0):
        views = watch_load_views(make_context(tmp_path), [get_first_node(sparks)], every=0.1, again=again)
        refused = await wait_for_view(views, lambda view: view.state is NodeState.REFUSED)
        assert refused.sample is None
        sshd.authorized = ours
        if again is None:
            with pytest.raises(TimeoutError):
                await wait_for_view(views, lambda view: view.state is not NodeState.REFUSED, within=0.5)
            sshd.authorized = asyncssh.import_authorized_keys("")
        else:
            seen = await wait_for_view(views, lambda view: view.sample)
            assert seen.state is NodeState.OK
        await views.aclose()


async def test_a_container_that_goes_between_two_questions_is_gone_and_docker_is_known(
    sparks: SimulatedSparks,
) -> None:
    async with NodeSession(get_first_node(sparks)) as session, asyncio.timeout(sim_clients.PATIENCE):
        await session.link.connect()
        (listed,) = await session.docker.list_containers()
        await session.docker.stop_container(listed.id, 1.0)
        (ended,) = await session.docker.list_containers()
        assert await build_instance_view(session, ended, None) is not None
        await session.docker.remove_container(listed.id)
        assert await build_instance_view(session, ended, None) is None


async def test_a_guard_is_told_of_as_it_comes_and_goes(tmp_path: Path) -> None:
    result: asyncio.Queue[tuple[str, ...] | None] = asyncio.Queue()

    def take(event: Event) -> None:
        if isinstance(event, GuardStatusChanged):
            result.put_nowait(event.watched)

    async def until_told(watched: tuple[str, ...]) -> None:
        async with asyncio.timeout(sim_clients.PATIENCE):
            while await result.get() != watched:
                pass

    async with SimulatedSparks("two-stacks", **sim_clients.FAST) as sparks:
        ctx, node = make_context(tmp_path), get_first_node(sparks)
        follower = asyncio.create_task(NodeMonitor(ctx=ctx, node=node, every=1.0, emit=take).run())
        await until_told(())
        rule = GuardRule(floor=1 << 20, limit=3600.0, cache_below=0)
        assert [event async for event in arm_guard(ctx, ArmGuard([node], None, (), rule))]
        await until_told(("qwen36-ngram",))
        assert [event async for event in disarm_guard(ctx, [node], None)]
        await until_told(())
        follower.cancel()
        await asyncio.gather(follower, return_exceptions=True)
