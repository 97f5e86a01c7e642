"""Benchmarks: a load generator as a child process, and beside each cell what the engine and the node did."""
