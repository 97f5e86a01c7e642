"""One Docker stream for a container: what each of its subscribers gets, and when."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest

from sparkctl.engines import load_engine
from sparkctl.errors import DockerUnavailable
from sparkctl.logs.analyzer import LogAnalyzer
from sparkctl.logs.reader import LogFeed, analyze_log
from sparkctl.model.launch_plan import ReadinessRule
from sparkctl.model.node import Node, NodeName
from sparkctl.model.text.log_line import LogLine
from sparkctl.model.text.secrets import MASK
from sparkctl.transport.docker.log_resume import LogFragment, parse_timestamp_ns
from sparkctl.transport.local_connection import LocalConnection
from sparkctl.transport.node_session import NodeSession
from tests.unit.transport.docker.docker_log_daemon import build_chunks, format_stamp

SECRET = "hunter2-hunter2"
_STEP = 1_000_000  # ns from line to line


class Daemon:
    """Docker with one container, whose log grows. ``follows``: how many follow it now; ``requests``: every query."""

    def __init__(self) -> None:
        self.pieces: list[LogFragment] = []
        self.requests: list[dict[str, str]] = []
        self.follows = 0
        self.is_alive = True
        self.cuts = 0  # follows to cut off as soon as possible
        self._news = asyncio.Event()

    def write(self, count: int, text: str = "line") -> None:
        """Write lines, all with their number from 1; two in a row have the same stamp."""
        for _ in range(count):
            number = len(self.pieces) + 1
            self.pieces.append(LogFragment(1, format_stamp(number // 2 * _STEP), f"{text} {number}".encode(), True))
        self.tell()

    def tell(self) -> None:
        """Wake the streams."""
        self._news.set()
        self._news = asyncio.Event()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer one request."""
        url = urlsplit((await reader.readuntil(b"\r\n\r\n")).split(b" ")[1].decode())
        if url.path.endswith("/logs"):
            await self._serve_log({key: values[0] for key, values in parse_qs(url.query).items()}, reader, writer)
        else:
            body = json.dumps({"ApiVersion": "1.47", "Id": "abc", "Name": "/abc", "Config": {"Tty": False}}).encode()
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))
        writer.close()

    async def _serve_log(
        self, query: dict[str, str], reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self.requests.append(query)
        at = self._find_begin(query)
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        is_follow = query["follow"] == "1"
        self.follows += is_follow
        gone = asyncio.ensure_future(reader.read())
        try:
            while True:
                news, end = self._news, len(self.pieces)
                if at < end:
                    payloads = [one.stamp + b" " + one.text + b"\n" for one in self.pieces[at:end]]
                    frames = [b"\x01\0\0\0" + len(one).to_bytes(4, "big") + one for one in payloads]
                    writer.write(build_chunks([b"".join(frames)], final=False))
                    await writer.drain()
                at = end
                if is_follow and self.cuts:
                    self.cuts -= 1
                    return
                if not is_follow or not self.is_alive:
                    writer.write(build_chunks([]))
                    await writer.drain()
                    return
                await asyncio.wait([gone, asyncio.ensure_future(news.wait())], return_when=asyncio.FIRST_COMPLETED)
                if gone.done():
                    return
        except ConnectionError:
            pass
        finally:
            gone.cancel()
            self.follows -= is_follow

    def _find_begin(self, query: dict[str, str]) -> int:
        if "since" in query:
            whole, _, nanos = query["since"].partition(".")
            since = int(whole) * 1_000_000_000 + int(nanos)
            return next(
                (at for at, one in enumerate(self.pieces) if parse_timestamp_ns(one.stamp) >= since), len(self.pieces)
            )
        return max(0, len(self.pieces) - int(query["tail"])) if "tail" in query else 0


@asynccontextmanager
async def run_daemon(tmp_path: Path) -> AsyncGenerator[tuple[Daemon, NodeSession]]:
    daemon = Daemon()
    server = await asyncio.start_unix_server(daemon.serve, tmp_path / "docker.sock")
    node = Node(name=NodeName("spark1"), host="local")
    session = NodeSession(node)
    session.link = LocalConnection(node, str(tmp_path / "docker.sock"))
    session.docker._link = session.link
    try:
        yield daemon, session
    finally:
        daemon.is_alive = False
        daemon.tell()
        server.close()


class Subscriber:
    """Collects what a feed brings, until as many lines as wanted are there."""

    def __init__(self, feed: LogFeed, pause: float = 0.0, gate: asyncio.Event | None = None) -> None:
        self.lines: list[LogLine] = []
        self._feed, self._pause, self._gate = feed, pause, gate
        self.task = asyncio.create_task(self._run())

    async def _run(self) -> None:
        async with aclosing(self._feed.follow_lines()) as batches:
            async for lines in batches:
                self.lines += lines
                await asyncio.sleep(self._pause)
                if self._gate is not None:
                    await self._gate.wait()

    async def wait_for(self, count: int) -> list[str]:
        """Return the texts, once there are so many."""
        async with asyncio.timeout(20):
            while len(self.lines) < count and not self.task.done():  # noqa: ASYNC110 - the lines come by themselves
                await asyncio.sleep(0.005)
        return [line.text for line in self.lines]

    async def close(self) -> None:
        """Unsubscribe."""
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)


def create_analyzer() -> LogAnalyzer:
    return LogAnalyzer(engine=load_engine("vllm"), ready=ReadinessRule(line="line 7", health=None))


def list_lines(first: int, last: int) -> list[str]:
    return [f"line {number}" for number in range(first, last + 1)]


async def test_subscribers_share_one_stream_and_a_late_one_gets_what_was_before(tmp_path: Path) -> None:
    async with run_daemon(tmp_path) as (daemon, session):
        daemon.write(10_000)
        meter = Subscriber(LogFeed(session, "abc", tail=100))
        assert await meter.wait_for(100) == list_lines(9_901, 10_000)
        screen = Subscriber(LogFeed(session, "abc"))
        assert await screen.wait_for(10_000) == list_lines(1, 10_000)
        daemon.write(3)
        assert await screen.wait_for(10_003) == list_lines(1, 10_003)
        assert await meter.wait_for(103) == list_lines(9_901, 10_003)
        assert [line.number for line in screen.lines] == list(range(1, 10_004))
        assert [line.number for line in meter.lines] == list(range(1, 104))
        assert daemon.follows == 1
        await meter.close()
        daemon.write(1)
        assert (await screen.wait_for(10_004))[-1] == "line 10004"
        await screen.close()
        async with asyncio.timeout(5):
            while daemon.follows:  # noqa: ASYNC110 - the daemon meets the end by itself
                await asyncio.sleep(0.005)


async def test_whoever_asks_what_a_log_says_gets_it_from_the_start_that_is_watched(tmp_path: Path) -> None:
    async with run_daemon(tmp_path) as (daemon, session):
        daemon.write(10)
        analyzer = create_analyzer()
        watch = Subscriber(LogFeed(session, "abc", analyzer=analyzer))
        await watch.wait_for(10)
        assert await analyze_log(session, "abc", "vllm", analyzer.ready, tail=3) is analyzer
        assert len(daemon.requests) == daemon.follows == 1
        await watch.close()
        read = await analyze_log(session, "abc", "vllm", analyzer.ready, most=8)
        assert read is not analyzer
        assert read.ready_line_seen
        assert [one["follow"] for one in daemon.requests] == ["1", "0"]
        assert not (await analyze_log(session, "abc", "vllm", analyzer.ready, tail=3)).ready_line_seen


async def test_a_subscriber_that_comes_amid_a_flood_misses_and_repeats_nothing(tmp_path: Path) -> None:
    async with run_daemon(tmp_path) as (daemon, session):
        daemon.write(3_000)
        first = Subscriber(LogFeed(session, "abc", analyzer=create_analyzer()))
        subscribers = [first]
        for count in range(40):
            daemon.write(500)
            await asyncio.sleep(0.002)
            if count % 10 == 0:
                subscribers.append(Subscriber(LogFeed(session, "abc")))
        for each in subscribers:
            assert await each.wait_for(23_000) == list_lines(1, 23_000)
            assert [line.number for line in each.lines] == list(range(1, 23_001))
        assert daemon.follows == 1


async def test_a_slow_subscriber_holds_up_no_start_and_still_gets_every_line(tmp_path: Path) -> None:
    async with run_daemon(tmp_path) as (daemon, session):
        daemon.write(10)
        watch = Subscriber(LogFeed(session, "abc", analyzer=create_analyzer()))
        gate = asyncio.Event()
        slow = Subscriber(LogFeed(session, "abc"), gate=gate)
        await slow.wait_for(10)
        for _ in range(30):
            daemon.write(1_000)
            await asyncio.sleep(0.001)
        assert await watch.wait_for(30_010) == list_lines(1, 30_010)
        assert len(slow.lines) == 10
        gate.set()
        assert await slow.wait_for(30_010) == list_lines(1, 30_010)
        assert [line.number for line in slow.lines] == list(range(1, 30_011))


async def test_a_slow_subscriber_slows_down_another_that_watches_no_start(tmp_path: Path) -> None:
    async with run_daemon(tmp_path) as (daemon, session):
        daemon.write(10)
        slow_feed, gate = LogFeed(session, "abc"), asyncio.Event()
        gate.set()
        slow = Subscriber(slow_feed, gate=gate)
        async with asyncio.timeout(20):
            while not slow_feed.is_joined:  # noqa: ASYNC110 - before, it reads by a stream of its own
                await asyncio.sleep(0.005)
        quick = Subscriber(LogFeed(session, "abc", tail=5))
        await quick.wait_for(5)
        gate.clear()
        for _ in range(60):
            daemon.write(500)
            await asyncio.sleep(0.01)
        assert len(slow.lines) < 2_000, "it stands at its gate"
        assert 2_000 < len(quick.lines) < 8_000
        requests = len(daemon.requests)
        gate.set()
        assert await quick.wait_for(30_005) == list_lines(6, 30_010)
        assert await slow.wait_for(30_010) == list_lines(1, 30_010)
        assert len(daemon.requests) == requests, "nobody read it a second time"


async def test_secrets_of_one_subscriber_are_masked_for_all(tmp_path: Path) -> None:
    async with run_daemon(tmp_path) as (daemon, session):
        daemon.write(1, f"key {SECRET}")
        meter = Subscriber(LogFeed(session, "abc", tail=10))
        await meter.wait_for(1)
        screen = Subscriber(LogFeed(session, "abc", secrets=[SECRET]))
        assert await screen.wait_for(1) == [f"key {MASK} 1"]
        daemon.write(1, f"key {SECRET}")
        assert await screen.wait_for(2) == [f"key {MASK} 1", f"key {MASK} 2"]
        assert (await meter.wait_for(2))[1] == f"key {MASK} 2"


async def test_a_stream_that_is_cut_goes_on_for_each_subscriber_that_asks_again(tmp_path: Path) -> None:
    async with run_daemon(tmp_path) as (daemon, session):
        daemon.write(100)
        feed = LogFeed(session, "abc", analyzer=create_analyzer())
        other = Subscriber(LogFeed(session, "abc"))
        got: list[str] = []

        async def read_until(count: int) -> None:
            async with aclosing(feed.follow_lines()) as batches:
                async for lines in batches:
                    got.extend(line.text for line in lines)
                    if len(got) >= count:
                        return

        await read_until(100)
        await other.wait_for(100)
        await other.close()
        daemon.cuts = 1
        with pytest.raises(DockerUnavailable):
            await read_until(150)
        daemon.write(50)
        await read_until(150)
        assert got == list_lines(1, 150)


async def test_the_end_of_the_container_ends_every_subscriber(tmp_path: Path) -> None:
    async with run_daemon(tmp_path) as (daemon, session):
        daemon.write(20)
        subscribers = [Subscriber(LogFeed(session, "abc")), Subscriber(LogFeed(session, "abc", tail=5))]
        await subscribers[0].wait_for(20)
        await subscribers[1].wait_for(5)
        daemon.write(1)
        daemon.is_alive = False
        daemon.tell()
        async with asyncio.timeout(10):
            await asyncio.gather(*(each.task for each in subscribers))
        assert [each.lines[-1].text for each in subscribers] == ["line 21", "line 21"]
