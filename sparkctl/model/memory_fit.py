"""Whether a profile fits on a node, before it starts: the estimate, the node's memory, and the answer.

Bytes; None is "not known".
"""

from __future__ import annotations

from enum import StrEnum

from sparkctl.model.lazy_dataclass import dataclass
from sparkctl.model.node import NodeName
from sparkctl.model.text.sanitize import sanitize_line
from sparkctl.model.text.units import format_gib
from sparkctl.model.verdict import FieldChange


class FitOutcome(StrEnum):
    """The answer. ``if-stopped``: only if something that runs there stops. ``several-sparks``: the profile needs more
    Sparks than given and fits on none alone. ``unknown``: a part of the estimate is not known and the known ones have
    room, so nothing is promised or refused.
    """

    FITS = "fits"
    AFTER_DROP_CACHES = "after-drop-caches"
    IF_STOPPED = "if-stopped"
    SHORT = "short"
    SEVERAL = "several-sparks"
    UNKNOWN = "unknown"


class EstimateSource(StrEnum):
    """How a part of the estimate is known, the most certain first."""

    MEASURED = "measured"  # from the files on the node, or from its memory
    HEADERS = "headers"  # from the index beside the weights: some of them are missing
    HUB = "hub"  # from the Hugging Face Hub: the files are not on the node yet
    CONFIG = "config"  # from the model's config.json
    FLAGS = "flags"  # from the engine's rule and the profile's flags
    PROFILE = "profile"
    HISTORY = "history"  # from earlier starts that succeeded
    ESTIMATE = "estimate"


@dataclass(frozen=True, slots=True, kw_only=True)
class EstimatePart:
    """One part of the memory that a start needs. ``within``: included in the part before it, so it adds nothing.

    ``words``: its formula and source, for use in a sentence.
    """

    name: str
    size: int | None
    obtained: EstimateSource
    words: str = ""
    within: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryHolder:
    """A container on the node. ``coming``: what it will still take until it is ready. ``is_replaced``: the start stops
    it first, which frees its memory.
    """

    name: str
    ours: bool
    held: int | None
    coming: int = 0
    is_replaced: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryBudget:
    """A node's memory now. ``droppable``: page cache within ``available`` that CUDA can use only after a drop.
    ``reserved``: what a profile that is needed and starts first will take.
    """

    total: int
    available: int
    droppable: int
    holders: tuple[MemoryHolder, ...] = ()
    reserved: int = 0

    @property
    def returned_bytes(self) -> int:
        """Memory freed by the containers that the start replaces, as far as known."""
        return sum(one.held or 0 for one in self.holders if one.is_replaced)

    @property
    def pending_bytes(self) -> int:
        """Memory that other starts on the node will still take."""
        return self.reserved + sum(one.coming for one in self.holders if not one.is_replaced)

    @property
    def available_after_drop(self) -> int:
        """Memory available to the start after the page cache is dropped and the replaced containers are gone."""
        return max(0, self.available + self.returned_bytes - self.pending_bytes)


@dataclass(frozen=True, slots=True)
class MeasuredPeak:
    """The last successful start of a profile: its peak, the estimate made then, and the memory that was available before it;
    in bytes, None if there was no complete one, or none was measured."""

    peak: int
    estimated: int | None = None
    available: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryFit:
    """The answer for one node. ``need``: the sum of the parts, None if one is not known. ``floor``: what must stay of
    MemAvailable.

    ``standing`` None: the node did not report its memory. ``stops``: what to stop so that it fits. ``largest``: the
    largest value of the deciding flag that would fit. ``least``: the smallest, if its share is too small for its
    content; ``lacking``: the bytes by which it is.

    ``cautions``: sentences on what may still go wrong. ``estimated``: the sum before an earlier start corrected it.
    ``absent``: the path on the node where the model should be and is not whole. ``sparks``: how many Sparks share the
    model; if several, the sum is this Spark's share.
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
        """The sum, None if a part of it is not known."""
        sizes = [part.size for part in self.parts if not part.within]
        return None if not sizes or None in sizes else sum(size or 0 for size in sizes)

    @property
    def left_bytes(self) -> int | None:
        """What the sum leaves above the floor; None if not known. Known parts that have no room tell enough for a refusal."""
        if self.standing is None or not self.parts:
            return None
        known = sum(part.size or 0 for part in self.parts if not part.within)
        left = self.standing.available_after_drop - self.floor - known
        is_known = self.is_refused if left < 0 else self.needed_bytes is not None
        return left if is_known else None

    @property
    def margin(self) -> int | None:
        """What is left above the floor, negative if it does not fit; None if not known."""
        return self.left_bytes if not self.lacking or self.left_bytes is None else min(self.left_bytes, -self.lacking)

    @property
    def missing_bytes(self) -> int:
        """What is missing, 0 if nothing is or it is not known."""
        return max(0, -(self.margin or 0))

    @property
    def shortfall_phrase(self) -> str:
        """By how much it does not fit, as a phrase."""
        return f"short by {'at least ' if self.needed_bytes is None else ''}{format_gib(self.missing_bytes)}"

    @property
    def estimated_bytes(self) -> int:
        """The part of the sum that is only estimated."""
        return sum(
            part.size or 0 for part in self.parts if part.obtained is EstimateSource.ESTIMATE and not part.within
        )

    @property
    def is_tight(self) -> bool:
        """Tell whether it fits with a margin below half of the estimated part: then it may fail."""
        fits = self.answer in (FitOutcome.FITS, FitOutcome.AFTER_DROP_CACHES)
        return fits and self.margin is not None and self.margin < self.estimated_bytes // 2

    @property
    def is_refused(self) -> bool:
        """Tell whether a start is refused. `up` refuses only if the model is there: without weights nothing is loaded."""
        return self.answer in (FitOutcome.IF_STOPPED, FitOutcome.SHORT, FitOutcome.SEVERAL)

    @property
    def summary_sentence(self) -> str:
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
                holder = f"{sanitize_line(' and '.join(self.stops))} {'stops' if len(self.stops) == 1 else 'stop'}"
                return f"{needs}{it} fits on {self.node} only if {holder}: {self.shortfall_phrase}"
            case FitOutcome.SHORT:
                return f"{needs}{it} does not fit on {self.node}: {self.shortfall_phrase}"
            case FitOutcome.SEVERAL:
                share = "" if self.needed_bytes is None else f", {format_gib(self.needed_bytes)} on each"
                return f"{self.profile} does not fit on {self.node} alone: it needs {self.sparks} Sparks{share}"
            case FitOutcome.UNKNOWN:
                return f"{needs}whether {it} fits on {self.node} is not known"


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointFiles:
    """``place`` is the path on the node. ``is_there`` False: it does not exist; None: not known.

    ``files``: (name, bytes) of files that may hold weights. ``index_total``: the total size in the safetensors index.
    ``unfinished``: incomplete downloads. ``config``: None if there is none that can be read. ``has_draft_layers``:
    whether tensors are named like those of draft layers (mtp); None: their names could not be read. ``has_tokenizer``: its
    tokenizer.json can be read; None: not known. ``origin``: the files are not there yet, this is what the Hub has, in words.
    """

    place: str
    is_there: bool | None
    files: tuple[tuple[str, int], ...] = ()
    index_total: int | None = None
    unfinished: int = 0
    config: str | None = None
    has_draft_layers: bool | None = None
    has_tokenizer: bool | None = None
    origin: str | None = None
