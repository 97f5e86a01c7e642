"""Ready means: the ready line was seen, the health path answers, and one token came out of a real request."""

from __future__ import annotations

import json
from collections.abc import Collection
from dataclasses import dataclass, field, replace

from sparkctl.errors import DockerError, LinkLost
from sparkctl.model.plan import Service
from sparkctl.model.secrets import redact
from sparkctl.model.text import clean, load_json, shorten
from sparkctl.operations.starting.asking import Manners, ask
from sparkctl.wire import http
from sparkctl.wire.link import Link

_HEALTH_TIMEOUT = 25.0  # SGLang answers after a generation of its own, and gives up after 20 s
_NAME_TIMEOUT = 5.0
_TOKEN_TIMEOUT = 120.0  # the first request may still compile
_READ = 16384  # bytes of an answer's body
_SHOWN = 200  # characters of an answer's body
_ALIVE = (401, 403)  # an API key is wanted: alive, whoever asks


@dataclass(frozen=True, slots=True)
class Answer:
    """``good``: as it should be. ``what``: in our words. ``unproven``: alive, but it will not say more to us.

    ``said`` is what the engine said, one printable line with whatever secrets the engine repeats: shown by `told` only.
    """

    good: bool
    what: str
    unproven: bool = False
    said: str = field(default="", repr=False)

    def told(self, secrets: Collection[str]) -> str:
        """Return the whole answer for evidence, with these secrets masked."""
        return f"{self.what} {shorten(redact(self.said, secrets), _SHOWN)}".rstrip()


async def health(
    link: Link, service: Service, timeout: float = _HEALTH_TIMEOUT, manners: Manners | None = None
) -> Answer:
    """Ask the health path once. Raises `LinkLost`; everything the engine can do wrong is an `Answer`."""
    port = service.port
    if service.ready.health is None or port is None:
        return Answer(True, "health is not asked")
    path = service.ready.health
    try:
        headers = list(_headers(service).items())
        response = await ask(link, port, "GET", path, headers=headers, timeout=timeout, manners=manners)
    except LinkLost:
        raise
    except ConnectionRefusedError:
        return Answer(False, f"port {port} refuses connections")
    except TimeoutError:
        return Answer(False, f"GET {path} did not answer within {timeout:.0f} s")
    except (ConnectionError, http.BadAnswer) as broken:
        return Answer(False, f"GET {path}:", said=clean(str(broken)) or "connection closed")
    if is_alive(response.status):
        return Answer(True, f"GET {path} answered {response.status}")
    return Answer(False, f"GET {path} answered {response.status}", said=_line(response.body))


async def request_status(link: Link, port: int, path: str, timeout: float) -> int | None:
    """Return the status with which an engine answers a path that makes it generate nothing; None without an answer.

    Raises `LinkLost`.
    """
    try:
        return (await ask(link, port, "GET", path, timeout=timeout, manners=Manners(takes_queries=True))).status
    except LinkLost:
        raise
    except (OSError, http.BadAnswer):
        return None


def is_alive(status: int | None) -> bool:
    """Tell whether a server that answers with this status is up: one that wants an API key is."""
    return status is not None and (200 <= status < 300 or status in _ALIVE)


async def served_model(link: Link, port: int, manners: Manners | None = None) -> str | None:
    """Return the first name that an engine serves under, None where it does not say."""
    try:
        answer = await ask(link, port, "GET", "/v1/models", timeout=_NAME_TIMEOUT, manners=manners)
        name = load_json(answer.body)["data"][0]["id"] if answer.ok else None
    except (OSError, http.BadAnswer, ValueError, LookupError, TypeError, RecursionError, DockerError):
        return None
    return name if isinstance(name, str) else None


async def named(link: Link, service: Service, manners: Manners | None = None) -> Service:
    """Return it with the name that it serves under, asked of itself where nobody says it. Raises `LinkLost`."""
    if service.served_model is not None or service.port is None or service.ready.probe == "none":
        return service
    return replace(service, served_model=await served_model(link, service.port, manners))


async def one_token(link: Link, service: Service, manners: Manners | None = None) -> Answer:
    """Ask for one token by the rule's API; a server without /v1/completions is asked for a chat answer instead."""
    manners = manners or Manners()
    if service.ready.probe == "none":
        return Answer(True, "no token is asked of this engine")
    if service.ready.probe == "completions":
        answer, status = await _ask(link, service, manners, "/v1/completions", {"prompt": service.ready.prompt})
        if status != 404:
            return answer
    messages = [{"role": "user", "content": service.ready.prompt}]
    answer, _ = await _ask(link, service, manners, "/v1/chat/completions", {"messages": messages})
    return answer


async def _ask(
    link: Link, service: Service, manners: Manners, path: str, body: dict[str, object]
) -> tuple[Answer, int | None]:
    port = service.port
    if port is None:
        return Answer(False, "the profile gives no port to ask"), None
    question = {"model": service.served_model or "default", **body, "max_tokens": 1, "temperature": 0, "stream": False}
    headers = [("Content-Type", "application/json"), *_headers(service).items()]
    try:
        response = await ask(
            link, port, "POST", path, body=json.dumps(question).encode(), headers=headers, timeout=_TOKEN_TIMEOUT,
            manners=manners,
        )  # fmt: skip
    except LinkLost:
        raise
    except ConnectionRefusedError:
        return Answer(False, f"port {port} refuses connections"), None
    except TimeoutError:
        return Answer(False, f"POST {path} gave no token within {_TOKEN_TIMEOUT:.0f} s"), None
    except (ConnectionError, http.BadAnswer) as broken:
        return Answer(False, f"POST {path}:", said=clean(str(broken)) or "connection closed"), None
    if response.status in _ALIVE:
        return Answer(True, f"POST {path} wants an API key ({response.status})", unproven=True), response.status
    if response.status != 200:
        return Answer(False, f"POST {path} answered {response.status}", said=_line(response.body)), response.status
    if not holds_token(response.body):
        return Answer(False, f"POST {path} answered without a token:", said=_line(response.body)), response.status
    return Answer(True, f"POST {path} gave a token"), response.status


def holds_token(body: bytes) -> bool:
    """Tell whether an OpenAI-style answer, plain or as server-sent events, holds at least one generated token."""
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
    except (ValueError, AttributeError, TypeError, RecursionError):
        return False
    return False


def _headers(service: Service) -> dict[str, str]:
    return {"Authorization": f"Bearer {service.api_key}"} if service.api_key else {}


def _line(body: bytes) -> str:
    """Return the body as one printable line. It is cut only after masking: half a secret would not be found."""
    return clean(body[:_READ].decode("utf-8", "replace").replace("\n", " ")).strip()
