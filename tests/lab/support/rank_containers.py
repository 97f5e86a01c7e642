"""A model over both nodes, as the lab's tests start it and look at it."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.lab.bed.lab import KEYS, Lab
from tests.lab.bed.names import ADDRESSES, FABRIC, USER
from tests.lab.bed.node import LabNode
from tests.lab.bed.shell import await_true, run
from tests.lab.support.command_outcomes import list_own_containers
from tests.lab.support.sparkctl_process import Sparkctl

JOINING = "Init torch distributed begin"


def write_two_node_profile(
    sparkctl: Sparkctl, name: str = "pair", env: Mapping[str, object] | None = None, **fields: Any
) -> str:
    """Write a profile for both nodes, met over the cable: veth has no RDMA device, so the config names the interface."""
    sparkctl.configure(fabric=FABRIC)
    texts = {key: str(value) for key, value in (env or {}).items()}
    return sparkctl.profile(name, nodes=2, model={"path": "/models/pair", "served_name": "pair"}, env=texts, **fields)


def list_container_ids(lab: Lab) -> dict[str, str]:
    """Return the ids of the containers that run on each node, one a node: fails for more."""
    found = {node.name: [one["Id"] for one in node.list_containers(stopped=False)] for node in lab.nodes.values()}
    assert all(len(each) <= 1 for each in found.values()), found
    return {name: each[0] for name, each in found.items() if each}


def read_label(node: LabNode, key: str) -> str:
    """Return a label of the one container of ours on a node."""
    (name,) = list_own_containers(node)
    return str(node.inspect_container(name)["Config"]["Labels"][f"dev.sparkctl.{key}"])


def read_state(node: LabNode) -> str:
    """Return how the one container of ours is: running, exited ..."""
    (name,) = list_own_containers(node)
    return str(node.inspect_container(name)["State"]["Status"])


def await_log(node: LabNode, text: str, timeout: float = 30.0) -> None:
    """Return as soon as the one container of ours has printed ``text``: asked on the node itself, not over SSH."""

    def has_it() -> bool:
        names = list_own_containers(node)
        return len(names) == 1 and text in node.read_container_log(names[0])

    await_true(f"{text!r} on {node.name}", has_it, timeout, 0.1)


def can_talk_over_cable(node: LabNode) -> bool:
    """Tell whether a connection between the nodes' addresses on the second link is open."""
    return any(
        all(end.startswith(tuple(fabric for _, fabric in ADDRESSES.values())) for end in line.split()[2:4])
        for line in node.sh("ss", "-tnH", "state", "established").splitlines()
    )


def exchange_keys(head: LabNode, worker: LabNode) -> None:
    """Let the head's user log in at the worker as NVIDIA's discover-sparks does: by a key that only ~/.ssh/config names."""
    home = f"/home/{USER}/.ssh"
    with tempfile.TemporaryDirectory() as place:
        key = Path(place, "key")
        run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(key))
        head.put(f"{home}/id_ed25519_shared", key.read_text())
        head.put(f"{home}/config", "Host *\n    IdentityFile ~/.ssh/id_ed25519_shared\n")
        head.sh("chmod", "600", f"{home}/id_ed25519_shared", f"{home}/config")
        head.sh("chown", "-R", f"{USER}:", home)
        allowed = (KEYS / "client.pub").read_text() + key.with_suffix(".pub").read_text()
        worker.put(f"{home}/authorized_keys", allowed)


def remove_keys(head: LabNode, worker: LabNode) -> None:
    """Undo `exchange_keys`."""
    head.sh("rm", "-f", *(f"/home/{USER}/.ssh/{name}" for name in ("id_ed25519_shared", "config")))
    worker.put(f"/home/{USER}/.ssh/authorized_keys", (KEYS / "client.pub").read_text())
