"""What hands type that know other tools; the options that every verb takes."""

from __future__ import annotations

import re

import pytest
import yaml

from sparkctl.cli.main import VERB_GROUPS, VERBS
from sparkctl.cli.options import VERB_ALIASES
from sparkctl.model.verdict import FailureCause
from sparkctl.profiles.profile_library import ProfileLibrary
from sparkctl.profiles.profile_lint import list_start_warnings
from tests.golden.running import run_command
from tests.golden.test_help import CONTEXTS


def test_each_verb_is_in_one_group_and_has_two_examples() -> None:
    assert sum(map(len, VERB_GROUPS.values())) == len(VERBS)
    for path, context in CONTEXTS.items():
        text = context.command.get_help(context)
        examples = [
            line for line in text.splitlines() if line.strip().startswith(("sparkctl ", "eval ", "bash: ", "zsh: "))
        ]
        if path.count(" ") == 1:
            assert len(examples) >= 2, path
    shown = set(re.findall(r"(?m)^  ([a-z-]+)  ", run_command("--help").stdout))
    assert set(VERBS) <= shown
    assert not set(VERB_ALIASES) & shown


@pytest.mark.parametrize(("line", "words"), [("version", "sparkctl "), ("help up", "Usage: sparkctl up"), ("-v", "sparkctl "),
                                             ("help stop", "Usage: sparkctl down"), ("help memory-fit", "# Will it fit?"),
                                             ("help bench", "sparkctl help bench page"), ("help bench page", "# Bench"),
                                             ("help permission", "use Docker. Do: Correct"),
                                             ("help exit-codes", "| 6 |"), ("help keys", "| `:` command |"),
                                             ("help profiles import", "Usage: sparkctl profiles import")])  # fmt: skip
def test_help_and_version(line: str, words: str) -> None:
    run = run_command(line)
    assert (run.exit_code, words in run.stdout) == (0, True)


def test_help_of_nothing_that_exists_is_refused() -> None:
    run = run_command("help statsu")
    assert (run.exit_code, "did you mean" in run.stderr) == (2, True)


def test_yaml_and_json_say_the_same() -> None:
    (document,) = run_command("profiles list --json").lines
    for line in ("profiles list -o yaml", "profiles list --output=yaml"):
        assert yaml.safe_load(run_command(line).stdout) == document
    assert run_command("profiles list -o json").stdout == run_command("profiles list --json").stdout
    assert run_command("profiles list -o banana").exit_code == 2
    refused = run_command("profiles show nothing -o json")
    assert '"outcome":"refused"' in refused.stdout


def test_colour_is_what_was_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "\x1b[" in run_command("profiles list --color=always").stdout
    assert "\x1b[" not in run_command("profiles list").stdout
    monkeypatch.setenv("CLICOLOR_FORCE", "1")
    assert "\x1b[" in run_command("profiles list").stdout
    assert "\x1b[" not in run_command("profiles list --color never").stdout
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b[" not in run_command("profiles list").stdout


def test_switch_continues_and_aborts_as_resume_and_abort_do() -> None:
    for line in ("switch --continue qwen36", "switch --abort --dry-run", "switch"):
        assert run_command(line).exit_code == 2


@pytest.mark.parametrize(
    ("name", "settings", "missing"),
    [
        ("qwen36-ngram", ["args.mem-fraction-statc=0.5"], ["--mem-fraction-statc"]),
        ("qwen36-ngram", ["args.mem-fraction-statc=0.5", "patched_flags=[mem-fraction-statc]"], [None]),
        ("qwen36-ngram", ["args.mem-fraction-statc=0.5", "image=own/sglang:latest", "engine_version=0.5.13"], [None]),
        ("qwen36-ngram", ["args.mem-fraction-statc=0.5", "image=own/sglang:latest"], [None]),
        ("qwen36-ngram", ["args.speculative-algorithm=WHATEVER"], [None]),
    ],
)  # fmt: skip
def test_only_a_flag_that_the_very_version_lacks_refuses(
    name: str, settings: list[str], missing: list[str | None]
) -> None:
    found = list_start_warnings(ProfileLibrary().load_profile(name, settings))
    assert [one.missing_flag for one in found if one.missing_flag] == [one for one in missing if one]


def test_each_cause_is_explained() -> None:
    for cause in FailureCause:
        run = run_command(f"help {cause}")
        assert (run.exit_code, " Do: " in run.stdout) == (0, True), cause


def test_a_number_after_n_is_no_node_but_a_number_of_lines() -> None:
    run = run_command("logs qwen36 -n 5")
    assert (run.exit_code, "--tail 5" in run.stderr) == (2, True)


def test_a_switch_cannot_be_continued_and_aborted_at_once() -> None:
    run = run_command("switch --continue --abort")
    assert (run.exit_code, "--continue takes no --abort" in run.stderr) == (2, True)
