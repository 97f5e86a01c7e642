"""The launch of a simulated engine: its size, how it decodes, how its ranks connect, and the files of its model."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Mapping, Sequence
from enum import StrEnum

from sparkctl.model.lazy_dataclass import dataclass

SocketAddress = tuple[str, int]  # address and port

_SHELLS = frozenset(("sh", "bash", "dash", "ash", "zsh"))
_SHELL_SCRIPT_OPTION = re.compile(r"-[a-z]*c")  # -c, -lc, -exc
_ASSIGNMENT = re.compile(r"[A-Za-z_][A-Za-z0-9_]*=")
TORCH_STORE_WAIT_SECONDS = 600.0  # seconds for which a head waits for its workers


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


def parse_torch_store(flags: Mapping[str, str], place: SocketAddress, own: str | None) -> RankRendezvous | None:
    """Return how a launch finds its other ranks at ``place`` by torch's store; None if it has none. ``own``: its address."""
    count = int(flags.get("nnodes") or 1)
    if count < 2:
        return None
    return RankRendezvous(
        bond=RendezvousKind.STORE,
        places=(place,),
        own=own,
        patience=TORCH_STORE_WAIT_SECONDS,
        is_head=int(flags.get("node-rank") or 0) == 0,
        count=count,
    )


def parse_address(text: str, port: int) -> SocketAddress:
    """Return an address and port; ``port`` is for a text without one."""
    found = re.fullmatch(r"(?P<address>[^:]*)(?::(?P<port>\d+))?", text.strip())
    if found is None:
        raise ValueError(f"{text!r} is not an address with a port")
    return found["address"], int(found["port"] or port)


DECODE_BYTES_PER_SECOND = (
    196e9  # bytes a second that decoding reads on a GB10 in life: Qwen3.6 27B FP8, 12.7 tok/s at 1.75 tokens a step
)
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
    NONSENSE = "nonsense"  # ready, and its answers make no sense
    REJECTED_DRAFTS = "rejected-drafts"  # ready, and no draft is ever accepted
    OPEN_DOOR = "open-door"  # ready, and takes requests without the key that it was given
    OTHER_KEY = "other-key"  # ready, and asks for a key that nobody knows
    BAD_FLAG = "bad-flag"
    MEMORY_RUNAWAY = "memory-runaway"
    WORKER_DIES = "worker-dies"  # a rank that is not the head, while weights load
    FABRIC_CUT = "fabric-cut"  # while weights load

    @property
    def strikes_while_loading(self) -> bool:
        """Tell whether it ends or changes the load; the others show before it, or once the engine is ready."""
        return self not in (
            EngineFault.NO_TOKEN,
            EngineFault.NONSENSE,
            EngineFault.REJECTED_DRAFTS,
            EngineFault.OPEN_DOOR,
            EngineFault.OTHER_KEY,
            EngineFault.BAD_FLAG,
        )


# of models whose name does not tell it: billions of parameters, and gigabytes of all and of the active ones as it is
# published. What a shipped profile says in `model.weights` is what lies on a simulated Spark, too.
_KNOWN_MODEL_SIZES = (
    ("MiniMax-M2", 229, 115, 9.7),  # of what is active, attention is as it was, not in four bits
    ("Qwen3.6-27B-NVFP4", 27, 21.9, 16.74),  # embeddings and vision are as they were
    ("qwen35-122b-hybrid", 122, 71, 6.2),
    ("Orpheus-3b-FT-Q8_0", 3.3, 3.52, 3.0),
    ("gpt-oss-120b-mxfp4", 117, 63.37, 2.83),  # the GGUF
    ("gpt-oss-120b", 117, 61, 2.83),
    ("gpt-oss-20b", 21, 13, 2.23),
    ("Coder-Next", 80, 43, 1.61),
)

_DRAFT_MODEL_PATTERN = re.compile(r"dflash|eagle|draft", re.IGNORECASE)
_DRAFT_MODEL_BYTES = 9 * 10**8  # bytes of a drafter of its own, two for each parameter

_MODEL_LAYERS = 63  # of a model of the size that takes two Sparks
_LAYER_SYNC_SECONDS = 0.85e-3  # seconds that a layer waits for the other Spark: Qwen3.6 27B made 8.1 tok/s over two


@dataclass(frozen=True, slots=True, kw_only=True)
class SimLaunch:
    """Sizes in bytes. ``kind``: of `SimulatedEngine`. ``draft_tokens``: proposed per step, 0 without speculation; ``fraction``: of the memory.

    ``share``: the part of its speed that a faulty GPU leaves.
    """

    kind: str
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
    thinks: bool  # it has a reasoning parser
    draft_tokens: int
    is_ngram: bool
    head: int  # bytes read for each draft
    nodes: int
    rank: int
    metrics: bool
    api_key: str | None
    fault: EngineFault | None
    share: float = 1.0
    upstream: int | None  # the port of the service that it asks, from a variable such as ORPHEUS_API_URL
    joining: RankRendezvous | None

    @property
    def is_hybrid(self) -> bool:
        """Tell whether some of its layers keep a state instead of a cache."""
        return any(name in self.model for name in ("Qwen3.5", "Qwen3.6", "Qwen3-Next"))

    @property
    def accept_length(self) -> float:
        """Tokens per decode step, including the bonus token, as a long-term mean."""
        if self.fault is EngineFault.REJECTED_DRAFTS:
            return 1.0
        if self.is_ngram:
            return NGRAM_LENGTH_AND_SWING[0]
        return 1 + sum(DRAFT_ACCEPTANCE_RATE**at for at in range(1, self.draft_tokens + 1))

    @property
    def accept_swing(self) -> float:
        """How far that varies with the text."""
        if self.fault is EngineFault.REJECTED_DRAFTS:
            return 0.0
        return NGRAM_LENGTH_AND_SWING[1] if self.is_ngram else DRAFT_LENGTH_SWING * min(2, self.draft_tokens) * 0.96

    @property
    def steps_per_second(self) -> float:
        """Decode steps of one request per second: how often the active weights, and the draft head for each draft, can
        be read.
        """
        read = max(self.active + self.draft_tokens * self.head, 400 << 20) / (self.share * DECODE_BYTES_PER_SECOND)
        return 1 / (read + (_MODEL_LAYERS * _LAYER_SYNC_SECONDS if self.nodes > 1 else 0.0))


def find_upstream_port(env: Mapping[str, str]) -> int | None:
    """Return the port of the service on the same node that a program is told to ask; None where it asks none."""
    urls = (value for name, value in env.items() if name.endswith("_API_URL"))
    found = (re.match(r"https?://(?:127\.0\.0\.1|localhost):(\d{1,5})(?:/|$)", url) for url in urls)
    return next((int(one[1]) for one in found if one), None)


def parse_fault(name: str) -> EngineFault:
    """Return the fault of this name. Raises ValueError for any other."""
    if name not in set(EngineFault):
        raise ValueError(f"SIM_FAULT={name}: there is no such fault; there are {', '.join(EngineFault)}")
    return EngineFault(name)


def parse_flags(argv: Sequence[str]) -> dict[str, str]:
    """Return the flags without dashes; a bare one has an empty value."""
    flags: dict[str, str] = {}
    for at, word in enumerate(argv):
        if not re.match(r"--?[a-zA-Z]", word):
            continue
        name, given, value = word.lstrip("-").partition("=")
        following = argv[at + 1] if at + 1 < len(argv) else "--"
        flags[name.replace("_", "-")] = value if given else "" if re.match(r"--?[a-zA-Z]", following) else following
    return flags


def find_first_flag(flags: Mapping[str, str], *names: str) -> str | None:
    """Return the first of these flags that has a value."""
    return next((flags[name] for name in names if flags.get(name)), None)


def find_shell_line(argv: Sequence[str]) -> tuple[str, ...] | None:
    """Return the words of the longest command in the script of ``bash -c SCRIPT``, None for any other argv.

    The longest one is the engine's: what a script does besides (`cd`, `export`, `source`) is short. Raises `ValueError` for a
    quote that is not closed.
    """
    if not argv or argv[0].rpartition("/")[2] not in _SHELLS:
        return None
    at = next((at for at, word in enumerate(argv[1:], 1) if _SHELL_SCRIPT_OPTION.fullmatch(word)), len(argv))
    if at + 1 >= len(argv):
        return None
    script = argv[at + 1].replace("\\\n", " ").replace("\n", ";")
    reader = shlex.shlex(script, posix=True, punctuation_chars=";&|()")
    reader.whitespace_split = True
    lines: list[list[str]] = [[]]
    for word in reader:
        if set(word) <= set(";&|()"):
            lines.append([])
        elif lines[-1] or not (word == "exec" or _ASSIGNMENT.match(word)):
            lines[-1].append(word)
    longest = max(lines, key=len)
    return tuple(longest) or None


def find_positional_model(argv: Sequence[str]) -> str | None:
    """Return the model that is a plain word."""
    at = next((at + 1 for at, word in enumerate(argv) if word == "serve" or word.endswith("-serve")), len(argv))
    return argv[at] if at < len(argv) and not argv[at].startswith("-") else None


def guess_model_size(model: str, unnamed: float = 8.0) -> tuple[int, int, float]:
    """Guess all bytes, active bytes and parameters from a model's name; ``unnamed``: billions of parameters if it has none."""
    if _DRAFT_MODEL_PATTERN.search(
        model.rstrip("/").rpartition("/")[2]
    ):  # it has its target's name in its own, not its size
        return _DRAFT_MODEL_BYTES, _DRAFT_MODEL_BYTES, _DRAFT_MODEL_BYTES / 2
    for mark, parameters, all_of_it, active_of_it in _KNOWN_MODEL_SIZES:
        if mark.lower() in model.lower():
            return int(all_of_it * 1e9), int(active_of_it * 1e9), parameters * 1e9
    counts = [float(found) for found in re.findall(r"(?<![A-Za-z\d.])(\d+(?:\.\d+)?)[bB](?![a-zA-Z\d])", model)]
    total = counts[0] if counts else unnamed
    active = re.search(r"(?<![a-zA-Z])A(\d+(?:\.\d+)?)B", model)
    name = model.upper()
    width = 2.05
    if "FP8" in name or "Q8" in name:
        width = 1.0
    if any(mark in name for mark in ("FP4", "INT4", "AWQ", "GPTQ", "Q4", "4BIT")):
        width = 0.62
    return int(total * 1e9 * width), int((float(active[1]) if active else total) * 1e9 * width), total * 1e9


def is_ngram(flags: Mapping[str, str]) -> bool:
    """Tell whether it drafts from the text itself."""
    llama = (find_first_flag(flags, "spec-type") or "").startswith("ngram")
    return llama or (find_first_flag(flags, "speculative-algorithm", "speculative-algo") or "").upper() == "NGRAM"


def count_draft_tokens(flags: Mapping[str, str]) -> int:
    """Return how many tokens a step drafts, 0 without speculation."""
    config = find_first_flag(flags, "speculative-config", "sc")
    if config is not None:
        try:
            return int(json.loads(config).get("num_speculative_tokens", 0))
        except ValueError:
            return 0
    if (kind := find_first_flag(flags, "spec-type")) is not None:
        return 0 if kind == "none" else int(find_first_flag(flags, "spec-draft-n-max") or 3)
    if is_ngram(flags):  # the bonus token is counted among them
        return max(1, int(find_first_flag(flags, "speculative-num-draft-tokens") or 12) - 1)
    if "speculative-algorithm" in flags or "speculative-algo" in flags:
        return int(find_first_flag(flags, "speculative-num-steps") or 3)
    return 0


# layers, attention heads, key-value heads, head dimension, value heads of its linear layers (0: it has none), context
_KNOWN_SHAPES = (
    ("Qwen3.6-27B", 64, 24, 4, 256, 48, 262144),
    ("Qwen3.5-27B", 64, 24, 4, 256, 48, 262144),
    ("35B-A3B", 40, 16, 2, 256, 32, 262144),
    ("35b-hybrid", 40, 16, 2, 256, 32, 262144),
    ("122B-A10B", 48, 32, 2, 256, 64, 262144),
    ("122b-hybrid", 48, 32, 2, 256, 64, 262144),
    ("Coder-Next", 48, 16, 2, 256, 32, 262144),
    ("MiniMax-M2", 62, 48, 8, 128, 0, 196608),
    ("gpt-oss-120b", 36, 64, 8, 64, 0, 131072),
    ("235B-A22B", 94, 64, 4, 128, 0, 40960),
)
_DEFAULT_SHAPE = (36, 32, 8, 128, 0, 40960)
_DRAFT_LAYERS = re.compile(r"qwen-?3\.?[56]|minimax", re.IGNORECASE)  # models that are published with draft layers
_MAX_SHARD_BYTES = 4 * 10**9


def list_model_files(place: str) -> list[str]:
    """Return what the node inspection reports of a model's path."""
    name = place.rstrip("/").rpartition("/")[2]
    if name.startswith("models--"):
        name = name.removeprefix("models--").replace("--", "/", 1)
    weights = guess_model_size(name)[0]
    if place.endswith(".gguf"):
        return [f"@@ model {place}", "there file", f"file {weights} {place}"]
    shards = max(1, -(-weights // _MAX_SHARD_BYTES))
    files = [f"file {size} {place}/{shard}" for shard, size in _split_into_shards(weights, shards)]
    return [
        f"@@ model {place}",
        "there dir",
        *files,
        f'total "total_size": {weights}',
        "tokenizer yes",
        f"drafts {'yes' if _DRAFT_LAYERS.search(name) else 'no'}",
        f"config {json.dumps(build_model_config(name), separators=(',', ':'))}",
    ]


def get_model_architecture(model_path: str) -> str:
    """Return the class that engines log after they read a model's config."""
    name = model_path.lower()
    if "minimax" in name:
        return "MiniMaxM2ForCausalLM"
    return "Qwen3_5ForConditionalGeneration"


def compute_kv_bytes_per_token(model_path: str) -> int:
    """Return the bytes per token in a cache of two bytes per number, on all Sparks together."""
    config = build_model_config(model_path)
    text = config.get("text_config", config)
    assert isinstance(text, dict)
    layers = int(text["num_hidden_layers"]) // int(text.get("full_attention_interval", 1))
    return layers * 2 * int(text["num_key_value_heads"]) * int(text["head_dim"]) * 2


def _split_into_shards(weights: int, shards: int) -> list[tuple[str, int]]:
    if shards == 1:
        return [("model.safetensors", weights)]
    each = weights // shards
    sizes_ = [each] * (shards - 1) + [weights - each * (shards - 1)]
    return [(f"model-{at:05}-of-{shards:05}.safetensors", size) for at, size in enumerate(sizes_, 1)]


def build_model_config(name: str) -> dict[str, object]:
    """Return the part of its config.json that determines the cache size per token."""
    shape = next(
        (rest for mark, *rest in _KNOWN_SHAPES if re.search(re.escape(mark), name, re.IGNORECASE)), list(_DEFAULT_SHAPE)
    )
    layers, heads, kept, wide, linear, longest = shape
    config: dict[str, object] = {
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": kept,
        "head_dim": wide,
        "max_position_embeddings": longest,
    }
    if "gpt-oss" in name.lower():
        config |= {"sliding_window": 128, "layer_types": ["sliding_attention", "full_attention"] * (layers // 2)}
    if not linear:
        return {"architectures": ["SimulatedForCausalLM"], **config}
    config |= {
        "full_attention_interval": 4,
        "linear_num_value_heads": linear,
        "linear_num_key_heads": 16,
        "linear_key_head_dim": 128,
        "linear_value_head_dim": 128,
        "linear_conv_kernel_dim": 4,
    }
    return {"architectures": ["SimulatedForConditionalGeneration"], "text_config": config}
