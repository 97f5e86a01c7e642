"""Small readings of what the command said and what the nodes hold, shared by the lab's tests."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

from tests.lab.bed.node import LabNode
from tests.lab.support.sparkctl_process import Ran, Sparkctl

CI = os.environ.get("CI", "").lower() not in ("", "0", "false")
ALL = bool(os.environ.get("SPARKCTL_LAB_ALL"))  # what takes minutes: by hand and nightly
LABEL = "dev.sparkctl.instance"
LOADING = r'"phase": ?"loading"'
AWAY = r'"state": ?"unreachable"'
RECONNECTING = r'"attempt": ?[1-9]'


def parse_numbers(text: str) -> list[int]:
    """Return the numbers of the stand-in's numbered lines, in order."""
    return [int(found) for found in re.findall(r"numbered (\d{7})", text)]


def list_containers(node: LabNode) -> list[str]:
    """Return the names of all containers on the node."""
    return _read_names(node.list_containers())


def list_own_containers(node: LabNode) -> list[str]:
    """Return the names of the containers that sparkctl made."""
    return _read_names(node.list_containers(label=LABEL))


def list_running(node: LabNode) -> list[str]:
    """Return the names of the containers that run."""
    return _read_names(node.list_containers(stopped=False))


def _read_names(containers: list[dict[str, Any]]) -> list[str]:
    return sorted(one["Names"][0].removeprefix("/") for one in containers)


def count_cache_drops(node: LabNode) -> int:
    """Return how often sudo has let the page cache be dropped on this node: the kernel's count is of all labs together."""
    log = node.shared / "sudo.log"
    lines = log.read_text().splitlines() if log.exists() else []
    refused = ("command not allowed", "password is required", "incorrect password")
    return sum(
        line.endswith("COMMAND=/usr/bin/tee /proc/sys/vm/drop_caches") and not any(word in line for word in refused)
        for line in lines
    )


def count_kernel_drops() -> int:
    """Return the kernel's count of page cache drops: of this machine, so of every lab on it."""
    lines = Path("/proc/vmstat").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("drop_pagecache "))


def get_verdict(ran: Ran) -> dict[str, Any]:
    """Return the result's verdict, which has to be there with evidence and a remedy."""
    found: dict[str, Any] | None = ran.result["verdict"]
    assert found is not None, ran
    assert found["summary"], ran
    assert found["evidence"], ran
    assert found["remedy"], ran
    return found


def read_saved_log(sparkctl: Sparkctl) -> str:
    """Return the one log that is in the state directory."""
    logs: list[Path] = [path for path in sparkctl.saved() if path.suffix == ".log"]
    assert len(logs) == 1, logs
    return logs[0].read_text()


def assert_ended(ran: Ran, code: int, outcome: str) -> None:
    """Exit code, result line and outcome agree."""
    assert ran.code == code, ran
    assert (ran.result["exit_code"], ran.result["outcome"]) == (code, outcome), ran
