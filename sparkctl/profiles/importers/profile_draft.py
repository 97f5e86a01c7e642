"""The draft of a profile that the readers of all formats fill in."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from sparkctl.model.profile import Profile
from sparkctl.profiles.importers.import_report import ImportReport

MAX_NODES = 8  # Sparks that a profile may be for
METADATA_COMMENT = "# sparkctl: "  # the comment in which an export writes what has no docker flag


class SourceFormat(StrEnum):
    """The format of the source."""

    DOCKER = "docker"
    COMPOSE = "compose"
    SYSTEMD = "systemd"
    SPARKRUN = "sparkrun"
    EUGR = "eugr"
    SERVICES = "services"
    CONTAINER = "container"
    COMMAND = "command"


@dataclass(slots=True, kw_only=True)
class ProfileDraft:
    """Texts are in a profile's notation (see `env_references`).

    ``entrypoint`` and ``words`` are the command as Docker takes it; ``words`` None: the image's own. ``engine_hint``:
    the engine's name in the source.
    """

    kind: SourceFormat
    ledger: ImportReport
    name: str | None = None
    title: str | None = None
    image: str | None = None
    engine_hint: str | None = None
    model: str | None = None
    parameters: str | None = None
    nodes: int = 1
    by_ranks: bool = False  # each rank is a node, because a Spark has one GPU
    port: int | None = None
    entrypoint: str | None = None
    words: list[str] | None = None
    env: dict[str, str] = field(default_factory=dict)
    env_file: str | None = None
    mounts: list[str] = field(default_factory=list)
    gpus: str | None = None
    shm_size: str | None = None
    ipc: str | None = None
    network: str | None = None
    container_name: str | None = None
    ulimits: dict[str, str] = field(default_factory=dict)
    devices: list[str] = field(default_factory=list)
    options: list[tuple[str, str]] = field(default_factory=list)
    health: str | None = None
    probe: str | None = None
    prompt: str | None = None
    timeouts: dict[str, float] = field(default_factory=dict)
    stop_grace: float | None = None
    notes: list[str] = field(default_factory=list)
    source: str | None = None
    engine: str | None = None  # known for certain
    beside: str | None = None  # what an export of sparkctl added to the form, as JSON
    beside_key: str = "# sparkctl"  # the form's key that holds it


@dataclass(frozen=True, slots=True)
class ImportResult:
    """A profile, and what happened to its source. ``comments``: field (dotted) to its comment."""

    kind: SourceFormat
    profile: Profile
    ledger: ImportReport
    comments: tuple[tuple[str, str], ...] = ()
