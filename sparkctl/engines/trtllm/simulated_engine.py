"""Simulated trtllm-serve 1.3 and its workers' sshd; they print simulated_engine.txt and simulated_mpi.txt."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sparkctl.engines.simulation.engine_launch import RankRendezvous, RendezvousKind
from sparkctl.engines.simulation.simulated_engine import SimulatedEngine
from sparkctl.model.text.units import GIB

_MPI_PORT, _MPI_WAIT_SECONDS = 2233, 600.0  # for which mpirun's head waits for the sshds
_RANKS_MARK = "sparkctl-ranks"


class SimulatedTrtllm(SimulatedEngine):
    """The port is bound before the load, and answers after it. mpirun starts the ranks."""

    kind = "trtllm"
    marks = ("trtllm-serve",)
    time_format = "%m/%d/%Y-%H:%M:%S"
    default_port = 8000
    pool = tokens = 0

    @classmethod
    def read_ranks(cls, argv: tuple[str, ...], env: Mapping[str, str]) -> tuple[tuple[str, ...], RankRendezvous | None]:
        """Return its words, and its workers' sshds if mpirun starts it; of such an sshd no words, and its own address."""
        if argv[:2] != ("sh", "-c") or _RANKS_MARK not in argv[2]:
            return argv, None
        if "--" not in argv:
            return (), RankRendezvous(
                bond=RendezvousKind.MPI,
                places=((argv[4], _MPI_PORT),),
                own=argv[4],
                patience=None,
                is_head=False,
                count=0,
            )
        workers = tuple((address, _MPI_PORT) for address in argv[4 : argv.index("--")])
        return argv[argv.index("trtllm-llmapi-launch") + 1 :], RankRendezvous(
            bond=RendezvousKind.MPI,
            places=workers,
            own=None,
            patience=_MPI_WAIT_SECONDS,
            is_head=True,
            count=1 + len(workers),
        )

    def describe_launch(self) -> dict[str, object]:
        """Return how many workers it has, and how long the weights take."""
        workers = len(self.joining.places) if self.is_spread else 0
        return {"worker_count": workers, "init_seconds": self.launch.shards * 4.0 + 1}

    @property
    def worker_address(self) -> str:
        """The address of the worker that it waits for."""
        return self.joining.places[self.done - 1][0]

    @property
    def worker_port(self) -> int:
        """Its port."""
        return self.joining.places[self.done - 1][1]

    def compute_pool(self) -> None:
        """Compute the KV cache in bytes and tokens: a share of what the weights leave."""
        self.pool = int(self.launch.fraction * max(0, self.available() - 2 * GIB))
        self.tokens = max(1, self.pool // 73728)

    @property
    def pool_gib(self) -> float:
        return self.pool / GIB


class SimulatedMpiWorker(SimulatedTrtllm):
    """A worker that mpirun logs in at; its rank does the rest."""

    kind = "mpi"
    script = "simulated_mpi.txt"
    default_port = 0

    @classmethod
    def rate_launch(cls, image: str, argv: Sequence[str]) -> int:
        """Return 3 for the sshd of a worker."""
        return 3 if tuple(argv[:2]) == ("sh", "-c") and _RANKS_MARK in argv[2] and "--" not in argv else 0


SIMULATED_ENGINES = (SimulatedTrtllm, SimulatedMpiWorker)
