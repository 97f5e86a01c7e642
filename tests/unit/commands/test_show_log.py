"""Following a log over outages of Docker, against a socket that answers as Docker does."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from sparkctl.clock import SystemClock
from sparkctl.commands.show_log import ShowLog, _ShowLogRun
from sparkctl.context import CommandContext
from sparkctl.history.operation_history import OperationHistory
from sparkctl.model.container import Container
from sparkctl.model.events import Event, LogArrived, WarningEmitted
from sparkctl.model.node import Node, NodeName
from sparkctl.model.text.log_line import LogLine
from sparkctl.transport.docker.docker_client import DockerClient
from sparkctl.transport.docker.log_resume import LogFragment
from sparkctl.transport.local_connection import LocalConnection
from sparkctl.transport.node_session import NodeSession
from tests.unit.transport.docker.docker_log_daemon import format_stamp
from tests.unit.transport.docker.test_log_stream import build_plain_answer, build_stream

NODE = Node(name=NodeName("spark1"), host="local")
LOG = [LogFragment(1, format_stamp(i * 200_000_000), b"line %d" % i, True) for i in range(6)]


class ImpatientClock(SystemClock):
    """Does not sleep, and counts how often it should have."""

    def __init__(self) -> None:
        self.slept = 0

    async def sleep(self, seconds: float) -> None:
        self.slept += 1
        await asyncio.sleep(0)


class FragileDocker:
    """One container, whose log breaks off after three lines and again after six; each time three requests go unheard."""

    def __init__(self, container: Container, *, removed: bool) -> None:
        self.container = container
        self.removed = removed
        self.follows = 0
        self.pings = 0
        self.unheard = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while line := await reader.readline():
                while (await reader.readline()).strip():
                    pass
                if self.unheard:
                    self.unheard -= 1
                    break
                path = line.decode().split(" ", 2)[1]
                writer.write(self.answer(path))
                await writer.drain()
                if "/logs" in path:
                    break
        finally:
            writer.close()

    def answer(self, path: str) -> bytes:
        if path.endswith("/_ping"):
            self.pings += 1
            return build_plain_answer("200 OK", b"OK", "Api-Version: 1.47\r\n")
        if "/logs" in path and "follow=1" in path:
            self.follows += 1
            if self.follows < 3:
                self.unheard = 3
            return build_stream(LOG[: self.follows * 3], final=self.follows > 2)
        if "/logs" in path:
            return build_stream(LOG)
        if self.follows > 2 and self.removed:
            return build_plain_answer("404 Not Found", b'{"message": "No such container: x"}')
        state = {"Status": "exited", "ExitCode": 137} if self.follows > 2 else {"Status": "running"}
        return build_plain_answer(
            "200 OK", json.dumps({"Id": self.container.id, "State": state, "Config": {}}).encode()
        )


@pytest.fixture
async def session(tmp_path: Path, docker: FragileDocker) -> AsyncIterator[NodeSession]:
    path = str(tmp_path / "docker.sock")
    server = await asyncio.start_unix_server(docker.serve, path)
    async with NodeSession(NODE) as opened:
        opened.link = LocalConnection(NODE, path)
        opened.docker = DockerClient(opened.link)
        yield opened
    server.close()


@pytest.fixture(params=[False, True])
def docker(request: pytest.FixtureRequest, container: Callable[..., Container]) -> FragileDocker:
    return FragileDocker(container(), removed=request.param)


async def test_docker_is_asked_once_which_api_it_speaks(
    session: NodeSession, docker: FragileDocker, tmp_path: Path
) -> None:
    ctx = CommandContext(history=OperationHistory(tmp_path / "state"), operator="milo@desk", clock=ImpatientClock())
    events: list[Event] = []
    verb = _ShowLogRun(ctx, ShowLog(instance="qwen36", nodes=[NODE], tail=2), events.append)
    async with asyncio.timeout(10):
        await verb._read_all([(session, docker.container)])
        await verb._open_feed(session, docker.container)
    assert [line.text for e in events if isinstance(e, LogArrived) for line in e.lines] == ["line 4", "line 5"] * 2
    assert docker.pings == 1


async def test_an_outage_is_told_once_and_the_end_with_its_saved_log(
    session: NodeSession, docker: FragileDocker, tmp_path: Path
) -> None:
    clock = ImpatientClock()
    ctx = CommandContext(history=OperationHistory(tmp_path / "state"), operator="milo@desk", clock=clock)
    writer = ctx.history.open_log_writer("qwen36", NODE.name, docker.container.id, ())
    writer.write([LogLine(when="", text="kept", number=1)])
    writer.close(whole=True)
    events: list[Event] = []
    verb = _ShowLogRun(ctx, ShowLog(instance="qwen36", nodes=[NODE], follow=True), events.append)
    async with asyncio.timeout(10):
        ended = await verb._follow_container(session, docker.container)
    assert [line.text for e in events if isinstance(e, LogArrived) for line in e.lines] == [
        f"line {n}" for n in range(6)
    ]
    assert docker.follows == 3
    assert clock.slept > 2
    assert len([e for e in events if isinstance(e, WarningEmitted)]) == 2  # one each, however often Docker was asked
    what = "was removed from spark1" if docker.removed else "has ended on spark1 with exit code 137"
    assert ended.message == f"qwen36 {what}; its saved log: {writer.path}"
    assert (ended.exit_code, ended.log) == (0, str(writer.path))
