"""The connection, the daemon and the link go away in the middle of a start: it is still watched to its end, whole."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import pytest

from tests.lab.bed.faults import Faults
from tests.lab.bed.node import LabNode
from tests.lab.bed.shell import await_true
from tests.lab.support.command_outcomes import (
    AWAY,
    LOADING,
    RECONNECTING,
    assert_ended,
    get_verdict,
    list_own_containers,
    parse_numbers,
    read_saved_log,
)
from tests.lab.support.sparkctl_process import Ran, Running, Sparkctl

LINES = 600


@dataclass(frozen=True, slots=True)
class Counting:
    """A start that is watched by `up` and, at the same time, followed by `logs -f`."""

    sparkctl: Sparkctl
    node: LabNode
    up: Running
    follow: Running

    def await_line(self, number: int) -> None:
        """Return once the engine has printed this line: asked on the node itself, not over SSH."""
        line = f"numbered {number:07d}"
        await_true(line, lambda: line in self.node.read_container_log(list_own_containers(self.node)[0]), 60.0, 0.1)

    def assert_whole(self, timeout: float = 60.0) -> Ran:
        """Ready, and every line arrived once: in the saved log, in what was followed, and in what is read anew."""
        ended = self.up.end(timeout)
        assert_ended(ended, 0, "ready")
        self.follow.await_text(f"numbered {LINES:07d}", 20)
        everything = list(range(1, LINES + 1))
        assert parse_numbers(read_saved_log(self.sparkctl)) == everything
        assert parse_numbers(self.follow.kill().out) == everything
        assert parse_numbers(self.sparkctl("logs", "tiny", "--node", "spark1").out) == everything
        return ended


@pytest.fixture
def counting(sparkctl: Sparkctl, spark1: LabNode) -> Callable[..., Counting]:
    """Start an engine that prints numbered lines while it loads; return once some have been followed."""

    def start(rate: int = 100) -> Counting:
        profile = sparkctl.profile(env={"LAB_LINES": str(LINES), "LAB_RATE": str(rate)})
        up = sparkctl.start("up", profile, "--node", "spark1", "--json")
        up.await_text(LOADING)
        follow = sparkctl.start("logs", profile, "--node", "spark1", "-f")
        follow.await_text("numbered 0000050")
        return Counting(sparkctl, spark1, up, follow)

    return start


Start = Callable[..., Counting]


def test_sshd_killed_and_back(spark1: LabNode, counting: Start, faults: Faults) -> None:
    running = counting()
    faults.kill_sshd(spark1)
    running.up.await_text(AWAY)
    running.up.await_text(RECONNECTING)
    faults.start_sshd(spark1)
    running.assert_whole()


def test_sessions_cut_again_and_again(spark1: LabNode, counting: Start, faults: Faults) -> None:
    running = counting()
    for number in (200, 350, 500):
        running.await_line(number)
        faults.kill_sessions(spark1)
    running.assert_whole()


def test_connection_reset(spark1: LabNode, counting: Start, faults: Faults) -> None:
    running = counting()
    faults.reset_connections(spark1)
    running.assert_whole()


@pytest.mark.timeout(180)
def test_link_down_for_20_seconds(spark1: LabNode, counting: Start, faults: Faults) -> None:
    running = counting(rate=20)
    faults.unplug(spark1)
    pulled = time.monotonic()
    running.up.await_text(AWAY, timeout=15)
    noticed = time.monotonic() - pulled
    time.sleep(max(0.0, 20 - noticed))  # the length of the outage is what is tested
    faults.plug(spark1)
    running.assert_whole(90)
    assert noticed < 11, f"a dead peer is to be found within 10 s, took {noticed:.1f}"


def test_dockerd_restarted_under_live_restore(
    spark1: LabNode, counting: Start, faults: Faults, sparkctl: Sparkctl
) -> None:
    faults.live_restore(spark1)
    running = counting()
    faults.stop_docker(spark1)
    faults.start_docker(spark1)
    ended = running.up.end()
    assert_ended(ended, 0, "ready")
    # What Docker itself kept is the measure here: the saved log has all of that, and nothing twice.
    kept = parse_numbers(sparkctl("logs", "tiny", "--node", "spark1").out)
    assert parse_numbers(read_saved_log(sparkctl)) == kept
    assert len(kept) == len(set(kept))


def test_dockerd_stopped_takes_the_engine_with_it(spark1: LabNode, counting: Start, faults: Faults) -> None:
    """Without live-restore a restart of Docker ends the engine: an end of the stream that is a real end."""
    running = counting()
    faults.stop_docker(spark1)
    faults.start_docker(spark1)
    ended = running.up.end()
    assert_ended(ended, 1, "failed")
    assert get_verdict(ended)["cause"] in ("exited", "stopped-by-others", "killed", "crashed")
    assert len(list_own_containers(spark1)) == 1


def test_dockerd_down_is_not_a_stopped_engine(spark1: LabNode, sparkctl: Sparkctl, faults: Faults) -> None:
    assert_ended(sparkctl("up", sparkctl.profile(), "--node", "spark1", "--json"), 0, "ready")
    faults.kill_docker(spark1)
    status = sparkctl("status", "--node", "spark1")
    assert "stopped" not in status.out, status
    assert "docker" in (status.out + status.err).lower(), status
    down = sparkctl("down", "tiny", "--node", "spark1", "--json")
    assert down.code == 3, down
