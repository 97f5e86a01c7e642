"""flags."""
