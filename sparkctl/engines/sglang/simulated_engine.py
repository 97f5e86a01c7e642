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
from sparkctl.engines.simulation.unified_memory import GIB

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

    @property
    def tag(self) -> str:
        """What begins the lines of its scheduler."""
        return f"[{LOG_TIME}]" if self.launch.nodes == 1 else f"[{LOG_TIME} TP{self.launch.rank}]"

    @property
    def speculation(self) -> str:
        """Its settings of drafts."""
        if not self.launch.draft_tokens:
            return "None"
        return "'NGRAM'" if self.launch.is_ngram else f"'EAGLE', speculative_num_steps={self.launch.draft_tokens}"

    @property
    def free_gib(self) -> float:
        """MemAvailable, which it prints as "avail mem" on a GB10."""
        return self.available() / GIB

    @property
    def load_seconds(self) -> float:
        """How long the weights took."""
        return self.launch.shards * 11.0

    @property
    def architecture(self) -> str:
        """The model's class."""
        return "Qwen3_5ForConditionalGeneration" if "Qwen3." in self.launch.model else "Qwen3MoeForCausalLM"

    @property
    def quantization(self) -> str:
        """The quantization of the weights."""
        return "quant=fp8, " if "FP8" in self.launch.model else ""

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
    def batch_sizes(self) -> list[int]:
        """The batches whose graphs it captures."""
        return list(_BATCH_SIZES)

    @property
    def batch_size(self) -> int:
        """The batch whose graph is captured next."""
        return _BATCH_SIZES[max(0, len(_BATCH_SIZES) - 1 - self.done)]

    @property
    def has_draft_model(self) -> bool:
        """Whether a head of the model drafts."""
        return self.launch.draft_tokens > 0 and not self.launch.is_ngram

    @property
    def workspace(self) -> int:
        """The memory of all draft steps."""
        return self.launch.draft_tokens * _WORKSPACE_BYTES

    @property
    def empty_usage(self) -> str:
        """The pools of an empty cache: both for a hybrid model such as Qwen3.5 and 3.6."""
        return "full token usage: 0.00, mamba usage: 0.00" if self.launch.is_hybrid else "token usage: 0.00"

    @property
    def first_usage(self) -> str:
        """The pools when a request begins."""
        return "full token usage: 0.00, mamba usage: 0.02" if self.launch.is_hybrid else "token usage: 0.00"

    @property
    def usage(self) -> str:
        """The pools now."""
        tokens = self.decoding.context_tokens
        used = tokens / self.decoding.kv_tokens
        if not self.launch.is_hybrid:
            return f"#token: {tokens}, token usage: {used:.2f}"
        states = f"mamba num: {self.running}, mamba usage: {self.running / _MAX_REQUESTS:.2f}"
        return f"#full token: {tokens}, full token usage: {used:.2f}, {states}"

    @property
    def has_new_requests(self) -> bool:
        """Whether requests began in a stride that decoded something."""
        return bool(self["made"].requests) and not self.is_idle

    @property
    def accept_text(self) -> str:
        """How many drafts were accepted."""
        if not self.launch.draft_tokens:
            return ""
        length = self["made"].accept_length
        return f"accept len: {length:.2f}, accept rate: {(length - 1) / self.launch.draft_tokens:.2f}, "

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
