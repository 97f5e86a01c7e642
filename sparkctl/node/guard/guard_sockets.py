"""The guard's sockets: HTTP to Docker and to engines that never blocks its loop, and the clients that it serves.

Sent to the node with the guard: standard library only, Python 3.8 or newer.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import socket
import stat

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Union

    Json = dict[str, Any]
    Address = Union[str, tuple[str, int]]  # noqa: UP007  # an alias is evaluated

# -- HTTP

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
            chunk = self.socket.recv(_RECEIVE_BYTES)
        except BlockingIOError:
            return None
        except OSError:
            chunk = b""
        is_awaited = self.asked_at is not None
        self.taken += chunk
        found = parse_response(self.taken, ended=not chunk) if is_awaited else None
        if found is not None and found[0] is not None:
            keeps = bool(chunk) and found[2]
            self.taken, self.asked_at = b"", None
            if not keeps:
                self.close()
            return found[:2]
        if chunk and is_awaited and found is None:
            return None
        self.close()  # it ended, or sent something unexpected, or something that is not HTTP
        return None, b""


def parse_response(text: bytes, ended: bool) -> tuple[int | None, bytes, bool] | None:
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


# -- clients, and the directory with the lock and the socket

GUARD_PROTOCOL = 1
MAX_CLIENTS = 16
MAX_LINE_BYTES, MAX_UNSENT_BYTES = 1 << 16, 1 << 18


class GuardStartError(Exception):
    """The guard cannot be started here; the message says why."""


class GuardConnection:
    """A client on the socket."""

    def __init__(self, connection: socket.socket) -> None:
        connection.setblocking(False)
        self.socket = connection
        self.heard_at = 0.0  # when it sent its last command
        self.taken = b""
        self.unsent = b""
        self.is_gone = False

    def fileno(self) -> int:
        return self.socket.fileno()

    def send_message(self, message: Json) -> None:
        """Send a line; a client that does not read is dropped."""
        line = json.dumps(dict({"guard": GUARD_PROTOCOL}, **message), separators=(",", ":")).encode("ascii", "replace")
        self.unsent += line + b"\n"
        self.flush()
        if len(self.unsent) > MAX_UNSENT_BYTES:
            self.is_gone = True

    def flush(self) -> None:
        """Send what can be sent now."""
        try:
            while self.unsent:
                self.unsent = self.unsent[self.socket.send(self.unsent) :]
        except BlockingIOError:
            pass
        except OSError:
            self.is_gone = True

    def receive(self) -> None:
        """Read what has arrived; a line that is too long ends the connection."""
        try:
            chunk = self.socket.recv(MAX_LINE_BYTES)
        except BlockingIOError:
            return
        except OSError:
            chunk = b""
        self.taken += chunk
        if not chunk or (len(self.taken) > MAX_LINE_BYTES and b"\n" not in self.taken[:MAX_LINE_BYTES]):
            if chunk:
                self.send_message({"kind": "refused", "what": f"a line of more than {MAX_LINE_BYTES} bytes"})
            self.is_gone = True

    def next_line(self) -> bytes | None:
        """Return the next complete line, None if there is none."""
        if b"\n" not in self.taken:
            return None
        line, _, self.taken = self.taken.partition(b"\n")
        return line


class GuardSocketServer:
    """All clients, and the socket that they connect to."""

    def __init__(self, path: str) -> None:
        self.listener = open_listener(path)
        self.there: list[GuardConnection] = []

    def __len__(self) -> int:
        return len(self.there)

    def accept_client(self) -> None:
        """Accept a connection, unless there are too many."""
        try:
            connection, _ = self.listener.accept()
        except OSError:
            return
        client = GuardConnection(connection)
        if len(self.there) >= MAX_CLIENTS:
            client.send_message({"kind": "refused", "what": f"more than {MAX_CLIENTS} connections"})
            connection.close()
            return
        self.there.append(client)

    def remove_gone(self) -> list[GuardConnection]:
        """Close the connections of clients that have gone, and return them."""
        gone = [client for client in self.there if client.is_gone]
        for client in gone:
            client.socket.close()
            self.there.remove(client)
        return gone

    def broadcast(self, message: Json) -> None:
        for client in self.there:
            client.send_message(message)


def create_private_directory(path: str) -> str:
    """Create the directory that only this user may enter, or use the existing one. Raises `GuardStartError` if others
    may enter it.
    """
    with contextlib.suppress(FileExistsError):
        os.mkdir(path, 0o700)  # noqa: PTH102
    found = os.lstat(path)
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & 0o077:
        raise GuardStartError(f"{path} is not a directory of this user alone: see who made it, and remove it")
    return path


def acquire_lock(place: str) -> bool:
    """Take the lock that only one guard holds; False if another one holds it.

    A record lock: a child that hangs in the driver does not inherit it, and so does not keep it.
    """
    fd = os.open(place + "/guard.lock", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(fd)
        if error.errno in (errno.EACCES, errno.EAGAIN):
            return False
        raise
    os.ftruncate(fd, 0)
    os.pwrite(fd, b"%d\n" % os.getpid(), 0)
    return True


def open_listener(path: str) -> socket.socket:
    """Return a listening socket at this path."""
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)  # noqa: PTH108
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(path)
    os.chmod(path, 0o600)  # noqa: PTH101
    listener.listen(MAX_CLIENTS)
    listener.setblocking(False)
    return listener
