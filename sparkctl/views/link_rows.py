"""A node's links in ``top``: RDMA beside its interface, whose own counters do not see it; a function left idle is named."""

from __future__ import annotations

from sparkctl.model.links import find_idle_lanes
from sparkctl.model.sample import NetworkInterface, RdmaLane, Sample
from sparkctl.model.sanitize import sanitize_line
from sparkctl.views.meter_view import UNKNOWN


def format_node_links(sample: Sample, ascii_only: bool = False, only_idle: bool = False) -> list[list[str]]:
    """Return the cells of each link that is up; ``only_idle``: of those that idle while their other function works."""
    ports = {port.interface: port for port in sample.rdma or ()}
    idle = find_idle_lanes(sample.rdma or ())
    arrows = ("in", "out") if ascii_only else ("↓", "↑")
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
    cells.append(_traffic(link, arrows))
    if port is not None:
        cells.append(f"RDMA {sanitize_line(port.name)} {_traffic(port, arrows)}")
        if port.name in idle:
            cells.append(f"IDLE while {sanitize_line(idle[port.name])} works: half of the link is unused")
    return cells


def _traffic(one: NetworkInterface | RdmaLane, arrows: tuple[str, str]) -> str:
    down, up = arrows
    return f"{down} {_format_link_rate(one.receive_rate)} {up} {_format_link_rate(one.send_rate)}"


def _format_link_rate(rate: float | None) -> str:
    if rate is None:
        return UNKNOWN
    for unit, size in (("GB/s", 1e9), ("MB/s", 1e6), ("kB/s", 1e3)):
        if rate >= size:
            return f"{rate / size:.1f} {unit}"
    return f"{rate:.0f} B/s"
