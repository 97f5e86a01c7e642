"""The failure rules for lines that every engine can print, because torch, the model hub, argparse, Docker or the kernel
write them.
"""

from __future__ import annotations

from sparkctl.engines.failures.hub_failures import HUB_FAILURES
from sparkctl.engines.failures.library_failures import (
    ARGUMENT_FAILURES,
    CRASH_FAILURES,
    LIBRARY_FAILURES,
    SIGNAL_DEATHS,
)
from sparkctl.engines.failures.memory_failures import HOST_MEMORY_FAILURES, cuda_memory_rules
from sparkctl.engines.failures.model_file_failures import MODEL_FILE_FAILURES
from sparkctl.engines.failures.node_failures import NODE_FAILURES, RANK_FAILURES
from sparkctl.engines.log_rules import EXCEPTION_PREFIX

__all__ = [
    "COMMON_CAUSES",
    "CRASH_FAILURES",
    "EXCEPTION_PREFIX",
    "SIGNAL_DEATHS",
    "cuda_memory_rules",
]

# The rules that name a cause; `CRASH_FAILURES` only say that something failed.
COMMON_CAUSES = (
    HOST_MEMORY_FAILURES
    + HUB_FAILURES
    + MODEL_FILE_FAILURES
    + NODE_FAILURES
    + RANK_FAILURES
    + ARGUMENT_FAILURES
    + LIBRARY_FAILURES
)
