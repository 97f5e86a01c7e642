"""Imports all that verbs import, for the server that `forked_command` forks: it is imported there and nowhere else.

What they derive from sparkctl's own files, the same in every process, is derived here, too.
"""

from __future__ import annotations

import gc
import importlib
from pathlib import Path

import sparkctl

_LEFT_OUT = ("tui", "simulator", "simulation", "simulated_engine", "demo", "__main__")

gc.disable()  # nothing of what is imported goes away
_root = Path(sparkctl.__path__[0])
for _file in sorted(_root.rglob("*.py")):  # pkgutil.walk_packages would import the packages that are left out
    _parts = _file.relative_to(_root).with_suffix("").parts
    if not set(_parts).intersection(_LEFT_OUT):
        importlib.import_module(".".join(("sparkctl", *_parts)).removesuffix(".__init__"))
for _name in ("asyncssh", "docker", "h11", "sqlite3", "yaml"):  # what they import inside functions
    importlib.import_module(_name)


def _fill_caches() -> None:
    from sparkctl.engines import load_engines
    from sparkctl.logs.analyzer import LogAnalyzer
    from sparkctl.model.launch_plan import ReadinessRule
    from sparkctl.node.bootstrap import pack_pynvml
    from sparkctl.profiles.profile_library import ProfileLibrary
    from sparkctl.profiles.profile_lint import lint_profile

    library = ProfileLibrary(Path("/nowhere"))
    for name in ("qwen36", "qwen36-vllm"):
        lint_profile(library.load_profile(name))  # reads the catalogues of flags
    for engine in load_engines():
        LogAnalyzer(engine=engine, ready=ReadinessRule(line=engine.defaults.ready_line, health=None))
        for line in ("OSError: of no known cause", *(fact.start for fact in engine.log_rules.facts)):
            engine.classify_line(line)  # makes the index of the rules, and compiles those for such lines
    pack_pynvml(None)


_fill_caches()
gc.enable()
gc.freeze()  # a fork that looks at none of it for garbage copies none of it
