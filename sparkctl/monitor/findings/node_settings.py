"""Checks a node's settings: versions, kernel settings, earlyoom, swap, and differences between nodes."""

from __future__ import annotations

import getopt
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence

from sparkctl.engines.traps import load_node_traps
from sparkctl.model.finding import Finding, FindingEvidence, FindingKind, Severity, sort_by_severity
from sparkctl.model.lazy_dataclass import dataclass
from sparkctl.model.node import NodeName
from sparkctl.model.sample import Sample
from sparkctl.model.text.units import GIB, KIB, format_duration, format_gib
from sparkctl.node.agent_decoder import AgentHello

_SHORT_OPTIONS = "m:s:M:S:kingN:dvr:ph"
_LONG_OPTIONS = ["prefer=", "avoid=", "ignore=", "dryrun", "ignore-root-user", "sort-by-rss", "syslog", "help"]
_DEFAULT_MEMORY_SHARE = 0.1
# from this version on, per cents are of available + anonymous memory, not of all memory
_ANONYMOUS_SHARE_VERSION = (1, 8)


@dataclass(frozen=True, slots=True, kw_only=True)
class EarlyoomRule:
    """earlyoom ends the largest process when available memory AND free swap are at or under their limits.

    ``memory`` and ``swap`` are per cents, ``memory_size`` is bytes (-M, a share of all memory); the lower limit counts.
    """

    memory: float | None = None
    swap: float = 100 * _DEFAULT_MEMORY_SHARE
    memory_size: int | None = None
    dry: bool = False

    def compute_kill_threshold(self, version: str | None, total: int, anonymous: int | None) -> int | None:
        """Return the bytes of available memory at which it may act, None if not known.

        Up to 1.7: per cent of MemTotal. Since 1.8: of MemAvailable + AnonPages, and CUDA memory is in neither; so the
        limit holds for as much anonymous memory as there is now.
        """
        shares = [] if self.memory is None else [self.memory / 100]
        shares += [] if self.memory_size is None else [self.memory_size / total]
        share = min(shares, default=_DEFAULT_MEMORY_SHARE)
        if version is None or not (found := re.match(r"(\d+)\.(\d+)", version)):
            return None
        if (int(found[1]), int(found[2])) < _ANONYMOUS_SHARE_VERSION:
            return int(share * total)
        return None if anonymous is None else int(share / (1 - share) * anonymous)


def parse_earlyoom_args(argv: Sequence[str]) -> EarlyoomRule | None:
    """Return the rule of a command line (its first word is the program); None where it is not understood."""
    try:
        options, rest = getopt.gnu_getopt(list(argv[1:]), _SHORT_OPTIONS, _LONG_OPTIONS)
        values = dict(options)
        if rest:
            return None
        return EarlyoomRule(
            memory=_parse_first_limit(values["-m"]) if "-m" in values else None,
            swap=_parse_first_limit(values.get("-s", "10")),
            memory_size=int(_parse_first_limit(values["-M"]) * KIB) if "-M" in values else None,
            dry="--dryrun" in values,
        )
    except (getopt.GetoptError, ValueError):
        return None


def _parse_first_limit(limits: str) -> float:
    """Return the first of ``TERM,KILL``."""
    return float(limits.partition(",")[0])


_AFTER_RESTART_NOTE = "it takes effect at the next restart"
_NIC_FIRMWARE = "ConnectX firmware"
_VERSION_FIELDS = (
    ("DGX OS", "os"),
    ("kernel", "kernel"),
    ("driver", "driver"),
    ("Docker", "docker"),
    ("container toolkit", "toolkit"),
    ("", "distribution"),
    ("Python", "python"),
    ("BIOS", "bios"),
    (_NIC_FIRMWARE, "nic_firmware"),
)
# of what the system brings, and where firmware alone differs
_UPGRADES = ("sudo apt update && sudo apt full-upgrade", "sudo fwupdmgr refresh && sudo fwupdmgr upgrade")
_NOT_COMPARED = ("BIOS",)  # each maker of a Spark numbers its own
_MAX_MIN_FREE_KIB = 2 * 1024 * 1024  # of vm.min_free_kbytes: memory that no engine can use
_MAX_EARLYOOM_BYTES = 4 * GIB  # a good configuration may leave less than this
_MIN_EARLYOOM_BYTES = GIB // 2
_DEFAULT_SWAPPINESS = 60
_EARLYOOM_REMEDY = 'in /etc/default/earlyoom: EARLYOOM_ARGS="-m 2 -s 80", then: sudo systemctl restart earlyoom'


def list_setting_findings(node: NodeName, hello: AgentHello, sample: Sample) -> Iterator[Finding]:
    """Yield a node's versions and settings, with their problems."""
    known = [f"{name} {value}".strip() for name, value in _collect_versions(hello).items() if value]
    up = (
        [f"up {format_duration(hello.up) if hello.up < 86400 else f'{hello.up / 86400:.0f} days'}"]
        if hello.up is not None
        else []
    )
    yield Finding(FindingKind.VERSIONS, Severity.GOOD, node, ", ".join([*known, *up]))
    yield from _check_configured_settings(node, hello)
    yield from _check_earlyoom(node, hello, sample)
    yield from _check_reserved_memory(node, sample)
    yield from _check_known_bad_versions(node, hello, sample)


def list_setting_problems(node: NodeName, hello: AgentHello, sample: Sample) -> Iterator[Finding]:
    """Yield the problems alone; several of one kind become one finding."""
    wrong: dict[FindingKind, list[Finding]] = {}
    for one in list_setting_findings(node, hello, sample):
        if one.severity in (Severity.NOTE, Severity.WARNING, Severity.PROBLEM):
            wrong.setdefault(one.kind, []).append(one)
    for kind, some in wrong.items():
        remedies = [one.remedy for one in some if one.remedy]
        yield Finding(
            kind,
            sort_by_severity(some)[0].severity,
            node,
            "; ".join(one.summary for one in some),
            remedy="; ".join(remedies) or None,
            evidence=tuple(figure for one in some for figure in one.evidence),
        )


def compare_node_versions(nodes: Mapping[NodeName, AgentHello]) -> Iterator[Finding]:
    """Yield, for every node after the first, the versions that differ from the first node's.

    Versions that are not known on one of them are not compared.
    """
    first, reference = next(iter(nodes.items()), ("", AgentHello()))
    for node, hello in [*nodes.items()][1:]:
        pairs = zip(_collect_versions(reference).items(), _collect_versions(hello).values(), strict=True)
        unlike = [
            (what, here, there)
            for (what, there), here in pairs
            if here and there and here != there and what not in _NOT_COMPARED
        ]
        if unlike:
            words = "; ".join(f"{what} {here} here, {there} on {first}".strip() for what, here, there in unlike)
            yield Finding(
                FindingKind.DIFFERENCE,
                Severity.WARNING,
                node,
                f"{words}: two Sparks that work together should have the same",
                remedy=f"on the older one: {_UPGRADES[all(what == _NIC_FIRMWARE for what, _, _ in unlike)]} "
                "(when nothing important runs), then restart it",
                evidence=tuple(FindingEvidence(f"{what} here", here, None, "identity") for what, here, _ in unlike)
                + tuple(FindingEvidence(f"{what} on {first}", there, None, "identity") for what, _, there in unlike),
            )


def _collect_versions(hello: AgentHello) -> dict[str, str | None]:
    return {name: getattr(hello, field) for name, field in _VERSION_FIELDS}


def _check_configured_settings(node: NodeName, hello: AgentHello) -> Iterator[Finding]:
    running = dict(hello.sysctl)
    words = [f"{name} {value}" for name, value in running.items() if value is not None]
    if hello.swaps is not None:
        swaps = [f"{one.path} {format_gib(one.total)} ({format_gib(one.used)} used)" for one in hello.swaps]
        words.insert(0, "swap " + (" + ".join(swaps) or "off"))
    if words:
        yield Finding(FindingKind.SETTINGS, Severity.GOOD, node, ", ".join(words))
    yield from check_kernel_settings(node, running)
    for one in hello.configured:
        now = running.get(one.name)
        if now is None or now == one.value:
            continue
        much = one.name == "min_free_kbytes" and one.value > _MAX_MIN_FREE_KIB
        yield Finding(
            FindingKind.SETTINGS,
            Severity.WARNING,
            node,
            f"vm.{one.name} is {now} and {one.file} says {one.value}: {_AFTER_RESTART_NOTE}"
            + (f", and keeps {format_gib(one.value * KIB)} from every engine" if much else ""),
            remedy=f"in {one.file}: vm.{one.name} = {1048576 if much else now}"
            + ("" if much else f"   (or have it now: sudo sysctl -p {one.file})"),
        )


def check_kernel_settings(node: NodeName, running: Mapping[str, int | None]) -> Iterator[Finding]:
    """Yield the current settings that take memory from engines or push them into swap.

    A reserve of 5 GiB made an engine fail with 9.71 GiB free; owners settled on 1 GiB. With swappiness above its default of
    60, the kernel prefers swapping out an engine to freeing page cache.
    """
    reserve, swappiness = running.get("min_free_kbytes"), running.get("swappiness")
    if reserve is not None and reserve > _MAX_MIN_FREE_KIB:
        yield Finding(
            FindingKind.MIN_FREE,
            Severity.WARNING,
            node,
            f"vm.min_free_kbytes reserves {format_gib(reserve * KIB)} that no engine can have",
            remedy="sudo sysctl -w vm.min_free_kbytes=1048576   (and the same in /etc/sysctl.d)",
            evidence=(FindingEvidence("vm.min_free_kbytes", str(reserve), "KiB", "sysctl"),),
        )
    if swappiness is not None and swappiness > _DEFAULT_SWAPPINESS:
        yield Finding(
            FindingKind.SWAPPINESS,
            Severity.NOTE,
            node,
            f"vm.swappiness is {swappiness}: the kernel swaps an engine out rather than give page cache back",
            remedy="sudo sysctl -w vm.swappiness=1   (and the same in /etc/sysctl.d)",
            evidence=(FindingEvidence("vm.swappiness", str(swappiness), None, "sysctl"),),
        )


def _check_earlyoom(node: NodeName, hello: AgentHello, sample: Sample) -> Iterator[Finding]:
    found, memory = hello.earlyoom, sample.memory
    if found is None:
        return
    if found.argv is None:
        yield Finding(FindingKind.EARLYOOM, Severity.NOTE, node, "earlyoom is installed but not running")
        return
    rule, command = parse_earlyoom_args(found.argv), " ".join(found.argv[1:])
    if rule is None or memory is None:
        what = f"earlyoom runs as `{command}`, which sparkctl does not understand"
        yield Finding(FindingKind.EARLYOOM, Severity.UNKNOWN, node, what)
        return
    limit = rule.compute_kill_threshold(found.version, memory.total, sample.detail.anonymous if sample.detail else None)
    below = "at a limit that is not known" if limit is None else f"below {format_gib(limit)} available"
    swap = f" and {rule.swap:g} % of swap free" if memory.swap_total else ""
    acts = f"earlyoom {found.version or ''} acts {below}{swap} (`{command or 'no arguments'}`)".replace("  ", " ")
    severity, but, remedy = _rate_earlyoom_rule(rule, limit, has_swap=bool(memory.swap_total))
    yield Finding(FindingKind.EARLYOOM, severity, node, acts + but, remedy=remedy)
    if found.configured is not None and _split_earlyoom_args(found.configured) not in (None, list(found.argv[1:])):
        what = f"/etc/default/earlyoom says {found.configured}, which is not how it runs: {_AFTER_RESTART_NOTE}"
        yield Finding(FindingKind.EARLYOOM, Severity.WARNING, node, what, remedy="sudo systemctl restart earlyoom")


def _rate_earlyoom_rule(rule: EarlyoomRule, limit: int | None, has_swap: bool) -> tuple[Severity, str, str | None]:
    """Return the severity of this earlyoom rule, which acts below ``limit`` bytes; the reason, and the remedy."""
    if limit is None or rule.dry:
        return Severity.NOTE, ": it only pretends (--dryrun)" if rule.dry else "", None
    if has_swap and rule.swap < 50:
        but = ": both must be true, so it never acts while swap is free; the Spark freezes first"
        return Severity.WARNING, but, _EARLYOOM_REMEDY
    if limit > _MAX_EARLYOOM_BYTES:
        return Severity.WARNING, ": a healthy engine may leave less than that, and would be killed", _EARLYOOM_REMEDY
    if limit < _MIN_EARLYOOM_BYTES:
        but = ": since 1.8 its percentages are of available + anonymous memory, and CUDA memory is in neither"
        return Severity.WARNING, but, "do not count on it; watch memory with sparkctl"
    return Severity.GOOD, "", None


def _split_earlyoom_args(configured: str) -> list[str] | None:
    """Return the words of EARLYOOM_ARGS as systemd splits them; None where its quotes do not match."""
    try:
        return [word for part in shlex.split(configured) for word in shlex.split(part)]
    except ValueError:
        return None


def _check_reserved_memory(node: NodeName, sample: Sample) -> Iterator[Finding]:
    detail = sample.detail
    if detail is not None and detail.cma_total == 0 and detail.cma_free:
        yield Finding(
            FindingKind.KHO,
            Severity.PROBLEM,
            node,
            f"the kernel withholds memory (CmaTotal 0 with CmaFree {format_gib(detail.cma_free)}): a known fault of kernels with KHO",
            remedy="add kho=off to GRUB_CMDLINE_LINUX in /etc/default/grub, then: sudo update-grub, and restart",
        )


def _check_known_bad_versions(node: NodeName, hello: AgentHello, sample: Sample) -> Iterator[Finding]:
    """Yield the known traps of these versions. What meminfo shows of KHO itself is told by `_check_reserved_memory`."""
    is_kho_known = sample.detail is not None and sample.detail.cma_free is not None
    for trap, bad in load_node_traps():
        version = getattr(hello, bad.what)
        if not isinstance(version, str) or re.fullmatch(bad.pattern, version) is None:
            continue
        if (bad.needs == "rdma" and not sample.rdma) or (bad.unless == "kho-off" and is_kho_known):
            continue
        yield Finding(
            FindingKind.KNOWN_BAD,
            Severity(bad.severity),
            node,
            trap.meaning.format(version=version),
            remedy=trap.remedy,
            evidence=(
                FindingEvidence(bad.what, version, None, "identity"),
                FindingEvidence("source", trap.source, None, "known-bad list"),
            ),
        )
