"""Text: sanitising, secrets, units, safe patterns, suggestions."""
