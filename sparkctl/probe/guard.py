"""The guard: a process of its own on a Spark that ends an instance before the machine runs out of memory and freezes.

Travels with `agent.py`, `guard_rule.py` and `guard_http.py`: standard library only, Python 3.8 or newer. Started like the
probe; it prints one line, goes into the background and outlives the connection, until nobody has had a watch for a
minute. One per node and user. It is spoken to in lines of JSON on a unix socket in a directory that only its user enters.

Whatever may be needed in the worst moment is there before it: memory is locked where that is allowed, the connections to
Docker are open, `tee` waits to drop caches, the receipt has its room on the disk. The loop forks nothing and waits for
nothing. The GPU's driver and the processes are asked in parts of their own, and a part that hangs delays nothing.

(One file of this length because it is one process; what can be judged without a process is in the other two.)
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import re
import select
import signal
import socket
import stat
import sys
import threading
import time
import zlib
from collections import deque

from sparkctl.probe.agent import PROTOCOL, Processes, Source, memory_of, once, start_gpu_child, start_thread
from sparkctl.probe.guard_http import Connection, is_listening
from sparkctl.probe.guard_rule import (
    BAND,
    CALM,
    FAST,
    Candidate,
    Reading,
    cache_starves,
    choose,
    decide,
    default_cache_below,
    lowered,
    near,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

    from sparkctl.probe.agent import Part
    from sparkctl.probe.guard_rule import Step

    Json = dict[str, Any]

GUARD_PROTOCOL = 1
DOCKER = "/var/run/docker.sock"
DROP, COMPACT = "/proc/sys/vm/drop_caches", "/proc/sys/vm/compact_memory"
LINGER = 60.0  # seconds without a watch after which it ends
IDLE = 1.0  # seconds between readings while there is no watch
PROMPT = 0.003  # seconds that a reading may take; one that takes longer was interrupted
TICK = 1.0  # everything that is not memory
LEASE = 10.0  # seconds that "weights are loading" holds
ASK_EVERY = 5.0  # seconds between questions about a container
AGAIN = 3.0  # seconds in which a request is answered, and after which it may be sent again
DEAD = 0.5  # seconds after Docker's word that it has ended, until a fall is somebody else's
PATIENCE = 60.0  # seconds that an end may take: Docker answers when the container has exited
RETRY = 0.25  # seconds until a request is tried again that could not be sent
DROP_EVERY, CACHE_EVERY, PROOF = 2.0, 5.0, 10.0  # between drops near the floor and elsewhere; until one has failed
COMPACT_EVERY = 60.0
REARM = 60.0  # seconds far from the floor until a watch is calm again
CLIENTS, WATCHES = 16, 16
LINE_LIMIT, UNSENT_LIMIT = 1 << 16, 1 << 18
AT_ONCE = 4  # commands of one client before the others, and memory, get their turn
EVENTS, RECEIPTS, RECEIPT_AGE = 50, 10, 24 * 3600.0
RECEIPT_ROOM = 1 << 16
ID = re.compile(r"[0-9a-f]{64}")
RECEIPT = re.compile(r"receipt-([0-9a-f]{12})\.json")
WHO = ("container", "instance", "profile", "operator")
DROPPED = re.compile(rb"^drop_pagecache (\d+)$", re.MULTILINE)


class Watch:
    """One container that may be ended, as the operator's side asked for."""

    def __init__(self, said: Json, now: float) -> None:
        """Raises ValueError with a sentence where something is missing or is of another kind."""
        self.container: str = said_as(said, "container", str)
        if not ID.fullmatch(self.container):
            raise ValueError("container: the whole id, 64 hex digits")
        self.instance = said_as(said, "instance", str)
        self.profile: str | None = said_as(said, "profile", str, None)
        self.operator: str | None = said_as(said, "operator", str, None)
        self.role: str = said_as(said, "role", str)
        if self.role not in ("loading", "serving"):
            raise ValueError("role: loading or serving")
        self.floor: int = said_as(said, "floor", int)
        self.limit = float(said_as(said, "limit", (int, float)))
        if self.floor <= 0 or not 0 < self.limit <= 31 * 24 * 3600:
            raise ValueError("floor and limit: more than 0, the limit at most 31 days")
        self.port: int | None = said_as(said, "port", int, None)
        self.health: str | None = said_as(said, "health", str, None)
        if self.port is not None and not 0 < self.port < 65536:
            raise ValueError("port: 1 to 65535")
        if self.health is not None and not re.fullmatch(r"/[!-~]{0,200}", self.health):
            raise ValueError("health: a path, from the slash on")
        self.cache_below: int | None = said_as(said, "cache_below", int, None)
        self.began = now
        self.since = time.time()
        self.weights_until = 0.0
        self.is_warned = False
        self.calm_since = now
        self.tried = 0
        self.refused_at = now - AGAIN
        self.bar = self.floor  # the floor that holds now: lower while memory has been under it from the beginning
        self.client: Client | None = None  # who spoke of it last, and is still there
        self.healthy = 0
        self.health_at = now
        self.asking: Connection | None = None
        self.receipt = -1

    def told(self, now: float) -> Json:
        """Return it as the state tells it."""
        found = {
            name: getattr(self, name) for name in (*WHO, "role", "floor", "limit", "port", "health", "cache_below")
        }
        found["since"] = round(self.since, 3)
        found["ends"] = round(time.time() + self.began + self.limit - now, 3)
        found["weights"] = now < self.weights_until
        found["level"] = "warned" if self.is_warned else "calm"
        return found


class Kill:
    """A request to end an instance, from its sending to the readings after it."""

    def __init__(self, watch: Watch, event: Json, receipt: Json, now: float) -> None:
        self.watch = watch
        self.event = event
        self.receipt = receipt
        self.at = self.sent_at = now
        self.is_open = True  # it is not known whether the container has ended
        self.resent = False
        self.is_late = False
        self.is_void = False  # it is known that nothing came of it: no receipt
        self.after: list[list[float]] = []


class Client:
    """Somebody on the socket."""

    def __init__(self, connection: socket.socket) -> None:
        connection.setblocking(False)
        self.socket = connection
        self.taken = b""
        self.unsent = b""
        self.is_gone = False

    def fileno(self) -> int:
        """Return its descriptor, for select."""
        return self.socket.fileno()

    def say(self, message: Json) -> None:
        """Send a line; one who does not read is left."""
        line = json.dumps(dict({"guard": GUARD_PROTOCOL}, **message), separators=(",", ":")).encode("ascii", "replace")
        self.unsent += line + b"\n"
        self.flush()
        if len(self.unsent) > UNSENT_LIMIT:
            self.is_gone = True

    def flush(self) -> None:
        """Send what can be sent now."""
        try:
            while self.unsent:
                self.unsent = self.unsent[self.socket.send(self.unsent) :]
        except BlockingIOError:
            pass
        except OSError:
            self.is_gone = True

    def hear(self) -> None:
        """Take in what there is; a line too long, and the end, are the end."""
        try:
            said = self.socket.recv(LINE_LIMIT)
        except BlockingIOError:
            return
        except OSError:
            said = b""
        self.taken += said
        if not said or (len(self.taken) > LINE_LIMIT and b"\n" not in self.taken[:LINE_LIMIT]):
            if said:
                self.say({"kind": "refused", "what": f"a line of more than {LINE_LIMIT} bytes"})
            self.is_gone = True

    def line(self) -> bytes | None:
        """Return the next whole line, None without one."""
        if b"\n" not in self.taken:
            return None
        line, _, self.taken = self.taken.partition(b"\n")
        return line


class Tee:
    """``tee FILE``, started once with the right to write there; a write to its pipe is a write to the file."""

    def __init__(self, sudo: list[str], path: str) -> None:
        self.path = path
        self.needs_no_sudo = not sudo
        reader, self.pipe = os.pipe()
        os.set_blocking(self.pipe, False)
        nowhere = [(os.POSIX_SPAWN_OPEN, fd, os.devnull, os.O_WRONLY, 0) for fd in (1, 2)]
        words = [*sudo, "/usr/bin/tee", path]
        try:
            streams = [(os.POSIX_SPAWN_DUP2, reader, 0), *nowhere]
            self.pid = os.posix_spawnp(words[0], words, os.environ, file_actions=streams)
        except OSError:
            self.pid = 0
        os.close(reader)

    def is_there(self) -> bool:
        """Tell whether it may be written to: sudo ends at once where there is no right."""
        if self.pid and os.waitpid(self.pid, os.WNOHANG) != (0, 0):
            self.pid = 0
        return self.pid != 0 and (not self.needs_no_sudo or os.access(self.path, os.W_OK))

    def write(self, what: bytes) -> bool:
        """Ask for a write; False where it cannot be asked for."""
        try:
            return self.pid != 0 and os.write(self.pipe, what) == len(what)
        except OSError:
            return False


class Holdings:
    """What each container holds, CPU and GPU side together, asked every second in parts of their own."""

    def __init__(self, root: str, gpu: Part | None) -> None:
        processes = Processes(root)
        self.gpu = gpu
        self.processes = start_thread(lambda pids: {"processes": processes.read(pids)})
        self.parts = [part for part in (gpu, self.processes) if part is not None]
        self.held: deque[dict[str, int]] = deque(maxlen=6)
        self.has_gpus = False

    def ask(self, now: float) -> None:
        """Ask for another reading, and keep what the last one brought."""
        on_gpu: dict[int, int] = {}
        gpus = self.gpu.answer.get("gpus") if self.gpu else None
        if (gpus is not None) != self.has_gpus:  # what it held all along would look like growth
            self.has_gpus = gpus is not None
            self.held.clear()
        for reading in gpus or []:
            for process in reading["processes"] or []:
                on_gpu[process["pid"]] = on_gpu.get(process["pid"], 0) + (process["memory"] or 0)
        total: dict[str, int] = {}
        for process in self.processes.answer.get("processes") or []:
            if process["container"]:
                both = (process["resident"] or 0) + on_gpu.get(process["pid"], 0)
                total[process["container"]] = total.get(process["container"], 0) + both
        self.held.append(total)
        for part in self.parts:
            part.ask(now, sorted(on_gpu))

    def grown(self, container: str) -> int | None:
        """Return by how many bytes it grew over the last seconds, None where it was not seen."""
        seen = [total[container] for total in self.held if container in total]
        return seen[-1] - seen[0] if seen else None


class Guard:
    """The process. Everything is opened in here; `run` forks nothing and waits for nothing but the next moment."""

    def __init__(self, options: dict[str, str], place: str, nvml: bytes) -> None:
        root = options["--root"].rstrip("/")
        self.place = place
        self.linger = float(options["--linger"])
        self.ask_every = float(options["--ask"])
        self.sudo = options["--sudo"].split()
        gpu = start_gpu_child(nvml) if nvml else None  # before there is anything that it should not inherit
        self.tees = {path: Tee(self.sudo, path) for path in (DROP, COMPACT)}
        threading.stack_size(1 << 18)  # locked memory is really there
        self.holdings = Holdings(root, gpu)
        self.meminfo = Source(root + "/proc/meminfo")
        self.vmstat = Source(root + "/proc/vmstat", long=True)
        self.total = (memory_of(self.meminfo.read())[0] or {}).get("total")
        self.asker = Connection(options["--docker"])
        self.killer = Connection(options["--docker"])
        self.listener = listen(place + "/guard.sock")
        self.clients: list[Client] = []
        self.watches: dict[str, Watch] = {}
        self.events: deque[Json] = deque(maxlen=EVENTS)
        self.kills: list[Kill] = []
        self.owed: Kill | None = None  # whose answer the connection owes
        self.readings: list[Reading] = []  # of the last second: what is decided on
        self.recent: deque[list[float]] = deque(maxlen=200)  # as receipts tell them
        self.minute: deque[list[float]] = deque(maxlen=60)
        self.since = time.time()
        self.is_close = False
        self.look_at = self.tick_at = time.monotonic()
        self.quiet_since = self.look_at
        self.docker: bool | None = None
        self.question = ""
        self.asked: dict[str, float] = {}
        self.drop: tuple[float, int | None, Watch] | None = None
        self.dropped_at = self.compacted_at = -COMPACT_EVERY
        self.hold_until = 0.0
        for connection in (self.asker, self.killer):
            connection.open()
        self.is_locked = lock_memory()

    # -- the loop

    def run(self) -> None:
        """Run until there has been no watch for a while."""
        while True:
            self.look(time.monotonic())
            now = time.monotonic()
            if now >= self.tick_at:
                self.tick_at = now + TICK
                self.tick(now)
            if self.watches or self.kills or self.clients:
                self.quiet_since = now
            elif now - self.quiet_since >= self.linger:
                return
            self.wait()

    def wait(self) -> None:
        """Sleep until the next moment or until somebody says something, and hear them."""
        links = [one for one in (self.killer, self.asker, *self.health_links()) if one.socket is not None]
        parts = [part for part in self.holdings.parts if not part.ended]
        unsent: list[Any] = [client for client in self.clients if client.unsent]
        unsent += [link for link in links if link.out]
        left = [client for client in self.clients if b"\n" in client.taken]
        pause = 0.0 if left else max(0.0, min(self.look_at, self.tick_at) - time.monotonic())
        hearing = [client for client in self.clients if client not in left]  # a flood waits in the kernel
        wanted: list[Any] = [self.listener, *hearing, *links, *(part.answers for part in parts)]
        ready, free, _ = select.select(wanted, unsent, [], pause)
        for one in free:
            one.flush()
        for link in links:
            if link in ready and link.socket is not None:
                self.answered(link)
        for part in parts:
            if part.answers in ready:
                part.hear()
        for client in list(self.clients):
            if client in ready:
                client.hear()
            self.obey(client)
            self.look(time.monotonic())
        if self.listener in ready:
            self.welcome()
        self.part_with([client for client in self.clients if client.is_gone])

    def look(self, now: float) -> None:
        """Read memory when it is time to, and act on it."""
        if now < self.look_at:
            return
        for _ in range(3):  # until it is known when it was read: a rate is taken from it
            begun = time.monotonic()
            text = self.meminfo.read()
            now = time.monotonic()
            if now - begun < PROMPT:
                break
        memory = memory_of(text)[0]
        if memory is None:  # not known: nothing is decided on it
            self.meminfo.retry_at = 0.0
            self.look_at = now + (FAST if self.is_close else CALM)
            return
        reading = Reading(now, memory["available"], memory["free"], memory["page_cache"], memory["swap_free"])
        old = max(0, len(self.readings) - 3)  # the last ones count however old they are: a node may let us read seldom
        self.readings = [one for at, one in enumerate(self.readings) if at >= old or now - one.at <= 1.1]
        self.readings.append(reading)
        row = [round(time.time(), 3), *reading[1:]]
        self.recent.append(row)
        for kill in self.kills:
            if now - kill.at <= AGAIN and (not kill.after or row[0] - kill.after[-1][0] >= CALM):
                kill.after.append(row)
        self.is_close = False
        steps = [(watch, self.judge(watch, reading)) for watch in list(self.watches.values())]
        dying = [(watch, step) for watch, step in steps if step.act == "kill"]
        if dying and now >= self.hold_until:
            self.kill(now, dying)
        self.look_at = now + (FAST if self.is_close else CALM if self.watches or self.kills else IDLE)

    def judge(self, watch: Watch, reading: Reading) -> Step:
        """Return what is to be done for a watch; warn and drop already done."""
        may_drop = reading.at < watch.weights_until
        if watch.bar < watch.floor:
            if reading.available >= (watch.floor + near(watch.floor)) // 2:
                watch.bar = watch.floor
            elif reading.at < self.hold_until:  # what is being ended may still take some
                watch.bar = min(watch.bar, lowered(watch.floor, reading.available))
        step = decide(watch.bar, self.readings, may_drop)
        self.is_close = self.is_close or step.close
        if step.act != "calm" or reading.available < near(watch.floor) + BAND:
            watch.calm_since = reading.at
        elif reading.at - watch.calm_since >= REARM:
            watch.is_warned = False
        if step.act in ("warn", "drop") and not watch.is_warned:
            watch.is_warned = True
            self.tell(self.event("warned", step.why, watch, step))
        below = watch.cache_below if watch.cache_below is not None else default_cache_below(self.total)
        if step.act == "drop":
            self.drop_caches(watch, reading.at, DROP_EVERY)
        elif may_drop and step.act != "kill" and cache_starves(reading, below):
            self.drop_caches(watch, reading.at, CACHE_EVERY)
        return step

    # -- acts

    def kill(self, now: float, dying: list[tuple[Watch, Step]]) -> None:
        """Send the request to end one instance; only then think of anything else."""
        grown = self.holdings.grown
        able = [w for w in self.watches.values() if not any(kill.is_open and kill.watch is w for kill in self.kills)]
        if all(watch.tried for watch, _ in dying):  # nobody else's floor is crossed: at most once more
            able = [watch for watch in able if watch.tried]
        chosen = choose(Candidate(w.container, w.role == "loading", grown(w.container), w.began, w.tried) for w in able)
        if chosen is None:
            return
        watch = self.watches[chosen.container]
        crossed, step = next((pair for pair in dying if pair[0] is watch), dying[0])
        sent = self.send_kill(watch)
        sent_at = time.monotonic()
        self.hold_until = sent_at + (AGAIN if sent else RETRY)
        event = self.event("killed", step.why, watch, step)
        if not sent:
            self.docker = False
            self.tell_failure(watch, event, "Docker's socket takes no request")
            return
        watch.tried += 1
        for other in self.watches.values():  # one is being ended: another one only if memory falls on
            if other is not watch and not other.tried:
                other.bar = lowered(other.floor, self.readings[-1].available)
        kill = Kill(watch, event, self.receipt_of(watch, event, crossed.bar, sent_at), sent_at)
        self.kills.append(kill)
        self.owed = kill
        self.write_receipt(watch, kill.receipt)

    def send_kill(self, watch: Watch) -> bool:
        """Send it on the open connection, on a new one where that is gone or still owes an answer."""
        path = f"/containers/{watch.container}/kill"
        if self.killer.is_free and self.killer.ask("POST", path, time.monotonic()):
            return True
        return self.killer.open() and self.killer.ask("POST", path, time.monotonic())

    def tell_failure(self, watch: Watch, event: Json, why: str) -> None:
        """Tell that an instance could not be ended, not more often than one can read."""
        now = time.monotonic()
        if now - watch.refused_at >= AGAIN:
            watch.refused_at = now
            why = f"{why}; {event['why']}"
            self.tell(dict(event, at=round(time.time(), 3), what="kill-failed", why=why))

    def kill_answered(self, status: int | None, body: bytes, now: float) -> None:
        """Take Docker's answer: 204 is an end, 404 says that there is no container (any more).

        409 says that it does not run now: whether it has ended, or is being started again, tells the next question.
        """
        kill, self.owed = self.owed, None
        if kill is None or kill.is_void:
            return
        if not kill.is_open:  # the other connection told first
            kill.receipt["answer"] = status
            self.complete(kill)
            return
        if status is None and not kill.resent and self.sent_again(kill, now):
            return
        kill.receipt["answer"] = status
        if status == 204 or (kill.resent and status == 404):
            self.confirm(kill)
            return
        if kill.resent and status in (None, 409) and kill.watch.container in self.watches:
            self.asked[kill.watch.container] = 0.0  # the one before may have reached it
            if status is None:
                self.tell_failure(kill.watch, kill.event, "the connection to Docker broke twice")
            return
        kill.is_open = False
        kill.is_void = True
        remove_receipt(self.place, kill.watch.container[:12])
        if status == 404:
            self.end(kill.watch, "it had ended already when the guard wanted to end it")
            return
        self.asked[kill.watch.container] = 0.0
        if status != 409 or kill.watch.tried > 1:
            self.tell_failure(kill.watch, kill.event, f"Docker answered {status}: {said_by(body)}")

    def sent_again(self, kill: Kill, now: float) -> bool:
        """Send a request once more to the same container, which harms nobody."""
        kill.resent, kill.sent_at = True, now
        if not self.send_kill(kill.watch):
            return False
        self.owed = kill
        return True

    def confirm(self, kill: Kill) -> None:
        """It has ended: say so."""
        kill.is_open = False
        self.hold_until = min(self.hold_until, time.monotonic() + DEAD)
        self.tell(kill.event)
        self.end(kill.watch, "ended by the guard")
        self.complete(kill)

    def drop_caches(self, watch: Watch, now: float, every: float) -> None:
        """Ask for a drop of the page cache, unless one was asked for lately or is still under way."""
        if self.drop is not None or now - self.dropped_at < every or not self.tees[DROP].pid:
            return
        self.dropped_at = now
        before = self.drops()
        if self.tees[DROP].write(b"3\n"):
            self.drop = (now, before, watch)
        else:
            self.tell(self.event("drop-failed", "the process that drops the page cache takes nothing", watch))

    def prove_drop(self, now: float) -> None:
        """Tell of a drop once the kernel has counted it, and that it failed where it does not."""
        if self.drop is None:
            return
        began, before, watch = self.drop
        count = self.drops()
        if count is not None and before is not None and count > before:
            self.drop = None
            self.tell(self.event("dropped", f"page cache dropped within {now - began:.1f} s", watch))
            if now - self.compacted_at >= COMPACT_EVERY and self.tees[COMPACT].write(b"1\n"):
                self.compacted_at = now
                self.tell(self.event("compacted", "the kernel was asked to join free memory", watch))
        elif now - began > PROOF:
            self.drop, self.dropped_at = None, now + COMPACT_EVERY - DROP_EVERY
            self.tell(self.event("drop-failed", f"the kernel counted no drop within {PROOF:.0f} s", watch))

    def drops(self) -> int | None:
        """Return how often the kernel dropped the page cache so far."""
        found = DROPPED.search(self.vmstat.read() or b"")
        return int(found.group(1)) if found else None

    # -- once a second

    def tick(self, now: float) -> None:
        """Do what is not memory: leases and limits, questions to Docker, receipts that are to be completed."""
        if self.recent:
            self.minute.append(self.recent[-1])
        self.holdings.ask(now)
        self.prove_drop(now)
        for kill in list(self.kills):
            self.settle(kill, now)
        for watch in list(self.watches.values()):
            if now - watch.began >= watch.limit:
                self.end(watch, f"its time limit of {watch.limit:.0f} s")
        for connection in (self.asker, self.killer):
            if connection.socket is None and not connection.open():
                self.docker = False
        if self.asker.asked_at is not None and now - self.asker.asked_at > self.ask_every:
            self.docker = False
            self.asker.close()
        self.ask_docker(now)
        self.ask_health(now)

    def settle(self, kill: Kill, now: float) -> None:
        """Complete the receipt with what came after, and ask again where there is no answer."""
        if kill.is_open and now - kill.at > PATIENCE:
            kill.is_open = False
            self.tell_failure(kill.watch, kill.event, f"nothing says that it ended within {PATIENCE:.0f} s")
        elif kill.is_open:
            self.asked[kill.watch.container] = 0.0
            if now - kill.sent_at > AGAIN:
                if not kill.is_late:
                    kill.is_late = True
                    self.tell_failure(kill.watch, kill.event, f"Docker has not answered for {AGAIN:.0f} s")
                if kill is self.kills[-1]:
                    self.sent_again(kill, now)
        if now - kill.at <= AGAIN + TICK:
            self.complete(kill)
        if not kill.is_open and now - kill.at > AGAIN:
            self.complete(kill)
            self.kills.remove(kill)
            tidy(self.place)
            if kill.watch.container in self.watches:
                self.prepare_receipt(kill.watch)

    def complete(self, kill: Kill) -> None:
        """Write the receipt again with what is known by now."""
        if kill.is_void:
            return
        events = [one for one in self.events if one["container"] in (None, kill.watch.container)]
        whole = dict(kill.receipt, samples=kill.receipt["samples"] + kill.after, events=events)
        self.write_receipt(kill.watch, whole)

    def ask_docker(self, now: float) -> None:
        """Ask about the watch that was asked about longest ago; without one, whether anybody is there."""
        due = [(self.asked.get(container, 0.0), container) for container in self.watches or ("",)]
        if not self.asker.is_free or now - min(due)[0] < self.ask_every:
            return
        self.question = min(due)[1]
        self.asked[self.question] = now
        path = f"/containers/{self.question}/json" if self.question else "/_ping"
        if not self.asker.ask("GET", path, now):
            self.docker = False

    def answered(self, link: Connection) -> None:
        """Take what a connection says."""
        found = link.hear()
        if found is None:
            return
        status, body = found
        if link is self.killer:
            self.kill_answered(status, body, time.monotonic())
        elif link is self.asker:
            self.docker = status is not None
            watch = self.watches.get(self.question)
            if watch is not None and status is not None:
                self.runs(watch, status, body)
        else:
            watch = next(one for one in self.watches.values() if one.asking is link)
            self.health_answered(watch, status)

    def runs(self, watch: Watch, status: int, body: bytes) -> None:
        """End a watch whose container is known to have ended; whatever else Docker says ends nothing."""
        kill = next((one for one in self.kills if one.is_open and one.watch is watch), None)
        if status == 404:
            self.confirm(kill) if kill is not None else self.end(watch, "the container is gone")
        if status != 200:
            return
        try:
            state = json.loads(body)["State"]
            ended = state["Status"] in ("exited", "dead", "removing") and state["Running"] is False
            code = state.get("ExitCode")
        except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
            return
        if ended and kill is not None:
            self.confirm(kill)
        elif ended:
            self.end(watch, f"the container ended with exit code {code if isinstance(code, int) else 'unknown'}")

    def health_links(self) -> list[Connection]:
        """Return the connections to engines."""
        return [watch.asking for watch in self.watches.values() if watch.asking is not None]

    def ask_health(self, now: float) -> None:
        """Ask a loading engine that nobody attends itself whether it is ready."""
        for watch in self.watches.values():
            if watch.client is not None or watch.port is None or watch.health is None or watch.role != "loading":
                continue
            if now - watch.health_at < self.ask_every:
                continue
            watch.health_at = now
            if watch.asking is not None:
                watch.asking.close()
                watch.healthy = 0
            watch.asking = Connection(("127.0.0.1", watch.port))
            watch.asking.open()
            watch.asking.ask("GET", watch.health, now)

    def health_answered(self, watch: Watch, status: int | None) -> None:
        """Count answers that say ready; two in a row are believed."""
        assert watch.asking is not None
        watch.asking.close()
        watch.asking = None
        watch.healthy = watch.healthy + 1 if status is not None and 200 <= status < 300 else 0
        if watch.healthy >= 2 and watch.client is None:
            self.end(watch, "it is ready, and nobody is attached")

    # -- clients

    def welcome(self) -> None:
        """Take a connection, if there are not too many."""
        try:
            connection, _ = self.listener.accept()
        except OSError:
            return
        client = Client(connection)
        if len(self.clients) >= CLIENTS:
            client.say({"kind": "refused", "what": f"more than {CLIENTS} connections"})
            connection.close()
            return
        self.clients.append(client)

    def part_with(self, gone: Sequence[Client]) -> None:
        """Close the connections of these."""
        for client in gone:
            client.socket.close()
            self.clients.remove(client)
            self.quiet_since = time.monotonic()
            for watch in self.watches.values():
                if watch.client is client:
                    watch.client = None

    def obey(self, client: Client) -> None:
        """Do what a client says, a few commands at a time; each is answered by a line."""
        for _ in range(AT_ONCE):
            line = client.line()
            if line is None:
                return
            try:
                client.say(self.done(command_of(line), client))
            except ValueError as error:
                client.say({"kind": "refused", "what": str(error)[:200]})

    def done(self, said: Json, client: Client) -> Json:
        """Do one command and return the answer. Raises ValueError with a sentence for what is no command."""
        command, now = said.get("do"), time.monotonic()
        watch: Watch | None
        if command == "watch":
            watch = Watch(said, now)
            watch.client = client
            self.begin(watch, now)
        elif command == "phase":
            watch = self.watches.get(str(said.get("container")))
            if watch is None:
                raise ValueError("phase: no such watch")
            watch.client = client
            watch.weights_until = now + LEASE if said_as(said, "weights", bool) else 0.0
        elif command == "unwatch":
            watch = self.watches.get(str(said.get("container")))
            if watch is not None:  # it may have ended in between
                self.end(watch, said_as(said, "why", str)[:100])
        elif command in ("receipt", "forget"):
            short = str(said.get("container"))[:12]
            if not re.fullmatch(r"[0-9a-f]{12}", short):
                raise ValueError("container: its id, at least 12 hex digits")
            if command == "receipt":
                return {"kind": "receipt", "receipt": read_receipt(self.place, short)}
            remove_receipt(self.place, short)
        elif command != "state":
            raise ValueError(f"no such command: {str(command)[:40]!r}")
        return self.state(now)

    def begin(self, watch: Watch, now: float) -> None:
        """Begin a watch, or put it in the place of the one there is for this container."""
        before = self.watches.get(watch.container)
        if before is None and len(self.watches) >= WATCHES:
            raise ValueError(f"more than {WATCHES} watches")
        if before is not None:
            watch.receipt, before.receipt = before.receipt, -1
            watch.tried = before.tried
            for kill in self.kills:
                kill.watch = watch if kill.watch is before else kill.watch
            watch.weights_until = before.weights_until
            self.let_go(before)
        if not self.watches:
            self.readings.clear()  # a second apart: no curve
        available = (memory_of(self.meminfo.read())[0] or {}).get("available")
        if before is not None and before.floor == watch.floor:
            watch.bar = before.bar
        elif available is not None and available < watch.floor:
            watch.bar = lowered(watch.floor, available)
            watch.is_warned = True
            text = f"{available >> 20} MiB are available, under the floor of {watch.floor >> 20} MiB already"
            self.tell(self.event("warned", f"{text}; it acts when they fall to {max(0, watch.bar) >> 20} MiB", watch))
        self.watches[watch.container] = watch
        if watch.receipt < 0:
            self.prepare_receipt(watch)
        self.look_at = self.tick_at = now

    def end(self, watch: Watch, why: str) -> None:
        """End a watch and tell why."""
        if self.watches.get(watch.container) is not watch:
            return
        del self.watches[watch.container]
        self.asked.pop(watch.container, None)
        self.let_go(watch)
        self.quiet_since = time.monotonic()
        self.tell(self.event("ended", why, watch))

    def let_go(self, watch: Watch) -> None:
        """Close what a watch holds."""
        if watch.asking is not None:
            watch.asking.close()
            watch.asking = None
        if watch.receipt >= 0:
            os.close(watch.receipt)
            watch.receipt = -1
            with contextlib.suppress(OSError):
                os.unlink(self.draft(watch))  # noqa: PTH108

    def event(self, what: str, why: str, watch: Watch | None = None, step: Step | None = None) -> Json:
        """Return an event of now."""
        now = self.readings[-1] if self.readings else None
        return {
            "at": round(time.time(), 3),
            "what": what,
            "container": watch.container if watch else None,
            "instance": watch.instance if watch else None,
            "available": now.available if now else None,
            "free": now.free if now else None,
            "rate": round(step.rate) if step and step.rate else None,
            "to_zero": round(step.to_zero, 3) if step and step.to_zero is not None else None,
            "why": why,
        }

    def tell(self, event: Json) -> None:
        """Keep an event and tell everybody."""
        self.events.append(event)
        for client in self.clients:
            client.say({"kind": "event", "event": event})

    def state(self, now: float) -> Json:
        """Return everything that one may want to know."""
        last = self.readings[-1]._asdict() if self.readings else {}
        return {
            "kind": "state",
            "since": round(self.since, 3),
            "pid": os.getpid(),
            **{name: last.get(name) for name in ("available", "free", "page_cache", "swap_free")},
            "rights": {"drop": self.tees[DROP].is_there(), "compact": self.tees[COMPACT].is_there()},
            "locked": self.is_locked,
            "docker": self.docker,
            "watches": [watch.told(now) for watch in self.watches.values()],
            "events": list(self.events),
            "receipts": [short for _, short in receipts(self.place)],
        }

    # -- receipts

    def draft(self, watch: Watch) -> str:
        """Return the path of the file that a receipt is written into before it gets its name."""
        return f"{self.place}/draft-{watch.container[:12]}"

    def prepare_receipt(self, watch: Watch) -> None:
        """Open the file and take its room on the disk."""
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
        try:
            watch.receipt = os.open(self.draft(watch), flags, 0o600)
            os.posix_fallocate(watch.receipt, 0, RECEIPT_ROOM)
        except OSError:
            pass  # a full disk costs the receipt, not the guard

    def receipt_of(self, watch: Watch, event: Json, floor: int, sent_at: float) -> Json:
        """Return the receipt as far as it is known when the request has been sent."""
        reading = self.readings[-1]
        oldest = self.recent[0][0] if self.recent else 0.0
        samples = [row for row in self.minute if row[0] < oldest] + list(self.recent)
        crossed_at = crossing(floor, self.readings)
        return {
            **{name: getattr(watch, name) for name in (*WHO, "role")},
            **{name: event[name] for name in ("at", "why", "rate", "to_zero")},
            "did": "killed",
            "floor": floor,
            "available": reading.available,
            "reaction": None if crossed_at is None else round(sent_at - crossed_at, 4),
            "answer": None,
            "samples": samples,
            "events": [one for one in self.events if one["container"] in (None, watch.container)],
        }

    def write_receipt(self, watch: Watch, receipt: Json) -> None:
        """Write it into the prepared file and give that its name; nobody sees half of one."""
        if watch.receipt < 0:
            self.prepare_receipt(watch)
        if watch.receipt < 0:
            return
        text = json.dumps(receipt, separators=(",", ":")).encode("ascii", "replace")
        try:
            os.pwrite(watch.receipt, text, 0)
            os.ftruncate(watch.receipt, len(text))
            os.rename(self.draft(watch), f"{self.place}/receipt-{watch.container[:12]}.json")  # noqa: PTH104
        except OSError:
            pass
        os.close(watch.receipt)
        watch.receipt = -1


def crossing(floor: int, readings: Sequence[Reading]) -> float | None:
    """Return when memory crossed the floor, between two readings in proportion; None where no reading is above it.

    The last reading's time where it has not crossed it.
    """
    after = readings[-1]
    if after.available >= floor:
        return after.at
    for before in reversed(readings[:-1]):
        if before.available >= floor:
            share = (before.available - floor) / (before.available - after.available)
            return before.at + share * (after.at - before.at)
        after = before
    return None


def names_in(place: str) -> list[str]:
    """Return what lies in a directory: nothing where it has been removed."""
    try:
        return os.listdir(place)  # noqa: PTH208
    except OSError:
        return []


def receipts(place: str) -> list[tuple[float, str]]:
    """Return time and short id of every receipt there is, the newest first."""
    found = []
    for name in names_in(place):
        match = RECEIPT.fullmatch(name)
        if match:
            with contextlib.suppress(OSError):
                found.append((os.lstat(f"{place}/{name}").st_mtime, match.group(1)))
    return sorted(found, reverse=True)


def tidy(place: str, drafts: bool = False) -> None:
    """Remove receipts that are old or too many; ``drafts``: also what a guard that was killed had prepared."""
    for name in names_in(place) if drafts else ():
        if name.startswith("draft-"):
            with contextlib.suppress(OSError):
                os.unlink(f"{place}/{name}")  # noqa: PTH108
    for at, (when, short) in enumerate(receipts(place)):
        if at >= RECEIPTS or time.time() - when > RECEIPT_AGE:
            remove_receipt(place, short)


def remove_receipt(place: str, short: str) -> None:
    """Remove a receipt, if it is there."""
    with contextlib.suppress(OSError):
        os.unlink(f"{place}/receipt-{short}.json")  # noqa: PTH108


def read_receipt(place: str, short: str) -> Json | None:
    """Return a receipt, None where there is none."""
    try:
        fd = os.open(f"{place}/receipt-{short}.json", os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        found = json.loads(os.read(fd, 1 << 20))
    except (OSError, ValueError):
        return None
    finally:
        os.close(fd)
    return found if isinstance(found, dict) else None


def command_of(line: bytes) -> Json:
    """Return what a line says. Raises ValueError for what is no object of JSON."""
    try:
        said = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"not JSON: {error}") from error
    if not isinstance(said, dict):
        raise ValueError("a command is an object")
    return said


def said_as(said: Json, name: str, kind: Any, *default: Any) -> Any:
    """Return a field of a command. Raises ValueError where it is of another kind, or missing without a default."""
    value = said.get(name)
    if value is None and default:
        return default[0]
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
        raise ValueError(f"{name}: missing, or not what it should be")
    if isinstance(value, str) and len(value) > 256:
        raise ValueError(f"{name}: longer than 256 characters")
    if isinstance(value, (int, float)) and not -(1 << 62) < value < 1 << 62:
        raise ValueError(f"{name}: no such number")
    return value


def said_by(body: bytes) -> str:
    """Return Docker's own sentence about an error."""
    try:
        return str(json.loads(body)["message"])[:200]
    except (ValueError, LookupError, TypeError, RecursionError):
        return body[:80].decode("utf-8", "replace")


# -- the start


class Refused(Exception):
    """The guard cannot be started here; the sentence says why."""


def own_directory(path: str) -> str:
    """Make the directory that only we enter, or take the one there is. Raises `Refused` for one that is not ours alone."""
    with contextlib.suppress(FileExistsError):
        os.mkdir(path, 0o700)  # noqa: PTH102
    found = os.lstat(path)
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & 0o077:
        raise Refused(f"{path} is not a directory of this user alone: see who made it, and remove it")
    return path


def take_lock(place: str) -> bool:
    """Take the lock that only one guard holds; False where another one does.

    A record lock: a child that hangs in the driver does not inherit it, and so does not keep it for us.
    """
    fd = os.open(place + "/guard.lock", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(fd)
        if error.errno in (errno.EACCES, errno.EAGAIN):
            return False
        raise
    os.ftruncate(fd, 0)
    os.pwrite(fd, b"%d\n" % os.getpid(), 0)
    return True


def listen(path: str) -> socket.socket:
    """Return a listening socket at this path."""
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)  # noqa: PTH108
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(path)
    os.chmod(path, 0o600)  # noqa: PTH101
    listener.listen(CLIENTS)
    listener.setblocking(False)
    return listener


def lock_memory() -> bool:
    """Keep our memory from being taken away, and from waiting for any, as far as we are allowed to."""
    import ctypes
    import resource

    libc = ctypes.CDLL(None, use_errno=True)
    with contextlib.suppress(AttributeError):
        libc.prctl(15, b"sparkctl-guard", 0, 0, 0)  # PR_SET_NAME: what ps and top show
    with contextlib.suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, 0, -20)
    with contextlib.suppress(OSError):
        protect()
    soft, hard = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_MEMLOCK, (hard, hard))
    powers = re.search(rb"^CapEff:\s+(\w+)", once("/proc/self/status") or b"", re.MULTILINE)
    may_lock = powers is not None and int(powers.group(1), 16) >> 14 & 1  # CAP_IPC_LOCK
    is_unlimited = may_lock or hard == resource.RLIM_INFINITY or hard > 1 << 29
    flags = 3 if is_unlimited else 1  # MCL_CURRENT, and MCL_FUTURE only where growing cannot then fail
    return bool(libc.mlockall(flags) == 0)


def protect() -> None:
    """Tell the kernel not to choose us when it runs out of memory itself."""
    fd = os.open("/proc/self/oom_score_adj", os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(fd, b"-1000")
    finally:
        os.close(fd)


def detach(log: str) -> None:
    """Let go of the terminal's streams; what goes wrong from here on stands in ``log``."""
    nowhere = os.open(os.devnull, os.O_RDWR)
    errors = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
    for fd, target in ((0, nowhere), (1, nowhere), (2, errors)):
        os.dup2(target, fd)


def start(options: dict[str, str], nvml: bytes) -> Guard | None:
    """Become the guard and say so; None where another one runs, which is said as well. Raises `Refused`."""
    place = own_directory(options["--dir"])
    deadline = time.monotonic() + 3.0
    while not take_lock(place):  # the other one may be on its way up, or down
        if is_listening(place + "/guard.sock"):
            pid = (once(place + "/guard.lock") or b"").strip()
            hello(place, int(pid) if pid.isdigit() else None, True)
            return None
        if time.monotonic() > deadline:
            raise Refused("another guard holds the lock and does not listen: it hangs, or is stopped")
        time.sleep(0.05)
    tidy(place, drafts=True)
    guard = Guard(options, place, nvml)
    deadline = time.monotonic() + 0.3  # what sudo needs to refuse
    while time.monotonic() < deadline and all(tee.is_there() for tee in guard.tees.values()) and guard.sudo:
        time.sleep(0.02)
    hello(place, os.getpid(), False)
    return guard


def hello(place: str, pid: int | None, already: bool) -> None:
    """Say the one line of stdout."""
    say({"kind": "guard", "socket": place + "/guard.sock", "pid": pid, "already": already})


def say(message: Json) -> None:
    """Write a line to stdout."""
    line = json.dumps(dict({"probe": PROTOCOL}, **message), separators=(",", ":")).encode("ascii", "replace") + b"\n"
    with contextlib.suppress(OSError):  # nobody reads any more: the guard is needed all the same
        os.write(1, line)


def in_background(task: Callable[[Callable[[], None]], None]) -> None:
    """Run ``task`` in a process of its own and session; we stay until it calls what it is given, or ends."""
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


def main(words: list[str]) -> None:
    """Run with the options of the start command: LENGTH of pynvml on stdin, then pairs of option and value."""
    length, packed = int(words[0]), b""
    while len(packed) < length:
        said = os.read(0, length - len(packed))
        if not said:
            return
        packed += said
    sudo = "sudo -n" if os.geteuid() else ""
    place = f"/tmp/sparkctl-guard-{os.geteuid()}"  # noqa: S108  # owner and mode are checked
    options = {"--root": "", "--dir": place, "--docker": DOCKER, "--sudo": sudo, "--linger": str(LINGER)}
    options["--ask"] = str(ASK_EVERY)
    options.update(zip(words[1::2], words[2::2]))  # noqa: B905  # strict came with Python 3.10
    nvml = zlib.decompress(packed) if packed else b""

    def guard(is_up: Callable[[], None]) -> None:
        try:
            one = start(options, nvml)
        except (Refused, OSError) as error:
            say({"kind": "refused", "what": str(error)})
            return
        if one is None:
            return
        detach(options["--dir"] + "/guard.log")
        is_up()
        sys.setswitchinterval(0.001)  # a thread that lists processes gives way sooner
        one.run()
        with contextlib.suppress(OSError):
            os.unlink(options["--dir"] + "/guard.sock")  # noqa: PTH108

    in_background(guard)
    os._exit(0)  # at once, whatever a part is waiting for
