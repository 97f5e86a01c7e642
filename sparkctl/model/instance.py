"""An instance as an operator sees it: a container on a node with its phase, memory and figures."""

from __future__ import annotations

import re

from sparkctl.model.container import ENDED_STATES, ContainerState
from sparkctl.model.decode_step import DecodeStepSpec
from sparkctl.model.engine_metrics import EngineFact, EngineMeter
from sparkctl.model.lazy_dataclass import dataclass
from sparkctl.model.node import NodeName
from sparkctl.model.phase import Phase, Step
from sparkctl.model.reference import ComparableReference, FigureRange, estimate_request_context, find_comparable_rate

_MAX_RANKS = 4096  # ranks: more than any model has
_RANK_PATTERN = re.compile(r"([0-9]{1,4})/([0-9]{1,4})")


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceView:
    """A container on a node, managed or foreign. ``memory``: bytes its processes hold, including the GPU side.

    ``numbers``: the engine's figures, only from `top` and the panel. ``metrics_hint``: what to set in the profile for
    more of them. ``expected``: the memory its label says it needs. ``per_step``: its decode step, ``reference``:
    what others measured, from other labels. ``restarts``: how often Docker restarted it. ``nccl``: the NCCL_IB_* part of
    its environment. ``facts``: what its log says about how it runs, only from `top` and the panel.

    ``rank``: "0/2" is the head of a model on two Sparks. ``nodes``: the nodes of all its ranks, the head's first.
    ``run``: the same for all ranks of one start. All None or empty for a model on one Spark, and if the labels do not
    say. ``is_kept``: a switch stopped it and keeps it until the new model is proved.

    ``needs``: the instances that it cannot work without, as "orpheus-llm@spark2". ``needed_by``: the live ones that cannot
    work without it.

    ``probe``: how its start is proved, from its label: "speech" for what speaks.
    """

    name: str
    node: NodeName
    container: str
    image: str
    state: ContainerState
    status: str
    ours: bool
    memory: int | None
    phase: Phase | None
    step: Step | None = None
    profile: str | None = None
    engine: str | None = None
    operator: str | None = None
    endpoint: str | None = None
    detail: str | None = None
    container_id: str | None = None
    port: int | None = None
    numbers: EngineMeter | None = None
    metrics_hint: str | None = None
    restarts: int | None = None
    nccl: tuple[tuple[str, str], ...] | None = None
    expected: int | None = None
    per_step: DecodeStepSpec | None = None
    facts: tuple[EngineFact, ...] = ()
    rank: str | None = None
    nodes: tuple[NodeName, ...] = ()
    run: str | None = None
    is_kept: bool = False
    reference: ComparableReference | None = None
    needs: tuple[str, ...] = ()
    needed_by: tuple[str, ...] = ()
    probe: str | None = None

    @property
    def rank_position(self) -> tuple[int, int] | None:
        """Which of how many ranks it is, the head being 0; None for one Spark alone, and for text that is no rank."""
        return parse_rank_position(self.rank)

    @property
    def reference_rate(self) -> FigureRange | None:
        """The tok/s that others measured in its present situation; None where no figure of theirs is comparable."""
        context = None if self.numbers is None else estimate_request_context(self.numbers, self.facts)
        return find_comparable_rate(self.reference, self.numbers, context)

    def get_nccl_variable(self, name: str) -> str | None:
        """Return one NCCL_IB_* variable of its environment; None where it is not set or was not read."""
        return next((value for key, value in self.nccl or () if key == name), None)

    @property
    def is_download(self) -> bool:
        """Tell whether it is the download of a model: no engine."""
        return self.phase is Phase.PULLING and not self.ours

    @property
    def shown_name(self) -> str:
        """Its name; a download is named by the profile whose model comes."""
        return (self.is_download and self.profile) or self.name

    @property
    def is_alive(self) -> bool:
        """Tell whether its processes may exist."""
        return self.state not in ENDED_STATES


def parse_rank_position(text: str | None) -> tuple[int, int] | None:
    """Return rank and number of ranks of "0/2"; None for any other text: a node or a recording can hold anything."""
    found = _RANK_PATTERN.fullmatch(text or "")
    if found is None or not int(found[1]) < int(found[2]) <= _MAX_RANKS:
        return None
    return int(found[1]), int(found[2])


def is_worker(one: InstanceView) -> bool:
    """Tell whether it is a managed rank that answers no clients."""
    return one.ours and one.rank_position is not None and one.rank_position[0] > 0
