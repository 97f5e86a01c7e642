"""How the ranks of one model are told to find each other: what stands on the command line of each."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

SocketAddress = tuple[str, int]  # address and port

RAY_PORT, STORE_PORT, SGLANG_PORT = 6379, 29501, 20000  # where nothing else is said
RAY_FOR, STORE_FOR = 1800.0, 600.0  # seconds for which a head waits for its workers
MPI_PORT, MPI_FOR = 2233, 600.0  # and for which mpirun's head waits for the sshds
GCS_FOR = 30.0  # seconds for which `ray start --address` looks for a head


class RendezvousKind(StrEnum):
    """By what they are held together."""

    RAY = "ray"
    STORE = "store"  # torch's own, at the head's address
    RPC = "rpc"  # llama.cpp: the workers listen, the head dials
    MPI = "mpi"  # mpirun: the same, by SSH

    @property
    def is_dialled(self) -> bool:
        """Tell whether it is the head that looks for its workers."""
        return self in (RendezvousKind.RPC, RendezvousKind.MPI)


@dataclass(frozen=True, slots=True)
class RankRendezvous:
    """``places``: where the head listens; of llama.cpp where its workers do, of such a worker its own. ``own``: its address,
    None where nothing tells it. ``patience``: seconds until it gives up; None: never."""

    bond: RendezvousKind
    places: tuple[SocketAddress, ...]
    own: str | None
    patience: float | None
    is_head: bool
    count: int  # of ranks; 0 where only the head knows

    @property
    def place(self) -> SocketAddress:
        """The head's place; of llama.cpp the first worker's."""
        return self.places[0]


def split_ray_command(argv: tuple[str, ...]) -> tuple[tuple[str, ...], Sequence[str] | None]:
    """Return the engine's own words, and those of the `ray start` that a shell runs before them; None without Ray.

    A worker of Ray has no words of an engine's: the first are empty.
    """
    if argv[:2] != ("sh", "-c") or len(argv) < 3 or "ray start" not in argv[2]:
        return argv, None
    start = shlex.split(argv[2].partition("&&")[0])
    words = start[start.index("ray") :]
    return (argv[4:] if "--head" in words else ()), words


def parse_mpirun_command(argv: tuple[str, ...]) -> tuple[tuple[str, ...], RankRendezvous] | None:
    """Return the engine's own words and how the ranks find each other, None where no mpirun starts them.

    A worker has no words of an engine's: it is an sshd.
    """
    if argv[:2] != ("sh", "-c") or "sparkctl-ranks" not in argv[2]:
        return None
    if "--" not in argv:
        return (), RankRendezvous(RendezvousKind.MPI, ((argv[4], MPI_PORT),), argv[4], None, is_head=False, count=0)
    workers = tuple((address, MPI_PORT) for address in argv[4 : argv.index("--")])
    words = argv[argv.index("trtllm-llmapi-launch") + 1 :]
    return words, RankRendezvous(RendezvousKind.MPI, workers, None, MPI_FOR, is_head=True, count=1 + len(workers))


def parse_rendezvous(
    flags: Mapping[str, str], argv: Sequence[str], ray: Sequence[str] | None, env: Mapping[str, str]
) -> RankRendezvous | None:
    """Return how a launch with these flags finds its other ranks, None for one that has none."""
    if ray is not None:
        return _over_ray(ray, flags)
    if argv[:1] and argv[0].rpartition("/")[2].endswith("rpc-server"):
        own = flags.get("host", "127.0.0.1")
        return RankRendezvous(
            RendezvousKind.RPC, ((own, int(flags.get("port") or 50052)),), own, None, is_head=False, count=0
        )
    if flags.get("rpc"):
        places = tuple(_place(text, 50052) for text in flags["rpc"].split(","))
        return RankRendezvous(RendezvousKind.RPC, places, None, 0.0, is_head=True, count=1 + len(places))
    count = int(flags.get("nnodes") or 1)
    if count < 2:
        return None
    if "dist-init-addr" in flags:
        place = _place(flags["dist-init-addr"], SGLANG_PORT)
    else:
        place = (flags.get("master-addr") or "127.0.0.1", int(flags.get("master-port") or STORE_PORT))
    is_head = int(flags.get("node-rank") or 0) == 0
    return RankRendezvous(RendezvousKind.STORE, (place,), env.get("VLLM_HOST_IP"), STORE_FOR, is_head, count)


def _over_ray(words: Sequence[str], flags: Mapping[str, str]) -> RankRendezvous:
    own = _told(words, "node-ip-address")
    if "--head" in words:
        sizes = [int(flags.get(name) or flags.get(short) or 1) for name, short in (
            ("tensor-parallel-size", "tp"), ("pipeline-parallel-size", "pp"),
        )]  # fmt: skip
        place = (own or "127.0.0.1", int(_told(words, "port") or RAY_PORT))
        return RankRendezvous(RendezvousKind.RAY, (place,), own, RAY_FOR, is_head=True, count=sizes[0] * sizes[1])
    return RankRendezvous(
        RendezvousKind.RAY, (_place(_told(words, "address") or "", RAY_PORT),), own, GCS_FOR, is_head=False, count=0
    )


def _told(words: Sequence[str], name: str) -> str | None:
    for at, word in enumerate(words):
        if word.startswith(f"--{name}="):
            return word.partition("=")[2]
        if word == f"--{name}" and at + 1 < len(words):
            return words[at + 1]
    return None


def _place(text: str, port: int) -> SocketAddress:
    found = re.fullmatch(r"(?P<address>[^:]*)(?::(?P<port>\d+))?", text.strip())
    if found is None:
        raise ValueError(f"{text!r} is no address with a port")
    return found["address"], int(found["port"] or port)
