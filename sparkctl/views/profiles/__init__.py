"""Profiles, launch plans, memory estimates, lint results and imports as text."""
