"""Check the environment and the container around an engine's flags, for a Spark with its one memory. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from sparkctl.engines.lint.model import FieldPath, LintMessage, LintRule, LintSeverity
from sparkctl.model.profile import Profile
from sparkctl.model.spark_memory import TOTAL_BYTES
from sparkctl.model.text.units import format_gib, parse_size

_ALLOCATOR_VARIABLES = ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF")
_LARGE_SHM = 64 * 1024**3  # bytes: half of a Spark's memory
_GID_VARIABLE = "NCCL_IB_GID_INDEX"


def check_container_settings(profile: Profile) -> Iterator[LintMessage]:
    """Yield a warning for each setting that is known to hurt on a Spark, with what to do."""
    for name, value in profile.env:
        if name in _ALLOCATOR_VARIABLES and "expandable_segments:true" in value.replace(" ", "").casefold():
            message = (
                f"{name} with expandable_segments:True made the driver of a GB10 run out of memory (NV_ERR_NO_MEMORY) while "
                "FlashInfer tuned its kernels (github.com/vllm-project/vllm/issues/45179): leave it out"
            )
            yield _build_warning(("env", name), message)
        elif name == _GID_VARIABLE and value.strip():
            message = (
                f"{_GID_VARIABLE} is pinned, and the number of a RoCE address changes with the node's network "
                "(NCCL then says `local GID ::`): leave it out, NCCL finds it"
            )
            yield _build_warning(("env", name), message)
    size = profile.container.shm_size
    if size is not None and profile.container.ipc != "host" and _is_large_shm(size):
        message = (
            f"shm_size {size}: what is written there is taken from the one memory of a Spark ({format_gib(TOTAL_BYTES)}), which the "
            "model and its cache need: 16g is enough for an engine"
        )
        yield _build_warning(("container", "shm_size"), message)


def _is_large_shm(text: str) -> bool:
    try:
        return parse_size(text) >= _LARGE_SHM
    except ValueError:
        return False  # known only at the start


def _build_warning(where: FieldPath, message: str) -> LintMessage:
    return LintMessage(
        kind=LintRule.CONTAINER_SETTING, level=LintSeverity.WARNING, where=where, message=message, on_key=False
    )
