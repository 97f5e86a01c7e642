"""The guard in words: what it will do, what it did, what it watches; nothing of a node reaches a terminal raw."""

from __future__ import annotations

import pytest

from sparkctl.commands.arm_guard import GuardStatus
from sparkctl.model.events import GuardActed
from sparkctl.model.guard_state import (
    GuardAction,
    GuardAlertLevel,
    GuardEvent,
    GuardMemoryReading,
    GuardPermissions,
    GuardReceipt,
    GuardRole,
    GuardState,
    GuardWatch,
)
from sparkctl.model.launch_plan import GuardRule
from sparkctl.model.node import NodeName, NodeState
from sparkctl.model.text.units import GIB
from sparkctl.views.event_text import format_guard_event
from sparkctl.views.guard_view import format_guard_status
from sparkctl.views.profiles.launch_plan_view import describe_guard_rule
from sparkctl.views.text.frame_layout import describe_guard_coverage as header_words

NODE = NodeName("spark1")


@pytest.mark.parametrize(
    ("rule", "words"),
    [
        (None, "no guard: nothing stops it before the node's memory runs out"),
        (
            GuardRule(limit=3600.0),
            "guarded until it is ready, for at most 1 h: stopped before less than 512 MiB is available; page cache is "
            "dropped when little memory is free while weights load",
        ),
        (
            GuardRule(2 * GIB, 0),
            "guarded until it is ready: stopped before less than 2.0 GiB is available; the page cache is left alone",
        ),
    ],
)
def test_the_plan_says_what_will_be_guarded(rule: GuardRule | None, words: str) -> None:
    assert describe_guard_rule(rule) == words


@pytest.mark.parametrize(
    ("what", "why", "words"),
    [
        (GuardAction.KILLED, "under 512 MiB", "qwen36 was stopped at 410 MiB available: under 512 MiB"),
        (GuardAction.WARNED, "it falls", "memory is getting short at 410 MiB available: it falls"),
        (GuardAction.DROPPED, "page cache dropped within 0.4 s", "page cache dropped within 0.4 s; 12.0 GiB are free"),
        (GuardAction.KILL_FAILED, "no\x1b[2Jwork", "qwen36 could not be stopped at 410 MiB available: nowork"),
        (GuardAction.ENDED, "ready", "qwen36 is no longer guarded: ready"),
    ],
)
def test_an_act_is_one_sentence(what: GuardAction, why: str, words: str) -> None:
    event = GuardActed(
        ts=1.0,
        node=NODE,
        what=what,
        why=why,
        at=1.0,
        instance="qwen36",
        container=None,
        available=int(0.4 * GIB),
        free=12 * GIB,
    )
    assert format_guard_event(event) == words


def test_what_the_guard_says_itself_is_not_said_twice() -> None:
    event = GuardActed(
        ts=1.0,
        node=NODE,
        what=GuardAction.KILLED,
        why="266 MiB are available, under 512 MiB",
        at=1.0,
        instance="qwen36",
        container=None,
        available=266 << 20,
    )
    assert format_guard_event(event) == "qwen36 was stopped: 266 MiB are available, under 512 MiB"


def test_a_warning_about_the_whole_node_does_not_claim_that_memory_is_short() -> None:
    why = "the GPU's driver was refused memory once (NV_ERR_NO_MEMORY); 97.7 GiB are available, so nothing is stopped"
    assert format_guard_event(GuardEvent(at=1.0, what=GuardAction.WARNED, why=why, available=97 * GIB)) == why


def test_unknown_guard_memory_is_not_shown_as_zero() -> None:
    assert (
        format_guard_event(GuardActed(ts=1.0, node=NODE, what=GuardAction.WARNED, why="w", at=1.0, instance="one"))
        == "memory is getting short: w"
    )


def make_guard_status(**changes: object) -> GuardStatus:
    watch = GuardWatch(
        container="ab" * 32,
        instance="qwen\x1b[31m36",
        floor=GIB // 2,
        since=900.0,
        ends=1600.0,
        role=GuardRole.LOADING,
        operator="milo@desk",
        level=GuardAlertLevel.WARNED,
    )
    state = GuardState(
        since=900.0, pid=7, available=9 * GIB, rights=GuardPermissions(False, None), locked=False, docker=False,
        log_trouble="/dev/kmsg: Operation not permitted", watches=(watch,),
        events=(
            GuardEvent(at=950.0, what=GuardAction.WARNED, why="it falls", instance="qwen36"),
            GuardEvent(at=951.0, what=GuardAction.ENDED, why="ready"),
        ),
    )  # fmt: skip
    receipt = GuardReceipt(
        container="cd" * 32, at=1000.0, did=GuardAction.KILLED, why="w", available=GIB // 4, floor=GIB // 2, instance="old",
        samples=(GuardMemoryReading(at=998.0, available=4 * GIB, free=GIB, page_cache=GIB, swap_free=0),),
    )  # fmt: skip
    given = {"guard": state, "receipts": (receipt,), **changes}
    return GuardStatus(name=NODE, state=NodeState.OK, when=1000.0, **given)  # type: ignore[arg-type]


def test_a_line_for_each_node_has_no_gaps() -> None:
    quiet = [make_guard_status(guard=None, receipts=()), make_guard_status(guard=None, receipts=())]
    assert format_guard_status(quiet) == ["○ spark1   no guard runs"] * 2
    assert "" in format_guard_status([*quiet, make_guard_status()])


def test_the_table_tells_what_is_watched_and_what_was_stopped() -> None:
    text = "\n".join(format_guard_status([make_guard_status()]))
    assert "\x1b" not in text
    for words in (
        "qwen36   loading   memory is short   floor 512 MiB   for 10 min more   milo@desk",
        "cannot reach Docker: it can warn, not act",
        "may not drop caches",
        "memory not locked",
        "does not see refusals of the GPU's driver (/dev/kmsg: Operation not permitted)",
        "memory is getting short: it falls",
        "stopped old: MemAvailable fell from 4.0 GiB to 256 MiB in 2.0 s",
        "sparkctl logs old --node spark1",
    ):
        assert words in text, text
    assert "ready" not in text  # the end of a watch is no news


def test_a_kill_is_told_once_and_a_watch_out_of_time_is_told() -> None:
    events = (
        GuardEvent(at=1000.0, what=GuardAction.KILLED, why="under 512 MiB", container="cd" * 32, instance="old"),
        GuardEvent(at=1001.0, what=GuardAction.KILLED, why="under 512 MiB", container="ef" * 32, instance="other"),
        GuardEvent(
            at=1002.0, what=GuardAction.ENDED, why="its time limit of 1 s", container="ab" * 32, instance="mine"
        ),
    )
    state = GuardState(since=900.0, pid=7, available=9 * GIB, events=events)
    lines = format_guard_status([make_guard_status(guard=state)])
    assert sum("old" in line and "stopped" in line for line in lines) == 1
    assert any("other was stopped" in line for line in lines)
    assert any("mine is no longer guarded: its time limit of 1 s" in line for line in lines)
    assert all(line.strip().startswith("19") for line in lines if "stopped" in line)  # with the date


def test_no_guard_and_no_node_are_two_things() -> None:
    assert format_guard_status([make_guard_status(guard=None, receipts=())]) == ["○ spark1   no guard runs"]
    away = GuardStatus(name=NODE, state=NodeState.UNREACHABLE, when=1.0, detail="no route", hint="look at its cable")
    assert format_guard_status([away]) == [
        "◌ spark1   unreachable: no route",
        "    try: look at its cable",
    ]


def test_lines_keep_to_the_terminal() -> None:
    assert all(len(line) <= 80 for line in format_guard_status([make_guard_status()], width=80))


SPARKS = NodeName("spark1"), NodeName("spark2")


@pytest.mark.parametrize(
    ("watched", "said"),
    [
        ((("qwen36",), ("qwen36-vllm",)), "guard armed"),
        ((("qwen36",), ()), "guard armed on spark1"),
        ((None, ("qwen36-vllm",)), "guard armed on spark2"),
        (((), ()), "unguarded"),
        (((), None), None),
        ((None, None), None),
    ],
)
def test_the_header_says_of_the_guard_what_is_known(
    watched: tuple[tuple[str, ...] | None, ...], said: str | None
) -> None:
    assert header_words(dict(zip(SPARKS, watched, strict=True))) == said


def test_without_a_spark_nothing_is_said_of_a_guard() -> None:
    assert header_words({}) is None
