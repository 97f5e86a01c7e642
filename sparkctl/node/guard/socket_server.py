"""The guard's socket: a private directory with the lock and the socket, and the clients.

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
    from typing import Any

    Json = dict[str, Any]

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
        self.taken = b""
        self.unsent = b""
        self.is_gone = False

    def fileno(self) -> int:
        """Return its descriptor, for select."""
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
            said = self.socket.recv(MAX_LINE_BYTES)
        except BlockingIOError:
            return
        except OSError:
            said = b""
        self.taken += said
        if not said or (len(self.taken) > MAX_LINE_BYTES and b"\n" not in self.taken[:MAX_LINE_BYTES]):
            if said:
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
        """Send a message to all clients."""
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
