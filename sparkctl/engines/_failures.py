"""Failure lines that every engine can print, because torch, the model hub, argparse, Docker or the kernel word them."""

from __future__ import annotations

from sparkctl.engines._failures_memory import HOST, cuda_memory
from sparkctl.engines._failures_model import MODEL
from sparkctl.engines._failures_node import NODE
from sparkctl.engines._failures_program import ARGUMENTS, CRASHES
from sparkctl.engines._failures_ranks import RANKS
from sparkctl.engines._vocabulary import ERROR

__all__ = ["COMMON", "CRASHES", "ERROR", "KNOWN", "cuda_memory"]

# What names its cause; and after that, what only says that something went wrong.
KNOWN = HOST + MODEL + NODE + RANKS + ARGUMENTS
COMMON = KNOWN + CRASHES
