"""Follows a container's log over a raw channel: at full speed, across any number of breaks, each line once.

The SDK needs three times the processor time, and does not tell why a stream ended.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from urllib.parse import quote, urlencode

import h11

from sparkctl.concurrency import yield_to_input
from sparkctl.errors import ContainerNotFound, DockerError, DockerUnavailable
from sparkctl.model.text.log_line import LogLine
from sparkctl.transport import http_client
from sparkctl.transport.docker.docker_client import DockerClient
from sparkctl.transport.docker.docker_errors import DOCKER_SOCKET, error_for_response, no_response_error
from sparkctl.transport.docker.log_resume import (
    ChunkedBody,
    DaemonError,
    FragmentParser,
    InvalidLogStream,
    LogFragment,
    LogLineAssembler,
    LogPosition,
    MultiplexedParser,
    RawStreamParser,
)
from sparkctl.transport.node_connection import ByteReader, NodeConnection

_READ_BYTES = 1 << 15  # about 250 lines: small enough that one batch never delays a screen
_MAX_HEAD_BYTES = 1 << 16
_QUIET_LIMIT_SECONDS = 30.0  # seconds; a daemon with the log on disk is never silent for that long
_HTTP_OK = 200

# for `aclosing`: otherwise the channel stays open until garbage collection
LogBatches = AsyncGenerator[Sequence[LogLine], None]


class ContainerLogStream:
    """One container's log, read once or followed; another call resumes it.

    ``since`` (unix seconds) and ``tail`` (lines) set where the first reading begins; ``position`` continues where another
    follower stopped. Without ``stamped``, Docker is asked for no timestamps, a fifth of a log's bytes: lines may have none
    then, and no reading can be resumed. ``on_gap`` is called if Docker no longer has the lines after the last reading, before
    the lines after the gap are yielded. ``docker`` may know the version of its API already.
    """

    def __init__(
        self,
        link: NodeConnection,
        container_id: str,
        *,
        since: float | None = None,
        tail: int | None = None,
        position: LogPosition | None = None,
        on_gap: Callable[[], None] | None = None,
        stamped: bool = True,
        docker: DockerClient | None = None,
    ) -> None:
        self._link = link
        self._docker = docker or DockerClient(link)
        self._id = container_id
        self._since = since
        self._tail = tail
        self._stamped = stamped
        self.on_gap = on_gap
        self._about: tuple[str, bool] | None = None
        self._joiner = LogLineAssembler(position=position, repeatable=tail is None)

    @property
    def position(self) -> LogPosition | None:
        """How far the log was read; None before the first fragment."""
        return self._joiner.position

    def follow_lines(self) -> LogBatches:
        """Yield lines as they come, in batches, until the container ends; another call continues from `position`.

        Ends only at Docker's own end mark; check with Docker whether the container has really ended. Raises ConnectionLost or
        DockerUnavailable where the stream was cut, ContainerNotFound, and DockerError for a log that cannot be read.
        """
        return self._follow_to_end()

    def read_available(self, *, is_end: bool = True) -> LogBatches:
        """Yield the lines available now, in batches; raises as `follow_lines`.

        ``is_end``: a last line without a newline is complete; else it is left for the reading that follows.
        """
        return self._read_stream(follow=False, is_end=is_end)

    async def _follow_to_end(self) -> LogBatches:
        async with aclosing(self._read_stream(follow=True)) as batches:
            async for lines in batches:
                yield lines
        # Docker ends a follow without the last piece of a container that ends right after it (its own CLI loses the
        # crash message, too); by then the log is whole, so what is left is read from there
        try:
            async with aclosing(self._read_stream(follow=False)) as batches:
                async for lines in batches:
                    yield lines
        except ContainerNotFound:
            if lines := self._joiner.finish():
                yield lines

    async def _read_stream(self, follow: bool, is_end: bool = True) -> LogBatches:
        api, terminal = await self._read_stream_format()
        path = f"/v{api}/containers/{quote(self._id, safe='')}/logs?{self._build_query(follow, terminal)}"
        reader, writer = await self._link.open_unix(DOCKER_SOCKET)
        try:
            connection = h11.Connection(h11.CLIENT, max_incomplete_event_size=_MAX_HEAD_BYTES)
            writer.write(http_client.encode_request(connection, "GET", path, "docker"))
            await writer.drain()
            body = _LogResponseBody(self._link.node.name, reader, None if follow else _QUIET_LIMIT_SECONDS)
            await body.read_head(connection)
            if self._joiner.position is not None:
                self._joiner.resume_at(self._joiner.position)
            async with aclosing(
                self._read_lines(body, RawStreamParser() if terminal else MultiplexedParser(stamped=self._stamped))
            ) as batches:
                async for lines in batches:
                    yield lines
            if not follow and is_end and (lines := self._joiner.finish()):
                yield lines
        except (InvalidLogStream, http_client.InvalidHttpResponse, h11.ProtocolError, ConnectionError) as error:
            raise _stream_cut_error(self._link.node.name) from error
        except DockerError:
            # Docker may have been replaced by one that speaks another version
            self._about, self._docker = None, DockerClient(self._link)
            raise
        except DaemonError as error:
            raise error_for_response(self._link.node.name, _HTTP_OK, error.text) from error
        finally:
            writer.close()

    async def _read_lines(self, body: _LogResponseBody, parser: FragmentParser) -> LogBatches:
        was_reported = False
        while not body.is_done:
            lines = self._joiner.add_fragments(await body.read_fragments(parser))
            if self._joiner.gap and not was_reported and self.on_gap is not None:
                was_reported = True
                self.on_gap()
            if lines:
                yield lines
            await yield_to_input()  # data that has already arrived would never yield to other tasks
        if lines := self._joiner.add_fragments(parser.finish()):
            yield lines

    async def _read_stream_format(self) -> tuple[str, bool]:
        """Return the API version and whether the container has a terminal, which changes the stream's form."""
        if self._about is None:
            container = await self._docker.inspect_container(self._id)
            self._about = (await self._docker.api_version(), bool(container.tty))
        return self._about

    def _build_query(self, follow: bool, terminal: bool) -> str:
        # without frames, stamps tell where a fragment begins
        stamps = "1" if self._stamped or terminal else "0"
        words: dict[str, str] = {"stdout": "1", "stderr": "1", "timestamps": stamps, "follow": "1" if follow else "0"}
        position = self._joiner.position
        if position is not None and position.since_parameter is not None:
            return urlencode(words | {"since": position.since_parameter})
        if self._since is not None:
            words["since"] = f"{self._since:.9f}"
        if self._tail is not None:
            words["tail"] = str(self._tail)
        return urlencode(words)


class _LogResponseBody:
    """The answer's body. ``is_done`` at its regular end; every other end is an error."""

    def __init__(self, node: str, reader: ByteReader, limit: float | None) -> None:
        self._node = node
        self._reader = reader
        self._limit = limit
        self._early = b""
        self._chunks: ChunkedBody | None = None  # None: the body is in `_early`, as of an empty log

    @property
    def is_done(self) -> bool:
        return (self._chunks is None or self._chunks.done) and not self._early

    async def read_head(self, connection: h11.Connection) -> None:
        """Read the head; raise Docker's error if the status is not 200."""
        head = await http_client.read_head(connection, self)
        if head.status_code != _HTTP_OK:
            body = await http_client.read_body(connection, self)
            raise error_for_response(self._node, head.status_code, body.decode("utf-8", "replace"))
        if any(name == b"transfer-encoding" for name, _ in head.headers):  # h11 knows no other coding than chunked
            self._chunks = ChunkedBody()
            self._early = self._chunks.feed(connection.trailing_data[0])
        else:
            self._early = await http_client.read_body(connection, self)

    async def read_fragments(self, parser: FragmentParser) -> Sequence[LogFragment]:
        """Return the fragments in a part of the body; none does not mean the end."""
        early, self._early = self._early, b""
        if early or self._chunks is None:
            return parser.feed(early)
        return parser.feed_chunks(await self.read(_READ_BYTES), self._chunks)

    async def read(self, n: int = -1) -> bytes:
        """Return what has arrived. Raises the error of a daemon that is silent for too long, or ended the stream."""
        try:
            async with asyncio.timeout(self._limit):
                data = await self._reader.read(n)
        except TimeoutError as error:
            raise no_response_error(self._node, self._limit or 0.0) from error
        if not data:
            raise _stream_cut_error(self._node)
        return data


def _stream_cut_error(node: str) -> DockerUnavailable:
    return DockerUnavailable(
        node, f"Docker on {node} cut the log off: it was stopped or died", "on the node: sudo systemctl status docker"
    )
