"""Widgets that several screens of the panel share."""
