"""Profiles: read, check, edit, write, import and export them, and estimate whether they fit."""
