"""Detects engines that log a fallback to a slower computation than the GPU supports."""

from __future__ import annotations

from collections.abc import Sequence

from sparkctl.model.finding import Finding, FindingEvidence, FindingKind, Severity
from sparkctl.model.instance import InstanceView


def detect_slow_path(instances: Sequence[InstanceView]) -> list[Finding]:
    """Return a note for each instance with a fallback, naming what it uses instead."""
    return [
        Finding(
            kind=FindingKind.SLOW_PATH, severity=Severity.NOTE, node=one.node,
            summary=f"{one.name} computes by a fallback: {fact.value}, not by the GPU's own arithmetic",
            remedy="an image whose log names a native kernel for this format would use it: the badge says which one runs",
            instance=one.name, evidence=(FindingEvidence(fact.name.value, fact.value, origin="log"),),
        )
        for one in instances if one.ours and one.is_alive
        for fact in one.facts if fact.is_fallback
    ]  # fmt: skip
