"""Containers as the Docker Engine lists and inspects them."""

from __future__ import annotations

from enum import StrEnum

from sparkctl.model.launch_plan import ContainerLabel
from sparkctl.model.lazy_dataclass import dataclass

SHORT_ID_DIGITS = 12
SIGKILL_EXIT_CODE = 137  # 128 and the signal: of the kernel, of Docker after the grace time, or of the program itself


class ContainerState(StrEnum):
    """A container's state, in Docker's own words."""

    CREATED = "created"
    RUNNING = "running"
    PAUSED = "paused"
    RESTARTING = "restarting"
    REMOVING = "removing"
    EXITED = "exited"
    DEAD = "dead"
    UNKNOWN = "unknown"  # a state that this version of sparkctl does not know


# these certainly have no processes
ENDED_STATES = (ContainerState.CREATED, ContainerState.EXITED, ContainerState.DEAD)


@dataclass(frozen=True, slots=True, kw_only=True)
class Container:
    """One container. The list call leaves the fields after ``labels`` at None; inspect fills them."""

    id: str
    name: str
    image: str
    state: ContainerState
    status: str  # "Up 3 hours", as docker ps shows it
    created: float  # unix time
    labels: tuple[tuple[str, str], ...]
    started: float | None = None
    finished: float | None = None
    exit_code: int | None = None
    oom_killed: bool | None = None
    error: str | None = None
    ports: tuple[int, ...] = ()  # published on the node, from both calls
    tty: bool | None = None  # its log is one stream without frames (a terminal)
    restart_count: int | None = None  # how often Docker's restart policy has started it again
    nccl: tuple[tuple[str, str], ...] | None = None  # the NCCL_IB_* part of its environment
    image_id: str | None = None  # from both calls; a name may mean another image by now
    shares_shm: bool | None = None  # it uses the node's own /dev/shm

    def get_label(self, name: str) -> str | None:
        """Return one label's value, None where it is not set."""
        return next((value for key, value in self.labels if key == name), None)

    @property
    def instance_name(self) -> str:
        """The name of its instance; a foreign container is called as Docker calls it."""
        return self.get_label(ContainerLabel.INSTANCE) or self.name

    @property
    def is_managed(self) -> bool:
        """Tell whether sparkctl started it, from any laptop."""
        return self.get_label(ContainerLabel.INSTANCE) is not None

    @property
    def is_alive(self) -> bool:
        """Tell whether its processes may exist: True unless it has certainly ended or never ran."""
        return self.state not in ENDED_STATES


def shorten_id(identity: str) -> str:
    """Return the first digits of the id of a container or an image, a digest or a hash, as Docker lists them."""
    return identity.removeprefix("sha256:")[:SHORT_ID_DIGITS]
