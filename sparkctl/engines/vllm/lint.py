"""Checks of vLLM's flags, beyond its parser."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from sparkctl.engines.engine_flags import parse_version
from sparkctl.engines.lint import FieldPath, LintMessage, LintRule, LintSeverity, flag_combinations
from sparkctl.engines.lint.flag_combinations import find_draft_mismatch
from sparkctl.engines.lint.profile_flags import (
    FlagAdvice,
    FlagSetting,
    FlagSettings,
    LintContext,
    has_env_reference,
    parse_json_value,
    parse_size_number,
    quote_value,
)
from sparkctl.engines.vllm.memory import DFLASH_MEMORY_SHARE, DFLASH_SHARE_ADVICE
from sparkctl.model.profile import Profile

_SPECULATION_MAP_ADVICE = "speculation is one map here: --speculative-config {method: …, num_speculative_tokens: …}"
FLAG_ADVICE = FlagAdvice(
    names={
        "--tp": "-tp",
        "--dp": "-dp",
        "--pp": "-pp",
        "--tp-size": "--tensor-parallel-size",
        "--dp-size": "--data-parallel-size",
        "--pp-size": "--pipeline-parallel-size",
        # SGLang's names
        "--mem-fraction-static": "--gpu-memory-utilization",
        "--context-length": "--max-model-len",
        "--max-running-requests": "--max-num-seqs",
        "--chunked-prefill-size": "--max-num-batched-tokens",
        "--disable-cuda-graph": "--enforce-eager",
    },
    words={
        "--enable-metrics": "/metrics is always on here: leave it out",
        "--mem-fraction-static": "it is a share of all memory, not of what is available",
        "--disable-radix-cache": "it is --no-enable-prefix-caching (0.33: --disable-prefix-caching)",
        "--model-path": "the model is the first word after serve: set model.path",
        "--speculative-algorithm": _SPECULATION_MAP_ADVICE,
        "--speculative-model": _SPECULATION_MAP_ADVICE,
        "--speculative-draft-model-path": _SPECULATION_MAP_ADVICE,
        "--speculative-num-steps": _SPECULATION_MAP_ADVICE,
        "--speculative-eagle-topk": _SPECULATION_MAP_ADVICE,
        "--speculative-num-draft-tokens": _SPECULATION_MAP_ADVICE,
        "--num-speculative-tokens": _SPECULATION_MAP_ADVICE,
        "--swap-space": "leave it out",
        "--disable-log-requests": "requests are not logged by default: leave it out",
    },
    not_alike=frozenset({"--mem-fraction-static", "--chunked-prefill-size"}),
    # ModelConfig._verify_quantization, 0.19 to 0.33: an NVFP4 checkpoint of ModelOpt makes modelopt_fp4 of every value
    replaceable=frozenset({"--quantization"}),
    key_values={
        # CUDAGraphMode, 0.19 to 0.33
        "--compilation-config.cudagraph_mode": ("NONE", "PIECEWISE", "FULL", "FULL_DECODE_ONLY", "FULL_AND_PIECEWISE"),
        "--attention-config.backend": "--attention-backend",
    },
)
_SHARE_FLAG, _SPECULATION_FLAG = "--gpu-memory-utilization", "--speculative-config"
_HIDDEN_STATE_METHODS = ("eagle", "eagle3", "dflash", "mtp")  # they read the target's layers
_METHODS_WITH_MODEL = ("eagle", "eagle3", "dflash", "medusa", "draft_model")  # not in the target's own checkpoint
_MARLIN_VARIABLES = {
    "VLLM_NVFP4_GEMM_BACKEND": "marlin",
    "VLLM_USE_FLASHINFER_MOE_FP4": "0",
    "VLLM_TEST_FORCE_FP8_MARLIN": "1",
}
_DEFAULT_BATCH_TOKENS, _DEFAULT_SEQUENCES = 2048, 256  # of one step; a large GPU gets more of both, in the same ratio


def check_engine_flags(profile: Profile, settings: FlagSettings, context: LintContext) -> Iterator[LintMessage]:
    """Yield diagnostics of combined flags of vLLM."""
    drafts = _read_speculation_settings(settings)
    yield from _check_memory_share(settings, context, drafts)
    yield from _check_speculation(profile, settings, drafts)
    yield from _check_draft_batch(settings, context, drafts)
    yield from _check_mamba_block_size(settings)
    yield from _check_nvfp4(profile)
    yield from flag_combinations.check_cpu_offload(settings)
    tools = settings.get_setting("--enable-auto-tool-choice")
    if tools is not None and settings.get_setting("--tool-call-parser") is None:
        message = "--enable-auto-tool-choice needs --tool-call-parser"
        yield tools.report_flag(LintRule.MISSING_FLAG, LintSeverity.ERROR, message)
    yield from flag_combinations.check_long_context(
        profile,
        settings.get_setting("--max-model-len"),
        "--max-model-len",
        "the KV cache has to hold one request of that length, or it does not start",
    )


def _check_memory_share(settings: FlagSettings, context: LintContext, drafts: dict[str, Any]) -> Iterator[LintMessage]:
    """gpu-memory-utilization is a share of all of a Spark's memory, which also holds the system and the page cache."""
    if settings.get_setting("--kv-cache-memory-bytes") is not None:
        return  # it overrides the share
    setting, flag = settings.get_setting(_SHARE_FLAG), context.catalogue.by_name.get(_SHARE_FLAG)
    given = setting.value if setting is not None else flag.default if flag is not None else None
    share = parse_size_number(given)
    if share is None or given is None:
        return
    where: FieldPath = setting.where if setting is not None else ("args",)
    if share > 1 or share <= 0:
        message = f"{_SHARE_FLAG} is a share of all memory, above 0 and at most 1, not {quote_value(given)}"
        yield LintMessage(kind=LintRule.BAD_VALUE, level=LintSeverity.ERROR, where=where, message=message, on_key=False)
        return
    is_dflash = str(drafts.get("method", "")).casefold() == "dflash"
    limit = DFLASH_MEMORY_SHARE if is_dflash else flag_combinations.MAX_MEMORY_SHARE
    if share <= limit:
        return
    what = f"{_SHARE_FLAG} {given}" if setting is not None else f"{_SHARE_FLAG} is not set, and {context} takes {given}"
    why = (
        DFLASH_SHARE_ADVICE
        if is_dflash
        else f"the system and its caches live in the same memory, and more than {limit:g} of it is unsafe"
    )
    yield LintMessage(
        kind=LintRule.MEMORY_SHARE,
        level=LintSeverity.INFO if share < flag_combinations.MAX_MEMORY_SHARE else LintSeverity.WARNING,
        where=where,
        message=f"{what}: {why}",
        on_key=setting is None,
        setting=f"args.{_SHARE_FLAG.removeprefix('--')}={limit:g}" if setting is None or setting.in_args else None,
    )


def _check_mamba_block_size(settings: FlagSettings) -> Iterator[LintMessage]:
    """vLLM refuses a block size of the state cache if no prefixes are cached."""
    size, caching = settings.get_setting("--mamba-block-size"), settings.get_setting("--enable-prefix-caching")
    if size is None or caching is None or not caching.name.startswith(("--no-", "--disable-")):
        return
    message = f"--mamba-block-size needs the prefix cache, which {caching.name} turns off: leave one of them out"
    yield size.report_flag(
        LintRule.BAD_COMBINATION,
        LintSeverity.WARNING,
        message,
        setting="args.mamba-block-size=false" if size.in_args else None,
    )


def _check_draft_batch(settings: FlagSettings, context: LintContext, drafts: dict[str, Any]) -> Iterator[LintMessage]:
    """Drafts made in parallel take ``num_speculative_tokens - 1`` tokens of each step for each sequence, until
    0.32, which no longer takes them off the batch.

    vLLM 0.26 with 16 drafts and its defaults, 2048 tokens for 256 sequences: "max_num_scheduled_tokens is set to -1792".
    """
    tokens = parse_size_number(str(drafts.get("num_speculative_tokens", "")))
    setting = settings.get_setting(_SPECULATION_FLAG) or settings.get_setting("--spec-method")
    is_affected = context.version is not None and parse_version(context.version) < (0, 32)
    if setting is None or not is_affected:
        return
    if tokens is None or (drafts.get("method") != "dflash" and drafts.get("parallel_drafting") not in (True, "true")):
        return
    given_batch, given_seqs = settings.get_number("--max-num-batched-tokens"), settings.get_number("--max-num-seqs")
    if (given_batch is None and settings.get_setting("--max-num-batched-tokens") is not None) or (
        given_seqs is None and settings.get_setting("--max-num-seqs") is not None
    ):
        return  # known only at the start
    batch, seqs = given_batch or _DEFAULT_BATCH_TOKENS, given_seqs or _DEFAULT_SEQUENCES
    left = batch - seqs * (tokens - 1)
    if left <= 0:
        message = (
            f"{tokens:g} drafts for each of {seqs:g} sequences leave {left:g} of {batch:g} tokens in a step: set a lower "
            "--max-num-seqs or a higher --max-num-batched-tokens (vLLM 0.26 does not start: "
            "github.com/vllm-project/vllm/issues/50708)"
        )
        yield setting.report_value(
            LintRule.BAD_COMBINATION,
            LintSeverity.WARNING,
            message,
            setting=f"args.max-num-seqs={max(1, int(batch // (2 * max(1, tokens - 1))))}",
        )


def _check_speculation(profile: Profile, settings: FlagSettings, drafts: dict[str, Any]) -> Iterator[LintMessage]:
    setting = settings.get_setting(_SPECULATION_FLAG) or settings.get_setting("--spec-method")
    if setting is None or not drafts:
        return
    method, draft = str(drafts.get("method", "")).casefold(), drafts.get("model")
    if "num_speculative_tokens" not in drafts:
        message = "num_speculative_tokens is not set, and only some draft models define it themselves"
        yield setting.report_value(LintRule.MISSING_FLAG, LintSeverity.WARNING, message)
    if isinstance(draft, str) and draft and profile.model.path:
        why = find_draft_mismatch(profile.model.path, draft, by_hidden_states=method in _HIDDEN_STATE_METHODS)
        if why is not None:
            message = f"this draft model will hardly be accepted: {why}"
            yield LintMessage(
                kind=LintRule.FAMILY_MISMATCH,
                level=LintSeverity.WARNING,
                where=_find_json_key_path(setting, "model"),
                message=message,
                on_key=False,
            )
    if method in _METHODS_WITH_MODEL and not draft:
        message = f"{method} drafts come from a model of their own, which is not named: set model in the map"
        yield setting.report_value(LintRule.MISSING_FLAG, LintSeverity.WARNING, message)
    if method == "dflash":
        yield from _check_dflash(profile, settings, setting, drafts)


def _check_nvfp4(profile: Profile) -> Iterator[LintMessage]:
    """What owners of a Spark report of 4-bit floating point: kernels that are chosen by variables, and a crash."""
    forced = [name for name, value in profile.env if _MARLIN_VARIABLES.get(name) == value.strip().casefold()]
    if forced:
        message = (
            f"{' and '.join(forced)} choose Marlin: 4-bit weights, 16-bit arithmetic. On a GB10 that is not a mistake: owners "
            "measured it 10 to 16 % faster than the native kernels, or as fast (forums.developer.nvidia.com/t/366445, "
            "/365119); without them vLLM takes the native ones, if the image was built for 12.1a"
        )
        yield LintMessage(
            kind=LintRule.CONTAINER_SETTING,
            level=LintSeverity.INFO,
            where=("env", forced[0]),
            message=message,
            on_key=False,
        )
    name = (profile.model.path or "").casefold()
    if "nvfp4" in name and "qwen3.5" in name and not forced:
        message = (
            "NVFP4 checkpoints of Qwen3.5 crashed on a GB10 (github.com/vllm-project/vllm/issues/35519): where yours does, "
            "take a newer image, or the FP8 or INT4 checkpoint"
        )
        yield LintMessage(
            kind=LintRule.KNOWN_TRAP, level=LintSeverity.INFO, where=("model", "path"), message=message, on_key=False
        )


def _check_dflash(
    profile: Profile, settings: FlagSettings, setting: FlagSetting, drafts: dict[str, Any]
) -> Iterator[LintMessage]:
    where = _find_json_key_path(setting, "method")
    backend = str(drafts.get("attention_backend") or settings.get_value("--attention-backend") or "")
    if backend.casefold() != "flash_attn" and not has_env_reference(backend):
        instead = f", and {quote_value(backend)} is set" if backend else ""
        message = (
            f"DFlash drafts need attention that is not causal: flash_attn has it{instead}. Others refuse it; FlashInfer took "
            "it, but accepted hardly a draft on a Blackwell GPU until the summer of 2026 "
            "(github.com/vllm-project/vllm/pull/48167): set --attention-backend flash_attn"
        )
        yield LintMessage(
            kind=LintRule.BAD_COMBINATION,
            level=LintSeverity.WARNING,
            where=where,
            message=message,
            on_key=False,
            setting=None if "attention_backend" in drafts else "args.attention-backend=flash_attn",
        )
    name = "".join(char for char in (profile.model.path or "").casefold() if char.isalnum())
    if "gptoss" in name:
        message = (
            "gpt-oss in MXFP4 with DFlash did not work in the community's build (forums.developer.nvidia.com/t/366445), and "
            "no owner is known to run it"
        )
        yield LintMessage(kind=LintRule.KNOWN_TRAP, level=LintSeverity.INFO, where=where, message=message, on_key=False)
    if "autoround" in name:
        yield _build_autoround_message(name, where)


def _build_autoround_message(name: str, where: FieldPath) -> LintMessage:
    """Say what owners report of INT4-AutoRound with DFlash: they differ by model."""
    thread = "forums.developer.nvidia.com/t/366445"
    if "qwen3535b" in name:
        message = (
            "with INT4-AutoRound the gain of DFlash depends on the text: an owner of a Spark saw over 70 tokens/s on a short prompt and 31 "
            f"with a context to read (Qwen3.5-35B-A3B, 15 drafts; {thread}); compare without in `top`"
        )
        return LintMessage(
            kind=LintRule.SLOW_DRAFTS, level=LintSeverity.INFO, where=where, message=message, on_key=False
        )
    is_coder = "codernext" in name
    message = (
        f"an owner of a Spark found that INT4-AutoRound does not work with DFlash: take NVFP4 or FP8 ({thread}"
        + (")" if is_coder else ", of Qwen3-Coder-Next; for Qwen3.5-35B-A3B another runs it)")
    )
    level = LintSeverity.WARNING if is_coder else LintSeverity.INFO
    return LintMessage(kind=LintRule.BAD_COMBINATION, level=level, where=where, message=message, on_key=False)


def _read_speculation_settings(settings: FlagSettings) -> dict[str, Any]:
    """Return the keys of ``--speculative-config``, however they were set; none if it is not JSON."""
    try:
        data = parse_json_value(settings.get_value(_SPECULATION_FLAG) or "{}")
    except ValueError:
        return {}
    found: dict[str, Any] = dict(data) if isinstance(data, dict) else {}
    found |= settings.get_json_keys(_SPECULATION_FLAG)
    for flag, key in (
        ("--spec-method", "method"),
        ("--spec-model", "model"),
        ("--spec-tokens", "num_speculative_tokens"),
    ):
        if (value := settings.get_value(flag)) is not None:
            found[key] = value
    return found


def _find_json_key_path(setting: FlagSetting, key: str) -> FieldPath:
    """Return the path of a key of the map; the path of the map itself if that was written as text."""
    return (*setting.where, key) if setting.in_args else setting.where
