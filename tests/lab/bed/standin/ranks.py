"""What several ranks of one model do together: they meet at the head's address, tell each other that they are there, and
end when one of them goes. One TCP connection per worker stands for the engines' own libraries, with their own words.

  LAB_JOIN_S     seconds a rank waits for the others (60)       LAB_SILENCE_S  seconds without a word from a peer (4)
  LAB_JOIN_AFTER_S   seconds before it looks for them (0)
  LAB_RANKn_X    what LAB_X is for rank n alone
"""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Callable

from standin import say, setting

BEAT = 0.2


class Peer:
    """A rank at the other end of a connection."""

    def __init__(self, connection: socket.socket, address: tuple[str, int]) -> None:
        self.connection, self.address, self.has_loaded = connection, address, threading.Event()


class Ranks:
    """One rank's way to the others. ``tell`` writes a line as this engine would, ``end`` prints its last ones and ends it."""

    def __init__(self, index: int, count: int, tell: Callable[[str], None], end: Callable[[], None]) -> None:
        self.index, self.count = index, count
        self._tell, self._end = tell, end
        self._peers: list[Peer] = []
        self._ending = threading.Lock()

    @property
    def is_head(self) -> bool:
        return self.index == 0

    def meet(self, host: str, port: int) -> None:
        """Return when all ranks are there; end as torch's store does when they are not in time."""
        patience = setting("JOIN_S", 60)
        time.sleep(setting("JOIN_AFTER_S", 0))
        if self.is_head:
            self._await_workers(host, port, patience)
        else:
            self._find_head(host, port, patience)
        for peer in self._peers:
            peer.connection.settimeout(setting("SILENCE_S", 4))
            threading.Thread(target=self._listen, args=(peer,), daemon=True).start()
            threading.Thread(target=self._beat, args=(peer,), daemon=True).start()

    def all_loaded(self) -> None:
        """Say that the weights are here, and return when they are everywhere."""
        for peer in self._peers:
            self._send(peer, b"L")
        for peer in self._peers:
            peer.has_loaded.wait()

    def _await_workers(self, host: str, port: int, patience: float) -> None:
        end = time.monotonic() + patience
        server = socket.socket()
        server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            server.bind((host, port))  # the link's own address: whoever comes over another one finds nobody
        except OSError as error:
            self._tell("RuntimeError: The server socket has failed to listen on any local network address. "
                       f"port: {port}, useIpv6: false, code: -{error.errno}, name: {os.strerror(error.errno or 0)}")  # fmt: skip
            self._end()
        server.listen()
        while len(self._peers) < self.count - 1:
            server.settimeout(max(0.01, end - time.monotonic()))
            try:
                connection, address = server.accept()
            except TimeoutError:
                self._tell(
                    f"torch.distributed.DistStoreError: Timed out after {patience:.0f} seconds waiting for clients. "
                    f"{1 + len(self._peers)}/{self.count} clients joined."
                )
                self._end()
            self._peers.append(Peer(connection, address))
        for peer in self._peers:
            peer.connection.sendall(b"G")

    def _find_head(self, host: str, port: int, patience: float) -> None:
        end = time.monotonic() + patience
        while True:
            try:
                connection = socket.create_connection((host, port), 2.0)
                connection.settimeout(patience)
                if connection.recv(1) == b"G":
                    break
            except OSError:
                pass
            if time.monotonic() > end:
                self._tell(
                    f"torch.distributed.DistNetworkError: The client socket has timed out after {1000 * patience:.0f}ms "
                    f"while trying to connect to ({host}, {port})."
                )
                self._end()
            time.sleep(BEAT)
        self._peers.append(Peer(connection, (host, port)))

    def _listen(self, peer: Peer) -> None:
        while True:
            try:
                heard = peer.connection.recv(64)
            except TimeoutError:
                self._lost(
                    f"[rank{self.index}]:[E1122 ProcessGroupNCCL.cpp:685] [Rank {self.index}] Watchdog caught collective "
                    "operation timeout: WorkNCCL(SeqNum=1203, OpType=ALLREDUCE, NumelIn=20480, NumelOut=20480, "
                    "Timeout(ms)=600000) ran for 600014 milliseconds before timing out."
                )
                return
            except OSError:
                heard = b""
            if not heard:
                where = f"[{peer.address[0]}]:{peer.address[1]}"
                self._lost(
                    "RuntimeError: [/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:547] Connection closed by peer "
                    + where
                )
                return
            if b"L" in heard:
                peer.has_loaded.set()

    def _beat(self, peer: Peer) -> None:
        while self._send(peer, b"."):
            time.sleep(BEAT)

    @staticmethod
    def _send(peer: Peer, what: bytes) -> bool:
        try:
            peer.connection.sendall(what)
        except OSError:
            return False  # the listening thread tells it
        return True

    def _lost(self, line: str) -> None:
        with self._ending:  # held to the end: one cause is told
            self._tell(line)
            self._end()


def ranks_of(
    given: dict[str, str], flag: str, port: int, tell: Callable[[str], None], end: Callable[[], None]
) -> tuple[Ranks, str, int] | None:
    """Return this rank and where the others are met, by the command line; None where the model is on one Spark alone."""
    count, index = int(given.get("nnodes", 1)), int(given.get("node-rank", 0))
    for name, value in list(os.environ.items()):
        if name.startswith(own := f"LAB_RANK{index}_"):
            os.environ[f"LAB_{name.removeprefix(own)}"] = value
    if count == 1:
        return None
    host, _, own_port = given[flag].rpartition(":") if ":" in given[flag] else (given[flag], "", str(port))
    return Ranks(index, count, tell, end), host, int(own_port)


def serve_dummy_health(host: str, port: int) -> None:
    """A worker of SGLang answers 200 at its port whatever happens: nobody may take that for readiness."""

    def answer() -> None:
        while True:
            connection, _ = server.accept()
            connection.recv(4096)
            connection.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\nconnection: close\r\n\r\n")
            connection.close()

    server = socket.socket()
    server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        server.bind((host, port))
    except OSError as error:
        say(f"OSError: [Errno {error.errno}] Address already in use")
        return
    server.listen()
    threading.Thread(target=answer, daemon=True).start()
