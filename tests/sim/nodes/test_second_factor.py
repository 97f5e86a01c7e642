"""A node that asks for a second factor: it is asked for once, by whom it can be asked, and never behind the operator's back."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from sparkctl.concurrency import run_in_background
from sparkctl.config import load_config
from sparkctl.context import CommandContext
from sparkctl.errors import LoginRefused
from sparkctl.history.operation_history import OperationHistory
from sparkctl.model.events import Event, NodeStateChanged, SampleArrived
from sparkctl.model.node import NodeState
from sparkctl.model.questions import (
    HostKeyQuestion,
    LoginPrompt,
    LoginQuestion,
    RetryStartQuestion,
    SudoPasswordQuestion,
)
from sparkctl.monitor.node_monitor import NodeMonitor
from sparkctl.simulator import SimulatedSparks
from sparkctl.simulator.node_programs.shell_commands import KeyboardInteractiveLogin, SimSshServer
from sparkctl.transport.ssh.ssh_connection import SshConnection
from sparkctl.transport.ssh.ssh_login import LoginTimeouts

RIGHT = ("hunter2", "123456")
FACTOR = KeyboardInteractiveLogin(
    (("Password: ", False), ("Verification code: ", True)), RIGHT, "two things", "look at your phone"
)


@dataclass
class Operator:
    """Answers the same each time, after ``takes`` seconds."""

    answer: tuple[str, ...] | None = RIGHT
    takes: float = 0.0
    asked: list[LoginQuestion] = field(default_factory=list)
    was_asked: asyncio.Event = field(default_factory=asyncio.Event)

    async def ask_login(self, question: LoginQuestion) -> tuple[str, ...] | None:
        self.asked.append(question)
        self.was_asked.set()
        await asyncio.sleep(self.takes)
        return self.answer

    async def ask_yes_no(self, question: HostKeyQuestion | RetryStartQuestion) -> bool:
        return False

    async def ask_password(self, question: SudoPasswordQuestion) -> str | None:
        return None


@pytest.fixture
async def sparks() -> AsyncIterator[SimulatedSparks]:
    async with SimulatedSparks("empty", nodes=("spark1",)) as running:
        running.sshd["spark1"].second_factor = FACTOR
        yield running


@pytest.fixture
def sshd(sparks: SimulatedSparks) -> SimSshServer:
    return sparks.sshd["spark1"]


def connect_with_factor(
    sparks: SimulatedSparks, operator: Operator | None, limits: LoginTimeouts | None = None
) -> SshConnection:
    return SshConnection(load_config(sparks.config_path).nodes[0], operator, limits)


async def test_all_that_is_asked_arrives_as_it_was_asked_and_the_answers_let_in(sparks: SimulatedSparks) -> None:
    operator = Operator()
    link = connect_with_factor(sparks, operator)
    await link.connect()
    assert (await link.run(["true"])).status == 0
    await link.close()
    prompts = (LoginPrompt("Password: ", False), LoginPrompt("Verification code: ", True))
    assert operator.asked == [
        LoginQuestion(
            node=link.node.name, host="127.0.0.1", name="two things", instructions="look at your phone", prompts=prompts
        )
    ]


async def test_who_takes_longer_than_a_login_may_is_waited_for(sparks: SimulatedSparks) -> None:
    link = connect_with_factor(sparks, Operator(takes=0.8), LoginTimeouts(connect=0.3, login=0.4))
    await link.connect()
    await link.close()


async def test_a_lost_link_comes_back_without_asking_or_not_at_all(sparks: SimulatedSparks, sshd: SimSshServer) -> None:
    operator = Operator()
    link = connect_with_factor(sparks, operator)
    await link.connect()
    sshd.drop_connections()
    async with asyncio.timeout(10):
        while link.status.state is NodeState.OK:  # noqa: ASYNC110  # it is our own socket that has to hear of it
            await asyncio.sleep(0.01)
    with pytest.raises(LoginRefused, match="nobody can be asked now") as caught:
        await link.reconnect()
    assert "`r` connects again" in (caught.value.hint or "")
    assert (len(operator.asked), sshd.asked, link.status.state) == (1, 1, NodeState.REFUSED)


async def test_one_that_is_cancelled_is_a_refusal_and_is_not_tried_again(
    sparks: SimulatedSparks, sshd: SimSshServer
) -> None:
    operator = Operator(None)
    with pytest.raises(LoginRefused, match=r"the login was cancelled: what .* asked was not answered"):
        await connect_with_factor(sparks, operator).reconnect()
    assert (len(operator.asked), sshd.asked) == (1, 1)


async def test_where_nobody_can_be_asked_the_server_is_not_made_to_ask(
    sparks: SimulatedSparks, sshd: SimSshServer
) -> None:
    with pytest.raises(LoginRefused, match="wants to ask milo something"):
        await connect_with_factor(sparks, None).connect()
    assert sshd.asked == 0, "it may ring a telephone"


async def test_what_is_wrong_thrice_is_not_asked_a_fourth_time(sparks: SimulatedSparks, sshd: SimSshServer) -> None:
    operator = Operator(("hunter2", "000000"))
    with pytest.raises(LoginRefused, match="does not let milo in with what was answered"):
        await connect_with_factor(sparks, operator).reconnect()
    assert len(operator.asked) == 3


async def test_a_server_that_hangs_up_meanwhile_is_named_and_not_asked_again(
    sparks: SimulatedSparks, sshd: SimSshServer
) -> None:
    operator = Operator(takes=30)
    trying = asyncio.create_task(connect_with_factor(sparks, operator).reconnect())
    await operator.was_asked.wait()
    sshd.drop_connections()
    with pytest.raises(LoginRefused, match="ended the login before it was through"):
        await asyncio.wait_for(trying, 10)


async def test_a_verb_with_a_terminal_asks_there_and_shows_no_password(sparks: SimulatedSparks) -> None:
    words = KeyboardInteractiveLogin(FACTOR.prompts, RIGHT, "\x1b[31mred\x1b]52;c;eA==\x07", "line one\nline two")
    sparks.sshd["spark1"].second_factor = words
    ours, theirs = os.openpty()
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "sparkctl", "status", stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True,
        env={**os.environ, "SPARKCTL_CONFIG": str(sparks.config_path)},
    )  # fmt: skip
    os.close(theirs)
    os.set_blocking(ours, False)
    shown = await _read_until(ours, "Password: ")
    os.write(ours, b"hunter2\n")
    shown += await _read_until(ours, "Verification code: ")
    os.write(ours, b"123456\n")
    shown += await _read_until(ours, "spark1")
    assert await asyncio.wait_for(child.wait(), 20) == 0, shown
    os.close(ours)
    assert "127.0.0.1 asks, in its own words:" in shown
    assert "line two" in shown
    assert "hunter2" not in shown
    assert "\x1b]52" not in shown
    assert "123456" in shown


async def _read_until(terminal: int, words: str) -> str:
    shown = ""
    async with asyncio.timeout(20):
        while words not in shown:
            try:
                shown += os.read(terminal, 65536).decode()
            except BlockingIOError:
                await asyncio.sleep(0.02)
    return shown


async def test_an_answer_that_cannot_be_read_asks_nobody_again(sparks: SimulatedSparks, tmp_path: Path) -> None:
    operator, events, again = Operator(), list[Event](), asyncio.Event()
    spoilt = [True]

    def take(event: Event) -> None:
        events.append(event)
        if isinstance(event, SampleArrived) and spoilt:
            spoilt.clear()
            raise ValueError("what nobody foresaw")
        if isinstance(event, SampleArrived):
            again.set()

    (node,) = load_config(sparks.config_path).nodes
    ctx = CommandContext(prompter=operator, history=OperationHistory(tmp_path), operator="milo@desk")
    monitor = NodeMonitor(ctx=ctx, node=node, every=0.5, emit=take, again=0.1)
    async with asyncio.timeout(20), run_in_background(monitor.run()):
        await again.wait()
    states = [one.state for one in events if isinstance(one, NodeStateChanged)]
    assert (states, len(operator.asked)) == ([NodeState.UNKNOWN], 1)
