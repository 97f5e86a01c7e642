"""Which step follows from which journal: every command at every step, journals that disagree, a switch that was taken over."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from sparkctl.commands.switch.finish_switch import (
    FinishAction,
    FinishVerb,
    choose_journal,
    decide_finish,
    is_still_unfinished,
    needs_profile,
)
from sparkctl.commands.switch.switch_runner import list_remaining_steps
from sparkctl.commands.switch.switch_transaction import find_ownership_loss
from sparkctl.errors import NodeError, NodeUnreachable, OperationRefused, SparkctlError
from sparkctl.model.node import NodeName
from sparkctl.model.switch_plan import JournalPresence, SwitchJournal, SwitchJournalStatus, SwitchStep
from sparkctl.monitor.switch_journal_io import NO_JOURNAL, SwitchInProgress, encode_switch_journal

ONE, TWO, THREE = (NodeName(f"spark{number}") for number in (1, 2, 3))
A, S = FinishAction, SwitchStep
MINE = SwitchJournal(
    id="a" * 32,
    operator="ada@desk",
    since=1_800_000_000.0,
    step=SwitchStep.STARTING,
    instance="new",
    words=("new",),
    profile_hash="feedfacecafe",
    nodes=(TWO, ONE),
    stops=("old",),
    old=((THREE, "b" * 64), (ONE, "c" * 64)),
)
NOTHING = SwitchJournalStatus(JournalPresence.NONE)
DAMAGED = SwitchJournalStatus(JournalPresence.UNREADABLE, why="it is damaged")
AWAY = NodeUnreachable(TWO, "spark2 does not answer")

# step: what resume does and with which step it goes on, what abort does, what abort --give-up does, is a profile loaded
TABLE = [
    (S.CHECKING, A.REPEAT, S.CHECKING, A.FORGET, A.FORGET, True),
    (S.STOPPING, A.FORWARD, S.STOPPING, A.ROLL_BACK, A.ABANDON, True),
    (S.RELEASING, A.FORWARD, S.RELEASING, A.ROLL_BACK, A.ABANDON, True),
    (S.STARTING, A.FORWARD, S.STARTING, A.ROLL_BACK, A.ABANDON, True),
    (S.CLEARING, A.FORWARD, S.CLEARING, A.REFUSE, A.REFUSE, False),
    (S.DONE, A.FORWARD, S.DONE, A.REFUSE, A.REFUSE, False),
    (S.UNDOING, A.ROLL_BACK, S.UNDOING, A.ROLL_BACK, A.ABANDON, False),
    (S.RESTORING, A.ROLL_BACK, S.RESTORING, A.ROLL_BACK, A.ABANDON, False),
    (S.RESTORED, A.ROLL_BACK, S.RESTORED, A.ROLL_BACK, A.ABANDON, False),
    (S.LEFT, A.FORWARD, S.STARTING, A.ROLL_BACK, A.ABANDON, True),
]


def test_the_table_has_every_step() -> None:
    assert [row[0] for row in TABLE] == list(SwitchStep)


@pytest.mark.parametrize(("step", "resume", "first", "abort", "abandon", "loads_profile"), TABLE)
def test_what_each_command_does_at_each_step(
    step: SwitchStep, resume: A, first: SwitchStep, abort: A, abandon: A, loads_profile: bool
) -> None:
    assert decide_finish(FinishVerb.RESUME, step) == (resume, first)
    assert decide_finish(FinishVerb.ABORT, step)[0] is abort
    assert decide_finish(FinishVerb.ABANDON, step)[0] is abandon
    assert needs_profile(*decide_finish(FinishVerb.RESUME, step)) is loads_profile
    assert not any(needs_profile(*decide_finish(verb, step)) for verb in (FinishVerb.ABORT, FinishVerb.ABANDON))


@pytest.mark.parametrize(
    ("first", "steps"),
    [
        (S.CHECKING, (S.STOPPING, S.RELEASING, S.STARTING, S.CLEARING)),
        (S.STOPPING, (S.STOPPING, S.RELEASING, S.STARTING, S.CLEARING)),
        (S.RELEASING, (S.RELEASING, S.STARTING, S.CLEARING)),
        (S.STARTING, (S.STARTING, S.CLEARING)),
        (S.CLEARING, (S.CLEARING,)),
        (S.DONE, (S.CLEARING,)),
    ],
)
def test_the_step_of_the_journal_runs_once_more_and_then_the_rest(
    first: SwitchStep, steps: tuple[SwitchStep, ...]
) -> None:
    assert list_remaining_steps(first) == steps


def test_locks_are_taken_in_the_order_of_the_names_whatever_the_order_of_the_ranks() -> None:
    assert MINE.affected_nodes == (ONE, TWO, THREE)
    assert replace(MINE, nodes=(THREE, TWO), old=()).affected_nodes == (TWO, THREE)


def read(journal: SwitchJournal = MINE, *, is_held: bool = False, **changes: object) -> SwitchJournalStatus:
    return SwitchJournalStatus(JournalPresence.READ, replace(journal, **changes), is_held)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("views", "step"),
    [
        ({ONE: NOTHING, TWO: NOTHING}, None),
        ({ONE: read()}, S.STARTING),
        ({ONE: NOTHING, TWO: read()}, S.STARTING),
        ({ONE: read(step=S.STOPPING), TWO: read(step=S.RELEASING)}, S.RELEASING),
        ({ONE: read(step=S.RELEASING), TWO: read(step=S.STOPPING)}, S.RELEASING),
        ({ONE: read(step=S.CLEARING), TWO: read(step=S.STARTING)}, S.CLEARING),
        ({ONE: read(step=S.UNDOING), TWO: read(step=S.STARTING)}, S.UNDOING),
        ({ONE: read(step=S.LEFT), TWO: read(step=S.STARTING)}, S.LEFT),
        ({ONE: read(), TWO: AWAY}, S.STARTING),
    ],
)
def test_the_journal_with_the_most_progress_counts(
    views: Mapping[NodeName, SwitchJournalStatus | NodeError], step: SwitchStep | None
) -> None:
    found = choose_journal(views)
    assert (None if found is None else found.step) is step


@pytest.mark.parametrize(
    ("views", "error", "words"),
    [
        ({ONE: NOTHING, TWO: AWAY}, NodeUnreachable, "does not answer"),
        ({ONE: read(), TWO: DAMAGED}, SwitchInProgress, "damaged"),
        ({ONE: AWAY, TWO: DAMAGED}, SwitchInProgress, "damaged"),
        ({ONE: read(), TWO: read(id="d" * 32, instance="other")}, OperationRefused, "more than one unfinished"),
        ({ONE: read(), TWO: read(is_held=True)}, SwitchInProgress, "in progress"),
    ],
)
def test_what_cannot_be_finished_from_here_is_refused(
    views: Mapping[NodeName, SwitchJournalStatus | NodeError], error: type[SparkctlError], words: str
) -> None:
    with pytest.raises(error, match=words):
        choose_journal(views)


def test_a_lock_without_a_journal_is_no_running_switch() -> None:
    """Another operation may hold the lock of a node that the switch never reached."""
    assert choose_journal({ONE: read(), TWO: SwitchJournalStatus(JournalPresence.NONE, is_held=True)}) == MINE


@pytest.mark.parametrize(
    ("found", "unfinished"),
    [
        ((MINE, MINE), True),
        ((None, MINE), True),
        ((replace(MINE, step=S.STOPPING), MINE), True),
        ((None, None), False),
        ((replace(MINE, since=MINE.since + 1), None), False),
        ((replace(MINE, operator="bob@shed"),), False),
        ((MINE, replace(MINE, id="d" * 32)), False),
    ],
)
def test_a_switch_that_another_operator_finished_meanwhile_is_left_alone(
    found: tuple[SwitchJournal | None, ...], unfinished: bool
) -> None:
    assert is_still_unfinished(MINE, found) is unfinished


WRITTEN = (encode_switch_journal(MINE),)


@pytest.mark.parametrize(
    ("view", "possible", "words"),
    [
        (read(), WRITTEN, None),
        (read(step=S.STOPPING), WRITTEN, None),  # an earlier step of ours
        (NOTHING, (NO_JOURNAL,), None),  # the first write has not arrived
        (NOTHING, (*WRITTEN, NO_JOURNAL), None),  # our own removal did arrive
        (NOTHING, WRITTEN, "another operator finished or undid it"),
        (DAMAGED, (*WRITTEN, NO_JOURNAL), "not known: it is damaged"),
        (read(id="d" * 32), WRITTEN, "switch to new was left"),
        (read(operator="bob@shed"), WRITTEN, "by bob@shed"),
        (read(since=MINE.since + 90), WRITTEN, "switch to new was left"),  # the same operator, elsewhere
    ],
)
def test_after_a_lost_connection_the_journal_tells_whose_switch_it_is(
    view: SwitchJournalStatus, possible: tuple[str, ...], words: str | None
) -> None:
    why = find_ownership_loss(MINE, view, ONE, possible)
    assert why is None if words is None else why is not None and words in why
