"""The failure rules for lines that every engine can print, because torch, the model hub, argparse, Docker or the kernel
write them.
"""

from __future__ import annotations

from dataclasses import replace

from sparkctl.engines.failures.hub_failures import HUB_FAILURES
from sparkctl.engines.failures.library_failures import (
    ARGUMENT_FAILURES,
    CRASH_FAILURES,
    LIBRARY_FAILURES,
    NO_GRAPHS_FLAGS,
    SIGNAL_DEATHS,
)
from sparkctl.engines.failures.memory_failures import HOST_MEMORY_FAILURES, cuda_memory_rules
from sparkctl.engines.failures.model_file_failures import MODEL_FILE_FAILURES
from sparkctl.engines.failures.node_failures import NODE_FAILURES, RANK_FAILURES
from sparkctl.engines.log_rules import EXCEPTION_PREFIX, FailureRule

__all__ = [
    "COMMON_CAUSES",
    "COMMON_FAILURES",
    "CRASH_FAILURES",
    "EXCEPTION_PREFIX",
    "SIGNAL_DEATHS",
    "cuda_memory_rules",
    "list_common_causes",
]

# First the rules that name a cause, then those that only say that something failed.
COMMON_CAUSES = (
    HOST_MEMORY_FAILURES
    + HUB_FAILURES
    + MODEL_FILE_FAILURES
    + NODE_FAILURES
    + RANK_FAILURES
    + ARGUMENT_FAILURES
    + LIBRARY_FAILURES
)
COMMON_FAILURES = COMMON_CAUSES + CRASH_FAILURES


def list_common_causes(without_graphs: str) -> tuple[FailureRule, ...]:
    """Return `COMMON_CAUSES` for an engine whose flag ``without_graphs`` starts it without CUDA graphs: another
    engine's flag helps nobody there."""
    return tuple(
        replace(one, remedy=one.remedy.replace(NO_GRAPHS_FLAGS, without_graphs))
        if NO_GRAPHS_FLAGS in one.remedy
        else one
        for one in COMMON_CAUSES
    )
