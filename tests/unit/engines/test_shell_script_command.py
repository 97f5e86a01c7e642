"""A shell with its script is told from a command whose second word merely ends in c."""

from __future__ import annotations

import pytest

from sparkctl.engines.engine_flags import CommandFlags, find_shell_script


@pytest.mark.parametrize(
    ("command", "at"),
    [
        (("bash", "-c", "vllm serve m"), 2),
        (("/bin/bash", "-lc", "vllm serve m"), 2),
        (("sh", "-e", "-c", "vllm serve m"), 3),
        (("bash", "-c", "-i", "vllm serve m"), 3),  # the quick start of eugr/spark-vllm-docker
        (("bash", "-o", "pipefail", "-c", "vllm serve m"), 4),
        (("sh", "-c", 'ray start && exec "$@"', "sh", "vllm", "serve", "m"), 2),
        (("sglang-server", "--mem-fraction-static", "0.8"), None),
        (("vllm", "--disable-custom-all-reduc", "x"), None),
        (("llama-server", "-c", "8192"), None),
        (("bash", "run.sh", "-c"), None),
        (("bash", "-c"), None),
        ((), None),
    ],
)
def test_where_a_script_stands(command: tuple[str, ...], at: int | None) -> None:
    assert find_shell_script(command) == at


def test_the_flags_of_a_server_without_a_shell_are_read() -> None:
    assert CommandFlags(("sglang-server", "--mem-fraction-static", "0.8")).get_fraction("mem-fraction-static") == 0.8


def test_the_flags_behind_a_script_that_runs_them_are_read() -> None:
    head = CommandFlags(
        ("sh", "-c", 'ray start --head && exec "$@"', "sh", "vllm", "serve", "m", "--max-model-len", "8k")
    )
    assert head.get_served_model() == "m"
    assert head.get_count("max-model-len") == 8000
