"""An engine is known in its folder alone: no other file of the package names one."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

import sparkctl
from sparkctl import engines

PACKAGE = Path(sparkctl.__file__).parent
NAMED = [
    name for name in engines.engine_names() if name != engines.FALLBACK_ENGINE
]  # "container" is Docker's word, too
NAME = re.compile(rf"(?<![a-z])(?:{'|'.join(NAMED)})(?![a-z])", re.IGNORECASE)
# What is not about an engine: names of others' recipes, images and shipped profiles, and formats that programs of a node
# have whatever engine prints them.
ALLOWED = {
    "cli/verbs/demo.py": "qwen36-vllm|_SGLANG_PHASES|_VLLM_PHASES",  # a shipped profile, and what its start shows
    "profiles/importers/command_line.py": "vllm-node",  # the image that a launcher builds, whichever engine it starts
    "simulator/simulated_sparks.py": "qwen36-vllm",
    "simulator/sim_node.py": "VLLM::EngineCore",  # a process that a vLLM left on the node
    "simulator/node_programs/sim_agent.py": "VLLM::EngineCor",
}


@cache
def has_engine_name(text: str) -> bool:
    return NAME.search(text) is not None


def find_engine_names(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Yield line and text of each literal, name and import that has an engine's name. A sentence may: it has spaces."""
    documentation = set[int]()
    for node in ast.walk(tree):  # a node before what is in it
        if (
            isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
            and node.body
            and isinstance(node.body[0], ast.Expr)
        ):
            documentation.add(id(node.body[0].value))
        texts: list[str] = []
        match node:
            case ast.Constant(value=str(text)) if id(node) not in documentation and " " not in text:
                texts = [text]
            case ast.Name(id=text) | ast.Attribute(attr=text) | ast.arg(arg=text) | ast.keyword(arg=str(text)):
                texts = [text]
            case ast.ImportFrom(module=str(module), names=names):
                texts = [module, *(one.name for one in names)]
            case ast.FunctionDef(name=text) | ast.ClassDef(name=text) | ast.AsyncFunctionDef(name=text):
                texts = [text]
        yield from ((getattr(node, "lineno", 0), text) for text in texts if has_engine_name(text))


def list_shared_files() -> list[Path]:
    own = [PACKAGE / "engines" / name for name in engines.engine_names()]
    return [file for file in sorted(PACKAGE.rglob("*.py")) if not any(file.is_relative_to(folder) for folder in own)]


def test_no_file_outside_its_folder_names_an_engine() -> None:
    found = [
        f"{place}:{line} {text}"
        for file in list_shared_files()
        if has_engine_name(code := file.read_text("utf-8")) and (place := file.relative_to(PACKAGE).as_posix())
        for line, text in find_engine_names(ast.parse(code))
        if not re.search(ALLOWED.get(place, "$^"), text)
    ]
    assert found == []


def test_what_is_allowed_is_there() -> None:
    for place, pattern in ALLOWED.items():
        names = [text for _, text in find_engine_names(ast.parse((PACKAGE / place).read_text("utf-8")))]
        assert any(re.search(pattern, text) for text in names), place


@pytest.mark.parametrize(
    "code",
    [
        'if engine == "vllm": pass',
        "match engine:\n    case 'sglang': pass",
        "kind is EngineName.VLLM",
        "from sparkctl.engines.trtllm import x",
        'PORTS = {"llamacpp": 1}',
        "def read_vllm(): pass",
        'pattern = r"VLLM::|ray::"',
    ],
)
def test_an_engines_name_is_seen(code: str) -> None:
    assert list(find_engine_names(ast.parse(code)))


def test_a_sentence_and_documentation_may_name_one() -> None:
    code = '"""vllm"""\ndef f():\n    """sglang"""\n    raise ValueError("try vllm: it works")'
    assert list(find_engine_names(ast.parse(code))) == []


@pytest.mark.parametrize("name", engines.engine_names())
def test_no_engine_imports_another(name: str) -> None:
    others = tuple(f"sparkctl.engines.{one}" for one in engines.engine_names() if one != name)
    imports = [
        f"{node.module}.{one.name}" if isinstance(node, ast.ImportFrom) else one.name
        for file in (PACKAGE / "engines" / name).glob("*.py")
        for node in ast.walk(ast.parse(file.read_text("utf-8")))
        if isinstance(node, ast.Import | ast.ImportFrom)
        for one in node.names
    ]
    assert imports
    assert [one for one in imports if f"{one}.".startswith(tuple(f"{other}." for other in others))] == []


@pytest.mark.parametrize("name", NAMED)
def test_each_folder_has_the_same_files(name: str) -> None:
    folder = PACKAGE / "engines" / name
    there = {file.name for file in folder.iterdir()}
    assert {"__init__.py", "lint.py", "memory.py", "simulated_engine.py", "simulated_engine.txt"} <= there
    assert list(folder.glob("flags-*.json"))
