"""Ending a process of a node: real processes of this machine, whose numbers may belong to another one by now."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace

import pytest

from sparkctl.errors import OperationRefused
from sparkctl.model.json_codec import from_json_data
from sparkctl.model.node import Node, NodeName
from sparkctl.model.sample import NodeProcess
from sparkctl.node.agent import ProcessReader
from sparkctl.transport.node_session import NodeSession

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc, which only Linux has")


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(["sleep", "60"]) as process:
        yield process
        process.kill()


def read_as_the_agent_does(pid: int) -> NodeProcess:
    found = ProcessReader("/").read_process(pid, 0.0)
    return from_json_data(NodeProcess, found)


def open_session() -> NodeSession:
    return NodeSession(Node(name=NodeName("spark1"), host="local"))


async def test_the_process_that_was_listed_ends(sleeper: subprocess.Popen[bytes]) -> None:
    one = read_as_the_agent_does(sleeper.pid)
    assert one.name == "sleep"
    assert one.start_ticks is not None
    await open_session().kill_process(one, "TERM")
    assert sleeper.wait(10) == -15


async def test_another_process_of_the_same_number_and_name_goes_on(sleeper: subprocess.Popen[bytes]) -> None:
    one = read_as_the_agent_does(sleeper.pid)
    assert one.start_ticks is not None
    before = replace(one, start_ticks=one.start_ticks - 1)
    with pytest.raises(
        OperationRefused, match=f"process {one.pid} on spark1 is now another one, sleep: nothing was sent"
    ):
        await open_session().kill_process(before, "KILL")
    assert sleeper.poll() is None


async def test_a_process_that_took_another_title_meanwhile_is_still_the_same(sleeper: subprocess.Popen[bytes]) -> None:
    await open_session().kill_process(replace(read_as_the_agent_does(sleeper.pid), name="VLLM::EngineCor"), "TERM")
    assert sleeper.wait(10) == -15


async def test_where_its_begin_is_not_known_its_name_tells(sleeper: subprocess.Popen[bytes]) -> None:
    one = replace(read_as_the_agent_does(sleeper.pid), start_ticks=None)
    with pytest.raises(OperationRefused, match="is now another one, sleep"):
        await open_session().kill_process(replace(one, name="python3"), "KILL")
    assert sleeper.poll() is None
    await open_session().kill_process(one, "KILL")
    assert sleeper.wait(10) == -9


async def test_what_has_ended_and_what_is_refused_are_told_apart(sleeper: subprocess.Popen[bytes]) -> None:
    one = read_as_the_agent_does(sleeper.pid)
    with pytest.raises(OperationRefused, match=r"did not end process \d+: .*(?i:signal)"):
        await open_session().kill_process(one, "NOSUCH")
    sleeper.kill()
    sleeper.wait()
    with pytest.raises(OperationRefused, match="is no longer on spark1"):
        await open_session().kill_process(one, "TERM")
