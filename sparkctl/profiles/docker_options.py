"""The further ``docker run`` flags that a profile may set under ``container: options:``.

A closed table: what is not here cannot be asked of Docker's API by `wire.docker`, and is a fault in the profile
instead of a surprise on the node.
"""

from __future__ import annotations

import re
from enum import StrEnum

BARE_FLAG_VALUE = "true"  # the value that stands for a flag without one


class DockerOptionKind(StrEnum):
    """How a flag takes its value."""

    FLAG = "flag"  # bare: true sets it
    TEXT = "text"  # one value
    LIST = "list"  # may be repeated


DOCKER_OPTIONS: dict[str, DockerOptionKind] = {
    "add-host": DockerOptionKind.LIST,
    "cap-add": DockerOptionKind.LIST,
    "cap-drop": DockerOptionKind.LIST,
    "cpus": DockerOptionKind.TEXT,
    "cpuset-cpus": DockerOptionKind.TEXT,
    "group-add": DockerOptionKind.LIST,
    "hostname": DockerOptionKind.TEXT,
    "init": DockerOptionKind.FLAG,
    "log-driver": DockerOptionKind.TEXT,
    "log-opt": DockerOptionKind.LIST,
    "memory": DockerOptionKind.TEXT,
    "memory-swap": DockerOptionKind.TEXT,
    "oom-score-adj": DockerOptionKind.TEXT,
    "pid": DockerOptionKind.TEXT,
    "pids-limit": DockerOptionKind.TEXT,
    "privileged": DockerOptionKind.FLAG,
    "publish": DockerOptionKind.LIST,
    "read-only": DockerOptionKind.FLAG,
    "runtime": DockerOptionKind.TEXT,
    "security-opt": DockerOptionKind.LIST,
    "stop-signal": DockerOptionKind.TEXT,
    "tmpfs": DockerOptionKind.LIST,
    "user": DockerOptionKind.TEXT,
    "workdir": DockerOptionKind.TEXT,
}

_SIZE_PATTERN = r"-1|[0-9]{1,15}(\.[0-9]{1,6})?\s*[kmgtKMGT]?([iI]?[bB])?"
_ADDRESS_PATTERN = r"\[[0-9a-fA-F:]+\]|[0-9.]+"

# Values that Docker's API takes as numbers or in parts: what they look like, and an example.
VALUE_PATTERNS: dict[str, tuple[re.Pattern[str], str]] = {
    "add-host": (re.compile(r"[^\s:=]+[:=]\S+"), "spark2:10.0.0.2"),
    "cpus": (re.compile(r"[0-9]{1,4}(\.[0-9]{1,9})?"), "4 or 1.5"),
    "log-opt": (re.compile(r"[^\s=]+=.*", re.DOTALL), "max-size=50m"),
    "memory": (re.compile(_SIZE_PATTERN), "96g"),
    "memory-swap": (re.compile(_SIZE_PATTERN), "96g, or -1"),
    "oom-score-adj": (re.compile(r"-?[0-9]{1,4}"), "500"),
    "pids-limit": (re.compile(r"-1|[0-9]{1,9}"), "4096"),
    "publish": (
        re.compile(rf"((({_ADDRESS_PATTERN}):)?[0-9]{{1,5}}:|({_ADDRESS_PATTERN})::)?[0-9]{{1,5}}(/(tcp|udp|sctp))?"),
        "8000:80 or 127.0.0.1:8000:80",
    ),
    "tmpfs": (re.compile(r"/[^:]*(:.+)?"), "/scratch:size=1g"),
}

# Flags that are not options because the profile has a better place for them, or sparkctl must decide.
FIELDS_INSTEAD_OF_OPTIONS: dict[str, str] = {
    "name": "it is the field container.name",
    "gpus": "it is the field container.gpus",
    "shm-size": "it is the field container.shm_size",
    "ipc": "it is the field container.ipc",
    "network": "it is the field container.network",
    "net": "it is the field container.network",
    "entrypoint": "it is the field container.entrypoint",
    "ulimit": "it is the field container.ulimits",
    "device": "it is the field container.devices",
    "volume": "it is the field mounts",
    "mount": "it is the field mounts",
    "env": "it is the field env",
    "env-file": "it is the field env_file",
    "label": "labels are how sparkctl knows its containers",
    "detach": "sparkctl always starts containers in the background",
    "rm": "a container is never removed by itself: a crash keeps its log",
    "restart": "sparkctl starts engines, Docker does not restart them behind its back",
}
