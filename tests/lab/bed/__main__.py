"""The lab by hand: ``python -m tests.lab.bed up | down | status | sh NODE COMMAND... | ssh NODE [COMMAND...]``."""

from __future__ import annotations

import argparse
import os
import sys
import time

from tests.lab.bed import cgroups
from tests.lab.bed.files import SUDO_RULES, NodeOptions
from tests.lab.bed.lab import BY_HAND, KEYS, Lab, format_known_hosts, hold_lab, why_not
from tests.lab.bed.names import CLEAN_ENV, DATA_SIZE, SCRATCH, USER


def main() -> None:
    """Do what the command line says."""
    parser = argparse.ArgumentParser(prog="python -m tests.lab.bed", description=__doc__)
    verbs = parser.add_subparsers(dest="verb", required=True)
    up = verbs.add_parser("up", help="bring both nodes up; what is up stays")
    up.add_argument("--gpu", default="spark1", help="nodes whose Docker accepts --gpus, comma separated")
    up.add_argument("--data", default=DATA_SIZE, help="size of Docker's disk")
    up.add_argument("--sudo", default="rule", choices=list(SUDO_RULES), help="what milo may do as root")
    up.add_argument("--shell", default="bash", help="milo's login shell")
    verbs.add_parser("down", help="remove everything")
    verbs.add_parser("status", help="what runs")
    for verb in ("sh", "ssh"):
        entry = verbs.add_parser(verb, help="run a command in a node, as root or over SSH as milo")
        entry.add_argument("node", choices=["spark1", "spark2"])
        entry.add_argument("command", nargs=argparse.REMAINDER)
    options = parser.parse_args()
    if reason := why_not():
        sys.exit(reason)
    lab = Lab()
    if options.verb == "up":
        gpus = options.gpu.split(",")
        made = {n: NodeOptions(n in gpus, options.sudo, options.shell, options.data) for n in lab.nodes}
        with hold_lab():
            lab.up(made, talk=True)
            (SCRATCH / "known_hosts").write_text(format_known_hosts())
            BY_HAND.touch()
    elif options.verb == "down":
        with hold_lab():
            begun = time.monotonic()
            lab.down()
        print(f"down in {time.monotonic() - begun:.2f} s; left: {', '.join(lab.remains()) or 'nothing'}")
    elif options.verb == "status":
        _status(lab)
    else:
        _enter(lab, options)


def _status(lab: Lab) -> None:
    for node in lab.nodes.values():
        runs = node.pid1 is not None
        ssh, docker = (runs and node.ssh_answers(), runs and node.docker_answers())
        print(f"{node.name} {node.address} pid1={node.pid1} ssh={ssh} docker={docker}", end=" ")
        print(f"processes={len(cgroups.list_processes(node.name))}")


def _enter(lab: Lab, options: argparse.Namespace) -> None:
    node = lab.nodes[options.node]
    if node.pid1 is None:
        sys.exit(f"{node.name} is not up")
    if options.verb == "sh":
        cgroups.join_cgroups(node.name)
        command = node.enter(*(options.command or ["bash"]))
    else:
        known = f"UserKnownHostsFile={SCRATCH / 'known_hosts'}"
        command = ["ssh", "-i", str(KEYS / "client"), "-o", known, f"{USER}@{node.address}", *options.command]
    os.execvpe(command[0], command, CLEAN_ENV | {"TERM": os.environ.get("TERM", "dumb")})


main()
