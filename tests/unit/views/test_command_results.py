"""How a verb ended, in one line: what can be done is told apart from what is wrong."""

from __future__ import annotations

from sparkctl.model.events import CommandEnded, Outcome, WarningEmitted
from sparkctl.model.node import NodeName
from sparkctl.views.event_log_view import describe_command_result, describe_warning

ONE = NodeName("spark1")


def test_each_remedy_follows_its_own_label() -> None:
    warned = WarningEmitted(1.0, ONE, "it dies of that", "sparkctl switch qwen36 --set a=1")
    assert describe_warning(warned)[0] == "▲ spark1: it dies of that   try: sparkctl switch qwen36 --set a=1"
    assert describe_warning(WarningEmitted(1.0, None, "it is slow"))[0] == "▲ it is slow"
    left = CommandEnded(
        ts=1.0,
        outcome=Outcome.INTERRUPTED,
        exit_code=130,
        seconds=4.0,
        node=ONE,
        instance="qwen36",
        endpoint=None,
        message="it was left",
        hint="sparkctl resume\nsparkctl abort",
    )
    assert (
        describe_command_result("switch", left, [ONE])[0]
        == "✕ it was left   try: sparkctl resume   try: sparkctl abort"
    )
    done = CommandEnded(
        ts=1.0,
        outcome=Outcome.DONE,
        exit_code=0,
        seconds=4.0,
        node=ONE,
        instance="qwen36",
        endpoint=None,
        message="it is done",
        hint="nothing to do",
    )
    assert describe_command_result("abort", done, [ONE])[0] == "● it is done"
