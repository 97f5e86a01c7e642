"""Private names of other people's libraries: each that sparkctl uses is in the table, and is still there.

Where one of these tests fails after an update, look at the named file: what it is needed for stands beside it.
"""

from __future__ import annotations

import ast
import asyncio
import inspect
import subprocess
import sys
from functools import cache
from pathlib import Path

import asyncssh.public_key
import pytest
from textual.app import App
from textual.drivers.linux_driver import LinuxDriver

import sparkctl

ROOT = Path(sparkctl.__file__).parent
LIBRARIES = ("asyncssh", "docker", "h11", "rich", "textual")
# file: the private names of a library that it uses or overrides
PRIVATE_NAMES = {
    "tui/app.py": {"_close_messages_no_wait", "_display", "_exception", "_fatal_error", "_handle_exception"},
    "tui/terminal_driver.py": {"_file", "_writer_thread"},
}
PRIVATE_MODULES = {"tui/terminal_driver.py": {"textual._compositor", "textual._xterm_parser"}}


def list_library_names() -> set[str]:
    """Return the private names of the classes that sparkctl's own classes are made from."""
    modules = {base.__module__ for kind in (App, LinuxDriver) for base in kind.__mro__[:-1]}
    trees = [ast.parse(inspect.getsource(sys.modules[name])) for name in modules if name.startswith("textual.")]
    return {
        node.name if isinstance(node, ast.FunctionDef) else node.attr
        for tree in trees
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef) or (isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store))
    }


@cache
def parse_product_files() -> dict[str, ast.Module]:
    """Return the tree of each file of the product that names one of the libraries."""
    texts = {str(path.relative_to(ROOT)): path.read_text(encoding="utf-8") for path in ROOT.rglob("*.py")}
    return {
        path: ast.parse(text)
        for path, text in texts.items()
        if any(f"import {name}" in text or f"from {name}" in text for name in ("asyncio", *LIBRARIES))
    }


def test_the_names_of_the_table_are_there() -> None:
    assert list_library_names() >= {name for names in PRIVATE_NAMES.values() for name in names}


def test_no_file_imports_a_private_module_or_name_that_is_not_in_the_table() -> None:
    found: dict[str, set[str]] = {}
    for path, tree in parse_product_files().items():
        for node in ast.walk(tree):
            names = []
            if isinstance(node, ast.ImportFrom) and node.module:
                names = [f"{node.module}.{one.name}" for one in node.names if one.name.startswith("_")] or [node.module]
            elif isinstance(node, ast.Import):
                names = [one.name for one in node.names]
            private = {name for name in names if name.split(".")[0] in LIBRARIES and "._" in name}
            if private:
                found.setdefault(path, set()).update(private)
    assert found == PRIVATE_MODULES


def test_no_object_of_a_library_is_asked_for_a_private_name() -> None:
    """`self` and `cls` aside, which are our own: all else that begins with an underscore belongs to somebody else."""
    found = set()
    for path, tree in parse_product_files().items():
        own = {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}
        own |= {
            node.attr
            for node in ast.walk(tree)
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in ("self", "cls")
        }
        found |= {
            (path, ast.unparse(node))
            for node in ast.walk(tree)
            if isinstance(node, ast.Attribute)
            and node.attr.startswith("_")
            and not node.attr.startswith("__")
            and node.attr not in own
        }
    public = {("cli/invocation.py", "os._exit"), ("simulator/node_programs/sim_guard.py", "self._readings[-1]._asdict")}
    assert found - public == {("transport/local_connection.py", "process._transport")}


async def test_a_child_process_has_its_transport() -> None:
    process = await asyncio.create_subprocess_exec("true", stdout=asyncio.subprocess.PIPE)
    assert isinstance(process._transport, asyncio.SubprocessTransport)  # type: ignore[attr-defined]
    await process.communicate()


def test_asyncssh_does_without_x509_and_searches_no_library() -> None:
    code = (
        "import ctypes.util, sys\n"
        "asked = []\n"
        "ctypes.util.find_library = asked.append\n"
        "from sparkctl.transport.node_session import import_asyncssh_fast\n"
        "import_asyncssh_fast()\n"
        "import asyncssh.crypto\n"
        "assert not asked, asked\n"
        "assert ctypes.util.find_library == asked.append\n"
        "assert 'cryptography.x509' not in sys.modules\n"
        "assert not hasattr(asyncssh.crypto, 'X509Name')\n"
        "asyncssh.generate_private_key('ssh-ed25519')\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr


def test_asyncssh_still_imports_what_is_left_out() -> None:
    """Else the stub in `import_asyncssh_fast` is of no use any more, and can go."""
    code = (
        "import ctypes.util\n"
        "asked = []\n"
        "ctypes.util.find_library = lambda name: asked.append(name)\n"
        "import sys, asyncssh\n"
        "assert 'cryptography.x509' in sys.modules\n"
        "assert 'oqs' in asked, asked\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("name", ["get_default_certificate_algs", "get_default_public_key_algs"])
def test_asyncssh_names_its_host_key_algorithms(name: str) -> None:
    """They are in a module that asyncssh documents for no one."""
    assert b"ssh-ed25519" in b" ".join(getattr(asyncssh.public_key, name)())
