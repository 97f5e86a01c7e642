"""Checks of SGLang's flags, beyond its parser."""

from __future__ import annotations

from collections.abc import Iterator

from sparkctl.engines.lint import flag_combinations
from sparkctl.engines.lint.flag_combinations import find_draft_mismatch
from sparkctl.engines.lint.model import LintFix, LintFixKind, LintMessage, LintRule, LintSeverity
from sparkctl.engines.lint.profile_flags import (
    FlagAdvice,
    FlagSettings,
    LintContext,
    parse_size_number,
)
from sparkctl.model.profile import Profile

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


def check_engine_flags(profile: Profile, settings: FlagSettings, held: LintContext) -> Iterator[LintMessage]:
    """Yield diagnostics of combined flags of SGLang."""
    algorithm = (settings.get_value(_ALGORITHM_FLAG) or "").upper()
    if settings.get_setting("--enable-metrics") is None:
        message = "without --enable-metrics SGLang has no /metrics, and the panel knows only what its log tells"
        yield LintMessage(
            kind=LintRule.NO_METRICS,
            level=LintSeverity.INFO,
            where=("args",),
            message=message,
            change=LintFix(LintFixKind.ADD, _METRICS_FIELD, "true"),
        )
    yield from _check_speculative_sizes(settings, algorithm)
    yield from _check_draft_model(profile, settings, algorithm)
    yield from flag_combinations.check_long_context(
        profile,
        settings.get_setting("--context-length"),
        "--context-length",
        "each of max-running-requests gets a table for all of it, and one request may take that much of the KV cache",
    )


def _check_speculative_sizes(settings: FlagSettings, algorithm: str) -> Iterator[LintMessage]:
    """SGLang 0.5.12 as published: steps require top-k, and a top-k other than 1 requires the number of drafts, too."""
    steps, topk, tokens = (
        settings.get_setting(_STEPS_FLAG),
        settings.get_setting(_TOPK_FLAG),
        settings.get_setting(_DRAFT_TOKENS_FLAG),
    )
    if algorithm in ("NGRAM", "DFLASH") or steps is None or tokens is not None:
        return
    if topk is not None and topk.value == "1":
        return
    lacking = "speculative-num-draft-tokens" if topk is not None else "speculative-eagle-topk"
    have = "speculative-num-steps and -eagle-topk are" if topk is not None else "speculative-num-steps is"
    message = f"{have} set without {lacking}: SGLang 0.5.12 as published dies of that with a TypeError"
    depth, breadth = parse_size_number(steps.value), parse_size_number(topk.value) if topk is not None else None
    # The number that the owner used who reported this first: 20 for 5 steps of 4.
    value = f"{int(depth * breadth)}" if depth and breadth else "6" if topk is not None else "1"
    yield LintMessage(
        kind=LintRule.KNOWN_TRAP,
        level=LintSeverity.WARNING,
        where=steps.where,
        message=message,
        on_key=steps.in_args,
        setting=f"args.{lacking}={value}",
    )


def _check_draft_model(profile: Profile, settings: FlagSettings, algorithm: str) -> Iterator[LintMessage]:
    draft = settings.get_setting(_DRAFT_MODEL_FLAG)
    if draft is not None and draft.value and profile.model.path:
        reads_layers = algorithm in _HIDDEN_STATE_METHODS
        if why := find_draft_mismatch(profile.model.path, draft.value, by_hidden_states=reads_layers):
            message = f"this draft model will hardly be accepted: {why}"
            yield LintMessage(
                kind=LintRule.FAMILY_MISMATCH,
                level=LintSeverity.WARNING,
                where=draft.where,
                message=message,
                on_key=False,
            )
