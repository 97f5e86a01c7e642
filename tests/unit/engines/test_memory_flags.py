"""Flags that decide: those that cannot be so are told, those that only a shell knows are not guessed."""

from __future__ import annotations

import pytest

from sparkctl.engines.engine_flags import CommandFlags
from sparkctl.engines.memory_estimate import find_invalid_memory_flag, find_unresolved_flag
from sparkctl.model.verdict import FieldChange


def find_flag_problem(engine: str, command: str) -> tuple[str, FieldChange] | None:
    return find_invalid_memory_flag(engine, CommandFlags(command.split()))


@pytest.mark.parametrize(
    ("engine", "command"),
    [
        ("sglang", "sglang serve --mem-fraction-static 0.8 --context-length 32768"),
        ("vllm", "vllm serve m --gpu-memory-utilization=1 --max-model-len 8k"),
        ("vllm", "vllm serve m --max-model-len auto"),
        ("vllm", "vllm serve m --max-model-len -1"),
        ("vllm", "vllm serve m --max-model-len 25.6K"),
        ("vllm", "vllm serve m --gpu-memory-utilization $SHARE"),
        ("llamacpp", "llama-server -c 0"),
        ("container", "serve --mem-fraction-static abc"),
    ],
)
def test_valid_memory_flags_are_accepted(engine: str, command: str) -> None:
    assert find_flag_problem(engine, command) is None


@pytest.mark.parametrize(
    ("engine", "flag", "value", "way"),
    [
        ("vllm", "gpu-memory-utilization", "80", "=0.8"),
        ("vllm", "gpu-memory-utilization", "85%", "=0.85"),
        ("vllm", "gpu-memory-utilization", "-1", "=0.8"),
        ("vllm", "gpu-memory-utilization", "nan", "=0.8"),
        ("vllm", "max-model-len", "banana", "=32768"),
        ("sglang", "mem-fraction-static", "0", "=0.8"),
        ("sglang", "context-length", "8k", "=32768"),
        ("trtllm", "kv_cache_free_gpu_memory_fraction", "2", "=0.8"),
        ("llamacpp", "ctx-size", "x", "=32768"),
    ],
)
def test_an_impossible_memory_flag_is_named_with_a_remedy(engine: str, flag: str, value: str, way: str) -> None:
    wrong = find_flag_problem(engine, f"serve --{flag} {value}")
    assert wrong is not None
    assert wrong[0].startswith(f"args.{flag} is {value}")
    assert wrong[1].set_argument == f"args.{flag}{way}"


def test_a_shell_variable_in_a_flag_is_unknown() -> None:
    assert (
        find_unresolved_flag("vllm", CommandFlags(["vllm", "serve", "--gpu-memory-utilization", "$SHARE"])) is not None
    )
    assert find_unresolved_flag("vllm", CommandFlags(["vllm", "serve", "--gpu-memory-utilization", "0.8"])) is None
