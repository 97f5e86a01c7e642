"""A command that a warning, a refusal, a plan or a verdict proposes on the simulated Sparks is accepted there."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator
from subprocess import CompletedProcess
from typing import Any

import pytest

from tests.support.run_command import run_demo

_COMMAND = re.compile(r"(sparkctl (?:up|switch) [^\n]*?)(?=, or |   or |$)", re.MULTILINE)
_SHARES = {
    "qwen36": "args.mem-fraction-static", "qwen36-as-posted": "args.mem-fraction-static",
    "qwen36-ngram": "args.mem-fraction-static", "qwen36-vllm": "args.gpu-memory-utilization",
    "qwen35-35b-awq": "args.mem-fraction-static", "qwen35-35b-dflash": "args.gpu-memory-utilization",
    "qwen3-coder-next-dflash": "args.gpu-memory-utilization", "gpt-oss-120b": "args.gpu-memory-utilization",
    "qwen35-122b": "args.gpu-memory-utilization", "trtllm-gpt-oss-20b": "args.kv_cache_free_gpu_memory_fraction",
}  # fmt: skip


def list_texts(value: Any) -> Iterator[str]:
    """Every text in a JSON document."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for one in value.values():
            yield from list_texts(one)
    elif isinstance(value, list):
        for one in value:
            yield from list_texts(one)


def list_proposals(ran: CompletedProcess[str]) -> list[str]:
    """The commands with a change that the events of a run propose, without those that go on regardless."""
    texts = [text for line in ran.stdout.splitlines() for text in list_texts(json.loads(line))]
    found = [match[1] for text in texts for match in _COMMAND.finditer(text)]
    return list(dict.fromkeys(one for one in found if "--set" in one and "--force" not in one))


def assert_accepted(command: str, scenario: str = "empty") -> None:
    words = shlex.split(command)[1:]
    dry = run_demo(*words, "--dry-run", "--json", scenario=scenario)
    assert dry.returncode == 0, f"{command}: {dry.stdout[-400:]}"
    warned = [json.loads(line) for line in dry.stdout.splitlines() if '"event":"warning"' in line.replace(": ", ":")]
    assert not [one["message"] for one in warned if "does not fit" in one["message"] or "dies of" in one["message"]], (
        command
    )
    if words[0] == "up":
        assert run_demo("plan", *words[1:], scenario=scenario).returncode == 0, command


@pytest.mark.parametrize(("profile", "share"), sorted(_SHARES.items()))
def test_where_a_share_is_too_large_the_way_out_is_accepted(profile: str, share: str) -> None:
    asked = (profile, "--node", "spark1", "--set", f"{share}=0.99")
    proposals = {
        *list_proposals(run_demo("plan", *asked, "--json")),
        *list_proposals(run_demo("up", *asked, "--json", "--dry-run")),
    }
    for command in proposals:
        assert_accepted(command)
    if profile not in ("trtllm-gpt-oss-20b", "qwen36-as-posted"):
        assert proposals, "there is a share that fits"


def test_the_ways_out_of_the_post_s_line_are_accepted() -> None:
    (command,) = list_proposals(run_demo("up", "qwen36-as-posted", "--node", "spark1", "--dry-run", "--json"))
    assert "speculative-num-draft-tokens=20" in command
    assert_accepted(command)
    (other,) = list_proposals(
        run_demo("switch", "qwen36-as-posted", "--node", "spark1", "--dry-run", "--json", scenario="two-stacks")
    )
    assert other.startswith("sparkctl switch")
    assert_accepted(other, "two-stacks")


@pytest.mark.parametrize(
    "words",
    [
        ("qwen36-vllm", "--set", "env.SIM_FAULT=cuda-oom"),
        ("qwen36", "--set", "env.SIM_FAULT=cuda-oom"),
        ("qwen36-as-posted", "--set", "args.speculative-num-draft-tokens=20", "--force"),
        ("qwen36", "--set", "args.mem-fraction-static=0.95", "--force"),
        (
            "qwen3-coder-next-dflash",
            "--set",
            "args.gpu-memory-utilization=0.85",
            "--force",
            "--set",
            "env.SIM_FAULT=cuda-oom",
        ),
        ("qwen36-ngram", "--set", "env.SIM_FAULT=bad-flag"),
        ("qwen36-vllm", "--set", "env.SIM_FAULT=memory-runaway"),
        ("qwen36-vllm", "--set", "env.SIM_FAULT=oom-killed"),
    ],
)
def test_what_a_verdict_proposes_is_accepted(words: tuple[str, ...]) -> None:
    ran = run_demo("up", words[0], "--node", "spark1", *words[1:], "--json")
    for command in list_proposals(ran):
        assert_accepted(re.sub(r" --set env\.SIM_FAULT=\S+", "", command).replace(" --force", ""))
    verdict = json.loads(ran.stdout.splitlines()[-1]).get("verdict")
    if verdict and verdict["edit"] is not None:
        assert "--force" not in verdict["again"].split(), "what is proved needs none"
        assert f"{verdict['edit']['field']}={verdict['edit']['value']}" in verdict["again"], (
            "what is proposed is what is done"
        )


@pytest.mark.parametrize("scenario", ["two-stacks", "empty"])
@pytest.mark.parametrize("profile", ["qwen36", "qwen36-vllm"])
def test_a_switch_that_does_not_fit_offers_a_switch_that_does(profile: str, scenario: str) -> None:
    asked = ("switch", profile, "--node", "spark1", "--set", f"{_SHARES[profile]}=0.99", "--dry-run", "--json")
    ran = run_demo(*asked, scenario=scenario)
    assert ran.returncode == 6
    proposals = list_proposals(ran)
    assert proposals
    for command in proposals:
        assert command.startswith(f"sparkctl switch {profile} ")
        assert_accepted(command, scenario)
