"""Every command that a verdict, a lint, a finding or another sentence can print is taken by the parser and by the Sparks."""

from __future__ import annotations

import ast
import re
import shlex
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from pathlib import Path

import pytest

import sparkctl
from sparkctl.cli.main import VERBS
from sparkctl.engines import load_engine
from sparkctl.engines.log_rules import FailureRule
from sparkctl.engines.traps import load_traps
from sparkctl.errors import InvalidInput
from sparkctl.files import shipped_profiles_dir
from sparkctl.logs.verdict_builder import suggest_field_change
from sparkctl.model.node import Node, NodeName
from sparkctl.model.verdict import ChangeDirection
from sparkctl.profiles.launch_planning import build_launch_plan
from sparkctl.profiles.profile_library import ProfileLibrary
from sparkctl.profiles.profile_lint import lint_profile, lint_profile_file
from sparkctl.profiles.setting_proof import SettingProof
from tests.support.run_command import run_demo
from tests.unit.commands.test_printed_commands import find_command, list_commands
from tests.unit.engines.trap_cases import PROFILE_CASES

SHIPPED = ProfileLibrary(user=shipped_profiles_dir() / "none")
USAGE, REFUSED, DEFECT = 2, 6, 70

# --- commands in sentences: what is filled in stands as ⟨x⟩ ---

_SPEAKING = ("engines", "logs", "monitor", "profiles", "commands", "views", "transport", "model")
_NODE_VERBS = ("setup", "free", "shell")
_SWITCH_VERBS = ("abort", "resume")  # ⟨x⟩ is " --node NAME"
# They wait for a person, for a long time, or for what is not there in a demo: the parser alone sees them.
_ONLY_PARSED = frozenset(
    {"bench", "init", "demo", "history show", "models remove", "resume", "abort", "shell", "tunnel"}
)
# Refused in the demo, and rightly: the simulated Sparks run no set-up; what the other sentence is about runs there already.
_REFUSED_THERE = frozenset({"setup --for trtllm-qwen3-235b"})
_ENDLESS = frozenset({"-f", "--watch", "--record"})


def fill_command(verb: str, rest: str) -> list[str] | None:
    """The words of a command with what a sentence would fill in, None for a command that is only named."""
    words: list[str] = []
    for word in rest.split():
        before = words[-1] if words else ""
        if verb == "profiles" and words[:1] == ["new"] and not word.startswith("-"):
            words.append("qwen36-vllm" if before == "--from" else "of-mine")
        elif before in ("--node", "-n", "--to", "--from"):
            words.append("spark2" if before == "--to" else "spark1")
        elif before == "--set":
            words.append(f"{word}2" if word.endswith("=") else word)
        elif before in ("--tail", "--record", "--as"):
            words.append(word)
        elif before == "--for":
            words.append("trtllm-qwen3-235b")
        elif word.startswith("-"):
            words.append(word)
        elif word == "⟨x⟩" or word.isupper():
            if before == "--resume" or (words[:1] == ["show"] and verb in ("bench", "history")):
                words.append("1")
                continue
            is_second = any(not one.startswith("-") for one in words) and verb not in ("profiles", "history", "models")
            if is_second or verb in _SWITCH_VERBS:
                words += ["--node", "spark1"]
            else:
                words.append("spark1" if verb in _NODE_VERBS else "1" if verb == "history" else "qwen36-ngram")
        elif word in SHIPPED.list_names() or (
            not words and verb in ("profiles", "guard", "images", "models", "history", "bench")
        ):
            words.append(word)
        else:
            break  # the sentence goes on
    return [verb, *words, "litellm"] if words[-1:] == ["--as"] else [verb, *words]


@cache
def list_filled_commands() -> dict[tuple[str, ...], str]:
    """Each command of a sentence once, with its place; a verb alone says nothing."""
    found: dict[tuple[str, ...], str] = {}
    for place, verb, rest in list_commands():
        if verb in VERBS and place.split("/")[0] in _SPEAKING and (words := fill_command(verb, rest)) is not None:
            found.setdefault(tuple(words), place)
    return {words: place for words, place in found.items() if len(words) > 1}


@pytest.mark.parametrize("quarter", range(4))
def test_the_commands_that_sentences_print_are_taken(quarter: int) -> None:
    """A quarter of them a test: the sentences are read when it runs, and not by every worker that collects."""
    found = sorted(list_filled_commands().items())[quarter::4]
    refused = [f"{place}: {' '.join(words)}: {why}" for words, place in found if (why := explain_refusal(words))]
    assert len(found) > 10
    assert refused == []


def explain_refusal(words: tuple[str, ...]) -> str:
    """Return why a command is not taken: a usage error, a refusal or a defect; empty for one that is."""
    verb, *rest = words
    is_endless = _ENDLESS & set(words)
    if verb in _ONLY_PARSED or " ".join(words[:2]) in _ONLY_PARSED or is_endless:
        command = find_command(verb, " ".join(rest))
        inner = rest[1:] if rest and command.name == rest[0] else rest
        # The command keeps its help option: here, too, it is that of the whole command line.
        command.make_context(
            verb,
            [one for one in inner if one != "show"] if verb == "bench" else inner,
            help_option_names=["-h", "--help"],
        )
        return ""
    # The whole check asks for a thousand tokens, which a demo makes no faster than a Spark.
    ran = run_demo(*words, *(("--basic",) if verb == "check" else ()), scenario="two-stacks")
    is_fault = ran.returncode in (USAGE, DEFECT) or (ran.returncode == REFUSED) != (" ".join(words) in _REFUSED_THERE)
    return f"exit {ran.returncode}: {ran.stderr}" if is_fault else ""


# --- settings that a lint or a trap names ---

ROOT = Path(sparkctl.__file__).parent
_VLLM, _SGLANG = "x/vllm:0.19.1", "x/sglang:0.5.12"
_DFLASH = "speculative-config: {method: dflash, model: x/Qwen3.5-35B-A3B-DFlash, num_speculative_tokens: 16}"
# A case for each place in the checks that names a setting: engine, image, args.
LINT_CASES = {
    "offload": ("vllm", _VLLM, "cpu-offload-gb: 10"),
    "sizes": (
        "sglang", _SGLANG,
        "speculative-algorithm: NEXTN, speculative-num-steps: 5, speculative-eagle-topk: 4, mem-fraction-static: 0.82",
    ),
    "workspace": (
        "sglang", _SGLANG,
        "speculative-algorithm: NEXTN, speculative-num-steps: 5, speculative-eagle-topk: 4, "
        "speculative-num-draft-tokens: 20, mem-fraction-static: 0.82",
    ),
    "fp4-cache": ("sglang", _SGLANG, "kv-cache-dtype: fp4_e2m1, attention-backend: flashinfer"),
    "share": ("vllm", _VLLM, "gpu-memory-utilization: 0.95"),
    "mamba": ("vllm", _VLLM, "mamba-block-size: 64, no-enable-prefix-caching: true"),
    "batch": ("vllm", "x/vllm:0.26.0", f"attention-backend: flash_attn, gpu-memory-utilization: 0.6, {_DFLASH}"),
    "backend": ("vllm", _VLLM, f"gpu-memory-utilization: 0.6, max-num-seqs: 4, {_DFLASH}"),
    "trtllm-share": ("trtllm", "x/trtllm:1.3.0", "kv_cache_free_gpu_memory_fraction: 0.95"),
}  # fmt: skip


def write_profile(path: Path, engine: str, image: str, model: str, fields: str) -> Path:
    told = [line.removeprefix("model.") for line in fields.splitlines() if line.startswith("model.")]
    lines = [line for line in fields.splitlines() if not line.startswith("model.")]
    spec = ", ".join([f"path: {model}", *told])
    ready = ["start: {ready_line: up}"] if engine == "container" else []
    head = ["schema: 1", "name: mine", f"engine: {engine}", f'image: "{image}"', f"model: {{{spec}}}", "port: 8123"]
    path.write_text("\n".join([*head, *lines, *ready, ""]))
    return path


def assert_settings_taken(file: Path) -> set[str]:
    """The settings that the check of a profile names are accepted by a start, and end what they were named for.

    With --force only where the profile itself does not fit, and what is named does not concern its memory.
    """
    library = ProfileLibrary(user=file.parent)
    found = [one for one in lint_profile_file(library, file).diagnostics if one.setting is not None]
    fits: bool | None = None
    for one in found:
        assert one.settings, f"{one.setting}: nothing is printed"
        changed = library.load_profile(str(file), one.settings)
        assert one.message not in [other.message for other in lint_profile(changed)], one.settings
        nodes = ["--node", "spark1", "--node", "spark2"][: 2 * changed.nodes]
        words = ["up", str(file), *nodes, "--dry-run"]
        fits = run_demo(*words).returncode == 0 if fits is None else fits
        takes_less = any("mem-fraction" in setting or "memory" in setting for setting in one.settings)
        ran = run_demo(*words, *list_set_words(one.settings), *(() if fits or takes_less else ("--force",)))
        assert ran.returncode == 0, f"{one.settings}: {ran.stderr}"
    return {one.message for one in found}


def list_set_words(settings: Iterable[str]) -> list[str]:
    return [word for one in settings for word in ("--set", one)]


@pytest.mark.parametrize("name", LINT_CASES)
def test_a_setting_that_a_check_names_is_taken(tmp_path: Path, name: str) -> None:
    engine, image, args = LINT_CASES[name]
    fields, model = f"args: {{{args}}}", "/models/Qwen3.5-35B-A3B-FP8"
    if name in ("sizes", "workspace"):  # the sum of its memory decides: a model that the demo's Sparks have
        fields = f"model.weights: 27GB\nmounts: [~/models:/models]\n{fields}"
        model = "/models/Qwen3.6-27B-FP8"
    file = write_profile(tmp_path / "mine.yaml", engine, image, model, fields)
    assert assert_settings_taken(file), "it names a setting"


_POSTED = """\
docker run -d --name sglang-qwen36 --gpus all --shm-size 16g --network host -v /home/milo/models:/models \
  scitrera/dgx-spark-sglang:0.5.12 python -m sglang.launch_server --model-path /models/Qwen3.6-27B-FP8 \
  --host 0.0.0.0 --port 8003 --served-model-name qwen3.6-27b --tp 1 --speculative-algorithm NEXTN \
  --speculative-num-steps 5 --speculative-eagle-topk 4 --mem-fraction-static 0.82 --trust-remote-code
"""


def test_the_settings_that_check_prints_of_the_posted_command_fit() -> None:
    output = run_demo("profiles", "check", "qwen36-as-posted").stdout
    (settings,) = re.findall(r"\((--set args\.speculative-num-draft-tokens=20[^)]*)\)", output)
    ran = run_demo("up", "qwen36-as-posted", "--node", "spark1", *settings.split(), "--dry-run")
    assert ran.returncode == 0, ran.stderr


def test_an_import_that_does_not_know_its_weights_leaves_the_settings_to_the_start(tmp_path: Path) -> None:
    """The draft tokens alone would not fit; the start knows the weights, and names the share with them."""
    (tmp_path / "posted.sh").write_text(_POSTED)
    mine = tmp_path / "mine.yaml"
    result = run_demo("profiles", "import", str(tmp_path / "posted.sh"), "--name", "mine", "-o", str(mine)).stderr
    assert "--set" not in result
    assert f"`sparkctl up {mine} --node NODE --dry-run` names the settings that fit" in result
    checked = run_demo("profiles", "check", str(mine)).stdout
    assert "TypeError (`sparkctl up PROFILE --node NODE --dry-run` names the settings that fit)" in checked
    offered = run_demo("up", str(mine), "--node", "spark1", "--dry-run").stderr
    (settings,) = re.findall(r"try: sparkctl up \S+ --node spark1 (--set .*)", offered)
    again = run_demo("up", str(mine), "--node", "spark1", *settings.split(), "--dry-run")
    assert again.returncode == 0, again.stderr


def names_a_setting(call: ast.Call) -> bool:
    if getattr(call.func, "id", getattr(call.func, "attr", "")) not in ("LintMessage", "report_flag", "report_value"):
        return False
    given = [*call.args[3:], *(one.value for one in call.keywords if one.arg == "setting")]
    return any(not (isinstance(one, ast.Constant) and one.value is None) for one in given)


def test_there_is_a_case_for_each_check_that_names_a_setting() -> None:
    calls = [
        node
        for path in (*ROOT.glob("engines/lint/*.py"), *ROOT.glob("engines/*/lint.py"))
        if path.name != "profile_flags.py"  # its two functions hand on what they are given
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call) and names_a_setting(node)
    ]
    assert len(calls) == len(LINT_CASES) + 1, "TensorRT-LLM has two for one share"


_SETTING_TRAPS = {one.name: one for one in load_traps() if one.setting is not None}


@pytest.mark.parametrize(
    "case", [one for one in PROFILE_CASES if one[0] in _SETTING_TRAPS], ids=lambda one: str(one[0])
)
def test_a_setting_that_a_trap_names_is_taken(tmp_path: Path, case: tuple[str, str, str, str, str]) -> None:
    name, engine, image, model, fields = case
    messages = assert_settings_taken(write_profile(tmp_path / "mine.yaml", engine, image, model, fields))
    begin = max(_SETTING_TRAPS[name].meaning.split("{value}"), key=len)
    assert any(begin in one for one in messages)


def test_each_trap_with_a_setting_has_a_case() -> None:
    assert _SETTING_TRAPS.keys() == {one[0] for one in PROFILE_CASES} & _SETTING_TRAPS.keys()


# --- changes that a verdict proposes ---

_OF_ENGINE = {
    "sglang": "qwen36", "vllm": "qwen36-vllm", "trtllm": "trtllm-gpt-oss-20b", "llamacpp": "llamacpp-gpt-oss-120b",
    "container": "kokoro-tts",
}  # fmt: skip
_SHARE_NAMES = ("fraction", "utilization", "ratio")


def list_changing_rules(engine: str) -> Iterator[FailureRule]:
    """The rules of an engine that change a field, each change once."""
    seen = set()
    for rule in load_engine(engine).log_rules.rules:
        key = (rule.field, rule.value, rule.change)
        if rule.field is not None and (rule.value or rule.change) and key not in seen:
            seen.add(key)
            yield rule


def list_proposals(engine: str) -> dict[tuple[str, ...], str]:
    """The commands that verdicts of this engine propose, as they print them: words after `up`, and the rule's pattern.

    A field that is to be lowered or raised has a value in the profile that failed; what an engine's own line tells is 4096, of a share 0.8.
    """
    found: dict[tuple[str, ...], str] = {}
    for rule in list_changing_rules(engine):
        field = "args.enforce-eager" if "{" in (rule.field or "") else rule.field or ""
        is_share = any(one in field for one in _SHARE_NAMES)
        told = "0.8" if is_share else "4096"
        value = None if rule.value is None else told if "{" in rule.value else rule.value
        before = []
        if (
            value is None
            and rule.change in (ChangeDirection.LOWER, ChangeDirection.RAISE)
            and field.startswith("args.")
        ):
            before = ["--set", f"{field}={'0.8' if is_share else '64'}"]
        name = _OF_ENGINE[engine]
        try:
            profile = SHIPPED.load_profile(name, before[1:])
        except InvalidInput:
            continue  # such a profile is refused before it can fail
        plan = build_launch_plan(
            profile,
            Node(name=NodeName("spark1"), host="spark1"),
            home="/home/milo",
            operator="milo",
            environ={},
        )
        change = suggest_field_change(plan, field, rule.change if value is None else ChangeDirection.SET, value)
        proved = None if change is None else SettingProof((name, *before), SHIPPED).prove_changes(change)
        if proved is not None:
            words = [word for one in proved for word in ("--set", one.set_argument)]
            found.setdefault((name, "--node", "spark1", *before, *words), rule.pattern)
    return found


@pytest.mark.parametrize("engine", sorted(_OF_ENGINE))
def test_a_change_that_a_verdict_proposes_is_taken(engine: str) -> None:
    proposals = list_proposals(engine)
    assert len(proposals) > 3, "its rules are read"
    fits = run_demo("up", _OF_ENGINE[engine], "--node", "spark1", "--dry-run").returncode == 0
    for words, pattern in proposals.items():
        ran = run_demo("up", *words, "--dry-run", *(() if fits else ("--force",)))
        assert ran.returncode == 0, f"{pattern}: up {' '.join(words)}: {ran.stderr}"


# --- commands that are put together from words: what plan, up, pull, sync and doctor say of a situation ---

_SPARKCTL = re.compile(r"\bsparkctl ([a-z][^\n`;]*?)(?=,? or (?:start|--)|, which| \(|; |[.,]?$)", re.MULTILINE)
_DRY_RUN_VERBS = frozenset({"up", "switch", "pull", "sync"})
# What is asked, in which scenario; each ends with a sentence that names a command.
SITUATIONS = {
    "plan-share": ("empty", "plan qwen36 --node spark1 --set args.mem-fraction-static=0.82"),
    "plan-fits": ("empty", "plan qwen36-as-posted --node spark1"),
    "plan-two": ("empty", "plan minimax-m27"),
    "plan-stops": ("two-stacks", "plan qwen36 --node spark1"),
    "plan-missing": ("fresh", "plan qwen36 --node spark1"),
    "up-full": ("two-stacks", "up qwen36 --node spark1"),
    "up-missing": ("fresh", "up qwen36 --node spark1"),
    "up-port": ("two-stacks", "up qwen36 --node spark1 --set port=8003"),
    "up-shares": ("two-stacks", "up orpheus-llm --node spark1 --set port=8003"),
    "up-image": ("empty", "up minimax-m27 --set image=x:missing-on-spark2"),
    "pull-built": ("fresh", "pull minimax-m27"),
    "pull-missing": ("fresh", "pull minimax-m27 --node spark1"),
    "switch-full": ("two-stacks", "switch qwen36 --node spark1 --set args.mem-fraction-static=0.95"),
}  # fmt: skip


def list_printed_commands(text: str) -> list[list[str]]:
    """The commands in what sparkctl wrote; one whose rest is to be filled in (an ellipsis, capitals) is only named."""
    found = [shlex.split(match[1]) for match in _SPARKCTL.finditer(text)]
    return [words for words in found if words[0] in VERBS and not any(word.isupper() or "…" in word for word in words)]


@pytest.mark.parametrize("name", SITUATIONS)
def test_a_command_that_an_answer_names_is_taken(name: str) -> None:
    scenario, asked = SITUATIONS[name]
    assert_printed_commands_taken(scenario, asked.split())


def test_the_calculation_of_a_profile_in_a_file_is_that_of_the_start(tmp_path: Path) -> None:
    text = (shipped_profiles_dir() / "qwen3-coder-next-dflash.yaml").read_text(encoding="utf-8")
    file = tmp_path / "mine.yaml"
    file.write_text(text.replace("name: qwen3-coder-next-dflash\n", "name: mine\n"), encoding="utf-8")
    setting = "args.gpu-memory-utilization=0.7"
    asked = ["up", str(file), "--node", "spark1", "--set", setting, "--dry-run"]
    named = assert_printed_commands_taken("empty", asked)
    assert ("plan", str(file), "--set", setting, "--node", "spark1") in named


def assert_printed_commands_taken(scenario: str, asked: Sequence[str]) -> set[tuple[str, ...]]:
    """Return the commands that an answer names; each is accepted."""
    result = run_demo(*asked, scenario=scenario)
    assert result.returncode not in (USAGE, DEFECT), result.stderr
    commands = {tuple(words) for words in list_printed_commands(result.stdout + result.stderr) if words[0] != "demo"}
    assert commands, result.stdout + result.stderr
    for words in commands:
        find_command(words[0], " ".join(words[1:]))
        if words[0] in _ONLY_PARSED | {"setup"}:
            continue
        again = run_demo(*words, *(["--dry-run"] if words[0] in _DRY_RUN_VERBS else []), scenario=scenario)
        is_missing = scenario == "fresh" and words[0] in ("up", "plan")  # the model is still to be pulled
        assert again.returncode not in (USAGE, DEFECT), f"{words}: {again.stderr}"
        assert is_missing or again.returncode != REFUSED, f"{words}: {again.stderr}"
    return commands
