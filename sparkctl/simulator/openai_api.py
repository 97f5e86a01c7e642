"""The HTTP API of a scripted engine: health, models, metrics, completions."""

from __future__ import annotations

import asyncio
import json
import math
import struct
from collections.abc import AsyncIterator, Callable
from http import HTTPStatus
from typing import Any

from sparkctl.engines.simulation.engine_launch import EngineFault
from sparkctl.engines.simulation.simulated_engine import SimulatedEngine
from sparkctl.simulator.http_server import SimHttpReply, SimHttpRequest, build_json_reply

SAMPLE_ANSWER_TOKENS = (
    " Paris",
    ",",
    " a",
    " city",
    " on",
    " the",
    " Seine",
    ",",
    " known",
    " for",
    " its",
    " bridges",
    ".",
)
METRICS_TYPE = "text/plain; version=0.0.4; charset=utf-8"
COMPLETION_PATHS = {"/v1/completions": False, "/v1/chat/completions": True}


class SimOpenAiServer:
    """Answers on the engine's port. ``say`` receives the access log lines; ``is_open`` tells whether a port of the node
    has a listener.
    """

    def __init__(
        self, engine: SimulatedEngine, say: Callable[[str], None], is_open: Callable[[int], bool] = lambda _: True
    ) -> None:
        self._is_open = is_open
        self.engine = engine
        self.launch, self.decoding = engine.launch, engine.decoding
        self.ready = False
        self._say = say
        self._requests = 0

    async def handle_request(self, request: SimHttpRequest) -> SimHttpReply:
        """Answer one request and log it."""
        reply = await self._route_request(request)
        self._requests += 1
        client = f"127.0.0.1:{40000 + self._requests * 14 % 20000}"
        status = f"{reply.status} {HTTPStatus(reply.status).phrase}"
        self._say(f'INFO:     {client} - "{request.method} {request.target or request.path} HTTP/1.1" {status}')
        return reply

    async def _route_request(self, request: SimHttpRequest) -> SimHttpReply:
        if request.path in self.engine.health_paths and self.engine.writes_text:
            return self._check_health()
        if self.engine.loading_body is not None and not self.ready:
            return _build_error_reply(503, "Loading model", "unavailable_error")
        if request.path.startswith("/v1/") and not self._is_allowed(request):
            return build_json_reply({"error": "Unauthorized"}, 401)
        if request.path in COMPLETION_PATHS and self.engine.writes_text:
            return await self._create_completion(request, chat=COMPLETION_PATHS[request.path])
        if request.path == "/v1/audio/speech" and self.engine.speaks:
            return await self._create_speech(request)
        return self._get_information(request.path)

    async def _create_speech(self, request: SimHttpRequest) -> SimHttpReply:
        """Answer with a tone for each word; without the model behind it, with a WAV that has no samples."""
        try:
            words = str(request.parse_json_body()["input"]).split()
        except (ValueError, KeyError):
            return _build_error_reply(422, "Field required: input", "invalid_request_error")
        upstream = self.launch.upstream
        if upstream is not None and not self._is_open(upstream):
            self._say(
                f"Error: HTTPConnectionPool(host='127.0.0.1', port={upstream}): Max retries exceeded with url: /v1/completions"
            )
            return SimHttpReply(body=_build_wav(b""), type="audio/wav")
        await self.decoding.pace.decode_for(_WORD_SECONDS * len(words) / _SPEECH_SPEED)
        volume = 0 if self.launch.fault is EngineFault.NO_TOKEN else _TONE_VOLUME
        return SimHttpReply(body=_build_wav(b"".join(_build_tone(word, volume) for word in words)), type="audio/wav")

    def _is_allowed(self, request: SimHttpRequest) -> bool:
        key = self.launch.api_key
        return key is None or request.headers.get("authorization") == f"Bearer {key}"

    def _check_health(self) -> SimHttpReply:
        if not self.ready:
            loading = self.engine.loading_body
            return SimHttpReply(status=503) if loading is None else build_json_reply(loading, 503)
        if (line := self.engine.count_health_check()) is not None:
            self._say(line)
        body = self.engine.health_body
        return SimHttpReply(status=200) if body is None else build_json_reply(body)

    def _get_information(self, path: str) -> SimHttpReply:
        launch = self.launch
        model = {
            "id": launch.served,
            "object": "model",
            "created": int(self.decoding.pace.clock.unix_time()),
            "root": launch.model,
        }
        if path == "/v1/models" and self.engine.writes_text:
            return build_json_reply(
                {"object": "list", "data": [model | {"owned_by": launch.kind, "max_model_len": launch.context}]}
            )
        if path == "/metrics" and self.engine.loading_body is not None and not launch.metrics:
            return _build_error_reply(
                501, "This server does not support metrics endpoint. Start it with `--metrics`", "not_supported_error"
            )
        if path == "/metrics" and launch.metrics:
            return SimHttpReply(body=self.engine.build_metrics_page().encode(), type=METRICS_TYPE)
        page = self.engine.build_page(path)
        if isinstance(page, str):
            return SimHttpReply(body=page.encode(), type="text/html; charset=utf-8")
        if page is not None:
            return build_json_reply(page)
        return SimHttpReply(status=200) if path == "/ping" else _build_not_found_reply()

    async def _create_completion(self, request: SimHttpRequest, *, chat: bool) -> SimHttpReply:
        try:
            asked: dict[str, Any] = request.parse_json_body()
            tokens = int(asked.get("max_tokens") or asked.get("max_completion_tokens") or (64 if chat else 16))
        except (ValueError, TypeError) as error:
            return _build_error_reply(400, f"invalid request: {error}", "BadRequestError")
        if self.engine.needs_model_name and asked.get("model") not in (None, self.launch.served):
            return _build_error_reply(404, f"The model `{asked['model']}` does not exist.", "NotFoundError")
        if self.launch.fault is EngineFault.NO_TOKEN:
            if self.engine.stuck_error is not None:
                return _build_error_reply(500, self.engine.stuck_error, "InternalServerError")
            await asyncio.Event().wait()  # the scheduler hangs: no answer, no error
        prompt = max(1, len(json.dumps(asked.get("messages") if chat else asked.get("prompt", ""))) // 4)
        if asked.get("stream"):
            return SimHttpReply(
                type="text/event-stream; charset=utf-8",
                stream=self._stream_completion(prompt, tokens, chat=chat, thinks=chat and self._shall_think(asked)),
            )
        self.decoding.served += 1
        try:
            await self.decoding.wait_for_prefill(prompt)
            await self.decoding.wait_for_decode(tokens)
        finally:
            self.decoding.served -= 1
        self.decoding.add_request(prompt, tokens)
        choice = _build_choice("".join(self._make_token(n) for n in range(tokens)), chat=chat, end=True)
        if chat and self.launch.fault is not EngineFault.NONSENSE:
            choice = _build_special_choice(asked) or choice
        return build_json_reply(self._build_completion(choice, chat=chat) | {"usage": _build_usage(prompt, tokens)})

    def _shall_think(self, asked: dict[str, Any]) -> bool:
        settings = asked.get("chat_template_kwargs")
        return self.launch.thinks and isinstance(settings, dict) and settings.get("enable_thinking") is True

    async def _stream_completion(self, prompt: int, tokens: int, *, chat: bool, thinks: bool) -> AsyncIterator[bytes]:
        """Yield the events of an answer; where it ``thinks``, its first half is reasoning."""
        self.decoding.served += 1
        try:
            await self.decoding.wait_for_prefill(prompt)
            for n in range(tokens):
                await self.decoding.wait_for_decode(1)
                choice = _build_choice(self._make_token(n), chat=chat, end=n == tokens - 1, piece=True)
                if thinks and n < tokens // 2:
                    choice["delta"] = {"reasoning_content": choice["delta"]["content"]}
                yield _format_sse_event(self._build_completion(choice, chat=chat, piece=True))
        finally:
            self.decoding.served -= 1
        self.decoding.add_request(prompt, tokens)
        yield _format_sse_event(
            self._build_completion(None, chat=chat, piece=True) | {"usage": _build_usage(prompt, tokens)}
        )
        yield b"data: [DONE]\n\n"

    def _make_token(self, number: int) -> str:
        """Return a token of the answer; after the sentence it counts, for a text that does not repeat itself."""
        if self.launch.fault is EngineFault.NONSENSE:
            return "!"
        return SAMPLE_ANSWER_TOKENS[number] if number < len(SAMPLE_ANSWER_TOKENS) else f" {number}"

    def _build_completion(self, choice: dict[str, Any] | None, *, chat: bool, piece: bool = False) -> dict[str, Any]:
        name = ("chat.completion.chunk" if piece else "chat.completion") if chat else "text_completion"
        choices = [] if choice is None else [choice]
        return {
            "id": f"cmpl-{self._requests}",
            "object": name,
            "created": int(self.decoding.pace.clock.unix_time()),
            "model": self.launch.served,
            "choices": choices,
        }


_SAMPLE_RATE, _TONE_VOLUME = 24000, 9000
_WORD_SECONDS, _SPEECH_SPEED = 0.35, 1.6  # sound for a word, and how much faster than it sounds it is made


def _build_tone(word: str, volume: int) -> bytes:
    """Return a tone that fades in and out, its height from the word's letters."""
    count, step = round(_SAMPLE_RATE * _WORD_SECONDS), math.tau * (180 + 12 * (sum(word.encode()) % 16)) / _SAMPLE_RATE
    levels = (volume * math.sin(math.pi * at / count) * math.sin(step * at) for at in range(count))
    return b"".join(struct.pack("<h", round(level)) for level in levels)


def _build_wav(samples: bytes) -> bytes:
    layout = struct.pack("<4sIHHIIHH", b"fmt ", 16, 1, 1, _SAMPLE_RATE, 2 * _SAMPLE_RATE, 2, 16)
    content = b"WAVE" + layout + struct.pack("<4sI", b"data", len(samples)) + samples
    return struct.pack("<4sI", b"RIFF", len(content)) + content


def _build_choice(text: str, *, chat: bool, end: bool, piece: bool = False) -> dict[str, Any]:
    content: dict[str, Any] = {"text": text}
    if chat:
        content = {"delta" if piece else "message": {"role": "assistant", "content": text}}
    return {"index": 0, **content, "logprobs": None, "finish_reason": "length" if end else None}


def _build_special_choice(asked: dict[str, Any]) -> dict[str, Any] | None:
    """Return the answer where a tool or JSON was asked for, None for plain text."""
    form = asked.get("response_format")
    if asked.get("tools"):
        name = asked["tools"][0]["function"]["name"]
        call = {"id": "call-0", "type": "function", "function": {"name": name, "arguments": '{"city": "Paris"}'}}
        message = {"role": "assistant", "content": None, "tool_calls": [call]}
        return {"index": 0, "message": message, "logprobs": None, "finish_reason": "tool_calls"}
    if isinstance(form, dict) and form.get("type") == "json_object":
        return _build_choice('{"city": "Paris"}', chat=True, end=True) | {"finish_reason": "stop"}
    return None


def _build_usage(prompt: int, tokens: int) -> dict[str, int]:
    return {"prompt_tokens": prompt, "completion_tokens": tokens, "total_tokens": prompt + tokens}


def _format_sse_event(value: object) -> bytes:
    return f"data: {json.dumps(value, separators=(',', ':'))}\n\n".encode()


def _build_error_reply(status: int, message: str, kind: str) -> SimHttpReply:
    return build_json_reply({"error": {"message": message, "type": kind, "param": None, "code": status}}, status)


def _build_not_found_reply() -> SimHttpReply:
    return build_json_reply({"detail": "Not Found"}, 404)
