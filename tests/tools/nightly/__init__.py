"""Checks that need what a test run does not have: a real engine. Run by hand or by night."""
