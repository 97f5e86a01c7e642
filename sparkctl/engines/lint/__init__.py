"""Check a profile's flags before a start."""
