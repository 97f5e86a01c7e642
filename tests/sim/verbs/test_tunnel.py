"""`tunnel`: a real client on the loopback, through cuts of the connection."""

from __future__ import annotations

import asyncio
import re
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from sparkctl.cli.event_printers import TextPrinter
from sparkctl.commands.start.start_request import StartInstance
from sparkctl.commands.tunnel import OpenTunnel, open_tunnel
from sparkctl.config import load_config
from sparkctl.context import CommandContext
from sparkctl.errors import ExitCode
from sparkctl.model.events import (
    CommandEnded,
    Event,
    Outcome,
    PhaseChanged,
    TunnelState,
    TunnelStateChanged,
    WarningEmitted,
)
from sparkctl.model.phase import Phase
from sparkctl.profiles.profile_library import ProfileLibrary
from sparkctl.simulator import SimulatedSparks
from sparkctl.simulator.node_programs.shell_commands import KeyboardInteractiveLogin

BUSY = pytest.mark.simulation(scenario="two-stacks", speed=50.0)
CODE = KeyboardInteractiveLogin((("Code: ", True),), ("123456",), "a second factor", "")
ASK = '{{"messages":[{{"role":"user","content":"hi"}}],"stream":true,"max_tokens":{}}}'


class OpenedTunnel:
    """A tunnel that runs, and what it has reported."""

    def __init__(self, ctx: CommandContext, request: OpenTunnel) -> None:
        self.events: list[Event] = []
        self._ctx, self._request = ctx, request
        self._changed = asyncio.Condition()

    @property
    def states(self) -> list[TunnelState]:
        return [event.state for event in self.events if isinstance(event, TunnelStateChanged)]

    @property
    def port(self) -> int:
        url = next(event.url for event in self.events if isinstance(event, TunnelStateChanged))
        assert url.startswith("http://127.0.0.1:")
        return int(url.rpartition(":")[2])

    @property
    def end(self) -> CommandEnded:
        last = self.events[-1]
        assert isinstance(last, CommandEnded)
        return last

    async def run(self) -> None:
        async for event in open_tunnel(self._ctx, self._request):
            async with self._changed:
                self.events.append(event)
                self._changed.notify_all()

    async def wait_for(self, *states: TunnelState) -> None:
        async with asyncio.timeout(20), self._changed:
            await self._changed.wait_for(lambda: self.states == list(states))


@asynccontextmanager
async def tunnel(ctx: CommandContext, sparks: SimulatedSparks, port: int | None = None) -> AsyncIterator[OpenedTunnel]:
    opened = OpenedTunnel(
        ctx, OpenTunnel(instance="qwen36-vllm", nodes=load_config(sparks.config_path).nodes, port=port)
    )
    async with asyncio.TaskGroup() as group:
        group.create_task(opened.run())
        await opened.wait_for(TunnelState.OPEN)
        yield opened
        ctx.interrupt.record_press()


async def ask(port: int, tokens: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    body = ASK.format(tokens).encode()
    head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: {len(body)}\r\n\r\n"
    writer.write(head.encode() + body)
    return reader, writer


@BUSY
async def test_a_streaming_client_meets_a_cut_and_the_next_one_is_served(
    sparks: SimulatedSparks, ctx: CommandContext
) -> None:
    async with tunnel(ctx, sparks) as opened:
        reader, writer = await ask(opened.port, 3)
        assert (await reader.read()).endswith(b"data: [DONE]\n\n\r\n0\r\n\r\n")
        writer.close()
        reader, writer = await ask(opened.port, 100_000)
        await reader.readuntil(b"data: ")
        sparks.sshd["spark2"].drop_connections()
        with pytest.raises(ConnectionResetError):  # a clean end would look like the whole answer
            await reader.read()
        writer.close()
        await opened.wait_for(TunnelState.OPEN, TunnelState.LOST, TunnelState.OPEN)
        reader, writer = await ask(opened.port, 2)
        assert b"data: [DONE]" in await reader.read()
        writer.close()
    assert opened.states[-1] is TunnelState.CLOSED
    assert (opened.end.outcome, opened.end.exit_code) == (Outcome.DONE, 0)
    with pytest.raises(ConnectionRefusedError):
        await asyncio.open_connection("127.0.0.1", opened.port)


@BUSY
async def test_a_port_that_is_taken_is_refused_where_it_was_asked_for_and_replaced_where_not(
    sparks: SimulatedSparks, ctx: CommandContext
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        request = OpenTunnel(instance="qwen36-vllm", nodes=load_config(sparks.config_path).nodes, port=port)
        events = [event async for event in open_tunnel(ctx, request)]
        end = events[-1]
        assert isinstance(end, CommandEnded)
        assert end.exit_code == ExitCode.REFUSED
        assert str(port) in (end.message or "")
    unknown = OpenTunnel(instance="qwen36-vlm", nodes=load_config(sparks.config_path).nodes)
    end = [event async for event in open_tunnel(ctx, unknown)][-1]
    assert isinstance(end, CommandEnded)
    assert end.exit_code == ExitCode.USAGE
    assert "did you mean `qwen36-vllm`" in (end.message or "")


def make_start(sparks: SimulatedSparks) -> StartInstance:
    profile = ProfileLibrary().load_profile("qwen36-vllm")
    return StartInstance(
        profile=profile, nodes=load_config(sparks.config_path).nodes[:1], environ={},
        guarded=False, tunnel=True,
    )  # fmt: skip


async def test_up_keeps_a_tunnel_open_once_the_model_is_ready(
    sparks: SimulatedSparks, ctx: CommandContext, capsys: pytest.CaptureFixture[str]
) -> None:
    printer, answer = TextPrinter("no longer watching ..."), b""
    async for event in make_start(sparks).run(ctx):
        printer.print_event(event)
        if isinstance(event, TunnelStateChanged) and event.state is TunnelState.OPEN and not answer:
            reader, writer = await ask(int(event.url.rpartition(":")[2]), 3)
            answer = await reader.read()
            writer.close()
            ctx.interrupt.record_press()
            printer.print_interrupt(1)
    assert answer.endswith(b"data: [DONE]\n\n\r\n0\r\n\r\n")
    assert isinstance(event, CommandEnded)
    assert (event.outcome, event.exit_code) == (Outcome.READY, 0)
    out, said = capsys.readouterr()
    assert re.fullmatch(r"http://127\.0\.0\.1:\d+\n", out), "the address of the tunnel, and no other"
    assert "closing the tunnel ..." in said
    assert "no longer watching" not in said


async def test_a_tunnel_that_cannot_be_opened_is_a_warning_of_a_start_that_is_good(
    sparks: SimulatedSparks, ctx: CommandContext
) -> None:
    events: list[Event] = []
    async for event in make_start(sparks).run(ctx):
        events.append(event)
        if isinstance(event, PhaseChanged) and event.phase is Phase.READY:
            sparks.sshd["spark1"].second_factor = CODE  # asked at the tunnel's login, and nobody answers
    warned = [one.message for one in events if isinstance(one, WarningEmitted)]
    assert any(message.startswith("no tunnel: ") for message in warned), warned
    assert not any(isinstance(one, TunnelStateChanged) for one in events)
    assert isinstance(event, CommandEnded)
    assert (event.outcome, event.exit_code) == (Outcome.READY, 0)
