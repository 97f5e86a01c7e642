"""A failure's field becomes a value that can be tried, or none at all."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparkctl.engines import engine_names, load_engine
from sparkctl.logs.analyzer import LogAnalyzer
from sparkctl.logs.verdict_builder import build_verdict, suggest_field_change
from sparkctl.model.launch_plan import DEFAULT_FLOOR_BYTES, GuardRule, LaunchPlan, PhaseTimeouts, ReadinessRule
from sparkctl.model.node import NodeName
from sparkctl.model.text.log_line import LogLine
from sparkctl.model.verdict import DROP_CACHES_REMEDY, ChangeDirection, FieldChange
from sparkctl.profiles.validation import parse_setting

LOWER, RAISE, REMOVE, SET = ChangeDirection.LOWER, ChangeDirection.RAISE, ChangeDirection.REMOVE, ChangeDirection.SET
PLAN = LaunchPlan(
    node=NodeName("spark1"), instance="a", profile="a", profile_hash="0", engine="vllm", container_name="vllm-a",
    image="i", entrypoint=None, command=(), env=(), mounts=(), gpus=None, shm_size="16g", ipc=None, network="host",
    ulimits=(), devices=(), options=(("memory", "64m"),), labels=(), port=8003, served_model=None, api_key=None,
    ready=ReadinessRule(line=None, health=None), timeouts=PhaseTimeouts(), drop_caches=True, stop_grace=30, expected_memory=None,
    floor_memory=None, guard=GuardRule(floor=100 << 30),
)  # fmt: skip


def make_plan(*command: str) -> LaunchPlan:
    return replace(PLAN, command=command)


@pytest.mark.parametrize(("command", "field", "change", "value", "wanted"), [
    ("--mem-fraction-static 0.8", "args.mem-fraction-static", LOWER, None, ("0.72", "0.8", True)),
    ("--mem_fraction_static=0.8", "args.mem-fraction-static", LOWER, None, ("0.72", "0.8", True)),
    ("--mem-fraction-static 0.8", "args.mem-fraction-static", RAISE, None, ("0.85", "0.8", True)),
    ("--mem-fraction-static 0.85", "args.mem-fraction-static", RAISE, None, None),
    ("--mem-fraction-static 0.32", "args.mem-fraction-static", LOWER, None, ("0.3", "0.32", True)),
    ("--mem-fraction-static 0.3", "args.mem-fraction-static", LOWER, None, None),
    ("--max-model-len 131072", "args.max-model-len", LOWER, "74208", ("74208", "131072", False)),
    ("--max-model-len 131072", "args.max-model-len", LOWER, None, ("65536", "131072", True)),
    ("--max-num-seqs 1", "args.max-num-seqs", LOWER, None, None),
    ("--max-model-len 32k", "args.max-model-len", LOWER, None, ("16000", "32k", True)),
    ("--max-model-len auto", "args.max-model-len", LOWER, None, None),
    ("--gpu-memory-utilization 1", "args.gpu-memory-utilization", RAISE, None, None),
    ("--gpu-memory-utilization 1", "args.gpu-memory-utilization", LOWER, None, ("0.85", "1", True)),
    ("--kv_cache_free_gpu_memory_fraction 1", "args.kv_cache_free_gpu_memory_fraction", LOWER, None, ("0.85", "1", True)),
    ("", "args.max-model-len", LOWER, None, None),
    ("", "args.max-model-len", LOWER, "4096", ("4096", None, False)),
    ("--watchdog-timeout 300", "args.watchdog-timeout", RAISE, None, ("600", "300", True)),
    ("--howl 1", "args.howl", REMOVE, None, ("null", "1", False)),
    ("--quantization awq --enforce-eager", "args.quantization", SET, None, None),
    ("--trust-remote-code --tp 2", "args.trust-remote-code", SET, "true", ("true", None, False)),
    ("", "port", SET, None, ("8004", "8003", True)),
    ("", "start.timeouts.loading", RAISE, None, ("4800s", "2400s", True)),
    ("", "start.guard.floor", LOWER, None, (f"{DEFAULT_FLOOR_BYTES >> 20}m", str(100 << 30), True)),
    ("", "container.options.memory", REMOVE, None, ("null", "64m", False)),
    ("", "container.shm_size", RAISE, None, ("32g", "16g", True)),
    ("", "image", SET, None, None),
    ("", "model.path", None, None, None),
    ("", None, None, None, None),
])  # fmt: skip
def test_a_failure_suggests_a_value_to_try(
    command: str,
    field: str | None,
    change: ChangeDirection | None,
    value: str | None,
    wanted: tuple[str, str | None, bool] | None,
) -> None:
    found = suggest_field_change(make_plan(*command.split()), field, change, value)
    assert found == (None if wanted is None or field is None else FieldChange(field, wanted[0], wanted[1], wanted[2]))


@given(st.floats(0.01, 1.0).map(lambda x: f"{x:.3f}"), st.sampled_from([LOWER, RAISE]))
def test_a_guessed_share_moves_the_right_way_and_stays_where_a_spark_lives(was: str, change: ChangeDirection) -> None:
    found = suggest_field_change(make_plan("--gpu-memory-utilization", was), "args.gpu-memory-utilization", change)
    if found is None:
        return
    assert 0.3 <= float(found.value) <= 0.85
    assert (float(found.value) < float(was)) is (change is LOWER)
    assert parse_setting(found.set_argument)  # it is what --set takes


NO_MEMORY = "ValueError: Free memory on device cuda:0 (60.1/119.7 GiB) on startup is less than desired GPU memory utilization (0.8, 95.8 GiB)."


@pytest.mark.parametrize(("plan", "is_told"), [(PLAN, False), (replace(PLAN, drop_caches=False), True), (None, True)])
def test_the_page_cache_is_named_only_where_the_start_did_not_drop_it(plan: LaunchPlan | None, is_told: bool) -> None:
    analyzer = LogAnalyzer(engine=load_engine("vllm"), ready=PLAN.ready)
    analyzer.feed_lines([LogLine(when="", text=NO_MEMORY, number=1)])
    verdict = build_verdict(analyzer, plan)
    assert verdict is not None
    assert (DROP_CACHES_REMEDY in verdict.remedy) is is_told
    assert verdict.remedy.startswith("Stop what else holds memory on the node")
    assert "  " not in verdict.remedy


@pytest.mark.parametrize("engine", engine_names())
def test_a_remedy_names_the_page_cache_in_the_sentence_that_a_verdict_can_leave_out(engine: str) -> None:
    rules = load_engine(engine).log_rules
    for rule in () if rules is None else rules.rules:
        rest = rule.remedy.replace(DROP_CACHES_REMEDY, "")
        assert not re.search(r"drop (?!no ).{0,20}caches?", rest, re.IGNORECASE), rule.remedy


@pytest.mark.parametrize(
    ("command", "field"),
    [((), None), (("serve", "--max_lora_rank=16"), "args.max-lora-rank"), (("--other", "1"), None)],
)
def test_a_container_is_not_told_to_set_a_flag_that_it_was_not_given(
    command: tuple[str, ...], field: str | None
) -> None:
    analyzer = LogAnalyzer(engine=load_engine("container"), ready=PLAN.ready)
    refused = "ValueError: LoRA rank 64 is greater than max_lora_rank 16."
    analyzer.feed_lines([LogLine(when="", text=refused, number=1)])
    verdict = build_verdict(analyzer, replace(PLAN, engine="container", command=command))
    assert verdict is not None
    assert (verdict.field, verdict.edit is None) == (field, field is None)
    assert "args." not in verdict.remedy
