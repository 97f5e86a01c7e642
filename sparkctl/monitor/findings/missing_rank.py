"""A model on several Sparks of which a part is gone."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from sparkctl.model.finding import Finding, FindingEvidence, FindingKind, Severity
from sparkctl.model.phase import Phase
from sparkctl.monitor.findings.base import NodeSnapshot
from sparkctl.monitor.ranks import count_ranks, find_ranks


def detect_missing_rank(sights: Sequence[NodeSnapshot]) -> list[Finding]:
    """Return a finding for each part that is ready, as it can only get with the others, while another of them is nowhere.

    ``sights`` are of all nodes: one that was not looked at, or a model on more Sparks than these, proves no absence.
    """
    if any(sight.instances is None for sight in sights):
        return []
    there = [one for sight in sights for one in sight.instances or ()]
    found = []
    for one in there:
        wanted, seen = count_ranks(one), len(find_ranks(one, there))
        if one.phase is Phase.READY and one.is_alive and seen < wanted <= len(sights):
            found.append(
                Finding(
                    kind=FindingKind.PARTNER,
                    severity=Severity.PROBLEM,
                    node=one.node,
                    summary=f"{one.name} is left alone: of its {wanted} parts only {seen} runs, and it answers nobody",
                    remedy=f"sparkctl down {shlex.quote(one.name)}, then start the model anew on all its Sparks",
                    instance=one.name,
                    evidence=(FindingEvidence("parts", f"{seen} of {wanted}", None, "docker"),),
                )
            )
    return found
