"""The one place that chooses between SSH and this very machine."""

from __future__ import annotations

import ctypes
import ctypes.util
import importlib
import sys

from sparkctl.model.node import Node
from sparkctl.model.questions import NonInteractivePrompter, Prompter
from sparkctl.transport.node_connection import NodeConnection

_X509_MODULE = "asyncssh.crypto.x509"
_OQS_LIBRARY_FILES = ("liboqs.so", "liboqs.so.9", "liboqs.so.8", "liboqs.so.7", "liboqs.so.5", "liboqs.dylib")


def import_asyncssh_fast() -> None:
    """Make ``import asyncssh`` cheap for whoever comes next."""
    if "asyncssh" in sys.modules:
        return
    find_library = ctypes.util.find_library
    without_x509 = _X509_MODULE not in sys.modules
    ctypes.util.find_library = _find_oqs_library
    if without_x509:
        sys.modules[_X509_MODULE] = None  # type: ignore[assignment]  # what Python itself does to refuse an import
    try:
        importlib.import_module("asyncssh")
    finally:
        ctypes.util.find_library = find_library
        if without_x509:
            sys.modules.pop(_X509_MODULE, None)


def _find_oqs_library(name: str) -> str | None:
    if name != "oqs":
        return None
    for file in _OQS_LIBRARY_FILES:
        try:
            ctypes.CDLL(file)
        except OSError:
            continue
        return file
    return None


def open_connection(node: Node, asker: Prompter | None = None) -> NodeConnection:
    """Return a link that is not connected yet. asyncssh is imported only for a node that needs it."""
    if node.is_local:
        from sparkctl.transport.local_connection import LocalConnection

        return LocalConnection(node)

    import_asyncssh_fast()
    from sparkctl.transport.ssh.ssh_connection import SshConnection

    return SshConnection(node, asker if asker is not None else NonInteractivePrompter())
