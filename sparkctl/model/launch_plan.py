"""The launch plan: exactly what one node's container gets. ``--dry-run`` prints it, Docker receives it. Pure data."""

from __future__ import annotations

from dataclasses import field
from typing import Annotated

from sparkctl.model.lazy_dataclass import dataclass
from sparkctl.model.node import NodeName
from sparkctl.model.profile_field import FieldKind, ProfileField
from sparkctl.model.text.units import MIB

DEFAULT_FLOOR_BYTES = 512 * MIB  # of MemAvailable; a good configuration may run with about 1 GiB left


class ContainerLabel:
    """The container labels, the only shared state: a second operator or a reinstalled laptop reads the same from them."""

    PREFIX = "dev.sparkctl."
    PROFILE = PREFIX + "profile"
    DOWNLOAD = PREFIX + "download"  # of a container that downloads a model: into which directory, as a short checksum
    DOWNLOAD_SOURCE = PREFIX + "download-source"  # and from where
    BUILD = PREFIX + "build"  # of an image that `pull` built: from what
    HASH = PREFIX + "hash"
    INSTANCE = PREFIX + "instance"
    ENGINE = PREFIX + "engine"
    OPERATOR = PREFIX + "operator"
    PORT = PREFIX + "port"  # on the node
    READY = PREFIX + "ready"  # the ReadinessRule as JSON, so that another operator can judge the same instance
    GRACE = PREFIX + "grace"  # seconds between SIGTERM and SIGKILL
    EXPECTED = PREFIX + "expected"  # bytes of memory that it is expected to hold
    PER_STEP = PREFIX + "per-step"  # the DecodeStepSpec as JSON: what a decode step reads
    REFERENCE = PREFIX + "reference"  # the ComparableReference as JSON: what others measured with these settings
    RANK = PREFIX + "rank"  # "1/2": the second of two Sparks of one model
    NODES = PREFIX + "nodes"  # "spark1,spark2": the nodes of its ranks as the operator names them, the head first
    RUN = PREFIX + "run"  # the same on every rank of one start, different for each start
    GROUP = PREFIX + "group"  # a Spark runs one instance of a group at a time
    VERSION = PREFIX + "version"
    NEEDS = PREFIX + "needs"  # "orpheus-llm@spark2": what it needs, and where that runs
    STARTED_FOR = PREFIX + "started-for"  # the instance that needed it: with that one it stops
    LIVENESS = PREFIX + "liveness"  # "none": no probe is sent while it is idle


@dataclass(frozen=True, slots=True)
class Mount:
    """A bind mount; ``source`` is a path on the node with ~ already replaced, or the name of a volume."""

    source: str
    target: str
    read_only: bool = False

    def __str__(self) -> str:
        return f"{self.source}:{self.target}:ro" if self.read_only else f"{self.source}:{self.target}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerSpec:
    """What a container is made from. ``options``: further docker run flags as (flag without dashes, value) pairs; "true" is a bare
    flag. ``ulimits``: such as ("memlock", "-1") or ("nofile", "1024:2048"). All hold real values, including secrets.
    """

    image: str
    entrypoint: str | None
    command: tuple[str, ...]
    env: tuple[tuple[str, str], ...]
    mounts: tuple[Mount, ...]
    gpus: str | None
    shm_size: str | None
    ipc: str | None
    network: str | None
    ulimits: tuple[tuple[str, str], ...]
    devices: tuple[str, ...]
    options: tuple[tuple[str, str], ...]
    labels: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class DockerRunSpec(ContainerSpec):
    """How a container was started, as Docker remembers it."""

    name: str


REQUEST_MARK = "by=sparkctl"  # in the query of our own requests to an engine, whose log names them
PROVED_PROBES = ("speech", "embeddings", "rerank", "http")  # one that answers without proof is up, and not ready
PROBE_KINDS = ("completions", "chat", *PROVED_PROBES, "none")
_WORK_WITHOUT_TOKENS = {"speech": "sound", "embeddings": "vectors", "rerank": "scores"}  # by probe


def explain_no_tokens(name: str, probe: str | None) -> str | None:
    """Return why there is nothing to measure of a service that its ``probe`` shows to give no tokens; None for others."""
    what = _WORK_WITHOUT_TOKENS.get(probe or "")
    return None if what is None else f"{name} gives {what}: there are no tokens to measure"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadinessRule:
    """When an instance counts as ready: the line was seen AND the path answers AND a token came.

    ``line``: regex searched in the cleaned line, None = do not wait for a line. ``health``: path that must answer 2xx
    (401 and 403 also prove that it lives), None = do not ask. ``probe``: one of `PROBE_KINDS`; ``prompt`` is its text.
    ``requires_key``: only if it refuses a request without its key.
    """

    line: str | None
    health: str | None
    probe: str = "completions"
    prompt: str = "The capital of France is"
    requires_key: bool = False


@dataclass(frozen=True, slots=True)
class ReadinessTarget:
    """What is needed to probe an instance: its ``port`` on the node (None: none is reachable), rule, model name and
    key.
    """

    port: int | None
    ready: ReadinessRule
    served_model: str | None = None
    api_key: str | None = field(default=None, repr=False)

    @property
    def auth_headers(self) -> tuple[tuple[str, str], ...]:
        """The header with its key; empty without one."""
        return (("Authorization", f"Bearer {self.api_key}"),) if self.api_key else ()


@dataclass(frozen=True, slots=True)
class PhaseTimeouts:
    """How long each phase may last, in seconds, before the start counts as timed out."""

    creating: Annotated[
        float, ProfileField(kind=FieldKind.DURATION, help="limit for creating the container", shows_default=False)
    ] = 120.0  # create + start calls
    starting: Annotated[
        float, ProfileField(kind=FieldKind.DURATION, help="limit for starting it", shows_default=False)
    ] = 300.0  # the container runs; the engine has not reported loading yet
    loading: Annotated[
        float, ProfileField(kind=FieldKind.DURATION, help="limit for loading the model", shows_default=False)
    ] = 2400.0
    warming: Annotated[
        float, ProfileField(kind=FieldKind.DURATION, help="limit for warming up", shows_default=False)
    ] = 900.0  # from the end of loading to the probe's token


@dataclass(frozen=True, slots=True)
class GuardRule:
    """When the guard on the node acts during a start.

    ``floor``: bytes of MemAvailable below which the guard kills the loading instance; small, because a good
    configuration may run with about 1 GiB left. ``cache_below``: bytes of MemFree below which it drops the page cache
    while weights load (None: the guard's default for the machine, 0: never). ``limit``: seconds after which it ends;
    None: the sum of all phase timeouts.
    """

    floor: Annotated[
        int,
        ProfileField(
            kind=FieldKind.GUARD_FLOOR,
            help="available memory under which the [guard](guard.md) acts; `start: {guard: off}` turns the guard off",
            shows_default=False,
        ),
    ] = DEFAULT_FLOOR_BYTES
    cache_below: Annotated[
        int | None,
        ProfileField(kind=FieldKind.SIZE, help="free memory under which the guard drops page cache while weights load"),
    ] = None
    limit: Annotated[
        float | None,
        ProfileField(kind=FieldKind.TIME_LIMIT, help="how long the guard watches the start, with its unit"),
    ] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchPlan(ContainerSpec):
    """Everything one container needs. Show a plan only as `redact_launch_plan` returns it.

    ``secrets``: values from the operator's environment for ``${VAR}`` with a secret's name; never written.
    """

    node: NodeName
    instance: str
    profile: str
    profile_hash: str
    engine: str
    container_name: str
    port: int | None
    served_model: str | None
    api_key: str | None
    ready: ReadinessRule
    timeouts: PhaseTimeouts
    drop_caches: bool
    stop_grace: float
    expected_memory: int | None
    floor_memory: int | None
    guard: GuardRule | None = None  # None: this start is not guarded
    rank: int = 0
    ranks: int = 1
    requires_key: bool = False  # as `ready` has it; JSON has it in both places
    engine_version: str | None = None  # from the profile; None: the image's tag may tell
    secrets: tuple[str, ...] = field(default=(), repr=False)

    @property
    def node_port(self) -> int | None:
        """The port on the node: the published one if the container has a network of its own.

        ``publish`` is docker's ``[ADDRESS:]HOST:CONTAINER[/tcp]``. None if no port is reachable.
        """
        return resolve_node_port(self.port, self.network, self.options)

    def get_flag_value(self, name: str) -> str | None:
        """Return the value of a flag in the command, the last one if it is repeated. None: not set, or a bare flag.

        ``name`` is without dashes.
        """
        return find_flag_value(self.command, name)

    @property
    def secret_values(self) -> frozenset[str]:
        """Every secret value in the plan, in each spelling in which it may appear, for masking output."""
        from sparkctl.model.text.secrets import find_secret_arguments, find_secret_values, list_secret_spellings

        words = [*(self.entrypoint or "").split(), *self.command]
        own = list_secret_spellings([*self.secrets, self.api_key or ""])
        return own | find_secret_values(self.env) | find_secret_arguments(words) | find_secret_values(self.options)

    @property
    def readiness_target(self) -> ReadinessTarget:
        """How to probe the instance for readiness."""
        return ReadinessTarget(self.node_port, self.ready, self.served_model, self.api_key)


def find_flag_value(command: tuple[str, ...], name: str) -> str | None:
    """Return the value of a flag in a command; see `LaunchPlan.get_flag_value`."""
    found, wanted = None, name.replace("_", "-")
    for at, word in enumerate(command):
        flag, equals, value = word.partition("=")
        if flag.startswith("-") and flag.lstrip("-").replace("_", "-") == wanted:
            found = value if equals else next(iter(command[at + 1 : at + 2]), None)
    return None if found is None or found.startswith("--") else found


def resolve_node_port(port: int | None, network: str | None, options: tuple[tuple[str, str], ...]) -> int | None:
    """Return the node's port that leads to a container's ``port``; see `LaunchPlan.node_port`."""
    if network == "host" or port is None:
        return port
    for flag, value in options:
        parts = value.removesuffix("/tcp").split(":")
        if flag == "publish" and len(parts) >= 2 and parts[-1] == str(port) and parts[-2].isdecimal():
            return int(parts[-2])
    return None
