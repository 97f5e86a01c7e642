"""The engines' /metrics in Prometheus' text format, under their true names."""

from __future__ import annotations

from sparkctl.engines.simulation.decode_model import FIRST_TOKEN, DecodeCounts, DecodeModel
from sparkctl.engines.simulation.engine_launch import SimEngineKind, SimLaunch
from sparkctl.engines.simulation.unified_memory import GIB

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_TTFT_BUCKETS = (("0.1", 0.0), ("0.25", 0.35), ("0.5", 0.85), ("1.0", 0.95), ("2.5", 1.0), ("+Inf", 1.0))  # share up to
_ITL_BUCKETS = ("0.025", "0.05", "0.075", "0.1", "0.15", "0.2", "0.3", "0.5", "1.0", "+Inf")
MetricRows = list[tuple[str, str, float]]  # name, kind, value


def build_metrics_page(launch: SimLaunch, decoding: DecodeModel) -> str:
    """Return the whole page."""
    counts = decoding.counts()
    if launch.kind is SimEngineKind.VLLM:
        labels = f'engine="0",model_name="{launch.served}"'
        rows = _vllm_metrics(launch, decoding, counts)
    elif launch.kind is SimEngineKind.SGLANG:
        labels = f'engine_type="unified",model_name="{launch.served}",moe_ep_rank="0",pp_rank="0",tp_rank="0"'
        rows = _sglang_metrics(launch, decoding, counts)
    else:
        labels, rows = "", _llama_metrics(launch, decoding, counts)
    lines: list[str] = []
    before = ""
    for name, kind, value in rows:
        bare, _, more = name.partition("|")
        inside = ",".join(part for part in (labels, more) if part)
        if bare != before:
            lines += [f"# HELP {bare} {bare.replace('_', ' ')}", f"# TYPE {bare} {kind}"]
        before = bare
        lines.append(f"{bare}{'{' + inside + '}' if inside else ''} {value!r}")
    return "\n".join([*lines, ""])


def _cache_usage(decoding: DecodeModel) -> float:
    return min(0.97, decoding.context / decoding.kv_tokens)


def _vllm_metrics(launch: SimLaunch, decoding: DecodeModel, counts: DecodeCounts) -> MetricRows:
    rows: MetricRows = [
        ("vllm:num_requests_running", "gauge", float(decoding.running)),
        ("vllm:num_requests_waiting", "gauge", 0.0),
        ('vllm:engine_sleep_state|sleep_state="awake"', "gauge", 1.0),
        ("vllm:kv_cache_usage_perc", "gauge", _cache_usage(decoding)),
        ("vllm:prefix_cache_queries_total", "counter", counts.prompt // 1),
        ("vllm:prefix_cache_hits_total", "counter", counts.cached // 1),
        ("vllm:num_preemptions_total", "counter", 0.0),
        ("vllm:prompt_tokens_total", "counter", counts.prompt // 1),
        ("vllm:generation_tokens_total", "counter", counts.generated // 1),
        ('vllm:request_success_total|finished_reason="length"', "counter", float(counts.requests)),
    ]
    rows += _latencies("vllm:", launch, counts)
    if launch.draft_tokens:
        rows += [
            ("vllm:spec_decode_num_drafts_total", "counter", counts.steps // 1),
            ("vllm:spec_decode_num_draft_tokens_total", "counter", counts.steps * launch.draft_tokens // 1),
            ("vllm:spec_decode_num_accepted_tokens_total", "counter", sum(counts.accepted) // 1),
        ]
        rows += [
            (
                f'vllm:spec_decode_num_accepted_tokens_per_pos_total|position="{at}"',
                "counter",
                accepted // 1,
            )
            for at, accepted in enumerate(counts.accepted)
        ]
    return rows


def _latencies(prefix: str, launch: SimLaunch, counts: DecodeCounts) -> MetricRows:
    name = f"{prefix}time_to_first_token_seconds"
    between = f"{prefix}inter_token_latency_seconds"
    first = [
        (f'{name}_bucket|le="{le}"', "counter", float(int(counts.requests * share))) for le, share in _TTFT_BUCKETS
    ]
    step = 1 / launch.steps_per_second
    steps = [
        (f'{between}_bucket|le="{le}"', "counter", counts.steps // 1 if step <= float(le) else 0.0)
        for le in _ITL_BUCKETS
    ]
    return [
        *first,
        *steps,
        (f"{name}_count", "counter", float(counts.requests)),
        (f"{name}_sum", "counter", counts.requests * FIRST_TOKEN),
        (f"{between}_count", "counter", counts.steps // 1),
        (f"{between}_sum", "counter", counts.steps / launch.steps_per_second),
    ]


def _sglang_metrics(launch: SimLaunch, decoding: DecodeModel, counts: DecodeCounts) -> MetricRows:
    last = decoding.stride if decoding.running else None  # its gauges are those of the last stride
    length = last.length if last is not None and launch.draft_tokens else 0.0
    rate = (length - 1) / launch.draft_tokens if length else 0.0
    rows: MetricRows = [
        ("sglang:num_running_reqs", "gauge", float(decoding.running)),
        ("sglang:num_queue_reqs", "gauge", 0.0),
        ("sglang:token_usage", "gauge", _cache_usage(decoding)),
        ("sglang:num_used_tokens", "gauge", float(decoding.context)),
        ("sglang:max_total_num_tokens", "gauge", float(decoding.kv_tokens)),
        ("sglang:gen_throughput", "gauge", last.rate if last is not None else 0.0),
        ("sglang:cache_hit_rate", "gauge", 0.0),
        ("sglang:spec_accept_length", "gauge", length),
        ("sglang:spec_accept_rate", "gauge", rate),
        ("sglang:prompt_tokens_total", "counter", counts.prompt // 1),
        ("sglang:generation_tokens_total", "counter", counts.generated // 1),
        *_realtime(decoding, counts),
        ("sglang:num_requests_total", "counter", float(counts.requests)),
        ("sglang:weight_memory_usage_gb", "gauge", launch.weights / GIB),
    ]
    return rows + _latencies("sglang:", launch, counts)


def _realtime(decoding: DecodeModel, counts: DecodeCounts) -> MetricRows:
    """Return what is counted at every step: a request's first token, which comes of its prompt, is not."""
    modes = {
        "prefill_compute": counts.prompt - counts.cached + decoding.health_checks,
        "prefill_cache": counts.cached,
        "decode": max(0.0, counts.generated - counts.requests),
    }
    return [(f'sglang:realtime_tokens_total|mode="{mode}"', "counter", tokens // 1) for mode, tokens in modes.items()]


def _llama_metrics(launch: SimLaunch, decoding: DecodeModel, counts: DecodeCounts) -> MetricRows:
    spec: MetricRows = [
        ("llamacpp:spec_decode_num_drafts_total", "counter", counts.steps // 1),
        ("llamacpp:spec_decode_num_draft_tokens_total", "counter", counts.steps * launch.draft_tokens // 1),
        ("llamacpp:spec_decode_num_accepted_tokens_total", "counter", sum(counts.accepted) // 1),
    ]
    return [
        *(spec if launch.draft_tokens else []),
        ("llamacpp:tokens_predicted_total", "counter", counts.generated // 1),
        ("llamacpp:tokens_predicted_seconds_total", "counter", counts.steps / launch.steps_per_second),
        ("llamacpp:n_decode_total", "counter", counts.steps // 1),
        ("llamacpp:prompt_tokens_total", "counter", (counts.prompt - counts.cached) // 1),
        ("llamacpp:prompt_tokens_cached_total", "counter", counts.cached // 1),
        ("llamacpp:requests_processing", "gauge", float(decoding.running)),
        ("llamacpp:requests_deferred", "gauge", 0.0),
        ("llamacpp:predicted_tokens_seconds", "gauge", decoding.rate),
    ]
