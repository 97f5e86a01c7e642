"""The connection, the daemon and the link go away in the middle of a start: it is still watched to its end, whole."""

from __future__ import annotations

import time

import pytest

from tests.lab.bed.faults import Faults
from tests.lab.bed.node import LabNode
from tests.lab.command import Ran, Running, Sparkctl
from tests.lab.outcomes import assert_ended, numbers, ours, saved_log, verdict

LINES = 600


def start_counting(sparkctl: Sparkctl, rate: int = 100) -> Running:
    """Start an engine that prints numbered lines while it loads; return once some have arrived."""
    profile = sparkctl.profile(env={"LAB_LINES": str(LINES), "LAB_RATE": str(rate)})
    watching = sparkctl.start("up", profile, "--node", "spark1", "--json")
    watching.await_text("numbered 0000050")
    return watching


def assert_whole(ended: Ran, sparkctl: Sparkctl) -> None:
    """Every line arrived once: in the events, in the saved log, and in what `logs` reads anew."""
    assert_ended(ended, 0, "ready")
    everything = list(range(1, LINES + 1))
    assert numbers(ended.out) == everything
    assert numbers(saved_log(sparkctl)) == everything
    assert numbers(sparkctl("logs", "tiny", "--node", "spark1").out) == everything


def test_sshd_killed_and_back(spark1: LabNode, sparkctl: Sparkctl, faults: Faults) -> None:
    watching = start_counting(sparkctl)
    faults.kill_sshd(spark1)
    watching.await_text(r'"state": ?"unreachable"')
    faults.start_sshd(spark1)
    ended = watching.end()
    assert_whole(ended, sparkctl)
    assert any(event.get("attempt") for event in ended.events), "the reconnect was not to be seen"


def test_sessions_cut_again_and_again(spark1: LabNode, sparkctl: Sparkctl, faults: Faults) -> None:
    watching = start_counting(sparkctl)
    for number in (150, 300, 450):
        watching.await_text(f"numbered {number:07d}")
        faults.kill_sessions(spark1)
    assert_whole(watching.end(), sparkctl)


def test_connection_reset(spark1: LabNode, sparkctl: Sparkctl, faults: Faults) -> None:
    watching = start_counting(sparkctl)
    faults.reset_connections(spark1)
    assert_whole(watching.end(), sparkctl)


@pytest.mark.timeout(180)
def test_link_down_for_20_seconds(spark1: LabNode, sparkctl: Sparkctl, faults: Faults) -> None:
    watching = start_counting(sparkctl, rate=20)
    faults.unplug(spark1)
    pulled = time.monotonic()
    watching.await_text(r'"state": ?"unreachable"', timeout=15)
    noticed = time.monotonic() - pulled
    time.sleep(max(0.0, 20 - noticed))  # the length of the outage is what is tested
    faults.plug(spark1)
    assert_whole(watching.end(90), sparkctl)
    assert noticed < 12, f"a dead peer is to be found within 10 s, took {noticed:.1f}"


def test_dockerd_restarted_under_live_restore(spark1: LabNode, sparkctl: Sparkctl, faults: Faults) -> None:
    faults.live_restore(spark1)
    watching = start_counting(sparkctl)
    faults.stop_docker(spark1)
    faults.start_docker(spark1)
    ended = watching.end()
    assert_ended(ended, 0, "ready")
    # dockerd itself drops what is printed while it is away (the pipe waits, then it reads on); nothing may come twice.
    seen = numbers(ended.out)
    assert seen == numbers(sparkctl("logs", "tiny", "--node", "spark1").out)
    assert len(seen) == len(set(seen))


def test_dockerd_stopped_takes_the_engine_with_it(spark1: LabNode, sparkctl: Sparkctl, faults: Faults) -> None:
    """Without live-restore a restart of Docker ends the engine: an end of the stream that is a real end."""
    watching = start_counting(sparkctl)
    faults.stop_docker(spark1)
    faults.start_docker(spark1)
    ended = watching.end()
    assert_ended(ended, 1, "failed")
    assert verdict(ended)["cause"] in ("exited", "stopped-by-others", "killed", "crashed")
    assert len(ours(spark1)) == 1


def test_dockerd_down_is_not_a_stopped_engine(spark1: LabNode, sparkctl: Sparkctl, faults: Faults) -> None:
    assert_ended(sparkctl("up", sparkctl.profile(), "--node", "spark1", "--json"), 0, "ready")
    faults.kill_docker(spark1)
    status = sparkctl("status", "--node", "spark1")
    assert "stopped" not in status.out, status
    assert "docker" in (status.out + status.err).lower(), status
    down = sparkctl("down", "tiny", "--node", "spark1", "--json")
    assert down.code == 3, down
