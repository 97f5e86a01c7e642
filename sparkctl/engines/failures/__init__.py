"""Failure rules for all engines, by subject."""
