"""A node: a Spark as the operator configured it, the state of its connection, and what every Spark has."""

from __future__ import annotations

from enum import StrEnum
from typing import NewType

from sparkctl.model.lazy_dataclass import dataclass

NodeName = NewType("NodeName", str)

GB10_BANDWIDTH_GB_S = 273.0  # GB10: 256 bit LPDDR5x-8533
# All memory, MemTotal of the kernel, by the firmware; CUDA and PyTorch report the same as a GPU's total capacity.
TOTAL_BYTES = 127_600_592 << 10  # of most
LEAST_TOTAL_BYTES = 128_501_256_192  # of some
IDLE_AVAILABLE_BYTES = 117 << 30  # on an idle Spark after the page cache was dropped: 112 to 118 GiB were seen
LOCAL_HOST = "local"


class NodeState(StrEnum):
    """The state of a node's connection. Unknown is never zero and never "stopped"."""

    OK = "ok"
    STARVED = "starved"  # the TCP port opens but SSH does not answer: out of memory
    UNREACHABLE = "unreachable"
    UNTRUSTED = "untrusted"  # host key unknown or changed
    REFUSED = "login refused"
    UNKNOWN = "unknown"  # not checked yet


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeStateChanged:
    """An event: the state of a node's connection. ``attempt`` and ``next_try`` (seconds from now) are set while reconnecting."""

    ts: float
    node: NodeName
    state: NodeState
    detail: str | None = None
    attempt: int | None = None
    next_try: float | None = None
    hint: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """One entry of ``nodes:`` in the config. None: as ~/.ssh/config says."""

    name: NodeName
    host: str
    user: str | None = None
    port: int | None = None
    identity: str | None = None
    jump: str | None = None
    memory_bandwidth_gb_s: float = GB10_BANDWIDTH_GB_S
    models: str | None = None  # directory of the models on the node, ~ is the node user's home
    fabric: str | None = None  # interface of the cable to the other Spark
    known_hosts: str | None = None  # a known_hosts file other than ~/.ssh/known_hosts

    @property
    def is_local(self) -> bool:
        """Tell whether sparkctl runs on this Spark itself."""
        return self.host == LOCAL_HOST


def format_endpoint_url(node: Node, port: int | None) -> str | None:
    """Return ``http://HOST:PORT`` as the operator's machine reaches it, None without a port."""
    if port is None:
        return None
    host = "127.0.0.1" if node.is_local else node.host.rpartition("@")[2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
