"""Simulated vLLM 0.19.1 on a GB10, and Ray 2.54 below it; what they print is in simulated_engine.txt and
simulated_ray.txt.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence

from sparkctl.engines.simulation.decode_model import CACHED_PROMPT_TOKENS, PROMPT_TOKENS, DecodeCounts, MetricRows
from sparkctl.engines.simulation.engine_launch import (
    RankRendezvous,
    RendezvousKind,
    parse_address,
    parse_flags,
    parse_torch_store,
)
from sparkctl.engines.simulation.model_files import compute_kv_bytes_per_token, get_model_architecture
from sparkctl.engines.simulation.script_player import LOG_TIME
from sparkctl.engines.simulation.simulated_engine import SimulatedEngine
from sparkctl.engines.simulation.unified_memory import GIB, TOTAL_BYTES

_RAY_PORT, _STORE_PORT = 6379, 29501  # if nothing else is given
_RAY_WAIT_SECONDS = 1800.0  # for which a head waits for its workers
_RAY_HEAD_WAIT_SECONDS = 30.0  # for which `ray start --address` looks for a head
_OVERHEAD_BYTES = int(3.2 * GIB)  # activations, graphs, CUDA contexts


def _split_ray_command(argv: Sequence[str]) -> list[str] | None:
    """Return the words of the `ray start` that a shell runs before the engine; None without Ray."""
    if tuple(argv[:2]) != ("sh", "-c") or len(argv) < 3 or "ray start" not in argv[2]:
        return None
    start = shlex.split(argv[2].partition("&&")[0])
    return start[start.index("ray") :]


def _find_option(words: Sequence[str], name: str) -> str | None:
    return next((word.partition("=")[2] for word in words if word.startswith(f"--{name}=")), None)


class SimulatedVllm(SimulatedEngine):
    """The engine, whose ranks connect by torch's store or by Ray."""

    kind = "vllm"
    marks = ("vllm",)
    time_format = "%m-%d %H:%M:%S"
    default_port = 8000
    has_metrics = True
    access_prefix = "(APIServer pid=1) "
    log_interval = 10.0
    needs_model_name = True
    stuck_error = "EngineCore encountered an issue. See stack trace (above) for the root cause."
    overhead_bytes = _OVERHEAD_BYTES // 2

    @classmethod
    def read_ranks(cls, argv: tuple[str, ...], env: Mapping[str, str]) -> tuple[tuple[str, ...], RankRendezvous | None]:
        """Return its words, and torch's store at ``--master-addr``, or Ray."""
        ray = _split_ray_command(argv)
        flags = parse_flags(argv if ray is None else argv[4:])
        if ray is None:
            place = (flags.get("master-addr") or "127.0.0.1", int(flags.get("master-port") or _STORE_PORT))
            return argv, parse_torch_store(flags, place, env.get("VLLM_HOST_IP"))
        own = _find_option(ray, "node-ip-address")
        tensor, pipeline = (
            int(flags.get(name) or flags.get(short) or 1)
            for name, short in (("tensor-parallel-size", "tp"), ("pipeline-parallel-size", "pp"))
        )
        return argv[4:], RankRendezvous(
            bond=RendezvousKind.RAY,
            places=((own or "127.0.0.1", int(_find_option(ray, "port") or _RAY_PORT)),),
            own=own,
            patience=_RAY_WAIT_SECONDS,
            is_head=True,
            count=tensor * pipeline,
        )

    @property
    def over_ray(self) -> bool:
        """Whether its ranks connect by Ray."""
        return self.is_spread and self.joining.bond is RendezvousKind.RAY

    @property
    def over_store(self) -> bool:
        """Whether its ranks connect by torch's store."""
        return self.is_spread and not self.over_ray

    @property
    def specs(self) -> str:
        """The GPUs that it asks Ray for."""
        return str([{f"node:{self.joining.own}": 0.001, "GPU": 1.0}, *[{"GPU": 1.0}] * (self.launch.nodes - 1)])

    @property
    def tag(self) -> str:
        """What begins the lines of a worker, or of the core."""
        return f"(Worker_TP{self.launch.rank} pid=214)" if self.launch.rank else "(EngineCore pid=214)"

    @property
    def rank_tag(self) -> str:
        """What begins the lines of the error with which a rank ends."""
        source = "multiproc_executor.py:918" if self.launch.rank else "core.py:1108"
        return f"{self.tag} ERROR {LOG_TIME} [{source}]"

    @property
    def worker_count(self) -> int:
        """The other ranks."""
        return self.launch.nodes - 1

    @property
    def store_place(self) -> str:
        """Where torch's store of the ranks is."""
        return f"{self.address if self.is_spread else '127.0.0.1'}:{_STORE_PORT}"

    @property
    def arguments(self) -> dict[str, object]:
        """The arguments as it logs them."""
        launch = self.launch
        given: dict[str, object] = {
            "model_tag": launch.model,
            "host": launch.host,
            "port": launch.port,
            "model": launch.model,
            "max_model_len": launch.context,
            "served_model_name": [launch.served],
            "gpu_memory_utilization": launch.fraction,
        }
        if launch.draft_tokens:
            given["speculative_config"] = {"method": "mtp", "num_speculative_tokens": launch.draft_tokens}
        return given

    @property
    def architecture(self) -> str:
        """The model's class."""
        return get_model_architecture(self.launch.model)

    @property
    def is_nvfp4(self) -> bool:
        """Whether the weights are NVFP4."""
        return "NVFP4" in self.launch.model.upper()

    @property
    def wanted_bytes(self) -> int:
        """Its share of all memory."""
        return int(TOTAL_BYTES * self.launch.fraction)

    @property
    def wanted_gib(self) -> float:
        """The same in GiB."""
        return self.wanted_bytes / GIB

    @property
    def free_gib(self) -> float:
        """MemAvailable, which this version calls free memory on a GB10."""
        return self.available() / GIB

    @property
    def is_short(self) -> bool:
        """Whether less than its share is available."""
        return self.available() < self.wanted_bytes

    @property
    def load_seconds(self) -> float:
        """How long the weights took."""
        return self.launch.shards * 8.0

    @property
    def model_seconds(self) -> float:
        """How long the model took."""
        return self.load_seconds + 2.4

    @property
    def pool(self) -> int:
        """The KV cache in bytes."""
        return self.wanted_bytes - self.launch.weights - _OVERHEAD_BYTES

    @property
    def worker_pool(self) -> int:
        """What a worker takes beside its weights."""
        return max(0, self.wanted_bytes - self.launch.weights - _OVERHEAD_BYTES // 2)

    @property
    def has_no_pool(self) -> bool:
        """Whether the weights left nothing for a KV cache."""
        return self.pool <= 0

    @property
    def pool_gib(self) -> float:
        """The KV cache in GiB."""
        return self.pool / GIB

    @property
    def tokens(self) -> int:
        """How many tokens the KV cache holds, on all Sparks together."""
        return self.pool * self.launch.nodes // compute_kv_bytes_per_token(self.launch.model) // 16 * 16

    @property
    def concurrency(self) -> float:
        """How many requests of full length it holds."""
        return self.tokens / self.launch.context

    @property
    def is_raised(self) -> bool:
        """Whether a lost rank sent its error."""
        return bool(self["loss"].how == "raised")

    @property
    def lost_error(self) -> str:
        """The error of a lost rank."""
        return str(self["loss"].said)

    @property
    def prompt_rate(self) -> float:
        """Prompt tokens per second that were not cached."""
        made = self["made"]
        return float((made.prompt - made.cached) / self["seconds"])

    @property
    def cache_percent(self) -> float:
        """How full the cache is."""
        return self.decoding.context_tokens * 100 / self.decoding.kv_tokens

    @property
    def hit_percent(self) -> float:
        """How much of the prompts was cached."""
        return CACHED_PROMPT_TOKENS / PROMPT_TOKENS * 100 if self.decoding.background else 0.0

    @property
    def has_drafted(self) -> bool:
        """Whether a stride has drafts."""
        return self.is_drafting and not self.is_idle

    @property
    def accepted(self) -> float:
        """Accepted drafts of a stride."""
        return float(sum(self["made"].accepted))

    @property
    def drafted(self) -> float:
        """All drafts of a stride."""
        return float(self["made"].steps * self.launch.draft_tokens)

    @property
    def accept_length(self) -> float:
        """Tokens per step of a stride."""
        return 1 + self.accepted / float(self["made"].steps)

    @property
    def accepted_rate(self) -> float:
        """Accepted drafts per second."""
        return self.accepted / float(self["seconds"])

    @property
    def drafted_rate(self) -> float:
        """Drafts per second."""
        return self.drafted / float(self["seconds"])

    @property
    def accept_percent(self) -> float:
        """How many of the drafts were accepted."""
        return self.accepted / self.drafted * 100

    @property
    def positions(self) -> str:
        """How many drafts were accepted at each position."""
        return ", ".join(f"{count / self['made'].steps:.3f}" for count in self["made"].accepted)

    def build_metrics(self, counts: DecodeCounts) -> tuple[str, MetricRows]:
        """Return the labels of each metric, and the metrics."""
        launch, decoding = self.launch, self.decoding
        rows: MetricRows = [
            ("vllm:num_requests_running", "gauge", float(decoding.running_requests)),
            ("vllm:num_requests_waiting", "gauge", 0.0),
            ('vllm:engine_sleep_state|sleep_state="awake"', "gauge", 1.0),
            ("vllm:kv_cache_usage_perc", "gauge", decoding.cache_usage),
            ("vllm:prefix_cache_queries_total", "counter", counts.prompt // 1),
            ("vllm:prefix_cache_hits_total", "counter", counts.cached // 1),
            ("vllm:num_preemptions_total", "counter", 0.0),
            ("vllm:prompt_tokens_total", "counter", counts.prompt // 1),
            ("vllm:generation_tokens_total", "counter", counts.generated // 1),
            ('vllm:request_success_total|finished_reason="length"', "counter", float(counts.requests)),
        ]
        rows += self.build_latency_metrics("vllm:", counts)
        if launch.draft_tokens:
            drafts = "vllm:spec_decode_num_"
            rows += [
                (f"{drafts}drafts_total", "counter", counts.steps // 1),
                (f"{drafts}draft_tokens_total", "counter", counts.steps * launch.draft_tokens // 1),
                (f"{drafts}accepted_tokens_total", "counter", sum(counts.accepted) // 1),
            ]
            rows += [
                (f'{drafts}accepted_tokens_per_pos_total|position="{at}"', "counter", accepted // 1)
                for at, accepted in enumerate(counts.accepted)
            ]
        return f'engine="0",model_name="{launch.served}"', rows

    def build_page(self, path: str) -> object | None:
        """Return its version."""
        return {"version": "0.19.1"} if path == "/version" else None


class SimulatedRayWorker(SimulatedVllm):
    """A worker over Ray: what it loads, the head tells it."""

    kind = "ray"
    script = "simulated_ray.txt"
    time_format = "%Y-%m-%d %H:%M:%S"
    default_port = 0
    has_metrics = False
    access_prefix = ""

    @classmethod
    def rate_launch(cls, image: str, argv: Sequence[str]) -> int:
        """Return 3 for a `ray start` that is no head's."""
        ray = _split_ray_command(argv)
        return 3 if ray is not None and "--head" not in ray else 0

    @classmethod
    def read_ranks(cls, argv: tuple[str, ...], env: Mapping[str, str]) -> tuple[tuple[str, ...], RankRendezvous | None]:
        """Return no words of an engine, and where the head is."""
        ray = _split_ray_command(argv) or []
        at = next((at for at, word in enumerate(ray) if word == "--address"), len(ray))
        head = _find_option(ray, "address") or next(iter(ray[at + 1 : at + 2]), "")
        return (), RankRendezvous(
            bond=RendezvousKind.RAY,
            places=(parse_address(head, _RAY_PORT),),
            own=_find_option(ray, "node-ip-address"),
            patience=_RAY_HEAD_WAIT_SECONDS,
            is_head=False,
            count=0,
        )


SIMULATED_ENGINES = (SimulatedVllm, SimulatedRayWorker)
