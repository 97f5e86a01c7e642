"""Checks of trtllm-serve's flags. Most settings are in the YAML file that ``--config`` names."""

from __future__ import annotations

from collections.abc import Iterator

from sparkctl.engines.lint import LintMessage, LintRule, LintSeverity, flag_combinations
from sparkctl.engines.lint.flag_combinations import MAX_MEMORY_SHARE
from sparkctl.engines.lint.profile_flags import FlagAdvice, FlagSettings, LintContext, parse_size_number
from sparkctl.model.profile import Profile

_CONFIG_FILE_ADVICE = "it is set in the YAML file that --config names"
FLAG_ADVICE = FlagAdvice(
    names={
        "--max-model-len": "--max_seq_len",
        "--context-length": "--max_seq_len",
        "--max-num-seqs": "--max_batch_size",
        "--max-running-requests": "--max_batch_size",
        "--max-num-batched-tokens": "--max_num_tokens",
        "--gpu-memory-utilization": "--free_gpu_memory_fraction",
        "--mem-fraction-static": "--free_gpu_memory_fraction",
        "--tp": "--tensor_parallel_size",
        "-tp": "--tensor_parallel_size",
        "--pp": "--pipeline_parallel_size",
        "--tool-call-parser": "--tool_parser",
    },
    words={
        "--gpu-memory-utilization": "it is a share of what is free once the weights are there, not of all memory",
        "--mem-fraction-static": "it is a share of what is free once the weights are there",
        "--served-model-name": "clients ask for the model by its own name, or its directory's last part",
        "--kv-cache-dtype": f"{_CONFIG_FILE_ADVICE} (kv_cache_config: dtype)",
        "--speculative-config": f"{_CONFIG_FILE_ADVICE} (speculative_config)",
        "--enable-metrics": f"{_CONFIG_FILE_ADVICE} (return_perf_metrics)",
    },
    not_alike=frozenset({"--gpu-memory-utilization", "--mem-fraction-static"}),
)
_FRACTION_FLAG = "--free_gpu_memory_fraction"
_DEFAULT_FRACTION = 0.9


def check_engine_flags(profile: Profile, settings: FlagSettings, context: LintContext) -> Iterator[LintMessage]:
    """Yield diagnostics of combined flags of trtllm-serve."""
    has_file = settings.get_setting("--config") is not None
    if not has_file:
        message = "without return_perf_metrics: true, in a YAML file that --config names, TensorRT-LLM has no figures for the panel"
        yield LintMessage(kind=LintRule.NO_METRICS, level=LintSeverity.INFO, where=("args",), message=message)
    share = settings.get_setting(_FRACTION_FLAG)
    value = parse_size_number(share.value) if share is not None else None if has_file else _DEFAULT_FRACTION
    if value is not None and value > MAX_MEMORY_SHARE:
        by = "" if share is not None else ", its default"
        message = (
            f"{_FRACTION_FLAG} {value:g}{by}: the KV cache takes that share of all memory that is free once the weights are there, and "
            "on a Spark the rest is also the system's"
        )
        where = share.where if share is not None else ("args",)
        setting = "args.kv_cache_free_gpu_memory_fraction=0.7"
        yield LintMessage(
            kind=LintRule.MEMORY_SHARE,
            level=LintSeverity.WARNING,
            where=where,
            message=message,
            on_key=share is None,
            setting=setting,
        )
    size = settings.get_setting("--tensor_parallel_size") or settings.get_setting("--pipeline_parallel_size")
    ranks = (settings.get_number("--tensor_parallel_size") or 1) * (
        settings.get_number("--pipeline_parallel_size") or 1
    )
    if size is not None:
        yield from flag_combinations.check_rank_count(profile, int(ranks), size.where)
    if ranks < profile.nodes and (size is not None or not has_file):
        message = f"mpirun starts a rank on each of {profile.nodes} Sparks, and tp_size times pp_size is {int(ranks)}"
        where, setting = size.where if size is not None else ("args",), f"args.tp_size={profile.nodes}"
        yield LintMessage(
            kind=LintRule.BAD_COMBINATION,
            level=LintSeverity.WARNING,
            where=where,
            message=message,
            on_key=size is None,
            setting=setting,
        )
