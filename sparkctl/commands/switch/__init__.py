"""Switching from one model to another: checks, plan, journal and locks, the steps forward, and the rollback."""
