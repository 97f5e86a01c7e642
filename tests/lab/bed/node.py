"""One node of the lab: its namespaces, its throw-away root, and the way into it from the host."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import socket
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

from tests.lab.bed import cgroups, files, netns
from tests.lab.bed.names import ADDRESSES, CGROUP, CLEAN_ENV, JOURNAL, SCRATCH
from tests.lab.bed.shell import BedError, await_true, run


class _DockerConnection(http.client.HTTPConnection):
    def __init__(self, path: Path) -> None:
        super().__init__("localhost", timeout=60)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(str(self._path))


@dataclass(frozen=True, slots=True)
class LabNode:
    """``name`` is spark1 or spark2."""

    name: str

    @property
    def address(self) -> str:
        """The address the host reaches it at."""
        return ADDRESSES[self.name][0]

    @property
    def fabric_address(self) -> str:
        """The address that the other node reaches it at over the cable."""
        return ADDRESSES[self.name][1]

    @property
    def dir(self) -> Path:
        """Its files on the host."""
        return SCRATCH / "nodes" / self.name

    @property
    def shared(self) -> Path:
        """The directory that the node sees as /run/lab."""
        return self.dir / "shared"

    @property
    def pid1(self) -> int | None:
        """The host's pid of the node's init, None where it does not run. Its cgroup guards against a reused pid."""
        try:
            pid = int((self.shared / "pid1").read_text())
            is_ours = f"/{CGROUP}/{self.name}/" in Path(f"/proc/{pid}/cgroup").read_text()
        except (OSError, ValueError):
            return None
        return pid if is_ours else None

    @property
    def docker_socket(self) -> Path:
        """Its Docker's socket, reached from the host without SSH: what tests check against."""
        return Path(f"/proc/{self.pid1}/root/run/docker.sock")

    def boot(self, keys: Path, options: files.NodeOptions) -> None:
        """Start the node's first process; returns before its daemons answer."""
        cgroups.kill_all(self.name)  # what an interrupted run left
        for directory in (self.shared, self.dir / "mnt"):
            directory.mkdir(parents=True, exist_ok=True)
        (self.shared / "pid1").unlink(missing_ok=True)
        files.write_node_files(self.dir / "files", self.name, keys, options)
        cgroups.create_cgroups(self.name)
        command = ["nsenter", f"--net={netns.get_namespace_path(self.name)}"]
        command += ["unshare", "--mount", "--uts", "--ipc", "--pid", "--fork"]
        command += [str(Path(__file__).with_name("boot.sh")), str(self.dir), self.name, options.data]
        with (self.shared / "boot.log").open("wb") as log:
            subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=CLEAN_ENV,
                cwd="/",
                start_new_session=True,
                preexec_fn=lambda: cgroups.join_cgroups(self.name),
            )

    def answers(self) -> bool:
        """Tell whether both its SSH server and its Docker answer."""
        return self.pid1 is not None and self.ssh_answers() and self.docker_answers()

    def ssh_answers(self) -> bool:
        """Tell whether the SSH server says its banner."""
        try:
            with socket.create_connection((self.address, 22), 1.0) as connection:
                return connection.recv(64).startswith(b"SSH-2.0")
        except OSError:
            return False

    def docker_answers(self) -> bool:
        """Tell whether the Docker Engine answers a ping."""
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(2.0)
            try:
                connection.connect(str(self.docker_socket))
                connection.sendall(b"GET /_ping HTTP/1.0\r\n\r\n")
                return b"200 OK" in connection.recv(4096)
            except OSError:
                return False

    def enter(self, *argv: str) -> list[str]:
        """Return the command that runs ``argv`` as root inside the node."""
        return ["nsenter", "-t", str(self.pid1), "-m", "-n", "-u", "-i", "-p", "-r", "-w", "--", *argv]

    def sh(self, *argv: str, check: bool = True, stdin: str = "") -> str:
        """Run a command as root inside the node and return its stdout."""
        return run(*self.enter(*argv), check=check, stdin=stdin, enter=lambda: cgroups.join_cgroups(self.name))

    def docker(self, *argv: str, check: bool = True) -> str:
        """Run the node's docker command."""
        return self.sh("docker", *argv, check=check).strip()

    def ask_docker(self, path: str, method: str = "GET") -> bytes:
        """Return what its Docker's API answers: asked from here, without the start of a program. Raises BedError."""
        connection = _DockerConnection(self.docker_socket)
        try:
            connection.request(method, path)
            answer = connection.getresponse()
            body = answer.read()
        except OSError as error:
            raise BedError(f"docker on {self.name}: {method} {path}: {error}") from error
        finally:
            connection.close()
        if answer.status >= 400:
            raise BedError(f"docker on {self.name}: {method} {path}: {answer.status} {body.decode(errors='replace')}")
        return body

    def list_containers(self, *, stopped: bool = True, label: str = "") -> list[dict[str, Any]]:
        """Return the containers as Docker's API lists them, those that do not run included unless ``stopped`` is off."""
        wanted = quote(json.dumps({"label": [label]} if label else {}))
        found: list[dict[str, Any]] = json.loads(
            self.ask_docker(f"/containers/json?all={int(stopped)}&filters={wanted}")
        )
        return found

    def inspect_container(self, name: str) -> dict[str, Any]:
        """Return what Docker knows of a container."""
        found: dict[str, Any] = json.loads(self.ask_docker(f"/containers/{name}/json"))
        return found

    def read_container_log(self, name: str) -> str:
        """Return what a container without a terminal has printed, of both streams."""
        raw, text = self.ask_docker(f"/containers/{name}/logs?stdout=1&stderr=1"), bytearray()
        while raw:  # each piece has a head of 8 bytes: its stream, and its length in the last four
            end = 8 + int.from_bytes(raw[4:8], "big")
            text += raw[8:end]
            raw = raw[end:]
        return text.decode(errors="replace")

    def remove_containers(self) -> None:
        """Remove every container, with its volumes."""
        for one in self.list_containers():
            self.ask_docker(f"/containers/{one['Id']}?force=1&v=1", "DELETE")

    def remove_images(self, *names: str) -> None:
        """Remove images, or what else has their names; one that is not there is no error."""
        for name in names:
            with contextlib.suppress(BedError):
                self.ask_docker(f"/images/{quote(name)}?force=1", "DELETE")

    def find_image(self, name: str) -> str:
        """Return an image's id, "" if it is not there."""
        try:
            return str(json.loads(self.ask_docker(f"/images/{quote(name)}/json"))["Id"])
        except BedError as error:
            if ": 404 " not in str(error):
                raise
            return ""

    def remove_journal(self) -> None:
        """Remove what a switch that was left has written."""
        Path(f"/proc/{self.pid1}/root{JOURNAL}").unlink(missing_ok=True)

    def put(self, path: str, text: str) -> None:
        """Write a file inside the node, keeping its mode."""
        self.sh("tee", path, stdin=text)

    def pids(self, command: str) -> list[int]:
        """Return the host pids of the node's processes of this name, or whose title begins with it ("sshd: milo")."""
        found = []
        for pid in cgroups.list_processes(self.name):
            try:
                name = Path(f"/proc/{pid}/comm").read_text().strip()
                title = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            except OSError:
                continue
            if name == command or title.startswith(command):
                found.append(pid)
        return found

    def pids_with(self, command: str, mark: bytes) -> list[int]:
        """Return those of `pids` whose command line has this mark; one that ended meanwhile is none."""
        found = []
        for pid in self.pids(command):
            with contextlib.suppress(OSError):
                found += [pid] if mark in Path(f"/proc/{pid}/cmdline").read_bytes() else []
        return found

    def signal(self, number: int, *commands: str) -> None:
        """Send a signal to every process of these names or titles."""
        for pid in {pid for command in commands for pid in self.pids(command)}:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)

    def await_docker(self) -> None:
        """Return when its Docker answers; it may first have to end containers of a killed daemon (some 11 s)."""
        await_true(f"docker on {self.name}", self.docker_answers, 30.0)
