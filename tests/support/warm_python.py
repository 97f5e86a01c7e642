"""A Python that has imported what a program needs, and forks for each run of it: to start one anew takes much longer."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

_SERVER = """
import importlib, json, os, sys
for name in sys.argv[1:]:
    importlib.import_module(name)
codes = {}
for line in sys.stdin:
    script, words, out, err = json.loads(line)
    if script not in codes:
        codes[script] = compile(open(script).read(), script, "exec")
    child = os.fork()
    if child == 0:
        for number, path in enumerate((os.devnull, out, err)):
            os.dup2(os.open(path, os.O_RDWR | os.O_CREAT, 0o600), number)
        sys.argv = [script, *words]
        exec(codes[script], {"__name__": "__main__", "__file__": script})
        os._exit(0)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""


class WarmPython:
    """Runs scripts, one after the other."""

    def __init__(self, process: subprocess.Popen[str], place: Path) -> None:
        self._process, self._place = process, place

    def run(self, script: Path, words: Sequence[str]) -> subprocess.CompletedProcess[str]:
        """Run a script as a program and return what it printed."""
        out, err = self._place / "out", self._place / "err"
        for path in (out, err):
            path.write_text("")
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None
        assert stdout is not None
        stdin.write(json.dumps([str(script), list(words), str(out), str(err)]) + "\n")
        stdin.flush()
        return subprocess.CompletedProcess(list(words), int(stdout.readline()), out.read_text(), err.read_text())


@contextmanager
def start_warm_python(modules: Sequence[str], env: Mapping[str, str], place: Path) -> Iterator[WarmPython]:
    """Start one with these modules and this environment; ``place``: a folder for what its runs print."""
    with subprocess.Popen(
        [sys.executable, "-c", _SERVER, *modules], env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        yield WarmPython(process, place)
