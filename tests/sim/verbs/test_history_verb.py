"""What is done on simulated Sparks is in the history: how it went, how long each part took, what it held, and no secret."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from pathlib import Path

from sparkctl.commands.start.start_instance import start_instance
from sparkctl.commands.start.start_request import StartInstance
from sparkctl.commands.stop.stop_instance import StopInstance, stop_instance
from sparkctl.config import load_config
from sparkctl.context import CommandContext
from sparkctl.files import shipped_profiles_dir
from sparkctl.history.model import NodeResult, OperationKind
from sparkctl.history.operation_history import OperationHistory
from sparkctl.history.start_diff import StartDifference, diff_starts
from sparkctl.model.events import CommandEnded, PhaseChanged, WarningEmitted
from sparkctl.model.launch_plan import ContainerLabel
from sparkctl.model.node import Node
from sparkctl.model.phase import Phase
from sparkctl.model.verdict import FailureCause
from sparkctl.monitor.watch_nodes import watch_load_views
from sparkctl.profiles.profile_library import ProfileLibrary
from sparkctl.simulator import SimulatedSparks
from tests.support.events import collect_events
from tests.support.run_command import run_in_process

TOO_MUCH = ("args.mem-fraction-static=0.95", "args.speculative-num-draft-tokens=6")
CANARIES = ("sesame-4711-canary", "second-0815-canary", "third-1234-canary")


@asynccontextmanager
async def open_single_node() -> AsyncIterator[Node]:
    """A Spark whose starts take a second or two: on a machine with other work, a phase that is shorter is not seen."""
    async with SimulatedSparks("empty", speed=8.0) as simulated:
        yield load_config(simulated.config_path).nodes[0]


def make_start_request(node: Node, name: str, *overrides: str, **more: object) -> StartInstance:
    profile = ProfileLibrary(shipped_profiles_dir()).load_profile(name, overrides=overrides)
    words = (name, *(word for each in overrides for word in ("--set", each)))
    return StartInstance(profile=profile, nodes=(node,), words=words, forced=True, **more)  # type: ignore[arg-type]


async def test_a_start_and_its_stop_are_kept_with_all_that_was_seen(ctx: CommandContext) -> None:
    async with open_single_node() as node:
        await collect_events(start_instance(ctx, make_start_request(node, "qwen36-vllm")))
        await collect_events(
            start_instance(ctx, make_start_request(node, "qwen36-vllm"))
        )  # it runs already: nothing was done
        await collect_events(
            stop_instance(ctx, StopInstance(instance="qwen36-vllm", nodes=[node], grace=None, known=frozenset()))
        )
        await collect_events(
            stop_instance(
                ctx, StopInstance(instance="qwen36-vllm", nodes=[node], grace=None, known=frozenset({"qwen36-vllm"}))
            )
        )
    stop, start = ctx.history.list_operations()
    assert (start.kind, start.outcome, start.exit_code, start.operator) == (
        OperationKind.START,
        "ready",
        0,
        "milo@desk",
    )
    assert start.command == "sparkctl up qwen36-vllm --node spark1 --force"
    assert start.text is not None
    assert "gpu-memory-utilization" in start.text
    (share,) = start.shares
    assert share.container is not None
    assert share.available_before is not None
    assert share.peak is not None
    assert share.settled is not None
    assert share.peak >= share.settled > 50 << 30
    assert share.estimated is not None
    assert share.image_digest is not None
    assert share.image_digest.startswith("sha256:")
    assert (share.driver, share.kernel, share.engine_version) == ("580.142", "6.14.0-1015-nvidia", "0.19.1")
    assert {Phase.CREATING, Phase.LOADING, Phase.WARMING} <= {part.phase for part in share.parts}
    before = ctx.history.load_memory_before("qwen36-vllm", "spark1", share.container)
    assert before is not None
    assert before.available == share.available_before, "what the history shows is what a stop is measured by"
    assert (stop.kind, stop.outcome, stop.nodes) == (OperationKind.STOP, "done", ("spark1",))
    assert stop.shares[0].freed is not None
    assert stop.shares[0].freed > 50 << 30
    assert stop.shares[0].log is not None
    assert stop.shares[0].available_before == share.available_before


async def test_a_failed_start_says_why_how_far_it_came_and_what_changed_since_it_worked(ctx: CommandContext) -> None:
    async with open_single_node() as node:
        await collect_events(start_instance(ctx, make_start_request(node, "qwen36")))
        await collect_events(
            stop_instance(ctx, StopInstance(instance="qwen36", nodes=[node], grace=0.0, known=frozenset()))
        )
        await collect_events(start_instance(ctx, make_start_request(node, "qwen36", *TOO_MUCH)))
    failed, _, worked = ctx.history.list_operations()
    assert (failed.outcome, failed.exit_code) == ("failed", 1)
    assert failed.verdict is not None
    assert failed.verdict.cause is FailureCause.DRAFT_WORKSPACE
    (share,) = failed.shares
    assert share.cause == "draft-workspace"
    assert share.log is not None
    assert share.log.endswith(".log")
    assert Phase.LOADING in {part.phase for part in share.parts}
    assert failed.usual.seconds == worked.shares[0].seconds
    assert ctx.history.find_last_good_start(failed) == worked
    changes = diff_starts(worked, failed)
    assert changes.found == (
        StartDifference("args.speculative-num-draft-tokens", "20", "6"),
        StartDifference("args.mem-fraction-static", "0.6", "0.95"),
    )
    assert changes.unknown == ()
    assert ctx.history.get_failures_since_ready("qwen36", "spark1", 0.0)[0][1] == "draft-workspace"
    expected = ctx.history.get_expected_durations("qwen36", failed.hash or "", "spark1", failed.alike or "")
    assert expected.seconds == worked.shares[0].seconds, "only what went well is expected"


async def test_an_aborted_start_is_in_the_history(ctx: CommandContext) -> None:
    async with (
        open_single_node() as node,
        aclosing(start_instance(ctx, make_start_request(node, "qwen36-vllm"))) as events,
    ):
        async for event in events:
            if isinstance(event, PhaseChanged) and event.phase is Phase.LOADING:
                (one,) = ctx.history.list_operations()
                assert (one.outcome, one.is_running) == (None, True)
                break
    (one,) = ctx.history.list_operations()
    assert (one.outcome, one.shares[0].seconds) == ("interrupted", None)


async def test_no_secret_of_a_profile_of_set_or_of_the_environment_is_kept(ctx: CommandContext) -> None:
    overrides = (
        f"env.HF_TOKEN={CANARIES[0]}", f"args.api-key={CANARIES[1]}", "env.OTHER_KEY=${MY_KEY}", *TOO_MUCH
    )  # fmt: skip
    async with open_single_node() as node:
        events = await collect_events(
            start_instance(ctx, make_start_request(node, "qwen36", *overrides, environ={"MY_KEY": CANARIES[2]}))
        )
    assert isinstance(events[-1], CommandEnded)
    (one,) = ctx.history.list_operations()
    assert one.text is not None
    assert "HF_TOKEN" in one.text
    assert "OTHER_KEY" in one.text
    written = b"".join(file.read_bytes() for file in ctx.history.directory.rglob("*") if file.is_file())
    assert b"qwen36" in written
    for canary in CANARIES:
        assert canary.encode() not in written


async def test_a_history_that_cannot_be_kept_is_said_once_and_stops_nothing(tmp_path: Path) -> None:
    (tmp_path / "state").write_text("a file where the directory would be")
    ctx = CommandContext(history=OperationHistory(tmp_path / "state"), operator="milo@desk")
    async with open_single_node() as node:
        events = await collect_events(start_instance(ctx, make_start_request(node, "qwen36-vllm")))
    assert isinstance(events[-1], CommandEnded)
    assert events[-1].exit_code == 0
    said = [event.message for event in events if isinstance(event, WarningEmitted) and "history" in event.message]
    assert len([one for one in said if "history.db" in one]) == 1, said


async def test_what_an_engine_did_is_read_before_it_is_stopped_and_seen_by_whoever_watches(ctx: CommandContext) -> None:
    async with SimulatedSparks("two-stacks", speed=40.0) as simulated:
        nodes = load_config(simulated.config_path).nodes
        async with ctx.create_session(nodes[0]) as session:
            await session.link.connect()
            containers = [one for one in await session.docker.list_containers() if one.is_managed]
        names = [one.get_label(ContainerLabel.INSTANCE) or "" for one in containers]
        entry = ctx.history.begin_operation(
            OperationKind.START, ctx.clock, "milo", [nodes[0].name], profile=names[0], instance=names[0]
        )
        entry.record_node_result(
            NodeResult(node=nodes[0].name, instance=names[0], container=containers[0].id)
        )  # as if it had been started from here
        entry.record_end("ready", 0)
        async with aclosing(watch_load_views(ctx, nodes[:1], 0.2)) as looks:
            async for views in looks:
                if any(one.numbers and one.numbers.acceptance for view in views for one in view.instances):
                    break
        (start,) = ctx.history.list_operations()
        watched = start.shares[0].accept_length
        await collect_events(
            stop_instance(ctx, StopInstance(instance=names[0], nodes=[nodes[0]], grace=0.0, known=frozenset()))
        )
    stop, start = ctx.history.list_operations()
    assert watched is not None
    assert watched >= 1
    length = stop.shares[0].accept_length
    assert length is not None
    assert 1 <= length <= 8
    assert start.shares[0].accept_length == length
    # what all requests got in a window, busy or not, is no speed of a request
    assert (start.shares[0].tokens_per_second, stop.shares[0].tokens_per_second) == (None, None)


def run_history_command(state: Path, *words: str) -> subprocess.CompletedProcess[str]:
    env = {"SPARKCTL_STATE": str(state), "SPARKCTL_CONFIG": str(state / "none.yaml"), "TZ": "UTC"}
    return run_in_process(*words, env=env)


async def test_the_verb_lists_and_shows_it(ctx: CommandContext) -> None:
    async with open_single_node() as node:
        await collect_events(start_instance(ctx, make_start_request(node, "qwen36")))
        await collect_events(
            stop_instance(ctx, StopInstance(instance="qwen36", nodes=[node], grace=0.0, known=frozenset()))
        )
        await collect_events(start_instance(ctx, make_start_request(node, "qwen36", *TOO_MUCH)))
    state = ctx.history.directory
    listed = run_history_command(state, "history")
    assert listed.returncode == 0, listed.stderr
    head, failed, stop, start = listed.stdout.splitlines()
    assert head.split()[:4] == ["id", "when", "what", "profile"]
    assert [line.split()[0] for line in (failed, stop, start)] == ["3", "2", "1"]
    assert "failed" in failed
    assert "of about" in failed
    assert "The draft workspace of EAGLE did not fit" in failed
    alone = run_history_command(state, "history", "--failed").stdout.splitlines()[1:]
    assert [line.split() for line in alone] == [failed.split()], "but for the width of the columns"
    last = run_history_command(state, "history", "qwen36", "--last", "1").stdout.splitlines()[1:]
    assert [line.split() for line in last] == [failed.split()]
    document = json.loads(run_history_command(state, "history", "--json").stdout)
    assert document["schema"] == 1
    assert [one["id"] for one in document["operations"]] == [3, 2, 1]
    shown = run_history_command(state, "history", "show", "3").stdout
    for words in ("- args.mem-fraction-static: 0.6", "+ args.mem-fraction-static: 0.95", "loading: weights", "usually",
                  "proof", "available before", "driver      580.142"):  # fmt: skip
        assert words in shown, shown
    whole = json.loads(run_history_command(state, "history", "show", "3", "--json").stdout)
    assert whole["operation"]["verdict"]["cause"] == "draft-workspace"
    assert whole["changed_since_it_worked"]["id"] == 1
    for words in (("show", "99"), ("show", "x"), ("show",), ("one", "two"), ("qwen63",), ("show", "1", "--failed")):
        ran = run_history_command(state, "history", *words)
        assert (ran.returncode, ran.stdout) == (2, ""), words
    assert "did you mean" in run_history_command(state, "history", "qwen63").stderr.casefold()


def test_the_verb_says_when_the_file_cannot_be_read(tmp_path: Path) -> None:
    import sqlite3

    other = sqlite3.connect(tmp_path / "history.db")
    other.execute("CREATE TABLE theirs (what TEXT)")
    other.close()
    ran = run_history_command(tmp_path, "history")
    assert (ran.returncode, ran.stdout) == (2, "")
    assert "belongs to another program" in ran.stderr


def test_an_empty_history_and_a_filter_that_leaves_nothing_say_what_to_do(tmp_path: Path) -> None:
    ran = run_history_command(tmp_path, "history")
    assert (ran.returncode, "nothing was done from this machine yet" in ran.stdout) == (0, True)
    OperationHistory(tmp_path).record_start("qwen36", "h", "spark1", 300.0)
    assert "to see all: sparkctl history" in run_history_command(tmp_path, "history", "--failed").stdout
    unknown = run_history_command(tmp_path, "history", "--node", "spark9")
    assert (unknown.returncode, unknown.stdout) == (2, "")
    assert "no node is called spark9" in unknown.stderr


def test_numbers_and_profiles_complete(tmp_path: Path) -> None:
    OperationHistory(tmp_path).record_start("qwen36", "h", "spark1", 300.0)
    env = {"COMP_WORDS": "sparkctl history show ", "COMP_CWORD": "3", "_SPARKCTL_COMPLETE": "bash_complete"}
    program = "from sparkctl.cli.main import sparkctl_command; sparkctl_command.main(prog_name='sparkctl')"
    ran = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60,
        env={**os.environ, "SPARKCTL_STATE": str(tmp_path), **env},
    )  # fmt: skip
    assert ran.stdout == "plain,1\n", ran
    env |= {"COMP_WORDS": "sparkctl history qw", "COMP_CWORD": "2"}
    ran = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60,
        env={**os.environ, "SPARKCTL_STATE": str(tmp_path), **env},
    )  # fmt: skip
    assert "plain,qwen36\n" in ran.stdout


async def test_what_is_usual_of_a_start_over_two_sparks_is_the_heads(ctx: CommandContext) -> None:
    async with SimulatedSparks("empty", speed=40.0) as both:
        nodes = load_config(both.config_path).nodes
        profile = ProfileLibrary(user=shipped_profiles_dir()).load_profile("minimax-m27")
        request = StartInstance(profile=profile, nodes=tuple(nodes))
        await collect_events(start_instance(ctx, request))
        await collect_events(
            stop_instance(ctx, StopInstance(instance=None, nodes=[nodes[1]], grace=0.0, everywhere=nodes, frees=True))
        )
        await collect_events(start_instance(ctx, request))
    second, freed, first = ctx.history.list_operations()
    assert freed.command == "sparkctl free spark2 --grace=0s"
    (head,) = [share for share in first.shares if share.node == "spark1"]
    assert [one.part_key for one in second.usual.parts] == [one.part_key for one in head.parts]
    assert len(second.usual.parts) > 3
