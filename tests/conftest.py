"""What holds for every test: a home of its own, a terminal of all colours, random examples that are the same each time.

The histories, caches and config of whoever runs the tests are neither read nor written: they lie in a directory that goes away.

Random examples: nobody's landing fails for one that his change has nothing to do with. Each property is tried with the same
examples every time, on however slow a machine, and a failing one is told as it was found. To hunt with new ones, shrunk to the
smallest that fails: pytest --hypothesis-profile=hunt
"""

from __future__ import annotations

import gc
import os
import shutil
import signal
import tempfile
from pathlib import Path

from hypothesis import HealthCheck, Phase, settings

from tests.support.fast_forward import install_fast_forward

HOME = Path(tempfile.mkdtemp(prefix="sparkctl-tests-"))
os.environ |= {f"XDG_{kind.upper()}_HOME": str(HOME / kind) for kind in ("config", "state", "cache")}
for variable in ("SPARKCTL_CONFIG", "SPARKCTL_STATE"):
    os.environ.pop(variable, None)

# Screens are drawn for a terminal of all colours, whatever the one is that the tests were started from.
os.environ |= {"TERM": "xterm-256color", "COLORTERM": "truecolor"}
os.environ.pop("NO_COLOR", None)

settings.register_profile(
    "steady",
    derandomize=True,
    max_examples=40,  # the same ones every time; the nightly run hunts with a hundred new ones
    deadline=None,
    phases=(Phase.explicit, Phase.generate),  # shrinking a hostile text takes minutes
    suppress_health_check=[HealthCheck.too_slow],
    print_blob=True,
)
settings.register_profile(
    "hunt", derandomize=False, deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True
)
settings.load_profile("steady")
install_fast_forward()  # it acts where a fixture turns it on
gc.disable()  # until everything is collected: nothing of it goes away, and looking for what does takes a fifth of the time


def pytest_collection_finish() -> None:
    """Leave all that was imported and collected out of every later collection of garbage."""
    gc.enable()
    gc.collect()
    gc.freeze()
    gc.set_threshold(10_000, 20, 20)  # a test opens and ends whole simulations: the product looks as rarely for its own


def pytest_unconfigure() -> None:
    """Let pytest's last five collections look at what this one leaves unreachable, not at everything again."""
    gc.collect()
    gc.freeze()
    shutil.rmtree(HOME, ignore_errors=True)


if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # Begun in the background (nohup, cron), the programs that the tests start would not hear Ctrl-C either.
    signal.signal(signal.SIGINT, signal.default_int_handler)
