"""What netem would do, where the kernel has none: hold each packet of an NFQUEUE for a while, and drop some.

``slow_link.py QUEUE DELAY LOSS`` (seconds, 0..1), inside a network namespace with an iptables rule that fills the queue.
Without it the queue's packets pass (``--queue-bypass``), so ending it mends the link.
"""

from __future__ import annotations

import heapq
import random
import select
import socket
import struct
import sys
import time
from collections.abc import Iterator

NETLINK_NETFILTER, SOL_NETLINK, NETLINK_NO_ENOBUFS = 12, 270, 5
QUEUE_SUBSYSTEM = 3 << 8
PACKET, VERDICT, CONFIG = 0, 1, 2
DROP, ACCEPT = 0, 1
ID = 1  # of a packet: its attribute


class Queue:
    """One queue of the kernel's."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.socket = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, NETLINK_NETFILTER)
        self.socket.bind((0, 0))
        self.socket.setsockopt(SOL_NETLINK, NETLINK_NO_ENOBUFS, 1)
        self._send(CONFIG, 1, struct.pack("!BBH", 1, 0, 0))  # bind
        self._send(CONFIG, 2, struct.pack("!IB", 0, 1))  # no payload: the id is enough

    def _send(self, kind: int, attribute: int, value: bytes) -> None:
        body = struct.pack("!BBH", 0, 0, self.number) + struct.pack("=HH", 4 + len(value), attribute) + value
        body += b"\0" * (-len(value) % 4)
        self.socket.send(struct.pack("=IHHII", 16 + len(body), QUEUE_SUBSYSTEM | kind, 1, 0, 0) + body)

    def decide(self, packet: int, verdict: int) -> None:
        """Let a packet go, or drop it."""
        self._send(VERDICT, 2, struct.pack("!II", verdict, packet))

    def packets(self) -> Iterator[int]:
        """Yield the ids of what has arrived."""
        data, at = self.socket.recv(1 << 20), 0
        while at + 16 <= len(data):
            length, kind = struct.unpack_from("=IH", data, at)
            inside = at + 20
            while kind == QUEUE_SUBSYSTEM | PACKET and inside < at + length:
                size, attribute = struct.unpack_from("=HH", data, inside)
                if attribute & 0x3FFF == ID:
                    yield struct.unpack_from("!I", data, inside + 4)[0]
                    break
                inside += (size + 3) & ~3
            at += (length + 3) & ~3


def main() -> None:
    """Hold and drop until ended."""
    queue, delay, loss = Queue(int(sys.argv[1])), float(sys.argv[2]), float(sys.argv[3])
    waiting: list[tuple[float, int]] = []
    print("ready", flush=True)
    while True:
        now = time.monotonic()
        while waiting and waiting[0][0] <= now:
            queue.decide(heapq.heappop(waiting)[1], ACCEPT)
        pause = max(0.0, waiting[0][0] - now) if waiting else None
        if select.select([queue.socket], [], [], pause)[0]:
            for packet in queue.packets():
                if random.random() < loss:
                    queue.decide(packet, DROP)
                else:
                    heapq.heappush(waiting, (time.monotonic() + delay, packet))


main()
