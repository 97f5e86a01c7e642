"""The further ``docker run`` flags that a profile may set under ``container: options:``.

A closed table: `transport.docker` cannot pass any other flag to Docker's API, so any other flag is an error in the
profile, not a surprise on the node.
"""

from __future__ import annotations

import re
from enum import StrEnum

BARE_FLAG_VALUE = "true"  # the value of a flag without one


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


def is_bare_flag(name: str) -> bool:
    """Tell whether a further flag takes no value."""
    return DOCKER_OPTIONS.get(name) is DockerOptionKind.FLAG


_SIZE_PATTERN = r"-1|[0-9]{1,15}(\.[0-9]{1,6})?\s*[kmgtKMGT]?([iI]?[bB])?"
_ADDRESS_PATTERN = r"\[[0-9a-fA-F:]+\]|[0-9.]+"

# Values that Docker's API takes as numbers or in parts: their pattern and an example.
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

# Flags that are not options because the profile has another field for them, or because sparkctl must decide.
FIELDS_INSTEAD_OF_OPTIONS: dict[str, str] = {
    "name": "use the field container.name",
    "gpus": "use the field container.gpus",
    "shm-size": "use the field container.shm_size",
    "ipc": "use the field container.ipc",
    "network": "use the field container.network",
    "net": "use the field container.network",
    "entrypoint": "use the field container.entrypoint",
    "ulimit": "use the field container.ulimits",
    "device": "use the field container.devices",
    "volume": "use the field mounts",
    "mount": "use the field mounts",
    "env": "it is the field env",
    "env-file": "use the field env_file",
    "label": "labels are how sparkctl knows its containers",
    "detach": "sparkctl always starts containers in the background",
    "rm": "sparkctl keeps a container that ended, so that its log can be read",
    "restart": "sparkctl starts engines; Docker must not restart them",
}
