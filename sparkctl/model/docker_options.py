"""The further ``docker run`` flags that a profile may set under ``container: options:``.

A closed table: what is not here cannot be asked of Docker's API by `wire.docker`, and is a fault in the profile
instead of a surprise on the node.
"""

from __future__ import annotations

from enum import StrEnum


class OptionKind(StrEnum):
    """How a flag takes its value."""

    FLAG = "flag"  # bare: true sets it
    TEXT = "text"  # one value
    LIST = "list"  # may be repeated


DOCKER_OPTIONS: dict[str, OptionKind] = {
    "add-host": OptionKind.LIST,
    "cap-add": OptionKind.LIST,
    "cap-drop": OptionKind.LIST,
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
    "privileged": OptionKind.FLAG,
    "publish": OptionKind.LIST,
    "read-only": OptionKind.FLAG,
    "security-opt": OptionKind.LIST,
    "tmpfs": OptionKind.LIST,
    "user": OptionKind.TEXT,
    "workdir": OptionKind.TEXT,
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
