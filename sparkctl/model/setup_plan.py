"""What `setup` changes on a node: steps, each with its files before and after. Pure data."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class SetupStepKind(StrEnum):
    """The steps of a set-up."""

    DOCKER_GROUP = "docker-group"
    DROP_CACHES = "drop-caches"
    CABLE = "cable"
    SSH = "ssh"
    UNDO = "undo"


@dataclass(frozen=True, slots=True)
class FileChange:
    """A file before and after. None: it is not there. ``mode``: as chmod takes it, of a file that is written."""

    path: str
    before: str | None
    after: str | None
    mode: str | None = None


@dataclass(frozen=True, slots=True)
class SetupStep:
    """One step on one node. ``summary``: what it is good for."""

    kind: SetupStepKind
    summary: str
    changes: tuple[FileChange, ...]
