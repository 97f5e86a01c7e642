"""The live state as views: what a front end shows of a node and of an instance. Frozen; None is "not known"."""

from __future__ import annotations

from dataclasses import dataclass

from sparkctl.model.container import ContainerState
from sparkctl.model.memory import Memory
from sparkctl.model.metrics import Numbers
from sparkctl.model.node import NodeName, NodeState
from sparkctl.model.phase import Phase, Step
from sparkctl.model.sample import MemoryBar, Sample, memory_bar


@dataclass(frozen=True, slots=True)
class InstanceView:
    """A container on a node, ours or foreign. ``memory`` is what its processes hold in bytes, GPU side included.

    ``numbers`` are the engine's figures, told by `top` alone; ``metrics_hint`` is what a profile sets to have more of them.
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
    numbers: Numbers | None = None
    metrics_hint: str | None = None


@dataclass(frozen=True, slots=True)
class NodeView:
    """A node at ``when`` (unix seconds). ``docker_known`` False: the node answers, its Docker did not."""

    name: NodeName
    state: NodeState
    when: float
    detail: str | None = None
    hint: str | None = None
    attempt: int | None = None
    next_try: float | None = None
    memory: Memory | None = None
    instances: tuple[InstanceView, ...] = ()
    docker_known: bool = True

    @property
    def is_well(self) -> bool:
        """Tell whether everything of ours on the node is ready or on its way, and nothing is unknown.

        `down` removes what it stops: a container of ours that has ended and is still there ended in some other way.
        """
        bad = (Phase.FAILED, Phase.STOPPED, Phase.UNKNOWN)
        return self.state is NodeState.OK and self.docker_known and not any(i.phase in bad for i in self.instances)


@dataclass(frozen=True, slots=True)
class LoadView:
    """What a node does at ``when`` (unix seconds): the probe's last sample, and the instances with what they hold.

    ``instances_seen``: when Docker last said what runs, unix seconds; None before it ever did. ``docker_known`` False: it
    does not say at the moment, and the instances are those of then.
    """

    name: NodeName
    state: NodeState
    when: float
    detail: str | None = None
    hint: str | None = None
    sample: Sample | None = None
    instances: tuple[InstanceView, ...] = ()
    docker_known: bool = True
    instances_seen: float | None = None

    @property
    def memory(self) -> MemoryBar | None:
        """The memory in four parts; None where there is no sample of it."""
        if self.sample is None or self.sample.memory is None:
            return None
        return memory_bar(self.sample.memory, self.sample.gpu_memory)
