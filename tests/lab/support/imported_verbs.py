"""Imports all that verbs import, for the server that `forked_command` forks: it is imported there and nowhere else."""

from __future__ import annotations

import gc
import importlib
import pkgutil

import sparkctl

_LEFT_OUT = ("sparkctl.tui", "sparkctl.simulator", "sparkctl.__main__")

for _found in pkgutil.walk_packages(sparkctl.__path__, "sparkctl."):
    if not _found.name.startswith(_LEFT_OUT):
        importlib.import_module(_found.name)
for _name in ("asyncssh", "docker", "h11", "sqlite3", "yaml"):  # what they import inside functions
    importlib.import_module(_name)
gc.freeze()  # a fork that looks at none of it for garbage copies none of it
