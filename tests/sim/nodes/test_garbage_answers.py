"""A node that answers with garbage costs that node alone, whatever is asked and whatever is spoilt."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest

from sparkctl.commands import arm_guard
from sparkctl.commands.diagnose_log import diagnose_instance
from sparkctl.commands.doctor_bundle import collect_support_bundle
from sparkctl.commands.doctor_checks import check_nodes
from sparkctl.commands.doctor_fabric import measure_fabric
from sparkctl.commands.drop_page_cache import drop_page_cache
from sparkctl.commands.list_endpoints import list_endpoints
from sparkctl.commands.show_log import ShowLog, show_log
from sparkctl.commands.start.check_fit import CheckFit, check_fit
from sparkctl.commands.start.start_instance import start_instance
from sparkctl.commands.start.start_request import StartInstance
from sparkctl.commands.stop.stop_instance import StopInstance, stop_instance
from sparkctl.commands.transfer.transfer_profile import TransferProfile, transfer_profile
from sparkctl.context import CommandContext
from sparkctl.errors import DockerError, InvalidInput, NodeError, SparkctlError
from sparkctl.history.operation_history import OperationHistory
from sparkctl.model.events import CommandEnded, Event
from sparkctl.model.node import Node, NodeName, NodeState
from sparkctl.monitor import watch_nodes
from sparkctl.monitor.node_monitor import NodeMonitor
from sparkctl.monitor.node_status import read_node_statuses
from sparkctl.profiles.profile_library import ProfileLibrary
from sparkctl.simulator import SimNodeOptions, SimulatedSparks
from tests.sim import garbage_server
from tests.support import sim_clients

BAD, GOOD = NodeName("spark1"), NodeName("spark2")
# What is spoilt, and in which ways by default: each way once, and those that found something where they did.
USUAL = {
    "shell": ("numbers", "truncated", "retyped", "long line", "flipped"),
    "docker": ("numbers", "nested", "objects", "half a list", "negative"),
    "guard": ("noise", "a list", "nothing"),
    "engine": ("page", "latin", "shuffled", "controls"),
}
SEEDS = int(
    os.environ.get("SPARKCTL_GARBAGE_SEEDS", "0")
)  # so many times every way with every part, by hand and nightly


def _list_cells() -> list[tuple[str, tuple[str, ...], int]]:
    """Return a part, ways to spoil it, and a seed, for each test."""
    if not SEEDS:
        return [(part, kinds, 0) for part, kinds in USUAL.items()]
    kinds = tuple(garbage_server.SPOILS)
    batches = [kinds[at : at + 4] for at in range(0, len(kinds), 4)]
    return [(part, batch, seed) for part in USUAL for batch in batches for seed in range(SEEDS)]


def list_nodes(sparks: SimulatedSparks) -> list[Node]:
    return [
        Node(
            name=NodeName(name), host="127.0.0.1", user="milo", port=sparks.ports[name], identity=str(sparks.identity_path),
            known_hosts=str(sparks.known_hosts_path),
        )
        for name in (BAD, GOOD)
    ]  # fmt: skip


async def collect_events(stream: AsyncGenerator[Event, None]) -> list[Event]:
    async with aclosing(stream) as events:
        return [event async for event in events]


async def watch_node_briefly(ctx: CommandContext, node: Node) -> list[Event]:
    """Follow a node for a while, as the panel and --plain do."""
    events: list[Event] = []
    task = asyncio.create_task(NodeMonitor(ctx=ctx, node=node, every=0.2, emit=events.append).run())
    await asyncio.wait({task}, timeout=3.0)
    if task.done():
        task.result()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    return events


def list_read_commands(
    ctx: CommandContext, nodes: list[Node], tmp_path: Path
) -> dict[str, Callable[[], Awaitable[Any]]]:
    """Return everything that only reads."""
    profile = ProfileLibrary().load_profile("qwen36")
    return {
        "status": lambda: read_node_statuses(ctx, nodes),
        "top": lambda: watch_nodes.read_load_views(ctx, nodes),
        "endpoints": lambda: list_endpoints(ctx, nodes),
        "doctor": lambda: collect_events(check_nodes(ctx, nodes)),
        "guard": lambda: arm_guard.read_guard_status(ctx, nodes),
        "plan": lambda: collect_events(check_fit(ctx, CheckFit(profile=profile, nodes=nodes))),
        "collect": lambda: collect_events(collect_support_bundle(ctx, nodes, tmp_path / "bundle.tar.gz", None, {})),
        "logs": lambda: collect_events(show_log(ctx, ShowLog(instance="qwen36-vllm", nodes=nodes, tail=5))),
        "logs of the bad one": lambda: collect_events(
            show_log(ctx, ShowLog(instance="qwen36-ngram", nodes=nodes[:1], tail=5))
        ),
        "diagnose": lambda: diagnose_instance(ctx, "qwen36-vllm", nodes, None),
        "diagnose the bad one": lambda: diagnose_instance(ctx, "qwen36-ngram", nodes[:1], None),
        "follow": lambda: watch_node_briefly(ctx, nodes[0]),
    }


async def collect_answers(ctx: CommandContext, nodes: list[Node], tmp_path: Path) -> dict[str, Any]:
    """Ask everything at once; what is raised is an answer too."""
    asked = list_read_commands(ctx, nodes, tmp_path)
    answers = await asyncio.gather(*(ask() for ask in asked.values()), return_exceptions=True)
    return dict(zip(asked, answers, strict=True))


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Defects of ours are to be found here: nothing of an unexpected class is made a node's failure."""
    monkeypatch.setenv("SPARKCTL_DEBUG", "1")
    monkeypatch.setattr("sparkctl.transport.docker.log_stream._QUIET_LIMIT_SECONDS", 8.0)
    monkeypatch.setattr("sparkctl.commands.doctor_bundle._COLLECT_TIMEOUT_SECONDS", 8.0)


def test_every_way_to_spoil_an_answer_is_tried() -> None:
    assert {kind for kinds in USUAL.values() for kind in kinds} == set(garbage_server.SPOILS)


@pytest.mark.parametrize(("part", "kinds", "seed"), _list_cells())
async def test_garbage_costs_one_node(part: str, kinds: Sequence[str], seed: int, tmp_path: Path) -> None:
    for kind in kinds:  # in turn: `endpoints` gives up on an engine after 3 s, which all of them at once compute for
        await _ask_everything(part, kind, seed, tmp_path / kind)


async def _ask_everything(part: str, kind: str, seed: int, place: Path) -> None:
    await asyncio.to_thread(place.mkdir)
    async with SimulatedSparks("two-stacks", **sim_clients.FAST) as sparks:
        spoilt = await garbage_server.serve_garbage_for(sparks, BAD, part, kind, seed)
        ctx = CommandContext(history=OperationHistory(place / "state"), operator="milo@laptop")
        found = await collect_answers(ctx, list_nodes(sparks), place)
        await spoilt.close()
    for name, answer in found.items():
        if isinstance(answer, BaseException) and not isinstance(answer, NodeError | DockerError | InvalidInput):
            raise AssertionError(f"{name} of a node whose {part} is spoilt ({kind}): {answer!r}") from answer
    good = found["status"][1]
    assert (good.state, good.docker_known) == (NodeState.OK, True), good.detail
    assert [one.name for one in good.instances if one.ours] == ["qwen36-vllm"]
    assert found["top"][1].state is NodeState.OK
    assert [one.instance for one in found["endpoints"][0] if one.node == GOOD] == ["qwen36-vllm"]
    assert found["guard"][1].state is NodeState.OK
    for name in ("doctor", "plan", "collect", "logs"):
        assert isinstance(found[name][-1], CommandEnded), name


def list_change_commands(
    ctx: CommandContext, sparks: SimulatedSparks
) -> dict[str, Callable[[], AsyncGenerator[Event, None]]]:
    """Return what changes something, or moves it, in which the bad node has a part."""
    bad, good = list_nodes(sparks)
    profile, shared = ProfileLibrary().load_profile("qwen36"), ProfileLibrary().load_profile("minimax-m27")
    return {
        "sync from it": lambda: transfer_profile(ctx, TransferProfile(profile=shared, source=bad, targets=(good,))),
        "sync to it": lambda: transfer_profile(ctx, TransferProfile(profile=shared, source=good, targets=(bad,))),
        "measure": lambda: measure_fabric(ctx, [bad, good]),
        "up": lambda: start_instance(
            ctx,
            StartInstance(profile=profile, nodes=(bad,), words=("qwen36",)),
        ),
        "down": lambda: stop_instance(ctx, StopInstance(instance="qwen36-ngram", nodes=(bad,))),
        "drop caches": lambda: drop_page_cache(ctx, (bad,)),
    }


WRONG_TYPES = ("retyped", "nested", "numbers", "objects")
_LIMIT = 10.0  # seconds; who waits that long for a better answer has not stumbled over this one


@pytest.mark.parametrize("part", tuple(USUAL))
@pytest.mark.parametrize("seed", range(SEEDS or 1))
async def test_garbage_ends_what_changes_a_node_with_a_sentence(part: str, seed: int, tmp_path: Path) -> None:
    for kind in WRONG_TYPES if SEEDS else WRONG_TYPES[:2]:
        await _change_everything(part, kind, seed, tmp_path / kind)


async def _change_everything(part: str, kind: str, seed: int, place: Path) -> None:
    await asyncio.to_thread(place.mkdir)
    options = {"spark2": SimNodeOptions(missing=("/home/milo/models/MiniMax-M2.7-MXFP4",))}
    async with SimulatedSparks("two-stacks", options=options, **sim_clients.FAST) as sparks:
        spoilt = await garbage_server.serve_garbage_for(sparks, BAD, part, kind, seed)
        ctx = CommandContext(history=OperationHistory(place / "state"), operator="milo@laptop")
        for name, begin in list_change_commands(ctx, sparks).items():
            try:
                async with asyncio.timeout(_LIMIT):
                    events = await collect_events(begin())
            except (TimeoutError, SparkctlError):
                continue
            except Exception as error:
                raise AssertionError(f"{name}: a node whose {part} is spoilt ({kind})") from error
            assert isinstance(events[-1], CommandEnded), name
            assert events[-1].exit_code != 70, (name, part, kind, events[-1])
        await spoilt.close()
