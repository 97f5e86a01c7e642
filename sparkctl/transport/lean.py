"""asyncssh, imported without two things that cost a fifth of a short verb's whole time and that nothing here uses.

It looks for liboqs by way of ldconfig, a compiler and a linker, one process each; here the loader is asked directly. And
it loads all of X.509 for a kind of certificate that OpenSSH does not have; it is built to do without. Both are only
left out where this is the first import of asyncssh in the process.
"""

from __future__ import annotations

import ctypes
import ctypes.util
import importlib
import sys

_X509 = "asyncssh.crypto.x509"
_OQS_NAMES = ("liboqs.so", "liboqs.so.9", "liboqs.so.8", "liboqs.so.7", "liboqs.so.5", "liboqs.dylib")


def import_asyncssh_fast() -> None:
    """Make ``import asyncssh`` cheap for whoever comes next."""
    if "asyncssh" in sys.modules:
        return
    find_library = ctypes.util.find_library
    without_x509 = _X509 not in sys.modules
    ctypes.util.find_library = _find_library
    if without_x509:
        sys.modules[_X509] = None  # type: ignore[assignment]  # what Python itself does to refuse an import
    try:
        importlib.import_module("asyncssh")
    finally:
        ctypes.util.find_library = find_library
        if without_x509:
            sys.modules.pop(_X509, None)


def _find_library(name: str) -> str | None:
    if name != "oqs":
        return None
    for file in _OQS_NAMES:
        try:
            ctypes.CDLL(file)
        except OSError:
            continue
        return file
    return None
