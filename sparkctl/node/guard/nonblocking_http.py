"""HTTP that never blocks: one request at a time on a connection that stays open; answers are read piece by piece.

Sent to the node with the guard: standard library only, Python 3.8 or newer.
"""

from __future__ import annotations

import errno
import os
import socket

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Union

    Address = Union[str, tuple[str, int]]  # noqa: UP007  # an alias is evaluated

MAX_HEAD_BYTES = 1 << 14
MAX_BODY_BYTES = 1 << 20
_RECEIVE_BYTES = 1 << 16
_PENDING_ERRNOS = (errno.EINPROGRESS, errno.EAGAIN)


class HttpConnection:
    """A connection to a unix socket's path or a (host, port). ``asked_at`` is set while an answer is pending."""

    def __init__(self, address: Address) -> None:
        self.address = address
        self.socket: socket.socket | None = None
        self.out = b""
        self.taken = b""
        self.asked_at: float | None = None

    @property
    def is_idle(self) -> bool:
        """Tell whether it is open and no answer is pending."""
        return self.socket is not None and self.asked_at is None

    def open(self) -> bool:
        """Connect again; return whether that succeeded or (TCP) is in progress."""
        self.close()
        is_unix = isinstance(self.address, str)
        try:
            connection = socket.socket(socket.AF_UNIX if is_unix else socket.AF_INET, socket.SOCK_STREAM)
        except OSError:  # no file descriptor left, or no memory for one
            return False
        connection.setblocking(False)
        code = self._connect_socket(connection)
        if code and (is_unix or code not in _PENDING_ERRNOS):
            connection.close()
            return False
        self.socket = connection
        return True

    def _connect_socket(self, connection: socket.socket) -> int:
        try:
            return connection.connect_ex(self.address)
        except OSError as error:  # a path that is too long, or an invalid address
            return error.errno or errno.EINVAL

    def close(self) -> None:
        """Close it and drop the pending answer."""
        if self.socket is not None:
            self.socket.close()
        self.socket, self.out, self.taken, self.asked_at = None, b"", b"", None

    def fileno(self) -> int:
        """Return its descriptor, for select; only while it is open."""
        assert self.socket is not None
        return self.socket.fileno()

    def send_request(self, method: str, path: str, now: float) -> bool:
        """Send a request; False if the connection is broken, and then it is closed."""
        if self.socket is None:
            return False
        length = "Content-Length: 0\r\n" if method == "POST" else ""
        self.out = f"{method} {path} HTTP/1.1\r\nHost: localhost\r\n{length}\r\n".encode("ascii", "replace")
        self.taken, self.asked_at = b"", now
        return self.flush()

    def flush(self) -> bool:
        """Send what can be sent now; False if it is broken."""
        try:
            while self.out and self.socket is not None:
                self.out = self.out[self.socket.send(self.out) :]
        except BlockingIOError:
            pass
        except OSError as error:
            if error.errno not in (*_PENDING_ERRNOS, errno.ENOTCONN):
                self.close()
                return False
        return self.socket is not None

    def receive_response(self) -> tuple[int | None, bytes] | None:
        """Read what has arrived. Return status and body if an answer is complete, (None, b"") if the connection broke."""
        if self.socket is None:
            return None
        try:
            said = self.socket.recv(_RECEIVE_BYTES)
        except BlockingIOError:
            return None
        except OSError:
            said = b""
        owed = self.asked_at is not None
        self.taken += said
        found = parse_response(self.taken, ended=not said) if owed else None
        if found is not None and found[0] is not None:
            keeps = bool(said) and found[2]
            self.taken, self.asked_at = b"", None
            if not keeps:
                self.close()
            return found[:2]
        if said and owed and found is None:
            return None
        self.close()  # it ended, or sent something unexpected, or something that is not HTTP
        return None, b""


def parse_response(text: bytes, ended: bool = False) -> tuple[int | None, bytes, bool] | None:
    """Return status, body and whether the connection stays open; None while it is incomplete; status None if it is not
    HTTP.
    """
    wrong, rest, status = (None, b"", False), text, 100
    while 100 <= status < 200:  # "continue" and the like precede the answer
        head, end, rest = rest.partition(b"\r\n\r\n")
        if not end:
            return wrong if ended or len(text) > MAX_HEAD_BYTES else None
        first, *lines = head.split(b"\r\n")
        words = first.split(None, 2)
        if len(words) < 2 or not words[0].startswith(b"HTTP/1.") or not words[1].isdigit():
            return wrong
        status = int(words[1])
    field = {name.strip().lower(): value.strip().lower() for name, _, value in (line.partition(b":") for line in lines)}
    stays = field.get(b"connection") != b"close" and words[0] != b"HTTP/1.0"
    if status in (204, 304):
        return status, b"", stays
    length = field.get(b"content-length")
    if field.get(b"transfer-encoding") == b"chunked":
        body = _decode_chunked(rest)
    elif length is not None:
        if not length.isdigit() or int(length) > MAX_BODY_BYTES:
            return wrong
        body = rest[: int(length)] if len(rest) >= int(length) else None
    else:  # until its end
        body, stays = (rest if ended else None), False
    if body is None:
        return wrong if ended or len(rest) > MAX_BODY_BYTES else None
    return status, body, stays


def _decode_chunked(rest: bytes) -> bytes | None:
    """Return the whole of a chunked body, None while it is incomplete."""
    body = b""
    while True:
        size_line, end, rest = rest.partition(b"\r\n")
        if not end:
            return None
        try:
            size = int(size_line.split(b";")[0], 16)
        except ValueError:
            return body  # not a chunk: what came before it is everything
        if size < 0:
            return body
        if size == 0:  # the last chunk; header fields and an empty line may follow
            return body if rest.startswith(b"\r\n") or b"\r\n\r\n" in rest else None
        if len(rest) < size + 2:
            return None
        body, rest = body + rest[:size], rest[size + 2 :]


def is_socket_open(path: str) -> bool:
    """Tell whether a process accepts connections on a unix socket."""
    one = HttpConnection(path)
    there = os.path.exists(path) and one.open()  # noqa: PTH110  # pathlib costs the node a megabyte
    one.close()
    return there
