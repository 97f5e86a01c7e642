"""A flag that was refused: the near one, the new one, or the engine that it belongs to."""

from __future__ import annotations

import re

import pytest

from sparkctl.logs.diagnosis import LogDiagnoser
from sparkctl.profiles.profile_lint import suggest_flag_name


@pytest.mark.parametrize(
    ("engine", "flag", "version", "says"),
    [
        ("sglang", "enable-prefix-caching", None, "vLLM"),
        ("sglang", "cuda-graph-max-bs", "0.5.23", "--cuda-graph-max-bs-decode"),
        ("sglang", "mem-fraction-statik", "0.5.12", "--mem-fraction-static"),
        ("vllm", "gpu-memory-utilisation", "0.19.1", "--gpu-memory-utilization"),
        ("vllm", "mem-fraction-static", "0.32.0", "SGLang"),
    ],
)
def test_a_refused_flag_suggests_the_near_one(engine: str, flag: str, version: str | None, says: str) -> None:
    assert says in (suggest_flag_name(engine, flag, version) or "")


def test_a_good_flag_and_an_engine_without_a_catalogue_say_nothing() -> None:
    assert suggest_flag_name("vllm", "gpu-memory-utilization", "0.19.1") is None
    assert suggest_flag_name("container", "howl", None) is None


def test_the_verdict_on_a_refused_flag_suggests_the_near_one() -> None:
    reading = LogDiagnoser()
    reading.feed_raw_line("vllm: error: unrecognized arguments: --gpu-memory-utilisation 0.8")
    verdict = reading.build_diagnosis().verdict
    assert verdict is not None
    assert "--gpu-memory-utilization" in verdict.remedy


def test_a_version_is_named_once() -> None:
    assert len(re.findall(r"\d+\.\d+\.\d+", suggest_flag_name("vllm", "temperature", None) or "")) == 1


def test_flags_of_another_version_are_said_to_be_those() -> None:
    assert "by the flags of" not in (suggest_flag_name("vllm", "gpu-memory-utilisation", "0.19.1") or "")
    assert "the newest that is known" in (suggest_flag_name("vllm", "gpu-memory-utilisation", None) or "")
    assert "the nearest to 0.19.9 that is known" in (
        suggest_flag_name("vllm", "gpu-memory-utilisation", "0.19.9") or ""
    )
