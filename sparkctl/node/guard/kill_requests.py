"""Ending an instance: the request, its answer, and the receipt that is completed with what came after.

Travels beside `guard.py`: standard library only, Python 3.8 or newer.
"""

from __future__ import annotations

import time

from sparkctl.node.guard.container_polling import docker_message
from sparkctl.node.guard.decision import CALM, KillCandidate, choose_kill_candidate, lowered_floor
from sparkctl.node.guard.watches import RETRY_SECONDS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from sparkctl.node.guard.container_polling import DockerPoller
    from sparkctl.node.guard.decision import GuardDecision
    from sparkctl.node.guard.guard_events import GuardEventLog
    from sparkctl.node.guard.memory_reader import MemoryReader
    from sparkctl.node.guard.receipt_store import ReceiptStore
    from sparkctl.node.guard.watches import ContainerWatch, WatchRegistry

    Json = dict[str, Any]

EXIT_SETTLE_SECONDS = 0.5  # seconds after Docker's word that it has ended, until a fall is somebody else's
KILL_TIMEOUT = 60.0  # seconds that an end may take: Docker answers when the container has exited
RETRY = 0.25  # seconds until a request is tried again that could not be sent


class KillRequest:
    """A request to end an instance, from its sending to the readings after it."""

    def __init__(self, watch: ContainerWatch, event: Json, receipt: Json, now: float) -> None:
        self.watch = watch
        self.event = event
        self.receipt = receipt
        self.at = self.sent_at = now
        self.is_open = True  # it is not known whether the container has ended
        self.resent = False
        self.is_late = False
        self.is_void = False  # it is known that nothing came of it: no receipt
        self.after: list[list[float]] = []


class KillRequests:
    """Those that are under way. ``grown``: by how many bytes a container grew lately."""

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
        self.grown = grown
        self.receipts = receipts
        self.events: GuardEventLog = receipts.events
        self.under_way: list[KillRequest] = []
        self.owed: KillRequest | None = None  # whose answer the connection owes
        self.hold_until = 0.0

    def __len__(self) -> int:
        return len(self.under_way)

    def record_reading(self, now: float) -> None:
        """Keep the last reading for the receipts."""
        row = self.memory.recent[-1]
        for kill in self.under_way:
            if now - kill.at <= RETRY_SECONDS and (not kill.after or row[0] - kill.after[-1][0] >= CALM):
                kill.after.append(row)

    def open_of(self, watch: ContainerWatch) -> KillRequest | None:
        """Return the kill of a watch of which it is not known whether it has ended the container."""
        return next((kill for kill in self.under_way if kill.is_open and kill.watch is watch), None)

    def replace_watch(self, before: ContainerWatch, watch: ContainerWatch) -> None:
        """Take over: ``watch`` is in the place of ``before``."""
        for kill in self.under_way:
            kill.watch = watch if kill.watch is before else kill.watch

    def send(self, now: float, dying: list[tuple[ContainerWatch, GuardDecision]]) -> None:
        """Send the request to end one instance; only then think of anything else."""
        if now < self.hold_until:
            return
        able = [watch for watch in self.watches if self.open_of(watch) is None]
        if all(watch.tried for watch, _ in dying):  # nobody else's floor is crossed: at most once more
            able = [watch for watch in able if watch.tried]
        chosen = choose_kill_candidate(
            KillCandidate(w.container, w.role == "loading", self.grown(w.container), w.began, w.tried) for w in able
        )
        if chosen is None:
            return
        watch = self.watches.by_container[chosen.container]
        crossed, step = next((pair for pair in dying if pair[0] is watch), dying[0])
        sent = self.docker.send_kill(watch, time.monotonic())
        sent_at = time.monotonic()
        self.hold_until = sent_at + (RETRY_SECONDS if sent else RETRY)
        event = self.events.make_event("killed", step.why, watch, step)
        if not sent:
            self.docker.is_responding = False
            self.report_failure(watch, event, "Docker's socket takes no request")
            return
        watch.tried += 1
        for other in self.watches:  # one is being ended: another one only if memory falls on
            if other is not watch and not other.tried:
                other.active_floor = lowered_floor(other.floor, self.memory.readings[-1].available)
        kill = KillRequest(watch, event, self.receipts.begin(watch, event, crossed.active_floor, sent_at), sent_at)
        self.under_way.append(kill)
        self.owed = kill
        self.receipts.write(watch, kill.receipt)

    def report_failure(self, watch: ContainerWatch, event: Json, why: str) -> None:
        """Tell that an instance could not be ended, not more often than one can read."""
        now = time.monotonic()
        if now - watch.refused_at >= RETRY_SECONDS:
            watch.refused_at = now
            why = f"{why}; {event['why']}"
            self.events.publish(dict(event, at=round(time.time(), 3), what="kill-failed", why=why))

    def handle_response(self, status: int | None, body: bytes, now: float) -> None:
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
        if status is None and not kill.resent and self.resend(kill, now):
            return
        kill.receipt["answer"] = status
        if status == 204 or (kill.resent and status == 404):
            self.confirm(kill)
            return
        kill.watch.asked_at = 0.0
        if kill.resent and status in (None, 409) and self.watches.find(kill.watch.container) is not None:
            if status is None:  # the one before may have reached it
                self.report_failure(kill.watch, kill.event, "the connection to Docker broke twice")
            return
        kill.is_open = False
        kill.is_void = True
        self.receipts.remove(kill.watch.container[:12])
        if status == 404:
            self.watches.end(kill.watch, "it had ended already when the guard wanted to end it")
        elif status != 409 or kill.watch.tried > 1:
            self.report_failure(kill.watch, kill.event, f"Docker answered {status}: {docker_message(body)}")

    def resend(self, kill: KillRequest, now: float) -> bool:
        """Send a request once more to the same container, which harms nobody."""
        kill.resent, kill.sent_at = True, now
        if not self.docker.send_kill(kill.watch, time.monotonic()):
            return False
        self.owed = kill
        return True

    def ended(self, watch: ContainerWatch, why: str) -> None:
        """A container has ended: by us, if that was asked for."""
        kill = self.open_of(watch)
        if kill is not None:
            self.confirm(kill)
        else:
            self.watches.end(watch, why)

    def confirm(self, kill: KillRequest) -> None:
        """It has ended: say so."""
        kill.is_open = False
        self.hold_until = min(self.hold_until, time.monotonic() + EXIT_SETTLE_SECONDS)
        self.events.publish(kill.event)
        self.watches.end(kill.watch, "ended by the guard")
        self.complete(kill)

    def check_pending(self, now: float) -> None:
        """Complete the receipts with what came after, and ask again where there is no answer."""
        for kill in list(self.under_way):
            if kill.is_open and now - kill.at > KILL_TIMEOUT:
                kill.is_open = False
                self.report_failure(kill.watch, kill.event, f"nothing says that it ended within {KILL_TIMEOUT:.0f} s")
            elif kill.is_open:
                self.ask_again(kill, now)
            if now - kill.at <= RETRY_SECONDS + 1.0:
                self.complete(kill)
            if not kill.is_open and now - kill.at > RETRY_SECONDS:
                self.complete(kill)
                self.under_way.remove(kill)
                self.receipts.remove_old()
                if self.watches.find(kill.watch.container) is not None:
                    self.receipts.reserve_draft(kill.watch)

    def ask_again(self, kill: KillRequest, now: float) -> None:
        """Have Docker asked whether it has ended; where no answer came in time, send the request once more."""
        kill.watch.asked_at = 0.0
        if now - kill.sent_at <= RETRY_SECONDS:
            return
        if not kill.is_late:
            kill.is_late = True
            self.report_failure(kill.watch, kill.event, f"Docker has not answered for {RETRY_SECONDS:.0f} s")
        if kill is self.under_way[-1]:
            self.resend(kill, now)

    def complete(self, kill: KillRequest) -> None:
        """Write the receipt again with what is known by now."""
        if not kill.is_void:
            samples = kill.receipt["samples"] + kill.after
            self.receipts.write(
                kill.watch, dict(kill.receipt, samples=samples, events=self.events.events_of(kill.watch))
            )
