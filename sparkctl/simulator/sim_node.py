"""One simulated Spark: memory, processes, ports, images, files, the LAN, and both functions of a ConnectX port."""

from __future__ import annotations

import asyncio
import hashlib
import json
import math
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import field
from enum import StrEnum
from functools import cache
from typing import Any, Protocol

from sparkctl.engines.simulation.engine_launch import EngineFault
from sparkctl.engines.simulation.rank_network import RankNetwork
from sparkctl.engines.simulation.simulated_clock import SimClock, SimPace
from sparkctl.engines.simulation.unified_memory import UnifiedMemory
from sparkctl.files import shipped_profiles_dir
from sparkctl.model.lazy_dataclass import dataclass
from sparkctl.model.text.units import GIB, KIB
from sparkctl.node.agent import KernelFile
from sparkctl.node.kernel_log import KernelLogReader
from sparkctl.profiles.profile_library import ProfileLibrary
from sparkctl.simulator.http_server import RequestHandler, serve_connection
from sparkctl.simulator.sim_container import SimContainer

UNLINK_SCRIPT_MARKER = "# sparkctl unlink 1"
KILL_SCRIPT_MARKER = "# sparkctl kill 1"
TMPFS_DEVICE = 27  # 0:1b, of the tmpfs
ORPHAN_TITLE = "VLLM::EngineCore"
SHARED_MEMORY_BYTES = 96 * 1024 * KIB  # bytes that an engine with ipc=host shares between its processes


@dataclass(slots=True)
class SimShmFile:
    """A file in /dev/shm; ``users`` are pids."""

    inode: int
    size: int
    born: float
    users: set[int]


@dataclass(slots=True)
class ProcessLeftovers:
    """What outlives containers. ``lost``: titles of processes whose parent is gone, by pid. ``sees_maps``: whether the
    user may read the engines' memory maps; they run as root, so mostly not.
    """

    born: dict[int, int] = field(default_factory=dict)
    lost: dict[int, str] = field(default_factory=dict)
    files: dict[str, SimShmFile] = field(default_factory=dict)
    sees_maps: bool = False

    def add_shared_memory(self, container: str, pids: list[int], now: float) -> None:
        """Share a file among the processes of a container."""
        path = f"/dev/shm/psm_{container[:8]}"  # noqa: S108
        self.files[path] = SimShmFile(len(self.files) + 40, SHARED_MEMORY_BYTES, now, set(pids))

    def remove_shared_memory(self, container: str, *, litters: bool) -> None:
        """Remove what an ended container shared, or leave it without users."""
        path = f"/dev/shm/psm_{container[:8]}"  # noqa: S108
        if litters and path in self.files:
            self.files[path].users.clear()
        else:
            self.files.pop(path, None)


def format_processes(node: SimNode) -> list[str]:
    """Return the processes as the node inspection prints them."""
    titles = dict.fromkeys(node.processes, "python3") | node.remains.lost
    rest = " ".join(["0"] * 17)
    stats, words = [], []
    for pid, title in sorted({1: "systemd", **titles}.items()):
        stats.append(f"{pid} ({title[:15]}) S {0 if pid == 1 else 1} {rest} {node.read_start_ticks(pid)} 0 0 0")
        words.append(f"/proc/{pid}/cmdline:{title}")
    return ["@@ procs", f"btime {node.unix_time() - node.uptime:.0f}", *stats, "@@ commands", *words]


def format_shared_memory(node: SimNode) -> list[str]:
    """Return the files in /dev/shm as the node inspection prints them."""
    lines = ["@@ shm"]
    for path, one in sorted(node.remains.files.items()):
        lines.append(f"file {TMPFS_DEVICE} {one.inode} 0 {one.size // 512} {one.born:.9f} {path}")
        if node.remains.sees_maps:
            lines += [f"/proc/{pid}/maps:00:{TMPFS_DEVICE:x} {one.inode}   {path}" for pid in sorted(one.users)]
    return lines


def end_process(node: SimNode, words: list[str]) -> str:
    """Do what `node/end_process.sh` does: a process of a container is root's, what outlived its container is not."""
    _, number, start, _ = words
    pid, lost = int(number), node.list_lost_processes()
    if pid not in lost and pid not in node.processes:
        return "gone\n"
    if start not in ("-", str(node.read_start_ticks(pid))):
        return f"other {'python3' if pid in node.processes else ORPHAN_TITLE[:15]}\n"
    if pid in node.processes:
        return f"refused kill: ({pid}) - Operation not permitted\n"
    node.end_lost_process(pid)
    return "sent\n"


def remove_shared_files(node: SimNode, words: list[str]) -> str:
    """Do what `node/remove_shared_memory.sh` does."""
    for identity, path in zip(words[::2], words[1::2], strict=False):
        one = node.remains.files.get(path)
        if one is not None and identity == f"{TMPFS_DEVICE}:{one.inode}":
            del node.remains.files[path]
    return ""


IMAGE_BYTES = 21_474_836_480  # bytes, of any


@cache
def list_shipped_images() -> tuple[str, ...]:
    """Return the images that the shipped profiles name; read once, when somebody asks."""
    entries = ProfileLibrary(user=shipped_profiles_dir()).load_all_entries()
    return tuple(dict.fromkeys(one.profile.image for one in entries if one.profile is not None))


class SimImages:
    """Every image exists and is the same on all nodes, with exceptions. Those of the shipped profiles are listed.

    ``has_only_pulled``: nothing is there but what was brought. ``lacking`` and ``differing`` are names. A name may also
    be an exception by itself: one with ``missing`` in it exists nowhere,
    one with ``missing-on-spark2`` not on spark2, one with ``stale-on-spark2`` differs there.
    """

    def __init__(self, node: str, lacking: Sequence[str], differing: Sequence[str]) -> None:
        self._node = node
        self._lacking = set(lacking)
        self._differing = set(differing)
        self.has_only_pulled = False
        self._brought: dict[str, str] = {}  # ids that came from another node
        self._names: dict[str, str] = {}  # by id
        self._labels: dict[str, dict[str, str]] = {}  # by name

    def has_image(self, name: str) -> bool:
        name = self._names.get(name, name)
        if name in self._brought:
            return True
        if self.has_only_pulled:
            return False
        elsewhere = "missing-on-" in name and f"missing-on-{self._node}" not in name
        return name not in self._lacking and ("missing" not in name or elsewhere)

    def get_image_id(self, name: str) -> str:
        name = self._names.get(name, name)
        differs = name in self._differing or f"stale-on-{self._node}" in name
        text = f"{name} of an earlier day" if differs else name
        found = self._brought.get(name) or "sha256:" + hashlib.sha256(text.encode()).hexdigest()
        self._names[found] = name
        return found

    def to_inspect_json(self, name: str) -> dict[str, object]:
        """Return an image's inspect JSON; one that was built on the node has no registry digest."""
        found, tag = self.get_image_id(name), self._names.get(name, name)
        repository = tag.partition("@")[0].rpartition(":")[0] or tag
        digest = hashlib.sha256(f"manifest of {found}".encode()).hexdigest()
        return {
            "Id": found,
            "RepoTags": [tag],
            "RepoDigests": [f"{repository}@sha256:{digest}"] if "/" in repository else [],
            "Architecture": "arm64",
            "Os": "linux",
            "Size": IMAGE_BYTES,
            "Created": "2026-06-01T08:00:00Z",
            "Config": {"Entrypoint": None, "Cmd": ["bash"], "Env": [], "Labels": self._labels.get(tag, {})},
        }

    def list_json(self, used: Sequence[str]) -> list[dict[str, object]]:
        """Return the list call's answer: what was brought, what shipped profiles name, and what containers use."""
        shipped = [name for name in list_shipped_images() if self.has_image(name)]
        names = dict.fromkeys((*self._brought, *shipped, *(self._names.get(name, name) for name in used)))
        found = []
        for name in names:
            whole = self.to_inspect_json(name)
            labels = self._labels.get(name, {})
            found.append(
                {
                    **{key: whole[key] for key in ("Id", "RepoTags", "RepoDigests", "Size")},
                    "Created": 1780300800,
                    "Labels": labels,
                }
            )
        return found

    def remove_image(self, name: str) -> None:
        name = self._names.get(name, name)
        self._brought.pop(name, None)
        self._labels.pop(name, None)
        self._lacking.add(name)

    def add_image(self, name: str, image_id: str, labels: Mapping[str, str] | None = None) -> None:
        """Add an image that came from another node or from its registry, or was built."""
        self._brought[name] = image_id
        self._lacking.discard(name)
        self._labels[name] = dict(labels or {})


USER = "milo"
HOME = f"/home/{USER}"
KERNEL_VERSION = "6.14.0-1015-nvidia"
DRIVER_VERSION = "580.142"
INITIAL_UPTIME_SECONDS = 12 * 86400.0  # seconds for which a node has been up when the simulation begins
COOLING_SECONDS = 45.0  # seconds in which a GPU covers two thirds of the way to its new temperature
SUDO_PASSWORD = "correct horse"  # noqa: S105  # of nobody: these machines exist in one process only


class SudoRule(StrEnum):
    """What the user may do about the page cache with sudo."""

    ALLOWED = "allowed"  # the NOPASSWD rule for the drop exists
    PASSWORD = "password"  # noqa: S105
    DENIED = "denied"


class ByteSink(Protocol):
    """The output stream of a command."""

    def write(self, data: bytes) -> None: ...


FULL_DISK_FREE_BYTES = 14 * GIB  # bytes left on a disk that is nearly full


class NodeFault(StrEnum):
    """Faults that a node's own figures can show."""

    STUCK_CLOCK = "stuck-clock"  # while its GPU is busy
    HOT = "hot"  # while its GPU is busy
    BUSY_WAIT = "busy-wait"  # while its GPU is busy
    IDLE_FUNCTION = "idle-function"
    NO_ADDRESS = "no-address"
    OTHER_GID = "other-gid"
    FULL_DISK = "full-disk"
    ORPHAN = "orphan"
    LINGERS = "lingers"  # the process that uses the GPU outlives its container
    LITTERS = "litters"  # a killed process leaves its shared memory in /dev/shm


@cache
def build_byte_tokenizer() -> str:
    """Return a tokenizer.json whose tokens are bytes: it cuts and joins any text without loss."""
    printable = [*range(ord("!"), ord("~") + 1), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    characters = [*map(chr, printable), *(chr(256 + at) for at in range(len(others)))]  # as byte-level BPE writes bytes
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
    model = {"type": "BPE", "vocab": {character: at for at, character in enumerate(characters)}, "merges": []}
    return json.dumps({"version": "1.0", "pre_tokenizer": byte_level, "decoder": byte_level, "model": model})


@dataclass(frozen=True, slots=True, kw_only=True)
class SimNodeOptions:
    """How a node differs from a healthy Spark. ``missing``: paths that do not exist (all others do); ``hidden``: paths
    that the SSH user may not read; ``cut``: models whose first file is truncated;
    ``tensors``: of a model, the sizes that its headers give, as JSON.

    ``earlyoom``: its command line. ``uptime_rate``: seconds of its monotonic clock per second. ``clock_ahead``: seconds
    that its wall clock is ahead. ``lacking_images`` do not exist; of ``other_images`` another one has the name.
    ``kernel_log_trouble``: why its kernel's log cannot be read; ``boot_end``: the last lines of the boot before.
    """

    sudo: SudoRule = SudoRule.ALLOWED
    gpu_runtime: bool = True
    docker_member: bool = True
    page_cache: int | None = None  # bytes of page cache at the beginning
    missing: tuple[str, ...] = ()
    hidden: tuple[str, ...] = ()
    cut: tuple[str, ...] = ()
    tensors: tuple[tuple[str, str], ...] = ()  # by path
    driver: str = DRIVER_VERSION
    earlyoom: str = ""
    troubles: frozenset[NodeFault] = frozenset()
    uptime_rate: float = 1.0
    clock_ahead: float = 0.0
    lacking_images: tuple[str, ...] = ()
    other_images: tuple[str, ...] = ()
    kernel_log_trouble: str | None = None
    boot_end: tuple[str, ...] = ("systemd-shutdown[1]: Syncing filesystems.", "systemd-journald[412]: Journal stopped")


class GuardProtocol(Protocol):
    """The part of the guard that the node's shell calls."""

    def list_directory(self) -> bytes: ...
    def start(self, stdout: ByteSink) -> None: ...


class SimKernelFile(KernelFile):
    """A file of a simulated kernel: its text is made when it is read."""

    def __init__(self, format_text: Callable[[], str]) -> None:
        super().__init__("")
        self.format_text = format_text

    def read(self) -> bytes | None:
        return self.format_text().encode()


class SimKernelLog:
    """The kernel's log of a simulated node, in place of /dev/kmsg."""

    name = "kmsg"

    def __init__(self, node: SimNode) -> None:
        self.node = node
        self.position = 0
        self.lost = 0

    def read_lines(self, most: int) -> list[tuple[float, bytes]]:
        """Return the lines since the last call."""
        found = [(at, text.encode()) for at, text in self.node.kernel_lines[self.position :][:most]]
        self.position = len(self.node.kernel_lines)
        return found


def open_sim_kernel_log(node: SimNode) -> KernelLogReader:
    trouble = node.options.kernel_log_trouble
    source: Any = SimKernelLog(node) if trouble is None else None
    return KernelLogReader(source, trouble)


class SimNode:
    """The state that SSH commands, Docker and the engines of one node share."""

    def __init__(self, name: str, pace: SimPace, seed: int, options: SimNodeOptions | None) -> None:
        self.name = name
        self.pace = pace
        self.options = options or SimNodeOptions()
        self.fault: EngineFault | None = None  # the load of every engine started here
        self.random = random.Random(f"{seed}/{name}")  # noqa: S311  # a script's dice, nobody's secret
        cache = self.options.page_cache
        default = int((38 if name.endswith("1") else 61) * GIB + self.random.randrange(1 << 28))
        self.memory = UnifiedMemory(default if cache is None else cache, offset=self.random.randrange(60_000) * KIB)
        self.processes: dict[int, str] = {}  # pid to the container's id
        self.ports: dict[int, RequestHandler] = {}  # who listens on 127.0.0.1
        self.host: str | None = None  # the address of this machine that stands for it, where its ports are open as well
        self._open_ports: dict[int, asyncio.Server] = {}
        self.report_taken_port: Callable[[str], None] = lambda address: None  # another program of this machine has it
        self.arrivals = 0  # images that are pulled or built now
        self.registry_requests: list[str] = []  # images whose registry was asked for their size
        self.kernel_lines: list[tuple[float, str]] = []  # of its log, with seconds since boot
        self.locks: dict[str, str] = {}  # path to the holder's words
        self.journal: str | None = None  # a switch journal, the file in its user's home
        self.is_home_full = False  # no file can be written in its user's home
        self.is_disk_stuck = False  # what is written never reaches the disk
        self.at_work: dict[int, Callable[[], float]] = {}  # pid to how busy it keeps the GPU now, 0..1
        self.spread: set[int] = set()  # pids whose model also runs on other nodes
        self.remains = ProcessLeftovers()
        self.clock_ahead = self.options.clock_ahead
        self.images = SimImages(name, self.options.lacking_images, self.options.other_images)
        self.is_fresh = False  # nothing is in its user's home but what was downloaded
        self.git_commit = "3f" * 20  # what every ref of every repository means
        self.downloaded: set[str] = set()  # models, by path
        self.containers: Mapping[str, SimContainer] = {}  # its Docker's, by id
        self.is_cabled: Callable[[], bool] = lambda: True
        self.guard: GuardProtocol | None = None
        self.address = "127.0.0.1"  # its address on the cable, if there is one
        self._began = pace.clock.monotonic()
        self._warmth: tuple[float, float] | None = None  # the time and the temperature of the GPU's last update
        self._last_pid = 4100 + self.random.randrange(400)

    @property
    def clock(self) -> SimClock:
        """The time, the same on every node."""
        return self.pace.clock

    def unix_time(self) -> float:
        """Return unix seconds by the node's own wall clock."""
        return self.now_ns() / 1e9

    def now_ns(self) -> int:
        """Return unix nanoseconds by the node's own wall clock."""
        return self.clock.now_ns() + int(self.clock_ahead * 1e9)

    async def open_port(self, port: int, handler: RequestHandler) -> None:
        """Listen on a port; also on this machine, where the node has an address and the port is free."""
        self.ports[port] = handler
        if self.host is not None and port not in self._open_ports:

            async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
                if (now := self.ports.get(port)) is not None:
                    await serve_connection(reader, writer, now, "uvicorn")

            try:
                self._open_ports[port] = await asyncio.start_server(serve, self.host, port)
            except OSError:  # a tunnel takes another port
                self.report_taken_port(f"{self.host}:{port}")

    @contextmanager
    def count_arrival(self) -> Iterator[None]:
        """Count what comes onto the node while this is entered."""
        self.arrivals += 1
        try:
            yield
        finally:
            self.arrivals -= 1

    def close_port(self, port: int) -> None:
        del self.ports[port]
        if (server := self._open_ports.pop(port, None)) is not None:
            server.close()

    @property
    def uptime(self) -> float:
        """Seconds since boot."""
        return INITIAL_UPTIME_SECONDS + (self.clock.monotonic() - self._began) * self.options.uptime_rate

    def log_kernel_line(self, text: str) -> None:
        """Have the kernel log a line."""
        self.kernel_lines.append((self.uptime, text))

    def log_oom_kill(self, pid: int, container: str) -> None:
        """Have the kernel log that its OOM killer ended a process of a container."""
        scope = f"/system.slice/docker-{container}.scope"
        self.log_kernel_line(
            f"oom-kill:constraint=CONSTRAINT_NONE,nodemask=(null),cpuset=docker-{container}.scope,mems_allowed=0,"
            f"global_oom,task_memcg={scope},task=python3,pid={pid},uid=0"
        )
        self.log_kernel_line(
            f"Out of memory: Killed process {pid} (python3) total-vm:158493688kB, anon-rss:1000kB, file-rss:0kB, "
            "shmem-rss:0kB, UID:0 pgtables:4120kB oom_score_adj:0"
        )

    def update_gpu_temperature(self, target: float) -> float:
        """Return the GPU's temperature in °C, which approaches the level of its load."""
        now = self.clock.monotonic()
        if self._warmth is None:
            self._warmth = (now, target)
        before, celsius = self._warmth
        celsius += (target - celsius) * (1 - math.exp(-max(0.0, now - before) / COOLING_SECONDS))
        self._warmth = (now, celsius)
        return celsius

    @property
    def boot_id(self) -> str:
        """The kernel's random id of this boot."""
        dice = random.Random(f"boot/{self.name}")  # noqa: S311
        digits = f"{dice.getrandbits(128):032x}"
        return "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))

    @property
    def gpu_busy_share(self) -> float:
        """How busy the GPU is, 0..1."""
        return min(1.0, sum(busy() for busy in self.at_work.values()))

    @property
    def is_fabric_busy(self) -> bool:
        """Whether a busy engine shares its model with another node now."""
        return any(busy() > 0 for pid, busy in self.at_work.items() if pid in self.spread)

    def make_fresh(self) -> None:
        """Take every image and model away."""
        self.is_fresh = self.images.has_only_pulled = True

    def lacks_path(self, path: str) -> bool:
        """Tell whether there is nothing at a path."""
        if not self.is_fresh or not path.startswith(HOME):
            return path in self.options.missing
        return not any(
            f"{one}/".startswith(f"{path.rstrip('/')}/") or path.startswith(f"{one}/") for one in self.downloaded
        )

    def spawn_process(self, container: str) -> int:
        self._last_pid += 1 + self.random.randrange(7)
        self.processes[self._last_pid] = container
        self.remains.born[self._last_pid] = round(self.uptime * 100)
        return self._last_pid

    async def end_processes(self, pids: list[int]) -> None:
        """End processes; the driver takes some seconds to free their memory, as on a real node."""
        for pid in pids:
            self.processes.pop(pid, None)
            self.at_work.pop(pid, None)
        if NodeFault.LINGERS in self.options.troubles:
            self.remains.lost[pids[-1]] = ORPHAN_TITLE
            pids = pids[:-1]
        for share in (0.3, 0.5, 1.0):
            await self.pace.sleep(4)
            for pid in pids:
                self.memory.release(pid, share)

    def list_lost_processes(self) -> list[int]:
        """Return the processes that hold GPU memory though their container is gone."""
        return [pid for pid in sorted(self.memory.gpu) if pid not in self.processes]

    def end_lost_process(self, pid: int) -> None:
        """End a process that outlived its container."""
        self.remains.lost.pop(pid, None)
        self.memory.release(pid, 1.0)

    def read_start_ticks(self, pid: int) -> int:
        """Return when a process began, in clock ticks after the boot."""
        return self.remains.born.get(pid, 0)

    def read_file(self, path: str) -> bytes | None:
        """Return the content of a readable file of this node, None if there is no such file."""
        if path == "/proc/meminfo":
            return self.memory.format_meminfo().encode()
        texts = {
            "/proc/version": f"Linux version {KERNEL_VERSION} (buildd@bos03-arm64-057) #15-Ubuntu SMP PREEMPT_DYNAMIC\n",
            "/proc/driver/nvidia/version": f"NVRM version: NVIDIA UNIX Open Kernel Module for aarch64  {self.options.driver}\n",
            "/proc/vmstat": self.format_vmstat(),
            "/etc/dgx-release": 'DGX_NAME="DGX Spark"\nDGX_SWBUILD_VERSION="7.3.1"\n',
            "/etc/hostname": f"{self.name}\n",
        }
        if path.endswith("/tokenizer.json") and not self.lacks_path(path.removesuffix("/tokenizer.json")):
            return build_byte_tokenizer().encode()
        text = texts.get(path)
        return None if text is None else text.encode()

    def format_vmstat(self) -> str:
        """Return the two lines of /proc/vmstat about drops."""
        return "".join(f"drop_{name} {count}\n" for name, count in self.memory.drops.items())


FABRIC_INTERFACES = {
    "rocep1s0f0": "enp1s0f0np0",
    "roceP2p1s0f0": "enP2p1s0f0np0",
}  # both functions of the port with the cable
LINK_MEGABITS = {"enP7s7": 10000, "enp1s0f0np0": 200000, "enP2p1s0f0np0": 200000}  # Mb/s
PING_SCRIPT_MARKER = "# sparkctl pings 1"  # the first of `node/peer_ping.sh`
NETWORK_PREFIXES = {"enp1s0f0np0": "192.168.200", "enP2p1s0f0np0": "192.168.201", "enP7s7": "192.168.1"}


def list_link_speeds(node: SimNode) -> dict[str, int]:
    """Return the speed of each interface with a carrier, in Mb/s."""
    return {
        name: speed
        for name, speed in LINK_MEGABITS.items()
        if node.is_cabled() or name not in FABRIC_INTERFACES.values()
    }


def get_interface_mtu(interface: str) -> int:
    return 9000 if "np" in interface else 1500


def get_interface_address(node: SimNode, interface: str) -> str | None:
    is_bare = NodeFault.NO_ADDRESS in node.options.troubles or not node.is_cabled()
    bare = is_bare and interface in FABRIC_INTERFACES.values()
    return (
        None
        if bare or interface not in NETWORK_PREFIXES
        else f"{NETWORK_PREFIXES[interface]}.{10 + _parse_node_number(node)}"
    )


def list_interface_networks(node: SimNode, interface: str) -> list[str]:
    return [] if get_interface_address(node, interface) is None else [f"{NETWORK_PREFIXES[interface]}.0/24"]


def list_gids(node: SimNode, interface: str) -> list[dict[str, Any]]:
    """Return the GID table of a function: link-local, then IPv4, each in both versions of RoCE."""
    found = {0: "fe80:0000:0000:0000:4abb:feff:fe12:3456"}
    if (own := get_interface_address(node, interface)) is not None:
        found[4 if NodeFault.OTHER_GID in node.options.troubles else 2] = own
    kinds = ("IB/RoCE v1", "RoCE v2")
    return [
        {"index": first + version, "type": kinds[version], "address": where}
        for first, where in found.items()
        for version in (0, 1)
    ]


def answer_pings(node: SimNode, lanes: list[str]) -> str:
    """Return the output of `node/peer_ping.sh`: every address in a shared network answers, with packets of any size."""
    lines = []
    for lane in lanes:
        name, _, peer, size, device = lane.split()
        is_linked = name in list_link_speeds(node)
        lines.append(f"@@ link {name} {int(is_linked)}")
        if device != "-":
            lines.append(f"@@ rdma {device} {'4: ACTIVE' if is_linked else '1: DOWN'}")
        own = get_interface_address(node, name)
        heard = int(own is not None and own.rpartition(".")[0] == peer.rpartition(".")[0])
        for each in dict.fromkeys(("0", size)):
            lost = f"1 packets transmitted, {heard} received, {100 - 100 * heard}% packet loss, time 0ms"
            lines += [f"@@ ping {name} {peer} {each}", f"--- {peer} ping statistics ---", lost]
    return "\n".join([*lines, "@@ end", ""])


def build_rank_network(nodes: Mapping[str, SimNode]) -> RankNetwork:
    """Return the network between these nodes, by their addresses at the time of a request."""
    cable = tuple(f"{NETWORK_PREFIXES[interface]}." for interface in FABRIC_INTERFACES.values())

    def list_addresses(node: SimNode) -> set[str]:
        return {
            "127.0.0.1",
            *(own for name in NETWORK_PREFIXES if (own := get_interface_address(node, name)) is not None),
        }

    def is_reachable(name: str, wanted: str) -> bool:
        own = list_addresses(nodes[name])
        network = wanted.rpartition(".")[0]
        there = any(wanted in list_addresses(other) for other in nodes.values())
        return wanted in own or (there and any(one.rpartition(".")[0] == network for one in own))

    return RankNetwork(is_reachable, lambda wanted: wanted.startswith(cable))


def _parse_node_number(node: SimNode) -> int:
    """Return the number at the end of a node's name, 0 if there is none."""
    last = node.name[-1:]
    return int(last) if last.isdecimal() else 0
