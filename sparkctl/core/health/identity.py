"""What a node says of itself once: settings that bite, a watchdog set too sharp, versions that differ between nodes."""

from __future__ import annotations

from collections.abc import Mapping

from sparkctl.model.finding import Figure, Finding, FindingKind, Severity
from sparkctl.model.node import NodeName
from sparkctl.model.units import GIB, KIB, gib
from sparkctl.probe.decode import Hello

_RESERVE = 2 * GIB
_USUAL_SWAPPINESS = 60


def settings(node: NodeName, who: Hello) -> list[Finding]:
    """Return the kernel settings that take memory from engines or push them into swap.

    min_free_kbytes: a reserve of 5 GiB made an engine fail with 9.71 GiB free, 1 GiB is what owners settled on. Above the
    default of 60, swappiness has the kernel swap out an engine rather than give page cache back.
    """
    running = dict(who.sysctl)
    found = []
    reserve = running.get("min_free_kbytes")
    if reserve is not None and reserve * KIB > _RESERVE:
        found.append(
            Finding(
                FindingKind.MIN_FREE,
                Severity.WARNING,
                node,
                f"vm.min_free_kbytes reserves {gib(reserve * KIB)} that no engine can have",
                "sudo sysctl -w vm.min_free_kbytes=1048576   (and the same in /etc/sysctl.d)",
                evidence=(Figure("vm.min_free_kbytes", str(reserve), "KiB", "sysctl"),),
            )
        )
    swappiness = running.get("swappiness")
    if swappiness is not None and swappiness > _USUAL_SWAPPINESS:
        found.append(
            Finding(
                FindingKind.SWAPPINESS,
                Severity.NOTE,
                node,
                f"vm.swappiness is {swappiness}: the kernel rather swaps an engine out than gives page cache back",
                "sudo sysctl -w vm.swappiness=1   (and the same in /etc/sysctl.d)",
                evidence=(Figure("vm.swappiness", str(swappiness), None, "sysctl"),),
            )
        )
    return found


def versions(identities: Mapping[NodeName, Hello]) -> list[Finding]:
    """Return one finding for each thing in which nodes that must work together differ: driver, kernel, DGX OS."""
    found = []
    for name, word, severity in (
        ("driver", "NVIDIA driver", Severity.WARNING),
        ("kernel", "kernel", Severity.NOTE),
        ("os", "DGX OS", Severity.NOTE),
    ):
        said = {node: getattr(who, name) for node, who in identities.items() if getattr(who, name)}
        if len(set(said.values())) < 2:
            continue
        figures = tuple(Figure(node, value, None, "identity") for node, value in said.items())
        parts = ", ".join(f"{value} on {node}" for node, value in said.items())
        found += [
            Finding(
                FindingKind.VERSIONS,
                severity,
                node,
                f"the {word} is not the same everywhere: {parts}",
                "bring both Sparks to the same DGX OS release: sudo apt update && sudo apt full-upgrade, then restart",
                evidence=figures,
            )
            for node in said
        ]
    return found
