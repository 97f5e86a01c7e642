"""What goes wrong while one node is read is that node's failure, in words; a defect of ours is still to be found."""

from __future__ import annotations

import pytest

from sparkctl.errors import DockerUnavailable, ExitCode, InvalidInput, NodeUnreachable, SparkctlError, UnreadableAnswer
from sparkctl.model.node import Node, NodeName
from sparkctl.transport.http_client import InvalidHttpResponse
from sparkctl.transport.node_connection import OutputTooLong
from sparkctl.transport.node_session import isolate_node_failures

NODE = Node(name=NodeName("spark1"), host="10.0.0.1")


@pytest.mark.parametrize(
    "error",
    [KeyError("Id"), TypeError("x"), RecursionError(), OverflowError("too large"), AssertionError(), OSError("?")],
)
def test_an_error_of_an_unexpected_class_is_the_nodes(error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SPARKCTL_DEBUG", raising=False)
    with pytest.raises(UnreadableAnswer, match="spark1 answered with something") as caught, isolate_node_failures(NODE):
        raise error
    assert (caught.value.node, caught.value.exit_code) == ("spark1", ExitCode.UNREACHABLE)
    assert type(error).__name__ in caught.value.message
    assert "SPARKCTL_DEBUG=1" in (caught.value.hint or "")
    monkeypatch.setenv("SPARKCTL_DEBUG", "1")
    with pytest.raises(type(error)), isolate_node_failures(NODE):
        raise error


@pytest.mark.parametrize("debug", ["", "1"])
def test_an_answer_that_a_reader_refused_is_the_nodes(debug: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARKCTL_DEBUG", debug)
    for error in (InvalidHttpResponse("no HTTP"), OutputTooLong("sh wrote more than 16 MiB")):
        with pytest.raises(UnreadableAnswer, match=f"spark1: {error.message}"), isolate_node_failures(NODE):
            raise error


def test_sparkctl_errors_pass_unchanged() -> None:
    for error in (NodeUnreachable("spark1", "away"), DockerUnavailable("spark1", "down"), InvalidInput("mistyped")):
        with pytest.raises(SparkctlError) as caught, isolate_node_failures(NODE):
            raise error
        assert caught.value is error


def test_no_control_character_of_an_answer_is_in_the_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SPARKCTL_DEBUG", raising=False)
    with pytest.raises(UnreadableAnswer) as caught, isolate_node_failures(NODE):
        raise KeyError("\x1b]0;title\x07" + "x" * 5000)
    assert caught.value.message.isprintable()
    assert len(caught.value.message) < 300
