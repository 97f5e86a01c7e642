"""What hands type that know other tools; the options that every verb takes."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from sparkctl.cli.help_formatter import fit_example_lines
from sparkctl.cli.invocation import find_document_format
from sparkctl.cli.main import VERB_GROUPS, VERBS
from sparkctl.cli.options import COPY_HINT, OPTION_HINTS, SUBCOMMAND_ALIASES, VERB_ALIASES, VERB_HINTS
from sparkctl.cli.verbs.help import format_page
from sparkctl.files import docs_dir
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
            line for line in text.splitlines() if re.match(r" +(?:[A-Z]+=\S+ )?(?:sparkctl|eval|bash:|zsh:) ", line)
        ]
        assert len(examples) >= 2, path
    shown = set(re.findall(r"(?m)^  ([a-z-]+)  ", run_command("--help").stdout))
    assert set(VERBS) <= shown
    assert not set(VERB_ALIASES) & shown


@pytest.mark.parametrize(("line", "words"), [("version", "sparkctl "), ("help up", "Usage: sparkctl up"), ("-v", "sparkctl "),
                                             ("help stop", "Usage: sparkctl down"), ("help memory-fit", "# Will it fit?"),
                                             ("help bench", "sparkctl help bench page"), ("help bench page", "# Bench"),
                                             ("help permission", "use Docker. Do: Correct"),
                                             ("help exit-codes", "| 6 |"),
                                             ("help topics", "Topics: "), ("help history show", "Usage: sparkctl history"),
                                             ("help stuck-clock", "What to do: Shut down"), ("help drafts-rejected", "All findings: "),
                                             ("help keys", "| `:` command |"),
                                             ("help profiles import", "Usage: sparkctl profiles import")])  # fmt: skip
def test_help_and_version(line: str, words: str) -> None:
    run = run_command(line)
    assert (run.exit_code, words in run.stdout) == (0, True)


@pytest.mark.parametrize(
    ("words", "asks"),
    [("exec q -- tool --json", False), ("exec q -- tool -o json", False), ("up q --json", True), ("status -o yaml", True),
     ("status -o wide", False)],
)  # fmt: skip
def test_the_words_of_another_command_ask_for_nothing(words: str, asks: bool) -> None:
    assert (find_document_format(words.split()) is not None) is asks


def test_help_of_nothing_that_exists_is_refused() -> None:
    run = run_command("help statsu")
    assert (run.exit_code, "did you mean" in run.stderr) == (2, True)
    for words in ("up extra", "history show extra"):
        run = run_command(f"help {words}")
        assert (run.exit_code, run.stdout, f"did you mean `{words.split()[0]}`?" in run.stderr) == (2, "", True)


def test_a_number_that_no_entry_has_is_named() -> None:
    run = run_command("history 99999999999999999999")
    assert (run.exit_code, "the history has no entry 99999999999999999999" in run.stderr) == (2, True)


def test_yaml_and_json_say_the_same() -> None:
    (document,) = run_command("profiles list --json").lines
    for line in ("profiles list -o yaml", "profiles list --output=yaml"):
        assert yaml.safe_load(run_command(line).stdout) == document
    assert run_command("profiles list -o json").stdout == run_command("profiles list --json").stdout
    assert run_command("profiles list -o banana").exit_code == 2
    refused = run_command("profiles show nothing -o json")
    assert '"outcome":"refused"' in refused.stdout
    for line in ("profiles show nothing -o yaml", "get qwen36 --output=yaml"):
        assert yaml.safe_load(run_command(line).stdout)["outcome"] == "refused"


def test_a_comparison_without_measurements_names_the_command_that_makes_them() -> None:
    run = run_command("bench compare never-one never-two")
    assert (run.exit_code, "try: sparkctl bench never-one never-two --start" in run.stderr) == (2, True)


def test_colour_is_what_was_asked_for(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert "\x1b[" in run_command("profiles list --color=always").stdout
    assert "\x1b[" not in run_command("profiles list").stdout
    monkeypatch.setenv("CLICOLOR_FORCE", "1")
    assert "\x1b[" in run_command("profiles list").stdout
    assert "\x1b[" not in run_command("profiles list --color never").stdout
    checked = tmp_path / "wrong.yaml"
    checked.write_text("schema: 1\nname: wrong\nextends: qwen36-vllm\nargs: {max-num-seqs: banana}\n")
    assert re.search("\x1b\\[\\d+merror\x1b", run_command(f"profiles check {checked} --color=always").stdout)
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
        ("qwen36-ngram", ["args.mem-fraction-statc=0.5", "image=own/sglang:latest", "engine_version=0.5.13"], ["--mem-fraction-statc"]),
        ("qwen36-ngram", ["args.mem-fraction-statc=0.5", "image=own/sglang:latest", "engine_version=0.5.99"], [None]),
        ("qwen36-ngram", ["args.mem-fraction-statc=0.5", "image=own/sglang:latest"], [None]),
        ("qwen36-ngram", ["args.speculative-algorithm=NGRAMM"], ["--speculative-algorithm"]),
        ("qwen36-ngram", ["args.speculative-algorithm=NGRAMM", "engine_version=0.5.99"], [None]),
        ("qwen36-ngram", ["args.tp=two"], ["--tensor-parallel-size"]),
        ("qwen36-ngram", ["args.tp=two", "patched_flags=[tensor-parallel-size]"], [None]),
        ("qwen36-ngram", ["args.tp=two", "patched_flags=[tp]"], [None]),
        ("qwen36-ngram", ["args.quantization=bogus"], ["--quantization"]),
        ("qwen36-vllm", ["args.max-num-seqs=banana"], ["--max-num-seqs"]),
        ("qwen36-vllm", ["args.max-num-seqs=banana", "patched_flags=[max-num-seqs]"], [None]),
        ("qwen36-vllm", ["args.max-num-seqs=true"], ["--max-num-seqs"]),
        ("qwen36-vllm", ["args.kv-cache-dtype=fp9"], ["--kv-cache-dtype"]),
        # a plug-in, a later build, or the checkpoint's own setting may make it right
        ("qwen36-vllm", ["args.tool-call-parser=nope"], [None]),
        ("qwen36-vllm", ["args.kv-cache-dtype=nvfp4"], [None]),
        ("qwen36-vllm", ["args.quantization=bogus"], [None]),
    ],
)  # fmt: skip
def test_only_a_flag_that_the_very_version_does_not_take_refuses(
    name: str, settings: list[str], missing: list[str | None]
) -> None:
    found = list_start_warnings(ProfileLibrary().load_profile(name, settings))
    assert [one.refused_flag for one in found if one.refused_flag] == [one for one in missing if one]


def test_a_new_profile_is_checked_before_it_is_written() -> None:
    new = "profiles new checked --from qwen36-vllm --set args."
    refused = run_command(f"{new}max-num-seqs=banana")
    assert (refused.exit_code, refused.stdout) == (2, "")
    assert "wants a whole number, not `banana`" in refused.stderr
    assert "patched" not in refused.stderr, "no patch makes a number of it"
    warned = run_command(f"{new}tool-call-parser=nope")
    assert (warned.exit_code, "does not take `nope`" in warned.stderr) == (0, True)


@pytest.mark.parametrize(
    ("line", "ways"),
    [
        ("run Qwen/Qwen3-8B", ["plan hf:Qwen/Qwen3-8B", "profiles new qwen3-8b --from hf:Qwen/Qwen3-8B"]),
        ("profiles show hf:Qwen/Qwen3-8B", ["plan hf:Qwen/Qwen3-8B", "profiles new qwen3-8b --from hf:Qwen/Qwen3-8B"]),
        ("plan openai/gpt-oss-120b", ["plan gpt-oss-120b"]),
    ],
)
def test_a_model_of_the_hub_where_a_profile_is_wanted_is_answered_with_the_way(line: str, ways: list[str]) -> None:
    run = run_command(line)
    assert (run.exit_code, "is a model of the Hugging Face Hub" in run.stderr) == (2, True), run.stderr
    assert [way for way in ways if f"sparkctl {way}\n" not in run.stderr] == [], run.stderr


def test_a_model_of_the_hub_becomes_a_profile() -> None:
    run = run_command("profiles new q8 --from hf:Qwen/Qwen3-8B --set args.max-model-len=4096")
    assert (run.exit_code, "next: sparkctl plan q8" in run.stderr) == (0, True)
    profile = ProfileLibrary().load_profile("q8")
    assert (profile.model.source, dict(profile.args)["max-model-len"]) == ("hf:Qwen/Qwen3-8B", "4096")
    assert run_command("profiles check q8").exit_code == 0


@pytest.mark.parametrize(
    ("line", "ways"),
    [
        ("history show", ["history"]),
        ("switch", ["switch PROFILE --node NODE", "switch --continue"]),
        ("help cuda-oom", ["help cuda-out-of-memory"]),
        ("help memroy-fit", ["help memory-fit"]),
    ],
)
def test_a_refusal_names_what_to_type_instead(line: str, ways: list[str]) -> None:
    run = run_command(line)
    assert run.exit_code == 2
    assert [way for way in ways if f"try: sparkctl {way}" not in run.stderr] == [], run.stderr


def test_each_cause_is_explained() -> None:
    for cause in FailureCause:
        run = run_command(f"help {cause}")
        assert (run.exit_code, " Do: " in run.stdout) == (0, True), cause


@pytest.mark.parametrize(
    ("line", "hint"),
    [("-n spark1 ps -q", "try: sparkctl ps -q -n spark1"), ("free qwen36", "try: sparkctl down qwen36"),
     ("strat x", "did you mean `up`?"), ("logz", "did you mean `logs`?"), ("kil x", "did you mean `down --kill`?"),
     ("why x", "try: sparkctl diagnose NAME"), ("qwen36", "try: sparkctl up qwen36"), ("--json status", "try: sparkctl status --json"),
     ("logs q -n 5", "try: sparkctl logs q --tail 5"), ("top qwen36", "try: sparkctl status qwen36 --watch"),
     ("cp a b", "for example: sparkctl sync minimax-m27 --from spark1 --to spark2\n"),
     ("docker --format json", "sparkctl status NAME")],
)  # fmt: skip
def test_an_order_of_words_of_other_tools_is_answered_with_ours(line: str, hint: str) -> None:
    run = run_command(line)
    assert (run.exit_code, hint in run.stderr) == (2, True), run.stderr


@pytest.mark.parametrize(
    "line",
    ["describe node x", "systemctl status x", "docker ps", "ps --format json", "logs -f", "port x", "kill x --dry-run"],
)
def test_words_of_other_tools_are_read_as_ours(line: str) -> None:
    assert "no config exists yet" in run_command(line).stderr  # nothing was wrong with the words


def test_a_number_after_n_is_no_node_but_a_number_of_lines() -> None:
    run = run_command("logs qwen36 -n 5")
    assert (run.exit_code, "--tail 5" in run.stderr) == (2, True)
    assert "sparkctl top --once" in run_command("top -n 1").stderr


def test_a_switch_cannot_be_continued_and_aborted_at_once() -> None:
    run = run_command("switch --continue --abort")
    assert (run.exit_code, "--continue takes no --abort" in run.stderr) == (2, True)


@pytest.mark.parametrize("path", list(CONTEXTS))
@pytest.mark.parametrize("columns", [60, 80, 120])
def test_help_is_no_wider_than_the_terminal(path: str, columns: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    run = run_command(f"{path.removeprefix('sparkctl')} --help")
    assert run.exit_code == 0
    assert [line for line in run.stdout.splitlines() if len(line) > columns] == []


def test_a_long_example_goes_on_with_a_backslash_and_stays_the_same_command() -> None:
    line = "  sparkctl up qwen36 --node spark1 --set 'args.a=b c d e f' --dry-run    looks only"
    found = fit_example_lines([line, "  sparkctl ps   short"], 40)
    assert found[-1] == "  sparkctl ps   short"
    assert "      looks only" in found
    command = [row for row in found[:-1] if row.strip() != "looks only"]
    assert all(len(row) <= 40 for row in found)
    assert all(row.endswith(" \\") for row in command[:-1])
    words = " ".join(row.removesuffix("\\").strip() for row in command)
    assert words == "sparkctl up qwen36 --node spark1 --set 'args.a=b c d e f' --dry-run"


@pytest.mark.parametrize(("line", "same"), [
    ("profiles ls", "profiles list"), ("profiles", "profiles list"), ("profiles -o json", "profiles list -o json"), ("profile ls", "profiles list"),
    ("history ls", "history"), ("bench ls", "bench list"), ("bench", "bench list"),
    ("profiles cat qwen36", "profiles show qwen36"), ("validate qwen36-vllm", "profiles check qwen36-vllm"),
    ("images rm --help", "images remove --help"), ("rmi --help", "images remove --help"), ("models rm --help", "models remove --help"),
    ("profiles mv --help", "profiles rename --help"), ("edit --help", "profiles edit --help"),
    ("help profiles rm", "help profiles remove"), ("help edit", "help profiles edit"),
])  # fmt: skip
def test_words_of_other_tools_do_the_same(line: str, same: str) -> None:
    run, expected = run_command(line), run_command(same)
    assert (run.exit_code, run.stdout, run.stderr) == (expected.exit_code, expected.stdout, expected.stderr)
    assert run.exit_code == 0


def test_words_below_a_verb_are_in_no_help() -> None:
    names = {path.rpartition(" ")[2] for path in CONTEXTS}
    assert not names & set(SUBCOMMAND_ALIASES) - set(VERBS) - set(CONTEXTS)
    assert set(SUBCOMMAND_ALIASES.values()) <= names


@pytest.mark.parametrize(("line", "hint"), [
    ("show x", "sparkctl profiles show NAME"), ("attach x", "sparkctl logs NAME --follow"), ("tag", "docker"),
    ("wait x", "sparkctl up PROFILE waits"), ("config", "sparkctl init"), ("du", "sparkctl models"), ("help attach", "sparkctl logs NAME --follow"),
    ("images prune", "sparkctl images remove --old-builds"), ("why x", "sparkctl diagnose NAME"),
    ("profiles lsit", "did you mean `list`?"), ("images lst", "sparkctl images --help"),
    ("systemctl mask x", "sparkctl status NAME"), ("is-active x", "sparkctl status NAME"), ("scale x", "sparkctl up PROFILE --node NODE"),
])  # fmt: skip
def test_a_word_without_a_command_says_what_to_type(line: str, hint: str) -> None:
    run = run_command(line)
    assert (run.exit_code, run.stdout, hint in run.stderr) == (2, "", True), run.stderr


def test_another_tools_option_says_what_to_type_and_not_what_only_looks_alike() -> None:
    for (verb, option), hint in OPTION_HINTS.items():
        run = run_command(f"{verb} {option} x")
        assert (run.exit_code, run.stdout, hint.splitlines()[0] in run.stderr) == (2, "", True), run.stderr
        assert "Did you mean" not in run.stderr
    assert ("setup", "--node") in OPTION_HINTS, "click proposes --undo, which is the opposite"
    assert COPY_HINT.splitlines()[0] in run_command("cp a b").stderr


def test_a_hint_names_commands_that_exist() -> None:
    hints = (*VERB_HINTS.values(), *OPTION_HINTS.values(), COPY_HINT)
    named = {word for hint in hints for word in re.findall(r"sparkctl ([a-z-]+)", hint)}
    assert named <= set(VERBS) | {"--plain", "--replay"}
    assert not set(VERB_HINTS) & (set(VERBS) | set(VERB_ALIASES))


def test_a_cable_needs_some_seconds_to_come_up() -> None:
    run = run_command("setup --dry-run --cable-timeout 1s")
    assert (run.exit_code, "at least 10s" in run.stderr) == (2, True)


@pytest.mark.parametrize("line", ["exec qwen36", "exec -it qwen36 --"])
def test_exec_without_a_command_gives_an_example(line: str) -> None:
    run = run_command(line)
    assert (run.exit_code, run.stdout) == (2, "")
    assert "sparkctl exec qwen36 -- nvidia-smi" in run.stderr


PAGE = """# A page

A paragraph whose **first** line ends here and
goes on with `sparkctl up qwen36 --node spark1`, [a link](panel.md#keys) and more words than fit.

![a picture](../x.svg)

- an item that is longer than the line of
  a small terminal

```sh
sparkctl up qwen36 --node spark1   # a comment that does not fit beside it
```

```console
as it is, however wide that may be in the end
```

| what | why |
| --- | --- |
| a \\| b | short |
""".splitlines()


def test_a_page_is_set_for_the_width_of_the_terminal() -> None:
    assert format_page(PAGE, 40) == [
        "A page", "",
        "A paragraph whose first line ends here", "and goes on with", "`sparkctl up qwen36 --node spark1`, a", "link and more words than fit.", "",
        "- an item that is longer than the line", "  of a small terminal", "",
        "    sparkctl up qwen36 --node spark1", "        # a comment that does not fit", "        beside it", "",
        "    as it is, however wide that may be in the end", "",
        "what   why", "a | b  short",
    ]  # fmt: skip
    assert format_page(PAGE[-3:], 11) == ["a | b", "    short"]


@pytest.mark.parametrize("topic", sorted(page.stem for page in docs_dir().glob("*.md") if page.stem != "README"))
def test_no_sentence_of_a_page_is_wider_than_the_terminal(topic: str) -> None:
    """What a reader copies stays whole: an address, a path, a quoted command, an example of output."""
    lines = (docs_dir() / f"{topic}.md").read_text(encoding="utf-8").splitlines()
    for columns in (60, 80, 120):
        wide = [row for row in format_page(lines, columns) if len(row) > columns and not row.startswith("    ")]
        assert [row for row in wide if " " in re.sub("`[^`]*`", "", row).strip()] == []


def test_logs_completes_what_is_stopped_and_has_a_saved_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARKCTL_STATE", str(tmp_path))
    for name in ("qwen36-old", "other"):
        (tmp_path / "logs" / name / "spark1").mkdir(parents=True)
    for verb in ("logs", "diagnose"):
        command = CONTEXTS[f"sparkctl {verb}"].command
        found = command.params[0].shell_complete(CONTEXTS[f"sparkctl {verb}"], "qwen36-o")
        assert "qwen36-old" in [one.value for one in found]
        assert "other" not in [one.value for one in found]
