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


@pytest.mark.parametrize(
    ("command", "at"),
    [
        ("bash -euo pipefail -c SCRIPT", 4),
        ("bash -ceuo pipefail SCRIPT", 3),
        ("bash --login -c SCRIPT", 3),
        ("bash --rcfile /x -c SCRIPT", 4),
        ("bash -o pipefail -o errexit -c SCRIPT", 6),
        ("bash +e -c SCRIPT", 3),
        ("bash -c -- SCRIPT", 3),
        ("bash -O extglob -c SCRIPT", 4),
        ("bash --login start.sh -c", None),
        ("bash -eo pipefail start.sh", None),
    ],
)
def test_the_script_of_a_shell_stands_after_its_options(command: str, at: int | None) -> None:
    assert find_shell_script(command.split()) == at


@pytest.mark.parametrize(
    ("text", "count"),
    [("131072", 131072), ("8k", 8000), ("8K", 8192), ("1M", 1 << 20), ("1m", 1_000_000), ("128.5k", 128_500),
     ("1.5K", 1536), ("2g", 2_000_000_000), ("auto", None), ("-1", None), ("8.5", None), ("k", None), ("999999999999T", None)],
)  # fmt: skip
def test_a_count_may_have_a_unit(text: str, count: int | None) -> None:
    assert CommandFlags(("vllm", "--max-model-len", text)).get_count("max-model-len") == count
