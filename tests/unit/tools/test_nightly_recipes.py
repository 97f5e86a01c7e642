"""The nightly comparison can fail: what is lost or changed in a launch is seen."""

from __future__ import annotations

import pytest

from tests.tools.nightly.recipes import describe_difference, own_command

OWN = ["vllm", "serve", "m", "-tp", "2", "--graph", "1", "2", "--json", '{"a": 1}', "--x=y"]
SAME = ["vllm", "serve", "m", "--host", "0.0.0.0", "--port", "8000", "--tensor-parallel-size", "2", "--json", '{"a":1}', "--x", "y",
        "--graph", "1", "2"]  # fmt: skip


def test_flag_order_is_no_difference() -> None:
    assert describe_difference(OWN, SAME) is None


@pytest.mark.parametrize(
    "changed",
    [SAME[:-1], [*SAME, "--more"], ["vllm", "serve", "n", *SAME[3:]], [word.replace("1}", "2}") for word in SAME],
     [word.replace("0.0.0.0", "10.0.0.1") for word in SAME]],
)  # fmt: skip
def test_a_changed_launch_is_a_difference(changed: list[str]) -> None:
    assert describe_difference(OWN, changed) is not None


def test_placeholders_are_filled_by_the_tools_rules() -> None:
    one = {"recipe_version": "1", "command": "a {b} '{{\"c\":1}}'", "defaults": {"b": 0.70}}
    assert own_command(one) == ["a", "0.7", '{"c":1}']
    two = {"model": "m", "command": "a {model} {b} \\ \n '{\"c\":{}}'", "defaults": {"b": "{model}"}}
    assert own_command(two) == ["a", "m", "m", '{"c":{}}']


def test_a_command_that_its_own_tool_cannot_fill_in_is_not_compared() -> None:
    assert own_command({"recipe_version": "1", "command": "vllm serve m --json '{\"a\": 1}'"}) is None


@pytest.mark.parametrize("server", ["vllm serve m", "python3 -m sglang.launch_server --model-path m"])
def test_a_models_revision_is_told_to_the_engine(server: str) -> None:
    asked = {"model": "m", "model_revision": "abc", "command": server}
    assert own_command(asked) == [*server.split(), "--revision", "abc"]
    assert own_command(asked | {"command": f"{server} --revision x"}) == [*server.split(), "--revision", "x"]
    assert own_command(asked | {"command": "llama-server -m m"}) == ["llama-server", "-m", "m"]


def test_vllms_model_is_the_same_as_a_flag() -> None:
    assert (
        describe_difference(["vllm", "serve", "--model", "m", "-tp", "2"], ["vllm", "serve", "m", "-tp", "2"]) is None
    )
    assert describe_difference(["vllm", "serve", "--model", "m"], ["vllm", "serve", "n"]) is not None
