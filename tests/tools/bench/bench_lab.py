"""The lab for a bench: both nodes, the real command with a home of its own, and the ssh that it is compared with."""

from __future__ import annotations

import contextlib
import os
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.lab.bed.files import NodeOptions
from tests.lab.bed.lab import KEYS, Lab, hold_lab, why_not
from tests.lab.bed.names import CLEAN_ENV, IMAGE, USER
from tests.lab.bed.shell import await_true
from tests.lab.support.sparkctl_process import Sparkctl


@dataclass(frozen=True, slots=True)
class Bed:
    """What a bench on the lab is given."""

    lab: Lab
    sparkctl: Sparkctl

    def ssh(self, node: str, *options: str) -> list[str]:
        """Return an ssh command line to the node, as far as the remote command."""
        known = f"UserKnownHostsFile={self.sparkctl.home / '.ssh/known_hosts'}"
        keys = ["-F", "none", "-i", str(KEYS / "client"), "-o", known, "-o", "BatchMode=yes"]
        return ["ssh", *keys, *options, f"{USER}@{self.lab.nodes[node].address}"]

    @contextlib.contextmanager
    def masters(self) -> Iterator[dict[str, list[str]]]:
        """Keep a warm ControlMaster to each node; yield the ssh command line that goes over it, by node."""
        sockets = {name: self.sparkctl.home / f"{name}.ctl" for name in self.lab.nodes}
        running = []
        try:
            for name, path in sockets.items():
                command = self.ssh(name, "-M", "-N", "-S", str(path))
                running.append(subprocess.Popen(command, stdin=subprocess.DEVNULL, env=CLEAN_ENV))
            for path in sockets.values():
                await_true(f"the ControlMaster at {path}", path.exists)
            yield {name: self.ssh(name, "-S", str(path)) for name, path in sockets.items()}
        finally:
            for process in running:
                process.terminate()
                process.wait(10)

    def printed(self, node: str, name: str, program: str) -> None:
        """Run a container that is a Python program and return at its end; its log stays."""
        self.lab.nodes[node].docker("run", "-d", "--name", name, "--network", "host", IMAGE, "python", "-c", program)

        def ended() -> bool:
            return self.lab.nodes[node].docker("inspect", "-f", "{{.State.Status}}", name) == "exited"

        await_true(f"{name} to have printed everything", ended, 120.0, 0.2)

    def clear(self) -> None:
        """Remove every container."""
        for node in self.lab.nodes.values():
            if left := node.docker("ps", "-aq").split():
                node.docker("rm", "-f", "-v", *left)


@contextlib.contextmanager
def open_bed(options: Mapping[str, NodeOptions] | None = None) -> Iterator[Bed]:
    """Bring the lab up, with these options of its nodes, and down again unless SPARKCTL_LAB_KEEP is set. Raises RuntimeError
    where it cannot run.
    """
    if reason := why_not():
        raise RuntimeError(reason)
    keep = bool(os.environ.get("SPARKCTL_LAB_KEEP"))
    with hold_lab(patience=900.0), tempfile.TemporaryDirectory(prefix="sparkctl-bench-") as scratch:
        lab = Lab()
        try:
            if not keep:
                lab.down()
            lab.up(options)
            command = Sparkctl(Path(scratch))
            bed = Bed(lab, command)
            bed.clear()
            try:
                yield bed
            finally:
                command.end_all()
                bed.clear()
        finally:
            if not keep:
                lab.down()
