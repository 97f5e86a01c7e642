"""Checks of SGLang's flags, beyond its parser."""

from __future__ import annotations

import re
from collections.abc import Iterator

from sparkctl.engines.lint import (
    FieldPath,
    LintFix,
    LintFixKind,
    LintMessage,
    LintRule,
    LintSeverity,
    flag_combinations,
)
from sparkctl.engines.lint.flag_combinations import find_draft_mismatch
from sparkctl.engines.lint.profile_flags import (
    FlagAdvice,
    FlagSettings,
    LintContext,
    has_env_reference,
    parse_size_number,
    quote_value,
)
from sparkctl.engines.memory_estimate import CUDA_CONTEXT_BYTES
from sparkctl.model.node import IDLE_AVAILABLE_BYTES
from sparkctl.model.profile import Profile
from sparkctl.model.text.units import GIB, format_gib

_GRAPH_BACKEND_ADVICE = "choose the backend with --cuda-graph-backend-prefill and --cuda-graph-backend-decode"
FLAG_ADVICE = FlagAdvice(
    names={
        # its own names before 0.5.23
        "--cuda-graph-max-bs": "--cuda-graph-max-bs-decode",
        "--cuda-graph-bs": "--cuda-graph-bs-decode",
        "--mamba-scheduler-strategy": "--mamba-radix-cache-strategy",
        "--nsa-prefill-backend": "--dsa-prefill-backend",
        "--nsa-decode-backend": "--dsa-decode-backend",
        "--enable-prefill-context-parallel": "--enable-prefill-cp",
        "--stream-output": "--incremental-streaming-output",
        # names that it never had
        "--speculative-model": "--speculative-draft-model-path",
        "--num-nodes": "--nnodes",
        "--fp8-gemm-runner-backend": "--fp8-gemm-backend",
        # vLLM's names
        "--gpu-memory-utilization": "--mem-fraction-static",
        "--max-model-len": "--context-length",
        "--max-num-seqs": "--max-running-requests",
        "--num-speculative-tokens": "--speculative-num-draft-tokens",
        "--enforce-eager": "--disable-cuda-graph",
    },
    words={
        "--enable-prefix-caching": "prefixes are cached by default here (--disable-radix-cache turns that off): leave it out",
        "--speculative-draft-device": "a draft model runs where the target does: leave it out",
        "--gpu-memory-utilization": "it is a share of what is available at the start, not of all memory",
        "--num-speculative-tokens": "it counts the bonus token, too",
        "--master-addr": "both are one flag here: --dist-init-addr HOST:PORT",
        "--master-port": "both are one flag here: --dist-init-addr HOST:PORT",
        "--disable-piecewise-cuda-graph": _GRAPH_BACKEND_ADVICE,
        "--enable-piecewise-cuda-graph": _GRAPH_BACKEND_ADVICE,
        "--enforce-piecewise-cuda-graph": _GRAPH_BACKEND_ADVICE,
        "--enable-breakable-cuda-graph": _GRAPH_BACKEND_ADVICE,
        "--piecewise-cuda-graph-compiler": _GRAPH_BACKEND_ADVICE,
        "--piecewise-cuda-graph-max-tokens": _GRAPH_BACKEND_ADVICE,
        "--piecewise-cuda-graph-tokens": _GRAPH_BACKEND_ADVICE,
        "--enable-nsa-prefill-context-parallel": "it is --enable-prefill-cp with --cp-strategy",
        "--nsa-prefill-cp-mode": "it is --enable-prefill-cp with --cp-strategy",
        "--prefill-cp-mode": "it is --enable-prefill-cp with --cp-strategy",
    },
    not_alike=frozenset({"--gpu-memory-utilization", "--num-speculative-tokens", "--enable-prefill-context-parallel"}),
)
_METRICS_FIELD = ("args", "enable-metrics")
_HIDDEN_STATE_METHODS = ("EAGLE", "EAGLE3", "NEXTN", "FROZEN_KV_MTP", "DFLASH")  # they read the target's layers
_ALGORITHM_FLAG, _DRAFT_MODEL_FLAG = "--speculative-algorithm", "--speculative-draft-model-path"
_STEPS_FLAG, _TOPK_FLAG, _DRAFT_TOKENS_FLAG = (
    "--speculative-num-steps",
    "--speculative-eagle-topk",
    "--speculative-num-draft-tokens",
)
_SHARE_FLAG = "--mem-fraction-static"
# What CUDA has free on an idle Spark, as `plan` counts it, and what a draft head holds beside weights and share.
_CUDA_FREE_BYTES, _BESIDE_WEIGHTS_BYTES = IDLE_AVAILABLE_BYTES - CUDA_CONTEXT_BYTES, 8 * GIB
# tokens/s for one request, by the thread's table
_MEASURED_SLOWER = {
    "EAGLE3": "16.4 tokens/s in place of 31.7 with BF16, 24.5 in place of 52.7 with FP8",
    "DFLASH": "20.5 tokens/s in place of 31.7 with BF16, 41.4 in place of 52.7 with FP8",
}
_FP4_CACHE_BACKENDS = ("triton", "torch_native", "flex_attention", "trtllm_mha")
_MLA_NAMES = re.compile(r"deepseek|kimi|glm", re.IGNORECASE)


def check_engine_flags(profile: Profile, settings: FlagSettings, context: LintContext) -> Iterator[LintMessage]:
    """Yield diagnostics of combined flags of SGLang."""
    algorithm = (settings.get_value(_ALGORITHM_FLAG) or "").upper()
    if settings.get_setting("--enable-metrics") is None:
        message = "without --enable-metrics SGLang has no /metrics, and the panel knows only what its log reports"
        yield LintMessage(
            kind=LintRule.NO_METRICS,
            level=LintSeverity.INFO,
            where=("args",),
            message=message,
            change=LintFix(LintFixKind.ADD, _METRICS_FIELD, "true"),
        )
    yield from _check_speculative_sizes(settings, algorithm)
    yield from _check_draft_model(profile, settings, algorithm)
    yield from _check_unused_draft_sizes(settings)
    yield from _check_draft_workspace(profile, settings, algorithm, context)
    yield from flag_combinations.check_cpu_offload(settings)
    yield from _check_encoder(settings)
    yield from _check_fp4_cache(profile, settings)
    yield from flag_combinations.check_long_context(
        profile,
        settings.get_setting("--context-length"),
        "--context-length",
        "one request may take that much of the KV cache, and each of max-running-requests a table of four bytes a token",
    )


def _check_speculative_sizes(settings: FlagSettings, algorithm: str) -> Iterator[LintMessage]:
    """SGLang 0.5.12 as published: steps require top-k, and a top-k other than 1 requires the number of drafts, too."""
    steps, topk, tokens = (
        settings.get_setting(_STEPS_FLAG),
        settings.get_setting(_TOPK_FLAG),
        settings.get_setting(_DRAFT_TOKENS_FLAG),
    )
    if algorithm in ("", "NGRAM", "DFLASH") or steps is None or tokens is not None:
        return
    if topk is not None and topk.value == "1":
        return
    lacking = "speculative-num-draft-tokens" if topk is not None else "speculative-eagle-topk"
    have = "speculative-num-steps and -eagle-topk are" if topk is not None else "speculative-num-steps is"
    message = f"{have} set without {lacking}: SGLang 0.5.12 as published dies of that with a TypeError"
    depth, breadth = parse_size_number(steps.value), parse_size_number(topk.value) if topk is not None else None
    # The number that the owner used who reported this first: 20 for 5 steps of 4.
    value = f"{int(depth * breadth)}" if depth and breadth else "6" if topk is not None else "1"
    yield steps.report_flag(LintRule.KNOWN_TRAP, LintSeverity.WARNING, message, setting=f"args.{lacking}={value}")


def _check_draft_workspace(
    profile: Profile, settings: FlagSettings, algorithm: str, context: LintContext
) -> Iterator[LintMessage]:
    """SGLang 0.5.12 with all three sizes of a draft head takes its share of what CUDA has free before the weights."""
    share, flag = settings.get_number(_SHARE_FLAG), settings.get_setting(_SHARE_FLAG)
    weights = profile.model.weights
    has_all = all(settings.get_setting(one) is not None for one in (_STEPS_FLAG, _TOPK_FLAG, _DRAFT_TOKENS_FLAG))
    is_affected = (context.version or "").startswith("0.5.12") and algorithm in ("NEXTN", "EAGLE", "EAGLE3") and has_all
    if flag is None or share is None or not 0 < share <= 1 or profile.nodes > 1 or not is_affected:
        return
    most = (_CUDA_FREE_BYTES - (weights or 0) - _BESIDE_WEIGHTS_BYTES) / _CUDA_FREE_BYTES
    if weights is not None and (share <= most or most <= 0):
        return
    if weights is None:
        left = max(0, int((most - share) * _CUDA_FREE_BYTES))
        so = f"the weights, which leaves about {format_gib(left)} for those: their size, model.weights, is not in the profile"
    else:
        so = f"the weights ({format_gib(weights)}), and a Spark has no room for both"
    message = (
        f"{_SHARE_FLAG} {quote_value(flag.value or '')}: with all three sizes of the drafts SGLang 0.5.12 takes this share of "
        f"what CUDA has free before {so}; `sparkctl plan` has the sum"
    )
    enough = int(most * 20) / 20 or int(most * 100) / 100  # a round share, as that of `plan`
    is_known = weights is not None and flag.in_args and enough > 0
    yield flag.report_value(
        LintRule.MEMORY_SHARE,
        LintSeverity.INFO,
        message,
        setting=f"args.{_SHARE_FLAG.removeprefix('--')}={enough:g}" if is_known else None,
    )


def _check_unused_draft_sizes(settings: FlagSettings) -> Iterator[LintMessage]:
    """Sizes of a draft without an algorithm: nothing is drafted."""
    if settings.get_setting(_ALGORITHM_FLAG) is not None:
        return
    for flag in (_DRAFT_TOKENS_FLAG, _STEPS_FLAG, _TOPK_FLAG, _DRAFT_MODEL_FLAG):
        if (setting := settings.get_setting(flag)) is not None:
            message = (
                f"{flag} without {_ALGORITHM_FLAG} drafts nothing: set that, too (NEXTN for a model with draft layers of "
                "its own, as Qwen3.5 and 3.6 have)"
            )
            yield setting.report_flag(LintRule.MISSING_FLAG, LintSeverity.WARNING, message)
            return


def _check_encoder(settings: FlagSettings) -> Iterator[LintMessage]:
    """A language model without its encoder asks other servers for it."""
    alone = settings.get_setting("--language-only")
    if alone is not None and settings.get_setting("--encoder-urls") is None:
        message = (
            "--language-only leaves the encoder to other servers, and --encoder-urls names none: it does not start; "
            "name them, or leave --language-only out"
        )
        yield alone.report_flag(LintRule.MISSING_FLAG, LintSeverity.WARNING, message)


def _check_fp4_cache(profile: Profile, settings: FlagSettings) -> Iterator[LintMessage]:
    """A KV cache in 4 bits: SGLang 0.5.12 asserts the backend. MLA models (DeepSeek, Kimi) have other backends."""
    if settings.get_value("--kv-cache-dtype") != "fp4_e2m1" or _MLA_NAMES.search(profile.model.path or ""):
        return
    for flag in ("--attention-backend", "--prefill-attention-backend", "--decode-attention-backend"):
        setting = settings.get_setting(flag)
        if setting is None or setting.value is None or setting.value in _FP4_CACHE_BACKENDS:
            continue
        if has_env_reference(setting.value):
            continue
        message = (
            f"a KV cache of fp4_e2m1 does not go with {flag} {quote_value(setting.value)}: "
            f"SGLang 0.5.12 stops unless it is one of {', '.join(_FP4_CACHE_BACKENDS)}"
        )
        yield setting.report_value(
            LintRule.BAD_COMBINATION, LintSeverity.WARNING, message, setting=f"args.{flag.removeprefix('--')}=triton"
        )


def _check_draft_model(profile: Profile, settings: FlagSettings, algorithm: str) -> Iterator[LintMessage]:
    chosen, draft = settings.get_setting(_ALGORITHM_FLAG), settings.get_setting(_DRAFT_MODEL_FLAG)
    where: FieldPath = chosen.where if chosen is not None else ("args",)
    if algorithm == "DFLASH":
        if draft is None:
            message = f"DFLASH needs a draft model: {_DRAFT_MODEL_FLAG}"
            yield LintMessage(
                kind=LintRule.MISSING_FLAG, level=LintSeverity.ERROR, where=where, message=message, on_key=False
            )
        if settings.get_setting("--enable-dp-attention") is not None or (settings.get_number("--pp-size") or 1) > 1:
            message = "DFLASH runs neither with pipeline parallel nor with data-parallel attention"
            yield LintMessage(
                kind=LintRule.BAD_COMBINATION, level=LintSeverity.ERROR, where=where, message=message, on_key=False
            )
    if algorithm == "EAGLE3" and draft is None:
        message = (
            f"EAGLE3 drafts come from a model of their own, which is not named: {_DRAFT_MODEL_FLAG} "
            "(github.com/sgl-project/sglang/issues/36528)"
        )
        yield LintMessage(
            kind=LintRule.MISSING_FLAG, level=LintSeverity.WARNING, where=where, message=message, on_key=False
        )
    if algorithm in _MEASURED_SLOWER and draft is not None:
        message = (
            f"{algorithm} on SGLang was slower than no drafts on a Spark: {_MEASURED_SLOWER[algorithm]} (Qwen3-30B-A3B; "
            "forums.developer.nvidia.com/t/362200); compare both in `top`"
        )
        yield LintMessage(
            kind=LintRule.SLOW_DRAFTS, level=LintSeverity.INFO, where=where, message=message, on_key=False
        )
    if draft is not None and draft.value and profile.model.path:
        reads_layers = algorithm in _HIDDEN_STATE_METHODS
        if why := find_draft_mismatch(profile.model.path, draft.value, by_hidden_states=reads_layers):
            message = f"this draft model will hardly be accepted: {why}"
            yield draft.report_value(LintRule.FAMILY_MISMATCH, LintSeverity.WARNING, message)
