"""What a node runs and how it is set: versions, kernel settings, earlyoom, swap, and where two nodes differ."""

from __future__ import annotations

import asyncio
import shlex
from collections.abc import Iterator, Mapping
from contextlib import aclosing

from sparkctl.core.earlyoom import rule_of
from sparkctl.core.sampler import Sampler
from sparkctl.core.session import Session
from sparkctl.errors import ProbeFailed
from sparkctl.model.events import SampleArrived, Severity
from sparkctl.model.sample import Sample
from sparkctl.model.units import GIB, KIB, gib, spoken
from sparkctl.operations.finding import Finding
from sparkctl.probe.decode import Hello

_WITHIN = 10.0
_LANDMINE = "it counts from the next restart"
_VERSIONS = (
    ("DGX OS", "os"),
    ("kernel", "kernel"),
    ("driver", "driver"),
    ("Docker", "docker"),
    ("container toolkit", "toolkit"),
    ("", "distribution"),
    ("Python", "python"),
)
_MANY_KIBIBYTES = 2 * 1024 * 1024  # of vm.min_free_kbytes: memory that no engine can have
_HEALTHY = 4 * GIB  # a good configuration may leave less than this
_TOO_LATE = GIB // 2


async def ask(session: Session) -> tuple[Hello, Sample] | None:
    """Return what the probe says first of a node; None where it does not run there or says nothing in time."""
    sampler = Sampler(session, every=1.0, disks=())
    try:
        async with asyncio.timeout(_WITHIN), aclosing(sampler.samples()) as events:
            async for event in events:
                if isinstance(event, SampleArrived) and sampler.identity is not None:
                    return sampler.identity, event.sample
    except (TimeoutError, ProbeFailed):
        return None
    return None


def findings(who: Hello, sample: Sample) -> Iterator[Finding]:
    """Yield what a node's software is and what about it bites."""
    known = [f"{name} {value}".strip() for name, value in _versions(who).items() if value]
    up = [f"up {spoken(who.up) if who.up < 86400 else f'{who.up / 86400:.0f} days'}"] if who.up is not None else []
    yield Finding("versions", Severity.GOOD, ", ".join([*known, *up]))
    yield from _settings(who)
    yield from _earlyoom(who, sample)
    yield from _reserved(sample)


def differences(nodes: Mapping[str, Hello]) -> Iterator[tuple[str, Finding]]:
    """Yield, for every node after the first, what of it is another version than the first one's.

    What is not known on one of them is no difference.
    """
    first, reference = next(iter(nodes.items()), ("", Hello()))
    for name, who in [*nodes.items()][1:]:
        pairs = zip(_versions(reference).items(), _versions(who).values(), strict=True)
        unlike = [(what, here, there) for (what, there), here in pairs if here and there and here != there]
        if unlike:
            words = "; ".join(f"{what} {here} here, {there} on {first}".strip() for what, here, there in unlike)
            yield (
                name,
                Finding(
                    "difference",
                    Severity.WARNING,
                    f"{words}: two Sparks that work together want the same",
                    "on the older one: sudo apt update && sudo apt full-upgrade (when nothing important runs), then restart it",
                ),
            )


def _versions(who: Hello) -> dict[str, str | None]:
    return {name: getattr(who, field) for name, field in _VERSIONS}


def _settings(who: Hello) -> Iterator[Finding]:
    running = dict(who.sysctl)
    words = [f"{name} {value}" for name, value in running.items() if value is not None]
    if who.swaps is not None:
        swaps = [f"{one.path} {gib(one.total)} ({gib(one.used)} used)" for one in who.swaps]
        words.insert(0, "swap " + (" + ".join(swaps) or "off"))
    if words:
        yield Finding("settings", Severity.GOOD, ", ".join(words))
    for one in who.configured:
        now = running.get(one.name)
        if now is None or now == one.value:
            continue
        much = one.name == "min_free_kbytes" and one.value > _MANY_KIBIBYTES
        yield Finding(
            "settings",
            Severity.WARNING,
            f"vm.{one.name} is {now} and {one.file} says {one.value}: {_LANDMINE}"
            + (f", and keeps {gib(one.value * KIB)} from every engine" if much else ""),
            f"in {one.file}: vm.{one.name} = {1048576 if much else now}"
            + ("" if much else f"   (or have it now: sudo sysctl -p {one.file})"),
        )


def _earlyoom(who: Hello, sample: Sample) -> Iterator[Finding]:
    found, memory = who.earlyoom, sample.memory
    if found is None:
        return
    if found.argv is None:
        yield Finding("earlyoom", Severity.NOTE, "earlyoom is installed and does not run")
        return
    rule, command = rule_of(found.argv), " ".join(found.argv[1:])
    if rule is None or memory is None:
        yield Finding("earlyoom", Severity.UNKNOWN, f"earlyoom runs as `{command}`, which is not understood here")
        return
    anonymous = sample.detail.anonymous if sample.detail else None
    limit = rule.acts_below(found.version, memory.total, anonymous)
    below = "at a limit that is not known" if limit is None else f"below {gib(limit)} available"
    swap = f" and {rule.swap:g} % of swap free" if memory.swap_total else ""
    acts = f"earlyoom {found.version or ''} acts {below}{swap} (`{command or 'no arguments'}`)".replace("  ", " ")
    if limit is None or rule.dry:
        yield Finding("earlyoom", Severity.NOTE, acts + (": it only pretends (--dryrun)" if rule.dry else ""))
    elif memory.swap_total and rule.swap < 50:
        yield Finding(
            "earlyoom",
            Severity.WARNING,
            f"{acts}: both must hold, and while swap is free it never acts; the freeze comes first",
            'in /etc/default/earlyoom: EARLYOOM_ARGS="-m 2 -s 80", then: sudo systemctl restart earlyoom',
        )
    elif limit > _HEALTHY:
        yield Finding(
            "earlyoom",
            Severity.WARNING,
            f"{acts}: a healthy engine may leave less than that, and is killed",
            'in /etc/default/earlyoom: EARLYOOM_ARGS="-m 2 -s 80", then: sudo systemctl restart earlyoom',
        )
    elif limit < _TOO_LATE:
        yield Finding(
            "earlyoom",
            Severity.WARNING,
            f"{acts}: since 1.8 its per cents are of available + anonymous memory, and CUDA memory is in neither",
            "do not count on it; watch memory with sparkctl",
        )
    else:
        yield Finding("earlyoom", Severity.GOOD, acts)
    if found.configured is not None and _words(found.configured) not in (None, list(found.argv[1:])):
        yield Finding(
            "earlyoom",
            Severity.WARNING,
            f"/etc/default/earlyoom says {found.configured}, which is not how it runs: {_LANDMINE}",
            "sudo systemctl restart earlyoom",
        )


def _words(configured: str) -> list[str] | None:
    """Return the words of EARLYOOM_ARGS as systemd splits them; None where its quotes do not match."""
    try:
        return [word for part in shlex.split(configured) for word in shlex.split(part)]
    except ValueError:
        return None


def _reserved(sample: Sample) -> Iterator[Finding]:
    detail = sample.detail
    if detail is not None and detail.cma_total == 0 and detail.cma_free:
        yield Finding(
            "kho",
            Severity.PROBLEM,
            f"the kernel keeps memory from you (CmaTotal 0 with CmaFree {gib(detail.cma_free)}): a fault of kernels with KHO",
            "add kho=off to GRUB_CMDLINE_LINUX in /etc/default/grub, then: sudo update-grub, and restart",
        )
