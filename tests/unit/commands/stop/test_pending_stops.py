"""Stops that are still owed: whom they mean, how long they last, and what a broken file does."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from sparkctl.commands.stop.pending_stops import MAX_AGE_SECONDS, PendingStop, PendingStopFiles
from sparkctl.model.container import Container, ContainerState
from sparkctl.model.launch_plan import ContainerLabel
from sparkctl.model.node import NodeName

NOW = 1_800_000_000.0
OWED = PendingStop(node=NodeName("spark2"), instance="big", since=NOW, containers=("a" * 12,), run="run-1")


def make_container(digit: str, **labels: str) -> Container:
    own = {ContainerLabel.INSTANCE: "big", **labels}
    return Container(
        id=digit * 64,
        name="big",
        image="image",
        state=ContainerState.RUNNING,
        status="Up",
        created=NOW,
        labels=tuple(own.items()),
    )


def test_a_pending_stop_names_one_container_and_run() -> None:
    run = {ContainerLabel.RUN: "run-1"}
    assert OWED.matches_container(make_container("a"))
    assert OWED.matches_container(make_container("b", **run))
    assert not OWED.matches_container(make_container("b"))
    assert not OWED.matches_container(make_container("b", **{ContainerLabel.RUN: "run-2"}))
    assert not OWED.matches_container(make_container("a", **{ContainerLabel.INSTANCE: "other"}))
    assert not OWED.matches_container(replace(make_container("a"), labels=())), "a foreign one is nobody's to stop"
    assert not replace(OWED, containers=("aaaa",), run=None).matches_container(make_container("a")), (
        "too short to be an id"
    )


def test_pending_stops_are_private_and_expire_after_a_day(tmp_path: Path) -> None:
    kept = PendingStopFiles(tmp_path / "state")
    kept.save_stop(OWED)
    kept.save_stop(replace(OWED, containers=("b" * 12,), run=None, since=NOW + 60))
    kept.save_stop(replace(OWED, node=NodeName("spark1"), instance="../../etc"))
    (here,) = kept.list_for_node("spark2", NOW + 100)
    assert (here.containers, here.run, here.since) == (("a" * 12, "b" * 12), "run-1", NOW + 60)
    folder = tmp_path / "state" / "unfinished-stops"
    assert len(list(folder.iterdir())) == 2
    assert {path.stat().st_mode & 0o777 for path in folder.iterdir()} == {0o600}
    assert folder.stat().st_mode & 0o777 == 0o700
    kept.delete_stop(here)
    assert [one.node for one in kept.list_all(NOW + 100)] == ["spark1"]
    assert kept.list_all(NOW + MAX_AGE_SECONDS + 1) == ()
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize(
    "text", ["", "{", "[]", '{"node": 1}', "\x00", '{"node": "spark2", "instance": "big", "since": "x"}']
)
def test_an_unreadable_file_holds_no_pending_stop(tmp_path: Path, text: str) -> None:
    kept = PendingStopFiles(tmp_path)
    kept.save_stop(OWED)
    (path,) = (tmp_path / "unfinished-stops").iterdir()
    path.write_text(text)
    (tmp_path / "unfinished-stops" / "directory.json").mkdir()
    assert kept.list_all(NOW) == ()
