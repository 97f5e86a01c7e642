"""Simulated Sparks for `sparkctl demo` and tests: real SSH, a small Docker API, scripted engines. They know no commands."""

from __future__ import annotations

from sparkctl.engines.simulation.engine_launch import EngineFault
from sparkctl.engines.simulation.simulated_clock import SimClock
from sparkctl.simulator.sim_node import SimNodeOptions, SudoRule
from sparkctl.simulator.simulated_sparks import (
    DEMO_SPEED,
    DIRECTORY_PREFIX,
    READY_HOURS,
    RUNNING_AT_FIRST,
    SCENARIOS,
    SimulatedSparks,
    run_in_background,
)

__all__ = [
    "DEMO_SPEED",
    "DIRECTORY_PREFIX",
    "READY_HOURS",
    "RUNNING_AT_FIRST",
    "SCENARIOS",
    "EngineFault",
    "SimClock",
    "SimNodeOptions",
    "SimulatedSparks",
    "SudoRule",
    "run_in_background",
]
