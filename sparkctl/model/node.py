"""A Spark as the operator configured it, and what we know of it now."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import NewType

NodeName = NewType("NodeName", str)

GB10_BANDWIDTH_GB_S = 273.0  # GB10: 256 bit LPDDR5x-8533
LOCAL_HOST = "local"


class NodeState(StrEnum):
    """Unknown is never zero and never "stopped"."""

    OK = "ok"
    STARVED = "starved"  # TCP opens, SSH does not speak: out of memory
    UNREACHABLE = "unreachable"
    UNTRUSTED = "untrusted"  # host key unknown or changed
    REFUSED = "login refused"
    UNKNOWN = "unknown"  # not looked yet


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """One entry of ``nodes:`` in the config. None: whatever ~/.ssh/config says."""

    name: NodeName
    host: str
    user: str | None = None
    port: int | None = None
    identity: str | None = None
    jump: str | None = None
    memory_bandwidth_gb_s: float = GB10_BANDWIDTH_GB_S
    models: str | None = None  # directory of the models on the node, ~ is the node user's home
    fabric: str | None = None  # interface of the link to the other Spark
    known_hosts: str | None = None  # another known_hosts file than ~/.ssh/known_hosts

    @property
    def is_local(self) -> bool:
        """Tell whether sparkctl runs on this Spark itself."""
        return self.host == LOCAL_HOST
