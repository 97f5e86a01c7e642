"""A house rule: a dataclass of more than four fields takes them by name only, because nobody reads five positions right."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import sparkctl

ROOT = Path(sparkctl.__file__).parent
MAX_POSITIONAL_FIELDS = 4


def count_fields(node: ast.ClassDef) -> int:
    """Return how many of a dataclass's own fields its constructor takes by position: those before ``KW_ONLY``."""
    annotated = [one for one in node.body if isinstance(one, ast.AnnAssign)]
    marker = next((at for at, one in enumerate(annotated) if ast.unparse(one.annotation) == "KW_ONLY"), None)
    fields = [one for one in annotated[:marker] if "ClassVar" not in ast.unparse(one.annotation)]
    return sum(one.value is None or "init=False" not in ast.unparse(one.value) for one in fields)


def walk_statements(node: ast.AST) -> Iterator[ast.AST]:
    """Yield everything below a node that is no expression: classes stand in no other place."""
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, ast.expr):
            yield child
            yield from walk_statements(child)


def find_positional_dataclasses(source: str) -> list[str]:
    """Return the dataclasses in a source that could be made from more than four arguments by position."""
    return [
        node.name
        for node in walk_statements(ast.parse(source) if "dataclass" in source else ast.Module([], []))
        if isinstance(node, ast.ClassDef)
        for one in node.decorator_list
        if "dataclass" in ast.unparse(one).partition("(")[0] and "kw_only=True" not in ast.unparse(one)
        if count_fields(node) > MAX_POSITIONAL_FIELDS
    ]


def test_large_dataclasses_take_their_fields_by_name() -> None:
    found = {
        str(path.relative_to(ROOT)): names
        for path in ROOT.rglob("*.py")
        if (names := find_positional_dataclasses(path.read_text(encoding="utf-8")))
    }
    assert found == {}


def test_the_rule_sees_a_dataclass_that_breaks_it() -> None:
    five = "".join(f"    f{number}: int\n" for number in range(5))
    assert find_positional_dataclasses(f"@dataclass(frozen=True)\nclass A:\n{five}") == ["A"]
    assert find_positional_dataclasses(f"@dataclasses.dataclass\nclass A:\n{five}") == ["A"]
    assert find_positional_dataclasses(f"@dataclass(kw_only=True)\nclass A:\n{five}") == []
    assert find_positional_dataclasses(f"@dataclass\nclass A:\n    a: int\n    _: KW_ONLY\n{five}") == []
    assert find_positional_dataclasses(f"@dataclass\nclass A:\n{five}    _: KW_ONLY\n") == ["A"]
    assert (
        find_positional_dataclasses(f"@dataclass\nclass A:\n{five}".replace("f4: int", "f4: ClassVar[int] = 0")) == []
    )
