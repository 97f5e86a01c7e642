"""Recordings of events: writing, reading and playing them."""
