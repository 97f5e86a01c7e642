"""The whole lab: up, down, what it is missing. Idempotent; one at a time for each number (bed/names.py)."""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tests.lab.bed import cgroups, image, netns
from tests.lab.bed.files import NodeOptions
from tests.lab.bed.names import ADDRESSES, BRIDGE, CGROUP, CLEAN_ENV, LOCK, NAMESPACE, SCRATCH
from tests.lab.bed.node import LabNode
from tests.lab.bed.shell import BedError, await_true, run

NEEDED = "dockerd containerd runc sshd ssh-keygen sudo ip nsenter unshare tini busybox openssl"
PACKAGES = "docker.io openssh-server sudo iproute2 iptables tini busybox-static python3 openssl"
KEYS = SCRATCH / "keys"
IMAGE_TAR = SCRATCH / "engine.tar"
BY_HAND = SCRATCH / "by-hand"  # somebody brought it up to look at it: tests use it and leave it up


def why_not() -> str | None:
    """Return why the lab cannot run on this machine, None where it can."""
    if sys.platform != "linux":
        return "the lab needs Linux"
    if os.geteuid() != 0:
        return "the lab needs root"
    missing = [name for name in NEEDED.split() if shutil.which(name, path=CLEAN_ENV["PATH"]) is None]
    if missing:
        return f"the lab needs {', '.join(missing)}: apt-get install -y --no-install-recommends {PACKAGES}"
    if "overlay" not in Path("/proc/filesystems").read_text():
        return "the lab needs overlayfs in the kernel"
    if not cgroups.list_hierarchies() or not all(os.access(root, os.W_OK) for root in cgroups.list_hierarchies()):
        return "the lab needs a writable /sys/fs/cgroup"
    return None


@contextlib.contextmanager
def hold_lab(patience: float = 90.0) -> Iterator[None]:
    """Hold this lab for ourselves: its names and addresses exist once on a machine."""
    with LOCK.open("a+") as lock:

        def taken() -> bool:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return False
            return True

        await_true(f"whoever holds the lab ({LOCK})", taken, patience, 0.2)
        yield


@dataclass(frozen=True, slots=True)
class Lab:
    """Two nodes. ``gpu`` on spark1 only: there --gpus is accepted, on spark2 it is really refused."""

    nodes: Mapping[str, LabNode] = field(default_factory=lambda: {name: LabNode(name) for name in ADDRESSES})

    def up(self, options: Mapping[str, NodeOptions] | None = None, talk: bool = False) -> None:
        """Bring up what is not up and return when both nodes answer and have the engine's image."""
        wanted = {"spark1": NodeOptions(gpu=True), "spark2": NodeOptions(), **(options or {})}
        begun = time.monotonic()

        def say(what: str) -> None:
            if talk:
                print(f"{time.monotonic() - begun:5.2f} s  {what}", flush=True)

        SCRATCH.mkdir(mode=0o700, exist_ok=True)
        make_keys()
        netns.create_network()
        for node in self.nodes.values():
            if node.pid1 is None:
                node.boot(KEYS, wanted[node.name])
        say("network up, nodes booting")
        if not IMAGE_TAR.exists():
            image.build_image(IMAGE_TAR)
            say("engine image built")
        for node in self.nodes.values():
            self._await(node)
        say("ssh and docker answer")
        self._load()
        say("up")

    def _await(self, node: LabNode) -> None:
        try:
            await_true(f"{node.name} to answer", node.answers, 30.0)
        except BedError as error:
            logs = (node.shared / name for name in ("boot.log", "sshd.log", "containerd.log", "dockerd.log"))
            tails = "".join(f"\n--- {path.name}\n{path.read_text()[-2000:]}" for path in logs if path.exists())
            raise BedError(f"{error}{tails}") from error

    def _load(self) -> None:
        """Both nodes at once: each takes half a second of waiting."""
        started = []
        for node in self.nodes.values():
            if not node.docker("images", "-q", image.TAGS[-1]):
                with IMAGE_TAR.open("rb") as tar:
                    started.append(
                        subprocess.Popen(
                            node.enter("docker", "load"), stdin=tar, stdout=subprocess.DEVNULL, env=CLEAN_ENV
                        )
                    )
        if any(process.wait(60) for process in started):
            raise BedError("docker load of the engine image failed")

    def down(self) -> None:
        """Remove everything: processes, mounts (with their namespace), links, cgroups, files."""
        for node in self.nodes.values():
            cgroups.kill_all(node.name)
        netns.remove_network()
        cgroups.remove_cgroups()
        shutil.rmtree(SCRATCH, ignore_errors=True)

    def remains(self) -> list[str]:
        """Return what is left of a lab on this machine, in words; empty after `down`."""
        left = [f"process {pid} of {name}" for name in ADDRESSES for pid in cgroups.list_processes(name)]
        left += [f"cgroup {root / CGROUP}" for root in cgroups.list_hierarchies() if (root / CGROUP).exists()]
        left += [
            f"namespace {netns.get_namespace_path(name)}"
            for name in ADDRESSES
            if netns.get_namespace_path(name).exists()
        ]
        left += [
            f"link {line.split()[1]}"
            for line in run("ip", "-o", "link").splitlines()
            if re.search(rf"\b({BRIDGE}\b|v-{NAMESPACE}-)", line)
        ]
        left += [line for line in Path("/proc/self/mounts").read_text().splitlines() if f"{SCRATCH}/" in line]
        return left + ([str(SCRATCH)] if SCRATCH.exists() else [])


def make_keys() -> None:
    """Make the client's key, a second client's that no node knows, and two host keys per node."""
    KEYS.mkdir(exist_ok=True)
    for name in ("client", "stranger", *(f"{kind}-{node}" for node in ADDRESSES for kind in ("host", "other-host"))):
        if not (KEYS / name).exists():
            run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", f"sparkctl-lab-{name}", "-f", str(KEYS / name))


def format_known_hosts(kind: str = "host") -> str:
    """Return known_hosts lines for both nodes; kind ``other-host`` gives keys that they do not have."""
    parts = ((ADDRESSES[name][0], (KEYS / f"{kind}-{name}.pub").read_text().split()[:2]) for name in ADDRESSES)
    return "".join(f"{address} {' '.join(key)}\n" for address, key in parts)
