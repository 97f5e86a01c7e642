"""Asking an engine something, so that its log tells our question from everybody else's."""

from __future__ import annotations

from dataclasses import dataclass

from sparkctl.errors import ForwardingForbidden
from sparkctl.logs.own_requests import mark_request_path
from sparkctl.transport import http_client
from sparkctl.transport.node_connection import NodeConnection

# what a server says that compares whole targets: it is asked once more, without the query that it does not take
_NOT_TAKEN = (400, 404, 405)


@dataclass(slots=True)
class QueryMarkerSupport:
    """What is known of how one server takes our questions, kept by whoever asks it more than once.

    A question without the query stands in the engine's own log as anybody's does. It is not asked any more of a server that
    ``takes_queries``: one that compares whole targets never answers one with success.
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
    """Ask the engine on that port of the node; ``timeout`` in seconds for each of at most two askings. Raises as `http.request`.

    Where sshd forwards no connection to the port, a command on the node asks: what serves is never called down for that.
    """
    manners = manners or QueryMarkerSupport()

    async def once(target: str) -> http_client.HttpResponse:
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

    answer = await once(mark_request_path(path))
    manners.takes_queries = manners.takes_queries or answer.is_success
    if answer.status in _NOT_TAKEN and not manners.takes_queries:
        answer = await once(path)
    return answer
