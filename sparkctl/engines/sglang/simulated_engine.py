"""Simulated SGLang 0.5.12 on a GB10; what it prints is in simulated_engine.txt."""

from __future__ import annotations

from collections.abc import Mapping

from sparkctl.engines.simulation.decode_model import DecodeCounts, MetricRows
from sparkctl.engines.simulation.engine_launch import (
    RankRendezvous,
    parse_address,
    parse_flags,
    parse_torch_store,
)
from sparkctl.engines.simulation.script_player import LOG_TIME
from sparkctl.engines.simulation.simulated_engine import SimulatedEngine
from sparkctl.model.text.units import GIB

_INIT_PORT = 20000  # if nothing else is given
_BATCH_SIZES = (1, 2, 4, 8, 12, 16, 24, 32)
_MAX_REQUESTS = 48  # that it lets run at once here
_WORKSPACE_BYTES = int(
    0.6 * GIB
)  # of the attention of each draft step, beside the pool that the memory fraction pays for


class SimulatedSglang(SimulatedEngine):
    """It ends itself with SIGKILL, so a clean stop has exit code 137."""

    kind = "sglang"
    marks = ("sglang",)
    time_format = "%Y-%m-%d %H:%M:%S"
    default_port = 30000
    default_fraction = 0.85
    access_prefix = f"[{LOG_TIME}] "
    health_paths = ("/health", "/health_generate")
    graph_count, graph_bytes = len(_BATCH_SIZES), int(1.4 * GIB) // len(_BATCH_SIZES)
    before = pool = tokens = 0

    @classmethod
    def read_ranks(cls, argv: tuple[str, ...], env: Mapping[str, str]) -> tuple[tuple[str, ...], RankRendezvous | None]:
        """Return its words, and torch's store at ``--dist-init-addr``."""
        flags = parse_flags(argv)
        place = parse_address(flags.get("dist-init-addr") or "127.0.0.1", _INIT_PORT)
        return argv, parse_torch_store(flags, place, env.get("VLLM_HOST_IP"))

    def describe_launch(self) -> dict[str, object]:
        """Return its tag, its settings of drafts, and what is known of the model."""
        launch, drafts = self.launch, self.launch.draft_tokens
        eagle = f"'EAGLE', speculative_num_steps={drafts}"
        return {
            "tag": f"[{LOG_TIME}]" if launch.nodes == 1 else f"[{LOG_TIME} TP{launch.rank}]",
            "speculation": ("'NGRAM'" if launch.is_ngram else eagle) if drafts else "None",
            "load_seconds": launch.shards * 11.0,
            "architecture": "Qwen3_5ForConditionalGeneration" if "Qwen3." in launch.model else "Qwen3MoeForCausalLM",
            "quantization": "quant=fp8, " if "FP8" in launch.model else "",
            "has_draft_model": drafts > 0 and not launch.is_ngram,
            "workspace": drafts * _WORKSPACE_BYTES,
            "batch_sizes": list(_BATCH_SIZES),
            # a hybrid model such as Qwen3.5 and 3.6 has two pools
            "empty_usage": "full token usage: 0.00, mamba usage: 0.00" if launch.is_hybrid else "token usage: 0.00",
            "first_usage": "full token usage: 0.00, mamba usage: 0.02" if launch.is_hybrid else "token usage: 0.00",
        }

    def describe_work(self, made: DecodeCounts, seconds: float) -> dict[str, object]:
        """Return how full the cache is, and how many drafts were accepted."""
        tokens, drafts = self.decoding.context_tokens, self.launch.draft_tokens
        used = f"token usage: {tokens / self.decoding.kv_tokens:.2f}"
        states = f"mamba num: {self.running}, mamba usage: {self.running / _MAX_REQUESTS:.2f}"
        accepted = ""
        if drafts:
            rate = (made.accept_length - 1) / drafts
            accepted = f"accept len: {made.accept_length:.2f}, accept rate: {rate:.2f}, "
        return {
            "usage": f"#full token: {tokens}, full {used}, {states}"
            if self.launch.is_hybrid
            else f"#token: {tokens}, {used}",
            "has_new_requests": bool(made.requests) and not made.generated < 1,
            "accept_text": accepted,
        }

    @property
    def free_gib(self) -> float:
        """MemAvailable, which it prints as "avail mem" on a GB10."""
        return self.available() / GIB

    def compute_memory_before(self) -> None:
        """Measure what is available before it loads: its pool is a share of that."""
        self.before = self.available()

    def compute_pool(self) -> None:
        """Compute the KV cache in bytes and tokens."""
        self.pool = self.available() - int(self.before * (1 - self.launch.fraction))
        self.tokens = max(1, self.pool // 65536)

    @property
    def has_no_pool(self) -> bool:
        """Whether the weights left nothing for a KV cache."""
        return self.pool <= 0

    @property
    def half_gib(self) -> float:
        """The keys or the values of the KV cache."""
        return self.pool / 2 / GIB

    @property
    def batch_size(self) -> int:
        """The batch whose graph is captured next."""
        return _BATCH_SIZES[max(0, len(_BATCH_SIZES) - 1 - self.done)]

    def build_metrics(self, counts: DecodeCounts) -> tuple[str, MetricRows]:
        """Return the labels of each metric, and the metrics. The gauges are those of the last stride."""
        launch, decoding = self.launch, self.decoding
        last = decoding.stride if decoding.running_requests else None
        length = last.accept_length if last is not None and launch.draft_tokens else 0.0
        modes = {  # counted at every step, without a request's first token, which the prefill produces
            "prefill_compute": counts.prompt - counts.cached + decoding.health_checks,
            "prefill_cache": counts.cached,
            "decode": max(0.0, counts.generated - counts.requests),
        }
        rows: MetricRows = [
            ("sglang:num_running_reqs", "gauge", float(decoding.running_requests)),
            ("sglang:num_queue_reqs", "gauge", 0.0),
            ("sglang:token_usage", "gauge", decoding.cache_usage),
            ("sglang:num_used_tokens", "gauge", float(decoding.context_tokens)),
            ("sglang:max_total_num_tokens", "gauge", float(decoding.kv_tokens)),
            ("sglang:gen_throughput", "gauge", last.tokens_per_second if last is not None else 0.0),
            ("sglang:cache_hit_rate", "gauge", 0.0),
            ("sglang:spec_accept_length", "gauge", length),
            ("sglang:spec_accept_rate", "gauge", (length - 1) / launch.draft_tokens if length else 0.0),
            ("sglang:prompt_tokens_total", "counter", counts.prompt // 1),
            ("sglang:generation_tokens_total", "counter", counts.generated // 1),
            *((f'sglang:realtime_tokens_total|mode="{mode}"', "counter", count // 1) for mode, count in modes.items()),
            ("sglang:num_requests_total", "counter", float(counts.requests)),
            ("sglang:weight_memory_usage_gb", "gauge", launch.weights / GIB),
        ]
        labels = f'engine_type="unified",model_name="{launch.served}",moe_ep_rank="0",pp_rank="0",tp_rank="0"'
        return labels, rows + self.build_latency_metrics("sglang:", counts)

    def build_page(self, path: str) -> object | None:
        """Return the model's information, or the server's."""
        if path in ("/model_info", "/get_model_info"):
            return {"model_path": self.launch.model, "is_generation": True}
        if path not in ("/server_info", "/get_server_info"):
            return None
        state = {
            "last_gen_throughput": self.decoding.tokens_per_second,
            "avg_spec_accept_length": round(self.decoding.update_counts().accept_length, 2),
        }
        return {"version": "0.5.12", "served_model_name": self.launch.served, "internal_states": [state]}

    def count_health_check(self) -> str | None:
        """Count one token of a prompt, and one that is not counted, if it is idle; return its log line."""
        if self.running:
            return None
        self.decoding.health_checks += 1
        return str(self["health_line"])


SIMULATED_ENGINES = (SimulatedSglang,)
