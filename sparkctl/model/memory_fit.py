"""Whether a profile will start on a node, before it starts: the sum, what the node has, and the answer. Bytes; None is
"not known"."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from sparkctl.model.node import NodeName
from sparkctl.model.text.sanitize import sanitize_line
from sparkctl.model.text.units import format_gib
from sparkctl.model.verdict import FieldChange


class FitOutcome(StrEnum):
    """What the sum comes to. ``if-stopped``: not beside what runs there. ``several-sparks``: it is for more Sparks than were
    asked, and fits on none alone. ``unknown``: a part of the sum is not known, so
    nothing is promised and nothing is refused."""

    FITS = "fits"
    AFTER_DROP_CACHES = "after-drop-caches"
    IF_STOPPED = "if-stopped"
    SHORT = "short"
    SEVERAL = "several-sparks"
    UNKNOWN = "unknown"


class EstimateSource(StrEnum):
    """How a part of the sum is known, the surest first."""

    MEASURED = "measured"  # of the files on the node, or of its memory
    HEADERS = "headers"  # of the index beside the weights: not all of them are there
    CONFIG = "config"  # of the model's config.json
    FLAGS = "flags"  # of the engine's own rule and the profile's flags
    PROFILE = "profile"
    HISTORY = "history"  # of starts that went well before
    ESTIMATE = "estimate"


@dataclass(frozen=True, slots=True, kw_only=True)
class EstimatePart:
    """One part of what a start claims. ``within``: it lies in the part before it that is not, and adds nothing of its own.

    ``words`` are its formula and where that comes from, in a sentence's words.
    """

    name: str
    size: int | None
    obtained: EstimateSource
    words: str = ""
    within: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryHolder:
    """A container that stands on the node. ``coming``: what it still takes until it is ready. ``is_replaced``: the start
    stops it first, and what it holds comes back."""

    name: str
    ours: bool
    held: int | None
    coming: int = 0
    is_replaced: bool = False


@dataclass(frozen=True, slots=True)
class MemoryBudget:
    """What a node has, live. ``droppable``: page cache among ``available`` that CUDA gets at once only after a drop."""

    total: int
    available: int
    droppable: int
    holders: tuple[MemoryHolder, ...] = ()

    @property
    def returned_bytes(self) -> int:
        """What comes back from those that the start replaces, as far as it is known."""
        return sum(one.held or 0 for one in self.holders if one.is_replaced)

    @property
    def pending_bytes(self) -> int:
        """What other starts that are under way there have not yet taken."""
        return sum(one.coming for one in self.holders if not one.is_replaced)

    @property
    def available_after_drop(self) -> int:
        """What the start finds, its page cache dropped and what it replaces gone."""
        return max(0, self.available + self.returned_bytes - self.pending_bytes)


@dataclass(frozen=True, slots=True)
class MeasuredPeak:
    """The last start of a profile that went well: what it took at its peak, and what the sum had said; None where it did not
    come out."""

    peak: int
    estimated: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryFit:
    """The answer for one node. ``need`` is the sum of the parts, None where one is not known; ``floor`` what must be left of
    MemAvailable beside it. ``standing`` None: the node did not say what it has.

    ``stops``: whom to stop so that it fits. ``largest``: of the flag that decides, the largest value that would fit.
    ``least``: the smallest, where the share is too small for what must lie in it. ``lacking``: bytes by which it is.
    ``cautions``: what may go wrong all the same, a sentence each. ``estimated``: the sum as it was before an earlier start
    corrected it. ``absent``: where on the node the weights should lie, and none do. ``sparks``: how many of them share the
    model; of several the sum is of this one's share.
    """

    node: NodeName
    profile: str
    answer: FitOutcome
    parts: tuple[EstimatePart, ...] = ()
    standing: MemoryBudget | None = None
    floor: int = 0
    stops: tuple[str, ...] = ()
    largest: FieldChange | None = None
    least: FieldChange | None = None
    lacking: int = 0
    cautions: tuple[str, ...] = ()
    estimated: int | None = None
    absent: str | None = None
    sparks: int = 1

    @property
    def needed_bytes(self) -> int | None:
        """The sum, None where a part of it is not known."""
        sizes = [part.size for part in self.parts if not part.within]
        return None if not sizes or None in sizes else sum(size or 0 for size in sizes)

    @property
    def margin(self) -> int | None:
        """What is left beyond the floor, negative where it is short; None where it cannot be told."""
        if self.needed_bytes is None or self.standing is None:
            return None
        left = self.standing.available_after_drop - self.floor - self.needed_bytes
        return min(left, -self.lacking) if self.lacking else left

    @property
    def missing_bytes(self) -> int:
        """What is lacking, 0 where nothing is or it cannot be told."""
        return max(0, -(self.margin or 0))

    @property
    def estimated_bytes(self) -> int:
        """What of the sum is only estimated."""
        return sum(
            part.size or 0 for part in self.parts if part.obtained is EstimateSource.ESTIMATE and not part.within
        )

    @property
    def is_tight(self) -> bool:
        """Tell whether it fits with less to spare than half of what is only estimated: it may not."""
        fits = self.answer in (FitOutcome.FITS, FitOutcome.AFTER_DROP_CACHES)
        return fits and self.margin is not None and self.margin < self.estimated_bytes // 2

    @property
    def is_refused(self) -> bool:
        """Tell whether a start is refused: by `up` only where the model is there, for what cannot be loaded takes nothing."""
        return self.answer in (FitOutcome.IF_STOPPED, FitOutcome.SHORT, FitOutcome.SEVERAL)

    @property
    def summary_sentence(self) -> str:
        """The answer in words."""
        spare, needs, it = format_gib(self.margin or 0), "", self.profile
        if self.sparks > 1:
            needs = f"{self.profile} needs {self.sparks} Sparks: "
            it = "its share" if self.needed_bytes is None else f"its share of {format_gib(self.needed_bytes)}"
        match self.answer:
            case FitOutcome.FITS:
                return f"{needs}{it} fits on {self.node}, with {spare} to spare"
            case FitOutcome.AFTER_DROP_CACHES:
                return f"{needs}{it} fits on {self.node} once the page cache is dropped, with {spare} to spare"
            case FitOutcome.IF_STOPPED:
                who = f"{sanitize_line(' and '.join(self.stops))} {'stops' if len(self.stops) == 1 else 'stop'}"
                return f"{needs}{it} fits on {self.node} only if {who}: short by {format_gib(self.missing_bytes)}"
            case FitOutcome.SHORT:
                return f"{needs}{it} does not fit on {self.node}: short by {format_gib(self.missing_bytes)}"
            case FitOutcome.SEVERAL:
                return f"{self.profile} does not fit on {self.node} alone: it needs {self.sparks} Sparks{self.share_phrase}"
            case FitOutcome.UNKNOWN:
                return f"{needs}whether {it} fits on {self.node} is not known"

    @property
    def share_phrase(self) -> str:
        """What each of several Sparks gives, in words; empty where it is not known."""
        return "" if self.needed_bytes is None else f", {format_gib(self.needed_bytes)} on each"


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointFiles:
    """``place`` is the path on the node that was asked for. ``is_there`` False: nothing is; None: it could not be told.

    ``files``: (name, bytes) of what may hold weights. ``index_total``: what the safetensors index says all of them come to.
    ``unfinished``: downloads that have not ended. ``config``: None where there is none that can be read.
    """

    place: str
    is_there: bool | None = None
    files: tuple[tuple[str, int], ...] = ()
    index_total: int | None = None
    unfinished: int = 0
    config: str | None = None
