"""Decode a line of the agent. Strict about the protocol, tolerant of fields that a newer agent may add.

A field that is missing or has another type is None: not known. Data from a node is not trusted.
"""

from __future__ import annotations

from dataclasses import replace

from sparkctl.model.json_codec import from_json_data
from sparkctl.model.lazy_dataclass import dataclass
from sparkctl.model.sample import Sample
from sparkctl.model.text.sanitize import load_json, sanitize_line, truncate_text

AGENT_PROTOCOL = 1  # what the agent of this version speaks; to import the agent takes a hundredth of `status`
_MAX_LINES, _MAX_LINE_CHARS = 64, 400  # of the kernel, in one sample: what it sends at most


@dataclass(frozen=True, slots=True)
class SysctlSetting:
    """The value of a kernel setting (vm.``name``) after the next restart, and the file that sets it."""

    name: str
    value: int
    file: str


@dataclass(frozen=True, slots=True)
class SwapDevice:
    """One swap partition or file, bytes."""

    path: str
    kind: str | None = None
    total: int | None = None
    used: int | None = None


@dataclass(frozen=True, slots=True)
class EarlyoomStatus:
    """``argv``: how it runs, None if it does not; ``configured``: the arguments in /etc/default/earlyoom."""

    version: str | None = None
    argv: tuple[str, ...] | None = None
    configured: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentHello:
    """The node's identity. ``sysctl``: running kernel settings (vm.) by name; ``up``: seconds since boot.

    ``docker``, ``toolkit``: versions of the installed packages. ``earlyoom`` None: not installed. ``bios``, ``nic_firmware``:
    versions of the machine's firmware and of its ConnectX cards'.
    """

    host: str | None = None
    kernel: str | None = None
    machine: str | None = None
    boot_id: str | None = None
    product: str | None = None
    driver: str | None = None
    os: str | None = None
    distribution: str | None = None
    python: str | None = None
    docker: str | None = None
    toolkit: str | None = None
    up: float | None = None
    sysctl: tuple[tuple[str, int | None], ...] = ()
    configured: tuple[SysctlSetting, ...] = ()
    swaps: tuple[SwapDevice, ...] | None = None
    earlyoom: EarlyoomStatus | None = None
    bios: str | None = None
    nic_firmware: str | None = None


RepeatedFields = dict[str, tuple[object, object]]
# The agent reads them less often than it sends.
_REPEATED_FIELDS = ("temperatures", "disks", "links", "rdma", "processes")


def decode_agent_line(line: bytes, repeated: RepeatedFields | None = None) -> AgentHello | Sample:
    """Return the content of a line. Raises ValueError if it is not a line of this protocol.

    ``repeated``: what the last line of this agent said of some fields, and what that means: what is the same is not decoded again.
    """
    try:
        data = load_json(line)
    except ValueError as wrong:
        raise ValueError(f"not a line of the probe: {line[:80]!r}") from wrong
    if not isinstance(data, dict) or data.get("probe") != AGENT_PROTOCOL:
        raise ValueError(f"not protocol {AGENT_PROTOCOL} of the probe: {line[:80]!r}")
    kind = data.get("kind")
    found: AgentHello | Sample | None
    if kind == "hello":
        found = from_json_data(AgentHello, data.get("identity"), is_strict=False)
    elif kind == "sample":
        found = _sanitize_kernel_lines(_decode_sample(data, {} if repeated is None else repeated))
    else:
        raise ValueError(f"the probe does not say such things: {kind!r}")
    if found is None:
        raise ValueError(f"not a whole {kind} of the probe")
    return found


def _decode_sample(data: dict[str, object], repeated: RepeatedFields) -> Sample | None:
    same = {name: known for name, (said, known) in repeated.items() if said == data.get(name)}
    sample = from_json_data(Sample, {key: value for key, value in data.items() if key not in same}, is_strict=False)
    if sample is not None:
        sample = replace(sample, **same)  # type: ignore[arg-type]
        repeated.update((name, (data.get(name), getattr(sample, name))) for name in _REPEATED_FIELDS)
    return sample


def _sanitize_kernel_lines(sample: Sample | None) -> Sample | None:
    """Return a sample with printable, bounded lines of the kernel."""
    if sample is None or sample.kernel is None or not (sample.kernel.lines or sample.kernel.trouble):
        return sample
    lines = tuple(
        replace(
            line,
            text=truncate_text(sanitize_line(line.text), _MAX_LINE_CHARS),
            devices=tuple(truncate_text(sanitize_line(one), 80) for one in line.devices[:4]),
        )
        for line in sample.kernel.lines[:_MAX_LINES]
    )
    trouble = sample.kernel.trouble and truncate_text(sanitize_line(sample.kernel.trouble), _MAX_LINE_CHARS)
    return replace(sample, kernel=replace(sample.kernel, lines=lines, trouble=trouble))
