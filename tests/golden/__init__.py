"""Golden files: what a user relies on. ``GOLDEN_UPDATE=1 pytest tests/golden`` writes them anew; then read the diff."""
