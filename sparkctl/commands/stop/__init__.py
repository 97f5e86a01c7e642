"""Stopping instances: the containers, their logs, and the check that their memory is released."""
