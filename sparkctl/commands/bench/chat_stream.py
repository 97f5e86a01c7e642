"""One streamed chat request over a node connection, timed by our clock."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from typing import Any

import h11

from sparkctl.clock import Clock
from sparkctl.model.lazy_dataclass import dataclass
from sparkctl.model.text.sanitize import load_json, sanitize_line, truncate_text
from sparkctl.transport import http_client
from sparkctl.transport.http_client import InvalidHttpResponse
from sparkctl.transport.node_connection import ByteReader, NodeConnection

_THOUGHT_MARK = "<think>"
_PATH = "/v1/chat/completions"
_CHUNK_BYTES = 1 << 16
_MAX_ERROR_BYTES = 1 << 16
_MAX_SHOWN_CHARS = 200
# What a request's own figures are called: in SGLang's usage, and in the metrics of vLLM >= 0.32 with --per-request-spec-decode-metrics.
_USAGE_DRAFTS = {
    "accepted": "spec_num_correct_drafts",
    "proposed": "spec_num_proposed_drafts",
    "steps": "spec_verify_ct",
}
_METRICS_DRAFTS = {"accepted": "num_accepted_draft_tokens", "proposed": "num_draft_tokens", "steps": "num_spec_steps"}


class RequestRefused(InvalidHttpResponse):
    """The engine answered with an error; ``status`` of it."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(f"POST {_PATH} answered {status} {reason}".rstrip())
        self.status = status


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamedAnswer:
    """``tokens``: generated, as the engine counts, None where it does not say; ``ttft`` and ``seconds``: from the request to the
    first piece, and from there to the last. ``has_thought``: a part came as reasoning, or the text begins with it.
    ``accepted``, ``proposed`` and ``steps``: of this request's drafts, where the engine tells them with its usage.
    """

    tokens: int | None
    ttft: float | None
    seconds: float | None
    has_thought: bool = False
    accepted: int | None = None
    proposed: int | None = None
    steps: int | None = None

    @property
    def rate(self) -> float | None:
        """Tokens per second after the first."""
        if self.tokens is None or self.tokens < 2 or not self.seconds:
            return None
        return (self.tokens - 1) / self.seconds


class ChatStreamReader:
    """Collects what the events of a stream tell, with the time at which they came."""

    def __init__(self, began: float) -> None:
        self._began, self._rest = began, b""
        self._first: float | None = None
        self._last: float | None = None
        self._usage: Mapping[str, Any] = {}
        self._drafts: Mapping[str, Any] = {}  # vLLM's own of this request
        self._begin = ""  # of the text
        self.has_thought = self.has_ended = False

    def feed(self, data: bytes, now: float) -> None:
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            if line.startswith(b"data:"):
                self._read_event(line[5:].strip(), now)

    def _read_event(self, event: bytes, now: float) -> None:
        if event == b"[DONE]":
            self.has_ended = True
            return
        try:
            data = load_json(event)
            for choice in data.get("choices") or ():
                part = choice.get("delta") or {}
                thought = part.get("reasoning_content") or part.get("reasoning")
                if len(self._begin) < len(_THOUGHT_MARK):
                    self._begin = (self._begin + (part.get("content") or "")).lstrip()
                self.has_thought = self.has_thought or bool(thought) or self._begin.startswith(_THOUGHT_MARK)
                if thought or part.get("content") or part.get("tool_calls"):
                    self._first, self._last = self._first or now, now
            self._usage = data.get("usage") or self._usage
            self._drafts = (data.get("metrics") or {}).get("speculative_decoding") or self._drafts
        except (ValueError, AttributeError, TypeError):
            return

    def build_answer(self) -> StreamedAnswer:
        first, last = self._first, self._last
        details = self._usage.get("completion_tokens_details")
        usage = {**(details if isinstance(details, dict) else {}), **self._usage}
        drafts = {name: _get_count(usage, own) for name, own in _USAGE_DRAFTS.items()}
        if isinstance(self._drafts, dict) and self._drafts:
            drafts = {name: _get_count(self._drafts, own) for name, own in _METRICS_DRAFTS.items()}
        return StreamedAnswer(
            tokens=_get_count(usage, "completion_tokens"),
            ttft=None if first is None else first - self._began,
            seconds=None if first is None or last is None else last - first,
            has_thought=self.has_thought,
            **drafts,
        )


def _get_count(usage: Mapping[str, Any], name: str) -> int | None:
    value = usage.get(name)
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


async def stream_chat(
    link: NodeConnection, port: int, body: Mapping[str, object], headers: http_client.Headers, *, clock: Clock, timeout: float
) -> StreamedAnswer:  # fmt: skip
    """Send a chat request that streams, and read it to its end.

    Raises `RequestRefused` where the engine answers with an error, InvalidHttpResponse where the stream breaks off, TimeoutError after
    ``timeout`` seconds, ConnectionRefusedError, ConnectionLost.
    """
    whole = {**body, "stream": True, "stream_options": {"include_usage": True}}
    async with asyncio.timeout(timeout):
        began = clock.monotonic()
        reader, writer = await link.open_tcp("127.0.0.1", port)
        try:
            return await _exchange(
                reader, writer, port=port, body=json.dumps(whole).encode(), headers=headers, clock=clock, began=began
            )
        except (h11.ProtocolError, ConnectionResetError, BrokenPipeError) as error:
            raise InvalidHttpResponse(f"{_PATH}: the stream was cut off: {error}") from error
        finally:
            writer.close()


async def _exchange(
    reader: ByteReader, writer: Any, *, port: int, body: bytes, headers: Sequence[tuple[str, str]], clock: Clock, began: float
) -> StreamedAnswer:  # fmt: skip
    connection = h11.Connection(our_role=h11.CLIENT)
    named = [("Content-Type", "application/json"), *headers]
    writer.write(http_client.encode_request(connection, "POST", _PATH, f"127.0.0.1:{port}", body, named))
    await writer.drain()
    head = await http_client.read_head(connection, reader)
    if head.status_code != 200:
        reply = (await http_client.read_body(connection, reader, _MAX_ERROR_BYTES)).decode("utf-8", "replace")
        raise RequestRefused(head.status_code, truncate_text(sanitize_line(reply.replace("\n", " ")), _MAX_SHOWN_CHARS))
    seen = ChatStreamReader(began)
    while True:
        event = connection.next_event()
        if event is h11.NEED_DATA:
            connection.receive_data(await reader.read(_CHUNK_BYTES))
        elif isinstance(event, h11.Data):
            seen.feed(bytes(event.data), clock.monotonic())
        elif isinstance(event, h11.EndOfMessage):
            break
        elif isinstance(event, h11.ConnectionClosed):
            raise InvalidHttpResponse(f"{_PATH}: the stream was cut off")
    if not seen.has_ended:
        raise InvalidHttpResponse(f"{_PATH}: the stream has no end mark")
    return seen.build_answer()
