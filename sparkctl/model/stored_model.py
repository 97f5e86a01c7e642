"""A model as it lies on a node's disk."""

from __future__ import annotations

from dataclasses import dataclass

from sparkctl.model.node import NodeName


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredModel:
    """Where it lies, how large it is, and who needs it.

    Attributes:
        size: bytes on the disk.
        used: when its weights were last read, as the disk remembers it (to a day); None: not known.
        is_whole: None: its files may not be read.
        faults: what is wrong with it, sentences.
        profiles: the profiles that name it.
        is_brought: `pull` got it.
        is_link: the place is a link to another one.
        also_on: the other nodes that have it, by its place.
    """

    node: NodeName
    place: str
    size: int
    used: float | None = None
    is_whole: bool | None = None
    faults: tuple[str, ...] = ()
    profiles: tuple[str, ...] = ()
    is_brought: bool = False
    is_link: bool = False
    also_on: tuple[NodeName, ...] = ()

    @property
    def name(self) -> str:
        """Its name without the directories before it."""
        last = self.place.rstrip("/").rpartition("/")[2]
        return last.removeprefix("models--").replace("--", "/") if last.startswith("models--") else last

    @property
    def is_ours(self) -> bool:
        """Tell whether sparkctl has to do with it: it brought it, or a profile names it."""
        return self.is_brought or bool(self.profiles)


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeModels:
    """The models of a node; ``trouble``: why it could not be asked."""

    node: NodeName
    models: tuple[StoredModel, ...] = ()
    trouble: str | None = None
