"""The travelling probe: what runs on a Spark. One file, standard library only, Python 3.8 or newer, nothing on disk.

Started as ``python3 -ISu -c BOOT LENGTH NVML_LENGTH OPTIONS``: its own source and that of pynvml (zlib) arrive on stdin,
then command lines. Any line feeds it; ``every SECONDS`` also sets the rate. It ends when stdin does, and when nobody has
fed it for ``--fed`` seconds. Each line of its stdout is a JSON object with a protocol number: first a hello, then samples.

Three parts, so that nothing that hangs can stop the samples of memory: the main loop reads /proc alone and never waits
for a device or forks; a thread reads drives, NICs and filesystems; a child process, started once before the loop, asks
the GPU's driver. A part that does not answer in time is left out and its silence is told.

Bytes, seconds, degrees Celsius, watts, shares of 0..1. A reading that fails is null, never zero.
(One file of this length because one file is what travels.)
"""

from __future__ import annotations

import contextlib
import errno
import gc
import importlib
import json
import os
import re
import select
import sys
import threading
import time
import zlib

TYPE_CHECKING = False
if TYPE_CHECKING:  # typing itself would cost the node a megabyte
    from collections.abc import Callable
    from typing import Any

    Json = dict[str, Any]

PROTOCOL = 1
PATIENCE = 0.25  # seconds that a sample waits for the driver and the devices before it goes without them
RARELY = 60.0  # seconds until an absent file, and five times that until an unsupported call, is asked for again
SLOWLY, SLOW = 5.0, ("temperatures", "disks", "processes")  # seconds between two readings of what changes slowly
CHUNK = 1 << 16
GIDS = 32  # of a table of 256: the indices in use are its first
PATH_LIMIT = 48  # sensors, processes: as many as a Spark has, and an end to what a strange machine may send
CONTAINER = re.compile(rb"[0-9a-f]{64}")
MEMINFO = re.compile(rb"^(\w+(?:\(\w+\))?):\s+(\d+)( kB)?", re.MULTILINE)
VMSTAT = re.compile(rb"^(drop_pagecache|drop_slab|pswpin|pswpout|pgmajfault|oom_kill) (\d+)$", re.MULTILINE)
PRESSURE = re.compile(rb"^(some|full) avg10=([\d.]{1,20}) .*total=(\d+)$", re.MULTILINE)
CPU_LINE = re.compile(rb"^cpu(\d+) (.+)$", re.MULTILINE)
STATUS = re.compile(rb"^(VmRSS|RssAnon|RssShmem):\s+(\d+)", re.MULTILINE)
NETDEV = re.compile(rb"^[ \t]*([^\s:]+):[ \t]*(\S.*)$", re.MULTILINE)


class Source:
    """A file of /proc or /sys: opened once, read again from its beginning. ``long``: the kernel gives it in pieces.

    ``pause``: seconds after a failed read until it is opened again; 0 for what there always is.
    """

    __slots__ = ("fd", "long", "path", "pause", "retry_at")

    def __init__(self, path: str, long: bool = False, pause: float = RARELY) -> None:
        self.path = path
        self.pause = pause
        self.long = long
        self.fd = -1
        self.retry_at = 0.0

    def read(self) -> bytes | None:
        """Return its content; None where it is absent or says nothing now."""
        if self.fd < 0 and not self._open():
            return None
        try:
            text = os.pread(self.fd, CHUNK, 0)
            while self.long:
                more = os.pread(self.fd, CHUNK, len(text))
                if not more:
                    break
                text += more
            return text
        except OSError as error:
            if error.errno != errno.EINVAL:  # what an interface without a link answers when asked for its speed
                self.close()
            return None

    def number(self) -> int | None:
        """Return its content as a whole number."""
        text = self.read()
        try:
            return None if text is None else int(text)
        except ValueError:
            return None

    def word(self) -> str | None:
        """Return its content as text on one line, None where there is none."""
        text = self.read()
        return (text.decode("utf-8", "replace").strip("\0 \n") or None) if text is not None else None

    def close(self) -> None:
        """Let go of it; it is opened again after its pause."""
        if self.fd >= 0:
            os.close(self.fd)
        self.fd = -1
        self.retry_at = time.monotonic() + self.pause

    def _open(self) -> bool:
        if time.monotonic() < self.retry_at:
            return False
        try:
            self.fd = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            self.retry_at = time.monotonic() + self.pause
            return False
        return True


def once(path: str) -> bytes | None:
    """Return a file's content without keeping it open."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        return os.read(fd, CHUNK)
    except OSError:
        return None
    finally:
        os.close(fd)


def text_once(path: str) -> str | None:
    """Return a file's content as text without its line end, None where there is none."""
    found = once(path)
    return (found.decode("utf-8", "replace").strip("\0 \n") or None) if found is not None else None


def names(path: str) -> list[str]:
    """Return a directory's entries, none where there is no such directory."""
    try:
        return sorted(os.listdir(path))  # noqa: PTH208  # pathlib costs the node a megabyte
    except OSError:
        return []


# -- memory and CPU: pure functions of texts, so that a simulated Spark gives the same answers


def memory_of(meminfo: bytes | None) -> tuple[Json | None, Json]:
    """Return the reading that everything rests on (None where a figure of it is missing) and the details."""
    field = {name: int(size) * (1024 if unit else 1) for name, size, unit in MEMINFO.findall(meminfo or b"")}

    def known(name: bytes, factor: int = 1) -> int | None:
        return field[name] * factor if name in field else None

    page = field.get(b"Hugepagesize", 0)
    detail = {
        "dirty": known(b"Dirty"),
        "writeback": known(b"Writeback"),
        "anonymous": known(b"AnonPages"),
        "shared": known(b"Shmem"),
        "slab": known(b"Slab"),
        "locked": known(b"Mlocked"),
        "huge_total": known(b"HugePages_Total", page),
        "huge_free": known(b"HugePages_Free", page),
        "cma_total": known(b"CmaTotal"),
        "cma_free": known(b"CmaFree"),
    }
    if not {b"MemTotal", b"MemFree", b"MemAvailable"} <= set(field):
        return None, detail
    cache = sum(field.get(name, 0) for name in (b"Cached", b"Buffers", b"SReclaimable")) - field.get(b"Shmem", 0)
    memory = {
        "total": field[b"MemTotal"],
        "available": field[b"MemAvailable"],
        "free": field[b"MemFree"],
        "page_cache": max(0, cache),
        "swap_total": field.get(b"SwapTotal", 0),
        "swap_free": field.get(b"SwapFree", 0),
    }
    return memory, detail


def counters_of(vmstat: bytes | None) -> Json:
    """Return the kernel's own counts of drops, swapping and kills, null where it does not count."""
    field = {name.decode(): int(count) for name, count in VMSTAT.findall(vmstat or b"")}
    wanted = ("drop_pagecache", "drop_slab", "pswpin", "pswpout", "pgmajfault", "oom_kill")
    return {name: field.get(name) for name in wanted}


def pressure_of(text: bytes | None) -> Json | None:
    """Return the share of the last ten seconds that some, or all, tasks waited for memory, and the totals in us."""
    found = {kind.decode(): (float(share), int(total)) for kind, share, total in PRESSURE.findall(text or b"")}
    if "some" not in found:
        return None
    full = found.get("full", (None, None))
    return {
        "some": found["some"][0] / 100,
        "full": None if full[0] is None else full[0] / 100,
        "some_total": found["some"][1],
        "full_total": full[1],
    }


def blocks_of(buddyinfo: bytes | None) -> list[int] | None:
    """Return the number of free blocks by order (0 is one page), all zones together."""
    rows = [line.split()[4:] for line in (buddyinfo or b"").splitlines() if b"zone" in line]
    if not rows or not rows[0]:
        return None
    return [sum(int(row[order]) for row in rows if order < len(row)) for order in range(max(map(len, rows)))]


class Cores:
    """Turns the kernel's tick counts into the share of the time since the previous reading that each core was busy."""

    def __init__(self) -> None:
        self.before: dict[int, tuple[int, int]] = {}

    def shares(self, stat: bytes | None) -> dict[int, float | None]:
        """Return a share by core; None at the first reading of one."""
        now: dict[int, tuple[int, int]] = {}
        for name, text in CPU_LINE.findall(stat or b""):
            ticks = [int(word) for word in text.split()[:8]]  # user to steal; guest time is counted within user
            total = sum(ticks)
            now[int(name)] = (total - ticks[3] - ticks[4], total)
        found = {core: self._share(now[core], self.before.get(core)) for core in sorted(now)}
        self.before = now
        return found

    @staticmethod
    def _share(now: tuple[int, int], before: tuple[int, int] | None) -> float | None:
        if before is None or now[1] <= before[1]:
            return None
        return round(min(1.0, max(0.0, (now[0] - before[0]) / (now[1] - before[1]))), 4)


def mean(values: list[float | None]) -> float | None:
    """Return the mean of the known values."""
    known = [value for value in values if value is not None]
    return round(sum(known) / len(known), 4) if known else None


def cpu_of(shares: dict[int, float | None], clusters: list[Json], loadavg: bytes | None) -> Json:
    """Return the CPU part of a sample. ``clusters``: ``capacity`` and ``cores`` of each."""
    load = [float(word) for word in (loadavg or b"").split()[:3]]
    return {
        "busy": mean(list(shares.values())),
        "cores": list(shares.values()),
        "clusters": [
            {"capacity": c["capacity"], "cores": c["cores"], "busy": mean([shares.get(core) for core in c["cores"]])}
            for c in clusters
        ],
        "load": load if len(load) == 3 else None,
    }


def clusters_of(root: str) -> list[Json]:
    """Return the cores by what they can do: capacity where the kernel says it, else the highest clock in kHz."""
    by_capacity: dict[int, list[int]] = {}
    base = root + "/sys/devices/system/cpu"
    for name in names(base):
        if not re.match(r"cpu\d+$", name):
            continue
        capacity = text_once(f"{base}/{name}/cpu_capacity") or text_once(f"{base}/{name}/cpufreq/cpuinfo_max_freq")
        by_capacity.setdefault(int(capacity) if capacity and capacity.isdigit() else 0, []).append(int(name[3:]))
    return [{"capacity": c or None, "cores": sorted(cores)} for c, cores in sorted(by_capacity.items(), reverse=True)]


# -- who the node is, asked once

SETTINGS = ("swappiness", "min_free_kbytes", "overcommit_memory", "zone_reclaim_mode", "compaction_proactiveness")
SYSCTL_PLACES = (
    "/usr/lib/sysctl.d",
    "/usr/local/lib/sysctl.d",
    "/run/sysctl.d",
    "/etc/sysctl.d",
)  # the last has its way
SYSCTL_LINE = re.compile(rb"^[ \t]*-?vm[./](\w+)[ \t]*=[ \t]*(\d+)[ \t]*$", re.MULTILINE)
PACKAGES = {
    b"docker-ce": "docker",
    b"docker.io": "docker",
    b"moby-engine": "docker",
    b"nvidia-container-toolkit": "toolkit",
}
PACKAGES[b"earlyoom"] = "earlyoom"
SWAP_LINE = re.compile(rb"^(/\S+)\s+(\w+)\s+(\d+)\s+(\d+)", re.MULTILINE)
EARLYOOM_ARGS = re.compile(r"^[ \t]*EARLYOOM_ARGS=(.*)$", re.MULTILINE)


def identity_of(root: str) -> Json:
    """Return what does not change while it runs; null where it is not said."""
    driver = re.search(r" (\d+\.\d[\d.]*)(?:\s|$)", text_once(root + "/proc/driver/nvidia/version") or "")
    release = dict(re.findall(r'^(\w+)="?([^"\n]*)', text_once(root + "/etc/dgx-release") or "", re.MULTILINE))
    distribution = dict(re.findall(r'^(\w+)="?([^"\n]*)', text_once(root + "/etc/os-release") or "", re.MULTILINE))
    settings = {}
    for name in SETTINGS:
        found = text_once(f"{root}/proc/sys/vm/{name}")
        settings[name] = int(found) if found and found.isdigit() else None
    packages = packages_of(root)
    up = text_once(root + "/proc/uptime")
    return {
        "host": text_once(root + "/proc/sys/kernel/hostname"),
        "kernel": text_once(root + "/proc/sys/kernel/osrelease"),
        "machine": os.uname().machine,
        "boot_id": text_once(root + "/proc/sys/kernel/random/boot_id"),
        "product": text_once(root + "/sys/class/dmi/id/product_family"),
        "driver": driver.group(1) if driver else None,
        "os": release.get("DGX_SWBUILD_VERSION"),
        "distribution": distribution.get("PRETTY_NAME"),
        "python": "{}.{}.{}".format(*sys.version_info[:3]),
        "docker": packages.get("docker"),
        "toolkit": packages.get("toolkit"),
        "up": float(up.split()[0]) if up else None,
        "sysctl": settings,
        "configured": configured_of(root),
        "swaps": swaps_of(once(root + "/proc/swaps")),
        "earlyoom": earlyoom_of(root, packages.get("earlyoom")),
    }


def packages_of(root: str) -> dict[str, str]:
    """Return the versions of the packages that matter, without epoch and revision, from dpkg's own list of some MB."""
    found: dict[str, str] = {}
    try:
        fd = os.open(root + "/var/lib/dpkg/status", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return found
    try:
        left, piece = b"", os.read(fd, CHUNK)
        while piece:
            *stanzas, left = (left + piece).split(b"\n\n")
            piece = os.read(fd, CHUNK)
            for stanza in stanzas if piece else [*stanzas, left]:
                name = PACKAGES.get(stanza[9 : stanza.find(b"\n")].strip())  # after "Package: "
                version = re.search(rb"^Version: (?:\d+:)?(\S+)$", stanza, re.MULTILINE) if name else None
                if name and version and b"\nStatus: install ok installed\n" in stanza:
                    words = version.group(1).decode("ascii", "replace")
                    found[name] = words.rpartition("-")[0] or words
    except OSError:
        pass  # what was found until then is true
    finally:
        os.close(fd)
    return found


def configured_of(root: str) -> list[Json]:
    """Return the settings that a restart will make, and the file that says so.

    As systemd-sysctl(8): by file name whatever the directory, a later file overrides, a name in /etc hides its namesakes.
    /etc/sysctl.conf is one of them where it is linked there; where it is not, it counts last, as for `sysctl --system`.
    """
    files = {name: f"{place}/{name}" for place in SYSCTL_PLACES for name in names(root + place)}
    order = [files[name] for name in sorted(files) if name.endswith(".conf")]
    if not any(os.path.realpath(root + path) == os.path.realpath(root + "/etc/sysctl.conf") for path in order):
        order.append("/etc/sysctl.conf")
    found: dict[str, Json] = {}
    for path in order:
        for name, value in SYSCTL_LINE.findall(once(root + path) or b""):
            if name.decode() in SETTINGS:
                found[name.decode()] = {"name": name.decode(), "value": int(value), "file": path}
    return [found[name] for name in sorted(found)]


def swaps_of(table: bytes | None) -> list[Json] | None:
    """Return the swap devices and files, bytes."""
    if table is None:
        return None
    rows = [(path.decode("utf-8", "replace"), kind.decode(), *sizes) for path, kind, *sizes in SWAP_LINE.findall(table)]
    return [{"path": path, "kind": kind, "total": int(t) * 1024, "used": int(u) * 1024} for path, kind, t, u in rows]


def earlyoom_of(root: str, version: str | None) -> Json | None:
    """Return how earlyoom runs (``argv``, null where it does not), and how its file wants it; null without either."""
    configured = EARLYOOM_ARGS.findall(text_once(root + "/etc/default/earlyoom") or "")
    argv = None
    for pid in names(root + "/proc"):
        if pid.isdigit() and once(f"{root}/proc/{pid}/comm") == b"earlyoom\n":
            said = once(f"{root}/proc/{pid}/cmdline") or b""
            argv = said.decode("utf-8", "replace").rstrip("\0").split("\0")
            break
    if argv is None and not configured and version is None:
        return None
    return {"version": version, "argv": argv, "configured": configured[-1].strip() if configured else None}


# -- psutil, where the node has it: the same kernel files read by a library that knows more machines than we do

DISTRIBUTION = "/usr/lib/python3/dist-packages"  # of Debian and Ubuntu; -S leaves it out


class Psutil:
    """The node's own psutil, asked for what the essentials do not rest on. One that is broken or raises is left alone.

    ``module`` None: there is none. What it does not tell is read from /proc and /sys instead.
    """

    def __init__(self, module: Any = None) -> None:
        self.module = module

    @classmethod
    def here(cls) -> Psutil:
        """Return the one that Python finds, or the one of the distribution whose Python this is."""
        before = list(sys.path)
        if sys.prefix == "/usr":
            sys.path.append(DISTRIBUTION)
        try:
            return cls(importlib.import_module("psutil"))
        except Exception:  # noqa: BLE001  # somebody else's module may fail in any way
            return cls()
        finally:
            sys.path[:] = before

    @property
    def version(self) -> str | None:
        """Its version, None where it is not used."""
        return None if self.module is None else str(getattr(self.module, "__version__", "unknown"))

    def ask(self, read: Callable[[Any], Any]) -> Any:
        """Return what ``read`` makes of the module, None where it cannot; what is no word of a gone process ends it."""
        if self.module is None:
            return None
        try:
            return read(self.module)
        except Exception as error:  # noqa: BLE001  # see above
            expected = (OSError, getattr(self.module, "Error", OSError))
            if not isinstance(error, expected):
                self.module = None
            return None


# -- devices: read in a thread, because a drive, a NIC's firmware or a lost NFS server may keep us waiting


class Devices:
    """Temperatures, disks, links and processes. Each is read as often as it is worth: a NIC's firmware is not free."""

    def __init__(self, root: str, disks: list[str], psutil: bool = False) -> None:
        self.root = root
        self.disks = disks
        self.held: dict[str, tuple[float, object]] = {}
        self.rates: dict[tuple[str, str], tuple[float, int]] = {}
        self.ports = Ports(root)
        self.sensors: list[tuple[str, str | None, str | None, Source]] = []
        self.found_at = -RARELY
        self.netdev = Source(root + "/proc/net/dev", long=True)
        self.route = Source(root + "/proc/net/route", long=True)
        self.psutil: Psutil | None = None if psutil else Psutil()
        self.processes = Processes(root)

    def read(self, gpu_pids: list[int]) -> Json:
        """Return everything, what is read rarely from the last time."""
        if self.psutil is None:  # here and not before: this thread may be kept waiting
            self.psutil = self.processes.psutil = Psutil.here()
        now = time.monotonic()
        if now - self.found_at >= RARELY:  # the ConnectX comes and goes with its cable
            self.found_at = now
            self.sensors = sensors_of(self.root)
            self.ports.find()
        return {
            "temperatures": self.kept("temperatures", now, SLOWLY, self.temperatures),
            "disks": self.kept("disks", now, 30, self.rooms),
            "links": self.links(now),
            "rdma": self.rdma(now),
            "processes": self.kept("processes", now, SLOWLY, lambda: self.processes.read(gpu_pids)),
            "psutil": self.psutil.version,
        }

    def kept(self, name: str, now: float, every: float, read: Callable[[], Any]) -> Any:
        """Return what ``read`` returns, at most so often."""
        when, value = self.held.get(name, (-RARELY, None))
        if now - when >= every - 0.5:
            value = read()
            self.held[name] = (now, value)
        return value

    def rate(self, name: str, counter: str, value: int | None) -> float | None:
        """Return how fast a counter grew since it was last read; None at first, and after it was set back."""
        if value is None:
            return None
        now = time.monotonic()
        when, before = self.rates.get((name, counter), (now, value))
        self.rates[name, counter] = (now, value)
        return round((value - before) / (now - when), 1) if now > when and value >= before else None

    def temperatures(self) -> list[Json]:
        """Return what each sensor says. psutil does not tell whose a chip is: its readings count in our order."""
        by_chip: dict[str, list[Any]] = (
            self.psutil.ask(lambda m: m.sensors_temperatures()) if self.psutil else None
        ) or {}
        chips = [chip for chip, _, _, _ in self.sensors]
        left = {chip: [one.current for one in said] for chip, said in by_chip.items() if len(said) == chips.count(chip)}
        found = []
        for chip, label, device, source in self.sensors:
            if left.get(chip):
                celsius: float | None = left[chip].pop(0)
            else:
                value = source.number()
                celsius = None if value is None else value / 1000
            if celsius is not None:
                found.append({"chip": chip, "label": label, "device": device, "celsius": celsius})
        return found

    def rooms(self) -> list[Json]:
        """Return total and free bytes of the filesystems asked about, null where one cannot be asked."""
        return [dict(self.room(path), path=path) for path in self.disks]

    def room(self, path: str) -> Json:
        """Return them of one filesystem."""
        place = self.root + os.path.expanduser(path)  # noqa: PTH111
        said = self.psutil.ask(lambda module: module.disk_usage(place)) if self.psutil else None
        if said is not None:
            return {"total": said.total, "free": said.free}
        try:
            room = os.statvfs(place)
        except OSError:
            return {"total": None, "free": None}
        return {"total": room.f_blocks * room.f_frsize, "free": room.f_bavail * room.f_frsize}

    def links(self, now: float) -> list[Json]:
        """Return each network interface with hardware behind it: state, speed, traffic that the kernel saw."""
        columns = {name.decode(): text.split() for name, text in NETDEV.findall(self.netdev.read() or b"")}
        states = self.kept("links", now, 5, self.ports.states)
        networks = self.kept("networks", now, 30, self.networks)
        found = []
        for name, state in sorted(states.items()):
            words = columns.get(name, [])
            count = [int(word) for word in words] if len(words) >= 16 else None
            receive, send = (count[0], count[8]) if count else (None, None)
            link = dict(state, name=name, received=receive, sent=send, errors=count[2] + count[10] if count else None)
            link["receive_rate"] = self.rate(name, "rx", receive)
            link["send_rate"] = self.rate(name, "tx", send)
            link["networks"] = networks.get(name)
            found.append(link)
        return found

    def networks(self) -> dict[str, list[str] | None]:
        """Return the networks of each interface; null for a part of a bond or a bridge, which has those of the whole."""
        found, base = networks_of(self.route.read()), self.root + "/sys/class/net"
        if found is None:
            return {}
        parts = {name for name in self.ports.net if os.path.exists(f"{base}/{name}/master")}  # noqa: PTH110
        return {name: None if name in parts else found.get(name, []) for name in self.ports.net}

    def rdma(self, now: float) -> list[Json]:
        """Return each RDMA port: RoCE goes past the kernel, so the interface's own counters miss it."""
        found = []
        for port in self.ports.rdma:
            slow = self.kept(port["name"] + port["port"], now, 30, port["slow"])
            receive, send = port["receive"].number(), port["send"].number()
            receive, send = [None if words is None else words * 4 for words in (receive, send)]  # 4-byte words
            one = {"name": port["name"], "port": port["port"], "interface": port["interface"], "received": receive}
            one.update({"sent": send, "receive_rate": self.rate(port["name"], "rx", receive)})
            one.update({"send_rate": self.rate(port["name"], "tx", send)}, **slow)
            found.append(one)
        return found


def sensors_of(root: str) -> list[tuple[str, str | None, str | None, Source]]:
    """Return chip, label, device and file of every temperature; thermal zones only where hwmon does not have them."""
    found = []
    base = root + "/sys/class/hwmon"
    for chip in names(base):
        name = text_once(f"{base}/{chip}/name") or chip
        try:
            device = os.path.basename(os.readlink(f"{base}/{chip}/device"))  # noqa: PTH115, PTH119
        except OSError:
            device = None
        numbered = [file[:-6] for file in names(f"{base}/{chip}") if re.match(r"temp\d+_input$", file)]
        for sensor in sorted(numbered):  # temp1, temp10, temp2: the order of psutil, without _input behind it
            label = text_once(f"{base}/{chip}/{sensor}_label")
            found.append((name, label, device, Source(f"{base}/{chip}/{sensor}_input")))
    chips = {chip for chip, _, _, _ in found}
    base = root + "/sys/class/thermal"
    for zone in names(base):
        kind = text_once(f"{base}/{zone}/type") if zone.startswith("thermal_zone") else None
        if kind and kind not in chips:
            found.append((kind, None, zone, Source(f"{base}/{zone}/temp")))
    return found[:PATH_LIMIT]


class Ports:
    """The network interfaces and RDMA ports there are. Files by name, never a glob: each read may ask the firmware."""

    ERRORS = ("port_rcv_errors", "port_xmit_discards", "link_downed", "link_error_recovery", "symbol_error")
    HARDWARE = ("out_of_sequence", "packet_seq_err", "local_ack_timeout_err", "np_cnp_sent", "rp_cnp_handled")

    def __init__(self, root: str) -> None:
        self.root = root
        self.net: dict[str, dict[str, Source]] = {}
        self.rdma: list[Json] = []

    def find(self) -> None:
        """Look again for what is there."""
        base = self.root + "/sys/class/net"
        there = [name for name in names(base) if _is_hardware(base, name)]
        for gone in set(self.net) - set(there):
            for source in self.net.pop(gone).values():
                source.close()
        for name in there:
            if name not in self.net:
                files = ("carrier", "operstate", "speed", "mtu")
                self.net[name] = {file: Source(f"{base}/{name}/{file}") for file in files}
        known = {port["name"] for port in self.rdma}
        base = self.root + "/sys/class/infiniband"
        present = names(base)
        self.rdma = [port for port in self.rdma if port["name"] in present]
        for name in present:
            if name not in known:
                self.rdma += [self._port(f"{base}/{name}", name, port) for port in names(f"{base}/{name}/ports")]

    def states(self) -> dict[str, Json]:
        """Return carrier, state, speed in Mb/s and MTU of each interface."""
        found = {}
        for name, source in self.net.items():
            carrier, speed = source["carrier"].number(), source["speed"].number()
            found[name] = {
                "carrier": None if carrier is None else carrier == 1,
                "state": source["operstate"].word(),
                "speed": speed if speed is not None and speed > 0 else None,
                "mtu": source["mtu"].number(),
            }
        return found

    def _port(self, device: str, name: str, port: str) -> Json:
        base = f"{device}/ports/{port}"
        state, rate = Source(base + "/state"), Source(base + "/rate")
        errors = [(error, Source(f"{base}/counters/{error}")) for error in self.ERRORS]
        errors += [(error, Source(f"{base}/hw_counters/{error}")) for error in self.HARDWARE]
        interfaces = names(device + "/device/net")

        def slow() -> Json:
            counts = {error: source.number() for error, source in errors}
            return {"state": state.word(), "rate": rate.word(), "errors": counts, "gids": gids_of(base)}

        return {
            "name": name,
            "port": port,
            "interface": interfaces[0] if interfaces else None,
            "receive": Source(base + "/counters/port_rcv_data"),
            "send": Source(base + "/counters/port_xmit_data"),
            "slow": slow,
        }


def networks_of(route: bytes | None) -> dict[str, list[str]] | None:
    """Return the IPv4 networks that each interface reaches without a gateway, as 192.168.100.0/24."""
    if route is None:
        return None
    found: dict[str, list[str]] = {}
    for line in route.splitlines()[1:]:
        words = line.split()
        if len(words) < 8 or int(words[2], 16) or not int(words[7], 16):
            continue
        place = ".".join(str(byte) for byte in int(words[1], 16).to_bytes(4, sys.byteorder))
        network = "{}/{}".format(place, bin(int(words[7], 16)).count("1"))
        if network not in found.setdefault(words[0].decode("utf-8", "replace"), []):
            found[words[0].decode("utf-8", "replace")].append(network)
    return found


def gids_of(port: str) -> list[Json] | None:
    """Return the addresses that an RDMA port answers to, with their index and type. The kernel keeps them in memory."""
    found = []
    for index in range(GIDS):
        gid = text_once(f"{port}/gids/{index}")
        if gid is None and not index:
            return None
        if gid and gid.strip("0:"):
            kind = text_once(f"{port}/gid_attrs/types/{index}")  # EINVAL, so None, for one that is not in use
            found.append({"index": index, "type": kind, "address": address_of(gid)})
    return found


def address_of(gid: str) -> str:
    """Return the IPv4 address in a GID, and one that holds none as it is."""
    words = gid.split(":")
    if len(words) != 8 or gid[:30] != "0000:0000:0000:0000:0000:ffff:":
        return gid
    return ".".join(str(byte) for byte in bytes.fromhex(words[6] + words[7]))


def _is_hardware(base: str, name: str) -> bool:
    """Tell whether an interface is a port of the machine (or, inside a container, stands for one)."""
    return os.path.exists(f"{base}/{name}/device") or re.match(r"(en|eth|wl)", name) is not None  # noqa: PTH110


class Processes:
    """The processes of containers and of the GPU. A command line is never read: that can wait for a lock on its memory."""

    def __init__(self, root: str) -> None:
        self.root = root
        self.containers: dict[int, str | None] = {}
        self.checked_at = -RARELY
        self.before: dict[int, tuple[float, float]] = {}
        self.tick = os.sysconf("SC_CLK_TCK")
        self.psutil = Psutil()

    def read(self, gpu_pids: list[int]) -> list[Json]:
        """Return them, the largest first: those of the GPU whatever they hold on the CPU's side, and not too many others.

        Which container a process is in is asked again after a minute.
        """
        now = time.monotonic()
        if now - self.checked_at >= RARELY:
            self.checked_at, self.containers = now, {}
        alive = {int(name) for name in names(self.root + "/proc") if name.isdigit()}
        self.containers = {pid: known for pid, known in self.containers.items() if pid in alive}
        for pid in alive.difference(self.containers):
            self.containers[pid] = container_of(self.root, pid)
        wanted = [pid for pid, container in self.containers.items() if container or pid in gpu_pids]
        found = [one for one in (self.one(pid, now) for pid in wanted) if one is not None]
        self.before = {pid: seen for pid, seen in self.before.items() if pid in alive}
        found.sort(key=lambda one: -(one["resident"] or 0))
        others = [one for one in found if one["pid"] not in gpu_pids]
        left_out = {one["pid"] for one in others[max(0, PATH_LIMIT - len(found) + len(others)) :]}
        return [one for one in found if one["pid"] not in left_out]

    def one(self, pid: int, now: float) -> Json | None:
        """Return what one process holds and does; None if it has gone."""
        stat = once(f"{self.root}/proc/{pid}/stat")
        if not stat or b")" not in stat:
            return None
        words = stat[stat.rindex(b")") + 2 :].split()
        name = stat[stat.index(b"(") + 1 : stat.rindex(b")")].decode("utf-8", "replace")
        sizes = dict(STATUS.findall(once(f"{self.root}/proc/{pid}/status") or b""))
        anonymous = [int(sizes[name]) for name in (b"RssAnon", b"RssShmem") if name in sizes]
        if words[0] == b"Z":  # it holds nothing any more, and the kernel says nothing of it
            anonymous = [0]
        rss = int(sizes[b"VmRSS"]) * 1024 if b"VmRSS" in sizes else None
        used = (int(words[11]) + int(words[12])) / self.tick
        said = self.psutil.ask(lambda module: _by_psutil(module, pid))
        if said is not None:
            used, rss = said
        when, before = self.before.get(pid, (now, used))
        self.before[pid] = (now, used)
        return {
            "pid": pid,
            "parent": int(words[1]),
            "parent_name": None if self.containers.get(pid) else text_once(f"{self.root}/proc/{int(words[1])}/comm"),
            "name": name,
            "container": self.containers.get(pid),
            "unit": None if self.containers.get(pid) else unit_of(self.root, pid),
            "resident": sum(anonymous) * 1024 if anonymous else None,
            "rss": rss,
            "cpu": round((used - before) / (now - when), 3) if now > when else None,
            "gpu_memory": None,
        }


def _by_psutil(module: Any, pid: int) -> tuple[float, int]:
    """Return CPU seconds and resident bytes; not its name, for which psutil may read the command line."""
    process = module.Process(pid)
    times = process.cpu_times()
    return times.user + times.system, process.memory_info().rss


def container_of(root: str, pid: int) -> str | None:
    """Return the id of the container that a process is in."""
    match = CONTAINER.search(once(f"{root}/proc/{pid}/cgroup") or b"")
    return match.group().decode() if match else None


def unit_of(root: str, pid: int) -> str | None:
    """Return the systemd unit that a process is in: a service has somebody who looks after it, a session's scope has not."""
    path = (once(f"{root}/proc/{pid}/cgroup") or b"").decode("utf-8", "replace").strip()
    units = [name for name in path.rpartition(":")[2].split("/") if name.endswith((".service", ".scope"))]
    return units[-1] if units else None


# -- the GPU: NVML, in a process of its own, because a driver that hangs cannot be interrupted


# NVML's codes for: invalid argument, not supported, no permission, function not found, structure version, deprecated
UNSUPPORTED = (2, 3, 4, 13, 25, 26)


class Gpus:
    """NVML through the pynvml that travelled with us, or the installed one. What is not supported is asked again rarely."""

    def __init__(self, source: bytes | None) -> None:
        self.nvml = load_module("pynvml", source) if source else importlib.import_module("pynvml")
        self.refused: dict[tuple[str, int], float] = {}
        self.known: dict[int, Json] = {}
        self.meters: dict[int, list[Any]] = {}
        self.begun = False
        self.retry_at = 0.0
        self.trouble: str | None = None
        self.utilisation_seen: dict[int, int] = {}
        self.held: dict[tuple[int, str], tuple[float, Any]] = {}

    def read(self, _request: list[int]) -> Json:
        """Return ``gpus``, or the ``trouble`` that keeps the driver from answering."""
        if self.trouble and time.monotonic() < self.retry_at:
            return {"gpus": None, "trouble": self.trouble}
        try:
            if not self.begun:
                self.nvml.nvmlInit()
                self.begun = True
            count = self.nvml.nvmlDeviceGetCount()
            found = [self.one(index, self.nvml.nvmlDeviceGetHandleByIndex(index)) for index in range(count)]
        except self.nvml.NVMLError as error:
            self.trouble, self.retry_at = f"NVML: {error}", time.monotonic() + RARELY
            return {"gpus": None, "trouble": self.trouble}
        self.trouble = None
        return {"gpus": found, "trouble": None}

    def ask(self, index: int, name: str, *words: object) -> Any:
        """Return what a call answers, None where it fails; what is not supported is left alone for some minutes."""
        if time.monotonic() < self.refused.get((name + str(words[1:]), index), 0):
            return None
        try:
            return getattr(self.nvml, name)(*words)
        except AttributeError:
            pass  # an older pynvml
        except self.nvml.NVMLError as error:
            if error.value in (self.nvml.NVML_ERROR_GPU_IS_LOST, self.nvml.NVML_ERROR_UNINITIALIZED):
                raise
            if error.value not in UNSUPPORTED:
                return None  # the next reading may have it
        self.refused[name + str(words[1:]), index] = time.monotonic() + 5 * RARELY
        return None

    def kept(self, index: int, name: str, every: float, read: Callable[[], Any]) -> Any:
        """Return what ``read`` returns, at most so often: some calls take the driver milliseconds."""
        now = time.monotonic()
        when, value = self.held.get((index, name), (now - every, None))
        if now - when >= every:
            value = read()
            self.held[index, name] = (now, value)
        return value

    def one(self, index: int, handle: Any) -> Json:
        """Return one GPU's reading."""
        nvml = self.nvml
        use = self.ask(index, "nvmlDeviceGetUtilizationRates", handle)
        memory = self.ask(index, "nvmlDeviceGetMemoryInfo", handle)
        power = self.ask(index, "nvmlDeviceGetPowerUsage", handle)
        reasons = self.ask(index, "nvmlDeviceGetCurrentClocksEventReasons", handle)
        if reasons is None:
            reasons = self.ask(index, "nvmlDeviceGetCurrentClocksThrottleReasons", handle)
        reading = dict(self.identity(index, handle))
        reading.update(
            {
                "busy": None if use is None else use.gpu / 100,
                "sm_clock": self.ask(index, "nvmlDeviceGetClockInfo", handle, nvml.NVML_CLOCK_SM),
                "sm_clock_max": self.highest(index, handle, nvml.NVML_CLOCK_SM),
                "power": None if power is None else power / 1000,
                "celsius": self.ask(index, "nvmlDeviceGetTemperature", handle, nvml.NVML_TEMPERATURE_GPU),
                "pstate": self.ask(index, "nvmlDeviceGetPerformanceState", handle),
                "reasons": reasons,
                "events": self.kept(index, "events", 10, lambda: self.events(index, handle)),
                "memory_total": memory.total if memory else None,
                "memory_used": memory.used if memory else None,
                "processes": self.processes(index, handle),
            }
        )
        reading.update(self.bandwidth(index, handle))
        return reading

    def highest(self, index: int, handle: Any, clock: int) -> int | None:
        """Return the highest MHz of a clock, asked every ten minutes."""
        read = "nvmlDeviceGetMaxClockInfo"
        known: int | None = self.kept(index, f"{read} {clock}", 600, lambda: self.ask(index, read, handle, clock))
        return known

    def identity(self, index: int, handle: Any) -> Json:
        """Return what does not change, asked once."""
        if index not in self.known:
            name, uuid = self.ask(index, "nvmlDeviceGetName", handle), self.ask(index, "nvmlDeviceGetUUID", handle)
            both = [text.decode("utf-8", "replace") if isinstance(text, bytes) else text for text in (name, uuid)]
            self.known[index] = {"index": index, "name": both[0], "uuid": both[1]}
        return self.known[index]

    def processes(self, index: int, handle: Any) -> list[Json] | None:
        """Return bytes by process. One that computes and draws is listed twice: its larger figure counts."""
        calls = ("nvmlDeviceGetComputeRunningProcesses", "nvmlDeviceGetGraphicsRunningProcesses")
        lists = [self.ask(index, call, handle) for call in calls]
        if lists[0] is None:
            return None
        held: dict[int, int | None] = {}
        for process in [process for found in lists for process in found or []]:
            size = process.usedGpuMemory
            if size is not None and size >= (1 << 62):
                size = None  # 2^64 - 1 is "not available"
            before = held.get(process.pid, size)
            held[process.pid] = None if size is None or before is None else max(size, before)
        shares = self.kept(index, "shares", 10, lambda: self.shares(index, handle))
        return [{"pid": pid, "memory": size, "busy": shares.get(pid)} for pid, size in sorted(held.items())]

    def shares(self, index: int, handle: Any) -> dict[int, float]:
        """Return the share of the SMs' time by process, where the driver tells it."""
        name, since = "nvmlDeviceGetProcessUtilization", self.utilisation_seen.get(index, 0)
        if time.monotonic() < self.refused.get((name, index), 0) or not hasattr(self.nvml, name):
            return {}
        try:
            found = self.nvml.nvmlDeviceGetProcessUtilization(handle, since)
        except self.nvml.NVMLError as error:
            if error.value in UNSUPPORTED:  # NOT_FOUND says: no sample yet
                self.refused[name, index] = time.monotonic() + 5 * RARELY
            return {}
        self.utilisation_seen[index] = max([since] + [sample.timeStamp for sample in found])
        return {sample.pid: sample.smUtil / 100 for sample in found}

    def events(self, index: int, handle: Any) -> Json:
        """Return the driver's counters of time spent slowed down, by reason, in its own unit."""
        wanted = {"power_cap": 74, "sw_thermal": 269, "hw_thermal": 270, "power_brake": 271}
        values = self.ask(index, "nvmlDeviceGetFieldValues", handle, sorted(wanted.values()))
        by_id = {one.fieldId: one.value.ullVal for one in values or [] if one.nvmlReturn == 0}
        return {name: by_id.get(field) for name, field in wanted.items()}

    def bandwidth(self, index: int, handle: Any) -> Json:
        """Return the share of its memory bandwidth in use since the previous reading, where hardware counts it (GPM).

        The peak is 2 x memory clock x bus width / 8.
        """
        unknown = {"bandwidth_share": None, "bandwidth_peak": None}
        if index not in self.meters:
            support = self.ask(index, "nvmlGpmQueryDeviceSupport", handle)
            supported = bool(support and support.isSupportedDevice)
            self.meters[index] = [self.ask(index, "nvmlGpmSampleAlloc") for _ in "ab"] + [None] if supported else []
        meter = self.meters[index]
        if not meter or None in meter[:2]:
            return unknown
        clock = self.highest(index, handle, self.nvml.NVML_CLOCK_MEM)
        width = self.kept(index, "width", 600, lambda: self.ask(index, "nvmlDeviceGetMemoryBusWidth", handle))
        if clock and width:
            unknown["bandwidth_peak"] = 2 * clock * 1_000_000 * width // 8
        earlier, later, taken = meter
        if self.ask(index, "nvmlGpmSampleGet", handle, later) is None:
            return unknown
        self.meters[index] = [later, earlier, True]
        if not taken:
            return unknown
        question = self.nvml.c_nvmlGpmMetricsGet_t()
        question.version = self.nvml.NVML_GPM_METRICS_GET_VERSION
        question.numMetrics, question.sample1, question.sample2 = 1, earlier, later
        question.metrics[0].metricId = self.nvml.NVML_GPM_METRIC_DRAM_BW_UTIL
        answer = self.ask(index, "nvmlGpmMetricsGet", question)
        if answer is None or answer.metrics[0].nvmlReturn != 0:
            return unknown
        share = round(answer.metrics[0].value / 100, 4)
        return {"bandwidth_share": share, "bandwidth_peak": unknown["bandwidth_peak"]}


def load_module(name: str, source: bytes) -> Any:
    """Return a module made of its source, without its docstrings."""
    module = type(sys)(name)
    sys.modules[name] = module
    exec(compile(source, name + ".py", "exec", optimize=2), module.__dict__)  # noqa: S102  # our operator sent it
    return module


# -- parts that may keep us waiting answer over pipes


class Part:
    """One that answers a request line with an answer line when it can. At most one question is open at a time."""

    def __init__(self, requests: int, answers: int) -> None:
        self.requests = requests
        self.answers = answers
        self.asked_at: float | None = None
        self.answer: Json = {}
        self.ended = False
        self.buffer = b""

    def ask(self, now: float, words: list[int]) -> bool:
        """Ask, unless the last question is still open; tell whether a new one was asked."""
        if self.asked_at is not None or self.ended:
            return False
        try:
            os.write(self.requests, json.dumps(words).encode() + b"\n")
        except OSError:
            self.ended = True
            return False
        self.asked_at = now
        return True

    def hear(self) -> None:
        """Take in what it says; call when its pipe has something."""
        said = os.read(self.answers, CHUNK)
        self.buffer += said
        if not said:
            self.ended, self.answer = True, {}
        elif self.buffer.endswith(b"\n"):
            self.answer, self.buffer, self.asked_at = json.loads(self.buffer), b"", None

    def silent_for(self, now: float) -> float | None:
        """Return how long it owes an answer, None while it is on time."""
        if self.asked_at is None or now - self.asked_at < PATIENCE:
            return None
        return round(now - self.asked_at, 1)


def answer_all(requests: int, answers: int, reading: Callable[[list[int]], Json]) -> None:
    """Answer questions until the asker has gone."""
    buffer = b""
    while True:
        said = os.read(requests, CHUNK)
        if not said:
            return
        buffer += said
        if buffer.endswith(b"\n"):
            line = json.dumps(reading(json.loads(buffer)), separators=(",", ":")).encode() + b"\n"
            buffer = b""
            while line:
                line = line[os.write(answers, line) :]


def tidy() -> None:
    """Give back what compiling needed, some MiB; the rest is not looked through again, so a fork keeps sharing it."""
    gc.collect()
    gc.freeze()
    with contextlib.suppress(ImportError, AttributeError, OSError):  # another C library
        import ctypes

        ctypes.CDLL(None).malloc_trim(0)


def start_gpu_child(source: bytes | None) -> Part:
    """Fork the process that asks the driver. It goes when we go, and holds none of our streams.

    ``source`` is pynvml's, None for the installed one.
    """
    requests, answers = os.pipe(), os.pipe()
    if os.fork():
        os.close(requests[0])
        os.close(answers[1])
        return Part(requests[1], answers[0])
    try:
        os.close(requests[1])
        os.close(answers[0])
        nowhere = os.open(os.devnull, os.O_RDWR)
        for stream in (0, 1, 2):
            os.dup2(nowhere, stream)
        import ctypes

        ctypes.CDLL(None).prctl(1, 9)  # PR_SET_PDEATHSIG, SIGKILL: a hung call ends with its asker, if anything ends it
        reading = Gpus(source).read
        tidy()
        answer_all(requests[0], answers[1], reading)
    finally:
        os._exit(0)


def start_thread(reading: Callable[[list[int]], Json]) -> Part:
    """Start a thread that answers with what ``reading`` returns, or with its ``devices_trouble``."""

    def read(words: list[int]) -> Json:
        try:
            return reading(words)
        except Exception as error:  # noqa: BLE001  # the thread's own end: what it cannot read is told, and read again
            return {"devices_trouble": f"{type(error).__name__}: {error}"}

    requests, answers = os.pipe(), os.pipe()
    threading.Thread(target=answer_all, args=(requests[0], answers[1], read), daemon=True).start()
    return Part(requests[1], answers[0])


# -- the loop


class Probe:
    """Samples at its rate, for as long as it is fed; `Probe.run` waits for no device."""

    def __init__(self, root: str, every: float, fed: float, disks: list[str], nvml: bytes | None) -> None:
        self.root = root
        self.every = every
        self.fed = fed
        tidy()
        self.gpu = (
            start_gpu_child(nvml) if nvml != b"" else None
        )  # before there is a thread: a fork takes only its own along
        self.devices = start_thread(Devices(root, disks, psutil=not root).read)
        self.parts = [part for part in (self.gpu, self.devices) if part is not None]
        self.meminfo = Source(root + "/proc/meminfo", pause=0.0)
        self.vmstat = Source(root + "/proc/vmstat", long=True, pause=0.0)
        self.pressure = Source(root + "/proc/pressure/memory", pause=0.0)
        self.buddy = Source(root + "/proc/buddyinfo", long=True, pause=0.0)
        self.stat = Source(root + "/proc/stat", long=True, pause=0.0)
        self.load = Source(root + "/proc/loadavg", pause=0.0)
        self.cores = Cores()
        self.clusters = clusters_of(root)
        self.names: dict[int, tuple[str | None, str | None]] = {}
        self.sequence = 0
        self.pending = b""
        self.commands = b""

    def run(self) -> None:
        """Run until stdin ends, or until nobody has fed us for too long."""
        os.set_blocking(1, False)  # whoever does not read must not keep us from ending
        self.say({"kind": "hello", "identity": identity_of(self.root)})
        fed = due = time.monotonic()
        asked_at: float | None = None
        while True:
            now = time.monotonic()
            if now - fed > self.fed and not is_readable(0):  # we may have been stopped while somebody fed us
                return
            if asked_at is None and now >= due:
                asked_at = self.ask(now)
            if asked_at is not None and (now - asked_at >= PATIENCE or not self.awaited(asked_at)):
                self.say(self.sample(now))
                due, asked_at = max(due + self.every, now), None
                continue
            until = min(fed + self.fed, due if asked_at is None else asked_at + PATIENCE)
            open_parts = [part.answers for part in self.parts if not part.ended]
            ready, _, _ = select.select(
                [0, *open_parts], [1] if self.pending else [], [], max(0.0, until - now) + 0.001
            )
            for part in self.parts:
                if part.answers in ready:
                    part.hear()
            if 0 in ready:
                said = os.read(0, CHUNK)
                if not said:
                    return
                fed = time.monotonic()
                before = self.every
                self.obey(said)
                if self.every != before:
                    due = min(due, fed + self.every)
            self.flush()

    def ask(self, now: float) -> float:
        """Ask the parts for what the next sample shall have of them."""
        last = self.gpu.answer.get("gpus") if self.gpu else None  # however old: whose processes to look at
        pids = [process["pid"] for gpu in last or [] for process in gpu["processes"] or []]
        for part in self.parts:
            part.ask(now, pids)
        return now

    def awaited(self, since: float) -> bool:
        """Tell whether a part that was asked just now may still answer; one that has been silent is not waited for."""
        return any(part.asked_at == since and not part.ended for part in self.parts)

    def obey(self, said: bytes) -> None:
        """Take in command lines; what is none only feeds."""
        *lines, self.commands = (self.commands + said).split(b"\n")
        for line in lines:
            words = line.split()
            if len(words) == 2 and words[0] == b"every":
                try:
                    self.every = max(0.05, float(words[1]))
                except ValueError:
                    continue

    def sample(self, now: float) -> Json:
        """Return everything as of now."""
        self.sequence += 1
        memory, detail = memory_of(self.meminfo.read())
        detail.update(counters_of(self.vmstat.read()))
        detail["pressure"] = pressure_of(self.pressure.read())
        detail["blocks"] = blocks_of(self.buddy.read())
        spent = os.times()
        return {
            "kind": "sample",
            "sequence": self.sequence,
            "time": round(time.time(), 3),
            "uptime": round(now, 3),
            "memory": memory,
            "detail": detail,
            "cpu": cpu_of(self.cores.shares(self.stat.read()), self.clusters, self.load.read()),
            "gpus": self.gpus(),
            "gpu_trouble": self.gpu_trouble(),
            "gpu_silent_for": self.gpu.silent_for(now) if self.gpu else None,
            "devices_silent_for": self.devices.silent_for(now),
            "spent": round(spent.user + spent.system, 3),
            **self.seen(now),
            "processes": self.processes(now),
        }

    def seen(self, now: float) -> Json:
        """Return what the devices said last. While they owe an answer, only what is read so rarely anyway, and not for long."""
        silent = self.devices.silent_for(now)
        if silent is None:
            return self.devices.answer
        names = ("psutil", *SLOW) if silent < SLOWLY else ("psutil",)
        return {name: self.devices.answer.get(name) for name in names}

    def gpus(self) -> list[Json] | None:
        """Return the GPUs as of their last answer; None while the driver owes one."""
        if self.gpu is None or self.gpu.ended or self.gpu.asked_at is not None:
            return None
        return self.gpu.answer.get("gpus")

    def gpu_trouble(self) -> str | None:
        """Return why nothing is known of the GPUs, beside silence."""
        if self.gpu is None:
            return "no pynvml came along"
        return "the process that asks the driver has ended" if self.gpu.ended else self.gpu.answer.get("trouble")

    def processes(self, now: float) -> list[Json] | None:
        """Return the processes, each with what it holds of the GPU; None while those of the CPU's side are not known."""
        listed = self.seen(now).get("processes")
        held: dict[int, int | None] = {}
        for gpu in self.gpus() or []:
            for process in gpu["processes"] or []:
                size, before = process["memory"], held.get(process["pid"], 0)
                held[process["pid"]] = None if size is None or before is None else size + before
        if listed is None:
            return None
        found = [dict(process, gpu_memory=held.pop(process["pid"], None)) for process in listed or []]
        found += [self.unlisted(pid, size) for pid, size in held.items()]
        self.names = {pid: known for pid, known in self.names.items() if pid in held}
        return found

    def unlisted(self, pid: int, size: int | None) -> Json:
        """Return a process of the GPU that the list of processes does not have yet."""
        if pid not in self.names:
            self.names[pid] = (text_once(f"{self.root}/proc/{pid}/comm"), container_of(self.root, pid))
        name, container = self.names[pid]
        sizes = STATUS.findall(once(f"{self.root}/proc/{pid}/status") or b"")
        anonymous = [int(kib) * 1024 for kind, kib in sizes if kind != b"VmRSS"]
        resident = sum(anonymous) if anonymous else None
        return {"pid": pid, "name": name, "container": container, "resident": resident, "gpu_memory": size}

    def say(self, message: Json) -> None:
        """Send one line. While the last one is not through, new ones are left out: old samples are worth nothing."""
        if not self.pending:
            line = json.dumps(dict({"probe": PROTOCOL}, **message), separators=(",", ":"))
            self.pending = line.encode("ascii", "replace") + b"\n"
        self.flush()

    def flush(self) -> None:
        """Write what can be written now."""
        try:
            while self.pending:
                self.pending = self.pending[os.write(1, self.pending) :]
        except BlockingIOError:
            pass


def is_readable(fd: int) -> bool:
    """Tell whether something is there to be read, or the end is."""
    return bool(select.select([fd], [], [], 0.0)[0])


def main(words: list[str]) -> None:
    """Run with the options of the start command: LENGTH of pynvml on stdin, then pairs of option and value."""
    length, packed = int(words[0]), b""
    while len(packed) < length:
        said = os.read(0, length - len(packed))
        if not said:
            return
        packed += said
    options = {"--root": "", "--every": "2", "--fed": "10", "--nvml": "sent"}
    disks = []
    for at in range(1, len(words) - 1, 2):
        if words[at] == "--disk":
            disks.append(words[at + 1])
        else:
            options[words[at]] = words[at + 1]
    root = options["--root"].rstrip("/")
    nvml = None if options["--nvml"] == "installed" else zlib.decompress(packed) if packed else b""
    with contextlib.suppress(BrokenPipeError):  # nobody reads any more
        Probe(root, float(options["--every"]), float(options["--fed"]), disks, nvml).run()
    os._exit(0)  # at once, whatever the thread is waiting for


if __name__ == "__main__":
    main(sys.argv[2:])
