"""What can go wrong with a Spark, done to a node of the lab, and undone when the test is over."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from tests.lab.bed import netns
from tests.lab.bed.files import SSHD, SUDO_RULES, UID
from tests.lab.bed.lab import KEYS
from tests.lab.bed.names import CLEAN_ENV, DATA_SIZE, FABRIC, LAN, USER
from tests.lab.bed.netns import get_namespace_name
from tests.lab.bed.node import LabNode
from tests.lab.bed.shell import BedError, await_true, ip, run

SLOW_LINK = Path(__file__).with_name("slow_link.py")
SSHD_TITLES = ("sshd", "sshd-session", "sshd-auth")  # OpenSSH 9.8 split the session off
SESSION_TITLES = (f"sshd: {USER}", f"sshd-session: {USER}")


class Faults:
    """Breaks things; `undo` mends whatever this instance broke, last first."""

    def __init__(self) -> None:
        self._mend: list[Callable[[], None]] = []

    def undo(self) -> None:
        """Put everything back as it was."""
        while self._mend:
            self._mend.pop()()

    def kill_sshd(self, node: LabNode) -> None:
        """End the SSH server and every session, as its crash would."""
        self._mend.append(lambda: self.start_sshd(node))
        node.signal(
            signal.SIGSTOP, *SSHD_TITLES
        )  # or a client whose session ends first is let in by the server once more
        node.signal(signal.SIGKILL, *SSHD_TITLES)
        await_true(f"sshd of {node.name} to be gone", lambda: not node.ssh_answers())

    def start_sshd(self, node: LabNode) -> None:
        """Start the SSH server if it does not run."""
        if not node.ssh_answers():
            node.sh("/usr/local/sbin/start-sshd")
            await_true(f"sshd of {node.name}", node.ssh_answers)

    def kill_sessions(self, node: LabNode) -> None:
        """End milo's sessions; the server goes on."""
        node.signal(signal.SIGKILL, *SESSION_TITLES)

    def sshd_option(self, node: LabNode, name: str, value: str) -> None:
        """Give sshd another value of an option; connections that are there keep what they had."""
        path = "/etc/ssh/sshd_config"
        before = node.sh("cat", path)
        self._mend.append(lambda: self._configure_sshd(node, before))
        kept = [line for line in before.splitlines() if not line.startswith(f"{name} ")]
        self._configure_sshd(node, "\n".join([f"{name} {value}", *kept, ""]))

    def _configure_sshd(self, node: LabNode, text: str) -> None:
        node.put("/etc/ssh/sshd_config", text)
        node.sh("kill", "-HUP", node.sh("cat", "/run/sshd.pid").strip())
        await_true(f"sshd of {node.name}", node.ssh_answers)

    def freeze_shims(self, node: LabNode) -> None:
        """Let nothing end the containers: what is told to a container's shim is not heard."""
        self._mend.append(lambda: node.signal(signal.SIGCONT, "containerd-shim"))
        node.signal(signal.SIGSTOP, "containerd-shim")

    def reset_connections(self, node: LabNode) -> None:
        """Send a TCP reset into every connection between the host and the node."""
        run("ss", "-K", "dst", node.address)

    def freeze_sshd(self, node: LabNode) -> None:
        """TCP opens and nobody speaks: what a node out of memory looks like from outside."""
        self._mend.append(lambda: node.signal(signal.SIGCONT, *SSHD_TITLES))
        node.signal(signal.SIGSTOP, *SSHD_TITLES)

    def unplug(self, node: LabNode) -> None:
        """Take the LAN link down."""
        self._mend.append(lambda: self.plug(node))
        ip(f"link set {LAN} down", netns=get_namespace_name(node.name))

    def plug(self, node: LabNode) -> None:
        """Bring the LAN link up."""
        ip(f"link set {LAN} up", netns=get_namespace_name(node.name))

    def slow_link(self, node: LabNode, delay: float, loss: float) -> None:
        """Delay every packet that leaves the node on the LAN by ``delay`` seconds, and drop a share ``loss`` of them."""
        self._rule(node, "OUTPUT", "-o", LAN, "-j", "NFQUEUE", "--queue-num", "7", "--queue-bypass")
        words = self._beside(node, sys.executable, str(SLOW_LINK), "7", str(delay), str(loss))
        relay = subprocess.Popen(words, stdout=subprocess.PIPE, env=CLEAN_ENV)
        self._mend.append(lambda: self._end(relay))
        if relay.stdout is None or relay.stdout.readline() != b"ready\n":
            raise BedError("no packet queue of the kernel (NFQUEUE)")

    def drop_large_packets(self, node: LabNode, size: int = 600) -> None:
        """Drop what is ``size`` bytes or longer in both directions, without a word: a path whose MTU nobody is told."""
        for chain, side in (("INPUT", "-i"), ("OUTPUT", "-o")):
            self._rule(node, chain, side, LAN, "-m", "length", "--length", f"{size}:65535", "-j", "DROP")

    def _rule(self, node: LabNode, *rule: str) -> None:
        run(*self._beside(node, "iptables", "-I", *rule))
        self._mend.append(lambda: self._drop_rule(node, rule))

    def _drop_rule(self, node: LabNode, rule: tuple[str, ...]) -> None:
        run(*self._beside(node, "iptables", "-D", *rule))

    @staticmethod
    def _beside(node: LabNode, *argv: str) -> list[str]:
        """Return the command that runs in the node's network, and else on the host."""
        return ["nsenter", f"--net={netns.get_namespace_path(node.name)}", *argv]

    @staticmethod
    def _end(process: subprocess.Popen[bytes]) -> None:
        process.kill()
        process.wait()

    def shift_clock(self, node: LabNode, seconds: float) -> None:
        """Set the clock of the programs of every login ahead (or back); what runs already takes the step, too.

        The kernel's clock is the machine's own: dockerd and the engines keep it, as they would in a virtual machine.
        """
        library = next(Path("/usr/lib").glob("*/faketime/libfaketime.so.1"), None)
        if library is None:
            raise LookupError("libfaketime is not installed")
        if "faketime" not in node.sh("cat", "/etc/environment", check=False):
            before = node.sh("cat", "/etc/environment", check=False)
            self._mend.append(lambda: node.put("/etc/environment", before))
            shifted = f"LD_PRELOAD={library}\nFAKETIME_DONT_FAKE_MONOTONIC=1\nFAKETIME_CACHE_DURATION=1\n"
            node.put("/etc/environment", before + shifted)
        node.put("/etc/faketimerc", f"{seconds:+.0f}s\n")

    def use_python(self, node: LabNode, program: Path) -> None:
        """Make this interpreter the node's python3: its program and standard library are copied there."""
        version = program.name
        copied = node.shared / version
        if not copied.exists():
            home = program.resolve().parents[1]
            unwanted = shutil.ignore_patterns("test", "site-packages", "*.a", "config-3*", "__pycache__")
            shutil.copytree(home / "lib" / version, copied / "lib" / version, ignore=unwanted)
            (copied / "bin").mkdir()
            shutil.copy(program.resolve(), copied / "bin" / version)
            for library in (home / "lib").glob("libpython*.so*"):
                shutil.copy(library, copied / "lib" / library.name)
        here = f"/run/lab/{version}"
        self._mend.append(lambda: self._quietly(node, "rm", "-f", "/usr/local/bin/python3"))
        node.put("/usr/local/bin/python3", f'#!/bin/sh\nLD_LIBRARY_PATH={here}/lib exec {here}/bin/{version} "$@"\n')
        node.sh("chmod", "755", "/usr/local/bin/python3")

    def swap(self, size: int = 1 << 30) -> None:
        """Give the machine swap in compressed memory (zram); both nodes share it."""
        disk = Path("/sys/block/zram0/disksize")
        if disk.read_text().strip() != "0" or "zram0" in Path("/proc/swaps").read_text():
            raise BedError("somebody uses zram0")
        disk.write_text(str(size))
        self._mend.append(lambda: Path("/sys/block/zram0/reset").write_text("1") and None)
        run("mkswap", "/dev/zram0")
        run("swapon", "/dev/zram0")
        self._mend.append(lambda: run("swapoff", "/dev/zram0") and None)

    def cut_fabric(self, node: LabNode) -> None:
        """Take the cable between the two nodes away at this node's end; the other end loses its carrier."""
        self._mend.append(lambda: self.mend_fabric(node))
        ip(f"link set {FABRIC} down", netns=get_namespace_name(node.name))

    def mend_fabric(self, node: LabNode) -> None:
        """Put the cable back."""
        ip(f"link set {FABRIC} up", netns=get_namespace_name(node.name))

    def another_image(self, node: LabNode, tag: str) -> None:
        """Let a name stand for other bytes on this node, as a build of another day does."""
        before = node.docker("images", "-q", "--no-trunc", tag)
        self._mend.append(lambda: self._quietly(node, "docker", "tag", before, tag))
        node.docker("run", "--name", "lab-other", "--network", "none", tag, "sh", "-c", "echo another >/built")
        node.docker("commit", "lab-other", tag)
        node.docker("rm", "lab-other")

    def kill_docker(self, node: LabNode) -> None:
        """Kill dockerd; containers live on until the next one starts (with live-restore: beyond)."""
        self._mend.append(lambda: self.start_docker(node))
        node.signal(signal.SIGKILL, "dockerd")
        await_true(f"dockerd of {node.name} to be gone", lambda: not node.pids("dockerd"))

    def stop_docker(self, node: LabNode) -> None:
        """Stop dockerd as systemd would; without live-restore its containers are stopped."""
        self._mend.append(lambda: self.start_docker(node))
        node.signal(signal.SIGTERM, "dockerd")
        await_true(f"dockerd of {node.name} to stop", lambda: not node.pids("dockerd"), 30.0)

    def start_docker(self, node: LabNode) -> None:
        """Start dockerd if it does not run and return when it answers."""
        if not node.pids("dockerd"):
            node.sh("/usr/local/sbin/start-dockerd")
        node.await_docker()

    def live_restore(self, node: LabNode) -> None:
        """Let containers survive a restart of dockerd."""
        self._mend.append(lambda: self._live_restore(node, False))
        self._live_restore(node, True)

    def _live_restore(self, node: LabNode, on: bool) -> None:
        node.put("/etc/docker/daemon.json", json.dumps({"live-restore": on}))  # a key left out would not be reloaded
        node.signal(signal.SIGHUP, "dockerd")
        wanted = str(on).lower()
        await_true("dockerd to reload", lambda: node.docker("info", "-f", "{{.LiveRestoreEnabled}}") == wanted)

    def fill_disk(self, node: LabNode, spare: int = 64) -> None:
        """Leave ``spare`` KiB on Docker's disk."""
        self._mend.append(lambda: self._resize(node, DATA_SIZE))

        def shrinks() -> bool:  # what writes meanwhile may need more than was just measured
            used = node.sh("df", "-k", "--output=used", "/var/lib/docker").split()[-1]
            with suppress(BedError):
                self._resize(node, f"{int(used) + spare}k")
                return True
            return False

        await_true("the disk to shrink", shrinks)

    def _resize(self, node: LabNode, size: str) -> None:
        node.sh("mount", "-o", f"remount,size={size}", "/var/lib/docker")

    def swap_host_key(self, node: LabNode) -> None:
        """Give the node another host key, as a new installation does."""
        self._mend.append(lambda: self._host_key(node, "host"))
        self._host_key(node, "other-host")

    def _host_key(self, node: LabNode, kind: str) -> None:
        for ending in ("", ".pub"):
            key = (KEYS / f"{kind}-{node.name}{ending}").read_text()
            node.put(f"/etc/ssh/ssh_host_ed25519_key{ending}", key)
        listener = int(node.sh("cat", "/run/sshd.pid"))
        node.sh("kill", "-HUP", str(listener))
        known = (KEYS / f"{kind}-{node.name}.pub").read_text().split()[1]
        await_true(
            "sshd to show its other key",
            lambda: known in run("ssh-keyscan", "-t", "ed25519", node.address, check=False),
        )

    def sudo_rule(self, node: LabNode, mode: str) -> None:
        """Let milo do as root what ``mode`` says: rule, password or none."""
        self._mend.append(lambda: node.put("/etc/sudoers.d/sparkctl", SUDO_RULES["rule"]))
        node.put("/etc/sudoers.d/sparkctl", SUDO_RULES[mode])

    def login_shell(self, node: LabNode, shell: str) -> None:
        """Give milo another login shell, by name."""
        path = shutil.which(shell)
        if path is None:
            raise LookupError(f"{shell} is not installed")
        self._mend.append(lambda: self._quietly(node, "usermod", "-s", "/bin/bash", USER))
        node.sh("usermod", "-s", path, USER)

    def add_user(self, node: LabNode, name: str) -> None:
        """Add a second person: an account in group docker, which the same key opens."""
        home = f"/home/{name}"
        self._mend.append(lambda: self._remove_user(node, name))
        node.sh("useradd", "-m", "-s", "/bin/bash", "-G", "docker", name)
        node.sh(
            "sh",
            "-c",
            f"mkdir -m 700 {home}/.ssh; cp /home/{USER}/.ssh/authorized_keys {home}/.ssh; chown -R {name}: {home}",
        )

    def _remove_user(self, node: LabNode, name: str) -> None:
        node.sh("sh", "-c", f"pgrep -u {name} | xargs -r kill -9", check=False)
        node.sh("userdel", "-r", "-f", name, check=False)

    def leave_docker_group(self, node: LabNode) -> None:
        """Take milo out of group docker."""
        self._mend.append(lambda: self._quietly(node, "gpasswd", "-a", USER, "docker"))
        node.sh("gpasswd", "-d", USER, "docker")

    def noisy_login(self, node: LabNode) -> None:
        """Let milo's shell print at every login, as many a .bashrc does."""
        self.startup_file(node, ".bashrc", "echo 'Welcome to DGX Spark'; echo 'motd on stderr' >&2\n")

    def startup_file(self, node: LabNode, name: str, text: str) -> None:
        """Give milo a file that the login shell reads."""
        path = f"/home/{USER}/{name}"
        self._mend.append(lambda: self._quietly(node, "rm", "-f", path))
        node.put(path, text)
        node.sh("chown", f"{UID}:{UID}", path)

    def sshd_config(self, node: LabNode, more: str) -> None:
        """Add lines to sshd's config; they count from the next connection on."""
        self._mend.append(lambda: self._sshd_config(node, SSHD))
        self._sshd_config(node, SSHD + more)

    def _sshd_config(self, node: LabNode, text: str) -> None:
        node.put("/etc/ssh/sshd_config", text)
        node.sh("sh", "-c", "kill -HUP $(cat /run/sshd.pid)")
        await_true(f"sshd of {node.name} to answer again", node.ssh_answers)

    def claims_a_gpu(self, node: LabNode) -> None:
        """Leave a trace of the NVIDIA toolkit on a node whose Docker does not have it: only the start call tells."""
        self._mend.append(lambda: self._quietly(node, "rm", "-f", "/usr/bin/nvidia-ctk"))
        node.sh("cp", "/bin/true", "/usr/bin/nvidia-ctk")

    @staticmethod
    def _quietly(node: LabNode, *argv: str) -> None:
        node.sh(*argv)
