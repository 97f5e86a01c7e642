"""Simulated Sparks: real SSH, a small real Docker API, scripted engines. For `sparkctl demo` and for tests.

Owns no logic of operations: it only behaves as two machines do.
"""

from __future__ import annotations

from sparkctl.sim.clock import SimClock
from sparkctl.sim.node import Fault, NodeOptions, Sudo
from sparkctl.sim.scenarios import SCENARIOS
from sparkctl.sim.sparks import DEMO_SPEED, SimulatedSparks
from sparkctl.sim.threaded import background

__all__ = ["DEMO_SPEED", "SCENARIOS", "Fault", "NodeOptions", "SimClock", "SimulatedSparks", "Sudo", "background"]
