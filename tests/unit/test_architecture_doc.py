"""Each path and each name that docs/architecture.md and CONTRIBUTING.md mention exists in the tree."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = ("docs/architecture.md", "CONTRIBUTING.md")

_FENCE = re.compile(r"^```\w*\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_CODE = re.compile(r"`([^`\n]+)`")
_PATH = re.compile(r"[\w.-]*(?:[\w-]|\.ci)/[\w./-]*|[\w-]+\.(?:py|sh|md|toml|json|yaml)")
_PICTURE_LINE = re.compile(r"^\s*(?P<path>[\w./-]+\.(?:py|sh|md|json))\s{2,}(?P<names>\w[\w., ]*)$", re.MULTILINE)
_NAME = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*")
_MODULE_RUN = re.compile(r"-m (tests[\w.]*)")
_PLACEHOLDER = "NAME"  # engines/NAME/lint.py: any engine's file


def read_page(page: str) -> str:
    return (ROOT / page).read_text(encoding="utf-8")


def find_paths(written: str) -> list[Path]:
    """Return what a path stands for: from the root of the repository, or from ``sparkctl/``."""
    pattern = written.replace(_PLACEHOLDER, "*").rstrip("/")
    return [found for folder in (ROOT, ROOT / "sparkctl") for found in folder.glob(pattern)]


def list_definitions(tree: ast.AST, prefix: str = "") -> Iterator[str]:
    """Yield the names that a module or a class defines, those in a class as ``Class.name`` too."""
    for node in ast.iter_child_nodes(tree):
        names: list[str] = []
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names = [node.name]
        elif isinstance(node, ast.AnnAssign | ast.Assign):
            targets = [node.target] if isinstance(node, ast.AnnAssign) else node.targets
            names = [one.id for target in targets for one in ast.walk(target) if isinstance(one, ast.Name)]
        for name in names:
            yield name
            yield prefix + name
        if isinstance(node, ast.ClassDef):
            yield from list_definitions(node, f"{node.name}.")
        elif isinstance(node, ast.If | ast.Try):
            yield from list_definitions(node, prefix)


@cache
def defined_in(path: Path) -> frozenset[str]:
    text = path.read_text(encoding="utf-8")
    return frozenset(list_definitions(ast.parse(text)) if path.suffix == ".py" else re.findall(r"\w+", text))


@cache
def defined_anywhere() -> frozenset[str]:
    return frozenset(name for file in (ROOT / "sparkctl").rglob("*.py") for name in defined_in(file))


def is_identifier(text: str) -> bool:
    """Tell whether a piece of code is a Python name: snake_case, CamelCase, CONSTANT_CASE or dotted."""
    if not _NAME.fullmatch(text) or _PATH.fullmatch(text):
        return False
    last = text.rpartition(".")[2]
    return "_" in text.strip("_") or bool(re.search(r"[a-z][A-Z]", last)) or bool(re.match(r"[A-Z]\w*\.", text))


def list_spans(page: str) -> list[tuple[int, str]]:
    """Return each piece of inline code with the number of its line."""
    prose = _FENCE.sub(lambda fence: "\n" * fence[0].count("\n"), read_page(page))
    return [(number, span) for number, line in enumerate(prose.splitlines(), 1) for span in _CODE.findall(line)]


@pytest.mark.parametrize("page", PAGES)
def test_paths_exist(page: str) -> None:
    written = [(number, path) for number, span in list_spans(page) for path in span.split() if _PATH.fullmatch(path)]
    written += [
        (0, line["path"]) for fence in _FENCE.findall(read_page(page)) for line in _PICTURE_LINE.finditer(fence)
    ]
    assert len(written) > 30
    missing = [(number, path) for number, path in written if not find_paths(path)]
    assert missing == []


@pytest.mark.parametrize("page", PAGES)
def test_modules_that_are_run_exist(page: str) -> None:
    modules = set(_MODULE_RUN.findall(read_page(page)))
    files = {name: ROOT / name.replace(".", "/") for name in modules}
    missing = [name for name, path in files.items() if not (path.with_suffix(".py").exists() or path.is_dir())]
    assert missing == []


@pytest.mark.parametrize("page", PAGES)
def test_names_exist(page: str) -> None:
    names = [(number, span) for number, span in list_spans(page) if is_identifier(span)]
    assert len(names) > 10
    assert [(number, name) for number, name in names if name not in defined_anywhere()] == []


@pytest.mark.parametrize("page", PAGES)
def test_a_name_is_in_one_of_the_files_of_its_table_row(page: str) -> None:
    missing = []
    for row in (line for line in read_page(page).splitlines() if line.startswith("| ")):
        spans = _CODE.findall(row)
        files = [file for span in spans for file in find_paths(span) if _PATH.fullmatch(span) and file.suffix == ".py"]
        found = {name for file in files for name in defined_in(file)}
        missing += [span for span in spans if files and is_identifier(span) and span not in found]
    assert missing == []


def test_names_of_the_pictures_are_in_their_files() -> None:
    fences = _FENCE.findall(read_page("docs/architecture.md"))
    lines = [line for fence in fences for line in _PICTURE_LINE.finditer(fence)]
    assert len(lines) > 60
    missing = [
        (line["path"], name)
        for line in lines
        for name in re.split(r", *", line["names"])
        if not any(name in defined_in(file) for file in find_paths(line["path"]))
    ]
    assert missing == []


def test_each_package_has_a_line() -> None:
    text = read_page("docs/architecture.md").partition("## Layers")[2].partition("## Glossary")[0]
    packages = {path.parent.name for path in (ROOT / "sparkctl").glob("*/__init__.py")}
    assert packages == set(re.findall(r"^\| `(\w+)/`", text, re.MULTILINE))


def test_the_architecture_is_short() -> None:
    assert len(read_page("docs/architecture.md").splitlines()) <= 300
