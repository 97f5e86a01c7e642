"""Simulated versions of the programs that sparkctl runs on a node."""
