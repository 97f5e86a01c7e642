"""Measurements, run by hand or nightly: ``python -m tests.tools.bench [NAME...] [--json]``. Never part of the timed tests."""
