"""The first failure in time, though each node tells by a clock of its own."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparkctl.core.first_failure import CONSEQUENCES, Failing, Offset, offset, root, surest
from sparkctl.model.node import NodeName
from sparkctl.model.verdict import Cause

OWN = sorted(set(Cause) - CONSEQUENCES)
ahead = st.floats(-86_400, 86_400)
moments = st.floats(1.7e9, 1.8e9)


def node(number: int) -> NodeName:
    return NodeName(f"spark{number}")


@given(true=moments, ahead=ahead, there=st.floats(0, 5), back=st.floats(0, 5))
def test_the_offset_is_right_to_within_its_doubt(true: float, ahead: float, there: float, back: float) -> None:
    found = offset(true, true + there + ahead, true + there + back)
    assert abs(found.ahead - ahead) <= found.doubt + 1e-5


@given(true=moments, ahead=ahead, way=st.floats(0, 5))
def test_a_way_as_long_there_as_back_leaves_no_error(true: float, ahead: float, way: float) -> None:
    assert offset(true, true + way + ahead, true + 2 * way).ahead == pytest.approx(ahead, abs=1e-5)


def test_the_quickest_answer_counts() -> None:
    assert surest([]) is None
    assert surest([Offset(9.0, 2.0), Offset(1.0, 0.01), Offset(5.0, 0.5)]) == Offset(1.0, 0.01)


@given(
    failures=st.lists(
        st.tuples(moments, ahead, st.sampled_from(OWN)), min_size=1, max_size=5, unique_by=lambda one: one[0]
    ),
    order=st.randoms(),
)
def test_whatever_the_clocks_the_first_of_reasons_of_their_own_is_the_root(
    failures: list[tuple[float, float, Cause]], order: object
) -> None:
    told = [Failing(node(at), cause, true + ahead) for at, (true, ahead, cause) in enumerate(failures)]
    clocks = {node(at): Offset(ahead, 0.0) for at, (_, ahead, _) in enumerate(failures)}
    first = min(true for true, _, _ in failures)
    shuffled = list(told)
    order.shuffle(shuffled)  # type: ignore[attr-defined]
    found = root(shuffled, clocks)
    assert failures[told.index(found)][0] - first < 1e-4


@given(lost=moments, later=st.floats(-3600, 3600), ahead=ahead, cause=st.sampled_from(OWN))
def test_that_another_was_lost_never_outweighs_a_reason(lost: float, later: float, ahead: float, cause: Cause) -> None:
    head = Failing(node(1), Cause.WORKER_LOST, lost)
    worker = Failing(node(2), cause, lost + later + ahead)
    assert root([head, worker], {node(2): Offset(ahead, 0.1)}) is worker


@given(said=moments, earlier=st.floats(-3600, 3600), cause=st.sampled_from(Cause), after=st.sampled_from(Cause))
def test_an_aftermath_is_no_root_while_another_rank_says_more(
    said: float, earlier: float, cause: Cause, after: Cause
) -> None:
    worker = Failing(node(2), after, said - earlier, is_aftermath=True)
    head = Failing(node(1), cause, said)
    assert root([head, worker], {node(2): Offset(0.0, 0.1)}) is head
    both = [worker, Failing(node(1), after, said - earlier + 1, is_aftermath=True)]
    assert root(both, {}) is worker


def test_what_the_clocks_do_not_tell_apart_is_told_alike_whoever_asks() -> None:
    one, other = Failing(node(1), Cause.CRASHED, 1000.002), Failing(node(2), Cause.CRASHED, 1000.0)
    near, far = Offset(0.0, 0.0015), Offset(0.0, 0.0005)
    assert root([one, other], {node(1): near, node(2): near}) is one
    assert root([other, one], {node(1): near, node(2): near}) is one
    assert root([one, other], {node(1): far, node(2): far}) is other


def test_trouble_between_them_gives_way_to_a_reason_that_is_told_a_moment_later_only() -> None:
    between = Failing(node(1), Cause.NCCL, 1000.0)
    soon, late = Failing(node(2), Cause.KILLED, 1001.0), Failing(node(2), Cause.CRASHED, 1300.0)
    assert root([between, soon], {}) is soon
    assert root([between, late], {}) is between
    assert root([late, between], {}) is between


def test_among_consequences_alone_the_first_counts_and_what_has_no_time_is_last() -> None:
    early, late = Failing(node(1), Cause.WORKER_LOST, 10.0), Failing(node(2), Cause.NCCL, 12.0)
    assert root([late, early], {}) is early
    assert root([Failing(node(2), Cause.CRASHED, None), Failing(node(1), Cause.KILLED, 5.0)], {}).node == node(1)
    with pytest.raises(ValueError, match="nothing failed"):
        root([], {})
