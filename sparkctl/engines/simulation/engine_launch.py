"""Read a simulated container's image and command: which engine it is, its size, and how it decodes."""

from __future__ import annotations

import json
import math
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

SocketAddress = tuple[str, int]  # address and port

RAY_PORT, TORCH_STORE_PORT, SGLANG_INIT_PORT = 6379, 29501, 20000  # if nothing else is given
RAY_WAIT_SECONDS, TORCH_STORE_WAIT_SECONDS = 1800.0, 600.0  # seconds for which a head waits for its workers
MPI_PORT, MPI_WAIT_SECONDS = 2233, 600.0  # and for which mpirun's head waits for the sshds
RAY_HEAD_WAIT_SECONDS = 30.0  # seconds for which `ray start --address` looks for a head


class RendezvousKind(StrEnum):
    """How the ranks are connected."""

    RAY = "ray"
    STORE = "store"  # torch's own, at the head's address
    RPC = "rpc"  # llama.cpp: the workers listen, the head connects
    MPI = "mpi"  # mpirun: the same, over SSH

    @property
    def is_dialed_by_head(self) -> bool:
        """Tell whether the head looks for its workers."""
        return self in (RendezvousKind.RPC, RendezvousKind.MPI)


@dataclass(frozen=True, slots=True, kw_only=True)
class RankRendezvous:
    """``places``: where the head listens; for llama.cpp where its workers do, for such a worker its own. ``own``: its
    address, None if not given.

    ``patience``: seconds until it gives up; None: never.
    """

    bond: RendezvousKind
    places: tuple[SocketAddress, ...]
    own: str | None
    patience: float | None
    is_head: bool
    count: int  # of ranks; 0 where only the head knows

    @property
    def main_address(self) -> SocketAddress:
        """The head's address and port; for llama.cpp the first worker's."""
        return self.places[0]


def split_ray_command(argv: tuple[str, ...]) -> tuple[tuple[str, ...], Sequence[str] | None]:
    """Return the engine's own words, and those of the `ray start` that a shell runs before them; None without Ray.

    A Ray worker has no engine words: the first are empty.
    """
    if argv[:2] != ("sh", "-c") or len(argv) < 3 or "ray start" not in argv[2]:
        return argv, None
    start = shlex.split(argv[2].partition("&&")[0])
    words = start[start.index("ray") :]
    return (argv[4:] if "--head" in words else ()), words


def parse_mpirun_command(argv: tuple[str, ...]) -> tuple[tuple[str, ...], RankRendezvous] | None:
    """Return the engine's own words and how the ranks connect, None if mpirun does not start them.

    A worker has no engine words: it is an sshd.
    """
    if argv[:2] != ("sh", "-c") or "sparkctl-ranks" not in argv[2]:
        return None
    if "--" not in argv:
        return (), RankRendezvous(
            bond=RendezvousKind.MPI, places=((argv[4], MPI_PORT),), own=argv[4], patience=None, is_head=False, count=0
        )
    workers = tuple((address, MPI_PORT) for address in argv[4 : argv.index("--")])
    words = argv[argv.index("trtllm-llmapi-launch") + 1 :]
    return words, RankRendezvous(
        bond=RendezvousKind.MPI,
        places=workers,
        own=None,
        patience=MPI_WAIT_SECONDS,
        is_head=True,
        count=1 + len(workers),
    )


def parse_rendezvous(
    flags: Mapping[str, str], argv: Sequence[str], ray: Sequence[str] | None, env: Mapping[str, str]
) -> RankRendezvous | None:
    """Return how a launch with these flags finds its other ranks, None if it has none."""
    if ray is not None:
        return _parse_ray_rendezvous(ray, flags)
    if argv[:1] and argv[0].rpartition("/")[2].endswith("rpc-server"):
        own = flags.get("host", "127.0.0.1")
        return RankRendezvous(
            bond=RendezvousKind.RPC,
            places=((own, int(flags.get("port") or 50052)),),
            own=own,
            patience=None,
            is_head=False,
            count=0,
        )
    if flags.get("rpc"):
        places = tuple(_parse_address(text, 50052) for text in flags["rpc"].split(","))
        return RankRendezvous(
            bond=RendezvousKind.RPC, places=places, own=None, patience=0.0, is_head=True, count=1 + len(places)
        )
    count = int(flags.get("nnodes") or 1)
    if count < 2:
        return None
    if "dist-init-addr" in flags:
        place = _parse_address(flags["dist-init-addr"], SGLANG_INIT_PORT)
    else:
        place = (flags.get("master-addr") or "127.0.0.1", int(flags.get("master-port") or TORCH_STORE_PORT))
    is_head = int(flags.get("node-rank") or 0) == 0
    return RankRendezvous(
        bond=RendezvousKind.STORE,
        places=(place,),
        own=env.get("VLLM_HOST_IP"),
        patience=TORCH_STORE_WAIT_SECONDS,
        is_head=is_head,
        count=count,
    )


def _parse_ray_rendezvous(words: Sequence[str], flags: Mapping[str, str]) -> RankRendezvous:
    own = _find_option(words, "node-ip-address")
    if "--head" in words:
        sizes = [int(flags.get(name) or flags.get(short) or 1) for name, short in (
            ("tensor-parallel-size", "tp"), ("pipeline-parallel-size", "pp"),
        )]  # fmt: skip
        place = (own or "127.0.0.1", int(_find_option(words, "port") or RAY_PORT))
        return RankRendezvous(
            bond=RendezvousKind.RAY,
            places=(place,),
            own=own,
            patience=RAY_WAIT_SECONDS,
            is_head=True,
            count=sizes[0] * sizes[1],
        )
    return RankRendezvous(
        bond=RendezvousKind.RAY,
        places=(_parse_address(_find_option(words, "address") or "", RAY_PORT),),
        own=own,
        patience=RAY_HEAD_WAIT_SECONDS,
        is_head=False,
        count=0,
    )


def _find_option(words: Sequence[str], name: str) -> str | None:
    for at, word in enumerate(words):
        if word.startswith(f"--{name}="):
            return word.partition("=")[2]
        if word == f"--{name}" and at + 1 < len(words):
            return words[at + 1]
    return None


def _parse_address(text: str, port: int) -> SocketAddress:
    found = re.fullmatch(r"(?P<address>[^:]*)(?::(?P<port>\d+))?", text.strip())
    if found is None:
        raise ValueError(f"{text!r} is no address with a port")
    return found["address"], int(found["port"] or port)


DECODE_BYTES_PER_SECOND = (
    196e9  # bytes a second that decoding reads on a GB10 in life: Qwen3.6 27B FP8, 12.7 tok/s at 1.75 tokens a step
)
DRAFT_HEAD_SHARE = 0.105  # bytes of a draft head (a layer, and the output over the whole vocabulary) for each of the model's parameters
DRAFT_ACCEPTANCE_RATE = 0.81  # of the drafts of such a head at each place, if the one before was accepted
NGRAM_LENGTH_AND_SWING = (1.75, 0.1)  # tokens a step as owners measure them, and how far they wander
DRAFT_LENGTH_SWING = 0.25  # for each draft of a head, of three at most: with three of them 2.5 to 3.5 as owners measure


class EngineFault(StrEnum):
    """Faults of an engine, chosen by ``SIM_FAULT`` in the container's Env or per node."""

    CUDA_OOM = "cuda-oom"
    OOM_KILLED = "oom-killed"
    HANG = "hang"
    EXIT0 = "exit0"
    NO_TOKEN = "no-token"  # noqa: S105
    BAD_FLAG = "bad-flag"
    MEMORY_RUNAWAY = "memory-runaway"
    WORKER_DIES = "worker-dies"  # a rank that is not the head, while weights load
    FABRIC_CUT = "fabric-cut"  # while weights load


class SimEngineKind(StrEnum):
    """The engines with a simulated script."""

    SGLANG = "sglang"
    VLLM = "vllm"
    LLAMA = "llama"
    TRTLLM = "trtllm"
    RAY = "ray"  # a worker of vLLM over Ray: what it loads, the head tells it
    RPC = "rpc"  # a worker of llama.cpp
    MPI = "mpi"  # a worker that mpirun logs in at
    TTS = "tts"  # uvicorn with a small model behind it, and anything else


# of models whose name does not tell it: billions of parameters, of active ones, and gigabytes of both as it is published
_KNOWN_MODEL_SIZES = (
    ("MiniMax-M2", 229, 115, 9.7),  # of what is active, attention is as it was, not in four bits
    ("gpt-oss-120b", 117, 65, 2.83),
    ("gpt-oss-20b", 21, 13, 2.23),
    ("Coder-Next", 80, 49.6, 1.86),
)

_DRAFT_MODEL_PATTERN = re.compile(r"dflash|eagle|draft", re.IGNORECASE)
_DRAFT_MODEL_BYTES = 10**9  # bytes of a drafter of its own, two for each parameter

DEFAULT_PORTS = {
    SimEngineKind.SGLANG: 30000,
    SimEngineKind.VLLM: 8000,
    SimEngineKind.LLAMA: 8080,
    SimEngineKind.TRTLLM: 8000,
    SimEngineKind.TTS: 5005,
}
_MODEL_LAYERS = 63  # of a model of the size that takes two Sparks
_LAYER_SYNC_SECONDS = 0.85e-3  # seconds that a layer waits for the other Spark: Qwen3.6 27B made 8.1 tok/s over two


@dataclass(frozen=True, slots=True, kw_only=True)
class SimLaunch:
    """Sizes in bytes. ``draft_tokens``: proposed per step, 0 without speculation; ``fraction``: of the memory.

    ``share``: the part of its speed that a faulty GPU leaves.
    """

    kind: SimEngineKind
    argv: tuple[str, ...]
    model: str
    served: str
    host: str
    port: int
    weights: int
    active: int
    shards: int
    fraction: float
    context: int
    draft_tokens: int
    is_ngram: bool
    head: int  # bytes read for each draft
    nodes: int
    rank: int
    metrics: bool
    api_key: str | None
    fault: EngineFault | None
    share: float = 1.0
    joining: RankRendezvous | None = None

    @property
    def is_hybrid(self) -> bool:
        """Tell whether some of its layers keep a state instead of a cache."""
        return any(name in self.model for name in ("Qwen3.5", "Qwen3.6", "Qwen3-Next"))

    @property
    def accept_length(self) -> float:
        """Tokens per decode step, including the bonus token, as a long-term mean."""
        if self.is_ngram:
            return NGRAM_LENGTH_AND_SWING[0]
        return 1 + sum(DRAFT_ACCEPTANCE_RATE**at for at in range(1, self.draft_tokens + 1))

    @property
    def accept_swing(self) -> float:
        """How far that varies with the text."""
        return NGRAM_LENGTH_AND_SWING[1] if self.is_ngram else DRAFT_LENGTH_SWING * min(2, self.draft_tokens) * 0.96

    @property
    def steps_per_second(self) -> float:
        """Decode steps of one request per second: how often the active weights, and the draft head for each draft, can
        be read.
        """
        read = max(self.active + self.draft_tokens * self.head, 400 << 20) / (self.share * DECODE_BYTES_PER_SECOND)
        return 1 / (read + (_MODEL_LAYERS * _LAYER_SYNC_SECONDS if self.nodes > 1 else 0.0))


def parse_launch(image: str, command: Sequence[str], env: Mapping[str, str], fault: EngineFault | None) -> SimLaunch:
    """Read a launch from a container's image, argv and environment; ``SIM_FAULT`` overrides ``fault``."""
    argv, ray = split_ray_command(tuple(command))
    spread = parse_mpirun_command(argv)
    argv = argv if spread is None else spread[0]
    kind = _detect_engine_kind(image, argv)
    flags = _parse_flags(argv)
    joining = parse_rendezvous(flags, argv, ray, env) if spread is None else spread[1]
    if joining is not None and not joining.is_head and joining.bond is not RendezvousKind.STORE:
        kind = SimEngineKind(joining.bond.value)
    model = (
        _find_first_flag(flags, "model-path", "model", "m", "hf-repo", "hf")
        or _find_positional_model(argv)
        or "/models/unnamed-3B"
    )
    nodes = 1 if joining is None else max(2, joining.count)
    weights, active, parameters = guess_model_size(model, kind)
    is_ngram = _is_ngram(flags)
    named = env.get("SIM_FAULT")
    return SimLaunch(
        kind=kind,
        argv=argv,
        model=model,
        served=_find_first_flag(flags, "served-model-name", "alias") or model,
        host=_find_first_flag(flags, "host") or "127.0.0.1",
        port=int(_find_first_flag(flags, "port") or env.get("ORPHEUS_PORT") or DEFAULT_PORTS.get(kind, 0)),
        weights=weights // nodes,
        active=active // nodes,
        shards=max(2, min(48, math.ceil(weights / nodes / 1.6e9))),
        fraction=float(
            _find_first_flag(
                flags, "mem-fraction-static", "gpu-memory-utilization", "kv-cache-free-gpu-memory-fraction"
            )
            or (0.85 if kind is SimEngineKind.SGLANG else 0.9)
        ),
        context=int(_find_first_flag(flags, "context-length", "max-model-len", "ctx-size", "c") or 32768),
        draft_tokens=_count_draft_tokens(flags),
        is_ngram=is_ngram,
        head=0 if is_ngram else int(parameters * DRAFT_HEAD_SHARE / nodes),
        nodes=nodes,
        rank=0 if joining is None or joining.is_head else int(_find_first_flag(flags, "node-rank") or 1),
        metrics=kind is SimEngineKind.VLLM or "enable-metrics" in flags or "metrics" in flags,
        api_key=_find_first_flag(flags, "api-key"),
        fault=_parse_fault(named) if named else fault,
        joining=joining,
    )


def _parse_fault(name: str) -> EngineFault:
    if name not in set(EngineFault):
        raise ValueError(f"SIM_FAULT={name}: there is no such fault; there are {', '.join(EngineFault)}")
    return EngineFault(name)


def _detect_engine_kind(image: str, argv: Sequence[str]) -> SimEngineKind:
    words = " ".join(argv)
    for mark, kind in (
        ("sglang", SimEngineKind.SGLANG),
        ("trtllm-serve", SimEngineKind.TRTLLM),
        ("vllm", SimEngineKind.VLLM),
        ("llama-server", SimEngineKind.LLAMA),
        ("llama.cpp", SimEngineKind.LLAMA),
    ):
        if mark in words or (mark in image and "uvicorn" not in words):
            return kind
    return SimEngineKind.TTS


def _parse_flags(argv: Sequence[str]) -> dict[str, str]:
    """Return the flags without dashes; a bare one has an empty value."""
    flags: dict[str, str] = {}
    for at, word in enumerate(argv):
        if not re.match(r"--?[a-zA-Z]", word):
            continue
        name, given, value = word.lstrip("-").partition("=")
        following = argv[at + 1] if at + 1 < len(argv) else "--"
        flags[name.replace("_", "-")] = value if given else "" if re.match(r"--?[a-zA-Z]", following) else following
    return flags


def _find_first_flag(flags: Mapping[str, str], *names: str) -> str | None:
    return next((flags[name] for name in names if flags.get(name)), None)


def _find_positional_model(argv: Sequence[str]) -> str | None:
    at = next((at + 1 for at, word in enumerate(argv) if word in ("serve", "trtllm-serve")), len(argv))
    return argv[at] if at < len(argv) and not argv[at].startswith("-") else None


def guess_model_size(model: str, kind: SimEngineKind) -> tuple[int, int, float]:
    """Guess the bytes of all and of the active weights, and the number of parameters, from a model's name."""
    if _DRAFT_MODEL_PATTERN.search(
        model.rstrip("/").rpartition("/")[2]
    ):  # it has its target's name in its own, not its size
        return _DRAFT_MODEL_BYTES, _DRAFT_MODEL_BYTES, _DRAFT_MODEL_BYTES / 2
    for mark, parameters, all_of_it, active_of_it in _KNOWN_MODEL_SIZES:
        if mark.lower() in model.lower():
            return int(all_of_it * 1e9), int(active_of_it * 1e9), parameters * 1e9
    counts = [float(found) for found in re.findall(r"(?<![A-Za-z\d.])(\d+(?:\.\d+)?)[bB](?![a-zA-Z\d])", model)]
    total = counts[0] if counts else (3.0 if kind is SimEngineKind.TTS else 8.0)
    active = re.search(r"(?<![a-zA-Z])A(\d+(?:\.\d+)?)B", model)
    name = model.upper()
    width = 2.05
    if "FP8" in name or "Q8" in name:
        width = 1.0
    if any(mark in name for mark in ("FP4", "INT4", "AWQ", "GPTQ", "Q4", "4BIT")):
        width = 0.62
    return int(total * 1e9 * width), int((float(active[1]) if active else total) * 1e9 * width), total * 1e9


def _is_ngram(flags: Mapping[str, str]) -> bool:
    llama = (_find_first_flag(flags, "spec-type") or "").startswith("ngram")
    return llama or (_find_first_flag(flags, "speculative-algorithm", "speculative-algo") or "").upper() == "NGRAM"


def _count_draft_tokens(flags: Mapping[str, str]) -> int:
    config = _find_first_flag(flags, "speculative-config", "sc")
    if config is not None:
        try:
            return int(json.loads(config).get("num_speculative_tokens", 0))
        except ValueError:
            return 0
    if (kind := _find_first_flag(flags, "spec-type")) is not None:
        return 0 if kind == "none" else int(_find_first_flag(flags, "spec-draft-n-max") or 3)
    if _is_ngram(flags):  # the bonus token is counted among them
        return max(1, int(_find_first_flag(flags, "speculative-num-draft-tokens") or 12) - 1)
    if "speculative-algorithm" in flags or "speculative-algo" in flags:
        return int(_find_first_flag(flags, "speculative-num-steps") or 3)
    return 0
