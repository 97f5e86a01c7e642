"""What was tried on purpose: one row per fault, each played on the lab and judged. `python -m tests.lab.faults` prints them."""
