"""``top`` as text, a block a node, and as one JSON document."""

from __future__ import annotations

from collections.abc import Sequence

from sparkctl.core.record import plain
from sparkctl.core.store import InstanceView, LoadView
from sparkctl.model.node import NodeState
from sparkctl.model.phase import Phase
from sparkctl.model.sample import Cpu, DiskRoom, Gpu, MemoryBar, NetLink, RdmaPort, Sample, Temperature
from sparkctl.model.text import clean
from sparkctl.model.units import GIB, gib, spoken
from sparkctl.present.numbers import figures
from sparkctl.present.status_table import in_order, instance_lines
from sparkctl.present.symbols import symbol

REASONS = {
    0x2: "application clocks",
    0x4: "power cap",
    0x8: "hardware slowdown",
    0x10: "sync boost",
    0x20: "thermal (software)",
    0x40: "thermal (hardware)",
    0x80: "power brake",
    0x100: "display clock",
}  # 0x1 is idle
_BAR = 40
_OLD = 15.0  # seconds: Docker is asked every five, and has ten to answer
_PARTS = ("█▓░ ", "#=. ")  # GPU processes, other used, page cache, free


def top_document(views: Sequence[LoadView]) -> dict[str, object]:
    """Return the document of ``top --json``, schema 1: fields are added, never renamed."""
    return {
        "schema": 1,
        "nodes": [_node_document(view) for view in views],
        "instances": [_instance_document(instance, view) for view in views for instance in view.instances],
    }


def _instance_document(instance: InstanceView, view: LoadView) -> dict[str, object]:
    body = plain(instance)
    assert isinstance(body, dict)
    return body | {"seen": plain(view.instances_seen)}


def _node_document(view: LoadView) -> dict[str, object]:
    sample = plain(view.sample) if view.sample is not None else {}
    assert isinstance(sample, dict)
    head = {"name": view.name, "state": view.state.value, "detail": view.detail, "hint": view.hint}
    if view.sample is not None:
        sample["rdma"] = [_port_document(port) for port in view.sample.rdma or ()]
    return (
        head
        | {"when": round(view.when, 3), "docker_known": view.docker_known, "instances_seen": plain(view.instances_seen)}
        | sample
        | {"memory": plain(view.memory)}
    )


def _port_document(port: RdmaPort) -> dict[str, object]:
    body = plain(port)
    assert isinstance(body, dict)
    return body | {"errors": dict(port.errors)}


def top_lines(views: Sequence[LoadView], ascii_only: bool = False) -> list[str]:
    """Return the lines of the whole picture."""
    lines: list[str] = []
    for view in views:
        lines += ([""] if lines else []) + _node(view, ascii_only)
    return lines


def _node(view: LoadView, ascii_only: bool) -> list[str]:
    head = f"{symbol(view.state, ascii_only)} {view.name}"
    hint = [f"    try: {clean(view.hint)}"] if view.hint else []
    nothing = view.sample is None and view.memory is None and not view.instances
    if view.state is not NodeState.OK or nothing:
        return [f"{head}   {view.state}" + (f": {clean(view.detail)}" if view.detail else ""), *hint]
    lines = [head, *_memory_lines(view.memory, view.sample, ascii_only)]
    if view.sample is not None:
        lines += _gpu_lines(view.sample, ascii_only)
        lines += [_cpu_line(view.sample.cpu, view.sample.temperatures or (), ascii_only)]
        lines += _link_lines(view.sample, ascii_only)
        lines += [_disk_line(disk) for disk in view.sample.disks or ()]
    if not view.docker_known:
        lines += [f"    Docker: {clean(view.detail or 'no answer')}", *hint]
    if view.instances_seen is None and not view.instances:
        return lines + (["    what runs is not known yet"] if view.docker_known else [])
    age = 0.0 if view.instances_seen is None else view.when - view.instances_seen
    if age > _OLD or not view.docker_known:
        lines.append(f"    as of {spoken(age)} ago:")
    return lines + _instances(view.instances, ascii_only)


def _instances(instances: Sequence[InstanceView], ascii_only: bool) -> list[str]:
    """Return a row for each instance, and under one of ours that is ready its engine's figures."""
    rows = instance_lines(instances, ascii_only)
    if not instances:
        return rows
    lines: list[str] = []
    for one, row in zip(in_order(instances), rows, strict=True):
        lines.append(row)
        if one.ours and one.phase is Phase.READY and one.port is not None:
            lines.append(f"      {_figures(one, ascii_only)}")
    return lines


def _figures(instance: InstanceView, ascii_only: bool) -> str:
    words = figures(instance.numbers)
    if ascii_only:
        words = words.replace(" · ", ", ").replace("—", "-")
    hint = instance.metrics_hint
    return words if hint is None else f"{words}   /metrics is off; in the profile: {hint}"


def _memory_lines(bar: MemoryBar | None, sample: Sample | None, ascii_only: bool) -> list[str]:
    if bar is None:
        return [_row("memory", "—")]
    gpu = _missing(ascii_only) if bar.gpu_processes is None else f"{bar.gpu_processes / GIB:.1f}"
    words = (
        f"{memory_cells(bar, ascii_only)} {gib(bar.total)}   GPU processes {gpu}   other {bar.other_used / GIB:.1f}   "
        f"page cache {bar.page_cache / GIB:.1f}   free {bar.free / GIB:.1f}"
    )
    more = f"swap {gib(bar.swap_used)}"
    pressure = sample.detail.pressure if sample is not None and sample.detail is not None else None
    if pressure is not None and pressure.some is not None:
        more += f"   pressure {pressure.some * 100:.0f} %"
    return [_row("memory", words), _row("", f"available {gib(bar.available)}   {more}")]


def memory_cells(bar: MemoryBar, ascii_only: bool) -> str:
    """Return the four parts as one bar."""
    marks = _PARTS[1 if ascii_only else 0]
    ends, cells, upto = "[]" if ascii_only else "▕▏", "", 0
    for mark, size in zip(marks, (bar.gpu_processes or 0, bar.other_used, bar.page_cache, bar.free), strict=True):
        upto += size
        cells += mark * (round(upto / bar.total * _BAR) - len(cells))
    return f"{ends[0]}{cells}{ends[1]}"


def _gpu_lines(sample: Sample, ascii_only: bool) -> list[str]:
    if sample.gpu_silent_for is not None:
        return [_row("GPU", f"no answer for {sample.gpu_silent_for:.0f} s")]
    if not sample.gpus:
        return [_row("GPU", clean(sample.gpu_trouble or _missing(ascii_only)))]
    return [_row("GPU", _gpu(gpu, ascii_only)) for gpu in sample.gpus]


def _gpu(gpu: Gpu, ascii_only: bool) -> str:
    none = _missing(ascii_only)
    degrees = " C" if ascii_only else " °C"
    words = [
        _share(gpu.busy, none),
        f"{none if gpu.sm_clock is None else gpu.sm_clock} of {none if gpu.sm_clock_max is None else gpu.sm_clock_max} MHz",
        f"{none if gpu.power is None else format(gpu.power, '.0f')} W",
        (none if gpu.celsius is None else format(gpu.celsius, ".0f")) + degrees,
        none if gpu.pstate is None else f"P{gpu.pstate}",
    ]
    reasons = [name for bit, name in REASONS.items() if (gpu.reasons or 0) & bit]
    if reasons:
        words.append("held back by " + ", ".join(reasons))
    if gpu.bandwidth_share is not None:
        words.append(f"memory bandwidth {_share(gpu.bandwidth_share, none)}")
    return "   ".join(words)


def _cpu_line(cpu: Cpu | None, temperatures: Sequence[Temperature], ascii_only: bool) -> str:
    none = _missing(ascii_only)
    if cpu is None:
        return _row("CPU", none)
    words = [_share(cpu.busy, none)]
    if len(cpu.clusters) > 1:
        words += [f"{len(cluster.cores)} cores {_share(cluster.busy, none)}" for cluster in cpu.clusters]
    if cpu.load:
        words.append("load " + " ".join(f"{load:.2f}" for load in cpu.load))
    hottest: dict[str, float] = {}
    for one in temperatures:
        hottest[one.chip] = max(one.celsius, hottest.get(one.chip, one.celsius))
    degrees = "C" if ascii_only else "°C"
    words += [f"{clean(chip)} {celsius:.0f} {degrees}" for chip, celsius in sorted(hottest.items())]
    return _row("CPU", "   ".join(words))


def _link_lines(sample: Sample, ascii_only: bool) -> list[str]:
    """Return the links that are up; an RDMA port stands behind its interface, whose own counters do not see it."""
    ports = {port.interface: port for port in sample.rdma or ()}
    return [_row("link", _link(link, ports.get(link.name), ascii_only)) for link in sample.links or () if link.carrier]


def _link(link: NetLink, port: RdmaPort | None, ascii_only: bool) -> str:
    speed = "" if link.speed is None else f"   {link.speed / 1000:g} Gb/s"
    mtu = "" if link.mtu is None else f"   MTU {link.mtu}"
    words = f"{clean(link.name)}{speed}{mtu}   {_traffic(link, ascii_only)}"
    if port is not None:
        words += f"   RDMA {clean(port.name)} {_traffic(port, ascii_only)}"
    return words


def _traffic(one: NetLink | RdmaPort, ascii_only: bool) -> str:
    down, up = ("in", "out") if ascii_only else ("↓", "↑")
    none = _missing(ascii_only)
    return f"{down} {_rate(one.receive_rate, none)} {up} {_rate(one.send_rate, none)}"


def _rate(rate: float | None, none: str) -> str:
    if rate is None:
        return none
    for unit, size in (("GB/s", 1e9), ("MB/s", 1e6), ("kB/s", 1e3)):
        if rate >= size:
            return f"{rate / size:.1f} {unit}"
    return f"{rate:.0f} B/s"


def _disk_line(disk: DiskRoom) -> str:
    words = "not there" if disk.total is None else f"{gib(disk.free)} free of {gib(disk.total)}"
    return _row("disk", f"{clean(disk.path)}   {words}")


def _share(share: float | None, none: str) -> str:
    return none if share is None else f"{share * 100:.0f} %"


def _missing(ascii_only: bool) -> str:
    return "-" if ascii_only else "—"


def _row(name: str, words: str) -> str:
    return f"    {name:<6}  {words}"
