"""``plan`` and the first step of ``up`` on the simulated Sparks."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sparkctl.commands.start.check_fit import CheckFit, check_fit
from sparkctl.commands.start.start_instance import start_instance
from sparkctl.commands.start.start_request import StartInstance
from sparkctl.commands.switch.switch_instance import switch_instance
from sparkctl.commands.switch.switch_request import SwitchInstance
from sparkctl.config import load_config
from sparkctl.context import CommandContext
from sparkctl.files import shipped_profiles_dir
from sparkctl.history.expected_durations import compute_model_key
from sparkctl.history.operation_history import OperationHistory
from sparkctl.model.events import CommandEnded, MemoryFitEvaluated, Outcome, WarningEmitted
from sparkctl.model.json_codec import decode_event, encode_event
from sparkctl.model.memory_fit import EstimateSource
from sparkctl.model.node import Node
from sparkctl.model.phase import Phase, PhaseDuration
from sparkctl.model.text.units import GIB
from sparkctl.profiles.profile_library import ProfileLibrary
from sparkctl.profiles.profile_lint import lint_profile_file
from sparkctl.simulator import SimulatedSparks
from sparkctl.simulator.sim_node import SimNodeOptions
from tests.support.run_command import parse_result, run_demo
from tests.support.sim_clients import FAST

SHARE = "args.mem-fraction-static"
SHIPPED = ProfileLibrary(user=shipped_profiles_dir() / "none")


def run_plan(*words: str, scenario: str = "empty") -> tuple[int, dict[str, Any]]:
    ran = run_demo("plan", *words, "--json", scenario=scenario)
    (line,) = ran.stdout.splitlines()
    document = json.loads(line)
    assert document["schema"] == 1
    assert document["exit_code"] == ran.returncode
    return ran.returncode, document


def test_plan_names_a_trap_of_the_flags_with_a_way_out_as_up_does() -> None:
    ran = run_demo("plan", "qwen36-as-posted", "--node", "spark1")
    assert ran.returncode == 0
    assert "without speculative-num-draft-tokens: SGLang 0.5.12 as published dies of that" in ran.stderr
    assert (
        "try: sparkctl up qwen36-as-posted --node spark1 --set args.speculative-num-draft-tokens=20 --set" in ran.stderr
    )
    assert "qwen36 or qwen36-ngram instead" in ran.stderr
    _, document = run_plan("qwen36-as-posted", "--node", "spark1")
    assert any("without speculative-num-draft-tokens" in one["message"] for one in document["warnings"])
    assert "▲" not in run_demo("plan", "qwen36", "--node", "spark1").stderr


@pytest.mark.parametrize("profile", SHIPPED.list_names())
def test_every_shipped_profile_fits_on_an_empty_spark_with_one_figure_for_its_memory(profile: str) -> None:
    known = SHIPPED.load_profile(profile)
    untried = ("--set", "env.UNTRIED=1")  # the demo's history knows that some were ready, and so what they do not take
    code, document = run_plan(profile, *untried, *(["--node", "spark1"] if known.nodes == 1 else []))
    node = document["nodes"][0]
    assert code == 0
    assert node["answer"] in ("fits", "after-drop-caches")
    assert node["margin"] > 0
    assert sum(part["size"] for part in node["parts"] if not part["within"]) == node["need"]
    assert known.expected_memory is not None
    kept_free = sum(part["size"] for part in node["parts"] if part["name"] == "margin for DFlash")
    memory = node["need"] - kept_free
    assert abs(known.expected_memory - memory) < GIB * 0.7, "`profiles show` and `plan` say the same of what it holds"
    if known.nodes == 1:
        assert node["commands"] == [f"sparkctl up {profile} --node spark1 {' '.join(untried)}"]
    weights = [part for part in node["parts"] if part["name"] == "weights"]
    assert all(part["obtained"] == "measured" for part in weights if known.model.weights is None)
    assert bool(weights) is (known.engine != "container")


def test_beside_another_it_fits_only_if_that_stops_and_every_node_is_asked() -> None:
    code, document = run_plan("qwen36-vllm", "--node", "spark1", scenario="two-stacks")
    (node,) = document["nodes"]
    assert (code, node["answer"], node["stops"]) == (6, "if-stopped", ["qwen36-ngram"])
    assert node["commands"] == ["sparkctl switch qwen36-vllm --node spark1"]
    assert node["short_by"] == -node["margin"]
    code, document = run_plan("qwen36-ngram", scenario="two-stacks")
    answers = {node["node"]: node["answer"] for node in document["nodes"]}
    assert answers == {"spark1": "fits", "spark2": "if-stopped"}, "its own place counts as returned"
    assert code == 0, "one that fits is enough"


@pytest.mark.parametrize(("port", "of_advice"), [(8003, 8003), (22, 23)])
def test_a_busy_port_is_told_beside_what_must_stop_for_the_memory(port: int, of_advice: int) -> None:
    words = ("qwen36-vllm", "--node", "spark1", "--set", f"port={port}")
    switch = f"sparkctl switch qwen36-vllm --node spark1 --set port={of_advice}"
    refused = run_demo("up", *words, "--dry-run", scenario="two-stacks")
    assert refused.returncode == 6
    assert re.search(rf"only if qwen36-ngram stops: short by .*; and port {port} on spark1 is in use", refused.stderr)
    assert next(line for line in refused.stderr.splitlines() if "try: " in line) == f"  try: {switch}"
    assert run_demo(*switch.split()[1:], "--dry-run", scenario="two-stacks").returncode == 0
    code, document = run_plan(*words, scenario="two-stacks")
    assert (code, document["nodes"][0]["commands"]) == (6, [switch])
    assert any(f"port {port} on spark1 is in use" in one["message"] for one in document["warnings"])


def test_plan_refuses_a_busy_port_where_the_memory_fits_and_names_a_free_one() -> None:
    words = ("kokoro-tts", "--node", "spark1", "--set", "port=8003")
    code, document = run_plan(*words, scenario="two-stacks")
    (node,) = document["nodes"]
    (way,) = node["commands"]
    assert (code, node["answer"]) == (6, "after-drop-caches")
    assert way == "sparkctl up kokoro-tts --node spark1 --set port=8004"
    assert [one["hint"] for one in document["warnings"]] == [f"sparkctl switch {' '.join(words)}"]
    assert run_demo(*way.split()[1:], "--dry-run", scenario="two-stacks").returncode == 0
    assert run_demo("up", *words, "--dry-run", scenario="two-stacks").returncode == 6
    assert run_plan("kokoro-tts", "--set", "port=8003", scenario="two-stacks")[0] == 0, "one node that can is enough"


def test_the_sum_is_written_out_and_the_largest_share_that_fits_is_told() -> None:
    ran = run_demo("plan", "qwen36-vllm", "--node", "spark1", "--set", "args.gpu-memory-utilization=0.97")
    assert ran.returncode == 6
    assert "does not fit on spark1: short by" in ran.stdout
    assert "vLLM's own check" in ran.stdout
    (command,) = [line.removeprefix("then: ") for line in ran.stdout.splitlines() if line.startswith("then: ")]
    assert run_demo(*command.split()[1:], "--dry-run").returncode == 0, "what is advised is not refused"


@pytest.mark.parametrize(
    "words",
    [("qwen36-as-posted", "--set", "args.speculative-num-draft-tokens=20"), ("qwen36", "--set", f"{SHARE}=0.82")],
)
def test_all_the_flags_of_nextn_at_082_on_0512_take_the_workspace_first_and_do_not_fit(words: tuple[str, ...]) -> None:
    code, document = run_plan(*words, "--node", "spark1")
    (node,) = document["nodes"]
    assert (code, node["answer"], node["largest"]["field"]) == (6, "short", SHARE)
    assert any(part["name"] == "draft workspace with KV cache" for part in node["parts"])
    (way,) = node["commands"]
    assert run_demo(*way.split()[1:], "--dry-run").returncode == 0, "what is advised is not refused"


@pytest.mark.parametrize(
    ("words", "is_said"),
    [
        (("qwen36",), False),
        (("qwen36", "--set", "model.path=/models/Llama-3.1-8B"), True),
        (("qwen36-vllm",), False),
        (("qwen36-vllm", "--set", "model.path=/models/Llama-3.1-8B"), True),
        (("qwen36-ngram", "--set", "model.path=/models/Llama-3.1-8B"), False),
        (("qwen3-coder-next-dflash",), False),
    ],
)
def test_drafts_of_the_model_s_own_layers_want_such_layers(words: tuple[str, ...], is_said: bool) -> None:
    _, document = run_plan(*words, "--node", "spark1")
    assert any("no tensor in" in note for note in document["nodes"][0]["cautions"]) is is_said


@pytest.mark.parametrize("profile", ["qwen3-coder-next-dflash", "qwen35-35b-dflash"])
def test_a_drafter_weighs_what_a_drafter_does_and_both_start(profile: str) -> None:
    _, document = run_plan(profile, "--node", "spark1")
    (draft,) = [part for part in document["nodes"][0]["parts"] if part["name"] == "draft model"]
    assert draft["size"] < 2 * GIB
    assert run_demo("up", profile, "--node", "spark1").returncode == 0


def test_a_model_for_two_sparks_is_judged_over_both_and_its_start_is_the_next_step() -> None:
    code, document = run_plan("minimax-m27")
    start = "sparkctl up minimax-m27 --node spark1 --node spark2"
    assert (code, document["sparks"]) == (0, 2)
    assert [node["node"] for node in document["nodes"]] == ["spark1", "spark2"], "the order of the config"
    assert [node["commands"] for node in document["nodes"]] == [[start], [start]]
    assert all(node["answer"] in ("fits", "after-drop-caches") for node in document["nodes"])
    output = run_demo("plan", "minimax-m27").stdout
    assert "needs 2 Sparks: 98.1 GiB on each; it fits on spark1 and spark2 together" in output


def test_what_each_of_two_sparks_has_to_give_is_written_out_once() -> None:
    ran = run_demo("plan", "minimax-m27")
    assert ran.returncode == 0
    assert ran.stdout.count("share of vLLM") == 1
    assert "minimax-m27 claims the same on spark2 as on spark1: 98." in ran.stdout
    assert [ran.stdout.count(f"{node} has\n") for node in ("spark1", "spark2")] == [1, 1]
    assert ran.stdout.count("then: sparkctl up minimax-m27 --node spark1 --node spark2") == 1
    document = json.loads(run_demo("plan", "minimax-m27", "--json").stdout)
    first, second = document["nodes"]
    assert first["parts"] == second["parts"] != []


def test_plan_and_up_say_the_same_of_too_few_sparks() -> None:
    for verb in ("plan", "up"):
        ran = run_demo(verb, "minimax-m27", "--node", "spark1")
        assert ran.returncode == 2
        assert "minimax-m27 is for 2 Sparks, but 1 is named" in ran.stderr
        assert "--node spark1 --node spark2" in ran.stderr


def test_what_is_there_on_one_of_both_is_told_and_ranks_are_those_of_the_flags() -> None:
    code, document = run_plan("minimax-m27", scenario="two-stacks")
    assert code == 6
    assert "it does not fit on spark1 and spark2 now" in document["together"][0]
    switch = ["sparkctl switch minimax-m27 --node spark1 --node spark2"]
    assert [node["commands"] for node in document["nodes"]] == [switch, switch]
    shown = run_demo("plan", "minimax-m27", scenario="two-stacks").stdout
    assert shown.count("GiB on each") == 1, "what each gives is said once, of all of them"
    assert [line for line in shown.splitlines() if line.startswith("then: ")] == [f"then: {switch[0]}"]
    code, document = run_plan("qwen36-ngram", "--node", "spark1", "--set", "args.tp=2")
    assert (code, document["nodes"][0]["sparks"]) == (6, 2)
    ran = run_demo("up", "qwen36-ngram", "--node", "spark1", "--set", "args.tp=2")
    assert ran.returncode == 6
    assert "needs 2 Sparks" in ran.stderr


@pytest.mark.parametrize("setting", [f"{SHARE}=abc", f"{SHARE}=2", "args.context-length=banana"])
@pytest.mark.parametrize("verb", ["plan", "up"])
def test_a_deciding_flag_that_cannot_be_so_is_refused(verb: str, setting: str) -> None:
    ran = run_demo(verb, "qwen36", "--node", "spark1", "--set", setting)
    assert ran.returncode == 2
    assert setting.replace("=", " is ") in ran.stderr


@pytest.mark.parametrize("verb", [("plan",), ("up", "--dry-run")])
def test_an_impossible_share_has_one_advice_and_it_is_accepted(verb: tuple[str, ...]) -> None:
    share = "args.mem-fraction-static="
    words = (*verb, "qwen36", "--node", "spark1", "--set")
    refused = run_demo(*words, f"{share}1.5")
    advised = re.findall(rf"--set ({share}\S+)", refused.stderr)
    assert (refused.returncode, advised) == (2, [f"{share}0.7"]), "and no trap says something else of it"
    assert run_demo(*words, advised[0]).returncode == 0


def test_every_node_that_was_asked_has_a_short_line_at_the_end() -> None:
    ran = run_demo("plan", "qwen36-ngram", scenario="two-stacks")
    first, second = ran.stdout.splitlines()[-2:]
    assert first.startswith("spark1  fits")
    assert second.startswith("spark2  fits only without qwen36-vllm, short by")


def test_the_short_line_of_a_node_says_that_image_and_model_are_not_there() -> None:
    ran = run_demo("plan", "qwen36-vllm", scenario="fresh")
    assert ran.returncode == 6
    lines = ran.stdout.splitlines()
    start = "qwen36-vllm cannot start on spark1 yet: the image and the model are not there; its memory: fits "
    assert lines[0].startswith(start), lines
    assert not any(line.startswith("qwen36-vllm fits") for line in lines)
    for node, line, way in zip(("spark1", "spark2"), lines[-4:-2], lines[-2:], strict=True):
        assert line.startswith(f"{node}  cannot start: the image and the model are not there; fits "), lines
        assert way == f"get it: sparkctl pull qwen36-vllm --node {node}"


def test_up_refuses_with_the_sum_before_anything_is_touched_and_force_goes_on() -> None:
    words = ("up", "qwen36-as-posted", "--node", "spark1", "--set", "memory.draft_workspace=before-weights")
    ran = run_demo(*words, "--json")
    ended = parse_result(ran)
    assert (ran.returncode, ended["outcome"]) == (6, "refused")
    assert "short by" in ended["message"]
    assert "--force" in ended["hint"]
    assert f"--set {SHARE}=0." in ended["hint"]
    kinds = [json.loads(line)["event"] for line in ran.stdout.splitlines()]
    assert "fit" in kinds
    assert "phase" not in kinds
    result = run_demo(*words)
    assert "draft workspace" in result.stderr
    assert result.stdout == ""
    forced = run_demo(*words, "--force", "--json")
    assert parse_result(forced)["outcome"] == "ready", "in the simulation it does run"
    assert "--force starts it anyway" in forced.stdout


@pytest.mark.parametrize("name", ["qwen36-vllm", "qwen36"])
async def test_a_start_keeps_what_it_took_and_the_next_sum_says_so(tmp_path: Path, name: str) -> None:
    ctx = CommandContext(history=OperationHistory(tmp_path / "state"), operator="milo@desk")
    profile = ProfileLibrary(shipped_profiles_dir()).load_profile(name)
    async with SimulatedSparks("empty", **FAST) as sparks:
        node = load_config(sparks.config_path).nodes[0]
        events = [event async for event in start_instance(ctx, StartInstance(profile=profile, nodes=(node,)))]
        assert isinstance(events[-1], CommandEnded)
        assert events[-1].outcome is Outcome.READY
        (before,) = [event.fit for event in events if isinstance(event, MemoryFitEvaluated)]
        seen = ctx.history.get_measured_peak(profile.digest, "spark1")
        assert seen is not None
        assert seen.estimated == before.estimated == before.needed_bytes
        memory = sparks.nodes["spark1"].memory.engine_bytes
        assert abs(seen.peak - memory) < GIB
        again = [
            event.fit
            async for event in check_fit(ctx, CheckFit(profile=profile, nodes=[node]))
            if isinstance(event, MemoryFitEvaluated)
        ]
    assert again[0].parts[0].obtained is EstimateSource.HISTORY
    assert again[0].needed_bytes == pytest.approx(seen.peak, abs=GIB / 100), "the Spark's memory moves a little"
    assert again[0].standing is not None
    assert abs(again[0].standing.returned_bytes - memory) < GIB, "its own place counts as returned"
    event = MemoryFitEvaluated(1.0, node.name, again[0])
    assert decode_event(json.loads(json.dumps(encode_event(event)))) == event


def test_what_cannot_be_summed_is_neither_promised_nor_refused(tmp_path: Path) -> None:
    profile = tmp_path / "odd.yaml"
    profile.write_text("schema: 1\nname: odd\nengine: container\nimage: orpheus-fastapi:latest\nport: 5005\n")
    ran = run_demo("plan", str(profile), "--node", "spark1")
    assert ran.returncode == 0
    assert ran.stdout.startswith("whether odd fits on spark1 is not known")
    assert "memory.expected" in ran.stdout


def test_bad_input_and_a_node_that_is_not_there() -> None:
    assert run_demo("plan", "qwen37", "--node", "spark1").returncode == 2
    assert run_demo("plan", "qwen36", "--node", "spark1", "--set", "nonsense=1").returncode == 2
    assert run_demo("plan", "qwen36", "--node", "milo@127.0.0.1:1").returncode == 3


async def test_a_model_that_is_not_there_is_refused_and_takes_nothing_when_forced(tmp_path: Path) -> None:
    ctx = CommandContext(history=OperationHistory(tmp_path / "state"), operator="milo@desk")
    overrides = ("memory.draft_workspace=before-weights",)
    profile = ProfileLibrary(shipped_profiles_dir()).load_profile("qwen36-as-posted", overrides=overrides)
    gone = SimNodeOptions(missing=("/home/milo/models/Qwen3.6-27B-FP8",))
    async with SimulatedSparks("empty", options={"spark1": gone}, **FAST) as sparks:
        node = load_config(sparks.config_path).nodes[0]
        request = StartInstance(profile=profile, nodes=(node,), detach=True)
        *_, refused = [event async for event in start_instance(ctx, request)]
        assert isinstance(refused, CommandEnded)
        assert (refused.exit_code, "does not fit on spark1" in (refused.message or "")) == (6, True)
        assert "--pull" not in (refused.hint or ""), "as it is, it would be refused once the model is there"
        request = replace(request, forced=True)
        events = [event async for event in start_instance(ctx, request)]
        planned_events = [event async for event in check_fit(ctx, CheckFit(profile=profile, nodes=[node]))]
    assert isinstance(events[-1], CommandEnded)
    assert events[-1].outcome is Outcome.DETACHED
    messages = [event.message for event in events if isinstance(event, WarningEmitted)]
    assert any(
        "does not fit" in one and "the model /home/milo/models/Qwen3.6-27B-FP8 is missing or incomplete" in one
        for one in messages
    ), messages
    assert isinstance(planned_events[-1], CommandEnded)
    assert planned_events[-1].exit_code == 6, "the sum is the profile's own, and does not come out"


def test_plan_calculates_without_the_secrets_that_a_start_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HF_TOKEN", raising=False)
    ran = run_demo("plan", "qwen36-vllm", "--node", "spark1", "--set", "env.HF_TOKEN=${HF_TOKEN}")
    assert (ran.returncode, "HF_TOKEN is not set" in ran.stderr, "qwen36-vllm claims" in ran.stdout) == (0, True, True)
    wrong = run_demo("plan", "qwen36-vllm", "--node", "spark1", "--set", "env.MODE=${NO_SUCH_MODE}")
    assert (wrong.returncode, "NO_SUCH_MODE" in wrong.stderr) == (2, True), "what is no secret may change the sum"


def test_plan_refuses_the_flag_that_up_refuses() -> None:
    words = ("qwen36-ngram", "--node", "spark1", "--set", "args.mem-fraction-statc=0.5")
    code, document = run_plan(*words)
    assert (code, document["nodes"][0]["answer"], document["nodes"][0]["commands"]) == (6, "after-drop-caches", [])
    assert "--mem-fraction-static?" in document["message"]
    ran = run_demo("plan", *words)
    assert (ran.returncode, "then:" in ran.stdout, "patched_flags" in ran.stderr) == (6, False, True)
    assert run_plan(*words, "--set", "patched_flags=[mem-fraction-statc]")[0] == 0


async def test_a_limit_shorter_than_such_a_start_took_is_told_before_the_next(
    sparks: SimulatedSparks, ctx: CommandContext, node: Node
) -> None:
    """The last start was with other settings, and with a cache: the one before it took a quarter of an hour."""
    names = ("env.VLLM_ENGINE_READY_TIMEOUT_S=600", "start.timeouts.loading=8m")
    profile = SHIPPED.load_profile("qwen36-vllm", overrides=names)
    start = StartInstance(profile=profile, nodes=(node,), dry_run=True)
    plan = CheckFit(profile=profile, nodes=(node,))
    switch = SwitchInstance.from_start(start, ())

    async def list_limits() -> list[list[str]]:
        ways = (start_instance(ctx, start), check_fit(ctx, plan), switch_instance(ctx, switch))
        said = [[event.message async for event in way if isinstance(event, WarningEmitted)] for way in ways]
        return [[one for one in way if "is shorter than" in one] for way in said]

    assert await list_limits() == [[], [], []], "nothing was measured"
    kind = compute_model_key(profile.image, profile.model.path)
    for seconds in (900.0, 100.0):
        parts = [PhaseDuration(Phase.STARTING, None, 20.0), PhaseDuration(Phase.LOADING, "weights", seconds)]
        ctx.history.record_start("of-old", "0123", "spark2", 1000.0, kind=kind, parts=parts)
    start, switch = replace(start, timeout=600.0), replace(switch, timeout=600.0)
    limits = await list_limits()
    for said in (limits[0], limits[2]):
        assert said.pop() == "--timeout 10 min is shorter than such a start took: 16 min 40 s"
    for said in limits:
        own, engine = sorted(said, key=len)
        assert own == "start.timeouts.loading 8 min is shorter than such a start took: 15 min"
        assert engine.startswith("VLLM_ENGINE_READY_TIMEOUT_S `600` is shorter than this start takes")
    took = ctx.history.find_longest_phases(profile)
    path = SHIPPED.find_profile_file("qwen36-vllm")
    assert not [
        one for one in lint_profile_file(SHIPPED, path, None, lambda _: took).diagnostics if one.kind == "time-limit"
    ]
    longer = lint_profile_file(SHIPPED, path, None, lambda _: took | {Phase.LOADING: 7200.0}).diagnostics
    assert [one.setting for one in longer if one.kind == "time-limit"] == ["start.timeouts.loading=240m"]


UNKNOWN_WEIGHTS = """\
schema: 1
name: llm
engine: vllm
image: vllm/vllm-openai:v0.21.0
model: {path: acme/Some-70B}
port: 8010
args: {gpu-memory-utilization: 0.7, max-model-len: 8192}
"""


def test_a_share_that_is_not_there_is_refused_although_the_weights_are_not_known(tmp_path: Path) -> None:
    file = tmp_path / "out.yaml"
    file.write_text(UNKNOWN_WEIGHTS)
    words = (str(file), "--node", "spark2")
    code, document = run_plan(*words, scenario="two-stacks")
    (node,) = document["nodes"]
    assert (code, node["answer"], node["stops"]) == (6, "if-stopped", ["qwen36-vllm"])
    assert node["commands"] == [f"sparkctl switch {file} --node spark2"]
    ran = run_demo("up", *words, scenario="two-stacks")
    assert (ran.returncode, ran.stdout) == (6, "")
    assert "fits on spark2 only if qwen36-vllm stops" in ran.stderr
    shown = run_demo("switch", *words, "--dry-run", scenario="two-stacks").stdout
    assert "qwen36-vllm stops, llm starts on spark2" in shown
    assert "is not known" in shown
    assert "to spare" not in shown
    code, document = run_plan(*words)
    assert (code, document["nodes"][0]["answer"]) == (0, "unknown"), "beside nothing the rest decides"


@pytest.mark.parametrize(
    ("profile", "setting", "scenario"),
    [
        ("gpt-oss-120b", "args.gpu-memory-utilization=0.2", "empty"),
        ("gpt-oss-120b", "args.gpu-memory-utilization=0.2", "two-stacks"),
        ("qwen36-vllm", "args.gpu-memory-utilization=0.97", "empty"),
        ("qwen36-ngram", f"{SHARE}=0.1", "empty"),
    ],
)
def test_the_lines_of_the_sum_add_up(profile: str, setting: str, scenario: str) -> None:
    shown = run_demo("plan", profile, "--node", "spark1", "--set", setting, scenario=scenario).stdout.splitlines()
    (need,) = [float(line.split()[0]) for line in shown if line.endswith("  together")]
    begin, end = (
        shown.index("spark1 has"),
        next(at for at, line in enumerate(shown) if re.search("  (left|short)", line)),
    )
    amounts = [float(line[:9]) for line in shown[begin + 1 : end] if line[:9].strip()]
    assert float(shown[end].split()[0]) == pytest.approx(sum(amounts) - need, abs=0.21), "\n".join(shown)
    short = [line.split()[0] for line in shown if re.match(" *-[0-9.]+  short", line)]
    assert shown[0].endswith(f"short by {short[-1][1:]} GiB")
    if len(short) > 1 or "  left" in shown[end]:
        assert "  short in its share: " in shown[end + 1], "why it is short of more than the sum says"
