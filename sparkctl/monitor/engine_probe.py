"""Requests that prove an engine ready: its health path answers, and a real request gives a token; or, of a service that is no
chat, sound, an embedding, a ranking, an answer to HTTP.
"""

from __future__ import annotations

import json
import math
import struct
from array import array
from collections.abc import Callable, Collection
from dataclasses import field, replace

from sparkctl.clock import Clock
from sparkctl.errors import ConnectionLost, DockerError, ForwardingForbidden
from sparkctl.model.launch_plan import PROVED_PROBES, REQUEST_MARK, ReadinessTarget
from sparkctl.model.lazy_dataclass import dataclass
from sparkctl.model.text.sanitize import load_json, sanitize_line, truncate_text
from sparkctl.model.text.units import format_duration
from sparkctl.transport import http_client
from sparkctl.transport.http_client import HttpResponse, InvalidHttpResponse
from sparkctl.transport.node_connection import NodeConnection

# answers of a server that compares whole request targets: it is asked once more, without the query
_QUERY_REJECTED_STATUSES = (400, 404, 405)


def mark_request_path(path: str) -> str:
    """Return the path as we ask for it."""
    return f"{path}{'&' if '?' in path else '?'}{REQUEST_MARK}"


@dataclass(slots=True)
class QueryMarkerSupport:
    """Whether one server accepts the query that marks our requests; callers keep it between requests.

    Without the query, our requests look like any client's in the engine's log. A server that ``takes_queries`` is never asked
    without it: one that compares whole request targets never answers a query with success.
    """

    takes_queries: bool = False


async def request_engine(
    link: NodeConnection,
    port: int,
    method: str,
    path: str,
    *,
    body: bytes | None = None,
    headers: http_client.Headers = (),
    timeout: float,
    marker_support: QueryMarkerSupport | None = None,
) -> http_client.HttpResponse:
    """Send a request to the engine on a port of the node, at most twice; ``timeout`` seconds each. Raises as `request_tcp`.

    If sshd forwards no connection to the port, a command on the node sends the request: the engine is not down.
    """
    marker_support = marker_support or QueryMarkerSupport()

    async def send_request(target: str) -> http_client.HttpResponse:
        try:
            return await http_client.request_tcp(
                link, port, method, target, body=body, headers=headers, timeout=timeout
            )
        except ForwardingForbidden as forbidden:
            try:
                return await http_client.request_in_session(
                    link, port, method, target, body=body, headers=headers, timeout=timeout
                )
            except ForwardingForbidden:
                raise forbidden from None  # its message has the remedy

    answer = await send_request(mark_request_path(path))
    marker_support.takes_queries = marker_support.takes_queries or answer.is_success
    if answer.status in _QUERY_REJECTED_STATUSES and not marker_support.takes_queries:
        answer = await send_request(path)
    return answer


_HEALTH_TIMEOUT = 25.0  # SGLang answers after a generation of its own, and gives up after 20 s
_NAME_TIMEOUT = 5.0
_TOKEN_TIMEOUT = 120.0  # the first request may still compile
_MAX_BODY_BYTES = 16384  # bytes of an answer's body
_MAX_SHOWN_CHARS = 200  # characters of an answer's body
_API_KEY_STATUSES = (401, 403)  # an API key is required: the server is alive


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeResult:
    """``good``: the probe succeeded. ``what``: in our words. ``unproven``: it answers, and the answer is no proof.

    ``said`` is the engine's answer as one printable line; it may repeat secrets, so show it with `format_masked` only.
    ``status``: of the HTTP answer, None without one.
    """

    good: bool
    what: str
    unproven: bool = False
    said: str = field(default="", repr=False)
    status: int | None = None

    def format_masked(self, secrets: Collection[str]) -> str:
        """Return the whole answer for evidence, with these secrets masked."""
        from sparkctl.model.text.secrets import redact

        return f"{self.what} {truncate_text(redact(self.said, secrets), _MAX_SHOWN_CHARS)}".rstrip()


async def check_health(
    link: NodeConnection,
    service: ReadinessTarget,
    timeout: float = _HEALTH_TIMEOUT,
    marker_support: QueryMarkerSupport | None = None,
) -> ProbeResult:
    """Ask the health path once. Raises `ConnectionLost`; every fault of the engine is a `ProbeResult`."""
    path = service.ready.health
    if path is None or service.port is None:
        return ProbeResult(good=True, what="health is not asked")
    answer = await _ServiceAsker(link, service, timeout, marker_support).ask(path, None)
    if isinstance(answer, ProbeResult):
        return answer
    what, is_alive = f"GET {path} answered {answer.status}", is_alive_status(answer.status)
    return ProbeResult(good=is_alive, what=what, said="" if is_alive else format_body_line(answer.body))


async def request_status(link: NodeConnection, port: int, path: str, timeout: float) -> int | None:
    """Return the HTTP status for a path on which the engine generates nothing; None without an answer.

    Raises `ConnectionLost`.
    """
    try:
        return (
            await request_engine(
                link, port, "GET", path, timeout=timeout, marker_support=QueryMarkerSupport(takes_queries=True)
            )
        ).status
    except ConnectionLost:
        raise
    except (OSError, http_client.InvalidHttpResponse):
        return None


def is_alive_status(status: int | None) -> bool:
    """Tell whether a server that answers with this status is up; one that requires an API key is up, too."""
    return status is not None and (200 <= status < 300 or status in _API_KEY_STATUSES)


async def read_served_model(
    link: NodeConnection, port: int, marker_support: QueryMarkerSupport | None, headers: http_client.Headers
) -> str | None:
    """Return the first model name that an engine serves, None if it does not say."""
    try:
        answer = await request_engine(
            link, port, "GET", "/v1/models", headers=headers, timeout=_NAME_TIMEOUT, marker_support=marker_support
        )
        name = load_json(answer.body)["data"][0]["id"] if answer.is_success else None
    except (OSError, http_client.InvalidHttpResponse, ValueError, LookupError, TypeError, DockerError):
        return None
    return name if isinstance(name, str) else None


async def resolve_served_model(
    link: NodeConnection, service: ReadinessTarget, marker_support: QueryMarkerSupport | None = None
) -> ReadinessTarget:
    """Return the target with the served model name, asking the engine if it is not known. Raises `ConnectionLost`."""
    if service.served_model is not None or service.port is None or service.ready.probe == "none":
        return service
    return replace(
        service, served_model=await read_served_model(link, service.port, marker_support, service.auth_headers)
    )


async def check_key_required(
    link: NodeConnection,
    service: ReadinessTarget,
    marker_support: QueryMarkerSupport | None = None,
    timeout: float = _HEALTH_TIMEOUT,
) -> ProbeResult:
    """Check that a request without the key is refused. It is no whole request: without a key nothing is generated, too."""
    port, path = service.port, "/v1/chat/completions"
    if port is None:
        return ProbeResult(good=False, what="the profile gives no port to ask", unproven=True)
    headers = [("Content-Type", "application/json")]
    try:
        response = await request_engine(
            link,
            port,
            "POST",
            path,
            body=b'{"max_tokens": 1}',
            headers=headers,
            timeout=timeout,
            marker_support=marker_support,
        )
    except ConnectionLost:
        raise
    except (OSError, http_client.InvalidHttpResponse) as broken:
        return ProbeResult(
            good=False, what=f"POST {path} without its key:", said=sanitize_line(str(broken)) or "no answer"
        )
    if response.status in _API_KEY_STATUSES:
        what = f"a request without its key is refused ({response.status})"
        return ProbeResult(good=True, what=what, status=response.status)
    what = f"it does not refuse a request without its key (POST {path} answered {response.status})"
    return ProbeResult(good=False, what=what, unproven=True, status=response.status)


async def request_token(
    link: NodeConnection, service: ReadinessTarget, marker_support: QueryMarkerSupport | None = None
) -> ProbeResult:
    """Request one token by the rule's API; fall back to a chat request if there is no /v1/completions."""
    marker_support = marker_support or QueryMarkerSupport()
    if service.ready.probe == "none":
        return ProbeResult(good=True, what="no token is asked of this engine")
    if service.ready.probe == "completions":
        answer, status = await _request_completion(
            link, service, marker_support, "/v1/completions", {"prompt": service.ready.prompt}
        )
        if status != 404:
            return answer
    messages = [{"role": "user", "content": service.ready.prompt}]
    answer, _ = await _request_completion(link, service, marker_support, "/v1/chat/completions", {"messages": messages})
    return answer


async def _request_completion(
    link: NodeConnection,
    service: ReadinessTarget,
    marker_support: QueryMarkerSupport,
    path: str,
    body: dict[str, object],
) -> tuple[ProbeResult, int | None]:
    port = service.port
    if port is None:
        return ProbeResult(good=False, what="the profile gives no port to ask", unproven=True), None
    question = {"model": service.served_model or "default", **body, "max_tokens": 1, "temperature": 0, "stream": False}
    headers = [("Content-Type", "application/json"), *service.auth_headers]
    try:
        response = await request_engine(
            link, port, "POST", path, body=json.dumps(question).encode(), headers=headers, timeout=_TOKEN_TIMEOUT,
            marker_support=marker_support,
        )  # fmt: skip
    except ConnectionLost:
        raise
    except ConnectionRefusedError:
        return ProbeResult(good=False, what=f"port {port} refuses connections"), None
    except TimeoutError:
        return ProbeResult(good=False, what=f"POST {path} gave no token within {_TOKEN_TIMEOUT:.0f} s"), None
    except (ConnectionError, http_client.InvalidHttpResponse) as broken:
        return ProbeResult(
            good=False, what=f"POST {path}:", said=sanitize_line(str(broken)) or "connection closed"
        ), None
    if response.status in _API_KEY_STATUSES:
        what = f"POST {path} {'needs an' if service.api_key is None else 'refuses its'} API key ({response.status})"
        return ProbeResult(good=False, what=what, unproven=True, status=response.status), response.status
    if response.status != 200:
        return ProbeResult(
            good=False, what=f"POST {path} answered {response.status}", said=format_body_line(response.body)
        ), response.status
    if not contains_token(response.body):
        return ProbeResult(
            good=False, what=f"POST {path} answered without a token:", said=format_body_line(response.body)
        ), response.status
    return ProbeResult(good=True, what=f"POST {path} gave a token"), response.status


def contains_token(body: bytes) -> bool:
    """Tell whether an OpenAI-style answer, plain or as server-sent events, has at least one generated token."""
    text = body.decode("utf-8", "replace")
    if text.lstrip().startswith("data:"):
        chunks = [line[5:].strip() for line in text.splitlines() if line.startswith("data:")]
        return any(_choice_has_token(chunk) for chunk in chunks if chunk != "[DONE]")
    return _choice_has_token(text)


def _choice_has_token(text: str) -> bool:
    try:
        answer = load_json(text)
        usage = answer.get("usage") or {}
        if (usage.get("completion_tokens") or 0) >= 1:
            return True
        for choice in answer.get("choices") or ():
            part = choice.get("message") or choice.get("delta") or choice
            if part.get("text") or part.get("content") or part.get("reasoning_content") or part.get("tool_calls"):
                return True
    except (ValueError, AttributeError, TypeError):
        return False
    return False


def format_body_line(body: bytes) -> str:
    """Return the body as one printable line. It is cut only after masking: masking does not find half a secret."""
    return sanitize_line(body[:_MAX_BODY_BYTES].decode("utf-8", "replace").replace("\n", " ")).strip()


SPEECH_PATH = "/v1/audio/speech"
_PROOF_TIMEOUT = 120.0  # the first request may still load or compile
_MIN_AUDIO_SECONDS, _MAX_AUDIO_SECONDS = 0.2, 60.0  # of a sentence
_ANY_VOICE = "alloy"  # for servers that want one named: the first of the API that they follow
_DOCUMENTS = ("Paris is the capital of France.", "A llama is an animal of the Andes.")


@dataclass(frozen=True, slots=True)
class SpeechAnswer:
    """What a speech server answered: ``clip`` None is no sound, and ``result`` says why not."""

    result: ProbeResult
    clip: AudioClip | None = None
    body: bytes = b""


async def request_proof(
    link: NodeConnection,
    service: ReadinessTarget,
    clock: Clock,
    marker_support: QueryMarkerSupport | None = None,
    timeout: float = _PROOF_TIMEOUT,
) -> ProbeResult:
    """Ask for all that the rule wants of a service that is up: its work, then that it refuses who has no key.

    Raises `ConnectionLost`; every fault of the engine is a `ProbeResult`.
    """
    answer = await request_work(link, service, clock, marker_support, timeout)
    if not answer.good or not service.ready.requires_key:
        return answer
    refusal = await check_key_required(link, service, marker_support, min(timeout, _HEALTH_TIMEOUT))
    return answer if refusal.good else refusal


async def request_work(
    link: NodeConnection,
    service: ReadinessTarget,
    clock: Clock,
    marker_support: QueryMarkerSupport | None,
    timeout: float = _PROOF_TIMEOUT,
) -> ProbeResult:
    """Ask for one piece of work by the rule's probe. Raises as `request_proof`."""
    probe = service.ready.probe
    if probe not in PROVED_PROBES:
        return await request_token(link, service, marker_support)
    if service.port is None:
        return ProbeResult(good=False, what="the profile gives no port to ask", unproven=True)
    if probe == "speech":
        began = clock.monotonic()
        answer = await request_speech(
            link, service, service.ready.prompt, timeout=timeout, marker_support=marker_support
        )
        return _judge_clip(answer, clock.monotonic() - began)
    asker = _ServiceAsker(link, service, timeout, marker_support)
    if probe == "http":
        return await asker.request_judged(service.ready.health or "/", None, lambda _: None)
    named: dict[str, object] = {} if service.served_model is None else {"model": service.served_model}
    if probe == "embeddings":
        body = {**named, "input": service.ready.prompt}
        return await asker.request_judged("/v1/embeddings", body, judge_embedding)
    # Text Embeddings Inference has another path and another word for the documents
    question = {**named, "query": service.ready.prompt, "documents": _DOCUMENTS, "texts": _DOCUMENTS}
    answered = await asker.request_judged("/v1/rerank", question, judge_ranking)
    if answered.status in (404, 405):
        answered = await asker.request_judged("/rerank", question, judge_ranking)
    return answered


async def request_speech(
    link: NodeConnection,
    service: ReadinessTarget,
    text: str,
    *,
    voice: str | None = None,
    timeout: float = _PROOF_TIMEOUT,
    marker_support: QueryMarkerSupport | None = None,
) -> SpeechAnswer:
    """Ask for a text as WAV. Without ``voice`` the server chooses; one that insists gets the API's first name."""
    named = {} if service.served_model is None else {"model": service.served_model}
    question: dict[str, object] = {
        **named,
        "input": text,
        "response_format": "wav",
        **({} if voice is None else {"voice": voice}),
    }
    asker = _ServiceAsker(link, service, timeout, marker_support)
    answer = await asker.ask(SPEECH_PATH, question)
    if voice is None and isinstance(answer, HttpResponse) and answer.status in (400, 422) and b"voice" in answer.body:
        answer = await asker.ask(SPEECH_PATH, {**question, "voice": _ANY_VOICE})
    if isinstance(answer, ProbeResult):
        return SpeechAnswer(answer)
    if not answer.is_success:
        return SpeechAnswer(_build_refusal("POST", SPEECH_PATH, answer))
    kind = answer.get_header("content-type") or ""
    clip = read_audio(answer.body, kind)
    if clip is None:
        return SpeechAnswer(
            _build_unproved(SPEECH_PATH, f"gave {_name_content(answer.body, kind)} instead of sound", answer)
        )
    return SpeechAnswer(
        ProbeResult(good=True, what=f"POST {SPEECH_PATH} gave sound", status=answer.status), clip, answer.body
    )


def _judge_clip(answer: SpeechAnswer, took: float) -> ProbeResult:
    clip = answer.clip
    if clip is None:
        return answer.result
    fault = find_clip_fault(clip, longest=_MAX_AUDIO_SECONDS)
    if fault is not None:
        return _build_unproved(SPEECH_PATH, f"gave {fault}")
    rate = f": {clip.seconds / took:.1f} s of sound per second of work" if took > 0.05 else ""
    return ProbeResult(
        good=True, what=f"{clip.seconds:.1f} s of sound ({clip.form}) in {format_duration(took)}{rate}", status=200
    )


def find_clip_fault(clip: AudioClip, longest: float = math.inf) -> str | None:
    """Return why sound is no spoken sentence of at most ``longest`` seconds; None where it may be one."""
    if clip.seconds == 0:
        return f"a {clip.form} without a single sample"
    if clip.is_silent:
        return f"{clip.seconds:.1f} s of silence ({clip.form})"
    if clip.seconds < _MIN_AUDIO_SECONDS:
        return f"{clip.seconds:.2f} s of sound ({clip.form}), too short for a sentence"
    if clip.seconds > longest:
        return f"{clip.seconds:.1f} s of sound ({clip.form}), far too long for that sentence"
    return None


def judge_embedding(answer: object) -> str | None:
    """Return why an answer proves no embedding; None where it does."""
    try:
        vector = answer["data"][0]["embedding"]  # type: ignore[index]
    except (LookupError, TypeError):
        return "gave no vector"
    if not isinstance(vector, list) or not vector or not all(map(_is_number, vector)):
        return "gave a vector that is not made of numbers"
    return None if any(vector) else f"gave a vector of {len(vector)} zeros"


def judge_ranking(answer: object) -> str | None:
    """Return why an answer proves no ranking; None where it does."""
    rows = answer.get("results", answer.get("data")) if isinstance(answer, dict) else answer
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        return "gave no scores"
    scores = [row.get("relevance_score", row.get("score")) for row in rows]
    if len(scores) != len(_DOCUMENTS) or not all(map(_is_number, scores)):
        return f"gave {len(scores)} scores for {len(_DOCUMENTS)} texts" if scores else "gave no scores"
    return None if len(set(scores)) > 1 else "gave the same score to a right and a wrong answer"


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


@dataclass(frozen=True, slots=True)
class _ServiceAsker:
    """Asks one service, ``timeout`` seconds each time: a GET without a body, a POST with one."""

    link: NodeConnection
    service: ReadinessTarget
    timeout: float
    marker_support: QueryMarkerSupport | None

    async def request_judged(
        self, path: str, body: dict[str, object] | None, judge: Callable[[object], str | None]
    ) -> ProbeResult:
        """Return whether the answer proves the service; ``judge`` returns why not."""
        answer = await self.ask(path, body)
        if isinstance(answer, ProbeResult):
            return answer
        if not answer.is_success:
            return _build_refusal(_choose_method(body), path, answer)
        if body is None:
            return ProbeResult(
                good=True, what=f"{_choose_method(body)} {path} answered {answer.status}", status=answer.status
            )
        try:
            wrong = judge(load_json(answer.body))
        except ValueError:
            wrong = f"gave {_name_content(answer.body, answer.get_header('content-type') or '')} instead of JSON"
        if wrong is not None:
            return _build_unproved(path, wrong, answer)
        return ProbeResult(good=True, what=f"{_choose_method(body)} {path} gave a proper answer", status=answer.status)

    async def ask(self, path: str, body: dict[str, object] | None) -> HttpResponse | ProbeResult:
        """Return the answer; a result without a status where there is none."""
        assert self.service.port is not None
        method = _choose_method(body)
        headers = [("Content-Type", "application/json")] if body is not None else []
        headers += self.service.auth_headers
        try:
            return await request_engine(
                self.link, self.service.port, method, path, body=None if body is None else json.dumps(body).encode(), headers=headers,
                timeout=self.timeout, marker_support=self.marker_support,
            )  # fmt: skip
        except ConnectionLost:
            raise
        except ConnectionRefusedError:
            return ProbeResult(good=False, what=f"port {self.service.port} refuses connections")
        except TimeoutError:
            return ProbeResult(good=False, what=f"{method} {path} did not answer within {self.timeout:.0f} s")
        except (ConnectionError, InvalidHttpResponse) as broken:
            return ProbeResult(
                good=False, what=f"{method} {path}:", said=sanitize_line(str(broken)) or "connection closed"
            )


def _choose_method(body: dict[str, object] | None) -> str:
    return "GET" if body is None else "POST"


def _build_refusal(method: str, path: str, answer: HttpResponse) -> ProbeResult:
    reply = format_body_line(answer.body)
    what = f"{method} {path} answered {answer.status}"
    return ProbeResult(good=False, what=what, unproven=True, said=reply, status=answer.status)


def _build_unproved(path: str, what: str, answer: HttpResponse | None = None) -> ProbeResult:
    reply = "" if answer is None or _looks_binary(answer.body) else format_body_line(answer.body)
    return ProbeResult(good=False, what=f"POST {path} {what}", unproven=True, said=reply, status=200)


def _looks_binary(body: bytes) -> bool:
    return b"\0" in body[:512]


def _name_content(body: bytes, kind: str) -> str:
    start = body[:512].lstrip()
    if not start:
        return "an empty answer"
    if start[:1] == b"<":
        return "HTML"
    if start[:1] in (b"{", b"["):
        return "JSON"
    return sanitize_line(kind.partition(";")[0])[:60] or "something unknown"


_PCM_RATE = 24000  # samples a second of bare PCM, as the OpenAI speech API has it: 16 bits, one channel
_SILENCE_SHARE = 0.001  # of full scale: no voice is as quiet
_WAV_PCM, _WAV_FLOAT, _WAV_EXTENSIBLE = 1, 3, 0xFFFE
_MP3_RATES = ((11025, 12000, 8000), (), (22050, 24000, 16000), (44100, 48000, 32000))  # by the header's version bits
_MP3_KBITS_1 = (0, 32, 40, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320)  # layer 3 of MPEG 1
_MP3_KBITS_2 = (0, 8, 16, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128, 144, 160)  # of MPEG 2 and 2.5


@dataclass(frozen=True, slots=True)
class AudioClip:
    """Sound of ``seconds``. ``is_silent``: None where only a decoder could tell."""

    form: str
    seconds: float
    is_silent: bool | None = None


def read_audio(body: bytes, content_type: str) -> AudioClip | None:
    """Return what a body holds; None where it is no sound that is known here. Never raises."""
    kind = content_type.partition(";")[0].strip().lower()
    if body[:4] == b"RIFF" and body[8:12] == b"WAVE":
        return _read_wav(body)
    if body[:4] == b"fLaC":
        return _read_flac(body)
    if body[:4] == b"OggS":
        return _read_ogg(body)
    if body[:3] == b"ID3" or (body[:1] == b"\xff" and len(body) > 3 and body[1] & 0xE0 == 0xE0):
        return _read_mp3(body)
    if kind in ("audio/pcm", "audio/l16", "audio/x-raw") and body:
        return AudioClip("pcm", len(body) / 2 / _PCM_RATE, _is_silent(body, 16, is_float=False))
    return None


def _read_wav(body: bytes) -> AudioClip | None:
    """A server that streams does not know the length when it writes the header: the bytes that came count."""
    at, layout = 12, None
    while at + 8 <= len(body):
        name, size = struct.unpack_from("<4sI", body, at)
        content = body[at + 8 : at + 8 + size]
        if name == b"fmt " and len(content) >= 16:
            layout = struct.unpack_from("<HHIIHH", content)
            if layout[0] == _WAV_EXTENSIBLE and len(content) >= 26:
                layout = (struct.unpack_from("<H", content, 24)[0], *layout[1:])
        elif name == b"data" and layout is not None:
            if size == 0:
                content = body[at + 8 :]
            form, channels, rate, _, _, bits = layout
            width = channels * bits // 8
            if form not in (_WAV_PCM, _WAV_FLOAT) or not width or not rate:
                return None
            return AudioClip("wav", len(content) / width / rate, _is_silent(content, bits, is_float=form == _WAV_FLOAT))
        at += 8 + size + size % 2
    return None


def _is_silent(samples: bytes, bits: int, *, is_float: bool) -> bool | None:
    code = {(16, False): "h", (32, False): "i", (32, True): "f"}.get((bits, is_float))
    if code is None:
        quiet = b"\x80" if bits == 8 else b"\0"  # samples of 8 bits have no sign
        return not samples.strip(quiet)
    values = array(code, samples[: len(samples) // (bits // 8) * (bits // 8)])
    full = 1.0 if is_float else float(1 << (bits - 1))
    return not values or max(max(values), -min(values)) < full * _SILENCE_SHARE


def _read_flac(body: bytes) -> AudioClip | None:
    if len(body) < 26:
        return None
    packed = int.from_bytes(body[18:26], "big")
    rate, samples = packed >> 44, packed & ((1 << 36) - 1)
    return AudioClip("flac", samples / rate) if rate else None


def _read_ogg(body: bytes) -> AudioClip | None:
    """The last page says how many samples there are; Opus counts 48,000 a second, whatever its input was."""
    last = body.rfind(b"OggS")
    if len(body) < last + 14:
        return None
    vorbis = body.find(b"\x01vorbis", 0, 512)
    rate = 48000 if vorbis < 0 else int.from_bytes(body[vorbis + 12 : vorbis + 16], "little")
    samples = int.from_bytes(body[last + 6 : last + 14], "little", signed=True)
    return AudioClip("ogg", max(0, samples) / rate) if rate else None


def _read_mp3(body: bytes) -> AudioClip | None:
    at, seconds = 0, 0.0
    if body[:3] == b"ID3" and len(body) >= 10:
        at = 10 + sum((byte & 0x7F) << shift for byte, shift in zip(body[6:10], (21, 14, 7, 0), strict=True))
    while at + 4 <= len(body):
        if body[at] != 0xFF or body[at + 1] & 0xE6 != 0xE2:  # layer 3 alone is MP3
            break
        version, bitrate, rate = (body[at + 1] >> 3) & 3, body[at + 2] >> 4, (body[at + 2] >> 2) & 3
        if version == 1 or bitrate in (0, 15) or rate == 3:
            break
        samples, kbits = (1152, _MP3_KBITS_1) if version == 3 else (576, _MP3_KBITS_2)
        hertz = _MP3_RATES[version][rate]
        seconds += samples / hertz
        at += samples // 8 * kbits[bitrate] * 1000 // hertz + ((body[at + 2] >> 1) & 1)
    return AudioClip("mp3", seconds) if seconds else None
