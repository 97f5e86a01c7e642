"""The memory of a DGX Spark: which figure is which. docs/memory-fit.md tells it to owners.

What a node has is read from it. These are for what has to be said or assumed before a node is asked, and for simulated
ones. A share of an engine's counts either all memory (vLLM) or what is available at its start (SGLang, TensorRT-LLM).
"""

from __future__ import annotations

from sparkctl.model.text.units import GIB, KIB

INSTALLED_BYTES = 128 * GIB  # the "128 GB" of the data sheet; the firmware keeps 6 to 8 GiB of it
# All memory, MemTotal of the kernel, by the firmware; CUDA and PyTorch report the same as a GPU's total capacity.
TOTAL_BYTES = 127_600_592 * KIB  # of most
LEAST_TOTAL_BYTES = 128_501_256_192  # of some
IDLE_AVAILABLE_BYTES = (
    117 * GIB
)  # available on an idle Spark after the page cache was dropped: 112 to 118 GiB were seen
