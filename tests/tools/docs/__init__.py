"""The tables in README.md and docs/ that are made from the code: `python -m tests.tools.docs --write`."""
