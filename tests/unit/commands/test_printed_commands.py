"""Every command that a sentence of sparkctl names is one that sparkctl takes; every flag that a remedy names, its engine's."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import click
import pytest

import sparkctl
from sparkctl.cli.main import VERBS, sparkctl_command
from sparkctl.cli.verbs.bench import BenchGroup
from sparkctl.engines import load_engine
from sparkctl.engines.engine_flags import list_versions, load_catalogue
from sparkctl.engines.log_rules import FailureRule
from sparkctl.engines.remedies import adapt_remedy
from sparkctl.files import shipped_profiles_dir

ENGINES = ("sglang", "vllm", "trtllm", "llamacpp")
ROOT = Path(sparkctl.__file__).parent
_COMMAND = re.compile(
    r"(?<![\w/.-])sparkctl (?P<verb>[a-z][a-z-]+)(?P<rest>(?: +(?:-{0,2}[\w./:=~…-]+|⟨\w*⟩|\[[^\]]*\]))*)"
)
_NAMED = re.compile(r"sparkctl(?![\w.])")  # other files have it in imports alone, and parsing them takes seconds
_FLAG = re.compile(r"(?<!\S)(--?[A-Za-z][\w-]*)")
_OTHER_ENGINE = re.compile(r"(?:vLLM|SGLang|TRT-LLM|llama\.cpp): ")
_ARGUMENT = re.compile(r"\bargs\.([A-Za-z][\w-]*)")


@cache
def list_sentences() -> list[tuple[str, str]]:
    """Every text in the package, its data and the shipped profiles, with the place; what is filled in stands as a word in angle brackets."""
    found = []
    for path in sorted(ROOT.rglob("*.py")):
        source = path.read_text(encoding="utf-8")
        if not _NAMED.search(source):
            continue
        nodes: list[ast.AST] = [ast.parse(source)]
        for node in nodes:
            text = None
            if isinstance(node, ast.JoinedStr):
                text = "".join(
                    part.value if isinstance(part, ast.Constant) and isinstance(part.value, str) else "⟨x⟩"
                    for part in node.values
                )
                nodes.extend(part for part in node.values if not isinstance(part, ast.Constant))
            elif isinstance(node, ast.Constant):
                text = node.value if isinstance(node.value, str) else None
            else:
                nodes.extend(ast.iter_child_nodes(node))
            if text and "sparkctl " in text:
                assert isinstance(node, ast.expr)
                found.append((f"{path.relative_to(ROOT)}:{node.lineno}", text))
    for path in (*sorted(ROOT.rglob("*.json")), *sorted(shipped_profiles_dir().glob("*.yaml"))):
        is_ours = path.is_relative_to(ROOT)
        text = re.sub(r"\n\s+", " ", path.read_text(encoding="utf-8"))
        found.append((f"{path.relative_to(ROOT) if is_ours else path.name}", text))
    return found


def list_commands() -> Iterator[tuple[str, str, str]]:
    for place, text in list_sentences():
        for match in _COMMAND.finditer(text):
            yield place, match["verb"], match["rest"]


def find_command(verb: str, rest: str) -> click.Command:
    command = sparkctl_command.get_command(click.Context(sparkctl_command), verb)
    assert command is not None
    for word in rest.split():
        if isinstance(command, click.Group) and word in command.commands:
            command = command.commands[word]
    return command.commands[command.default_command] if isinstance(command, BenchGroup) else command


def test_every_command_in_a_sentence_has_a_verb_and_flags_that_exist() -> None:
    wrong, seen = [], 0
    for place, verb, rest in list_commands():
        if verb not in VERBS:
            if rest.strip().startswith("-"):
                wrong.append(f"{place}: sparkctl {verb}{rest}")
            continue  # a sentence about sparkctl
        seen += 1
        command = find_command(verb, rest)
        names = {name for option in command.params for name in (*option.opts, *option.secondary_opts)} | {
            "--help",
            "-h",
        }
        inner = rest.partition(" docker ")[0] if verb == "profiles" else rest
        if verb != "demo":
            wrong += [
                f"{place}: sparkctl {verb}{rest}: {flag}"
                for flag in _FLAG.findall(inner)
                if flag.partition("=")[0] not in names
            ]
    assert seen > 100, "the texts are read"
    assert wrong == []


def list_known_flags(engine: str) -> set[str]:
    """The flags of every version that is known, as they stand in ``args``."""
    versions = [load_catalogue(engine, version) for version in list_versions(engine)]
    return {name.lstrip("-").replace("_", "-") for version in versions for name in version.by_name}


def list_flags(rule: FailureRule, every: set[str]) -> set[str]:
    """The flags that a remedy names: in ``args``, or as a word with dashes that is a flag of some engine."""
    found = _ARGUMENT.findall(rule.remedy)
    words = {word.lstrip("-") for word in _FLAG.findall(rule.remedy) if word.startswith("--")} - {"help", "model"}
    return {name.replace("_", "-") for name in found} | (words & every)


@pytest.mark.parametrize("engine", [*ENGINES, "container"])
def test_every_flag_of_a_remedy_is_one_of_its_engine(engine: str) -> None:
    known = {} if engine == "container" else list_known_flags(engine)
    every = {name for one in ENGINES for name in list_known_flags(one)}
    wrong = [
        f"{name} in {rule.remedy!r}"
        for rule in load_engine(engine).log_rules.rules
        if not _OTHER_ENGINE.search(rule.remedy)  # where none is known, all are named
        for name in list_flags(rule, every).difference(known)
    ]
    if engine != "container":  # a log of nobody is mostly of an engine that has the flag
        fields = {name for rule in load_engine(engine).log_rules.rules for name in _ARGUMENT.findall(rule.field or "")}
        wrong += [name for name in fields if name.replace("_", "-") not in known]
    assert wrong == []


@pytest.mark.parametrize("engine", [*ENGINES, "container"])
def test_no_remedy_keeps_a_part_that_is_marked_for_an_engine(engine: str) -> None:
    assert [rule.remedy for rule in load_engine(engine).log_rules.rules if re.search(r"<[\w.-]+:", rule.remedy)] == []


@pytest.mark.parametrize(
    ("engine", "remedy"),
    [
        ("vllm", "Take another. Set args.moe-backend: marlin."),
        ("trtllm", "Take another."),
        ("container", "Take another. vLLM: set args.moe-backend: marlin. SGLang: DeepGEMM is off."),
    ],
)
def test_a_remedy_says_what_helps_in_its_engine(engine: str, remedy: str) -> None:
    text = "Take another. <vLLM: Set args.moe-backend: marlin.> <SGLang: DeepGEMM is off.>"
    assert adapt_remedy(text, engine) == remedy


def test_a_flag_that_a_program_does_not_have_is_told_in_words() -> None:
    text = "Set args.tensor-parallel-size to 1, or args.dtype. Set args.host: 0.0.0.0, which is every address."
    words = "Set args.tp_size to 1, or its dtype. Set its host to 0.0.0.0, which is every address."
    assert adapt_remedy(text, "trtllm", {"tensor-parallel-size": "tp_size"}) == words
    assert adapt_remedy("Set args.host: 0.0.0.0.", "trtllm", {"host": "host"}) == "Set args.host: 0.0.0.0."
