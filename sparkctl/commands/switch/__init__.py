"""Switching from one model to another: checks, plan, journal and locks, the steps forward, and the rollback.

A lost SSH connection never starts a rollback: what needs the node is retried for a limited time, then the switch ends as
unreachable, its journal stays on the nodes, and ``resume`` or ``abort`` goes on from there (`switch_runner.run_forward`).
"""
