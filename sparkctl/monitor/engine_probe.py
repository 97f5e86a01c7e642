"""Requests that prove an engine ready: its health path answers, and a real request produces one token."""

from __future__ import annotations

import json
from collections.abc import Collection
from dataclasses import dataclass, field, replace

from sparkctl.errors import ConnectionLost, DockerError, ForwardingForbidden
from sparkctl.logs.own_requests import mark_request_path
from sparkctl.model.launch_plan import ReadinessTarget
from sparkctl.model.text.sanitize import load_json, sanitize_line, truncate_text
from sparkctl.transport import http_client
from sparkctl.transport.node_connection import NodeConnection

# answers of a server that compares whole request targets: it is asked once more, without the query
_QUERY_REJECTED_STATUSES = (400, 404, 405)


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
    manners: QueryMarkerSupport | None = None,
) -> http_client.HttpResponse:
    """Send a request to the engine on a port of the node, at most twice; ``timeout`` seconds each. Raises as `request_tcp`.

    If sshd forwards no connection to the port, a command on the node sends the request: the engine is not down.
    """
    manners = manners or QueryMarkerSupport()

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
    manners.takes_queries = manners.takes_queries or answer.is_success
    if answer.status in _QUERY_REJECTED_STATUSES and not manners.takes_queries:
        answer = await send_request(path)
    return answer


_HEALTH_TIMEOUT = 25.0  # SGLang answers after a generation of its own, and gives up after 20 s
_NAME_TIMEOUT = 5.0
_TOKEN_TIMEOUT = 120.0  # the first request may still compile
_MAX_BODY_BYTES = 16384  # bytes of an answer's body
_MAX_SHOWN_CHARS = 200  # characters of an answer's body
_API_KEY_STATUSES = (401, 403)  # an API key is required: the server is alive


@dataclass(frozen=True, slots=True)
class ProbeResult:
    """``good``: the probe succeeded. ``what``: in our words. ``unproven``: alive, but it gives us no further answer.

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
    manners: QueryMarkerSupport | None = None,
) -> ProbeResult:
    """Ask the health path once. Raises `ConnectionLost`; every fault of the engine is a `ProbeResult`."""
    port = service.port
    if service.ready.health is None or port is None:
        return ProbeResult(True, "health is not asked")
    path = service.ready.health
    try:
        response = await request_engine(
            link, port, "GET", path, headers=service.auth_headers, timeout=timeout, manners=manners
        )
    except ConnectionLost:
        raise
    except ConnectionRefusedError:
        return ProbeResult(False, f"port {port} refuses connections")
    except TimeoutError:
        return ProbeResult(False, f"GET {path} did not answer within {timeout:.0f} s")
    except (ConnectionError, http_client.InvalidHttpResponse) as broken:
        return ProbeResult(False, f"GET {path}:", said=sanitize_line(str(broken)) or "connection closed")
    if is_alive_status(response.status):
        return ProbeResult(True, f"GET {path} answered {response.status}")
    return ProbeResult(False, f"GET {path} answered {response.status}", said=format_body_line(response.body))


async def request_status(link: NodeConnection, port: int, path: str, timeout: float) -> int | None:
    """Return the HTTP status for a path on which the engine generates nothing; None without an answer.

    Raises `ConnectionLost`.
    """
    try:
        return (
            await request_engine(
                link, port, "GET", path, timeout=timeout, manners=QueryMarkerSupport(takes_queries=True)
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
    link: NodeConnection, port: int, manners: QueryMarkerSupport | None = None, headers: http_client.Headers = ()
) -> str | None:
    """Return the first model name that an engine serves, None if it does not say."""
    try:
        answer = await request_engine(
            link, port, "GET", "/v1/models", headers=headers, timeout=_NAME_TIMEOUT, manners=manners
        )
        name = load_json(answer.body)["data"][0]["id"] if answer.is_success else None
    except (OSError, http_client.InvalidHttpResponse, ValueError, LookupError, TypeError, RecursionError, DockerError):
        return None
    return name if isinstance(name, str) else None


async def resolve_served_model(
    link: NodeConnection, service: ReadinessTarget, manners: QueryMarkerSupport | None = None
) -> ReadinessTarget:
    """Return the target with the served model name, asking the engine if it is not known. Raises `ConnectionLost`."""
    if service.served_model is not None or service.port is None or service.ready.probe == "none":
        return service
    return replace(service, served_model=await read_served_model(link, service.port, manners, service.auth_headers))


async def check_key_required(
    link: NodeConnection, service: ReadinessTarget, manners: QueryMarkerSupport | None = None
) -> ProbeResult:
    """Check that a request without the key is refused. It is no whole request: without a key nothing is generated, too."""
    port, path = service.port, "/v1/chat/completions"
    if port is None:
        return ProbeResult(False, "the profile gives no port to ask")
    headers = [("Content-Type", "application/json")]
    try:
        response = await request_engine(
            link,
            port,
            "POST",
            path,
            body=b'{"max_tokens": 1}',
            headers=headers,
            timeout=_HEALTH_TIMEOUT,
            manners=manners,
        )
    except ConnectionLost:
        raise
    except (OSError, http_client.InvalidHttpResponse) as broken:
        return ProbeResult(False, f"POST {path} without its key:", said=sanitize_line(str(broken)) or "no answer")
    if response.status in _API_KEY_STATUSES:
        return ProbeResult(True, f"a request without its key is refused ({response.status})")
    return ProbeResult(False, f"it does not refuse a request without its key (POST {path} answered {response.status})")


async def request_token(
    link: NodeConnection, service: ReadinessTarget, manners: QueryMarkerSupport | None = None
) -> ProbeResult:
    """Request one token by the rule's API; fall back to a chat request if there is no /v1/completions."""
    manners = manners or QueryMarkerSupport()
    if service.ready.probe == "none":
        return ProbeResult(True, "no token is asked of this engine")
    if service.ready.probe == "completions":
        answer, status = await _request_completion(
            link, service, manners, "/v1/completions", {"prompt": service.ready.prompt}
        )
        if status != 404:
            return answer
    messages = [{"role": "user", "content": service.ready.prompt}]
    answer, _ = await _request_completion(link, service, manners, "/v1/chat/completions", {"messages": messages})
    return answer


async def _request_completion(
    link: NodeConnection, service: ReadinessTarget, manners: QueryMarkerSupport, path: str, body: dict[str, object]
) -> tuple[ProbeResult, int | None]:
    port = service.port
    if port is None:
        return ProbeResult(False, "the profile gives no port to ask"), None
    question = {"model": service.served_model or "default", **body, "max_tokens": 1, "temperature": 0, "stream": False}
    headers = [("Content-Type", "application/json"), *service.auth_headers]
    try:
        response = await request_engine(
            link, port, "POST", path, body=json.dumps(question).encode(), headers=headers, timeout=_TOKEN_TIMEOUT,
            manners=manners,
        )  # fmt: skip
    except ConnectionLost:
        raise
    except ConnectionRefusedError:
        return ProbeResult(False, f"port {port} refuses connections"), None
    except TimeoutError:
        return ProbeResult(False, f"POST {path} gave no token within {_TOKEN_TIMEOUT:.0f} s"), None
    except (ConnectionError, http_client.InvalidHttpResponse) as broken:
        return ProbeResult(False, f"POST {path}:", said=sanitize_line(str(broken)) or "connection closed"), None
    if response.status in _API_KEY_STATUSES:
        return ProbeResult(True, f"POST {path} needs an API key ({response.status})", unproven=True), response.status
    if response.status != 200:
        return ProbeResult(
            False, f"POST {path} answered {response.status}", said=format_body_line(response.body)
        ), response.status
    if not contains_token(response.body):
        return ProbeResult(
            False, f"POST {path} answered without a token:", said=format_body_line(response.body)
        ), response.status
    return ProbeResult(True, f"POST {path} gave a token"), response.status


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
    except (ValueError, AttributeError, TypeError, RecursionError):
        return False
    return False


def format_body_line(body: bytes) -> str:
    """Return the body as one printable line. It is cut only after masking: masking does not find half a secret."""
    return sanitize_line(body[:_MAX_BODY_BYTES].decode("utf-8", "replace").replace("\n", " ")).strip()
