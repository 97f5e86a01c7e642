"""Simulated engines: launch, log lines, memory and figures, used by the simulated Sparks."""
