"""`bench` on simulated Sparks, with a stand-in that makes real requests in llama-benchy's place."""

from __future__ import annotations

import asyncio
import json
import shlex
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sparkctl.cli.invocation import invoke_command_line
from sparkctl.commands.arm_guard import ArmGuard, arm_guard
from sparkctl.commands.bench.run_bench import RunBench, RunBenches
from sparkctl.commands.bench.run_domains import RunDomains
from sparkctl.commands.request import Request
from sparkctl.commands.start.start_request import build_start_request
from sparkctl.commands.stop.stop_instance import StopInstance
from sparkctl.config import load_config
from sparkctl.context import CommandContext
from sparkctl.files import shipped_profiles_dir
from sparkctl.history.bench_store import BenchStore
from sparkctl.history.operation_history import OperationHistory
from sparkctl.model.bench import BenchCell
from sparkctl.model.events import BenchCellMeasured, BenchDomainMeasured, CommandEnded, Event, Outcome
from sparkctl.model.launch_plan import GuardRule
from sparkctl.model.questions import BenchStartQuestion, NonInteractivePrompter, YesNoQuestion
from sparkctl.model.text.units import GIB
from sparkctl.profiles.profile_library import ProfileLibrary
from sparkctl.simulator import SimulatedSparks, run_in_background
from tests.support import load_generator_stand_in
from tests.support.run_command import parse_result, run_demo, run_in_process
from tests.support.sim_clients import FAST, PATIENCE

GENERATOR = shlex.join([sys.executable, load_generator_stand_in.__file__])
SIZES = ("--pp", "64", "--tg", "8", "--runs", "2", "--command", GENERATOR)


def test_a_cell_has_the_generators_figures_and_ours() -> None:
    words = (*SIZES, "--tg", "32", "--concurrency", "1,2", "--json")
    ran = run_demo("bench", "qwen36-vllm", *words, scenario="two-stacks", speed="2")
    assert parse_result(ran)["outcome"] == "done", ran
    cells = [event for line in ran.stdout.splitlines() if (event := json.loads(line))["event"] == "cell"]
    assert [cell["cell"]["concurrency"] for cell in cells] == [1, 2]
    assert (cells[-1]["number"], cells[-1]["total"], cells[-1]["remaining"]) == (2, 2, 0.0)
    for cell in cells:
        assert cell["tokens_per_second"] > 0
        assert cell["memory_peak"] > 50 << 30
        assert cell["power"] > 0
        assert len(cell["result"]["generation_rate"]["values"]) == 2, "one for each run"
        assert cell["result"]["disturbed"] is True, "this scenario has a client of its own"
        assert cell["result"]["clock"] > 0


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        (("bench", "qwen36-vlm", *SIZES), 2, "did you mean `qwen36-vllm`"),
        (("bench", "qwen36-ngram", *SIZES, "--depth", "900000"), 6, "takes"),
        (("bench", "qwen36-ngram", "--preset", "owners"), 2, "none of quick, owner, full"),
        (("bench", "qwen36-ngram", "--pp", "many"), 2, "list of numbers"),
        (("bench", "qwen36-ngram", "--command", "no-such-program"), 6, "is not there"),
        (("bench", "qwen36-ngram", *SIZES, "--book", "/nowhere.txt"), 2, "/nowhere.txt"),
        (("bench", "qwen36-ngram", *SIZES, "--tokenizer", "/nowhere"), 2, "/nowhere has no tokenizer.json"),
        (("bench", "--resume", "99"), 2, "no benchmark 99"),
        (("bench", "kokoro-tts", *SIZES), 6, "kokoro-tts gives sound: there are no tokens to measure"),
        (("bench", "kokoro-tts", "--by-domain"), 6, "kokoro-tts gives sound: there are no tokens to measure"),
    ],
)
def test_what_cannot_be_measured_is_refused_before(words: tuple[str, ...], code: int, says: str) -> None:
    ran = run_demo(*words, scenario="two-stacks")
    assert ran.returncode == code, ran
    assert says in ran.stderr + ran.stdout


@pytest.mark.parametrize("more", [("--pp", "64", "--command", GENERATOR), ("--by-domain",)])
def test_a_spark_that_cannot_be_reached_is_told(tmp_path: Path, more: tuple[str, ...]) -> None:
    config = tmp_path / "config.yaml"
    config.write_text("nodes: [{name: spark1, host: 127.0.0.1, port: 1}]\n")
    ran = run_in_process("bench", "qwen36", *more, "--json", env={"SPARKCTL_CONFIG": str(config)})
    result = parse_result(ran)
    assert (result["outcome"], result["exit_code"]) == ("unreachable", 3), ran
    assert "spark1 could not be asked: 127.0.0.1:1 refuses connections" in result["message"]


def test_bench_alone_lists_what_was_measured() -> None:
    ran = run_demo("bench", scenario="two-stacks")
    assert (ran.returncode, ran.stdout) == (0, "no benchmark was run from this machine: sparkctl bench INSTANCE\n"), ran


def test_a_generator_that_fails_costs_its_cell_and_says_its_last_words() -> None:
    broken = shlex.join(
        [sys.executable, "-c", "import sys; print('HTTP 400: no such field', file=sys.stderr); sys.exit(1)"]
    )
    ran = run_demo("bench", "qwen36-ngram", "--pp", "64", "--command", broken, "--json", scenario="two-stacks")
    result = parse_result(ran)
    assert (result["outcome"], result["exit_code"]) == ("failed", 1)
    assert "HTTP 400: no such field" in result["message"]
    assert "--resume" in result["hint"]


def test_a_generator_that_cannot_be_run_costs_its_cell_and_the_other_instance_is_measured(tmp_path: Path) -> None:
    script = tmp_path / "no-shebang"
    script.write_text("echo hello\n")
    script.chmod(0o755)
    ran = run_demo("bench", "qwen36-ngram", "--pp", "64", "--command", str(script), "--json", scenario="two-stacks")
    result = parse_result(ran)
    assert (result["outcome"], result["exit_code"]) == ("failed", 1), ran
    assert f"{script}: Exec format error" in result["message"]


def test_two_on_two_sparks_are_measured_at_the_same_time() -> None:
    ran = run_demo("bench", "qwen36-ngram", "qwen36-vllm", *SIZES, "--together", "--json", scenario="two-stacks")
    events = [json.loads(line) for line in ran.stdout.splitlines()]
    assert {event["instance"] for event in events if event["event"] == "cell"} == {"qwen36-ngram", "qwen36-vllm"}, ran
    assert parse_result(ran)["outcome"] == "done"


def test_two_on_one_spark_are_not_measured_together() -> None:
    ran = run_demo("bench", "qwen36", "qwen36-vllm", *SIZES, "--node", "spark1", "--start", "--together", "--json")
    assert [json.loads(line)["event"] for line in ran.stdout.splitlines()] == ["result"], ran
    assert parse_result(ran)["exit_code"] == 6
    assert "are both on spark1" in parse_result(ran)["message"]


def test_what_loads_already_is_measured_when_it_is_ready_and_not_stopped() -> None:
    with run_in_background(scenario="empty", speed=2.0) as config:
        env = {"SPARKCTL_CONFIG": str(config)}
        assert run_in_process("up", "qwen36-vllm", "--node", "spark1", "--detach", env=env).returncode == 0
        ran = run_in_process("bench", "qwen36-vllm", *SIZES, "--node", "spark1", "--start", "--json", env=env)
        events = [json.loads(line)["event"] for line in ran.stdout.splitlines()]
        assert "cell" in events, ran
        assert "released" not in events, "somebody else started it"


def test_what_does_not_run_is_started_measured_and_stopped() -> None:
    ran = run_demo("bench", "qwen36", "qwen36-vllm", *SIZES, "--node", "spark1", "--start", "--json")
    events = [event for line in ran.stdout.splitlines() if (event := json.loads(line))["event"] in ("cell", "released")]
    assert {event["result"]["disturbed"] for event in events if event["event"] == "cell"} == {False}, "nobody else asks"
    seen = [(event["event"], event["instance"]) for event in events]
    names = ("qwen36", "qwen36-vllm")
    assert seen == [pair for name in names for pair in (("cell", name), ("released", name))], ran
    assert parse_result(ran)["outcome"] == "done"


def test_what_stops_for_a_measurement_runs_again_at_the_end() -> None:
    words = ("qwen36-as-posted", "qwen36-ngram", *SIZES, "--node", "spark1", "--start", "--json")
    ran = run_demo("bench", *words, scenario="two-stacks")  # qwen36-ngram runs there, and leaves no room for another
    events = [json.loads(line) for line in ran.stdout.splitlines()]
    seen = [
        (event["event"], event["instance"], event.get("phase"))
        for event in events
        if event["event"] in ("cell", "released") or (event["event"] == "phase" and event["phase"] == "ready")
    ]
    assert seen == [
        ("released", "qwen36-ngram", None), ("phase", "qwen36-as-posted", "ready"), ("cell", "qwen36-as-posted", None),
        ("released", "qwen36-as-posted", None), ("phase", "qwen36-ngram", "ready"), ("cell", "qwen36-ngram", None),
    ], ran  # fmt: skip
    assert parse_result(ran)["outcome"] == "done"


def test_a_model_that_does_not_start_is_told_and_the_other_is_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    profiles = tmp_path / "sparkctl/profiles"
    profiles.mkdir(parents=True)
    (profiles / "bad.yaml").write_text("schema: 1\nname: bad\nextends: qwen36-vllm\nenv: {SIM_FAULT: cuda-oom}\n")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    ran = run_demo(
        "bench", "bad", "qwen36-ngram", *SIZES, "--node", "spark1", "--start", "--json", scenario="two-stacks"
    )
    cells = [event for line in ran.stdout.splitlines() if (event := json.loads(line))["event"] == "cell"]
    assert [cell["instance"] for cell in cells] == ["qwen36-ngram"], ran
    assert parse_result(ran)["message"].startswith("bad: ")
    assert "1 of 2 were measured completely" in parse_result(ran)["message"]
    assert parse_result(ran)["exit_code"] == 1


class Refusing(NonInteractivePrompter):
    """Says no to every question, and keeps it."""

    def __init__(self) -> None:
        self.asked: list[YesNoQuestion] = []

    async def ask_yes_no(self, question: YesNoQuestion) -> bool:
        self.asked.append(question)
        return False


@pytest.mark.simulation(scenario="empty", **FAST)
async def test_all_questions_come_before_the_first_is_measured(sparks: SimulatedSparks, ctx: CommandContext) -> None:
    events: list[Event] = []
    asked: list[tuple[str, int]] = []  # the profile, and how many events there were

    class Choosing(NonInteractivePrompter):
        async def ask_yes_no(self, question: YesNoQuestion) -> bool:
            assert isinstance(question, BenchStartQuestion)
            asked.append((question.profile, len(events)))
            return question.profile == "qwen36"

    nodes, names = load_config(sparks.config_path).nodes[:1], ("qwen36", "qwen36-vllm")
    library = ProfileLibrary(user=shipped_profiles_dir() / "none")
    request = RunBenches(
        benches=tuple(
            RunBench(instance=name, nodes=nodes, cells=(BenchCell(pp=8, tg=4),), runs=1, generator=GENERATOR) for name in names
        ),
        nodes=nodes, starts=tuple(build_start_request(library.load_profile(name), nodes, name) for name in names),
    )  # fmt: skip
    async for event in request.run(replace(ctx, prompter=Choosing())):
        events.append(event)
    assert asked == [("qwen36", 0), ("qwen36-vllm", 0)]
    assert [event.instance for event in events if isinstance(event, BenchCellMeasured)] == ["qwen36"]


@pytest.mark.simulation(scenario="two-stacks", **FAST)
@pytest.mark.parametrize(
    ("override", "refused"),
    [("args.max-model-len=auto", True), ("args.hf-overrides={}", False)],
)
async def test_a_cell_beyond_what_the_models_config_tells_is_refused_before_anything_stops(
    sparks: SimulatedSparks, ctx: CommandContext, override: str, refused: bool
) -> None:
    prompter = Refusing()
    nodes, library = load_config(sparks.config_path).nodes[:1], ProfileLibrary(user=shipped_profiles_dir() / "none")
    profile = library.load_profile("qwen36-vllm", overrides=("args.max-model-len=auto", override))
    bench = RunBench(
        instance="qwen36-vllm", nodes=nodes, cells=(BenchCell(pp=8, tg=4, depth=270000),), generator=GENERATOR
    )
    start = build_start_request(profile, nodes, "qwen36-vllm")
    request = RunBenches(benches=(bench,), starts=(start,), nodes=nodes, everywhere=nodes)
    events = [event async for event in request.run(replace(ctx, prompter=prompter))]
    assert (len(prompter.asked), len(events)) == (0 if refused else 1, 1), (
        "before the question, as nobody could say yes to it"
    )
    assert ("pp8 tg4 @ d270000 c1 needs 270012 tokens, and qwen36-vllm takes 262144" in str(events[0])) is refused


@pytest.mark.simulation(scenario="empty", **FAST)
async def test_what_another_operator_started_with_other_settings_does_not_stop_unasked(
    sparks: SimulatedSparks, ctx: CommandContext, tmp_path: Path
) -> None:
    prompter = Refusing()
    nodes, library = load_config(sparks.config_path).nodes[:1], ProfileLibrary(user=shipped_profiles_dir() / "none")
    coming = build_start_request(library.load_profile("qwen36-as-posted"), nodes, "qwen36-as-posted")
    bench = RunBench(instance="qwen36-as-posted", nodes=nodes, cells=(BenchCell(pp=8, tg=4),), generator=GENERATOR)
    asking = RunBenches(benches=(bench,), starts=(coming,), nodes=nodes, everywhere=nodes)

    async def run(request: Request, context: CommandContext) -> list[Event]:
        return [event async for event in request.run(context)]

    other = replace(ctx, history=OperationHistory(tmp_path / "other"))
    for overrides, changed in (("args.context-length=4096",), ("qwen36-ngram",)), ((), ()):
        there = build_start_request(library.load_profile("qwen36-ngram", overrides=overrides), nodes, "qwen36-ngram")
        assert getattr((await run(there, other))[-1], "outcome", None) is Outcome.READY
        await run(asking, replace(ctx, prompter=prompter))
        question = prompter.asked[-1]
        assert isinstance(question, BenchStartQuestion)
        assert (question.stops, tuple(name for name, _ in question.changed)) == (("qwen36-ngram",), changed)
        assert ("not in this computer's history" in question.sentence) is bool(changed)
        if changed:
            events = await run(replace(asking, are_started=True), ctx)
            assert [getattr(event, "exit_code", None) for event in events] == [6], events
            assert "qwen36-ngram has to stop for qwen36-as-posted" in getattr(events[0], "message", "")
        stopping = await run(StopInstance(instance="qwen36-ngram", nodes=nodes), other)
        assert getattr(stopping[-1], "exit_code", None) == 0, "it ran all the time"


@pytest.mark.simulation(scenario="empty", **FAST)
@pytest.mark.parametrize("names", [("qwen36",), ("qwen36", "qwen36-vllm")])
async def test_ctrl_c_at_the_question_starts_nothing(
    sparks: SimulatedSparks, ctx: CommandContext, names: tuple[str, ...]
) -> None:
    class Silent(NonInteractivePrompter):
        async def ask_yes_no(self, question: YesNoQuestion) -> bool:
            ctx.interrupt.record_press()
            await asyncio.sleep(PATIENCE)
            return True

    nodes, library = load_config(sparks.config_path).nodes[:1], ProfileLibrary(user=shipped_profiles_dir() / "none")
    request = RunBenches(
        benches=tuple(RunBench(instance=name, nodes=nodes, cells=(BenchCell(pp=8, tg=4),), generator=GENERATOR) for name in names),
        nodes=nodes, starts=tuple(build_start_request(library.load_profile(name), nodes, name) for name in names),
    )  # fmt: skip
    async with asyncio.timeout(PATIENCE / 2):
        events = [event async for event in request.run(replace(ctx, prompter=Silent()))]
    assert [(type(event), getattr(event, "exit_code", None)) for event in events] == [(CommandEnded, 130)], events


@pytest.mark.simulation(scenario="two-stacks", **FAST)
@pytest.mark.parametrize("kind", ["cells", "domains", "version"])
async def test_ctrl_c_before_the_first_cell_is_obeyed_and_leaves_no_benchmark(
    sparks: SimulatedSparks, ctx: CommandContext, kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPARKCTL_STATE", str(tmp_path / "state"))
    mark, generator = tmp_path / "asked", GENERATOR

    async def press() -> None:
        while kind == "version" and not mark.exists():  # noqa: ASYNC110 - another process makes it
            await asyncio.sleep(0.02)
        ctx.interrupt.record_press()

    if kind == "version":  # as where it is fetched first
        script = f"import pathlib, time; pathlib.Path({str(mark)!r}).touch(); time.sleep({PATIENCE})"
        generator = shlex.join([sys.executable, "-c", script])
    where = {"instance": "qwen36-ngram", "nodes": load_config(sparks.config_path).nodes}
    request = (
        RunDomains(**where)
        if kind == "domains"
        else RunBench(**where, cells=(BenchCell(pp=8, tg=4),), generator=generator)
    )
    async with asyncio.timeout(PATIENCE / 2), asyncio.TaskGroup() as group:
        group.create_task(press())
        events = [event async for event in request.run(ctx)]
    ended = events[-1]
    assert isinstance(ended, CommandEnded)
    assert (ended.exit_code, ended.message, ended.hint) == (130, "nothing was measured", None)
    assert not BenchStore().list_runs()


@pytest.mark.simulation(scenario="two-stacks", **FAST)
@pytest.mark.parametrize(
    ("by_guard", "says"),
    [
        (False, "qwen36-vllm has ended, see why: sparkctl logs qwen36-vllm --node spark2"),
        (True, "the guard stopped qwen36-vllm: MemAvailable fell"),
    ],
)
async def test_by_domain_what_ended_meanwhile_is_told_as_with_cells_and_what_was_measured_is_kept(
    sparks: SimulatedSparks,
    ctx: CommandContext,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    by_guard: bool,
    says: str,
) -> None:
    monkeypatch.setenv("SPARKCTL_STATE", str(tmp_path / "state"))
    nodes, prompts = load_config(sparks.config_path).nodes[1:2], tmp_path / "prompts.jsonl"
    memory = sparks.nodes["spark2"].memory
    lines = [json.dumps({"category": f"kind {number}", "turns": ["Tell me."]}) for number in range(500)]
    prompts.write_text("\n".join(lines))  # more than are measured before it is stopped
    if by_guard:
        rule = GuardRule(floor=4 * GIB, limit=3600.0)
        armed = [event async for event in arm_guard(ctx, ArmGuard(nodes, "qwen36-vllm", (), rule))]
        assert getattr(armed[-1], "exit_code", None) == 0, armed
    ended: CommandEnded | None = None
    async for event in RunDomains(instance="qwen36-vllm", nodes=nodes, prompts=prompts, tokens=12).run(ctx):
        if isinstance(event, BenchDomainMeasured) and event.number == 1:
            if by_guard:
                memory.allocate(4711, anonymous=memory.available_bytes - 3 * GIB)  # another program
            else:
                async for _ in StopInstance(instance="qwen36-vllm", nodes=nodes).run(ctx):
                    pass
        ended = event if isinstance(event, CommandEnded) else ended
    assert ended is not None
    assert (ended.exit_code, (ended.message or "").startswith(says)) == (1, True), ended
    (run,) = BenchStore().list_runs()
    assert f"{len(run.domains)} of 500 kinds of text are measured and saved" in (ended.message or "")
    assert run.domains, "what was measured before"
    assert run.setup.engine_version == "0.19.1", "by itself: it was not started from here"
    assert (run.why or "").startswith(says)


def test_without_a_terminal_and_without_a_yes_nothing_is_started() -> None:
    ran = run_demo("bench", "qwen36", *SIZES, "--node", "spark1", "--json")
    assert [json.loads(line)["event"] for line in ran.stdout.splitlines()] == ["result"], ran
    assert parse_result(ran)["exit_code"] == 2
    assert "sparkctl bench qwen36 --node NODE --start" in parse_result(ran)["hint"]


def test_a_killed_load_generator_costs_its_cell_and_resume_measures_that_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    script = tmp_path / "once.py"
    script.write_text(
        "import os, runpy, signal, sys\nfrom pathlib import Path\n"
        f"mark = Path({str(tmp_path / 'killed')!r})\n"
        "if '--version' not in sys.argv and sys.argv[sys.argv.index('--concurrency') + 1] == '2' and not mark.exists():\n"
        "    mark.touch()\n    os.kill(os.getpid(), signal.SIGKILL)\n"
        f"runpy.run_path({load_generator_stand_in.__file__!r}, run_name='__main__')\n"
    )
    monkeypatch.setenv("SPARKCTL_STATE", str(tmp_path / "state"))
    command = ["--command", shlex.join([sys.executable, str(script)])]
    cells = ["--pp", "64", "--tg", "8", "--runs", "1", "--concurrency", "1,2,3", *command]

    def run(*words: str) -> tuple[int, list[dict[str, Any]]]:
        code = invoke_command_line(list(words))
        return code, [json.loads(line) for line in capfd.readouterr().out.splitlines()]

    with run_in_background(scenario="two-stacks", speed=20.0) as config:
        monkeypatch.setenv("SPARKCTL_CONFIG", str(config))
        code, events = run("bench", "qwen36-ngram", *cells, "--json")
        found = [(one["cell"]["concurrency"], one["result"]["error"]) for one in events if one["event"] == "cell"]
        assert (code, [number for number, error in found if error is None]) == (1, [1, 3]), events
        assert "2 of 3 cells are measured and saved" in events[-1]["message"]
        code, events = run("bench", "--resume", "1", *command, "--json")
        assert [one["cell"]["concurrency"] for one in events if one["event"] == "cell"] == [2]
        assert (code, events[-1]["outcome"], events[-1]["message"]) == (0, "done", "benchmark 1 is kept")
        code, shown = run("bench", "show", "1", "--json")
        measured = [one["cell"]["concurrency"] for one in shown[0]["run"]["results"] if one["error"] is None]
        assert sorted(measured) == [1, 2, 3]
        code, events = run("bench", "--resume", "1", *command, "--json")  # nothing is left
        assert not [one for one in events if one["event"] == "cell"]
        assert code == 0
        kept = tmp_path / "state/bench/1.json"
        kept.write_text(kept.read_text().replace('"spark1"', '"spark2"'))  # as if it had moved meanwhile
        code, events = run("bench", "--resume", "1", *command, "--json")
        assert (code, "had another (or unknown) node" in events[-1]["message"]) == (6, True), events
