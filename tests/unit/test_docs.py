"""README.md and docs/ say what the code does: tables, commands, links, examples, file names."""

from __future__ import annotations

import io
import itertools
import re
import shlex
import tomllib
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path

import click
import pytest

from sparkctl.cli.main import VERBS, sparkctl_command
from sparkctl.cli.verbs.bench import BenchGroup
from sparkctl.cli.verbs.demo import SCENARIOS
from sparkctl.commands.diagnose_file import diagnose_bytes
from sparkctl.commands.images import ImageUse, NodeImages
from sparkctl.commands.stored_models import NodeModels, StoredModel
from sparkctl.config import load_config
from sparkctl.engines.lint import LintRule
from sparkctl.engines.simulation.engine_launch import EngineFault
from sparkctl.errors import ExitCode
from sparkctl.model.bench import BenchCell, BenchRun, BenchSetup
from sparkctl.model.events import EVENT_TYPES
from sparkctl.model.finding import FindingKind
from sparkctl.model.node import Node
from sparkctl.model.verdict import FailureCause
from sparkctl.profiles.profile_library import ProfileLibrary
from sparkctl.views.diagnosis_view import build_diagnosis_json
from tests.tools.docs import words
from tests.tools.docs.blocks import blocks
from tests.tools.docs.pages import DOCS, ROOT, block_names, outdated_blocks, owner_pages, refresh

_FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_INLINE = re.compile(r"`(sparkctl [^`]+)`")
_COMMAND = re.compile(r"(?:^|[\s/])(sparkctl(?: .*)?)$")
_SUBSTITUTION = re.compile(r"\$\((sparkctl [^)]+)\)")
_LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)")
_HEADING = re.compile(r"^#{1,6} (.+)$", re.MULTILINE)
_PLACEHOLDER = re.compile(r"(?:^|[ =@/])(?:[A-Z][A-Z_]+|[A-Z])\b|\.\.\.|\[|…")
_BLOCKS = blocks()

PAGES = owner_pages()
ALL_PAGES = [*PAGES, DOCS / "architecture.md", DOCS / "what-was-tried.md", ROOT / "CONTRIBUTING.md"]


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


# --- generated tables ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_generated_tables_are_current(page: Path) -> None:
    outdated = outdated_blocks(page.read_text(encoding="utf-8"), _BLOCKS)
    assert not outdated, "python -m tests.tools.docs --write"


def test_each_generated_table_is_on_one_page() -> None:
    used = [name for page in PAGES for name in block_names(page.read_text(encoding="utf-8"))]
    assert sorted(used) == sorted(_BLOCKS)
    marks = sum(page.read_text(encoding="utf-8").count("<!-- generated: ") for page in PAGES)
    assert marks == len(used) + 1  # docs/README.md quotes the mark once


def test_an_outdated_table_is_named_and_rewritten() -> None:
    page = "before\n<!-- generated: exit-codes -->\n| old |\n<!-- end -->\nafter\n"
    assert outdated_blocks(page, _BLOCKS) == ["exit-codes"]
    written = refresh(page, _BLOCKS)
    assert outdated_blocks(written, _BLOCKS) == []
    assert written.startswith("before\n<!-- generated: exit-codes -->\n| code | meaning |\n")
    assert written.endswith("<!-- end -->\nafter\n")
    with pytest.raises(KeyError):
        outdated_blocks(page.replace("exit-codes", "no-such-table"), _BLOCKS)


def test_words_have_rows() -> None:
    """`blocks` fails for a row without words; this is the other direction."""
    assert set(words.CAUSE_REMEDIES) == set(FailureCause)
    assert set(words.FINDINGS) == set(FindingKind)
    assert set(words.LINT_RULES) == set(LintRule)
    assert set(words.VERB_PAGES) == set(VERBS)
    assert set(words.EVENT_NOTES) == set(EVENT_TYPES)
    assert set(words.CONFIG_FIELDS) == {one.name for one in fields(Node)}


def test_exit_codes_are_those_of_the_help() -> None:
    assert sparkctl_command.epilog is not None
    listed = {
        int(code) for code in re.findall(r"(?:: |;\s)(\d+)\s", sparkctl_command.epilog.partition("Exit codes")[2])
    }
    assert listed == set(words.EXIT_CODES)
    assert listed >= set(ExitCode)


def test_generated_tables_name_no_module() -> None:
    assert not [name for name, text in _BLOCKS.items() if re.search(r"sparkctl\.\w+\.|\.py\b", text)]


# --- commands ------------------------------------------------------------------------------------------------------


def code_blocks(text: str, *languages: str) -> Iterator[str]:
    return (match[2] for match in _FENCE.finditer(text) if match[1] in languages)


def shown_commands(text: str) -> Iterator[str]:
    """Yield each sparkctl command that a page shows, in code blocks and in sentences."""
    for block in code_blocks(text, "sh", "console"):
        for line in block.splitlines():
            line = re.sub(r"\s+#.*$", "", line)
            if match := _SUBSTITUTION.search(line) or _COMMAND.search(line):
                yield match[1]
    yield from (match[1] for match in _INLINE.finditer(_FENCE.sub("", text)))


def arguments(command: str) -> list[str]:
    """Return the arguments of one command, without pipes and what follows in its line."""
    lexer = shlex.shlex(command, posix=True, punctuation_chars="|&;")
    lexer.whitespace_split = True
    return list(itertools.takewhile(lambda word: not set(word) <= set("|&;"), lexer))[1:]


def parse(group: click.Group, given: list[str], parent: click.Context | None = None) -> click.Context:
    """Parse a command line as sparkctl does, without running it. Raises click's errors for what it does not understand."""
    context = click.Context(group, info_name="sparkctl", parent=parent, **group.context_settings)
    if not given or given[0].startswith("-"):
        return group.make_context("sparkctl", given)
    command = group.get_command(context, given[0])
    if command is None and isinstance(group, BenchGroup):  # `bench INSTANCE` is `bench run INSTANCE`
        given = [group.default_command, *given]
        command = group.commands[given[0]]
    assert command is not None, f"no command {given[0]}"
    if isinstance(command, click.Group):
        return parse(command, given[1:], context) if given[1:] else context
    if given[1:] or all(not parameter.required for parameter in command.params):
        return command.make_context(given[0], given[1:], parent=context)
    return click.Context(command, info_name=given[0], parent=context)  # a sentence names the command alone


COMMANDS = sorted({command for page in PAGES for command in shown_commands(page.read_text(encoding="utf-8"))})
SHIPPED = ProfileLibrary(user=ROOT / "no-such-folder").list_names()


def test_pages_show_commands_of_every_verb() -> None:
    shown = {given[0] for command in COMMANDS if (given := arguments(command))}
    assert len(COMMANDS) > 100
    assert shown >= set(VERBS)


@pytest.mark.parametrize("command", [one for one in COMMANDS if not _PLACEHOLDER.search(one)])
def test_commands_are_understood(command: str) -> None:
    given = [word for word in arguments(command) if word != "--help"]
    context = parse(sparkctl_command, given)
    if context.info_name == "demo":
        context = parse(sparkctl_command, list(context.params["verb"]))
    for profile in named_profiles(context):
        assert profile in SHIPPED or profile.startswith("hf:")


def named_profiles(context: click.Context) -> Iterator[str]:
    """Yield each profile that a command names; `bench` names the instances of profiles."""
    for one in ("profile", *(("instances", "baseline") if context.info_name == "run" else ())):
        named = context.params.get(one) or ()
        yield from [named] if isinstance(named, str) else named


def help_examples(group: click.Group) -> Iterator[str]:
    """Yield each command that the help of a verb shows, without what stands behind it."""
    context = click.Context(group)
    for command in filter(None, (group.get_command(context, name) for name in group.list_commands(context))):
        yield from (
            line[1]
            for line in re.finditer(r"^ *(sparkctl .+?)(?: {3,}.*| [>\\].*)?$", command.help or "", re.MULTILINE)
        )
        yield from help_examples(command) if isinstance(command, click.Group) else ()


@pytest.mark.parametrize("command", sorted(set(help_examples(sparkctl_command))))
def test_profiles_in_the_examples_of_the_help_exist(command: str) -> None:
    context = parse(sparkctl_command, arguments(command))
    for profile in named_profiles(context):
        assert profile in SHIPPED or profile.startswith("hf:")


@pytest.mark.parametrize("command", [one for one in COMMANDS if _PLACEHOLDER.search(one)])
def test_commands_with_placeholders_have_options_that_exist(command: str) -> None:
    given = [word.strip("[]") for word in re.split(r"[\s|]+", command)[1:]]
    reached: click.Command = sparkctl_command
    for word in given:
        if isinstance(reached, click.Group) and (deeper := reached.get_command(click.Context(reached), word)):
            reached = deeper
    if isinstance(reached, BenchGroup):
        reached = reached.commands[reached.default_command]
    known = {option for one in (sparkctl_command, reached) for parameter in one.params for option in parameter.opts} | {
        "--help"
    }
    assert {word.partition("=")[0] for word in given if re.match(r"--?[a-z]", word)} <= known
    assert reached is not sparkctl_command or given[0].startswith(("COMMAND", "-"))


# --- examples ------------------------------------------------------------------------------------------------------


def yaml_example(page: str, beginning: str) -> str:
    text = (DOCS / page).read_text(encoding="utf-8")
    (found,) = [one for one in code_blocks(text, "yaml") if one.startswith(beginning)]
    return found


def test_the_config_of_the_docs_loads(tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    path.write_text(yaml_example("first-evening.md", "nodes:") + "keys: {down: D, help: [f1, H]}\nreadonly: true\n")
    config = load_config(path)
    assert [(node.name, node.host, node.user) for node in config.nodes] == [
        ("spark1", "spark-2a60.local", "milo"),
        ("spark2", "spark-77f1.local", "milo"),
    ]
    assert "`keys: {down: D, help: [f1, H]}`" in (DOCS / "panel.md").read_text(encoding="utf-8")
    assert config.keys == (("down", ("D",)), ("help", ("f1", "H")))
    assert config.readonly


def test_each_field_of_the_config_is_accepted(tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    values = {"name": "a", "host": "b", "port": "22", "memory_bandwidth_gb_s": "273"}
    lines = [f"    {name}: {values.get(name, 'word')}" for name in words.CONFIG_FIELDS]
    path.write_text("nodes:\n  -\n" + "\n".join(lines) + "\n")
    assert load_config(path).nodes[0].known_hosts == "word"


def test_the_profile_of_the_docs_loads(tmp_path: Path) -> None:
    (tmp_path / "qwen36-short.yaml").write_text(
        yaml_example("profiles.md", "schema:") + yaml_example("guard.md", "start:").replace("start:\n", "")
    )
    profile = ProfileLibrary(user=tmp_path).load_profile("qwen36-short")
    assert dict(profile.args)["context-length"] == "8192"
    assert profile.start.timeouts.loading == 30 * 60
    assert profile.start.guard is not None
    assert profile.start.guard.floor == 1 << 30
    assert profile.start.guard.limit == 45 * 60


def test_the_versions_with_known_flags_are_named() -> None:
    text = (DOCS / "profiles.md").read_text(encoding="utf-8")
    (line,) = re.findall(r"\*\*Known flags\*\*:(.*?)\n\n", text, re.DOTALL)
    names = {"sglang": "SGLang", "vllm": "vLLM", "llamacpp": "llama-server", "trtllm": "trtllm-serve"}
    catalogues = list((ROOT / "sparkctl" / "engines").glob("*/flags-*.json"))
    assert {one.parent.name for one in catalogues} == set(names)
    for catalogue in catalogues:
        engine, version = catalogue.parent.name, catalogue.stem.removeprefix("flags-")
        assert names[engine] in line
        assert version in line or engine == "trtllm", version


def test_the_demo_has_the_faults_and_scenarios_that_are_named() -> None:
    text = (DOCS / "first-evening.md").read_text(encoding="utf-8").rpartition("\nFaults: ")[2]
    faults, _, scenarios = text.partition("Scenarios: ")
    assert set(re.findall(r"`([\w-]+)`", faults)) == set(EngineFault)
    assert set(re.findall(r"`([\w-]+)`", scenarios)) == set(SCENARIOS)


# --- pages ---------------------------------------------------------------------------------------------------------


def anchors(text: str) -> set[str]:
    """Return the anchors of a page's headings, as GitHub makes them."""
    heads = _HEADING.findall(_FENCE.sub("", text))
    return {re.sub(r"[^\w\- ]", "", head.lower()).strip().replace(" ", "-") for head in heads}


@pytest.mark.parametrize("page", ALL_PAGES, ids=name_of)
def test_links_lead_somewhere(page: Path) -> None:
    for link in _LINK.findall(_FENCE.sub("", page.read_text(encoding="utf-8"))):
        if link.startswith("http"):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), link
        assert not anchor or anchor in anchors(target.read_text(encoding="utf-8")), link


def test_each_page_is_linked_from_the_index() -> None:
    index = (DOCS / "README.md").read_text(encoding="utf-8")
    linked = {link.partition("#")[0] for link in _LINK.findall(index)}
    assert {page.name for page in DOCS.glob("*.md")} - {"README.md"} <= linked


def test_pages_are_short() -> None:
    lengths = {page.name: len(page.read_text(encoding="utf-8").splitlines()) for page in PAGES if page.parent == DOCS}
    assert {name: length for name, length in lengths.items() if length > 250} == {}
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) <= 200


def test_ci_runs_the_test_command_of_the_readme() -> None:
    (command,) = [
        line.removeprefix("sudo ")
        for block in code_blocks((ROOT / "README.md").read_text(encoding="utf-8"), "sh")
        for line in block.splitlines()
        if "tests/run" in line
    ]
    assert f"\nexec {command}\n" in (ROOT / ".ci" / "run").read_text(encoding="utf-8")


def test_the_pages_are_in_the_source_distribution() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    included = project["tool"]["hatch"]["build"]["targets"]["sdist"]["include"]
    assert {"README.md", "CONTRIBUTING.md", "CHANGELOG.md", "docs", "screenshots"} <= set(included)


@pytest.mark.parametrize(
    ("document", "kinds"),
    [
        ("images --json", (NodeImages, ImageUse)),
        ("models --json", (NodeModels, StoredModel)),
        ("bench list --json", (BenchRun, BenchCell, BenchSetup)),
    ],
)
def test_each_field_of_a_document_is_told(document: str, kinds: tuple[type, ...]) -> None:
    assert {field.name for kind in kinds for field in fields(kind)} - _list_told_names(document) == set()


def test_each_key_of_a_diagnosis_is_told() -> None:
    known = build_diagnosis_json(
        diagnose_bytes(io.BytesIO(b"INFO: started\n"), "it", None).diagnosis, "a.log", None, None
    )
    assert known.keys() - _list_told_names("diagnose --json") == {"schema"}


def _list_told_names(document: str) -> set[str]:
    (told,) = [
        one
        for one in (DOCS / "scripting.md").read_text(encoding="utf-8").split("\n\n")
        if one.startswith(f"**`{document}`**")
    ]
    return set(re.findall(r"`(\w+)`", told))
