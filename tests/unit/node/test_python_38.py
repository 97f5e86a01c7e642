"""Every program that travels to a node is Python 3.8: by its grammar, and as each Python that is here imports it."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

from sparkctl.node import bootstrap
from tests.unit.node.agent_process import list_pythons

HERE = Path(bootstrap.__file__).parent
PROGRAMS = ("agent", "transfer", "collect", *bootstrap.GUARD_MODULES)


@pytest.mark.parametrize("name", PROGRAMS)
def test_node_programs_parse_as_python_38(name: str) -> None:
    tree = ast.parse((HERE / f"{name.replace('.', '/')}.py").read_text(), feature_version=(3, 8))
    imported = {node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    imported |= {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    outside = {one.split(".")[0] for one in imported} - set(sys.stdlib_module_names)
    assert outside <= {"sparkctl"}, outside


@pytest.mark.parametrize("python", list_pythons())
def test_node_programs_import_on_each_python(python: str) -> None:
    """Annotations that an old Python cannot evaluate, and what its standard library lacks at the top level, fail here."""
    code = f"""
import importlib, os, sys
sys.path.insert(0, {str(HERE.parents[1])!r})
for name in {PROGRAMS!r}:
    if not os.fork():  # each begins with nothing imported
        importlib.import_module("sparkctl.node." + name)
        os._exit(0)
    if os.wait()[1]:
        sys.exit(name)
"""
    ran = subprocess.run([python, "-B", "-c", code], capture_output=True, text=True, timeout=60)
    assert ran.returncode == 0, ran.stderr
