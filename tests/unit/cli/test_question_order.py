"""A question on the terminal comes after what was told before it, however slowly that is printed."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing
from pathlib import Path

import pytest

from sparkctl.cli import stderr
from sparkctl.cli.terminal_prompter import TerminalPrompter
from sparkctl.commands.event_stream import forward_events, stream_events
from sparkctl.context import CommandContext, UnshownEvents
from sparkctl.history.operation_history import OperationHistory
from sparkctl.model.events import CommandEnded, Emit, Event, Outcome, WarningEmitted
from sparkctl.model.node import NodeName
from sparkctl.model.questions import HostKeyQuestion

TOLD = 30


@pytest.fixture
def keyboard(monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """A terminal as stdin, and the file descriptor that types on it."""
    typing, terminal = os.openpty()
    with os.fdopen(terminal) as stdin:
        monkeypatch.setattr("sys.stdin", stdin)
        yield typing
    os.close(typing)


def run_command(ctx: CommandContext, depth: int) -> AsyncGenerator[Event, None]:
    """A command within commands: the innermost tells, and asks."""

    async def job(emit: Emit) -> CommandEnded:
        if depth:
            return await forward_events(run_command(ctx, depth - 1), emit)
        for number in range(TOLD):
            emit(WarningEmitted(0.0, None, f"told {number}", None))
        agreed = await ctx.prompter.ask_yes_no(HostKeyQuestion(NodeName("spark1"), "h", "SHA256:x"))
        return CommandEnded(ts=0.0, outcome=Outcome.DONE, exit_code=int(not agreed), seconds=0.0)

    return stream_events(ctx, job, on_interrupt=None)


@pytest.mark.parametrize("depth", [0, 3])
async def test_a_question_comes_after_all_that_was_told_before_it(
    tmp_path: Path, keyboard: int, capsys: pytest.CaptureFixture[str], depth: int
) -> None:
    unshown = UnshownEvents()
    ctx = CommandContext(
        history=OperationHistory(tmp_path), operator="milo", unshown=unshown, prompter=TerminalPrompter(unshown)
    )
    os.write(keyboard, b"yes\n")
    async with aclosing(run_command(ctx, depth)) as events:
        async for event in events:
            for _ in range(50):
                await asyncio.sleep(0)  # a slow printer
            if isinstance(event, WarningEmitted):
                stderr.print_message(event.message)
    assert isinstance(event, CommandEnded)
    assert event.exit_code == 0
    output, question = capsys.readouterr().err.split("spark1 (h) is not known yet")
    assert output.splitlines() == [f"told {number}" for number in range(TOLD)]
    assert "told" not in question


async def test_what_nobody_reads_any_more_holds_no_question_up(tmp_path: Path) -> None:
    ctx = CommandContext(history=OperationHistory(tmp_path), operator="milo")

    async def job(emit: Emit) -> CommandEnded:
        for number in range(TOLD):
            emit(WarningEmitted(0.0, None, f"told {number}", None))
        await asyncio.Event().wait()
        raise AssertionError

    async with aclosing(stream_events(ctx, job, on_interrupt=None)) as events:
        await anext(events)
        waiting = asyncio.create_task(ctx.unshown.wait_until_shown())
        await asyncio.sleep(0)
        assert not waiting.done()
    await asyncio.wait_for(waiting, 5)
