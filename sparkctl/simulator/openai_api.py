"""The HTTP API of a scripted engine: health, models, metrics, completions."""

from __future__ import annotations

import asyncio
import json
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
    """Answers on the engine's port. ``say`` receives the access log lines."""

    def __init__(self, engine: SimulatedEngine, say: Callable[[str], None]) -> None:
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
        return self._get_information(request.path)

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
                type="text/event-stream; charset=utf-8", stream=self._stream_completion(prompt, tokens, chat=chat)
            )
        self.decoding.served += 1
        try:
            await self.decoding.wait_for_prefill(prompt)
            await self.decoding.wait_for_decode(tokens)
        finally:
            self.decoding.served -= 1
        self.decoding.add_request(prompt, tokens)
        text = "".join(SAMPLE_ANSWER_TOKENS[n % len(SAMPLE_ANSWER_TOKENS)] for n in range(tokens))
        return build_json_reply(
            self._build_completion(_build_choice(text, chat=chat, end=True), chat=chat)
            | {"usage": _build_usage(prompt, tokens)}
        )

    async def _stream_completion(self, prompt: int, tokens: int, *, chat: bool) -> AsyncIterator[bytes]:
        self.decoding.served += 1
        try:
            await self.decoding.wait_for_prefill(prompt)
            for n in range(tokens):
                await self.decoding.wait_for_decode(1)
                choice = _build_choice(
                    SAMPLE_ANSWER_TOKENS[n % len(SAMPLE_ANSWER_TOKENS)], chat=chat, end=n == tokens - 1, piece=True
                )
                yield _format_sse_event(self._build_completion(choice, chat=chat, piece=True))
        finally:
            self.decoding.served -= 1
        self.decoding.add_request(prompt, tokens)
        yield _format_sse_event(
            self._build_completion(None, chat=chat, piece=True) | {"usage": _build_usage(prompt, tokens)}
        )
        yield b"data: [DONE]\n\n"

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


def _build_choice(text: str, *, chat: bool, end: bool, piece: bool = False) -> dict[str, Any]:
    content: dict[str, Any] = {"text": text}
    if chat:
        content = {"delta" if piece else "message": {"role": "assistant", "content": text}}
    return {"index": 0, **content, "logprobs": None, "finish_reason": "length" if end else None}


def _build_usage(prompt: int, tokens: int) -> dict[str, int]:
    return {"prompt_tokens": prompt, "completion_tokens": tokens, "total_tokens": prompt + tokens}


def _format_sse_event(value: object) -> bytes:
    return f"data: {json.dumps(value, separators=(',', ':'))}\n\n".encode()


def _build_error_reply(status: int, message: str, kind: str) -> SimHttpReply:
    return build_json_reply({"error": {"message": message, "type": kind, "param": None, "code": status}}, status)


def _build_not_found_reply() -> SimHttpReply:
    return build_json_reply({"detail": "Not Found"}, 404)
