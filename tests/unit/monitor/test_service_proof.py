"""What proves a service, and what is only an answer. Asked of real servers on the loopback."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from sparkctl.clock import SystemClock
from sparkctl.model.launch_plan import ReadinessRule, ReadinessTarget
from sparkctl.model.node import Node, NodeName
from sparkctl.monitor.engine_probe import ProbeResult, judge_embedding, judge_ranking, request_proof, request_speech
from sparkctl.transport.local_connection import LocalConnection
from tests.unit.model.test_audio import build_wav

LINK = LocalConnection(Node(name=NodeName("spark1"), host="local"))


@asynccontextmanager
async def serve(answers: list[tuple[int, str, bytes]]) -> AsyncIterator[tuple[int, list[dict[str, object]]]]:
    """Give one answer after the other, the last one again and again; yield the port and the bodies of the requests."""
    heard: list[dict[str, object]] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
        length = int(head.partition("content-length: ")[2].partition("\r\n")[0] or 0)
        heard.append(json.loads(await reader.readexactly(length) or b"{}"))
        status, kind, body = answers.pop(0) if len(answers) > 1 else answers[0]
        writer.write(
            f"HTTP/1.1 {status} X\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body
        )
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        yield server.sockets[0].getsockname()[1], heard


async def ask(probe: str, status: int, kind: str, body: bytes) -> ProbeResult:
    async with serve([(status, kind, body)]) as (port, _):
        return await request_proof(
            LINK, ReadinessTarget(port, ReadinessRule(line=None, health="/health", probe=probe)), SystemClock()
        )


@pytest.mark.parametrize(
    ("status", "kind", "body", "why"),
    [
        (200, "text/html", b"<!DOCTYPE html><title>docs</title>", "gave HTML instead of sound"),
        (200, "application/json", b'{"error":"LLM is down"}', "gave JSON instead of sound"),
        (200, "audio/wav", b"", "gave an empty answer instead of sound"),
        (200, "audio/wav", build_wav(0.0), "gave a wav without a single sample"),
        (200, "audio/wav", build_wav(1.5, level=0), "gave 1.5 s of silence (wav)"),
        (200, "audio/wav", build_wav(0.05), "gave 0.05 s of sound (wav), too short for a sentence"),
        (500, "application/json", b'{"error":"boom"}', "answered 500"),
        (404, "application/json", b'{"error":"The model `tts-1` does not exist"}', "answered 404"),
        (401, "application/json", b'{"error":"no key"}', "answered 401"),
    ],
)
async def test_an_answer_that_is_no_voice(status: int, kind: str, body: bytes, why: str) -> None:
    answer = await ask("speech", status, kind, body)
    assert not answer.good
    assert answer.what == f"POST /v1/audio/speech {why}"
    assert answer.status is not None, "it answered: it is up, and not proved"


async def test_a_voice() -> None:
    answer = await ask("speech", 200, "audio/wav", build_wav(1.5))
    assert answer.good
    assert answer.what.startswith("1.5 s of sound (wav) in ")


async def test_a_server_that_wants_a_voice_named_gets_one() -> None:
    refusal = (422, "application/json", b'{"detail":[{"loc":["body","voice"],"msg":"Field required"}]}')
    async with serve([refusal, (200, "audio/wav", build_wav(1.0))]) as (port, heard):
        target = ReadinessTarget(port, ReadinessRule(line=None, health=None, probe="speech"), served_model="kokoro")
        answer = await request_speech(LINK, target, "hello")
    assert answer.result.good
    assert [one.get("voice") for one in heard] == [None, "alloy"]
    assert {one["model"] for one in heard} == {"kokoro"}


async def test_nobody_listens() -> None:
    answer = await request_proof(
        LINK, ReadinessTarget(1, ReadinessRule(line=None, health=None, probe="speech")), SystemClock()
    )
    assert (answer.good, answer.status) == (False, None)
    assert "refuses connections" in answer.what


async def test_other_services() -> None:
    assert (await ask("http", 204, "text/plain", b"")).good
    assert (await ask("http", 503, "text/plain", b"loading")).what == "GET /health answered 503"
    assert (await ask("embeddings", 200, "application/json", b'{"data":[{"embedding":[0.1,-2,0]}]}')).good
    assert "HTML instead of JSON" in (await ask("embeddings", 200, "text/html", b"<html>")).what
    scores = b'{"results":[{"index":0,"relevance_score":0.9},{"index":1,"relevance_score":0.1}]}'
    assert (await ask("rerank", 200, "application/json", scores)).good


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        ({"data": [{"embedding": [0, 0.0, 0]}]}, "gave a vector of 3 zeros"),
        ({"data": [{"embedding": ["1", 2]}]}, "not made of numbers"),
        ({"data": [{"embedding": [float("nan")]}]}, "not made of numbers"),
        ({"data": [{"embedding": []}]}, "not made of numbers"),
        ({"data": []}, "gave no vector"),
        ([], "gave no vector"),
        (None, "gave no vector"),
    ],
)
def test_vectors_that_prove_nothing(answer: object, why: str) -> None:
    assert why in (judge_embedding(answer) or "")


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        ([{"index": 0, "score": 0.3}, {"index": 1, "score": 0.3}], "the same score"),
        ([{"index": 0, "score": 0.3}], "1 scores for 2 texts"),
        ({"results": [{"text": "x"}, {"text": "y"}]}, "2 scores for 2 texts"),
        ({"results": "none"}, "gave no scores"),
        ({"error": "x"}, "gave no scores"),
        (7, "gave no scores"),
    ],
)
def test_rankings_that_prove_nothing(answer: object, why: str) -> None:
    assert why in (judge_ranking(answer) or "")


def test_a_ranking_of_text_embeddings_inference() -> None:
    assert judge_ranking([{"index": 0, "score": 0.99}, {"index": 1, "score": 0.01}]) is None
