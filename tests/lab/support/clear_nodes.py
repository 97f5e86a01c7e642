"""Nodes of the lab as new: without containers, journals and guards of what was tried on them before."""

from __future__ import annotations

import signal

from tests.lab.bed.lab import Lab

GUARD = "sparkctl-guard"


def clear_nodes(lab: Lab) -> None:
    """Remove every container, and what a switch that was left has written.

    A test that failed while the lab was down takes no others with it: it is brought up again.
    """
    if any(node.pid1 is None for node in lab.nodes.values()):
        lab.up()
    for node in lab.nodes.values():
        node.remove_journal()
        node.remove_containers()


def end_guards(lab: Lab) -> None:
    """End every guard and remove its receipts: a guard stays for a minute after its last watch."""
    for node in lab.nodes.values():
        node.signal(signal.SIGKILL, GUARD)
        node.sh("sh", "-c", "rm -rf /tmp/sparkctl-guard-*")
