"""The guard: a process on a Spark that kills an instance before the machine runs out of memory and freezes.

Sent to the node with `agent.py` and the other modules of this package: standard library only, Python 3.8 or newer. It
starts like the agent, prints one line, goes into the background and outlives the connection, until there has been no
watch for a minute. One per node and user. Commands are lines of JSON on a unix socket in a directory that only its user
can enter.

Everything needed in the worst moment is prepared: memory is locked if permitted, the connections to Docker are open,
`tee` waits to drop caches, the receipt has its disk space. The loop never forks, and it waits for nothing until the
kill request is sent; the receipt after that, and the reservation of its space when a watch begins, may wait for the
disk under /tmp. Helper processes and threads query the GPU's driver and the processes, so a hanging one delays nothing.
"""

from __future__ import annotations

import contextlib
import os
import re
import select
import signal
import sys
import threading
import time

from sparkctl.node.agent import KernelFile, encode_message, read_file, read_nvml_source, start_gpu_process
from sparkctl.node.guard.container_watch import WEIGHTS_LEASE_SECONDS, ContainerWatch, parse_command, read_field
from sparkctl.node.guard.decision import (
    CALM_READ_SECONDS,
    FAST_READ_SECONDS,
    WARNING_BAND_BYTES,
    compute_warning_level,
    decide_action,
    decide_on_refusals,
)
from sparkctl.node.guard.guard_memory import (
    COMPACT_MEMORY_PATH,
    DROP_CACHES_PATH,
    ContainerMemory,
    DriverRefusals,
    GuardEventLog,
    MemoryReader,
    PageCacheDropper,
    PrivilegedWriter,
)
from sparkctl.node.guard.guard_sockets import (
    GuardSocketServer,
    GuardStartError,
    acquire_lock,
    create_private_directory,
    is_socket_open,
)
from sparkctl.node.guard.kill_requests import (
    DockerPoller,
    KillCoordinator,
    ReceiptStore,
    WatchRegistry,
    list_health_connections,
    record_health_answer,
)
from sparkctl.node.kernel_log import open_kernel_log

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from sparkctl.node.guard.decision import GuardDecision, MeminfoReading
    from sparkctl.node.guard.guard_sockets import GuardConnection, HttpConnection

    Json = dict[str, Any]

DOCKER_SOCKET_PATH = "/var/run/docker.sock"
IDLE_EXIT_SECONDS = 60.0  # seconds without a watch after which the guard ends
IDLE_READ_SECONDS = 1.0  # seconds between readings while there is no watch
TICK_SECONDS = 1.0  # everything except memory
TOUCH_SECONDS = 3600.0  # seconds after which the guard's files get a new time
DOCKER_POLL_SECONDS = 5.0  # seconds between requests about a container
CALM_AFTER_SECONDS = 60.0  # seconds far above the floor until a watch is calm again
SHARED_MEMORY = "/dev/shm"  # noqa: S108  # folders there are of this user, or not looked into
WAITING_PREFIX = "sparkctl-waiting-"  # of a folder of a download, which waits while a mark in it is touched
LOADING_MARK = "loading"
MAX_COMMANDS_PER_TURN = 4  # commands of one client before other clients, and memory, get their turn


class GuardDaemon:
    """The guard. `open_guard` opens everything at the start; `run` does not fork and waits only for the next moment.

    The times of readings are compared with each other only, all else is by ``clock``: the simulated guard has readings
    of a faster machine.
    """

    def __init__(
        self,
        caches: PageCacheDropper,
        clients: GuardSocketServer,
        holdings: ContainerMemory,
        receipts: ReceiptStore,
        docker: DockerPoller,
        refusals: DriverRefusals,
        linger: float,
    ) -> None:
        self.refusals = refusals
        self.events = receipts.events
        self.memory = self.events.memory
        self.clock = self.memory.clock
        self.caches = caches
        self.clients = clients
        self.holdings = holdings
        self.receipts = receipts
        self.docker = docker
        self.linger = linger
        self.waiting_place = SHARED_MEMORY
        self.watches = WatchRegistry(self.events, receipts)
        self.kills = KillCoordinator(docker, self.watches, self.memory, holdings.compute_growth, receipts)
        self.since = self.clock.time()
        self.is_close = self.is_locked = False
        self.look_at = self.tick_at = self.touched_at = self.clock.monotonic()
        self.docker.open_connections()

    # -- the loop

    def run(self) -> None:
        """Run until there has been no watch for a while."""
        while self.is_needed(self.clock.monotonic()):
            self.read_memory()
            self.run_periodic()
            self.wait_for_events()

    def is_needed(self, now: float) -> bool:
        """Tell whether there is a watch or a client, or was one recently."""
        if self.watches or self.kills or self.clients:
            self.watches.quiet_since = now
        return bool(now - self.watches.quiet_since < self.linger)

    def read_memory(self) -> None:
        """Read memory when it is time, and act on it."""
        if self.clock.monotonic() < self.look_at:
            return
        reading = self.memory.read()
        now = self.clock.monotonic()
        if reading is None:  # not known: decide nothing
            self.look_at = now + (FAST_READ_SECONDS if self.is_close else CALM_READ_SECONDS)
            return
        self.kills.record_reading(now)
        self.refusals.read(now)
        self.is_close = False
        steps = [(watch, self.decide_for_watch(watch, reading, now)) for watch in self.watches]
        dying = [(watch, step) for watch, step in steps if step.act == "kill"]
        if dying:
            self.kills.send_kill_request(now, dying)
        self.look_at = now + (
            FAST_READ_SECONDS
            if self.is_close
            else CALM_READ_SECONDS
            if self.watches or self.kills
            else IDLE_READ_SECONDS
        )

    def decide_for_watch(self, watch: ContainerWatch, reading: MeminfoReading, now: float) -> GuardDecision:
        """Return the decision for a watch; warnings and page cache drops are already done."""
        watch.adapt_floors(reading.available, is_ending=now < self.kills.hold_until)
        is_loading = now < watch.weights_until
        may_drop = is_loading and watch.cache_below != 0  # 0: the profile turned drops off
        step = decide_action(watch.active_floor, self.memory.readings, may_drop=may_drop)
        refused = self.refusals.count_since(watch.began, now)
        on_refusals = decide_on_refusals(watch.active_refusal_bound, self.memory.readings, refused, step)
        self.is_close = self.is_close or on_refusals.close
        if on_refusals.act == "kill":
            watch.calm_since = now
            return on_refusals
        if refused and self.refusals.is_news(now):  # it is about the machine, not about what is watched
            self.events.publish_event(self.events.make_event("warned", on_refusals.why, step=step))
        if step.act != "calm" or reading.available < compute_warning_level(watch.floor) + WARNING_BAND_BYTES:
            watch.calm_since = now
        elif now - watch.calm_since >= CALM_AFTER_SECONDS:
            watch.is_warned = False
        if step.act in ("warn", "drop") and not watch.is_warned:
            watch.is_warned = True
            self.events.publish_event(self.events.make_event("warned", step.why, watch, step))
        self.caches.drop_if_needed(watch, step, reading, is_loading)
        return step

    def run_periodic(self) -> None:
        """Do once a second everything except memory: limits, requests to Docker, receipts to complete."""
        now = self.clock.monotonic()
        if now < self.tick_at:
            return
        self.tick_at = now + TICK_SECONDS
        self.memory.record_second()
        self.holdings.request_readings(now)
        self.caches.confirm_drop()
        if now - self.touched_at >= TOUCH_SECONDS:
            self.touched_at = now
            self.receipts.refresh_mtime()
        self.kills.check_pending(now)
        for watch in self.watches:
            if now - watch.began >= watch.limit:
                self.watches.end_watch(watch, f"its time limit of {watch.limit:.0f} s")
        self.docker.open_connections()
        self.docker.drop_late_answer(now)
        self.docker.poll_next_watch(now, self.watches)
        self.docker.poll_health(now, self.watches)
        if any(watch.may_load_weights(now) for watch in self.watches):
            self.mark_loading()

    def mark_loading(self) -> None:
        """Have this user's downloads wait: touch the mark that each looks at. Both are in memory: no disk is waited for."""
        names = []
        with contextlib.suppress(OSError):
            names = [one for one in os.listdir(self.waiting_place) if one.startswith(WAITING_PREFIX)]  # noqa: PTH208
        for name in names:
            with contextlib.suppress(OSError):
                folder = os.open(f"{self.waiting_place}/{name}", os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
                try:
                    if os.fstat(folder).st_uid == os.geteuid():
                        flags = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
                        file = os.open(LOADING_MARK, flags, 0o600, dir_fd=folder)
                        os.utime(file)
                        os.close(file)
                finally:
                    os.close(folder)

    def wait_for_events(self) -> None:
        """Sleep until the next moment or until a message comes, and read it."""
        docker = (self.docker.killer, self.docker.asker)
        links = [one for one in (*docker, *list_health_connections(self.watches)) if one.socket is not None]
        parts = [part for part in self.holdings.parts if not part.ended]
        unsent: list[Any] = [one for one in self.clients.there if one.unsent]
        unsent += [link for link in links if link.out]
        left = [client for client in self.clients.there if b"\n" in client.taken]
        pause = 0.0 if left else max(0.0, min(self.look_at, self.tick_at) - self.clock.monotonic())
        hearing = [client for client in self.clients.there if client not in left]  # more stays in the kernel's buffer
        wanted: list[Any] = [self.clients.listener, *hearing, *links, *(part.answers for part in parts)]
        ready, free, _ = select.select(wanted, unsent, [], pause)
        for one in free:
            one.flush()
        for link in links:
            if link in ready and link.socket is not None:
                self.handle_response(link)
        for part in parts:
            if part.answers in ready:
                part.receive_answer()
        for client in list(self.clients.there):
            if client in ready:
                client.receive()
            self.handle_client(client)
            self.read_memory()
        if self.clients.listener in ready:
            self.clients.accept_client()
        for client in self.clients.remove_gone():
            self.watches.release_client(client)

    def handle_response(self, link: HttpConnection) -> None:
        found = link.receive_response()
        if found is None:
            return
        status, body = found
        if link is self.docker.killer:
            self.kills.handle_response(status, body, self.clock.monotonic())
        elif link is self.docker.asker:
            ended, asked = self.docker.handle_response(status, body), self.watches.find_watch(self.docker.question)
            if ended is not None and asked is not None:
                self.kills.handle_container_end(asked, ended)
        else:
            watch = next(one for one in self.watches if one.asking is link)
            if record_health_answer(watch, status) and not watch.is_attended():
                self.watches.end_watch(watch, "it is ready, and nobody is attached")

    # -- commands

    def handle_client(self, client: GuardConnection) -> None:
        """Run a few commands of a client; each is answered by one line."""
        for _ in range(MAX_COMMANDS_PER_TURN):
            line = client.next_line()
            if line is None:
                return
            client.send_message(self.answer_command(line, client))

    def answer_command(self, line: bytes, client: GuardConnection) -> Json:
        """Run the command in a line and return the answer, which may be a refusal."""
        try:
            return self.run_command(parse_command(line), client)
        except ValueError as error:
            return {"kind": "refused", "what": str(error)[:200]}

    def run_command(self, request: Json, client: GuardConnection) -> Json:
        """Run one command and return the answer. Raises ValueError with a sentence if the command is not valid."""
        command, now = request.get("do"), self.clock.monotonic()
        client.heard_at = now
        watch: ContainerWatch | None
        if command == "watch":
            watch = ContainerWatch(request, self.clock)
            watch.client = client
            self.add_watch(watch, now)
        elif command == "phase":
            watch = self.watches.find_watch(request.get("container"))
            if watch is None:
                raise ValueError("phase: no such watch")
            watch.client = client
            watch.weights_until = now + WEIGHTS_LEASE_SECONDS if read_field(request, "weights", bool) else 0.0
        elif command == "unwatch":
            watch = self.watches.find_watch(request.get("container"))
            if watch is not None:  # it may have ended meanwhile
                self.watches.end_watch(watch, read_field(request, "why", str)[:100])
        elif command in ("receipt", "forget"):
            short = str(request.get("container"))[:12]
            if not re.fullmatch(r"[0-9a-f]{12}", short):
                raise ValueError("container: its id, at least 12 hex digits")
            if command == "receipt":
                return {"kind": "receipt", "receipt": self.receipts.read(short)}
            self.receipts.remove(short)
        elif command != "state":
            raise ValueError(f"no such command: {str(command)[:40]!r}")
        return self.build_state()

    def add_watch(self, watch: ContainerWatch, now: float) -> None:
        """Begin a watch, or replace the one for this container."""
        before = self.watches.find_watch(watch.container)
        if not self.watches:
            self.memory.readings.clear()  # a second apart: too far for a curve
        self.watches.begin_watch(watch)
        if before is not None:
            self.kills.replace_watch(before, watch)
        self.look_at = self.tick_at = now

    def build_state(self) -> Json:
        last = self.memory.last_reading._asdict() if self.memory.last_reading else {}
        return {
            "kind": "state",
            "since": round(self.since, 3),
            "pid": os.getpid(),
            **{name: last.get(name) for name in ("available", "free", "page_cache", "swap_free")},
            "rights": self.caches.get_permissions(),
            "locked": self.is_locked,
            "log_trouble": self.refusals.kernel_log.trouble,
            "docker": self.docker.is_responding,
            "watches": [watch.to_json() for watch in self.watches],
            "events": list(self.events.last),
            "receipts": self.receipts.list_ids(),
        }


# -- the start


def daemonize(task: Callable[[Callable[[], None]], None]) -> None:
    """Run ``task`` in a new process and session; the caller waits until the task calls its argument, or ends."""
    reader, writer = os.pipe()
    if os.fork():
        os.close(writer)
        os.read(reader, 1)
        os._exit(0)
    os.close(reader)
    os.setsid()
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    os.umask(0o077)
    os.chdir("/")
    task(lambda: os.close(writer) if os.write(writer, b".") else None)


def redirect_streams(log: str) -> None:
    """Detach from the terminal's streams; later errors go to ``log``."""
    nowhere = os.open(os.devnull, os.O_RDWR)
    errors = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
    for fd, target in ((0, nowhere), (1, nowhere), (2, errors)):
        os.dup2(target, fd)


def lock_memory() -> bool:
    """Lock the process's memory, and keep it from waiting for memory, as far as permitted."""
    import ctypes
    import resource

    libc = ctypes.CDLL(None, use_errno=True)
    with contextlib.suppress(AttributeError):
        libc.prctl(15, b"sparkctl-guard", 0, 0, 0)  # PR_SET_NAME: what ps and top show
    with contextlib.suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, 0, -20)
    with contextlib.suppress(OSError):
        set_oom_score()
    soft, hard = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_MEMLOCK, (hard, hard))
    powers = re.search(rb"^CapEff:\s+(\w+)", read_file("/proc/self/status") or b"", re.MULTILINE)
    may_lock = powers is not None and int(powers.group(1), 16) >> 14 & 1  # CAP_IPC_LOCK
    is_unlimited = may_lock or hard == resource.RLIM_INFINITY or hard > 1 << 29
    flags = 3 if is_unlimited else 1  # MCL_CURRENT, and MCL_FUTURE only where growing cannot then fail
    return bool(libc.mlockall(flags) == 0)


def set_oom_score() -> None:
    """Tell the kernel not to choose this process when memory runs out."""
    fd = os.open("/proc/self/oom_score_adj", os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(fd, b"-1000")
    finally:
        os.close(fd)


def print_start_line(place: str, pid: int | None, already: bool) -> None:
    """Print the one line of stdout."""
    write_line({"kind": "guard", "socket": place + "/guard.sock", "pid": pid, "already": already})


def write_line(message: Json) -> None:
    """Write a line to stdout."""
    with contextlib.suppress(OSError):  # nobody reads any more, but the guard is needed all the same
        os.write(1, encode_message(message))


def open_guard(options: dict[str, str], place: str, nvml: bytes) -> GuardDaemon:
    """Return the guard of this machine with everything open: sockets, helpers, the processes that drop the page cache."""
    root = options["--root"].rstrip("/")
    # before there is anything that they should not inherit
    gpu, refusals = start_gpu_process(nvml) if nvml else None, DriverRefusals(open_kernel_log(root, history=False))
    memory = MemoryReader(KernelFile(root + "/proc/meminfo"))
    clients = GuardSocketServer(place + "/guard.sock")
    events = GuardEventLog(memory, clients.broadcast)
    tees = {path: PrivilegedWriter(options["--sudo"].split(), path) for path in (DROP_CACHES_PATH, COMPACT_MEMORY_PATH)}
    caches = PageCacheDropper(KernelFile(root + "/proc/vmstat", long=True), tees, events)
    threading.stack_size(1 << 18)  # locked memory is really allocated
    holdings, receipts = ContainerMemory(root, gpu), ReceiptStore(place, memory, events)
    docker = DockerPoller(options["--docker"], float(options["--ask"]))
    guard = GuardDaemon(caches, clients, holdings, receipts, docker, refusals, float(options["--linger"]))
    guard.waiting_place = options["--waiting"]
    guard.is_locked = lock_memory()
    return guard


def start_daemon(options: dict[str, str], nvml: bytes) -> GuardDaemon | None:
    """Become the guard and print the start line; None if another guard runs, which is printed as well. Raises
    `GuardStartError`.
    """
    place = create_private_directory(options["--dir"])
    deadline = time.monotonic() + 3.0
    while not acquire_lock(place):  # the other one may be starting, or ending
        if is_socket_open(place + "/guard.sock"):
            pid = (read_file(place + "/guard.lock") or b"").strip()
            print_start_line(place, int(pid) if pid.isdigit() else None, already=True)
            return None
        if time.monotonic() > deadline:
            raise GuardStartError("another guard holds the lock and does not listen: it hangs, or is stopped")
        time.sleep(0.05)
    guard = open_guard(options, place, nvml)
    guard.receipts.remove_old(drafts=True)
    deadline = time.monotonic() + 0.3  # what sudo needs to refuse
    while time.monotonic() < deadline and all(guard.caches.get_permissions().values()) and options["--sudo"]:
        time.sleep(0.02)
    print_start_line(place, os.getpid(), already=False)
    return guard


def main(words: list[str]) -> None:
    """Run with the options of the start command: LENGTH of pynvml on stdin, then pairs of option and value."""
    nvml = read_nvml_source(int(words[0]))
    sudo = "sudo -n" if os.geteuid() else ""
    place = f"/tmp/sparkctl-guard-{os.geteuid()}"  # noqa: S108  # owner and mode are checked
    options = {
        "--root": "",
        "--dir": place,
        "--waiting": SHARED_MEMORY,
        "--docker": DOCKER_SOCKET_PATH,
        "--sudo": sudo,
        "--linger": str(IDLE_EXIT_SECONDS),
    }
    options["--ask"] = str(DOCKER_POLL_SECONDS)
    options.update(zip(words[1::2], words[2::2]))  # noqa: B905  # strict came with Python 3.10

    def run_guard(is_up: Callable[[], None]) -> None:
        try:
            one = start_daemon(options, nvml)
        except (GuardStartError, OSError) as error:
            write_line({"kind": "refused", "what": str(error)})
            return
        if one is None:
            return
        redirect_streams(options["--dir"] + "/guard.log")
        is_up()
        sys.setswitchinterval(0.001)  # a thread that lists processes must yield sooner
        one.run()
        with contextlib.suppress(OSError):
            os.unlink(options["--dir"] + "/guard.sock")  # noqa: PTH108

    daemonize(run_guard)
    os._exit(0)  # end at once, whatever a part waits for
