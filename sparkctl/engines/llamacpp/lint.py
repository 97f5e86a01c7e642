"""Checks of llama-server's flags, beyond its own help."""

from __future__ import annotations

from collections.abc import Iterator

from sparkctl.engines.lint import LintFix, LintFixKind, LintMessage, LintRule, LintSeverity
from sparkctl.engines.lint.profile_flags import FlagAdvice, FlagSettings, LintContext
from sparkctl.model.profile import Profile

_LOAD_MODE_ADVICE = (
    "how a model gets into memory is one flag now: --load-mode none, mmap or another that the help names"
)
_NO_SHARE_ADVICE = "it takes no share of the memory: weights and --ctx-size decide"
_ONE_GPU_ADVICE = "a Spark has one GPU: leave it out"
FLAG_ADVICE = FlagAdvice(
    names={
        # its own names, of earlier builds
        "--draft": "--spec-draft-n-max",
        "--draft-n": "--spec-draft-n-max",
        "--draft-max": "--spec-draft-n-max",
        "--draft-min": "--spec-draft-n-min",
        "--draft-n-min": "--spec-draft-n-min",
        # vLLM's and SGLang's
        "--max-model-len": "--ctx-size",
        "--context-length": "--ctx-size",
        "--max-num-seqs": "--parallel",
        "--max-running-requests": "--parallel",
        "--served-model-name": "--alias",
        "--model-path": "--model",
        "--enable-metrics": "--metrics",
        "--kv-cache-dtype": "--cache-type-k",
        "--speculative-draft-model-path": "--spec-draft-model",
    },
    words={
        "--no-mmap": _LOAD_MODE_ADVICE,
        "--mmap": _LOAD_MODE_ADVICE,
        "--mlock": _LOAD_MODE_ADVICE,
        "--direct-io": _LOAD_MODE_ADVICE,
        "--max-model-len": "it is for all slots together, and each has its own cache",
        "--context-length": "it is for all slots together, and each has its own cache",
        "--kv-cache-dtype": "with q8_0, q4_0 and the like, and the same for --cache-type-v",
        "--gpu-memory-utilization": _NO_SHARE_ADVICE,
        "--mem-fraction-static": _NO_SHARE_ADVICE,
        "--tensor-parallel-size": _ONE_GPU_ADVICE,
        "--tp": _ONE_GPU_ADVICE,
        "--tp-size": _ONE_GPU_ADVICE,
        "--enforce-eager": "leave it out",
        "--trust-remote-code": "a GGUF brings no code: leave it out",
        "--enable-prefix-caching": "prompts are cached by default here (--no-cache-prompt turns that off): leave it out",
    },
    not_alike=frozenset({"--max-model-len", "--context-length", "--kv-cache-dtype"}),
)
_METRICS_FIELD = ("args", "metrics")
_OFF_VALUES = frozenset({"off", "false", "0", "disabled"})
_UNQUANTIZED_CACHE_TYPES = frozenset({"f32", "f16", "bf16"})


def check_engine_flags(profile: Profile, settings: FlagSettings, context: LintContext) -> Iterator[LintMessage]:
    """Yield diagnostics of combined flags of llama-server."""
    if settings.get_setting("--metrics") is None:
        message = "without --metrics llama-server has no /metrics, and the panel knows only what its log reports"
        yield LintMessage(
            kind=LintRule.NO_METRICS,
            level=LintSeverity.INFO,
            where=("args",),
            message=message,
            change=LintFix(LintFixKind.ADD, _METRICS_FIELD, "true"),
        )
    elif key := settings.get_setting("--api-key-file"):
        message = (
            "llama-server shows /metrics only with a key, and sparkctl does not read its key file: the panel knows only "
            "what its log reports"
        )
        yield key.report_flag(LintRule.NO_METRICS, LintSeverity.INFO, message)
    cache, flash = settings.get_setting("--cache-type-v"), settings.get_value("--flash-attn")
    if cache is not None and cache.value not in _UNQUANTIZED_CACHE_TYPES and flash in _OFF_VALUES:
        message = "a quantized V cache needs flash attention, and that is off"
        yield cache.report_value(LintRule.BAD_COMBINATION, LintSeverity.ERROR, message)
