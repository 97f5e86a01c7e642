"""A profile: validated, frozen, with everything a start of one model needs. Package ``profiles`` makes it from YAML."""

from __future__ import annotations

from dataclasses import dataclass, field

from sparkctl.model.decode_step import RoutedExperts
from sparkctl.model.launch_plan import GuardRule, PhaseTimeouts


@dataclass(frozen=True, slots=True)
class JsonValue:
    """A map in ``args:``, already written as compact JSON."""

    text: str


@dataclass(frozen=True, slots=True)
class FlagValues:
    """Several values of one flag: ``--cuda-graph-bs 1 2 4``. In a file a list in a list, ``[[1, 2, 4]]``."""

    words: tuple[str, ...]


# An argument's value: True is a bare flag, False omits it, a tuple repeats the flag, a JsonValue is one JSON word,
# FlagValues are several words after one flag.
ArgValue = str | bool | JsonValue | FlagValues | tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSpec:
    """``path`` is a path in the container or a hub id. Sizes in bytes, of the whole model; parameters are plain counts.

    ``draft_weights``: the draft model or head, without ``weights``. ``kv_per_token``: bytes of KV cache for one token.
    """

    path: str | None = None
    served_name: str | None = None
    weights: int | None = None
    active_parameters: int | None = None
    parameters: int | None = None
    experts: RoutedExperts | None = None
    draft_weights: int | None = None
    kv_per_token: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerOptions:
    """``docker run`` options. ``options`` are further flags (name without dashes, value; "true" = bare flag)."""

    name: str | None = None
    gpus: str | None = None
    shm_size: str | None = None
    ipc: str | None = None
    network: str | None = None
    entrypoint: str | None = None
    ulimits: tuple[tuple[str, str], ...] = ()
    devices: tuple[str, ...] = ()
    options: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class StartOptions:
    """``ready_line``/``health``: None = the engine's own, "none" = not used. ``probe``: None = the engine's own.

    ``guard``: None = off.
    """

    drop_caches: bool = True
    ready_line: str | None = None
    health: str | None = None
    probe: str | None = None
    prompt: str | None = None
    timeouts: PhaseTimeouts = field(default_factory=PhaseTimeouts)
    expected: float | None = None  # usual seconds until ready, used until the history has a figure
    guard: GuardRule | None = field(default_factory=GuardRule)


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """``args`` keep the order of the file. ``env`` values have ``${VAR}`` replaced only in the plan, never here.
    ``command`` replaces the engine's own launch words (``python -m sglang.launch_server``) when given.
    ``origin`` is the file it came from, ``shipped`` tells whether that file is part of sparkctl. ``engine_version``: where
    the image's tag does not tell it; ``patched_flags``: those that its image's engine takes and no published version does."""

    name: str
    engine: str
    image: str
    origin: str
    shipped: bool
    title: str | None = None
    model: ModelSpec = field(default_factory=ModelSpec)
    nodes: int = 1
    port: int | None = None
    command: tuple[str, ...] | None = None
    args: tuple[tuple[str, ArgValue], ...] = ()
    env: tuple[tuple[str, str], ...] = ()
    env_file: str | None = None
    mounts: tuple[str, ...] = ()
    container: ContainerOptions = field(default_factory=ContainerOptions)
    expected_memory: int | None = None
    floor_memory: int | None = None
    start: StartOptions = field(default_factory=StartOptions)
    stop_grace: float = 30.0
    liveness: str | None = None  # "none": not asked for a token while it is idle
    notes: str | None = None
    source: str | None = None
    extra: tuple[tuple[str, JsonValue], ...] = ()  # what an import found and sparkctl has no use for; only kept
    engine_version: str | None = None
    draft_workspace: str | None = None  # "before-weights": the image takes a draft's workspace before it loads
    patched_flags: tuple[str, ...] = ()
    group: str | None = None  # of the profiles in one group, a Spark runs one at a time
    digest: str = ""  # sha256 of the canonical content, first 12 hex digits: the profile hash of labels
