"""Asking an engine something, so that its log tells our question from everybody else's."""

from __future__ import annotations

from sparkctl.core.own_questions import marked
from sparkctl.wire import http
from sparkctl.wire.link import Link

# what a server says that compares whole targets: it is asked once more, without the query that it does not take
_NOT_TAKEN = (400, 404, 405)


async def ask(
    link: Link,
    port: int,
    method: str,
    path: str,
    *,
    body: bytes | None = None,
    headers: http.Headers = (),
    timeout: float,
    once: bool = False,
) -> http.Response:
    """Ask the engine on that port of the node; ``timeout`` in seconds for each of at most two askings. ``once``: it is known
    that the query is no obstacle, so an answer is not doubted. Raises as `http.request`."""
    answer = await http.request(link, port, method, marked(path), body=body, headers=headers, timeout=timeout)
    if answer.status in _NOT_TAKEN and not once:
        answer = await http.request(link, port, method, path, body=body, headers=headers, timeout=timeout)
    return answer
