"""What a node's monitor says where only a part of the node answers: unknown is told, and the rest stays known."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest

from sparkctl.clock import SystemClock
from sparkctl.context import CommandContext
from sparkctl.errors import NodeError
from sparkctl.history.operation_history import OperationHistory
from sparkctl.model.container import ContainerState
from sparkctl.model.engine_metrics import EngineActivity, EngineMeter
from sparkctl.model.events import (
    ContainersListed,
    Event,
    FindingReported,
    GuardStatusChanged,
    NodeStateChanged,
    SampleArrived,
)
from sparkctl.model.finding import Severity
from sparkctl.model.instance import InstanceView
from sparkctl.model.launch_plan import ContainerLabel
from sparkctl.model.node import Node, NodeName, NodeState
from sparkctl.model.phase import Phase
from sparkctl.monitor.guard_client import read_guard_directory
from sparkctl.monitor.meters.engine_meters import MeterReading
from sparkctl.monitor.node_monitor import GuardPoller, NodeMonitor, read_container_list
from sparkctl.monitor.node_status import _INSPECTION_PATIENCE_SECONDS, ContainerInspections
from sparkctl.monitor.sampler import NodeSampler
from sparkctl.node.agent_decoder import AgentHello
from sparkctl.transport.docker.docker_client import DockerClient
from sparkctl.transport.local_connection import LocalConnection
from sparkctl.transport.node_session import NodeSession
from tests.unit.transport.conftest import home  # noqa: F401  # a fixture
from tests.unit.transport.ssh.ssh_servers import serve_ssh
from tests.unit.transport.ssh.test_ssh_connection import CLIENT, HOST, format_known_host, make_node_at_port

HERE = Node(name=NodeName("here"), host="local")
LIMITED = 20.0  # seconds any of these may take
Answer = tuple[int, object]


class HastyClock(SystemClock):
    """Pauses are a hundredth of what they should be."""

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds / 100)


class DockerStandIn:
    """Answers by path, without the version; counts what is asked at the same time."""

    def __init__(self, answers: Mapping[str, Answer]) -> None:
        self.answers, self.now, self.most = dict(answers), 0, 0
        self.hangs = ""  # on what is asked of this path

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        path = (await reader.readuntil(b"\r\n\r\n")).split()[1].decode().partition("?")[0]
        self.now += 1
        self.most = max(self.most, self.now)
        await asyncio.sleep(0.005)
        self.now -= 1
        if self.hangs and path.endswith(self.hangs):
            await asyncio.Event().wait()
        status, said = (200, "OK") if path == "/_ping" else self.answers[path.split("/", 2)[2]]
        body = json.dumps(said).encode()
        writer.write(
            b"HTTP/1.1 %d X\r\nApi-Version: 1.51\r\nContent-Type: application/json\r\nContent-Length: %d\r\n"
            b"Connection: close\r\n\r\n%s" % (status, len(body), body)
        )
        await writer.drain()
        writer.close()


def list_entry(key: str, state: str = "running", **labels: str) -> dict[str, object]:
    return {
        "Id": key, "Names": [f"/{key[:4]}"], "Image": "image", "State": state, "Status": "Up", "Labels": labels,
    }  # fmt: skip


def inspect_entry(key: str, restarts: int, state: str = "running") -> dict[str, object]:
    return {
        "Id": key, "Name": f"/{key[:4]}", "RestartCount": restarts, "State": {"Status": state},
        "Config": {"Image": "image", "Labels": {}}, "HostConfig": {},
    }  # fmt: skip


@asynccontextmanager
async def open_session(directory: Path, docker: DockerStandIn) -> AsyncIterator[NodeSession]:
    async with await asyncio.start_unix_server(docker.answer, directory / "docker.sock"), NodeSession(HERE) as session:
        session.link = LocalConnection(HERE, str(directory / "docker.sock"))
        session.docker = DockerClient(session.link)
        yield session


def make_key(number: int) -> str:
    return f"{number:04x}" * 16


async def test_a_container_that_docker_does_not_inspect_hides_no_other(tmp_path: Path) -> None:
    keys = [make_key(number) for number in range(12)]
    docker = DockerStandIn(
        {"containers/json": (200, [list_entry(key) for key in keys])}
        | {f"containers/{key}/json": (200, inspect_entry(key, number)) for number, key in enumerate(keys)}
        | {f"containers/{keys[5]}/json": (500, {"message": "broken"})}
    )
    async with open_session(tmp_path, docker) as session:
        inspections = ContainerInspections(session)
        listed = await read_container_list(session, inspections)
        assert listed.known
        assert [one.restarts for one in listed.instances] == [0, 1, 2, 3, 4, None, 6, 7, 8, 9, 10, 11]
        assert docker.most <= 4, "where each is a session of its own, sshd allows ten"


async def test_a_container_that_docker_hangs_on_does_not_hold_the_list_back(tmp_path: Path) -> None:
    keys = [make_key(number) for number in range(6)]
    docker = DockerStandIn(
        {"containers/json": (200, [list_entry(key) for key in keys])}
        | {f"containers/{key}/json": (200, inspect_entry(key, number)) for number, key in enumerate(keys)}
    )
    docker.hangs = f"containers/{keys[0]}/json"
    async with open_session(tmp_path, docker) as session:
        inspections, began = ContainerInspections(session), asyncio.get_running_loop().time()
        for _ in range(2):
            listed = await read_container_list(session, inspections)
            assert [one.restarts for one in listed.instances] == [None, 1, 2, 3, 4, 5]
        took = asyncio.get_running_loop().time() - began
    assert took < 2 * _INSPECTION_PATIENCE_SECONDS, "and it is not asked again at once"


async def test_a_download_that_docker_hangs_on_does_not_hold_the_list_back(tmp_path: Path) -> None:
    keys = [make_key(number) for number in range(2)]
    docker = DockerStandIn(
        {"containers/json": (200, [list_entry(keys[0], **{ContainerLabel.DOWNLOAD: "ab"}), list_entry(keys[1])])}
        | {f"containers/{key}/json": (200, inspect_entry(key, 0)) for key in keys}
    )
    docker.hangs = f"containers/{keys[0]}/json"
    async with open_session(tmp_path, docker) as session:
        began = asyncio.get_running_loop().time()
        listed = await read_container_list(session, ContainerInspections(session))
        took = asyncio.get_running_loop().time() - began
    assert [(one.phase, one.detail) for one in listed.instances] == [(Phase.PULLING, None), (None, None)]
    assert took < 3 * _INSPECTION_PATIENCE_SECONDS, "its inspection, then its log, which needs one as well"


async def test_a_container_of_ours_that_cannot_be_read_is_unknown_and_the_others_are_known(tmp_path: Path) -> None:
    broken, log_less, other = (make_key(number) for number in range(3))
    rule = json.dumps({"line": "ready", "health": None, "probe": "http"})
    ours = {
        ContainerLabel.INSTANCE: "gone",
        ContainerLabel.READY: rule,
        ContainerLabel.ENGINE: "vllm",
    }
    docker = DockerStandIn(
        {
            "containers/json": (
                200, [list_entry(broken, "exited", **ours), list_entry(log_less, **ours), list_entry(other)],
            ),
            f"containers/{broken}/json": (500, {"message": "broken"}),
            f"containers/{log_less}/json": (200, inspect_entry(log_less, 0)),
            f"containers/{log_less}/logs": (501, {"message": "configured logging driver does not support reading"}),
            f"containers/{other}/json": (200, inspect_entry(other, 0)),
        }
    )  # fmt: skip
    async with open_session(tmp_path, docker) as session:
        listed = await read_container_list(session, ContainerInspections(session))
    assert listed.known
    assert [one.phase for one in listed.instances] == [Phase.UNKNOWN, Phase.UNKNOWN, None]
    assert "broken" in (listed.instances[0].detail or "")


async def test_what_the_guard_left_may_be_unreadable_without_hiding_the_container(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shell, killed = tmp_path / "bin" / "sh", make_key(1)
    shell.parent.mkdir()
    shell.write_text("#!/bin/bash\necho this account is for backups only\n")
    shell.chmod(0o755)
    monkeypatch.setenv("PATH", f"{shell.parent}:{os.environ['PATH']}")
    ended = inspect_entry(killed, 0) | {"State": {"Status": "exited", "ExitCode": 137}}
    docker = DockerStandIn(
        {
            "containers/json": (200, [list_entry(killed, "exited", **{ContainerLabel.INSTANCE: "gone"})]),
            f"containers/{killed}/json": (200, ended),
        }
    )
    async with open_session(tmp_path, docker) as session:
        with pytest.raises(NodeError, match="unexpected output"):
            await read_guard_directory(session)
        (one,) = (await read_container_list(session, ContainerInspections(session))).instances
    assert one.phase is Phase.FAILED


async def test_an_engine_that_was_reported_as_hung_is_well_again_in_a_later_session(tmp_path: Path) -> None:
    key, found = make_key(1), asyncio.Queue[Event]()
    context = CommandContext(history=OperationHistory(tmp_path), operator="tester", clock=HastyClock())
    monitor = NodeMonitor(ctx=context, node=HERE, every=1.0, emit=found.put_nowait)
    instance = InstanceView(
        name="qwen36", node=HERE.name, container="c", image="image", state=ContainerState.RUNNING, status="Up", ours=True,
        memory=None, phase=Phase.READY, engine="vllm", container_id=key, port=8000,
    )  # fmt: skip
    monitor._instances = (instance,)
    monitor._listed.set()
    idle = EngineMeter(activity=EngineActivity.IDLE, running=0, waiting=0)
    decoding = EngineMeter(activity=EngineActivity.DECODING, generation_rate=12.7)
    for numbers in (idle, decoding):
        monitor._readings = {key: MeterReading(numbers)}
        async with NodeSession(HERE) as session:
            running = asyncio.create_task(monitor._poll_liveness(session, ContainerInspections(session)))
            async with asyncio.timeout(LIMITED):
                while not monitor._probed:  # noqa: ASYNC110 - it emits nothing
                    await asyncio.sleep(0)
                if numbers is idle:
                    monitor._probed[key].is_reported = True
                else:
                    event = await found.get()
            running.cancel()
            with suppress(asyncio.CancelledError):
                await running
    assert isinstance(event, FindingReported)
    assert (event.check, event.severity, event.instance) == ("not-generating", Severity.GOOD, "qwen36")


@asynccontextmanager
async def open_refusing_node(home: Path, directory: Path, emit: Callable[[Event], None]) -> AsyncIterator[NodeMonitor]:  # noqa: F811
    """A monitor with a session whose connection lives, though sshd opens nothing over it."""
    async with serve_ssh(CLIENT, HOST, opens=False) as server:
        (home / "known_hosts").write_text(format_known_host(server.port, HOST))
        node = make_node_at_port(home, server.port)
        context = CommandContext(history=OperationHistory(directory), operator="tester", clock=HastyClock())
        async with NodeSession(node, clock=context.clock) as session:
            await session.link.connect()
            monitor = NodeMonitor(ctx=context, node=node, every=1.0, emit=emit)
            monitor.session = session
            monitor._answers.set()
            yield monitor
            assert session.link.status.state is NodeState.OK


async def test_where_only_a_further_session_is_refused_the_list_and_the_guard_are_unknown(
    home: Path,  # noqa: F811
    tmp_path: Path,
) -> None:
    found: asyncio.Queue[Event] = asyncio.Queue()
    async with open_refusing_node(home, tmp_path, found.put_nowait) as monitor:
        session = monitor.session
        assert session is not None
        polls = (
            monitor._poll_containers(session, NodeSampler(session, 1.0), ContainerInspections(session)),
            GuardPoller(session, monitor.emit).run(monitor._answers),
        )
        for poll, kind in zip(polls, (ContainersListed, GuardStatusChanged), strict=True):
            task = asyncio.create_task(poll)
            async with asyncio.timeout(LIMITED):
                event = await found.get()
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
            assert isinstance(event, kind)
            if isinstance(event, ContainersListed):
                assert not event.known
                assert "opens no further session" in (event.detail or "")
            if isinstance(event, GuardStatusChanged):
                assert event.watched is None


async def test_what_nobody_foresaw_ends_one_session_and_not_the_monitoring(tmp_path: Path) -> None:
    events: list[Event] = []
    again = asyncio.Event()

    def emit(event: Event) -> None:
        events.append(event)
        samples = [one for one in events if isinstance(one, SampleArrived)]
        if isinstance(event, SampleArrived) and len(samples) == 1:
            raise ValueError("an odd answer")
        if len(samples) > 1:
            again.set()

    context = CommandContext(history=OperationHistory(tmp_path), operator="tester", clock=HastyClock())
    running = asyncio.create_task(NodeMonitor(ctx=context, node=HERE, every=0.1, emit=emit).run())
    async with asyncio.timeout(LIMITED):
        await again.wait()
    running.cancel()
    with suppress(asyncio.CancelledError):
        await running
    (result,) = [one for one in events if isinstance(one, NodeStateChanged)]
    assert result.state is NodeState.UNKNOWN
    assert "an odd answer" in (result.detail or "")
    assert result.next_try == pytest.approx(15.0)


async def test_the_end_of_the_boot_before_is_looked_for_at_each_boot(
    home: Path,  # noqa: F811
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    said, program = tmp_path / "said", tmp_path / "bin" / "python3"
    program.parent.mkdir()
    program.write_text(f"#!/bin/sh\ncat >/dev/null\ncat {said}\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    found: asyncio.Queue[Event] = asyncio.Queue()
    async with serve_ssh(CLIENT, HOST) as server:
        (home / "known_hosts").write_text(format_known_host(server.port, HOST))
        node = make_node_at_port(home, server.port)
        context = CommandContext(history=OperationHistory(tmp_path), operator="tester", clock=HastyClock())
        monitor = NodeMonitor(ctx=context, node=node, every=1.0, emit=found.put_nowait)
        monitor._answers.set()
        async with NodeSession(node) as session:
            await session.link.connect()
            running = asyncio.create_task(monitor._report_boot_before(session))
            for boot, is_clean, severity in (
                ("a", False, Severity.WARNING),
                ("b", True, Severity.GOOD),
                ("c", False, Severity.WARNING),
                ("d", None, Severity.UNKNOWN),
            ):
                before = {
                    "clean": is_clean,
                    "ended": 1768000001.3,
                    "last": ["kernel: NVRM"],
                    "trouble": None,
                    "lines": [],
                }
                log = {"lines": [], "source": "kmsg", "oldest": None, "dropped": 0, "trouble": None}
                said.write_text(json.dumps({"kernel_log": 1, "now": 5.0, "uptime": 1.0, "log": log, "before": before}))
                monitor.hello = AgentHello(boot_id=boot, up=60.0)
                async with asyncio.timeout(LIMITED):
                    event = await found.get()
                assert isinstance(event, FindingReported)
                assert (event.check, event.severity) == ("last-boot", severity)
            running.cancel()
            with suppress(asyncio.CancelledError):
                await running
        assert found.empty(), "once a boot"
