"""Logs on the laptop when the disk is full, the node is away or Docker is down: nothing is lost, nothing is misnamed."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from sparkctl import engines
from sparkctl.cli.event_printers import LogPrinter
from sparkctl.commands.diagnose_log import diagnose_instance
from sparkctl.commands.show_log import ShowLog, show_log
from sparkctl.commands.start.start_instance import start_instance
from sparkctl.commands.start.start_request import StartInstance
from sparkctl.commands.stop.stop_instance import StopInstance, stop_instance
from sparkctl.config import load_config
from sparkctl.context import CommandContext
from sparkctl.files import shipped_profiles_dir
from sparkctl.logs.analyzer import LogAnalyzer
from sparkctl.logs.buffer import LogBuffer
from sparkctl.logs.line_marker import LineMarker
from sparkctl.model.events import CommandEnded, Event, LogArrived, Outcome, WarningEmitted
from sparkctl.model.launch_plan import ContainerLabel, ReadinessRule
from sparkctl.model.node import Node, NodeName
from sparkctl.model.text.log_line import LogLine
from sparkctl.profiles.profile_library import ProfileLibrary
from sparkctl.simulator import SimulatedSparks
from tests.support import sim_clients
from tests.support.sim_clients import FAST
from tests.unit.history.test_operation_history import simulate_full_disk

pytestmark = pytest.mark.simulation("two-stacks", **FAST)

INSTANCE = "qwen36-ngram"


async def collect_end_and_lines(events: AsyncIterator[Event]) -> tuple[CommandEnded, list[str], list[str]]:
    """Return the end of a verb, its warnings, and the lines it showed."""
    everything = [event async for event in events]
    ended = everything[-1]
    assert isinstance(ended, CommandEnded)
    warnings = [f"{e.message} | {e.hint}" for e in everything if isinstance(e, WarningEmitted)]
    return ended, warnings, [line.text for e in everything if isinstance(e, LogArrived) for line in e.lines]


def write_saved_log(
    ctx: CommandContext, node: str, texts: list[str], stamp: str = "2026-05-01T10:00:00.000000000Z"
) -> Path:
    """Leave a saved log of an instance that is gone."""
    writer = ctx.history.open_log_writer("old", node, "e" * 64, ())
    writer.write([LogLine(when=stamp, text=text, number=number) for number, text in enumerate(texts, 1)])
    writer.close(whole=True)
    return writer.path


# one numbering


async def test_a_verdict_s_line_is_that_line_everywhere(
    sparks: SimulatedSparks, ctx: CommandContext, node: Node, capsys: pytest.CaptureFixture[str]
) -> None:
    """In the file, on stdout of ``logs``, and in the log of the panel, whatever rewrote itself before it."""
    oom = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.25 GiB. GPU 0 has a total capacity of 1 GiB"
    bar = "\r".join(f"shards: {percent}% Completed" for percent in range(0, 101, 4)) + "\r"
    texts = ["first", bar, "", f"(EngineCore pid=7) \r{bar}", f"\r{bar}Capturing", oom, "last"]
    path = write_saved_log(ctx, node.name, texts)
    events = [event async for event in show_log(ctx, ShowLog(instance="old", nodes=[node]))]
    arrived = [line for event in events if isinstance(event, LogArrived) for line in event.lines]
    sglang = engines.load_engine("sglang")
    reader = LogAnalyzer(engine=sglang, ready=ReadinessRule(line=None, health=None))
    reader.feed_lines(arrived)
    (seen,) = reader.failures
    printed, kept = LogPrinter(timestamps=False), LogBuffer(markers=[LineMarker(sglang)])
    for event in events:
        if isinstance(event, LogArrived):
            printed.print_event(event)
    kept.add_lines(0, arrived)
    number = seen.number
    assert number == texts.index(oom) + 1
    assert oom in path.read_bytes().decode().split("\n")[number - 1]  # as sed and less count, carriage returns or not
    assert capsys.readouterr().out.split("\n")[number - 1] == oom
    assert [(line.line, line.text) for line in kept.read_lines(number - 1, number)] == [(number, oom)]
    kept.close()


# a full disk


async def test_down_keeps_the_container_whose_log_it_could_not_save(
    sparks: SimulatedSparks, ctx: CommandContext, node: Node
) -> None:
    (container,) = sparks.docker["spark1"].containers.values()
    with simulate_full_disk(500):
        ended, warnings, _ = await collect_end_and_lines(
            stop_instance(ctx, StopInstance(instance=INSTANCE, nodes=[node]))
        )
    assert (ended.outcome, ended.exit_code) == (Outcome.UNHEALTHY, 5)
    assert container.state == "exited"
    assert list(sparks.docker["spark1"].containers.values()) == [container]
    assert any("incomplete" in words for words in warnings)
    assert any(f"docker rm {container.name}" in words and "was kept" in words for words in warnings)
    ended, warnings, _ = await collect_end_and_lines(stop_instance(ctx, StopInstance(instance=INSTANCE, nodes=[node])))
    assert warnings == []
    assert not sparks.docker["spark1"].containers
    assert ended.log is not None
    assert "fired up and ready" in await asyncio.to_thread(Path(ended.log).read_text)


async def test_up_sweeps_away_no_container_whose_log_it_could_not_save(
    sparks: SimulatedSparks, ctx: CommandContext, node: Node
) -> None:
    daemon = sparks.docker["spark1"]
    (container,) = daemon.containers.values()
    await daemon.stop_container(container, 1)
    with simulate_full_disk(500):
        ended, _, _ = await collect_end_and_lines(start_instance(ctx, _make_start_request(node)))
    assert (ended.outcome, ended.exit_code) == (Outcome.REFUSED, 6)
    assert f"docker rm {container.name}" in (ended.hint or "")
    assert list(daemon.containers.values()) == [container]


async def test_a_start_goes_on_when_the_disk_is_full(sparks: SimulatedSparks, ctx: CommandContext, node: Node) -> None:
    await collect_end_and_lines(stop_instance(ctx, StopInstance(instance=INSTANCE, nodes=[node])))
    with simulate_full_disk(500):
        ended, warnings, _ = await collect_end_and_lines(start_instance(ctx, _make_start_request(node)))
    assert ended.outcome is Outcome.READY
    assert len([words for words in warnings if "is not saved any more" in words]) == 1


def _make_start_request(node: Node) -> StartInstance:
    profile = ProfileLibrary(user=shipped_profiles_dir()).load_profile(INSTANCE)
    return StartInstance(profile=profile, nodes=(node,))


# what is shown, and why


async def test_a_log_of_what_is_gone_is_named_so(ctx: CommandContext, node: Node) -> None:
    path = write_saved_log(ctx, "spark1", ["one", "two"])
    ended, warnings, lines = await collect_end_and_lines(show_log(ctx, ShowLog(instance="old", nodes=[node])))
    assert (ended.exit_code, ended.log, lines) == (0, str(path), ["one", "two"])
    assert "old is gone from spark1; this is its saved log" in warnings[0]


async def test_a_node_that_is_away_says_nothing_of_its_containers(
    sparks: SimulatedSparks, ctx: CommandContext, node: Node
) -> None:
    write_saved_log(ctx, "spark1", ["one"])
    await sparks.sshd["spark1"].close()
    ended, warnings, lines = await collect_end_and_lines(show_log(ctx, ShowLog(instance="old", nodes=[node])))
    assert (ended.exit_code, ended.outcome, lines) == (3, Outcome.UNREACHABLE, ["one"])
    assert "spark1 does not answer; this is the newest saved log from it (20" in warnings[-1]
    assert not any("gone" in words for words in warnings)
    ended, _, lines = await collect_end_and_lines(show_log(ctx, ShowLog(instance="never", nodes=[node])))
    assert (ended.exit_code, lines) == (3, [])


async def test_what_no_node_that_answers_has_is_said_beside_the_node_that_is_away(
    sparks: SimulatedSparks, ctx: CommandContext
) -> None:
    await sparks.sshd["spark1"].close()
    nodes = load_config(sparks.config_path).nodes
    ended, warnings, _ = await collect_end_and_lines(show_log(ctx, ShowLog(instance="never", nodes=nodes)))
    assert ended.exit_code == 3, "spark1 may have it"
    assert warnings[-1].startswith("no instance never on spark2, and no saved log of one")


async def test_a_docker_that_cannot_be_asked_is_no_end_either(
    sparks: SimulatedSparks, ctx: CommandContext, node: Node
) -> None:
    write_saved_log(ctx, "spark1", ["one"])
    _set_docker_answers(sparks, answers=False)
    ended, warnings, lines = await collect_end_and_lines(show_log(ctx, ShowLog(instance="old", nodes=[node])))
    assert (ended.exit_code, lines) == (3, ["one"])
    assert "this is the newest saved log from it" in warnings[-1]
    assert warnings[-1].startswith("Docker on spark1 ")


async def test_a_log_that_is_elsewhere_is_pointed_at(sparks: SimulatedSparks, ctx: CommandContext) -> None:
    write_saved_log(ctx, "spark1", ["one"])
    ended, _, lines = await collect_end_and_lines(
        show_log(ctx, ShowLog(instance="old", nodes=[load_config(sparks.config_path).nodes[1]]))
    )
    assert (ended.exit_code, lines) == (2, [])
    assert "from spark1" in (ended.message or "")
    assert ended.hint == "sparkctl logs old --node spark1"


async def test_a_saved_log_of_an_ad_hoc_node_is_found(ctx: CommandContext, node: Node) -> None:
    ad_hoc = replace(node, name=NodeName(f"milo@127.0.0.1:{node.port}"))
    write_saved_log(ctx, ad_hoc.name, ["one"])
    ended, _, lines = await collect_end_and_lines(show_log(ctx, ShowLog(instance="old", nodes=[ad_hoc])))
    assert (ended.exit_code, lines) == (0, ["one"])


async def test_tail_since_and_grep_hold_for_a_saved_log(ctx: CommandContext, node: Node) -> None:
    write_saved_log(ctx, "spark1", [f"line {n}" for n in range(9)])
    _, _, lines = await collect_end_and_lines(show_log(ctx, ShowLog(instance="old", nodes=[node], tail=2)))
    assert lines == ["line 7", "line 8"]
    _, _, lines = await collect_end_and_lines(show_log(ctx, ShowLog(instance="old", nodes=[node], since=60)))
    assert lines == []
    _, _, lines = await collect_end_and_lines(
        show_log(ctx, ShowLog(instance="old", nodes=[node], since=ctx.clock.unix_time() - 1_777_000_000))
    )
    assert len(lines) == 9
    ended, warnings, lines = await collect_end_and_lines(
        show_log(ctx, ShowLog(instance="old", nodes=[node], grep=re.compile("nowhere")))
    )
    assert (ended.exit_code, lines) == (0, [])
    assert warnings[-1].startswith("no line matches")


async def test_no_match_in_a_live_log_is_said(ctx: CommandContext, node: Node) -> None:
    ended, warnings, lines = await collect_end_and_lines(
        show_log(ctx, ShowLog(instance=INSTANCE, nodes=[node], grep=re.compile("nowhere")))
    )
    assert (ended.exit_code, lines) == (0, [])
    assert [words.split(" |")[0] for words in warnings] == ["no line matches nowhere"]


# following


async def test_a_followed_log_ends_with_its_container_and_says_where_it_is_kept(
    sparks: SimulatedSparks, ctx: CommandContext, node: Node
) -> None:
    following = show_log(ctx, ShowLog(instance=INSTANCE, nodes=[node], follow=True))
    assert "Load weight" in await _run_until_ready(following)
    await collect_end_and_lines(stop_instance(ctx, StopInstance(instance=INSTANCE, nodes=[node])))
    async with asyncio.timeout(sim_clients.PATIENCE):
        ended, warnings, _ = await collect_end_and_lines(following)
    assert (ended.exit_code, warnings) == (0, [])
    assert re.match(f"{INSTANCE} (was removed from|has ended on) spark1", ended.message or "")
    again, _, _ = await collect_end_and_lines(show_log(ctx, ShowLog(instance=INSTANCE, nodes=[node])))
    assert again.log is not None
    assert "was removed" not in (ended.message or "") or again.log in (ended.message or "")


async def _run_until_ready(events: AsyncIterator[Event]) -> str:
    seen = ""
    async for event in events:
        seen += "\n".join(line.text for line in event.lines) if isinstance(event, LogArrived) else ""
        if "fired up and ready" in seen:
            return seen
    raise AssertionError(f"the log ended early: {seen}")


def _set_docker_answers(sparks: SimulatedSparks, *, answers: bool) -> None:
    spark = sparks.nodes["spark1"]
    spark.options = replace(spark.options, docker_member=answers)


@pytest.mark.simulation("empty", **FAST)
async def test_the_log_is_of_the_live_container_and_the_diagnosis_of_the_one_that_failed(
    sparks: SimulatedSparks, ctx: CommandContext, tmp_path: Path
) -> None:
    nodes = load_config(sparks.config_path).nodes
    for name in ("spark1", "spark2"):
        (tmp_path / name).mkdir()
        async with (
            sim_clients.open_ssh(sparks, name) as connection,
            sim_clients.open_docker_sdk(connection, tmp_path / name) as client,
        ):
            made = await sim_clients.run_in_thread(
                lambda of=client: sim_clients.launch_engine(
                    of, labels={ContainerLabel.INSTANCE: "q", ContainerLabel.PORT: "8003"}
                )
            )
            if name == "spark1":
                await sim_clients.run_in_thread(made.kill)
    ended, _, _ = await collect_end_and_lines(show_log(ctx, ShowLog(instance="q", nodes=nodes)))
    assert ended.node == "spark2"
    report = await diagnose_instance(ctx, "q", nodes, None)
    assert report.node == "spark1"
    alone, _, _ = await collect_end_and_lines(show_log(ctx, ShowLog(instance="q", nodes=nodes[:1])))
    assert alone.node == "spark1"
