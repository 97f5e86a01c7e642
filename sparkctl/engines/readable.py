"""Flags that decide how much a start takes, and whether what they are set to can be read at all. Pure."""

from __future__ import annotations

import re

from sparkctl.engines.command_flags import CommandFlags

_SHARES = {
    "sglang": (("mem-fraction-static", "mem-fraction", "mem-frac"),),
    "vllm": (("gpu-memory-utilization", "gpu-memory-util"),),
    "trtllm": (("kv_cache_free_gpu_memory_fraction", "free_gpu_memory_fraction"),),
}
MEMORY_FLAGS = {
    "sglang": (("context-length", "context-len"),),
    "vllm": (("max-model-len",),),
    "trtllm": (("max_seq_len",),),
    "llamacpp": (("ctx-size", "c"),),
}
_COUNT = re.compile(r"\d{1,15}")
_COUNTS = {  # other forms than a whole number
    "vllm": re.compile(r"\d{1,15}(\.\d+)?[kmgtKMGT]?|auto|-1"),  # since 0.12: as much as there is room for
}


def has_shell_expansion(text: str) -> bool:
    """Tell whether a value is only known where a shell has read it."""
    return "$" in text or "`" in text


def find_unresolved_flag(engine: str, words: CommandFlags) -> tuple[str, str] | None:
    """Return the deciding flag that a shell is still to fill in, and its value; None where there is none."""
    for flags in (*_SHARES.get(engine, ()), *MEMORY_FLAGS.get(engine, ())):
        text = words.get_value(*flags)
        if text is not None and has_shell_expansion(text):
            return flags[0], text
    return None


def find_invalid_memory_flag(engine: str, words: CommandFlags) -> tuple[str, str] | None:
    """Return what is wrong with a deciding flag, and what to do; None where each can be so."""
    for flags in _SHARES.get(engine, ()):
        text = words.get_value(*flags)
        if text is not None and not has_shell_expansion(text) and words.get_fraction(*flags) is None:
            what = f"args.{flags[0]} is {text or 'without a value'}: it is a share of memory, more than 0 and at most 1"
            return what, f"--set args.{flags[0]}={_meant(text)}"
    for flags in MEMORY_FLAGS.get(engine, ()):
        text = words.get_value(*flags)
        if text is None or has_shell_expansion(text) or _COUNTS.get(engine, _COUNT).fullmatch(text):
            continue
        what = f"args.{flags[0]} is {text or 'without a value'}: it is a number of tokens"
        return what, f"--set args.{flags[0]}=32768"
    return None


def _meant(text: str) -> str:
    """Return a share that may have been meant: 80 and 80% are 0.8."""
    digits = text.removesuffix("%")
    return f"{int(digits) / 100:g}" if re.fullmatch(r"[1-9]\d?", digits) and int(digits) >= 10 else "0.8"
