"""Which instances a request would stop, which of them are or may be answering requests, and the question before it. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from sparkctl.commands.request import Preview, Sentence, SentenceTone, describe_unreachable
from sparkctl.model.engine_metrics import EngineActivity
from sparkctl.model.lazy_dataclass import dataclass
from sparkctl.model.node import NodeName, NodeState
from sparkctl.model.phase import Phase
from sparkctl.monitor.ranks import count_ranks, find_ranks, list_nodes_of_instance

if TYPE_CHECKING:  # loaded only for type checks: a key is looked up without them
    from sparkctl.commands.action_context import ActionContext
    from sparkctl.model.instance import InstanceView

_POSSIBLY_SERVING_PHASES = (Phase.READY, Phase.UNPROVED, Phase.UNKNOWN, None)


@dataclass(frozen=True, slots=True, kw_only=True)
class StopTarget:
    """What a request would stop.

    Attributes:
        instance: None: everything that sparkctl started.
        nodes: only there; none: on every node.
        frees: of a model with a rank on these nodes, also its ranks elsewhere.
        replaces: it is started again.
    """

    instance: str | None
    nodes: tuple[NodeName, ...] = ()
    frees: bool = False
    replaces: bool = False


def is_rank_serving(one: InstanceView) -> bool | None:
    """Tell whether a rank has running requests; None: not known, for one that may be ready and has no figures.

    Without a count of requests, as in figures from a log, it counts as serving while it generates tokens.
    """
    numbers = one.numbers
    if numbers is not None and numbers.running is not None:
        return numbers.running > 0
    if numbers is not None and numbers.activity is not None:
        return numbers.activity is not EngineActivity.IDLE
    return None if one.phase in _POSSIBLY_SERVING_PHASES else False


def is_instance_serving(one: InstanceView, now: ActionContext) -> bool | None:
    """Tell whether a model has running requests; on several Sparks, any rank that knows decides."""
    answers = [
        is_rank_serving(each) for each in find_ranks(one, (each for view in now.views for each in view.instances))
    ]
    return True if True in answers else False if False in answers else None


def find_interrupted_instances(now: ActionContext, target: StopTarget) -> tuple[InstanceView, ...]:
    """Return the instances that would be stopped while they answer, or may answer.

    The last figures decide; they are up to a few seconds old.
    """
    return tuple(
        one for one in find_target_instances(now, target) if one.is_alive and is_instance_serving(one, now) is not False
    )


def find_target_instances(now: ActionContext, target: StopTarget) -> tuple[InstanceView, ...]:
    """Return sparkctl's instances that are meant, ended ones included."""
    mine = tuple(
        one
        for view in now.views
        if not target.nodes or view.name in target.nodes
        for one in view.instances
        if one.ours and target.instance in (None, one.name)
    )
    if not target.frees:
        return mine
    there = [one for view in now.views for one in view.instances]
    parts = [each for one in mine for each in find_ranks(one, there)]
    return (*mine, *(each for at, each in enumerate(parts) if each not in mine and each not in parts[:at]))


def find_unlisted_nodes(now: ActionContext, target: StopTarget) -> tuple[NodeName, ...]:
    """Return the target Sparks whose containers are not known yet."""
    looked_at = {
        view.name
        for view in now.views
        if view.instances_seen is not None or view.state not in (NodeState.OK, NodeState.UNKNOWN)
    }
    return tuple(name for name in now.names if (not target.nodes or name in target.nodes) and name not in looked_at)


def preview_stop(now: ActionContext, target: StopTarget, verb: str = "Stop") -> Preview:
    """Return the question before a stop, or before a kill or a restart (``verb``). A serving model, or one of which that is not
    known, needs its name typed."""
    named = find_target_instances(now, target)
    if target.instance is not None and not target.replaces and named and not any(one.is_alive for one in named):
        return _preview_removal(named)
    stopped = [one for one in named if one.is_alive]
    serving, unlisted = find_interrupted_instances(now, target), find_unlisted_nodes(now, target)
    risks = (
        *(sentence for one in serving for sentence in _describe_served_clients(one, now)),
        *((f"What runs on {name} is not known yet.", SentenceTone.ATTENTION) for name in unlisted),
    )
    names = {one.name for one in serving} or set(target.nodes if target.frees else filter(None, [target.instance]))
    return Preview(
        sections=(
            (
                (_format_question(target, stopped, verb), SentenceTone.STRONG),
                *(_describe_freed_nodes(target, stopped, now) if target.frees else ()),
                *(_describe_other_ranks(stopped, now) if not target.frees and not target.replaces else ()),
            ),
            *((risks,) if serving or unlisted else ()),
            *describe_unreachable(now, target.nodes),
        ),
        is_required=not target.replaces or bool(serving or unlisted),
        accept=f"{verb.lower()} it",
        wanted=None if not serving and not unlisted else names.pop() if len(names) == 1 else "all",
    )


def preview_replacement(now: ActionContext, instance: str, nodes: tuple[NodeName, ...]) -> Preview:
    """Return the question before a start in place of what runs under its name."""
    return preview_stop(now, StopTarget(instance=instance, nodes=nodes, replaces=True))


def _preview_removal(ended: Sequence[InstanceView]) -> Preview:
    """Return the question before the removal of an instance that has ended."""
    first = ended[0]
    there = " and ".join(dict.fromkeys(str(one.node) for one in ended))
    how = "has failed" if first.phase is Phase.FAILED else "has ended"
    return Preview(
        sections=((
            (f"Remove {first.name} from {there}?", SentenceTone.STRONG),
            (f"It {how}: nothing is running any more. Its log is saved, then its container is removed.", SentenceTone.PLAIN),
        ),),
        is_required=True, title="remove", accept="remove it",
    )  # fmt: skip


def _format_question(target: StopTarget, stopped: Sequence[InstanceView], verb: str) -> str:
    nodes = target.nodes or tuple(dict.fromkeys(one.node for one in stopped))
    there = f" on {' and '.join(nodes)}" if nodes else ""
    if target.replaces:
        return f"Stop what runs as {target.instance}{there}, and start it again?"
    if target.frees:
        return f"Stop everything that sparkctl started{there}?"
    return f"{verb} {target.instance or 'every instance that sparkctl started'}{there}?"


def _describe_served_clients(one: InstanceView, now: ActionContext) -> tuple[Sentence, ...]:
    """Return the requests that would be cut off; a rank without requests of its own adds nothing."""
    there = f"{one.name} on {one.node}"
    if is_instance_serving(one, now) is None:
        return ((f"Whether {there} is answering somebody right now is not known.", SentenceTone.ATTENTION),)
    count = round(one.numbers.running) if one.numbers and one.numbers.running else 0
    if not count and count_ranks(one) > 1:
        return ()
    requests = "a request" if count <= 1 else f"{count} requests"
    return ((f"{there} is answering {requests} right now.", SentenceTone.ATTENTION),)


def _describe_other_ranks(stopped: Sequence[InstanceView], now: ActionContext) -> tuple[Sentence, ...]:
    """Return what happens to the other ranks of each model on several nodes."""
    sentences: list[Sentence] = []
    for name, one in {one.name: one for one in stopped if count_ranks(one) > 1}.items():
        on, seen = {each.node for each in stopped if each.name == name}, list_nodes_of_instance(one, now.views)
        left = [node for node in seen if node not in on]
        if left:
            where = " and ".join(left)
            sentences.append((f"Its part on {where} stays, but cannot answer without this one.", SentenceTone.BAD))
        elif len(seen) < count_ranks(one):
            what = f"It is one of {count_ranks(one)} parts; the others are not visible and not stopped by this."
            sentences.append((what, SentenceTone.ATTENTION))
        else:
            what = f"It is one model on {len(seen)} Sparks: its parts stop together."
            sentences.append((what, SentenceTone.PLAIN))
    return tuple(sentences)


def _describe_freed_nodes(
    target: StopTarget, stopped: Sequence[InstanceView], now: ActionContext
) -> tuple[Sentence, ...]:
    """Return what stops, on which nodes, and which foreign containers are left alone."""
    sentences: list[Sentence] = []
    for name in dict.fromkeys(one.name for one in stopped):
        where = list(dict.fromkeys(one.node for one in stopped if one.name == name))
        others = [node for node in where if node not in target.nodes]
        apart = ": one model, so its other part stops too" if others else ""
        tone = SentenceTone.ATTENTION if others else SentenceTone.PLAIN
        sentences.append((f"{name} stops on {' and '.join(where)}{apart}.", tone))
    if not stopped:
        sentences.append(("No instance started by sparkctl is known to run there.", SentenceTone.PLAIN))
    there = [one for view in now.views if view.name in target.nodes for one in view.instances if one.is_alive]
    if foreign := [f"{one.name} on {one.node}" for one in there if not one.ours]:
        sentences.append((f"Not started by sparkctl, left alone: {', '.join(foreign)}.", SentenceTone.LABEL))
    return tuple(sentences)
