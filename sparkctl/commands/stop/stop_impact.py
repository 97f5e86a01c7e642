"""Which instances a command line would stop, and which of them are or may be answering requests. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from sparkctl.model.engine_metrics import EngineActivity
from sparkctl.model.node import NodeName, NodeState
from sparkctl.model.phase import Phase
from sparkctl.monitor.ranks import find_ranks

if TYPE_CHECKING:  # loaded only for type checks: a key is looked up without them
    from sparkctl.commands.action_context import ActionContext
    from sparkctl.model.instance import InstanceView

_NODE_OPTIONS = ("--node", "-n")
OPTIONS_WITH_VALUES = (*_NODE_OPTIONS, "--grace", "--timeout", "--set", "--record", "--format")
_POSSIBLY_SERVING_PHASES = (Phase.READY, Phase.UNKNOWN, None)


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


def find_interrupted_instances(now: ActionContext, words: Sequence[str]) -> tuple[InstanceView, ...]:
    """Return the instances that a ``down``, a ``free`` or an ``up --replace`` would stop while they answer, or may
    answer.

    The last figures decide; they are up to a few seconds old. An ``up`` of a file replaces the instance with the
    file's name.
    """
    if not _ends_something(words):
        return ()
    return tuple(one for one in find_stopped_instances(now, words) if is_instance_serving(one, now) is not False)


def find_stopped_instances(now: ActionContext, words: Sequence[str]) -> tuple[InstanceView, ...]:
    """Return the known instances that a ``down``, a ``free`` or an ``up --replace`` would stop."""
    return tuple(one for one in find_target_instances(now, words) if one.is_alive)


def find_target_instances(now: ActionContext, words: Sequence[str]) -> tuple[InstanceView, ...]:
    """Return sparkctl's instances that a ``down``, a ``free`` or an ``up --replace`` names, ended ones included; of a
    model with a rank on a freed Spark, all ranks.
    """
    named, nodes = parse_targets(words)
    if words[0] == "free":
        there = [one for view in now.views for one in view.instances]
        mine = [one for one in there if one.ours and one.node in nodes]
        parts = [each for one in mine for each in find_ranks(one, there)]
        return (*mine, *(each for at, each in enumerate(parts) if each not in mine and each not in parts[:at]))
    of_files = (name.rpartition("/")[2].removesuffix(".yaml").removesuffix(".yml") for name in named)
    names = {*named, *of_files}  # a label may have any instance name
    everything = words[0] == "down" and "--all" in words
    return tuple(
        one
        for view in now.views
        if not nodes or view.name in nodes
        for one in view.instances
        if one.ours and (everything or one.name in names)
    )


def find_unlisted_nodes(now: ActionContext, words: Sequence[str]) -> tuple[NodeName, ...]:
    """Return the target Sparks of a ``down``, a ``free`` or an ``up --replace`` whose containers are not known yet."""
    if not _ends_something(words):
        return ()
    _, nodes = parse_targets(words)
    looked_at = {
        view.name
        for view in now.views
        if view.instances_seen is not None or view.state not in (NodeState.OK, NodeState.UNKNOWN)
    }
    return tuple(name for name in now.names if (not nodes or name in nodes) and name not in looked_at)


def _ends_something(words: Sequence[str]) -> bool:
    return bool(words) and (words[0] in ("down", "free") or (words[0] == "up" and "--replace" in words))


def parse_targets(words: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return the names and nodes of a command line that starts with its command; the arguments of ``free`` are
    nodes.
    """
    names, nodes = parse_names_and_nodes(words[1:])
    return ([], names) if words[:1] and words[0] == "free" else (names, nodes)


def parse_names_and_nodes(words: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return the names and nodes after a command, in their order."""
    names: list[str] = []
    nodes: list[str] = []
    rest = list(words)
    while rest:
        word, *rest = rest
        option, given, value = word.partition("=")
        if option in OPTIONS_WITH_VALUES:
            value = value if given else rest.pop(0) if rest else ""
            nodes += [value] if option in _NODE_OPTIONS else []
        elif not word.startswith("-"):
            names.append(word)
    return names, nodes
