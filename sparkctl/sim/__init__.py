"""Simulated Sparks: real SSH, a small real Docker API, scripted engines. For `sparkctl demo` and for tests.

Owns no logic of operations: it only behaves as two machines do.
"""

from __future__ import annotations

from sparkctl.sim.clock import SimClock
from sparkctl.sim.node import EngineFault, SimNodeOptions, SudoRule
from sparkctl.sim.scenarios import SCENARIOS
from sparkctl.sim.sparks import DEMO_SPEED, SimulatedSparks
from sparkctl.sim.threaded import run_in_background

__all__ = [
    "DEMO_SPEED",
    "SCENARIOS",
    "EngineFault",
    "SimNodeOptions",
    "SimClock",
    "SimulatedSparks",
    "SudoRule",
    "run_in_background",
]
