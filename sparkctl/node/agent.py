"""The agent: reads a Spark's memory, GPU, devices and processes. One file, standard library only, Python 3.8 or newer,
nothing on disk.

Started as ``python3 -ISu -c BOOT LENGTHS NVML_LENGTH OPTIONS``: its own source and that of pynvml (zlib) arrive on
stdin, then command lines. Any line is a keepalive; ``every SECONDS`` also sets the rate. It ends when stdin ends, and
after ``--fed`` seconds without a keepalive. Each line of its stdout is a JSON object with a protocol number: first a
hello, then samples.

Three parts, so that nothing that hangs can stop the memory samples: the main loop reads only /proc and never waits for
a device or forks; a thread reads drives, NICs and filesystems; a child process, started once before the loop, calls the
GPU's driver. A part that does not answer in time is left out, and the sample says for how long it has been silent.
The kernel's log is read by `kernel_log`, which is sent with this file.

Bytes, seconds, degrees Celsius, watts, shares of 0..1. A reading that fails is null, never zero.
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

from sparkctl.node.kernel_log import PCI_PLACE, open_kernel_log

TYPE_CHECKING = False
if TYPE_CHECKING:  # importing typing would cost the node a megabyte
    from collections.abc import Callable
    from typing import Any

    from sparkctl.node.kernel_log import KernelLogReader

    Json = dict[str, Any]

AGENT_PROTOCOL = 1
DEVICE_WAIT_SECONDS = 0.25  # seconds that a sample waits for the driver and the devices before it is sent without them
ABSENT_RETRY_SECONDS = 60.0  # seconds until an absent file is read again; an unsupported call after five times as long
# seconds between two readings of what changes slowly
SLOW_READ_SECONDS, SLOW_READING_NAMES = 5.0, ("temperatures", "disks", "processes")
CHUNK_BYTES = 1 << 16
MAX_GIDS = 32  # of a table of 256: the indices in use are its first
MAX_LISTED_ITEMS = 48  # sensors, processes: as many as a Spark has, and a limit for other machines
CONTAINER_ID_PATTERN = re.compile(rb"[0-9a-f]{64}")
MEMINFO_PATTERN = re.compile(rb"^(\w+(?:\(\w+\))?):\s+(\d+)( kB)?", re.MULTILINE)
VMSTAT_PATTERN = re.compile(rb"^(drop_pagecache|drop_slab|pswpin|pswpout|pgmajfault|oom_kill) (\d+)$", re.MULTILINE)
PRESSURE_PATTERN = re.compile(rb"^(some|full) avg10=([\d.]{1,20}) .*total=(\d+)$", re.MULTILINE)
CPU_LINE_PATTERN = re.compile(rb"^cpu(\d+) (.+)$", re.MULTILINE)
PROCESS_STATUS_PATTERN = re.compile(rb"^(VmRSS|RssAnon|RssShmem):\s+(\d+)", re.MULTILINE)
NETDEV_PATTERN = re.compile(rb"^[ \t]*([^\s:]+):[ \t]*(\S.*)$", re.MULTILINE)


class KernelFile:
    """A file of /proc or /sys: opened once, then read again from its beginning. ``long``: the kernel returns it in
    pieces.

    ``pause``: seconds after a failed read until it is opened again; 0 for files that always exist.
    """

    __slots__ = ("fd", "long", "path", "pause", "retry_at")

    def __init__(self, path: str, long: bool = False, pause: float = ABSENT_RETRY_SECONDS) -> None:
        self.path = path
        self.pause = pause
        self.long = long
        self.fd = -1
        self.retry_at = 0.0

    def read(self) -> bytes | None:
        """Return its content; None if it is absent or cannot be read now."""
        if self.fd < 0 and not self._open_file():
            return None
        try:
            text = os.pread(self.fd, CHUNK_BYTES, 0)
            while self.long:
                more = os.pread(self.fd, CHUNK_BYTES, len(text))
                if not more:
                    break
                text += more
            return text
        except OSError as error:
            if error.errno != errno.EINVAL:  # the answer of an interface without a link to a request for its speed
                self.close()
            return None

    def read_number(self) -> int | None:
        text = self.read()
        try:
            return None if text is None else int(text)
        except ValueError:
            return None

    def read_text(self) -> str | None:
        """Return its content as text on one line, None if there is none."""
        text = self.read()
        return (text.decode("utf-8", "replace").strip("\0 \n") or None) if text is not None else None

    def close(self) -> None:
        """Close it; it is opened again after its pause."""
        if self.fd >= 0:
            os.close(self.fd)
        self.fd = -1
        self.retry_at = time.monotonic() + self.pause

    def _open_file(self) -> bool:
        if time.monotonic() < self.retry_at:
            return False
        try:
            self.fd = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            self.retry_at = time.monotonic() + self.pause
            return False
        return True


def read_file(path: str) -> bytes | None:
    """Return a file's content without keeping it open."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        return os.read(fd, CHUNK_BYTES)
    except OSError:
        return None
    finally:
        os.close(fd)


def read_text_file(path: str) -> str | None:
    """Return a file's content as text without its line end, None where there is none."""
    found = read_file(path)
    return (found.decode("utf-8", "replace").strip("\0 \n") or None) if found is not None else None


def list_directory(path: str) -> list[str]:
    """Return a directory's entries, none if it does not exist. Raises OSError if this process, or the node, has no room
    for one more open file: that says nothing about the directory.
    """
    try:
        return sorted(os.listdir(path))  # noqa: PTH208  # pathlib costs the node a megabyte
    except OSError as error:
        if error.errno in (errno.EMFILE, errno.ENFILE, errno.ENOMEM):
            raise
        return []


# -- memory and CPU: pure functions of texts, so that a simulated Spark gives the same answers


def parse_meminfo(meminfo: bytes | None) -> tuple[Json | None, Json]:
    """Return the basic memory reading (None if a figure is missing) and the details."""
    field = {name: int(size) * (1024 if unit else 1) for name, size, unit in MEMINFO_PATTERN.findall(meminfo or b"")}

    def get_bytes(name: bytes, factor: int = 1) -> int | None:
        return field[name] * factor if name in field else None

    page = field.get(b"Hugepagesize", 0)
    detail = {
        "dirty": get_bytes(b"Dirty"),
        "writeback": get_bytes(b"Writeback"),
        "anonymous": get_bytes(b"AnonPages"),
        "shared": get_bytes(b"Shmem"),
        "slab": get_bytes(b"Slab"),
        "locked": get_bytes(b"Mlocked"),
        "huge_total": get_bytes(b"HugePages_Total", page),
        "huge_free": get_bytes(b"HugePages_Free", page),
        "cma_total": get_bytes(b"CmaTotal"),
        "cma_free": get_bytes(b"CmaFree"),
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


def parse_vmstat(vmstat: bytes | None) -> Json:
    """Return the kernel's counters of drops, swapping and kills, null if it does not count them."""
    field = {name.decode(): int(count) for name, count in VMSTAT_PATTERN.findall(vmstat or b"")}
    wanted = ("drop_pagecache", "drop_slab", "pswpin", "pswpout", "pgmajfault", "oom_kill")
    return {name: field.get(name) for name in wanted}


def parse_pressure(text: bytes | None) -> Json | None:
    """Return the share of the last ten seconds that some, or all, tasks waited for memory, and the totals in us."""
    found = {kind.decode(): (float(share), int(total)) for kind, share, total in PRESSURE_PATTERN.findall(text or b"")}
    if "some" not in found:
        return None
    full = found.get("full", (None, None))
    return {
        "some": found["some"][0] / 100,
        "full": None if full[0] is None else full[0] / 100,
        "some_total": found["some"][1],
        "full_total": full[1],
    }


def parse_buddyinfo(buddyinfo: bytes | None) -> list[int] | None:
    """Return the number of free blocks by order (0 is one page), all zones together."""
    rows = [line.split()[4:] for line in (buddyinfo or b"").splitlines() if b"zone" in line]
    if not rows or not rows[0]:
        return None
    return [sum(int(row[order]) for row in rows if order < len(row)) for order in range(max(map(len, rows)))]


class CpuUsage:
    """Turns the kernel's tick counts into each core's busy share since the previous reading."""

    def __init__(self) -> None:
        self.before: dict[int, tuple[int, int]] = {}

    def compute_shares(self, stat: bytes | None) -> dict[int, float | None]:
        """Return a share for each core; None at a core's first reading."""
        now: dict[int, tuple[int, int]] = {}
        for name, text in CPU_LINE_PATTERN.findall(stat or b""):
            ticks = [int(word) for word in text.split()[:8]]  # from user to steal; guest time is included in user
            total = sum(ticks)
            now[int(name)] = (total - ticks[3] - ticks[4], total)
        found = {core: self._compute_share(now[core], self.before.get(core)) for core in sorted(now)}
        self.before = now
        return found

    @staticmethod
    def _compute_share(now: tuple[int, int], before: tuple[int, int] | None) -> float | None:
        if before is None or now[1] <= before[1]:
            return None
        return round(min(1.0, max(0.0, (now[0] - before[0]) / (now[1] - before[1]))), 4)


def compute_mean(values: list[float | None]) -> float | None:
    """Return the mean of the known values."""
    known = [value for value in values if value is not None]
    return round(sum(known) / len(known), 4) if known else None


def build_cpu_sample(shares: dict[int, float | None], clusters: list[Json], loadavg: bytes | None) -> Json:
    """Return the CPU part of a sample. ``clusters``: ``capacity`` and ``cores`` of each."""
    load = [float(word) for word in (loadavg or b"").split()[:3]]
    return {
        "busy": compute_mean(list(shares.values())),
        "cores": list(shares.values()),
        "clusters": [
            {
                "capacity": c["capacity"],
                "cores": c["cores"],
                "busy": compute_mean([shares.get(core) for core in c["cores"]]),
            }
            for c in clusters
        ],
        "load": load if len(load) == 3 else None,
    }


def list_cpu_clusters(root: str) -> list[Json]:
    """Return the cores by kind: their capacity if the kernel reports it, otherwise the highest clock in kHz."""
    by_capacity: dict[int, list[int]] = {}
    base = root + "/sys/devices/system/cpu"
    for name in list_directory(base):
        if not re.match(r"cpu\d+$", name):
            continue
        capacity = read_text_file(f"{base}/{name}/cpu_capacity") or read_text_file(
            f"{base}/{name}/cpufreq/cpuinfo_max_freq"
        )
        by_capacity.setdefault(int(capacity) if capacity and capacity.isdigit() else 0, []).append(int(name[3:]))
    return [{"capacity": c or None, "cores": sorted(cores)} for c, cores in sorted(by_capacity.items(), reverse=True)]


# -- who the node is, asked once

SYSCTL_NAMES = ("swappiness", "min_free_kbytes", "overcommit_memory", "zone_reclaim_mode", "compaction_proactiveness")
# the last one wins
SYSCTL_DIRECTORIES = ("/usr/lib/sysctl.d", "/usr/local/lib/sysctl.d", "/run/sysctl.d", "/etc/sysctl.d")
SYSCTL_LINE_PATTERN = re.compile(rb"^[ \t]*-?vm[./](\w+)[ \t]*=[ \t]*(\d+)[ \t]*$", re.MULTILINE)
PACKAGES = {
    b"docker-ce": "docker",
    b"docker.io": "docker",
    b"moby-engine": "docker",
    b"nvidia-container-toolkit": "toolkit",
}
PACKAGES[b"earlyoom"] = "earlyoom"
SWAP_LINE_PATTERN = re.compile(rb"^(/\S+)\s+(\w+)\s+(\d+)\s+(\d+)", re.MULTILINE)
EARLYOOM_ARGS_PATTERN = re.compile(r"^[ \t]*EARLYOOM_ARGS=(.*)$", re.MULTILINE)


def read_identity(root: str) -> Json:
    """Return what does not change while it runs; null if not known."""
    driver = re.search(r" (\d+\.\d[\d.]*)(?:\s|$)", read_text_file(root + "/proc/driver/nvidia/version") or "")
    release = dict(re.findall(r'^(\w+)="?([^"\n]*)', read_text_file(root + "/etc/dgx-release") or "", re.MULTILINE))
    distribution = dict(re.findall(r'^(\w+)="?([^"\n]*)', read_text_file(root + "/etc/os-release") or "", re.MULTILINE))
    settings = {}
    for name in SYSCTL_NAMES:
        found = read_text_file(f"{root}/proc/sys/vm/{name}")
        settings[name] = int(found) if found and found.isdigit() else None
    packages = read_package_versions(root)
    up = read_text_file(root + "/proc/uptime")
    return {
        "host": read_text_file(root + "/proc/sys/kernel/hostname"),
        "kernel": read_text_file(root + "/proc/sys/kernel/osrelease"),
        "machine": os.uname().machine,
        "boot_id": read_text_file(root + "/proc/sys/kernel/random/boot_id"),
        "product": read_text_file(root + "/sys/class/dmi/id/product_family"),
        "driver": driver.group(1) if driver else None,
        "os": release.get("DGX_SWBUILD_VERSION"),
        "distribution": distribution.get("PRETTY_NAME"),
        "python": "{}.{}.{}".format(*sys.version_info[:3]),
        "docker": packages.get("docker"),
        "toolkit": packages.get("toolkit"),
        "up": float(up.split()[0]) if up else None,
        "sysctl": settings,
        "configured": read_configured_sysctls(root),
        "swaps": parse_swaps(read_file(root + "/proc/swaps")),
        "earlyoom": read_earlyoom(root, packages.get("earlyoom")),
        "bios": read_text_file(root + "/sys/class/dmi/id/bios_version"),
        "nic_firmware": read_nic_firmware(root),
    }


def read_nic_firmware(root: str) -> str | None:
    """Return the firmware of the RDMA cards: one version, or several with commas; None without a card."""
    place = root + "/sys/class/infiniband"
    try:
        found = {read_text_file(f"{place}/{name}/fw_ver") for name in os.listdir(place)}  # noqa: PTH208
    except OSError:
        return None
    return ", ".join(sorted(one for one in found if one)) or None


def read_package_versions(root: str) -> dict[str, str]:
    """Return the versions of the relevant packages, without epoch and revision, from dpkg's own list of some MB."""
    found: dict[str, str] = {}
    try:
        fd = os.open(root + "/var/lib/dpkg/status", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return found
    try:
        left, piece = b"", os.read(fd, CHUNK_BYTES)
        while piece:
            *stanzas, left = (left + piece).split(b"\n\n")
            piece = os.read(fd, CHUNK_BYTES)
            for stanza in stanzas if piece else [*stanzas, left]:
                name = PACKAGES.get(stanza[9 : stanza.find(b"\n")].strip())  # after "Package: "
                version = re.search(rb"^Version: (?:\d+:)?(\S+)$", stanza, re.MULTILINE) if name else None
                if name and version and b"\nStatus: install ok installed\n" in stanza:
                    words = version.group(1).decode("ascii", "replace")
                    found[name] = words.rpartition("-")[0] or words
    except OSError:
        pass  # what was found until then is valid
    finally:
        os.close(fd)
    return found


def read_configured_sysctls(root: str) -> list[Json]:
    """Return the settings that a restart will apply, and the file that sets each.

    As systemd-sysctl(8): sorted by file name regardless of the directory, a later file overrides, a name in /etc hides
    its namesakes. /etc/sysctl.conf is one of them if it is linked there; otherwise it counts last, as for `sysctl
    --system`.
    """
    files = {name: f"{place}/{name}" for place in SYSCTL_DIRECTORIES for name in list_directory(root + place)}
    order = [files[name] for name in sorted(files) if name.endswith(".conf")]
    if not any(os.path.realpath(root + path) == os.path.realpath(root + "/etc/sysctl.conf") for path in order):
        order.append("/etc/sysctl.conf")
    found: dict[str, Json] = {}
    for path in order:
        for name, value in SYSCTL_LINE_PATTERN.findall(read_file(root + path) or b""):
            if name.decode() in SYSCTL_NAMES:
                found[name.decode()] = {"name": name.decode(), "value": int(value), "file": path}
    return [found[name] for name in sorted(found)]


def parse_swaps(table: bytes | None) -> list[Json] | None:
    """Return the swap devices and files, bytes."""
    if table is None:
        return None
    rows = [
        (path.decode("utf-8", "replace"), kind.decode(), *sizes)
        for path, kind, *sizes in SWAP_LINE_PATTERN.findall(table)
    ]
    return [{"path": path, "kind": kind, "total": int(t) * 1024, "used": int(u) * 1024} for path, kind, t, u in rows]


def read_earlyoom(root: str, version: str | None) -> Json | None:
    """Return how earlyoom runs (``argv``, null if it does not), and how its file configures it; null without either."""
    configured = EARLYOOM_ARGS_PATTERN.findall(read_text_file(root + "/etc/default/earlyoom") or "")
    argv = None
    for pid in list_directory(root + "/proc"):
        if pid.isdigit() and read_file(f"{root}/proc/{pid}/comm") == b"earlyoom\n":
            command_line = read_file(f"{root}/proc/{pid}/cmdline") or b""
            argv = command_line.decode("utf-8", "replace").rstrip("\0").split("\0")
            break
    if argv is None and not configured and version is None:
        return None
    return {"version": version, "argv": argv, "configured": configured[-1].strip() if configured else None}


# -- psutil, if the node has it: the same kernel files, read by a library that knows more machines

DISTRIBUTION_PACKAGES_DIR = "/usr/lib/python3/dist-packages"  # the path of Debian and Ubuntu; -S leaves it out


class PsutilModule:
    """The node's own psutil, used only for extras. If it is broken or raises, it is not used.

    ``module`` None: there is none. What it does not report is read from /proc and /sys instead.
    """

    def __init__(self, module: Any = None) -> None:
        self.module = module

    @classmethod
    def import_installed(cls) -> PsutilModule:
        """Return the psutil that Python finds, or the one of the distribution whose Python this is."""
        before = list(sys.path)
        if sys.prefix == "/usr":
            sys.path.append(DISTRIBUTION_PACKAGES_DIR)
        try:
            return cls(importlib.import_module("psutil"))
        except Exception:  # noqa: BLE001  # somebody else's module may fail in any way
            return cls()
        finally:
            sys.path[:] = before

    @property
    def version(self) -> str | None:
        """Its version, None if it is not used."""
        return None if self.module is None else str(getattr(self.module, "__version__", "unknown"))

    def call_psutil(self, read: Callable[[Any], Any]) -> Any:
        """Return what ``read`` returns for the module, None if it fails; any error except a vanished process turns
        psutil off.
        """
        if self.module is None:
            return None
        try:
            return read(self.module)
        except Exception as error:  # noqa: BLE001  # the thread's own end: what it cannot read is reported, and read again
            expected = (OSError, getattr(self.module, "Error", OSError))
            if not isinstance(error, expected):
                self.module = None
            return None


# -- devices: read in a thread, because a drive, a NIC's firmware or a lost NFS server may block


class DeviceReader:
    """Temperatures, disks, links and processes. Each has its own interval: reading a NIC's firmware is slow."""

    def __init__(self, root: str, disks: list[str], psutil: bool) -> None:
        self.root = root
        self.disks = disks
        self.cached: dict[str, tuple[float, object]] = {}
        self.rates: dict[tuple[str, str], tuple[float, int]] = {}
        self.ports = NetworkPorts(root)
        self.sensors: list[tuple[str, str | None, str | None, KernelFile]] = []
        self.found_at = -ABSENT_RETRY_SECONDS
        self.netdev = KernelFile(root + "/proc/net/dev", long=True)
        self.route = KernelFile(root + "/proc/net/route", long=True)
        self.psutil: PsutilModule | None = None if psutil else PsutilModule()
        self.processes = ProcessReader(root)

    def read(self, gpu_pids: list[int]) -> Json:
        """Return everything; what is read rarely comes from the last reading."""
        if self.psutil is None:  # only here, because this thread may block
            self.psutil = self.processes.psutil = PsutilModule.import_installed()
        now = time.monotonic()
        if now - self.found_at >= ABSENT_RETRY_SECONDS:  # the ConnectX appears and disappears with its cable
            sensors = find_temperature_sensors(self.root)
            self.ports.discover_ports()
            for _, _, _, source in self.sensors:
                source.close()
            self.sensors, self.found_at = sensors, now
        return {
            "temperatures": self.read_cached("temperatures", now, SLOW_READ_SECONDS, self.read_temperatures),
            "disks": self.read_cached("disks", now, 30, self.read_disks),
            "links": self.read_links(now),
            "rdma": self.read_rdma_ports(now),
            "processes": self.read_cached("processes", now, SLOW_READ_SECONDS, lambda: self.processes.read(gpu_pids)),
            "psutil": self.psutil.version,
        }

    def read_cached(self, name: str, now: float, every: float, read: Callable[[], Any]) -> Any:
        """Return what ``read`` returns, called again only after an interval."""
        when, value = self.cached.get(name, (-ABSENT_RETRY_SECONDS, None))
        if now - when >= every - 0.5:
            value = read()
            self.cached[name] = (now, value)
        return value

    def compute_rate(self, name: str, counter: str, value: int | None) -> float | None:
        """Return how fast a counter grew since it was last read; None at first, and after a reset."""
        if value is None:
            return None
        now = time.monotonic()
        when, before = self.rates.get((name, counter), (now, value))
        self.rates[name, counter] = (now, value)
        return round((value - before) / (now - when), 1) if now > when and value >= before else None

    def read_temperatures(self) -> list[Json]:
        """Return each sensor's reading. psutil does not name a chip's device: its readings are matched by order."""
        by_chip: dict[str, list[Any]] = (
            self.psutil.call_psutil(lambda m: m.sensors_temperatures()) if self.psutil else None
        ) or {}
        chips = [chip for chip, _, _, _ in self.sensors]
        left = {chip: [one.current for one in each] for chip, each in by_chip.items() if len(each) == chips.count(chip)}
        found = []
        for chip, label, device, source in self.sensors:
            if left.get(chip):
                celsius: float | None = left[chip].pop(0)
            else:
                value = source.read_number()
                celsius = None if value is None else value / 1000
            if celsius is not None:
                found.append({"chip": chip, "label": label, "device": device, "celsius": celsius})
        return found

    def read_disks(self) -> list[Json]:
        """Return total and free bytes of the watched filesystems, null if one cannot be read."""
        return [dict(self.read_disk_space(path), path=path) for path in self.disks]

    def read_disk_space(self, path: str) -> Json:
        """Return the total and free bytes of one filesystem."""
        place = self.root + os.path.expanduser(path)  # noqa: PTH111
        usage = self.psutil.call_psutil(lambda module: module.disk_usage(place)) if self.psutil else None
        if usage is not None:
            return {"total": usage.total, "free": usage.free}
        try:
            room = os.statvfs(place)
        except OSError:
            return {"total": None, "free": None}
        return {"total": room.f_blocks * room.f_frsize, "free": room.f_bavail * room.f_frsize}

    def read_links(self, now: float) -> list[Json]:
        """Return each network interface with hardware: state, speed, traffic as the kernel counts it."""
        columns = {name.decode(): text.split() for name, text in NETDEV_PATTERN.findall(self.netdev.read() or b"")}
        states = self.read_cached("links", now, 5, self.ports.read_interface_states)
        networks = self.read_cached("networks", now, 30, self.read_networks)
        found = []
        for name, state in sorted(states.items()):
            words = columns.get(name, [])
            count = [int(word) for word in words] if len(words) >= 16 else None
            receive, send = (count[0], count[8]) if count else (None, None)
            link = dict(state, name=name, received=receive, sent=send, errors=count[2] + count[10] if count else None)
            link["receive_rate"] = self.compute_rate(name, "rx", receive)
            link["send_rate"] = self.compute_rate(name, "tx", send)
            link["networks"] = networks.get(name)
            found.append(link)
        return found

    def read_networks(self) -> dict[str, list[str] | None]:
        """Return the networks of each interface; null for a part of a bond or a bridge, which has the networks itself."""
        found, base = parse_routes(self.route.read()), self.root + "/sys/class/net"
        if found is None:
            return {}
        parts = {name for name in self.ports.net if os.path.exists(f"{base}/{name}/master")}  # noqa: PTH110
        return {name: None if name in parts else found.get(name, []) for name in self.ports.net}

    def read_rdma_ports(self, now: float) -> list[Json]:
        """Return each RDMA port: RoCE bypasses the kernel, so the interface's own counters miss it."""
        found = []
        for port in self.ports.rdma:
            slow = self.read_cached(port["name"] + port["port"], now, 30, port["slow"])
            receive, send = port["receive"].read_number(), port["send"].read_number()
            receive, send = [None if words is None else words * 4 for words in (receive, send)]  # 4-byte words
            one = {"name": port["name"], "port": port["port"], "interface": port["interface"], "received": receive}
            one.update({"sent": send, "receive_rate": self.compute_rate(port["name"], "rx", receive)})
            one.update({"send_rate": self.compute_rate(port["name"], "tx", send)}, **slow)
            found.append(one)
        return found


def find_temperature_sensors(root: str) -> list[tuple[str, str | None, str | None, KernelFile]]:
    """Return chip, label, device and file of every temperature; thermal zones only if hwmon does not have them."""
    found = []
    base = root + "/sys/class/hwmon"
    for chip in list_directory(base):
        name = read_text_file(f"{base}/{chip}/name") or chip
        try:
            device = os.path.basename(os.readlink(f"{base}/{chip}/device"))  # noqa: PTH115, PTH119
        except OSError:
            device = None
        numbered = [file[:-6] for file in list_directory(f"{base}/{chip}") if re.match(r"temp\d+_input$", file)]
        for sensor in sorted(numbered):  # temp1, temp10, temp2: the order of psutil, without _input behind it
            label = read_text_file(f"{base}/{chip}/{sensor}_label")
            found.append((name, label, device, KernelFile(f"{base}/{chip}/{sensor}_input")))
    chips = {chip for chip, _, _, _ in found}
    base = root + "/sys/class/thermal"
    for zone in list_directory(base):
        kind = read_text_file(f"{base}/{zone}/type") if zone.startswith("thermal_zone") else None
        if kind and kind not in chips:
            found.append((kind, None, zone, KernelFile(f"{base}/{zone}/temp")))
    return found[:MAX_LISTED_ITEMS]


class NetworkPorts:
    """The network interfaces and RDMA ports. Files are opened by name, never by a glob: each read may query the
    firmware.
    """

    ERRORS = ("port_rcv_errors", "port_xmit_discards", "link_downed", "link_error_recovery", "symbol_error")
    HARDWARE = ("out_of_sequence", "packet_seq_err", "local_ack_timeout_err", "np_cnp_sent", "rp_cnp_handled")

    def __init__(self, root: str) -> None:
        self.root = root
        self.net: dict[str, dict[str, KernelFile]] = {}
        self.rdma: list[Json] = []

    def discover_ports(self) -> None:
        """Find the present ports again."""
        base = self.root + "/sys/class/net"
        there = [name for name in list_directory(base) if _is_hardware(base, name)]
        for gone in set(self.net) - set(there):
            for source in self.net.pop(gone).values():
                source.close()
        for name in there:
            if name not in self.net:
                files = ("carrier", "operstate", "speed", "mtu")
                self.net[name] = {file: KernelFile(f"{base}/{name}/{file}") for file in files}
        known = {port["name"] for port in self.rdma}
        base = self.root + "/sys/class/infiniband"
        present = list_directory(base)
        for port in self.rdma:
            if port["name"] not in present:
                for source in port["files"]:
                    source.close()
        self.rdma = [port for port in self.rdma if port["name"] in present]
        for name in present:
            if name not in known:
                self.rdma += [
                    self._build_rdma_port(f"{base}/{name}", name, port)
                    for port in list_directory(f"{base}/{name}/ports")
                ]

    def read_interface_states(self) -> dict[str, Json]:
        """Return carrier, state, speed in Mb/s and MTU of each interface."""
        found = {}
        for name, source in self.net.items():
            carrier, speed = source["carrier"].read_number(), source["speed"].read_number()
            found[name] = {
                "carrier": None if carrier is None else carrier == 1,
                "state": source["operstate"].read_text(),
                "speed": speed if speed is not None and speed > 0 else None,
                "mtu": source["mtu"].read_number(),
            }
        return found

    def _build_rdma_port(self, device: str, name: str, port: str) -> Json:
        base = f"{device}/ports/{port}"
        state, rate = KernelFile(base + "/state"), KernelFile(base + "/rate")
        errors = [(error, KernelFile(f"{base}/counters/{error}")) for error in self.ERRORS]
        errors += [(error, KernelFile(f"{base}/hw_counters/{error}")) for error in self.HARDWARE]
        receive, send = KernelFile(base + "/counters/port_rcv_data"), KernelFile(base + "/counters/port_xmit_data")
        interfaces = list_directory(device + "/device/net")

        def read_slow_fields() -> Json:
            counts = {error: source.read_number() for error, source in errors}
            return {"state": state.read_text(), "rate": rate.read_text(), "errors": counts, "gids": read_gids(base)}

        return {
            "name": name,
            "port": port,
            "interface": interfaces[0] if interfaces else None,
            "receive": receive,
            "send": send,
            "slow": read_slow_fields,
            "files": [receive, send, state, rate, *(source for _, source in errors)],
        }


def parse_routes(route: bytes | None) -> dict[str, list[str]] | None:
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


def read_gids(port: str) -> list[Json] | None:
    """Return the addresses of an RDMA port, with their index and type. The kernel keeps them in memory."""
    found = []
    for index in range(MAX_GIDS):
        gid = read_text_file(f"{port}/gids/{index}")
        if gid is None and not index:
            return None
        if gid and gid.strip("0:"):
            kind = read_text_file(f"{port}/gid_attrs/types/{index}")  # EINVAL, so None, for one that is not in use
            found.append({"index": index, "type": kind, "address": format_gid_address(gid)})
    return found


def format_gid_address(gid: str) -> str:
    """Return the IPv4 address in a GID; a GID without one is returned unchanged."""
    words = gid.split(":")
    if len(words) != 8 or gid[:30] != "0000:0000:0000:0000:0000:ffff:":
        return gid
    return ".".join(str(byte) for byte in bytes.fromhex(words[6] + words[7]))


def _is_hardware(base: str, name: str) -> bool:
    """Tell whether an interface is a hardware port (or, inside a container, stands for one)."""
    return os.path.exists(f"{base}/{name}/device") or re.match(r"(en|eth|wl)", name) is not None  # noqa: PTH110


class ProcessReader:
    """The processes of containers and of the GPU. Command lines are never read: that can wait for a memory lock."""

    def __init__(self, root: str) -> None:
        self.root = root
        self.containers: dict[int, str | None] = {}
        self.checked_at = -ABSENT_RETRY_SECONDS
        self.before: dict[int, tuple[float, float]] = {}
        self.tick = os.sysconf("SC_CLK_TCK")
        self.psutil = PsutilModule()

    def read(self, gpu_pids: list[int]) -> list[Json]:
        """Return them, the largest first: all of the GPU's, and a limited number of others.

        A process's container is looked up again after a minute.
        """
        now = time.monotonic()
        if now - self.checked_at >= ABSENT_RETRY_SECONDS:
            self.checked_at, self.containers = now, {}
        alive = {int(name) for name in list_directory(self.root + "/proc") if name.isdigit()}
        self.containers = {pid: known for pid, known in self.containers.items() if pid in alive}
        for pid in alive.difference(self.containers):
            self.containers[pid] = find_container_id(self.root, pid)
        wanted = [pid for pid, container in self.containers.items() if container or pid in gpu_pids]
        found = [one for one in (self.read_process(pid, now) for pid in wanted) if one is not None]
        self.before = {pid: seen for pid, seen in self.before.items() if pid in alive}
        found.sort(key=lambda one: -(one["resident"] or 0))
        others = [one for one in found if one["pid"] not in gpu_pids]
        left_out = {one["pid"] for one in others[max(0, MAX_LISTED_ITEMS - len(found) + len(others)) :]}
        return [one for one in found if one["pid"] not in left_out]

    def read_process(self, pid: int, now: float) -> Json | None:
        """Return what one process holds and does; None if it has gone."""
        stat = read_file(f"{self.root}/proc/{pid}/stat")
        if not stat or b")" not in stat:
            return None
        words = stat[stat.rindex(b")") + 2 :].split()
        name = stat[stat.index(b"(") + 1 : stat.rindex(b")")].decode("utf-8", "replace")
        sizes = dict(PROCESS_STATUS_PATTERN.findall(read_file(f"{self.root}/proc/{pid}/status") or b""))
        anonymous = [int(sizes[name]) for name in (b"RssAnon", b"RssShmem") if name in sizes]
        if words[0] == b"Z":  # it holds nothing any more, and the kernel reports nothing about it
            anonymous = [0]
        rss = int(sizes[b"VmRSS"]) * 1024 if b"VmRSS" in sizes else None
        used = (int(words[11]) + int(words[12])) / self.tick
        figures = self.psutil.call_psutil(lambda module: _read_with_psutil(module, pid))
        if figures is not None:
            used, rss = figures
        when, before = self.before.get(pid, (now, used))
        self.before[pid] = (now, used)
        return {
            "pid": pid,
            "parent": int(words[1]),
            "parent_name": None
            if self.containers.get(pid)
            else read_text_file(f"{self.root}/proc/{int(words[1])}/comm"),
            "name": name,
            "container": self.containers.get(pid),
            "unit": None if self.containers.get(pid) else find_systemd_unit(self.root, pid),
            "resident": sum(anonymous) * 1024 if anonymous else None,
            "rss": rss,
            "cpu": round((used - before) / (now - when), 3) if now > when else None,
            "gpu_memory": None,
            "start_ticks": int(words[19]) if len(words) > 19 else None,
        }


def _read_with_psutil(module: Any, pid: int) -> tuple[float, int]:
    """Return CPU seconds and resident bytes; not the name, for which psutil may read the command line."""
    process = module.Process(pid)
    times = process.cpu_times()
    return times.user + times.system, process.memory_info().rss


def find_container_id(root: str, pid: int) -> str | None:
    """Return the id of the container that a process is in."""
    match = CONTAINER_ID_PATTERN.search(read_file(f"{root}/proc/{pid}/cgroup") or b"")
    return match.group().decode() if match else None


def find_systemd_unit(root: str, pid: int) -> str | None:
    """Return the systemd unit of a process: a service is supervised, a session's scope is not."""
    path = (read_file(f"{root}/proc/{pid}/cgroup") or b"").decode("utf-8", "replace").strip()
    units = [name for name in path.rpartition(":")[2].split("/") if name.endswith((".service", ".scope"))]
    return units[-1] if units else None


# -- the GPU: NVML, in a process of its own, because a hanging driver call cannot be interrupted


# NVML's codes for: invalid argument, not supported, no permission, function not found, structure version, deprecated
UNSUPPORTED_NVML_CODES = (2, 3, 4, 13, 25, 26)


class GpuReader:
    """NVML through the pynvml sent with the agent, or the installed one. Unsupported calls are repeated rarely."""

    def __init__(self, source: bytes | None) -> None:
        self.nvml = load_module("pynvml", source) if source else importlib.import_module("pynvml")
        self.refused: dict[tuple[str, int], float] = {}
        self.known: dict[int, Json] = {}
        self.meters: dict[int, list[Any]] = {}
        self.begun = False
        self.retry_at = 0.0
        self.trouble: str | None = None
        self.utilisation_seen: dict[int, int] = {}
        self.cached: dict[tuple[int, str], tuple[float, Any]] = {}

    def read(self, _request: list[int]) -> Json:
        """Return ``gpus``, or the ``trouble`` that keeps the driver from answering."""
        if self.trouble and time.monotonic() < self.retry_at:
            return {"gpus": None, "trouble": self.trouble}
        try:
            if not self.begun:
                self.nvml.nvmlInit()
                self.begun = True
            count = self.nvml.nvmlDeviceGetCount()
            found = [self.read_gpu(index, self.nvml.nvmlDeviceGetHandleByIndex(index)) for index in range(count)]
        except self.nvml.NVMLError as error:
            self.trouble, self.retry_at = f"NVML: {error}", time.monotonic() + ABSENT_RETRY_SECONDS
            if self.begun:  # after a driver that was loaded again, only a new start answers
                self.begun = False
                with contextlib.suppress(self.nvml.NVMLError):
                    self.nvml.nvmlShutdown()
            return {"gpus": None, "trouble": self.trouble}
        self.trouble = None
        return {"gpus": found, "trouble": None}

    def call_nvml(self, index: int, name: str, *words: object) -> Any:
        """Return a call's answer, None if it fails; an unsupported call is skipped for some minutes."""
        if time.monotonic() < self.refused.get((name + str(words[1:]), index), 0):
            return None
        try:
            return getattr(self.nvml, name)(*words)
        except AttributeError:
            pass  # an older pynvml
        except self.nvml.NVMLError as error:
            if error.value in (self.nvml.NVML_ERROR_GPU_IS_LOST, self.nvml.NVML_ERROR_UNINITIALIZED):
                raise
            if error.value not in UNSUPPORTED_NVML_CODES:
                return None  # the next reading may have it
        self.refused[name + str(words[1:]), index] = time.monotonic() + 5 * ABSENT_RETRY_SECONDS
        return None

    def read_cached(self, index: int, name: str, every: float, read: Callable[[], Any]) -> Any:
        """Return what ``read`` returns, called again only after an interval: some calls take the driver milliseconds."""
        now = time.monotonic()
        when, value = self.cached.get((index, name), (now - every, None))
        if now - when >= every:
            value = read()
            self.cached[index, name] = (now, value)
        return value

    def read_gpu(self, index: int, handle: Any) -> Json:
        """Return one GPU's reading."""
        nvml = self.nvml
        use = self.call_nvml(index, "nvmlDeviceGetUtilizationRates", handle)
        memory = self.call_nvml(index, "nvmlDeviceGetMemoryInfo", handle)
        power = self.call_nvml(index, "nvmlDeviceGetPowerUsage", handle)
        reasons = self.call_nvml(index, "nvmlDeviceGetCurrentClocksEventReasons", handle)
        if reasons is None:
            reasons = self.call_nvml(index, "nvmlDeviceGetCurrentClocksThrottleReasons", handle)
        reading = dict(self.read_gpu_identity(index, handle))
        reading.update(
            {
                "busy": None if use is None else use.gpu / 100,
                "sm_clock": self.call_nvml(index, "nvmlDeviceGetClockInfo", handle, nvml.NVML_CLOCK_SM),
                "sm_clock_max": self.read_max_clock(index, handle, nvml.NVML_CLOCK_SM),
                "power": None if power is None else power / 1000,
                "celsius": self.call_nvml(index, "nvmlDeviceGetTemperature", handle, nvml.NVML_TEMPERATURE_GPU),
                "pstate": self.call_nvml(index, "nvmlDeviceGetPerformanceState", handle),
                "reasons": reasons,
                "events": self.read_cached(index, "events", 10, lambda: self.read_slowdown_counters(index, handle)),
                "memory_total": memory.total if memory else None,
                "memory_used": memory.used if memory else None,
                "processes": self.read_gpu_processes(index, handle),
            }
        )
        reading.update(self.read_bandwidth(index, handle))
        return reading

    def read_max_clock(self, index: int, handle: Any, clock: int) -> int | None:
        """Return the highest MHz of a clock, read every ten minutes."""
        read = "nvmlDeviceGetMaxClockInfo"
        known: int | None = self.read_cached(
            index, f"{read} {clock}", 600, lambda: self.call_nvml(index, read, handle, clock)
        )
        return known

    def read_gpu_identity(self, index: int, handle: Any) -> Json:
        """Return what does not change, read once."""
        if index not in self.known:
            name, uuid = (
                self.call_nvml(index, "nvmlDeviceGetName", handle),
                self.call_nvml(index, "nvmlDeviceGetUUID", handle),
            )
            both = [text.decode("utf-8", "replace") if isinstance(text, bytes) else text for text in (name, uuid)]
            self.known[index] = {"index": index, "name": both[0], "uuid": both[1]}
        return self.known[index]

    def read_gpu_processes(self, index: int, handle: Any) -> list[Json] | None:
        """Return bytes by process. One that computes and draws is listed twice: its larger figure counts."""
        calls = ("nvmlDeviceGetComputeRunningProcesses", "nvmlDeviceGetGraphicsRunningProcesses")
        lists = [self.call_nvml(index, call, handle) for call in calls]
        if lists[0] is None:
            return None
        gpu_memory: dict[int, int | None] = {}
        for process in [process for found in lists for process in found or []]:
            size = process.usedGpuMemory
            if size is not None and size >= (1 << 62):
                size = None  # 2^64 - 1 is "not available"
            before = gpu_memory.get(process.pid, size)
            gpu_memory[process.pid] = None if size is None or before is None else max(size, before)
        shares = self.read_cached(index, "shares", 10, lambda: self.read_process_shares(index, handle))
        return [{"pid": pid, "memory": size, "busy": shares.get(pid)} for pid, size in sorted(gpu_memory.items())]

    def read_process_shares(self, index: int, handle: Any) -> dict[int, float]:
        """Return each process's share of the SMs' time, if the driver reports it."""
        name, since = "nvmlDeviceGetProcessUtilization", self.utilisation_seen.get(index, 0)
        if time.monotonic() < self.refused.get((name, index), 0) or not hasattr(self.nvml, name):
            return {}
        try:
            found = self.nvml.nvmlDeviceGetProcessUtilization(handle, since)
        except self.nvml.NVMLError as error:
            if error.value in UNSUPPORTED_NVML_CODES:  # NOT_FOUND says: no sample yet
                self.refused[name, index] = time.monotonic() + 5 * ABSENT_RETRY_SECONDS
            return {}
        self.utilisation_seen[index] = max([since] + [sample.timeStamp for sample in found])
        return {sample.pid: sample.smUtil / 100 for sample in found}

    def read_slowdown_counters(self, index: int, handle: Any) -> Json:
        """Return the driver's counters of time spent slowed down, by reason, in its own unit."""
        wanted = {"power_cap": 74, "sw_thermal": 269, "hw_thermal": 270, "power_brake": 271}
        values = self.call_nvml(index, "nvmlDeviceGetFieldValues", handle, sorted(wanted.values()))
        by_id = {one.fieldId: one.value.ullVal for one in values or [] if one.nvmlReturn == 0}
        return {name: by_id.get(field) for name, field in wanted.items()}

    def read_bandwidth(self, index: int, handle: Any) -> Json:
        """Return the used share of the memory bandwidth since the previous reading, if the hardware counts it (GPM).

        The peak is 2 x memory clock x bus width

        8.
        """
        unknown = {"bandwidth_share": None, "bandwidth_peak": None}
        if index not in self.meters:
            support = self.call_nvml(index, "nvmlGpmQueryDeviceSupport", handle)
            supported = bool(support and support.isSupportedDevice)
            self.meters[index] = (
                [self.call_nvml(index, "nvmlGpmSampleAlloc") for _ in "ab"] + [None] if supported else []
            )
        meter = self.meters[index]
        if not meter or None in meter[:2]:
            return unknown
        clock = self.read_max_clock(index, handle, self.nvml.NVML_CLOCK_MEM)
        width = self.read_cached(
            index, "width", 600, lambda: self.call_nvml(index, "nvmlDeviceGetMemoryBusWidth", handle)
        )
        if clock and width:
            unknown["bandwidth_peak"] = 2 * clock * 1_000_000 * width // 8
        earlier, later, taken = meter
        if self.call_nvml(index, "nvmlGpmSampleGet", handle, later) is None:
            return unknown
        self.meters[index] = [later, earlier, True]
        if not taken:
            return unknown
        question = self.nvml.c_nvmlGpmMetricsGet_t()
        question.version = self.nvml.NVML_GPM_METRICS_GET_VERSION
        question.numMetrics, question.sample1, question.sample2 = 1, earlier, later
        question.metrics[0].metricId = self.nvml.NVML_GPM_METRIC_DRAM_BW_UTIL
        answer = self.call_nvml(index, "nvmlGpmMetricsGet", question)
        if answer is None or answer.metrics[0].nvmlReturn != 0:
            return unknown
        share = round(answer.metrics[0].value / 100, 4)
        return {"bandwidth_share": share, "bandwidth_peak": unknown["bandwidth_peak"]}


def load_module(name: str, source: bytes) -> Any:
    """Return a module made from its source, without docstrings."""
    module = type(sys)(name)
    sys.modules[name] = module
    exec(compile(source, name + ".py", "exec", optimize=2), module.__dict__)  # noqa: S102  # our operator sent it
    return module


# -- helpers that may block, which answer over pipes


class HelperChannel:
    """A helper that answers each request line with one line. At most one request is pending at a time."""

    def __init__(self, requests: int, answers: int) -> None:
        self.requests = requests
        self.answers = answers
        self.asked_at: float | None = None
        self.answer: Json = {}
        self.ended = False
        self.buffer = b""

    def send_request(self, now: float, words: list[int]) -> bool:
        """Send a request unless one is pending; return whether it was sent."""
        if self.asked_at is not None or self.ended:
            return False
        try:
            os.write(self.requests, json.dumps(words).encode() + b"\n")
        except OSError:
            self.ended = True
            return False
        self.asked_at = now
        return True

    def receive_answer(self) -> None:
        """Read its answer; call this when its pipe is readable."""
        chunk = os.read(self.answers, CHUNK_BYTES)
        self.buffer += chunk
        if not chunk:
            self.ended, self.answer = True, {}
        elif self.buffer.endswith(b"\n"):
            self.answer, self.buffer, self.asked_at = json.loads(self.buffer), b"", None

    def get_silent_seconds(self, now: float) -> float | None:
        """Return for how long an answer is overdue, None if it is not."""
        if self.asked_at is None or now - self.asked_at < DEVICE_WAIT_SECONDS:
            return None
        return round(now - self.asked_at, 1)


def serve_requests(requests: int, answers: int, reading: Callable[[list[int]], Json]) -> None:
    """Answer requests until the other side has gone."""
    buffer = b""
    while True:
        chunk = os.read(requests, CHUNK_BYTES)
        if not chunk:
            return
        buffer += chunk
        if buffer.endswith(b"\n"):
            line = json.dumps(reading(json.loads(buffer)), separators=(",", ":")).encode() + b"\n"
            buffer = b""
            while line:
                line = line[os.write(answers, line) :]


def trim_memory() -> None:
    """Free the memory that compiling needed, some MiB; the rest is frozen for the collector, so that a fork keeps
    sharing it.
    """
    gc.collect()
    gc.freeze()
    with contextlib.suppress(ImportError, AttributeError, OSError):  # another C library
        import ctypes

        ctypes.CDLL(None).malloc_trim(0)


def start_gpu_process(source: bytes | None) -> HelperChannel:
    """Fork the process that calls the driver. It ends with its parent, and inherits none of its streams.

    ``source`` is pynvml's, None for the installed one.
    """
    requests, answers = os.pipe(), os.pipe()
    if os.fork():
        os.close(requests[0])
        os.close(answers[1])
        return HelperChannel(requests[1], answers[0])
    try:
        os.close(requests[1])
        os.close(answers[0])
        nowhere = os.open(os.devnull, os.O_RDWR)
        for stream in (0, 1, 2):
            os.dup2(nowhere, stream)
        import ctypes

        # PR_SET_PDEATHSIG, SIGKILL: a hanging process ends with its parent, if anything can end it
        ctypes.CDLL(None).prctl(1, 9)
        reading = GpuReader(source).read
        trim_memory()
        serve_requests(requests[0], answers[1], reading)
    finally:
        os._exit(0)


def start_reader_thread(reading: Callable[[list[int]], Json]) -> HelperChannel:
    """Start a thread that answers with what ``reading`` returns, or with its ``devices_trouble``."""

    def read_or_report(words: list[int]) -> Json:
        try:
            return reading(words)
        except Exception as error:  # noqa: BLE001  # the thread's own end: what it cannot read is reported, and read again
            return {"devices_trouble": f"{type(error).__name__}: {error}"}

    requests, answers = os.pipe(), os.pipe()
    threading.Thread(target=serve_requests, args=(requests[0], answers[1], read_or_report), daemon=True).start()
    return HelperChannel(requests[1], answers[0])


# -- the loop


class NodeAgent:
    """Sends samples at its rate while it receives keepalives; `NodeAgent.run` waits for no device. ``clock`` as `time`."""

    def __init__(
        self,
        root: str,
        every: float,
        gpu: HelperChannel | None,
        devices: HelperChannel,
        kernel_log: KernelLogReader,
        clock: Any = time,
    ) -> None:
        self.root = root
        self.kernel_log = kernel_log
        self.every = every
        self.gpu = gpu
        self.devices = devices
        self.clock = clock
        self.parts = [part for part in (gpu, devices) if part is not None]
        self.meminfo = KernelFile(root + "/proc/meminfo", pause=0.0)
        self.vmstat = KernelFile(root + "/proc/vmstat", long=True, pause=0.0)
        self.pressure = KernelFile(root + "/proc/pressure/memory", pause=0.0)
        self.buddy = KernelFile(root + "/proc/buddyinfo", long=True, pause=0.0)
        self.stat = KernelFile(root + "/proc/stat", long=True, pause=0.0)
        self.load = KernelFile(root + "/proc/loadavg", pause=0.0)
        self.cores = CpuUsage()
        self.clusters = list_cpu_clusters(root)
        self.names: dict[int, tuple[str | None, str | None]] = {}
        self.sequence = 0
        self.pending = b""
        self.commands = b""

    def run(self, fed_within: float) -> None:
        """Run until stdin ends, or until no keepalive has come for so many seconds."""
        os.set_blocking(1, False)  # a reader that stopped reading must not keep the agent from ending
        self.send_message({"kind": "hello", "identity": read_identity(self.root)})
        fed = due = time.monotonic()
        asked_at: float | None = None
        while True:
            now = time.monotonic()
            if now - fed > fed_within and not is_readable(0):  # the agent may have been suspended while keepalives came
                return
            if asked_at is None and now >= due:
                asked_at = self.request_readings(now)
            if asked_at is not None and (now - asked_at >= DEVICE_WAIT_SECONDS or not self.is_answer_pending(asked_at)):
                if self.send_message(self.build_sample(now)):
                    self.kernel_log.forget_sent()
                due, asked_at = due + self.every, None
                if due <= now:  # the agent was suspended: no second sample at once, nothing is caught up
                    due = now + self.every
                continue
            until = min(fed + fed_within, due if asked_at is None else asked_at + DEVICE_WAIT_SECONDS)
            open_parts = [part.answers for part in self.parts if not part.ended]
            ready, _, _ = select.select(
                [0, *open_parts], [1] if self.pending else [], [], max(0.0, until - now) + 0.001
            )
            for part in self.parts:
                if part.answers in ready:
                    part.receive_answer()
            if 0 in ready:
                chunk = os.read(0, CHUNK_BYTES)
                if not chunk:
                    return
                fed = time.monotonic()
                before = self.every
                self.handle_commands(chunk)
                if self.every != before:
                    due = min(due, fed + self.every)
            self.flush()

    def request_readings(self, now: float) -> float:
        """Ask the helpers for what the next sample needs."""
        last = self.gpu.answer.get("gpus") if self.gpu else None  # even an old answer: it names the processes to read
        pids = [process["pid"] for gpu in last or [] for process in gpu["processes"] or []]
        for part in self.parts:
            part.send_request(now, pids)
        return now

    def is_answer_pending(self, since: float) -> bool:
        """Tell whether a helper that was just asked may still answer; one that is overdue is not waited for."""
        return any(part.asked_at == since and not part.ended for part in self.parts)

    def handle_commands(self, chunk: bytes) -> None:
        """Read command lines; any other line is only a keepalive."""
        *lines, self.commands = (self.commands + chunk).split(b"\n")
        for line in lines:
            words = line.split()
            if len(words) == 2 and words[0] == b"every":
                try:
                    self.every = max(0.05, float(words[1]))
                except ValueError:
                    continue

    def build_sample(self, now: float) -> Json:
        self.sequence += 1
        memory, detail = parse_meminfo(self.meminfo.read())
        detail.update(parse_vmstat(self.vmstat.read()))
        detail["pressure"] = parse_pressure(self.pressure.read())
        detail["blocks"] = parse_buddyinfo(self.buddy.read())
        spent = os.times()
        return {
            "kind": "sample",
            "sequence": self.sequence,
            "time": round(self.clock.time(), 3),
            "uptime": round(now, 3),
            "memory": memory,
            "detail": detail,
            "cpu": build_cpu_sample(self.cores.compute_shares(self.stat.read()), self.clusters, self.load.read()),
            "gpus": self.get_gpus(),
            "gpu_trouble": self.get_gpu_trouble(),
            "gpu_silent_for": self.gpu.get_silent_seconds(now) if self.gpu else None,
            "devices_silent_for": self.devices.get_silent_seconds(now),
            "spent": round(spent.user + spent.system, 3),
            **self.get_device_fields(now),
            "processes": self.merge_processes(now),
            "kernel": self.read_kernel_log(),
        }

    def read_kernel_log(self) -> Json:
        """Return the kernel's new lines that matter."""
        self.kernel_log.collect(self.find_container)
        return self.kernel_log.build_message()

    def find_container(self, pid: int) -> str | None:
        """Return the container of a process that the kernel names, though it may have ended since the last list."""
        for process in self.devices.answer.get("processes") or ():
            if process["pid"] == pid:
                known: str | None = process.get("container")
                return known
        return find_container_id(self.root, pid)

    def get_device_fields(self, now: float) -> Json:
        """Return the devices' last answer. While the next one is overdue, only what is read rarely, and not for long."""
        silent = self.devices.get_silent_seconds(now)
        if silent is None:
            return self.devices.answer
        names = ("psutil", *SLOW_READING_NAMES) if silent < SLOW_READ_SECONDS else ("psutil",)
        return {name: self.devices.answer.get(name) for name in names}

    def get_gpus(self) -> list[Json] | None:
        """Return the GPUs of the last answer; None while an answer is overdue."""
        if self.gpu is None or self.gpu.ended or self.gpu.asked_at is not None:
            return None
        return self.gpu.answer.get("gpus")

    def get_gpu_trouble(self) -> str | None:
        """Return why nothing is known about the GPUs, apart from an overdue answer."""
        if self.gpu is None:
            return "no pynvml came along"
        return "the process that asks the driver has ended" if self.gpu.ended else self.gpu.answer.get("trouble")

    def merge_processes(self, now: float) -> list[Json] | None:
        """Return the processes with their GPU memory; None while the processes of the CPU side are not known."""
        listed = self.get_device_fields(now).get("processes")
        gpu_memory: dict[int, int | None] = {}
        for gpu in self.get_gpus() or []:
            for process in gpu["processes"] or []:
                size, before = process["memory"], gpu_memory.get(process["pid"], 0)
                gpu_memory[process["pid"]] = None if size is None or before is None else size + before
        if listed is None:
            return None
        found = [dict(process, gpu_memory=gpu_memory.pop(process["pid"], None)) for process in listed or []]
        found += [self.read_unlisted_process(pid, size) for pid, size in gpu_memory.items()]
        self.names = {pid: known for pid, known in self.names.items() if pid in gpu_memory}
        return found

    def read_unlisted_process(self, pid: int, size: int | None) -> Json:
        """Return a process of the GPU that is not in the list of processes yet."""
        if pid not in self.names:
            self.names[pid] = (read_text_file(f"{self.root}/proc/{pid}/comm"), find_container_id(self.root, pid))
        name, container = self.names[pid]
        sizes = PROCESS_STATUS_PATTERN.findall(read_file(f"{self.root}/proc/{pid}/status") or b"")
        anonymous = [int(kib) * 1024 for kind, kib in sizes if kind != b"VmRSS"]
        resident = sum(anonymous) if anonymous else None
        return {"pid": pid, "name": name, "container": container, "resident": resident, "gpu_memory": size}

    def send_message(self, message: Json) -> bool:
        """Send one line. While the last one is not written, new ones are dropped, which it returns: old samples are
        worthless.
        """
        is_free = not self.pending
        if is_free:
            self.pending = encode_message(message)
        self.flush()
        return is_free

    def flush(self) -> None:
        """Write what can be written now."""
        try:
            while self.pending:
                self.pending = self.pending[os.write(1, self.pending) :]
        except BlockingIOError:
            pass


def encode_message(message: Json) -> bytes:
    line = json.dumps(dict({"probe": AGENT_PROTOCOL}, **message), separators=(",", ":"))
    return line.encode("ascii", "replace") + b"\n"


def is_readable(fd: int) -> bool:
    """Tell whether there is data to read, or the end."""
    return bool(select.select([fd], [], [], 0.0)[0])


def read_nvml_source(length: int) -> bytes:
    """Return pynvml's source, which comes on stdin in ``length`` bytes; end the program if stdin ends before."""
    packed = b""
    while len(packed) < length:
        chunk = os.read(0, length - len(packed))
        if not chunk:
            os._exit(0)
        packed += chunk
    return zlib.decompress(packed) if packed else b""


def main(words: list[str]) -> None:
    """Run with the options of the start command: LENGTH of pynvml on stdin, then pairs of option and value."""
    sent = read_nvml_source(int(words[0]))
    options = {"--root": "", "--every": "2", "--fed": "10", "--nvml": "sent"}
    disks = []
    for at in range(1, len(words) - 1, 2):
        if words[at] == "--disk":
            disks.append(words[at + 1])
        else:
            options[words[at]] = words[at + 1]
    root = options["--root"].rstrip("/")
    nvml = None if options["--nvml"] == "installed" else sent
    trim_memory()
    # before there is a thread: a fork only copies the calling one
    kernel_log = open_kernel_log(root)
    kernel_log.pci_place = root + PCI_PLACE
    gpu = start_gpu_process(nvml) if nvml != b"" else None
    devices = start_reader_thread(DeviceReader(root, disks, psutil=not root).read)
    with contextlib.suppress(BrokenPipeError):  # nobody reads any more
        NodeAgent(root, float(options["--every"]), gpu, devices, kernel_log).run(float(options["--fed"]))
    os._exit(0)  # end at once, whatever the thread waits for


if __name__ == "__main__":
    main(sys.argv[2:])
