"""The further ``docker run`` flags that a profile may set under ``container: options:``.

A closed table: what is not here cannot be asked of Docker's API by `wire.docker`, and is a fault in the profile
instead of a surprise on the node.
"""

from __future__ import annotations

import re
from enum import StrEnum

BARE = "true"  # the value that stands for a flag without one


class OptionKind(StrEnum):
    """How a flag takes its value."""

    FLAG = "flag"  # bare: true sets it
    TEXT = "text"  # one value
    LIST = "list"  # may be repeated


DOCKER_OPTIONS: dict[str, OptionKind] = {
    "add-host": OptionKind.LIST,
    "cap-add": OptionKind.LIST,
    "cap-drop": OptionKind.LIST,
    "cpus": OptionKind.TEXT,
    "cpuset-cpus": OptionKind.TEXT,
    "group-add": OptionKind.LIST,
    "hostname": OptionKind.TEXT,
    "init": OptionKind.FLAG,
    "log-driver": OptionKind.TEXT,
    "log-opt": OptionKind.LIST,
    "memory": OptionKind.TEXT,
    "memory-swap": OptionKind.TEXT,
    "oom-score-adj": OptionKind.TEXT,
    "pid": OptionKind.TEXT,
    "pids-limit": OptionKind.TEXT,
    "privileged": OptionKind.FLAG,
    "publish": OptionKind.LIST,
    "read-only": OptionKind.FLAG,
    "runtime": OptionKind.TEXT,
    "security-opt": OptionKind.LIST,
    "stop-signal": OptionKind.TEXT,
    "tmpfs": OptionKind.LIST,
    "user": OptionKind.TEXT,
    "workdir": OptionKind.TEXT,
}

_SIZE = r"-1|[0-9]{1,15}(\.[0-9]{1,6})?\s*[kmgtKMGT]?([iI]?[bB])?"
_ADDRESS = r"\[[0-9a-fA-F:]+\]|[0-9.]+"

# Values that Docker's API takes as numbers or in parts: what they look like, and an example.
VALUES: dict[str, tuple[re.Pattern[str], str]] = {
    "add-host": (re.compile(r"[^\s:=]+[:=]\S+"), "spark2:10.0.0.2"),
    "cpus": (re.compile(r"[0-9]{1,4}(\.[0-9]{1,9})?"), "4 or 1.5"),
    "log-opt": (re.compile(r"[^\s=]+=.*", re.DOTALL), "max-size=50m"),
    "memory": (re.compile(_SIZE), "96g"),
    "memory-swap": (re.compile(_SIZE), "96g, or -1"),
    "oom-score-adj": (re.compile(r"-?[0-9]{1,4}"), "500"),
    "pids-limit": (re.compile(r"-1|[0-9]{1,9}"), "4096"),
    "publish": (
        re.compile(rf"((({_ADDRESS}):)?[0-9]{{1,5}}:|({_ADDRESS})::)?[0-9]{{1,5}}(/(tcp|udp|sctp))?"),
        "8000:80 or 127.0.0.1:8000:80",
    ),
    "tmpfs": (re.compile(r"/[^:]*(:.+)?"), "/scratch:size=1g"),
}

# Flags that are not options because the profile has a better place for them, or sparkctl must decide.
ELSEWHERE: dict[str, str] = {
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
