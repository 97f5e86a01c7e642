"""Sources made to take forever are read, or refused, at once. A quadratic rule would run into pytest's timeout."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from sparkctl.errors import SparkctlError
from sparkctl.profiles.importers import recipe_reader, shell_parser
from tests.golden.running import run_command
from tests.unit.profiles.importers.import_text import import_and_check

MERGES = "b0: &b0 {k: 1}\n" + "".join(f"b{n}: &b{n} {{<<: [*b{n - 1}, *b{n - 1}]}}\n" for n in range(1, 60))
HEAD = "model: m\ncontainer: x/y:1\n"
TEXTS = {
    "merge keys": HEAD + MERGES,
    "depth": HEAD + "x: " + "[" * 20_000,
    "placeholders": HEAD + "command: '" + "{a0}" * 50 + "'\ndefaults:\n"
    + "".join(f"  a{n}: '{f'{{a{n + 1}}}' * 50}'\n" for n in range(30)),
    "dockers": "docker " * 15_000,
    "runs": "docker run " * 10_000,
    "quotes": "docker run x/y:1 " + "\"'" * 30_000,
    "dollars": "docker run x/y:1 " + "${a:-" * 10_000,
    "brackets": "docker run x/y:1 " + "$(" * 20_000,
    "spaces": "docker run x/y:1 bash -c '" + " \t\\\n" * 20_000 + "'",
    "dashes": "docker run " + "-e " * 40_000,
    "prompts": "user@host:~$ " * 8_000 + "docker run x/y:1",
    "braces": HEAD + "command: '" + "{" * 100_000 + "'\n",
    "words": HEAD + "command: vllm serve m " + "--a 1 " * 20_000 + "\n",
}  # fmt: skip


@pytest.mark.timeout(120)  # 2 s of CPU each: a bound for what never ends, beside whatever load
@pytest.mark.parametrize("name", TEXTS)
def test_an_endless_source_is_refused_in_time(name: str) -> None:
    origin = "x.yaml" if TEXTS[name].startswith("model") else "pasted"
    said = ""
    try:
        assert import_and_check(TEXTS[name], origin).profile.image == "x/y:1"
    except SparkctlError as error:
        said = error.message
    assert len(said) < 2_000  # what is wrong, not the source again


def test_values_that_refer_to_each_other_end() -> None:
    assert recipe_reader.fill_sparkrun_placeholders("{a}", {"a": "{b}", "b": "{a}"}).missing
    many = recipe_reader.fill_sparkrun_placeholders("{a}" * 10_000, {"a": "1"})
    assert many.text.startswith("1" * 1_000)
    assert many.missing == ("a",)


@pytest.mark.timeout(120)  # 2 s of CPU each: a bound for what never ends, beside whatever load
def test_shell_text_is_read_in_linear_time() -> None:
    assert len(shell_parser.parse_shell("a=b " * 30_000)[0].words) == 30_000


def test_what_is_nested_too_deep_is_an_error_with_its_place(tmp_path: Path) -> None:
    path = tmp_path / "deep.yaml"
    path.write_text("services:\n  llm:\n    image: x\n    command: " + "[" * 3000 + "]" * 3000 + "\n")
    run = run_command(f"profiles import {path}")
    assert (run.exit_code, run.stdout) == (2, "")
    assert re.search(r"deep\.yaml:4:\d+: nested deeper", run.stderr), run.stderr
    assert "recursion" not in run.stderr
