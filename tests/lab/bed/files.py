"""What is laid over a node's root: its users, its sshd, its Docker, its sudo rule. Written before the node boots."""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from pathlib import Path

from tests.lab.bed.names import ADDRESSES, CGROUP, PASSWORD, USER
from tests.lab.bed.shell import run

HERE = Path(__file__).parent
UID = 1000
DOCKER_GID = 998

SSHD = """\
Port 22
HostKey /etc/ssh/ssh_host_ed25519_key
PidFile /run/sshd.pid
UsePAM yes
UseDNS no
PrintMotd no
PermitRootLogin no
PasswordAuthentication yes
KbdInteractiveAuthentication no
AllowTcpForwarding yes
AllowStreamLocalForwarding yes
MaxSessions 10
MaxStartups 10:30:100
Subsystem sftp /usr/lib/openssh/sftp-server
LogLevel VERBOSE
"""
SUDO_LOG = "Defaults logfile=/run/lab/sudo.log, loglinelen=0\n"
SUDO_RULES = {
    "rule": f"{SUDO_LOG}{USER} ALL=(root) NOPASSWD: /usr/bin/tee /proc/sys/vm/drop_caches\n",
    "password": f"{SUDO_LOG}{USER} ALL=(root) /usr/bin/tee /proc/sys/vm/drop_caches\n",
    "none": "",
}
START_SSHD = """\
#!/bin/sh
exec /usr/sbin/sshd -E /run/lab/sshd.log
"""
START_CONTAINERD = """\
#!/bin/bash
cd /
setsid containerd --config /etc/containerd/config.toml >>/run/lab/containerd.log 2>&1 </dev/null &
until [ -S /run/containerd/containerd.sock ]; do sleep 0.02; done # or Docker looks again after a second
"""
# On Docker's disk. Told to take a share of the time for its garbage, containerd 1.6 looks 100 times a second for some.
CONTAINERD = """\
version = 2
root = "/var/lib/docker/containerd"
disabled_plugins = ["io.containerd.grpc.v1.cri"]
[plugins."io.containerd.gc.v1.scheduler"]
pause_threshold = 0.0
"""
START_DOCKERD = f"""\
#!/bin/bash
cd /
setsid dockerd --data-root /var/lib/docker --exec-root /run/docker -H unix:///run/docker.sock \\
  --containerd /run/containerd/containerd.sock \\
  --pidfile /run/docker.pid --iptables=false --bridge=none --exec-opt native.cgroupdriver=cgroupfs \\
  --cgroup-parent=/{CGROUP}/$(hostname) >>/run/lab/dockerd.log 2>&1 </dev/null &
"""


@dataclass(frozen=True, slots=True)
class NodeOptions:
    """How a node is to be. ``sudo`` is rule, password or none; ``shell`` the login shell's name; ``data`` the size of
    Docker's disk."""

    gpu: bool = False
    sudo: str = "rule"
    shell: str = "bash"
    data: str = "2g"


def write_node_files(files: Path, node: str, keys: Path, options: NodeOptions) -> None:
    """Fill ``files``, a directory that is copied over the node's root as it is."""
    shutil.rmtree(files, ignore_errors=True)
    _write_text(files / "etc/hostname", f"{node}\n")
    others = "".join(f"{lan} {name}\n" for name, (lan, _) in ADDRESSES.items() if name != node)
    _write_text(files / "etc/hosts", f"127.0.0.1 localhost\n127.0.1.1 {node}\n{others}")
    _write_accounts(files / "etc", shutil.which(options.shell) or "/bin/bash")
    _write_text(files / "etc/sudoers.d/sparkctl", SUDO_RULES[options.sudo], 0o440)
    _write_text(files / "etc/ssh/sshd_config", SSHD)
    shutil.copy(keys / f"host-{node}.pub", files / "etc/ssh/ssh_host_ed25519_key.pub")
    _write_text(files / "etc/ssh/ssh_host_ed25519_key", (keys / f"host-{node}").read_text(), 0o600)
    _write_text(files / "etc/docker/daemon.json", "{}\n")
    sbin = files / "usr/local/sbin"
    _write_text(sbin / "start-sshd", START_SSHD, 0o755)
    _write_text(files / "etc/containerd/config.toml", CONTAINERD)
    _write_text(sbin / "start-containerd", START_CONTAINERD, 0o755)
    _write_text(sbin / "start-dockerd", START_DOCKERD, 0o755)
    shutil.copy(HERE / "runc-clamp", sbin / "runc")
    if options.gpu:
        binaries = files / "usr/bin"
        binaries.mkdir(parents=True)
        shutil.copy(HERE / "gpu-hook", binaries / "nvidia-container-runtime-hook")
        shutil.copy(HERE / "nvidia-smi", binaries / "nvidia-smi")
    _write_home(files / "home" / USER, keys)


def _write_accounts(etc: Path, shell: str) -> None:
    """The host's accounts, without whoever holds our uid or gid, plus milo in group docker."""

    def host(name: str, taken: str) -> str:
        lines = (Path("/etc") / name).read_text().splitlines()
        return "".join(f"{line}\n" for line in lines if line.split(":")[2] != taken and not line.startswith("docker:"))

    _write_text(etc / "passwd", host("passwd", str(UID)) + f"{USER}:x:{UID}:{UID}:Milo:/home/{USER}:{shell}\n")
    groups = "".join(line for line in host("group", str(UID)).splitlines(True) if f":{DOCKER_GID}:" not in line)
    _write_text(etc / "group", groups + f"{USER}:x:{UID}:\ndocker:x:{DOCKER_GID}:{USER}\n")
    secret = run("openssl", "passwd", "-6", PASSWORD).strip()
    _write_text(etc / "shadow", Path("/etc/shadow").read_text() + f"{USER}:{secret}:19700:0:99999:7:::\n", 0o640)


def _write_home(home: Path, keys: Path) -> None:
    _write_text(home / ".ssh/authorized_keys", (keys / "client.pub").read_text(), 0o600)
    (home / "models").mkdir()
    (home / ".ssh").chmod(0o700)
    for path in (home, *home.rglob("*")):
        os.chown(path, UID, UID)


def _write_text(path: Path, text: str, mode: int = 0o644) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(mode)
