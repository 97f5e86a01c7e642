"""Watch containers and kill an instance: begin and end of a watch, polling Docker and loading engines, the request,
Docker's answer, and the receipt: what was done and why, one file per container, with the memory before and after.

Sent to the node with the guard: standard library only, Python 3.8 or newer.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import time

from sparkctl.node.guard.container_watch import DOCKER_ANSWER_SECONDS, IDENTITY_FIELDS
from sparkctl.node.guard.decision import CALM_READ_SECONDS, KillCandidate, choose_kill_candidate
from sparkctl.node.guard.guard_sockets import HttpConnection

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from typing import Any

    from sparkctl.node.guard.container_watch import ContainerWatch
    from sparkctl.node.guard.decision import GuardDecision, MeminfoReading
    from sparkctl.node.guard.guard_memory import GuardEventLog, MemoryReader
    from sparkctl.node.guard.guard_sockets import GuardConnection

    Json = dict[str, Any]

EXIT_SETTLE_SECONDS = 0.5  # seconds after Docker reports the end, until a further fall has another cause
KILL_TIMEOUT_SECONDS = 60.0  # seconds that a kill may take: Docker answers when the container has exited
SEND_RETRY_SECONDS = 0.25  # seconds until a request is repeated that could not be sent


class KillRequest:
    """A request to kill an instance, from its sending to the readings after it."""

    def __init__(self, watch: ContainerWatch, event: Json, receipt: Json, now: float) -> None:
        self.watch = watch
        self.event = event
        self.receipt = receipt
        self.at = self.sent_at = now
        self.is_open = True  # it is not known whether the container has ended
        self.resent = False
        self.is_late = False
        self.is_void = False  # it is known to have had no effect: no receipt
        self.after: list[list[float]] = []


class KillCoordinator:
    """The kills in progress. ``grown``: by how many bytes a container grew recently."""

    def __init__(
        self,
        docker: DockerPoller,
        watches: WatchRegistry,
        memory: MemoryReader,
        grown: Callable[[str], int | None],
        receipts: ReceiptStore,
    ) -> None:
        self.docker = docker
        self.watches = watches
        self.memory = memory
        self.clock = memory.clock
        self.grown = grown
        self.receipts = receipts
        self.events: GuardEventLog = receipts.events
        self.under_way: list[KillRequest] = []
        self.owed: KillRequest | None = None  # the kill whose answer the connection waits for
        self.hold_until = 0.0

    def __len__(self) -> int:
        return len(self.under_way)

    def record_reading(self, now: float) -> None:
        """Keep the last reading for the receipts."""
        row = self.memory.recent[-1]
        for kill in self.under_way:
            if now - kill.at <= DOCKER_ANSWER_SECONDS and (
                not kill.after or row[0] - kill.after[-1][0] >= CALM_READ_SECONDS
            ):
                kill.after.append(row)

    def find_open_kill(self, watch: ContainerWatch) -> KillRequest | None:
        """Return the kill of a watch if it is not known whether the container has ended."""
        return next((kill for kill in self.under_way if kill.is_open and kill.watch is watch), None)

    def replace_watch(self, before: ContainerWatch, watch: ContainerWatch) -> None:
        for kill in self.under_way:
            kill.watch = watch if kill.watch is before else kill.watch

    def send_kill_request(self, now: float, dying: list[tuple[ContainerWatch, GuardDecision]]) -> None:
        """Send the request to kill one instance, before anything else."""
        if now < self.hold_until:
            return
        able = [watch for watch in self.watches if self.find_open_kill(watch) is None]
        if all(watch.tried for watch, _ in dying):  # another watch's floor is not crossed: repeat at most once
            able = [watch for watch in able if watch.tried]
        chosen = choose_kill_candidate(
            KillCandidate(w.container, w.role == "loading", self.grown(w.container), w.began, w.tried) for w in able
        )
        if chosen is None:
            return
        watch = self.watches.by_container[chosen.container]
        crossed, step = next((pair for pair in dying if pair[0] is watch), dying[0])
        sent = self.docker.send_kill(watch, self.clock.monotonic())
        sent_at = self.clock.monotonic()
        self.hold_until = sent_at + (DOCKER_ANSWER_SECONDS if sent else SEND_RETRY_SECONDS)
        event = self.events.make_event("killed", step.why, watch, step)
        if not sent:
            self.docker.is_responding = False
            self.report_failure(watch, event, "Docker's socket takes no request")
            return
        watch.tried += 1
        for other in self.watches:  # one is being killed: kill another one only if memory falls further
            if other is not watch and not other.tried:
                other.lower_floors(self.memory.readings[-1].available)
        kill = KillRequest(
            watch, event, self.receipts.build_receipt(watch, event, crossed.active_floor, sent_at), sent_at
        )
        self.under_way.append(kill)
        self.owed = kill
        self.receipts.write(watch, kill.receipt)

    def report_failure(self, watch: ContainerWatch, event: Json, why: str) -> None:
        """Report that an instance could not be killed, with a limited rate."""
        now = self.clock.monotonic()
        if now - watch.refused_at >= DOCKER_ANSWER_SECONDS:
            watch.refused_at = now
            why = f"{why}; {event['why']}"
            self.events.publish_event(dict(event, at=round(self.clock.time(), 3), what="kill-failed", why=why))

    def handle_response(self, status: int | None, body: bytes, now: float) -> None:
        """Handle Docker's answer: 204 means ended, 404 means that the container does not exist (any more).

        409 means that it does not run now: the next poll shows whether it ended or is being started again.
        """
        kill, self.owed = self.owed, None
        if kill is None or kill.is_void:
            return
        if not kill.is_open:  # the other connection reported it first
            kill.receipt["answer"] = status
            self.update_receipt(kill)
            return
        if status is None and not kill.resent and self.resend_kill_request(kill, now):
            return
        kill.receipt["answer"] = status
        if status == 204 or (kill.resent and status == 404):
            self.confirm_kill(kill)
            return
        kill.watch.asked_at = 0.0
        if kill.resent and status in (None, 409) and self.watches.find_watch(kill.watch.container) is not None:
            if status is None:  # the request before may have reached it
                self.report_failure(kill.watch, kill.event, "the connection to Docker broke twice")
            return
        kill.is_open = False
        kill.is_void = True
        self.receipts.remove(kill.watch.container[:12])
        if status == 404:
            self.watches.end_watch(kill.watch, "it had ended already when the guard wanted to end it")
        elif status != 409 or kill.watch.tried > 1:
            self.report_failure(kill.watch, kill.event, f"Docker answered {status}: {parse_docker_message(body)}")

    def resend_kill_request(self, kill: KillRequest, now: float) -> bool:
        """Repeat a request for the same container, which is harmless."""
        kill.resent, kill.sent_at = True, now
        if not self.docker.send_kill(kill.watch, self.clock.monotonic()):
            return False
        self.owed = kill
        return True

    def handle_container_end(self, watch: ContainerWatch, why: str) -> None:
        """A container has ended: because of the guard, if the guard asked for it."""
        kill = self.find_open_kill(watch)
        if kill is not None:
            self.confirm_kill(kill)
        else:
            self.watches.end_watch(watch, why)

    def confirm_kill(self, kill: KillRequest) -> None:
        kill.is_open = False
        self.hold_until = min(self.hold_until, self.clock.monotonic() + EXIT_SETTLE_SECONDS)
        self.events.publish_event(kill.event)
        self.watches.end_watch(kill.watch, "ended by the guard")
        self.update_receipt(kill)

    def check_pending(self, now: float) -> None:
        """Complete the receipts with later readings, and ask again if there is no answer."""
        for kill in list(self.under_way):
            if kill.is_open and now - kill.at > KILL_TIMEOUT_SECONDS:
                kill.is_open = False
                self.report_failure(
                    kill.watch, kill.event, f"nothing says that it ended within {KILL_TIMEOUT_SECONDS:.0f} s"
                )
            elif kill.is_open:
                self.retry_kill(kill, now)
            if now - kill.at <= DOCKER_ANSWER_SECONDS + 1.0:
                self.update_receipt(kill)
            if not kill.is_open and now - kill.at > DOCKER_ANSWER_SECONDS:
                self.update_receipt(kill)
                self.under_way.remove(kill)
                self.receipts.remove_old()
                if self.watches.find_watch(kill.watch.container) is not None:
                    self.receipts.reserve_draft(kill.watch)

    def retry_kill(self, kill: KillRequest, now: float) -> None:
        """Ask Docker whether it has ended; if no answer came in time, repeat the request once."""
        kill.watch.asked_at = 0.0
        if now - kill.sent_at <= DOCKER_ANSWER_SECONDS:
            return
        if not kill.is_late:
            kill.is_late = True
            self.report_failure(kill.watch, kill.event, f"Docker has not answered for {DOCKER_ANSWER_SECONDS:.0f} s")
        if kill is self.under_way[-1]:
            self.resend_kill_request(kill, now)

    def update_receipt(self, kill: KillRequest) -> None:
        """Write the receipt again with what is known now."""
        if not kill.is_void:
            samples = kill.receipt["samples"] + kill.after
            self.receipts.write(
                kill.watch, dict(kill.receipt, samples=samples, events=self.events.list_watch_events(kill.watch))
            )


# -- receipts

MAX_RECEIPTS, MAX_RECEIPT_AGE_SECONDS = 10, 24 * 3600.0
RESERVED_BYTES = 1 << 16
RECEIPT_NAME_PATTERN = re.compile(r"receipt-([0-9a-f]{12})\.json")


class ReceiptStore:
    """The receipts in ``place``, and prepared draft files with reserved disk space."""

    def __init__(self, place: str, memory: MemoryReader, events: GuardEventLog) -> None:
        self.place = place
        self.memory = memory
        self.events = events

    def get_receipt_path(self, short: str) -> str:
        return f"{self.place}/receipt-{short}.json"

    def get_draft_path(self, watch: ContainerWatch) -> str:
        """Return the path of the draft file, which becomes the receipt by a rename."""
        return f"{self.place}/draft-{watch.container[:12]}"

    def reserve_draft(self, watch: ContainerWatch) -> None:
        """Create the draft file and reserve its disk space."""
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
        try:
            watch.receipt = os.open(self.get_draft_path(watch), flags, 0o600)
            os.posix_fallocate(watch.receipt, 0, RESERVED_BYTES)
        except OSError:
            pass  # a full disk costs the receipt, not the guard

    def discard_draft(self, watch: ContainerWatch) -> None:
        """Close and remove the draft file: there is nothing to record."""
        if watch.receipt >= 0:
            os.close(watch.receipt)
            watch.receipt = -1
            with contextlib.suppress(OSError):
                os.unlink(self.get_draft_path(watch))  # noqa: PTH108

    def build_receipt(self, watch: ContainerWatch, event: Json, floor: int, sent_at: float) -> Json:
        """Return the receipt as far as it is known when the request has been sent."""
        readings = self.memory.readings
        crossed_at = compute_floor_crossing_time(floor, readings)
        return {
            **{name: getattr(watch, name) for name in (*IDENTITY_FIELDS, "role")},
            **{name: event[name] for name in ("at", "why", "rate", "to_zero")},
            "did": "killed",
            "floor": floor,
            "available": readings[-1].available,
            "reaction": None if crossed_at is None else round(sent_at - crossed_at, 4),
            "answer": None,
            "samples": self.memory.list_samples(),
            "events": self.events.list_watch_events(watch),
        }

    def write(self, watch: ContainerWatch, receipt: Json) -> None:
        """Write the receipt into the draft file and rename it, so that nobody reads an incomplete one."""
        if watch.receipt < 0:
            self.reserve_draft(watch)
        if watch.receipt < 0:
            return
        text = json.dumps(receipt, separators=(",", ":")).encode("ascii", "replace")
        try:
            os.pwrite(watch.receipt, text, 0)
            os.ftruncate(watch.receipt, len(text))
            os.rename(self.get_draft_path(watch), self.get_receipt_path(watch.container[:12]))  # noqa: PTH104
        except OSError:
            pass
        os.close(watch.receipt)
        watch.receipt = -1

    def list_ids(self) -> list[str]:
        """Return the short ids of all receipts, the newest first."""
        return [short for _, short in self._list_receipts_by_age()]

    def _list_names(self) -> list[str]:
        """Return the files in the directory; none if it was removed."""
        try:
            return os.listdir(self.place)  # noqa: PTH208
        except OSError:
            return []

    def _list_receipts_by_age(self) -> list[tuple[float, str]]:
        found = []
        for name in self._list_names():
            match = RECEIPT_NAME_PATTERN.fullmatch(name)
            if match:
                with contextlib.suppress(OSError):
                    found.append((os.lstat(f"{self.place}/{name}").st_mtime, match.group(1)))
        return sorted(found, reverse=True)

    def remove_old(self, drafts: bool = False) -> None:
        """Remove receipts that are old or too many; ``drafts``: also the drafts of a guard that was killed."""
        for name in self._list_names() if drafts else ():
            if name.startswith("draft-"):
                with contextlib.suppress(OSError):
                    os.unlink(f"{self.place}/{name}")  # noqa: PTH108
        for at, (when, short) in enumerate(self._list_receipts_by_age()):
            if at >= MAX_RECEIPTS or time.time() - when > MAX_RECEIPT_AGE_SECONDS:
                self.remove(short)

    def refresh_mtime(self) -> None:
        """Update the times of the directory and its files, so that a cleaner of /tmp leaves them alone; receipts keep
        theirs.
        """
        try:
            names = os.listdir(self.place)  # noqa: PTH208
        except OSError:
            return
        for path in (
            self.place,
            *(f"{self.place}/{name}" for name in names if not RECEIPT_NAME_PATTERN.fullmatch(name)),
        ):
            with contextlib.suppress(OSError):
                os.utime(path)

    def remove(self, short: str) -> None:
        """Remove a receipt if it exists."""
        with contextlib.suppress(OSError):
            os.unlink(self.get_receipt_path(short))  # noqa: PTH108

    def read(self, short: str) -> Json | None:
        """Return a receipt, None if there is none."""
        try:
            fd = os.open(self.get_receipt_path(short), os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError:
            return None
        try:
            found = json.loads(os.read(fd, 1 << 20))
        except (OSError, ValueError, RecursionError):
            return None
        finally:
            os.close(fd)
        return found if isinstance(found, dict) else None


def compute_floor_crossing_time(floor: int, readings: Sequence[MeminfoReading]) -> float | None:
    """Return when memory crossed the floor, interpolated between two readings; None if no reading is above it.

    The last reading's time if it has not crossed the floor.
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


# -- all watches

MAX_WATCHES = 16


class WatchRegistry:
    """All watches, by container."""

    def __init__(self, events: GuardEventLog, receipts: ReceiptStore) -> None:
        self.events = events
        self.receipts = receipts
        self.by_container: dict[str, ContainerWatch] = {}
        self.clock = events.memory.clock
        self.quiet_since = self.clock.monotonic()

    def __len__(self) -> int:
        return len(self.by_container)

    def __iter__(self) -> Iterator[ContainerWatch]:
        """Yield the present watches; any may end meanwhile."""
        return iter(list(self.by_container.values()))

    def find_watch(self, container: object) -> ContainerWatch | None:
        return self.by_container.get(str(container))

    def begin_watch(self, watch: ContainerWatch) -> None:
        """Begin a watch, or replace the one for this container."""
        before = self.find_watch(watch.container)
        if before is None and len(self) >= MAX_WATCHES:
            raise ValueError(f"more than {MAX_WATCHES} watches")
        if before is not None:
            watch.receipt, before.receipt = before.receipt, -1
            watch.tried = before.tried
            watch.weights_until = before.weights_until
            watch.asked_at = before.asked_at
            self.close_watch(before)
        if before is not None and before.floor == watch.floor:
            watch.copy_floors(before)
        else:
            self.lower_floor(watch)
        self.by_container[watch.container] = watch
        if watch.receipt < 0:
            self.receipts.reserve_draft(watch)

    def lower_floor(self, watch: ContainerWatch) -> None:
        """Lower the active floor of a watch that begins below its floor, and report it."""
        available = self.events.memory.read_available()
        if available is not None and available < watch.floor:
            watch.lower_floors(available)
            watch.is_warned = True
            text = f"{available >> 20} MiB are available, under the floor of {watch.floor >> 20} MiB already"
            why = f"{text}; it acts when they fall to {max(0, watch.active_floor) >> 20} MiB"
            self.events.publish_event(self.events.make_event("warned", why, watch))

    def release_client(self, client: GuardConnection) -> None:
        self.quiet_since = self.clock.monotonic()
        for watch in self:
            if watch.client is client:
                watch.client = None

    def end_watch(self, watch: ContainerWatch, why: str) -> None:
        """End a watch and report why."""
        if self.find_watch(watch.container) is not watch:
            return
        del self.by_container[watch.container]
        self.close_watch(watch)
        self.quiet_since = self.clock.monotonic()
        self.events.publish_event(self.events.make_event("ended", why, watch))

    def close_watch(self, watch: ContainerWatch) -> None:
        """Close the files and connections of a watch."""
        if watch.asking is not None:
            watch.asking.close()
            watch.asking = None
        self.receipts.discard_draft(watch)


# -- polling

# marks sparkctl's own requests: such lines are not shown in the log
QUERY_MARK = "by=sparkctl"
_QUERY_REFUSED_STATUSES = (400, 404, 405)


class DockerPoller:
    """Docker's socket over two open connections: one for polling, one for kills. ``answers``: None = not known."""

    def __init__(self, path: str, every: float) -> None:
        self.every = every
        self.is_responding: bool | None = None
        self.asker = HttpConnection(path)
        self.killer = HttpConnection(path)
        self.question = ""
        self.pinged_at = 0.0

    def open_connections(self) -> None:
        for connection in (self.asker, self.killer):
            if connection.socket is None and not connection.open():
                self.is_responding = False

    def drop_late_answer(self, now: float) -> None:
        """Drop an answer that does not come in time."""
        if self.asker.asked_at is not None and now - self.asker.asked_at > self.every:
            self.is_responding = False
            self.asker.close()

    def poll_next_watch(self, now: float, watches: WatchRegistry) -> None:
        """Poll the watch that was polled longest ago; without a watch, ask whether Docker answers."""
        watch = min(watches, key=lambda one: (one.asked_at, one.container), default=None)
        before = self.pinged_at if watch is None else watch.asked_at
        if not self.asker.is_idle or now - before < self.every:
            return
        if watch is None:
            self.question, self.pinged_at, path = "", now, "/_ping"
        else:
            self.question, watch.asked_at, path = watch.container, now, f"/containers/{watch.container}/json"
        if not self.asker.send_request("GET", path, now):
            self.is_responding = False

    def handle_response(self, status: int | None, body: bytes) -> str | None:
        """Read an answer; return how the container of the last request ended, if that is known now."""
        self.is_responding = status is not None
        return describe_exit(status, body) if status is not None else None

    def send_kill(self, watch: ContainerWatch, now: float) -> bool:
        """Send a kill on the open connection; on a new one if it is closed or still waits for an answer."""
        path = f"/containers/{watch.container}/kill"
        if self.killer.is_idle and self.killer.send_request("POST", path, now):
            return True
        return self.killer.open() and self.killer.send_request("POST", path, now)

    def poll_health(self, now: float, watches: WatchRegistry) -> None:
        """Ask engines that load, and have no client attached, whether they are ready."""
        for watch in watches:
            if watch.is_attended() or watch.port is None or watch.health is None or watch.role != "loading":
                continue
            if now - watch.health_at < self.every:
                continue
            watch.health_at = now
            if watch.asking is not None:
                watch.asking.close()
                watch.healthy = 0
            watch.asking = HttpConnection(("127.0.0.1", watch.port))
            watch.asking.open()
            query = ("&" if "?" in watch.health else "?") + QUERY_MARK if watch.takes_query else ""
            watch.asking.send_request("GET", watch.health + query, now)


def describe_exit(status: int, body: bytes) -> str | None:
    """Return how a container ended by Docker's answer; None if the answer does not say so."""
    if status == 404:
        return "the container is gone"
    if status != 200:
        return None
    try:
        state = json.loads(body)["State"]
        ended = state["Status"] in ("exited", "dead", "removing") and state["Running"] is False
        code = state.get("ExitCode")
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        return None
    return f"the container ended with exit code {code if isinstance(code, int) else 'unknown'}" if ended else None


def parse_docker_message(body: bytes) -> str:
    """Return Docker's own sentence about an error."""
    try:
        return str(json.loads(body)["message"])[:200]
    except (ValueError, LookupError, TypeError, RecursionError):
        return body[:80].decode("utf-8", "replace")


def list_health_connections(watches: WatchRegistry) -> list[HttpConnection]:
    return [watch.asking for watch in watches if watch.asking is not None]


def record_health_answer(watch: ContainerWatch, status: int | None) -> bool:
    """Read an engine's answer; two positive ones in a row count as ready."""
    assert watch.asking is not None
    watch.asking.close()
    watch.asking = None
    watch.takes_query = watch.takes_query and status not in _QUERY_REFUSED_STATUSES
    watch.healthy = watch.healthy + 1 if status is not None and 200 <= status < 300 else 0
    return watch.healthy >= 2
