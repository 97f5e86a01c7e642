"""Simulated llama-server and rpc-server; what they print is in simulated_engine.txt and simulated_rpc.txt."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sparkctl.engines.simulation.decode_model import DecodeCounts, MetricRows
from sparkctl.engines.simulation.engine_launch import RankRendezvous, RendezvousKind, parse_address, parse_flags
from sparkctl.engines.simulation.simulated_engine import SimulatedEngine

_RPC_PORT = 50052  # if nothing else is given


class SimulatedLlamaServer(SimulatedEngine):
    """No percentage while it loads, and the port answers 503."""

    kind = "llama"
    marks = ("llama-server", "llama.cpp")
    time_format = "%M.%S.000.000"
    default_port = 8080
    log_interval = 3.0
    access_prefix = None
    loading_body = {"error": {"message": "Loading model", "type": "unavailable_error", "code": 503}}  # noqa: RUF012
    health_body = {"status": "ok"}  # noqa: RUF012

    @classmethod
    def read_ranks(cls, argv: tuple[str, ...], env: Mapping[str, str]) -> tuple[tuple[str, ...], RankRendezvous | None]:
        """Return its words, and its workers by ``--rpc``: they listen, and it looks for them once."""
        named = parse_flags(argv).get("rpc")
        if not named:
            return argv, None
        places = tuple(parse_address(text, _RPC_PORT) for text in named.split(","))
        return argv, RankRendezvous(
            bond=RendezvousKind.RPC, places=places, own=None, patience=0.0, is_head=True, count=1 + len(places)
        )

    def describe_launch(self) -> dict[str, object]:
        """Return how it drafts."""
        return {"draft_kind": "ngram-simple" if self.launch.is_ngram else "draft-mtp"}

    def describe_work(self, made: DecodeCounts, seconds: float) -> dict[str, object]:
        """Return the tokens of one slot in a stride, and per second."""
        rate = made.generated / seconds / max(1, self.running)
        return {"slot_rate": rate, "slot_tokens": rate * seconds}

    @property
    def wanted_mib(self) -> float:
        """What could not be allocated."""
        return float(self["wanted"] / 2**20)

    @property
    def slot(self) -> int:
        """The busy slot of a line; there is no line for all of them."""
        return self.done - 1

    def build_metrics(self, counts: DecodeCounts) -> tuple[str, MetricRows]:
        """Return no labels, and the metrics."""
        launch, decoding, drafts = self.launch, self.decoding, "llamacpp:spec_decode_num_"
        spec: MetricRows = [
            (f"{drafts}drafts_total", "counter", counts.steps // 1),
            (f"{drafts}draft_tokens_total", "counter", counts.steps * launch.draft_tokens // 1),
            (f"{drafts}accepted_tokens_total", "counter", sum(counts.accepted) // 1),
        ]
        return "", [
            *(spec if launch.draft_tokens else []),
            ("llamacpp:tokens_predicted_total", "counter", counts.generated // 1),
            ("llamacpp:tokens_predicted_seconds_total", "counter", counts.steps / launch.steps_per_second),
            ("llamacpp:n_decode_total", "counter", counts.steps // 1),
            ("llamacpp:prompt_tokens_total", "counter", (counts.prompt - counts.cached) // 1),
            ("llamacpp:prompt_tokens_cached_total", "counter", counts.cached // 1),
            ("llamacpp:requests_processing", "gauge", float(decoding.running_requests)),
            ("llamacpp:requests_deferred", "gauge", 0.0),
            ("llamacpp:predicted_tokens_seconds", "gauge", decoding.tokens_per_second),
        ]


class SimulatedRpcServer(SimulatedLlamaServer):
    """A worker: it waits for a llama-server, and holds the weights that it receives."""

    kind = "rpc"
    script = "simulated_rpc.txt"
    time_format = "%H:%M:%S"
    default_port = 0
    hears_sigterm = False

    @classmethod
    def rate_launch(cls, image: str, argv: Sequence[str]) -> int:
        """Return 3 for an rpc-server."""
        return 3 if argv and argv[0].rpartition("/")[2].endswith("rpc-server") else 0

    @classmethod
    def read_ranks(cls, argv: tuple[str, ...], env: Mapping[str, str]) -> tuple[tuple[str, ...], RankRendezvous | None]:
        """Return its words, and its own address."""
        flags = parse_flags(argv)
        own = flags.get("host", "127.0.0.1")
        place = (own, int(flags.get("port") or _RPC_PORT))
        return argv, RankRendezvous(
            bond=RendezvousKind.RPC, places=(place,), own=own, patience=None, is_head=False, count=0
        )


SIMULATED_ENGINES = (SimulatedLlamaServer, SimulatedRpcServer)
