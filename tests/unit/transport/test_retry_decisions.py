"""What a lost connection leads to: which errors are tried again, after which pause, and what the node is called meanwhile."""

from __future__ import annotations

import pytest

from sparkctl import errors
from sparkctl.errors import NodeError
from sparkctl.model.node import NodeState
from sparkctl.transport.node_connection import node_state_for_error
from sparkctl.transport.ssh.ssh_connection import TRANSIENT_ERRORS, compute_backoff_seconds

TABLE = {
    errors.NodeUnreachable: (True, NodeState.UNREACHABLE),
    errors.NodeStarved: (True, NodeState.STARVED),
    errors.ConnectionLost: (True, NodeState.UNREACHABLE),
    errors.LocalStall: (False, NodeState.UNREACHABLE),
    errors.AgentFailed: (False, NodeState.UNKNOWN),
    errors.UnreadableAnswer: (False, NodeState.UNKNOWN),
    errors.HostKeyUntrusted: (False, NodeState.UNTRUSTED),
    errors.UnknownHostKey: (False, NodeState.UNTRUSTED),
    errors.ChangedHostKey: (False, NodeState.UNTRUSTED),
    errors.TransferTampered: (False, NodeState.UNREACHABLE),
    errors.LoginRefused: (False, NodeState.REFUSED),
}


def test_the_table_has_every_error_of_a_node() -> None:
    known = {one for one in vars(errors).values() if isinstance(one, type) and issubclass(one, NodeError)}
    assert known - {NodeError} == set(TABLE)


@pytest.mark.parametrize("kind", TABLE)
def test_only_what_waiting_may_fix_is_tried_again(kind: type[NodeError]) -> None:
    error = kind.__new__(kind)  # the class decides, not what it says
    assert (isinstance(error, TRANSIENT_ERRORS), node_state_for_error(error)) == TABLE[kind]


@pytest.mark.parametrize(
    ("attempt", "chance", "seconds"),
    [
        (1, 0.0, 0.5),
        (2, 0.0, 1.0),
        (3, 0.0, 2.0),
        (5, 0.0, 8.0),
        (6, 0.0, 15.0),
        (1000, 0.0, 15.0),
        (1, 1.0, 0.25),
        (3, 0.5, 1.5),
        (1000, 1.0, 7.5),
    ],
)
def test_pauses_double_to_a_limit_and_chance_shortens_them_by_up_to_half(
    attempt: int, chance: float, seconds: float
) -> None:
    assert compute_backoff_seconds(attempt, chance) == seconds
