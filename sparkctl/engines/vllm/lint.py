"""What is known of vLLM's flags beside its parser."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from sparkctl.engines import flag_combinations
from sparkctl.engines.flag_combinations import find_draft_mismatch
from sparkctl.engines.lint.model import FieldPath, LintMessage, LintRule, LintSeverity
from sparkctl.engines.profile_flags import (
    FlagAdvice,
    FlagSetting,
    FlagSettings,
    LintContext,
    parse_json_value,
    parse_size_number,
    quote_value,
)
from sparkctl.model.profile import Profile

_ONE_MAP = "speculation is one map here: --speculative-config {method: …, num_speculative_tokens: …}"
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
        "--speculative-algorithm": _ONE_MAP,
        "--speculative-model": _ONE_MAP,
        "--speculative-draft-model-path": _ONE_MAP,
        "--speculative-num-steps": _ONE_MAP,
        "--speculative-eagle-topk": _ONE_MAP,
        "--speculative-num-draft-tokens": _ONE_MAP,
        "--num-speculative-tokens": _ONE_MAP,
        "--swap-space": "leave it out",
        "--disable-log-requests": "requests are not logged by default: leave it out",
    },
    not_alike=frozenset({"--mem-fraction-static", "--chunked-prefill-size"}),
)
_SHARE, _CONFIG = "--gpu-memory-utilization", "--speculative-config"
_HEADS = ("eagle", "eagle3", "dflash", "mtp")  # they read the target's own layers


def check_engine_flags(profile: Profile, settings: FlagSettings, held: LintContext) -> Iterator[LintMessage]:
    """Yield what flags of vLLM say together."""
    drafts = _speculation(settings)
    yield from _memory(settings, held, drafts)
    yield from _check_speculation(profile, settings, drafts)
    tools = settings.get("--enable-auto-tool-choice")
    if tools is not None and settings.get("--tool-call-parser") is None:
        message = "--enable-auto-tool-choice needs --tool-call-parser"
        yield LintMessage(LintRule.MISSING_FLAG, LintSeverity.ERROR, tools.where, message, on_key=tools.in_args)
    yield from flag_combinations.check_long_context(
        profile,
        settings.get("--max-model-len"),
        "--max-model-len",
        "the KV cache has to hold one request of that length, or it does not start",
    )


def _memory(settings: FlagSettings, held: LintContext, drafts: dict[str, Any]) -> Iterator[LintMessage]:
    """gpu-memory-utilization is a share of all of a Spark's memory, which the system and the page cache live in, too."""
    if settings.get("--kv-cache-memory-bytes") is not None:
        return  # it goes before the share
    setting, flag = settings.get(_SHARE), held.catalogue.by_name.get(_SHARE)
    given = setting.value if setting is not None else flag.default if flag is not None else None
    share = parse_size_number(given)
    if share is None or given is None:
        return
    where: FieldPath = setting.where if setting is not None else ("args",)
    if share > 1 or share <= 0:
        message = f"{_SHARE} is a share of all memory, above 0 and at most 1, not {quote_value(given)}"
        yield LintMessage(LintRule.BAD_VALUE, LintSeverity.ERROR, where, message, on_key=False)
        return
    is_dflash = str(drafts.get("method", "")).casefold() == "dflash"
    if share > flag_combinations.MAX_MEMORY_SHARE or (is_dflash and share >= flag_combinations.MAX_MEMORY_SHARE):
        what = f"{_SHARE} {given}" if setting is not None else f"{_SHARE} is not set, and {held} takes {given}"
        more = "; DFlash's draft model comes on top, and 0.60 is known to hold" if is_dflash else ""
        limit = f"{'' if is_dflash else 'more than '}{flag_combinations.MAX_MEMORY_SHARE:g} of it"
        message = f"{what}: the system and its caches live in the same memory, and {limit} is unsafe{more}"
        yield LintMessage(LintRule.MEMORY_SHARE, LintSeverity.WARNING, where, message, on_key=setting is None)


def _check_speculation(profile: Profile, settings: FlagSettings, drafts: dict[str, Any]) -> Iterator[LintMessage]:
    setting = settings.get(_CONFIG) or settings.get("--spec-method")
    if setting is None or not drafts:
        return
    method, draft = str(drafts.get("method", "")).casefold(), drafts.get("model")
    if "num_speculative_tokens" not in drafts:
        message = "num_speculative_tokens is not set, and only some draft models tell it themselves"
        yield LintMessage(LintRule.MISSING_FLAG, LintSeverity.WARNING, setting.where, message, on_key=False)
    if isinstance(draft, str) and draft and profile.model.path:
        why = find_draft_mismatch(profile.model.path, draft, by_hidden_states=method in _HEADS)
        if why is not None:
            message = f"this draft model will hardly be accepted: {why}"
            yield LintMessage(
                LintRule.FAMILY_MISMATCH, LintSeverity.WARNING, _json_key_place(setting, "model"), message, on_key=False
            )
    if method == "dflash":
        yield from _dflash(profile, settings, setting, drafts)


def _dflash(
    profile: Profile, settings: FlagSettings, setting: FlagSetting, drafts: dict[str, Any]
) -> Iterator[LintMessage]:
    where = _json_key_place(setting, "method")
    if settings.get("--attention-backend") is None and "attention_backend" not in drafts:
        message = "DFlash drafts run on flash_attn alone: set --attention-backend flash_attn"
        yield LintMessage(
            LintRule.BAD_COMBINATION,
            LintSeverity.WARNING,
            where,
            message,
            on_key=False,
            setting="args.attention-backend=flash_attn",
        )
    if "autoround" in "".join(char for char in (profile.model.path or "").casefold() if char.isalnum()):
        message = (
            "INT4-AutoRound with DFlash gains by the text: an owner of a Spark saw over 70 tokens/s on a short prompt and 31 "
            "with a context to read (Qwen3.5-35B-A3B, 15 drafts; forums.developer.nvidia.com/t/366445); compare without in `top`"
        )
        yield LintMessage(LintRule.SLOW_DRAFTS, LintSeverity.INFO, where, message, on_key=False)


def _speculation(settings: FlagSettings) -> dict[str, Any]:
    """Return the keys of ``--speculative-config``, whichever way they were set; none where it is no JSON."""
    try:
        data = parse_json_value(settings.value(_CONFIG) or "{}")
    except ValueError:
        return {}
    found: dict[str, Any] = dict(data) if isinstance(data, dict) else {}
    found |= settings.keys(_CONFIG)
    for flag, key in (
        ("--spec-method", "method"),
        ("--spec-model", "model"),
        ("--spec-tokens", "num_speculative_tokens"),
    ):
        if (value := settings.value(flag)) is not None:
            found[key] = value
    return found


def _json_key_place(setting: FlagSetting, key: str) -> FieldPath:
    """Return where a key of the map stands; who looks for it takes the map where it was written as text."""
    return (*setting.where, key) if setting.in_args else setting.where
