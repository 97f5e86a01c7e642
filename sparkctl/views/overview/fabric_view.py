"""The fabric between the Sparks: fast ports, their traffic, and the Spark at the other end if addresses show it.

No Spark knows the machine at the other end of a cable. Two Sparks with addresses of one network on fast ports that
have a carrier are taken as connected. For others only their own ports are known.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from sparkctl.model.fabric_route import find_idle_lanes
from sparkctl.model.node import NodeName
from sparkctl.model.sample import NetworkInterface, RdmaLane, Sample
from sparkctl.model.text.sanitize import sanitize_line
from sparkctl.monitor.meters.metrics_window import sum_known
from sparkctl.views.meter_view import UNKNOWN
from sparkctl.views.overview.tile_model import NodeTileModel
from sparkctl.views.text.styled_text import Span, TextRow, TextStyle, make_row, sanitize_span

_GIGABYTE = 1e9
_IDLE_BYTES_PER_SECOND = 1e6  # bytes/s; the background traffic of two idle nodes is far less
FabricPort = tuple[NetworkInterface, RdmaLane]


def render_fabric(glances: Sequence[NodeTileModel]) -> list[TextRow]:
    """Return a row for each set of Sparks on a common fast network, and for each Spark without a known peer."""
    if len(glances) < 2:
        return []
    ports = {seen.name: found for seen in glances if (found := _find_fast_ports(seen))}
    by_peers: dict[tuple[NodeName, ...], set[str]] = {}
    for network in dict.fromkeys(one for found in ports.values() for one in _list_networks(found)):
        members = tuple(name for name, found in ports.items() if network in _list_networks(found))
        if len(members) > 1:
            by_peers.setdefault(members, set()).add(network)
    rows = []
    for members, networks in by_peers.items():
        first = ports[members[0]]
        used = first if len(by_peers) == 1 else [one for one in first if networks & set(one[0].networks or ())]
        if len(members) > 2:
            rows.append(_render_mesh(members, len(glances), networks, used))
        else:
            rows.append(_render_pair(members, used))
    paired = {name for members in by_peers for name in members}
    return rows + [
        _render_unpaired(name, found, all(seen.is_known and seen.view.sample is not None for seen in glances))
        for name, found in ports.items()
        if name not in paired
    ]


def _render_mesh(members: Sequence[str], count: int, networks: Collection[str], ports: Sequence[FabricPort]) -> TextRow:
    """Return a row for more than two connected Sparks; who sends to whom is not known."""
    line = "═"
    members_text = f"all {count}" if len(members) == count else ", ".join(members)
    return make_row(
        " ",
        Span(f"{line}{line} {_format_speed(ports)} {line}{line} ", TextStyle.LINK),
        sanitize_span(members_text, TextStyle.TITLE),
        sanitize_span(f"   in {' and '.join(sorted(networks))}", TextStyle.LABEL),
    )


def _render_pair(members: Sequence[str], ports: Sequence[FabricPort]) -> TextRow:
    """Return a row for two Sparks, from the counters of the first: what it sends the other receives."""
    line = "═"
    name = f"{line}{line} {_format_speed(ports)} {line}{line}"
    names = (
        sanitize_span(members[0], TextStyle.TITLE),
        Span(f" {name} ", TextStyle.LINK),
        sanitize_span(members[1], TextStyle.TITLE),
    )
    received, sent = (
        sum_known(getattr(half, way) for port in ports for half in port) for way in ("receive_rate", "send_rate")
    )
    return make_row(
        " ",
        *names,
        *_render_throughput(received, sent),
        Span(f"   {len(ports)} functions up" if len(ports) > 1 else "   one function up", TextStyle.LABEL),
    )


def _render_throughput(received: float | None, sent: float | None) -> TextRow:
    """Return the throughput of a link in each direction, or idle if it carries next to nothing."""
    if received is not None and sent is not None and max(received, sent) < _IDLE_BYTES_PER_SECOND:
        return (Span("   idle", TextStyle.LABEL),)
    up, down = ("↑", "↓")
    return make_row(
        Span(f"   {up}", TextStyle.LABEL),
        Span(_format_rate(sent), TextStyle.VALUE),
        Span(f"  {down}", TextStyle.LABEL),
        Span(_format_rate(received), TextStyle.VALUE),
        Span(" GB/s", TextStyle.UNIT),
    )


def _render_unpaired(name: str, ports: Sequence[FabricPort], are_all_seen: bool) -> TextRow:
    """Return the ports of a Spark whose peer is not known. "No peer" is reported only if all other Sparks were seen."""
    words = " and ".join(link.name for link, _ in ports)
    known = are_all_seen and all(link.networks is not None for link, _ in ports)
    why = "no address in common with another Spark" if known else "the other end is not known"
    return make_row(
        " ",
        sanitize_span(name, TextStyle.TITLE),
        Span(f"   {_format_speed(ports)} up: ", TextStyle.LABEL),
        sanitize_span(words, TextStyle.VALUE),
        Span(f"   {why}", TextStyle.LABEL),
    )


def _find_fast_ports(seen: NodeTileModel) -> list[FabricPort]:
    """Return the fabric's interfaces with a carrier: those of RDMA ports."""
    sample = seen.view.sample
    if sample is None or not seen.is_known:
        return []
    ports = {port.interface: port for port in sample.rdma or ()}
    return [(link, ports[link.name]) for link in sample.links or () if link.carrier and link.name in ports]


def _list_networks(ports: Iterable[FabricPort]) -> Collection[str]:
    return dict.fromkeys(network for link, _ in ports for network in link.networks or ())


def _format_speed(ports: Iterable[FabricPort]) -> str:
    fastest = max((link.speed or 0 for link, _ in ports), default=0)
    return f"{fastest / 1000:g}G" if fastest else "?"


def _format_rate(rate: float | None) -> str:
    return f"{'—':>6}" if rate is None else f"{rate / _GIGABYTE:6.1f}"


def format_node_links(sample: Sample, only_idle: bool = False) -> list[list[str]]:
    """Return the cells of each link that is up; ``only_idle``: only links that idle while their other function works."""
    ports = {port.interface: port for port in sample.rdma or ()}
    idle = find_idle_lanes(sample.rdma or ())
    arrows = ("↓", "↑")
    links = [link for link in sample.links or () if link.carrier]
    if only_idle:
        links = [link for link in links if (port := ports.get(link.name)) is not None and port.name in idle]
    return [_format_link_cells(link, ports.get(link.name), idle, arrows) for link in links]


def _format_link_cells(
    link: NetworkInterface, port: RdmaLane | None, idle: dict[str, str], arrows: tuple[str, str]
) -> list[str]:
    cells = [sanitize_line(link.name)]
    if link.speed is not None:
        cells.append(f"{link.speed / 1000:g} Gb/s")
    if link.mtu is not None:
        cells.append(f"MTU {link.mtu}")
    cells.append(_format_traffic(link, arrows))
    if port is not None:
        cells.append(f"RDMA {sanitize_line(port.name)} {_format_traffic(port, arrows)}")
        if port.name in idle:
            cells.append(f"IDLE while {sanitize_line(idle[port.name])} works: half of the link is unused")
    return cells


def _format_traffic(one: NetworkInterface | RdmaLane, arrows: tuple[str, str]) -> str:
    down, up = arrows
    return f"{down} {_format_link_rate(one.receive_rate)} {up} {_format_link_rate(one.send_rate)}"


def _format_link_rate(rate: float | None) -> str:
    if rate is None:
        return UNKNOWN
    for unit, size in (("GB/s", 1e9), ("MB/s", 1e6), ("kB/s", 1e3)):
        if rate >= size:
            return f"{rate / size:.1f} {unit}"
    return f"{rate:.0f} B/s"
