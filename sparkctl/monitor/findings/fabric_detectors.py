"""Detects fabric problems: an idle function of a port, no route, no cable, no common network; and wrong NCCL settings in containers
that use the fabric: a wrong GID index, RDMA switched off.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from sparkctl.model.fabric_route import has_idle_lane, pair_lanes, sum_lane_rates
from sparkctl.model.finding import Finding, FindingEvidence, FindingKind, Severity
from sparkctl.model.instance import InstanceView
from sparkctl.model.sample import NetworkInterface, RdmaGid, RdmaLane, Sample
from sparkctl.monitor.findings import Detector, NodeSnapshot

BOTH_LANES_SETTING = "NCCL_IB_HCA=rocep1s0f0,roceP2p1s0f0"
_MIN_ACTIVE_BYTES_PER_SECOND = 1e6  # bytes/s


class IdleLaneDetector(Detector):
    """One function of a port moves data and its twin does not: half of the fabric is idle (13.8 Gb/s and 0).

    At least 1 Gb/s on one and less than a fiftieth of it on the other, for 30 s. A full link needs both: 92.57 +
    97.28 Gb/s in NVIDIA's own measurement, as each function is a PCIe Gen5 x4.
    """

    SECONDS = 30.0

    def detect(self, snapshot: NodeSnapshot) -> list[Finding]:
        found = []
        links = {link.name: link for link in snapshot.sample.links or ()}
        for pair in pair_lanes(snapshot.sample.rdma or ()):
            standing = self._lasting.update_condition(pair[0].name, has_idle_lane(pair), snapshot.sample)
            if standing is None:
                continue
            idle, busy = sorted(pair, key=lambda port: sum_lane_rates(port) or 0.0)
            evidence = (
                FindingEvidence(busy.name, _format_gigabits(busy), "Gb/s", "rdma counters"),
                FindingEvidence(idle.name, _format_gigabits(idle), "Gb/s", "rdma counters"),
                FindingEvidence(f"{idle.name} state", idle.state or "not known", None, "sysfs"),
            )
            found.append(
                Finding(
                    FindingKind.IDLE_FUNCTION,
                    Severity.WARNING,
                    snapshot.node,
                    f"{busy.name} moves {_format_gigabits(busy)} Gb/s and its other function {idle.name} nothing: "
                    "half of the link is idle",
                    remedy=_format_lane_remedy(idle, links.get(idle.interface or "")),
                    evidence=evidence,
                    since=standing.since,
                )
            )
        return found


def _format_lane_remedy(idle: RdmaLane, link: NetworkInterface | None) -> str:
    name = idle.interface or idle.name
    if link is not None and link.networks:
        return (
            f"name both functions to NCCL, on both Sparks: {BOTH_LANES_SETTING}; {name} has an address already: check that the "
            "other Spark answers a ping through it"
        )
    return f"give {name} an address on both Sparks and name both functions to NCCL: {BOTH_LANES_SETTING}"


def _format_gigabits(port: RdmaLane) -> str:
    return f"{(sum_lane_rates(port) or 0.0) * 8 / 1e9:.1f}"


class MissingRouteDetector(Detector):
    """A ConnectX port has a cable but no IPv4 network on its functions, so nothing can use it; for 60 s.

    If only one of the two functions has no network, it is a note: the link works at half speed.
    """

    SECONDS = 60.0

    def detect(self, snapshot: NodeSnapshot) -> list[Finding]:
        """Return one finding for each port without a network, or with one on half of it."""
        links = {link.name: link for link in snapshot.sample.links or ()}
        found = []
        for pair in pair_lanes(snapshot.sample.rdma or ()):
            bare = _find_unaddressed_interfaces(
                [links.get(one.interface or "") for one in pair], _find_active_interfaces(pair)
            )
            standing = self._lasting.update_condition(
                pair[0].name, None if bare is None else bool(bare), snapshot.sample
            )
            if standing is None or bare is None:
                continue
            names = " and ".join(link.name for link in bare)
            whole = len(bare) == 2
            found.append(
                Finding(
                    FindingKind.FABRIC_ROUTE,
                    Severity.WARNING if whole else Severity.NOTE,
                    snapshot.node,
                    f"{names}: the link is up and no IPv4 network is on {'either' if whole else 'it'}: "
                    + ("the other Spark cannot be reached over it" if whole else "NCCL can use half of the cable"),
                    remedy="sparkctl setup",
                    evidence=tuple(
                        FindingEvidence(link.name, f"{(link.speed or 0) / 1000:g} Gb/s, no network", None, "sysfs")
                        for link in bare
                    ),
                    since=standing.since,
                )
            )
        return found


def _find_active_interfaces(pair: Sequence[RdmaLane]) -> set[str]:
    """Return the interfaces of functions that move data: these have some route."""
    return {
        one.interface
        for one in pair
        if one.interface is not None and (sum_lane_rates(one) or 0.0) >= _MIN_ACTIVE_BYTES_PER_SECOND
    }


def _find_unaddressed_interfaces(
    ends: Sequence[NetworkInterface | None], at_work: set[str]
) -> list[NetworkInterface] | None:
    """Return the interfaces without a network; none unless both have a carrier, None if that is not known."""
    known = [link for link in ends if link is not None and link.carrier is not None]
    if len(known) < 2:
        return None
    if not all(link.carrier for link in known):
        return []
    return (
        None
        if any(link.networks is None for link in known)
        else [link for link in known if not link.networks and link.name not in at_work]
    )


def detect_missing_cable(snapshots: Sequence[NodeSnapshot]) -> list[Finding]:
    """Return a finding for each of several nodes whose fast ports are all known and have no carrier."""
    if len(snapshots) < 2:
        return []
    found = []
    for snapshot in snapshots:
        links = {link.name: link for link in snapshot.sample.links or ()}
        ports = [links.get(one.interface or "") for one in snapshot.sample.rdma or ()]
        if not ports or any(port is None or port.carrier is not False for port in ports):
            continue
        names = ", ".join(port.name for port in ports if port is not None)
        found.append(
            Finding(
                FindingKind.FABRIC,
                Severity.NOTE,
                snapshot.node,
                f"no cable is connected: none of its fast ports ({names}) has a link",
                remedy="for models over several Sparks: plug the cable in at both ends, then: sparkctl doctor --fabric",
            )
        )
    return found


def detect_missing_network(snapshots: Sequence[NodeSnapshot]) -> list[Finding]:
    """Return a finding if two nodes have networks on their cabled ConnectX functions, but none in common."""
    networks = {snapshot.node: _list_fabric_networks(snapshot.sample) for snapshot in snapshots}
    cabled = {node: own for node, own in networks.items() if own}
    found = []
    for node, own in cabled.items():
        others = set().union(*(theirs for other, theirs in cabled.items() if other != node))
        if others and not own & others:
            found.append(
                Finding(
                    FindingKind.FABRIC_ROUTE,
                    Severity.WARNING,
                    node,
                    "its fabric has no network in common with the other Spark's: there is no route between them",
                    remedy="give the functions of one cable addresses of one network on both Sparks, then ping them",
                    evidence=(
                        FindingEvidence("here", ", ".join(sorted(own)), None, "routes"),
                        FindingEvidence("there", ", ".join(sorted(others)), None, "routes"),
                    ),
                )
            )
    return found


def _list_fabric_networks(sample: Sample) -> set[str]:
    fabric = {port.interface for port in sample.rdma or ()}
    links = [link for link in sample.links or () if link.name in fabric and link.carrier]
    return {network for link in links for network in link.networks or ()}


_ACTIVE_STATE = "ACTIVE"
_ROCE_V2_TYPE = "RoCE v2"


class NcclGidDetector(Detector):
    """A running container uses a GID index that is not a RoCE v2 address of IPv4 on this node.

    The index differs between hosts (3, 5, 2 ...), and NCCL has no fallback for a wrong one: it hangs or fails. Needs the
    container's inspection and the port's GID table; checks the functions in NCCL_IB_HCA, otherwise all active ones.
    """

    def detect(self, snapshot: NodeSnapshot) -> list[Finding]:
        found = []
        for one in snapshot.instances or ():
            index = _get_gid_index(one)
            if index is None or not one.is_alive:
                continue
            ports = _list_nccl_lanes(one, snapshot.sample)
            judged = [port for port in ports if port.gids is not None]
            wrong = [port for port in judged if not _is_valid_gid(port, index)]
            claim = bool(wrong) if judged else None
            standing = self._lasting.update_condition(one.container_id, claim, snapshot.sample)
            if standing is not None:
                found.append(_build_gid_finding(snapshot, one, index, wrong, standing.since))
        return found


def _build_gid_finding(
    snapshot: NodeSnapshot, one: InstanceView, index: int, wrong: Sequence[RdmaLane], since: float | None
) -> Finding:
    evidence = [FindingEvidence("NCCL_IB_GID_INDEX", str(index), None, f"container {one.container}")]
    evidence += [
        FindingEvidence(f"{port.name} index {index}", _describe_gid(port, index), None, "sysfs") for port in wrong
    ]
    right = sorted({gid.index for port in wrong for gid in port.gids or () if _is_roce_v2_ipv4(gid)})
    evidence += [FindingEvidence("RoCE v2 with IPv4", ", ".join(map(str, right)) or "nowhere", None, "sysfs")]
    remedy = (
        f"leave NCCL_IB_GID_INDEX out of env: NCCL 2.21 and later find the right one ({right[0]} on {snapshot.node} now), and it may change"
        if right
        else "give the function an IPv4 address first: then it has such a GID"
    )
    link_local = all((_find_gid(port, index) or RdmaGid(index)).type == _ROCE_V2_TYPE for port in wrong)
    summary = f"{one.name} uses GID index {index}, which is not a RoCE v2 IPv4 address on {wrong[0].name}"
    return Finding(
        FindingKind.GID,
        Severity.WARNING if link_local else Severity.PROBLEM,
        snapshot.node,
        summary,
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


def detect_rdma_disabled(snapshots: Sequence[NodeSnapshot]) -> list[Finding]:
    """Return a finding if an instance on both nodes has NCCL_IB_DISABLE=1: its tensors go through the kernel's TCP stack."""
    ours = [(snapshot, one) for snapshot in snapshots for one in snapshot.instances or () if one.ours and one.is_alive]
    nodes: dict[str, set[str]] = {}
    for snapshot, one in ours:
        nodes.setdefault(one.name, set()).add(snapshot.node)
    return [
        Finding(
            FindingKind.RDMA_OFF,
            Severity.WARNING,
            snapshot.node,
            f"{one.name} runs on two Sparks with RDMA switched off",
            remedy="take NCCL_IB_DISABLE out of its env (or set it to 0) and name both functions: "
            + BOTH_LANES_SETTING,
            instance=one.name,
            evidence=(FindingEvidence("NCCL_IB_DISABLE", "1", None, f"container {one.container}"),),
        )
        for snapshot, one in ours
        if len(nodes[one.name]) > 1 and one.get_nccl_variable("NCCL_IB_DISABLE") == "1"
    ]
