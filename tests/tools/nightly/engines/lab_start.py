"""The whole way with a real engine: `sparkctl up` over SSH to a node of the lab, whose Docker runs vLLM in a container.

No image is pulled: the lab's own small one is the root, and what vLLM needs of this machine (its virtual environment, the
Python below it, /usr) is mounted into it, read-only.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from sparkctl.model.launch_plan import REQUEST_MARK
from tests.lab.bed.lab import why_not
from tests.lab.bed.names import IMAGE
from tests.lab.bed.node import LabNode
from tests.lab.support.sparkctl_process import Ran, Sparkctl
from tests.tools.nightly.engines import random_model
from tests.tools.nightly.engines.scenes import SPECULATION, Bench
from tests.tools.nightly.lab_job import WITHIN, on_lab

NODE = "spark1"
_PORT = 8201
_HIDDEN = (Path("/root"),)  # an empty one of its own in a node, below which the host's shows again


def run_through_up(bench: Bench) -> str | None:
    """Run it; return why it cannot be run here, None where it was."""
    return run_on_node(bench, _play_on_node)


def run_on_node(bench: Bench, play: Callable[[Bench, LabNode, Sparkctl], None]) -> str | None:
    """Play on a node of the lab that sees the installed engines; return why it cannot be, None where it was."""
    if reason := why_not():
        return reason
    needed = {bench.install.root, Path(sys.base_prefix).resolve()}
    if any(path.is_relative_to(place) for path in needed for place in ("/home", "/tmp", "/run", "/mnt")):
        return "a node of the lab has its own /home and /tmp: name another --cache"
    with on_lab() as (bed, command):
        node = bed.nodes[NODE]
        for place in _HIDDEN:
            if any(path.is_relative_to(place) for path in needed):
                node.sh("umount", "-l", str(place))
        play(bench, node, command)
    return None


def _play_on_node(bench: Bench, node: LabNode, command: Sparkctl) -> None:
    began = time.monotonic()
    name = _write_profile(bench, command, "vllm-cpu", SPECULATION)
    ran = command("up", name, "--node", NODE, "--json", timeout=WITHIN)
    wrong = None if ran.code == 0 and ran.result["outcome"] == "ready" else f"exit {ran.code}: {ran!r}"[:600]
    phases = list(dict.fromkeys(event["phase"] for event in ran.events if "phase" in event))
    bench.note("lab: up, vLLM in Docker", time.monotonic() - began, ", ".join(phases), wrong)
    if wrong is None:
        _check_status(bench, command, name)
        _kill_core(bench, node, command, name)
    command("down", "--all", "--node", NODE, "--json", timeout=WITHIN)
    began = time.monotonic()
    name = _write_profile(bench, command, "vllm-bad", {**SPECULATION, "method": "nosuch"})
    ran = command("up", name, "--node", NODE, "--json", timeout=WITHIN)
    found: dict[str, Any] = ran.result.get("verdict") or {}
    wrong = (
        None if ran.code == 1 and found.get("cause") == "bad-value" else f"exit {ran.code}, should be 1 and bad-value"
    )
    bench.note(
        "lab: up, no such method", time.monotonic() - began, f"{found.get('cause')}: {found.get('summary')}", wrong
    )
    command("down", "--all", "--node", NODE, "--json", timeout=WITHIN)


def mount_install(bench: Bench) -> list[str]:
    """Return the mounts that bring the installed engines into a container."""
    root, python = bench.install.root, Path(sys.base_prefix).resolve()
    return ["/usr:/usr:ro", f"{root}:{root}:ro", f"{python}:{python}:ro"]


def _write_profile(bench: Bench, command: Sparkctl, name: str, speculation: dict[str, Any]) -> str:
    return command.profile(
        name,
        engine="vllm",
        image=IMAGE,
        model={"path": str(bench.models / random_model.NAME), "served_name": random_model.NAME},
        port=_PORT,
        args={"enforce-eager": True, "max-model-len": 2048, "speculative-config": speculation},
        env={
            "PATH": f"{bench.install.vllm.parent}:/usr/bin:/bin", "HOME": "/tmp", "VLLM_CPU_KVCACHE_SPACE": "1",
            "VLLM_NO_USAGE_STATS": "1", "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1",
            "PYTHONPATH": "",  # the image's own leads to the stand-ins of engines
        },
        mounts=mount_install(bench),
        container={"gpus": "none", "network": "host", "shm_size": "1g"},
    )  # fmt: skip


def _check_status(bench: Bench, command: Sparkctl, name: str) -> None:
    """Figures while it serves, and the log that is shown."""
    began = time.monotonic()
    top = command("top", "--once", "--json", "--node", NODE)
    instances = json.loads(top.out)["instances"] if top.code == 0 else []
    figures: dict[str, Any] = next((one for one in instances if one.get("name") == name), {})
    wrong = None if figures.get("phase") == "ready" else f"top does not know it as ready: {top!r}"[:400]
    bench.note("lab: top", time.monotonic() - began, json.dumps(figures)[:300], wrong)
    shown, whole = (command("logs", name, "--node", NODE, *more) for more in ((), ("--all",)))
    count = whole.out.count(REQUEST_MARK)
    wrong = None if count and REQUEST_MARK not in shown.out else "our own questions are shown, or none was asked"
    lines = len(whole.out.splitlines())
    bench.note("lab: logs", 0.0, f"{count} of {lines} lines are ours, and hidden without --all", wrong)


def _kill_core(bench: Bench, node: LabNode, command: Sparkctl, name: str) -> None:
    """End the engine core as the kernel would; what is left ends with 0."""
    began = time.monotonic()
    cores = node.pids("VLLM::Engine")
    for pid in cores:
        os.kill(pid, signal.SIGKILL)
    container = node.docker("ps", "-aq", "--latest")
    code = node.docker("wait", container)
    status: Ran = command("status", "--node", NODE, "--json")
    one = _find_instance(status, name)
    wrong = None if cores and code == "0" and one.get("phase") == "failed" else "not told as what has died inside"
    seen = f"exit {code}; status: {one.get('phase')}, {one.get('detail')}"
    bench.note("lab: EngineCore killed", time.monotonic() - began, seen, wrong)


def _find_instance(status: Ran, name: str) -> dict[str, Any]:
    """Return what status says of one, wherever in its answer."""
    found: dict[str, Any] = {}

    def walk(value: object) -> None:
        if isinstance(value, dict):
            if value.get("name") == name and "phase" in value:
                found.update(value)
            for each in value.values():
                walk(each)
        elif isinstance(value, list):
            for each in value:
                walk(each)

    walk(json.loads(status.out))
    return found
