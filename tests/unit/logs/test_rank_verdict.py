"""The first failure in time, though each node tells by a clock of its own."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparkctl.logs.rank_verdict import (
    CONSEQUENCE_CAUSES,
    ClockOffset,
    RankFailure,
    compute_clock_offset,
    find_first_failure,
    pick_most_precise,
)
from sparkctl.model.node import NodeName
from sparkctl.model.verdict import FailureCause

OWN = sorted(set(FailureCause) - CONSEQUENCE_CAUSES)
ahead = st.floats(-86_400, 86_400)
moments = st.floats(1.7e9, 1.8e9)
one_minute = st.floats(1.7e9, 1.7e9 + 60.0)  # in which the clocks decide, as they differ by more


def make_node_name(number: int) -> NodeName:
    return NodeName(f"spark{number}")


def make_failure(number: int, cause: FailureCause, at: float | None, **more: bool) -> RankFailure:
    return RankFailure(node=make_node_name(number), cause=cause, at=at, **more)


@given(true=moments, ahead=ahead, there=st.floats(0, 5), back=st.floats(0, 5))
def test_the_offset_is_right_to_within_its_doubt(true: float, ahead: float, there: float, back: float) -> None:
    found = compute_clock_offset(true, true + there + ahead, true + there + back)
    assert abs(found.ahead - ahead) <= found.doubt + 1e-5


@given(true=moments, ahead=ahead, way=st.floats(0, 5))
def test_a_way_as_long_there_as_back_leaves_no_error(true: float, ahead: float, way: float) -> None:
    assert compute_clock_offset(true, true + way + ahead, true + 2 * way).ahead == pytest.approx(ahead, abs=1e-5)


def test_the_quickest_answer_counts() -> None:
    assert pick_most_precise([]) is None
    assert pick_most_precise([ClockOffset(9.0, 2.0), ClockOffset(1.0, 0.01), ClockOffset(5.0, 0.5)]) == ClockOffset(
        1.0, 0.01
    )


@given(
    failures=st.lists(
        st.tuples(one_minute, ahead, st.sampled_from(OWN)), min_size=1, max_size=5, unique_by=lambda one: one[0]
    ),
    order=st.randoms(),
)
def test_whatever_the_clocks_the_first_of_reasons_of_their_own_is_the_root(
    failures: list[tuple[float, float, FailureCause]], order: object
) -> None:
    result = [make_failure(at, cause, true + ahead) for at, (true, ahead, cause) in enumerate(failures)]
    clocks = {make_node_name(at): ClockOffset(ahead, 0.0) for at, (_, ahead, _) in enumerate(failures)}
    first = min(true for true, _, _ in failures)
    shuffled = list(result)
    order.shuffle(shuffled)  # type: ignore[attr-defined]
    found = find_first_failure(shuffled, clocks)
    assert failures[result.index(found)][0] - first < 1e-4


@given(lost=moments, later=st.floats(-3600, 3600), ahead=ahead, cause=st.sampled_from(OWN))
def test_that_another_was_lost_never_outweighs_a_reason(
    lost: float, later: float, ahead: float, cause: FailureCause
) -> None:
    head = make_failure(1, FailureCause.WORKER_LOST, lost)
    worker = make_failure(2, cause, lost + later + ahead)
    assert find_first_failure([head, worker], {make_node_name(2): ClockOffset(ahead, 0.1)}) is worker


@given(
    said=moments,
    earlier=st.floats(-3600, 3600),
    cause=st.sampled_from(FailureCause),
    after=st.sampled_from(FailureCause),
)
def test_an_aftermath_is_no_root_while_another_rank_says_more(
    said: float, earlier: float, cause: FailureCause, after: FailureCause
) -> None:
    worker = make_failure(2, after, said - earlier, is_aftermath=True)
    head = make_failure(1, cause, said)
    assert find_first_failure([head, worker], {make_node_name(2): ClockOffset(0.0, 0.1)}) is head
    both = [worker, make_failure(1, after, said - earlier + 1, is_aftermath=True)]
    assert find_first_failure(both, {}) is worker


def test_what_the_clocks_do_not_tell_apart_is_told_alike_whoever_asks() -> None:
    one, other = (
        make_failure(1, FailureCause.CRASHED, 1000.002),
        make_failure(2, FailureCause.CRASHED, 1000.0),
    )
    near, far = ClockOffset(0.0, 0.0015), ClockOffset(0.0, 0.0005)
    assert find_first_failure([one, other], {make_node_name(1): near, make_node_name(2): near}) is one
    assert find_first_failure([other, one], {make_node_name(1): near, make_node_name(2): near}) is one
    assert find_first_failure([one, other], {make_node_name(1): far, make_node_name(2): far}) is other


def test_trouble_between_them_gives_way_to_a_reason_that_is_told_a_moment_later_only() -> None:
    between = make_failure(1, FailureCause.NCCL, 1000.0)
    soon, late = (
        make_failure(2, FailureCause.KILLED, 1001.0),
        make_failure(2, FailureCause.CRASHED, 1300.0),
    )
    assert find_first_failure([between, soon], {}) is soon
    assert find_first_failure([between, late], {}) is between
    assert find_first_failure([late, between], {}) is between


def test_an_exit_code_alone_tells_less_than_a_rank_that_named_a_fault_before() -> None:
    between = make_failure(1, FailureCause.RAY, 1000.0)
    after, before = (make_failure(2, FailureCause.CRASHED, at, is_bare_exit=True) for at in (1001.0, 999.0))
    assert find_first_failure([after, between], {}) is between
    assert find_first_failure([before, between], {}) is before
    lost = make_failure(1, FailureCause.WORKER_LOST, 1000.0)
    assert find_first_failure([after, lost], {}) is after


def test_among_consequences_alone_the_first_counts_and_what_has_no_time_is_last() -> None:
    early, late = (
        make_failure(1, FailureCause.WORKER_LOST, 10.0),
        make_failure(2, FailureCause.NCCL, 12.0),
    )
    assert find_first_failure([late, early], {}) is early
    assert find_first_failure(
        [
            make_failure(2, FailureCause.CRASHED, None),
            make_failure(1, FailureCause.KILLED, 5.0),
        ],
        {},
    ).node == make_node_name(1)
    with pytest.raises(ValueError, match="nothing failed"):
        find_first_failure([], {})
