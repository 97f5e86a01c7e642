"""Detects wrong NCCL settings in containers that use the fabric: a wrong GID index, RDMA switched off."""

from __future__ import annotations

import re
from collections.abc import Sequence

from sparkctl.model.finding import Finding, FindingEvidence, FindingKind, Severity
from sparkctl.model.instance import InstanceView
from sparkctl.model.sample import RdmaGid, RdmaLane, Sample
from sparkctl.monitor.findings.base import ConditionTimer, NodeSnapshot
from sparkctl.monitor.findings.fabric_detectors import BOTH_LANES_SETTING

_ACTIVE_STATE = "ACTIVE"
_ROCE_V2_TYPE = "RoCE v2"


class NcclGidDetector:
    """A running container uses a GID index that is not a RoCE v2 address of IPv4 on this node.

    The index differs between hosts (3, 5, 2 ...), and NCCL has no fallback for a wrong one: it hangs or fails. Needs the
    container's inspection and the port's GID table; checks the functions in NCCL_IB_HCA, otherwise all active ones.
    """

    def __init__(self) -> None:
        self._lasting = ConditionTimer()

    def detect(self, sight: NodeSnapshot) -> list[Finding]:
        """Return one finding for each such container."""
        found = []
        for one in sight.instances or ():
            index = _get_gid_index(one)
            if index is None or not one.is_alive:
                continue
            ports = _list_nccl_lanes(one, sight.sample)
            judged = [port for port in ports if port.gids is not None]
            wrong = [port for port in judged if not _is_valid_gid(port, index)]
            claim = bool(wrong) if judged else None
            standing = self._lasting.update_condition(one.container_id, claim, sight.sample)
            if standing is not None:
                found.append(_build_gid_finding(sight, one, index, wrong, standing.since))
        return found


def _build_gid_finding(
    sight: NodeSnapshot, one: InstanceView, index: int, wrong: Sequence[RdmaLane], since: float | None
) -> Finding:
    evidence = [FindingEvidence("NCCL_IB_GID_INDEX", str(index), None, f"container {one.container}")]
    evidence += [
        FindingEvidence(f"{port.name} index {index}", _describe_gid(port, index), None, "sysfs") for port in wrong
    ]
    right = sorted({gid.index for port in wrong for gid in port.gids or () if _is_roce_v2_ipv4(gid)})
    evidence += [FindingEvidence("RoCE v2 with IPv4", ", ".join(map(str, right)) or "nowhere", None, "sysfs")]
    remedy = (
        f"on {sight.node} set env NCCL_IB_GID_INDEX={right[0]}, or leave it unset: NCCL 2.21 and later find it"
        if right
        else "give the function an IPv4 address first: then it has such a GID"
    )
    link_local = all((_find_gid(port, index) or RdmaGid(index)).type == _ROCE_V2_TYPE for port in wrong)
    summary = f"{one.name} uses GID index {index}, which is not a RoCE v2 IPv4 address on {wrong[0].name}"
    return Finding(
        kind=FindingKind.GID,
        severity=Severity.WARNING if link_local else Severity.PROBLEM,
        node=sight.node,
        summary=summary,
        remedy=remedy,
        instance=one.name,
        evidence=tuple(evidence),
        since=since,
    )


def _get_gid_index(one: InstanceView) -> int | None:
    text = one.get_nccl_variable("NCCL_IB_GID_INDEX") or ""
    return int(text) if re.fullmatch(r"[0-9]{1,3}", text) else None


def _list_nccl_lanes(one: InstanceView, sample: Sample) -> list[RdmaLane]:
    """Return the functions NCCL uses: by the prefix match that its ^ and = change; otherwise all active ones."""
    active = [port for port in sample.rdma or () if _ACTIVE_STATE in (port.state or "")]
    named = one.get_nccl_variable("NCCL_IB_HCA") or ""
    words = [word.partition(":")[0] for word in named.lstrip("^=").split(",") if word]
    if not words or named.startswith("^"):
        return active
    exact = named.startswith("=")
    return [p for p in active if any(p.name == word if exact else p.name.startswith(word) for word in words)]


def _is_valid_gid(port: RdmaLane, index: int) -> bool:
    gid = _find_gid(port, index)
    return gid is not None and _is_roce_v2_ipv4(gid)


def _is_roce_v2_ipv4(gid: RdmaGid) -> bool:
    return gid.type == _ROCE_V2_TYPE and gid.address is not None and ":" not in gid.address


def _find_gid(port: RdmaLane, index: int) -> RdmaGid | None:
    return next((gid for gid in port.gids or () if gid.index == index), None)


def _describe_gid(port: RdmaLane, index: int) -> str:
    gid = _find_gid(port, index)
    return "not in use" if gid is None else f"{gid.type or 'of unknown type'} {gid.address or ''}".strip()


def detect_rdma_disabled(sights: Sequence[NodeSnapshot]) -> list[Finding]:
    """Return a finding if an instance on both nodes has NCCL_IB_DISABLE=1: its tensors go through the kernel's TCP stack."""
    ours = [(sight, one) for sight in sights for one in sight.instances or () if one.ours and one.is_alive]
    nodes: dict[str, set[str]] = {}
    for sight, one in ours:
        nodes.setdefault(one.name, set()).add(sight.node)
    return [
        Finding(
            kind=FindingKind.RDMA_OFF,
            severity=Severity.WARNING,
            node=sight.node,
            summary=f"{one.name} runs on two Sparks with RDMA switched off",
            remedy="take NCCL_IB_DISABLE out of its env (or set it to 0) and name both functions: "
            + BOTH_LANES_SETTING,
            instance=one.name,
            evidence=(FindingEvidence("NCCL_IB_DISABLE", "1", None, f"container {one.container}"),),
        )
        for sight, one in ours
        if len(nodes[one.name]) > 1 and one.get_nccl_variable("NCCL_IB_DISABLE") == "1"
    ]
