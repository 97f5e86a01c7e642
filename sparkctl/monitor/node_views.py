"""Views of the live state: what a front end shows of a node and its instances. Frozen; None is "not known"."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from sparkctl.errors import InvalidInput, NodeError, format_did_you_mean
from sparkctl.model.finding import Finding
from sparkctl.model.instance import InstanceView, is_worker
from sparkctl.model.lazy_dataclass import dataclass
from sparkctl.model.node import NodeName, NodeState
from sparkctl.model.phase import Phase
from sparkctl.model.sample import MemoryReading
from sparkctl.model.switch_plan import SwitchJournalStatus, SwitchStep
from sparkctl.model.text.sanitize import sanitize_line

if TYPE_CHECKING:
    from sparkctl.model.sample import MemoryBar, Sample


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeStatusView:
    """A node at ``when`` (unix seconds). ``docker_known`` False: the node answers, but its Docker did not. ``switch``: the
    journal of a running or interrupted switch, None if there is none or it was not read."""

    name: NodeName
    state: NodeState
    when: float
    detail: str | None = None
    hint: str | None = None
    attempt: int | None = None
    next_try: float | None = None
    memory: MemoryReading | None = None
    instances: tuple[InstanceView, ...] = ()
    docker_known: bool = True
    switch: SwitchJournalStatus | None = None

    @property
    def is_healthy(self) -> bool:
        """Tell whether all our instances on the node are ready or starting, and nothing is unknown.

        `down` removes what it stops, so an ended container of ours that still exists ended in some other way.
        """
        bad = (Phase.FAILED, Phase.UNPROVED, Phase.STOPPING, Phase.STOPPED, Phase.UNKNOWN)
        if self.switch is not None and not self.switch.is_held:
            return False  # it was interrupted, and no process continues it
        # their heads count for them
        judged = [i for i in self.instances if not i.is_kept and (i.phase is not Phase.UNKNOWN or not is_worker(i))]
        return self.state is NodeState.OK and self.docker_known and not any(i.phase in bad for i in judged)


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeTelemetryView:
    """What a node does at ``when`` (unix seconds): the agent's last sample, and the instances with their memory.

    ``instances_seen``: time of Docker's last list, unix seconds; None before the first. ``docker_known`` False: Docker does
    not answer now, and the instances are from the last list. ``sampled``: when the sample arrived, unix seconds.
    ``findings``: what is wrong, the worst first.
    ``memory_bandwidth``: the specified memory bandwidth in GB/s, if the config was read.
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
    reading: MemoryReading | None = None
    sampled: float | None = None
    findings: tuple[Finding, ...] = ()
    memory_bandwidth: float | None = None

    @property
    def memory(self) -> MemoryBar | None:
        """The memory in four parts, by the sample, or else by the last ``reading``; None where there is neither."""
        from sparkctl.model.sample import build_memory_bar  # imported late: `status` has no samples

        sampled = None if self.sample is None else self.sample.memory
        memory = sampled or self.reading
        if memory is None or memory.total <= 0:  # no usable reading
            return None
        if self.sample is None or sampled is None:
            return build_memory_bar(memory, None)
        return build_memory_bar(memory, self.sample.gpu_memory, self.sample.process_memory)


_ROLLBACK_STEPS = (SwitchStep.RESTORING, SwitchStep.RESTORED)


def list_rollback_containers(view: SwitchJournalStatus | None) -> tuple[str, ...]:
    """Return the ids of the containers that a switch keeps for a rollback; none for an interrupted rollback, as a stopped
    container may have failed then."""
    if view is None or view.journal is None or (view.journal.step in _ROLLBACK_STEPS and not view.is_held):
        return ()
    return tuple(container for _, container in view.journal.old)


def mark_rollback_containers(instances: Sequence[InstanceView], kept: Collection[str]) -> tuple[InstanceView, ...]:
    """Return a node's instances, with ``is_kept`` set for those that a switch stopped and keeps."""
    return tuple(
        replace(one, phase=Phase.STOPPED, step=None, detail=None, is_kept=True)
        if one.ours and not one.is_alive and one.container_id in kept
        else one
        for one in instances
    )


def build_missing_instance_error(
    name: str, running: Iterable[str], where: str = "", hint: str | None = None, nodes: Sequence[str] = ()
) -> InvalidInput:
    """Return the error for a word that names no running instance: a profile that does not run, or nothing.

    Args:
        name: the word.
        running: the names that it could have been.
        where: the nodes that were asked, in words.
        hint: what else helps where it is a profile.
        nodes: the nodes that it could have named, too.
    """
    from sparkctl.profiles.profile_library import ProfileLibrary

    names, place = sorted(set(running)), f" on {where}" if where else ""
    lists = (("nodes", nodes), ("running", [sanitize_line(one) for one in names]))
    there = "; ".join(f"{what}: {', '.join(found)}" for what, found in lists if found)
    there = f" ({there})" if there else ""
    if name in ProfileLibrary().list_names():
        return InvalidInput(
            f"{name} is a profile, and it is not running{place}{there}", hint or f"sparkctl up {name} --node NODE"
        )
    what = "no node and no running instance" if nodes else "no running instance"
    near = format_did_you_mean(name, [*nodes, *names])
    return InvalidInput(f"{what} is called {sanitize_line(name)}{place}{there}{near}", "see what runs: sparkctl status")


def choose_instance(views: Sequence[NodeStatusView], name: str, nodes: Sequence[str] = ()) -> InstanceView:
    """Return the instance of this name, or the container; of several ranks the head. Raises `SparkctlError` where there is
    none, where it may be on a node that did not answer, and where several run. ``nodes``: what the name could be, too."""
    alive = [one for view in views for one in view.instances if one.is_alive]
    found = [one for one in alive if name in (one.name, one.container)]
    silent = [view for view in views if view.state is not NodeState.OK or not view.docker_known]
    if not found:
        asked = " or ".join(view.name for view in views if view not in silent) if silent else ""
        unknown = build_missing_instance_error(name, {one.name for one in alive}, asked, nodes=nodes)
        if not silent:
            raise unknown
        away = silent[0]
        lost = NodeError(away.name, away.detail or f"{away.name} could not be read", away.hint)
        raise lost.add_message(unknown) if asked else lost
    heads = [one for one in found if not is_worker(one)] or found
    if len({one.node for one in heads}) > 1:
        raise InvalidInput(f"{name} runs on {' and '.join(one.node for one in heads)}", "name one of them with --node")
    return heads[0]
