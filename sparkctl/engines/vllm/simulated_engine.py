"""Simulated vLLM 0.19.1 on a GB10, and Ray 2.54 below it; they print simulated_engine.txt and simulated_ray.txt."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence

from sparkctl.engines.simulation.decode_model import CACHED_PROMPT_TOKENS, PROMPT_TOKENS, DecodeCounts, MetricRows
from sparkctl.engines.simulation.engine_launch import (
    RankRendezvous,
    RendezvousKind,
    compute_kv_bytes_per_token,
    get_model_architecture,
    parse_address,
    parse_flags,
    parse_torch_store,
)
from sparkctl.engines.simulation.script_player import LOG_TIME
from sparkctl.engines.simulation.simulated_engine import SimulatedEngine
from sparkctl.model.node import TOTAL_BYTES
from sparkctl.model.text.units import GIB

_RAY_PORT, _STORE_PORT = 6379, 29501  # if nothing else is given
_RAY_WAIT_SECONDS = 1800.0  # for which a head waits for its workers
_RAY_HEAD_WAIT_SECONDS = 30.0  # for which `ray start --address` looks for a head
_SHARD_SECONDS = 8.0
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
        return self.is_spread and self.joining.bond is RendezvousKind.RAY

    def describe_launch(self) -> dict[str, object]:
        """Return its tags, its arguments, and its share of the memory with what is in it."""
        launch, is_worker = self.launch, self.launch.rank > 0
        tag = f"(Worker_TP{launch.rank} pid=214)" if is_worker else "(EngineCore pid=214)"
        arguments: dict[str, object] = {
            "model_tag": launch.model,
            "host": launch.host,
            "port": launch.port,
            "model": launch.model,
            "max_model_len": launch.context,
            "served_model_name": [launch.served],
            "gpu_memory_utilization": launch.fraction,
        }
        if launch.draft_tokens:
            arguments["speculative_config"] = {"method": "mtp", "num_speculative_tokens": launch.draft_tokens}
        own = launch.joining.own if launch.joining else None
        pool = self.wanted_bytes - launch.weights - _OVERHEAD_BYTES
        tokens = pool * launch.nodes // compute_kv_bytes_per_token(launch.model) // 16 * 16
        return {
            "over_store": self.is_spread and not self.over_ray,
            "specs": [
                {f"node:{own}": 0.001, "GPU": 1.0},
                *[{"GPU": 1.0}] * (launch.nodes - 1),
            ],  # GPUs that it asks Ray for
            "tag": tag,
            "rank_tag": f"{tag} ERROR {LOG_TIME} [{'multiproc_executor.py:918' if is_worker else 'core.py:1108'}]",
            "worker_count": launch.nodes - 1,
            "store_place": f"{self.address if self.is_spread else '127.0.0.1'}:{_STORE_PORT}",
            "arguments": arguments,
            "architecture": get_model_architecture(launch.model),
            "is_nvfp4": "NVFP4" in launch.model.upper(),
            "wanted_gib": self.wanted_bytes / GIB,
            "total_gib": TOTAL_BYTES / GIB,
            "load_seconds": launch.shards * _SHARD_SECONDS,
            "model_seconds": launch.shards * _SHARD_SECONDS + 2.4,
            "pool": pool,
            "worker_pool": max(0, pool + _OVERHEAD_BYTES // 2),
            "has_no_pool": pool <= 0,
            "pool_gib": pool / GIB,
            "tokens": tokens,
            "concurrency": tokens / launch.context,
        }

    def describe_work(self, made: DecodeCounts, seconds: float) -> dict[str, object]:
        """Return the rates of prompts and drafts, and how full the cache is."""
        decoding, accepted, drafted = self.decoding, sum(made.accepted), made.steps * self.launch.draft_tokens
        found: dict[str, object] = {
            "prompt_rate": (made.prompt - made.cached) / seconds,
            "cache_percent": decoding.context_tokens * 100 / decoding.kv_tokens,
            "hit_percent": CACHED_PROMPT_TOKENS / PROMPT_TOKENS * 100 if decoding.background else 0.0,
            "has_drafted": self.is_drafting and not made.generated < 1,
        }
        if found["has_drafted"]:
            found |= {
                "accepted": accepted,
                "drafted": drafted,
                "accept_length": 1 + accepted / made.steps,
                "accepted_rate": accepted / seconds,
                "drafted_rate": drafted / seconds,
                "accept_percent": accepted / drafted * 100,
                "positions": ", ".join(f"{count / made.steps:.3f}" for count in made.accepted),
            }
        return found

    @property
    def wanted_bytes(self) -> int:
        """Its share of all memory."""
        return int(TOTAL_BYTES * self.launch.fraction)

    @property
    def free_gib(self) -> float:
        """MemAvailable, which this version calls free memory on a GB10."""
        return self.available() / GIB

    @property
    def is_short(self) -> bool:
        """Whether less than its share is available."""
        return self.available() < self.wanted_bytes

    @property
    def is_raised(self) -> bool:
        """Whether a lost rank sent its error."""
        return bool(self["loss"].how == "raised")

    @property
    def lost_error(self) -> str:
        """The error of a lost rank."""
        return str(self["loss"].said)

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
