"""What is decided of the ranks of one model together, before anything is changed. Pure."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from itertools import pairwise

from sparkctl.commands.start.start_preflight import PreflightInspection
from sparkctl.errors import ImageNotFound, InvalidInput, OperationRefused
from sparkctl.model.container import Container
from sparkctl.model.container_labels import parse_rank_nodes_label, parse_start_id_label
from sparkctl.model.launch_plan import ContainerLabel, LaunchPlan
from sparkctl.model.node import Node, NodeName
from sparkctl.model.profile import Profile
from sparkctl.model.secrets import redact_words


def assign_nodes_to_ranks(profile: Profile, named: Sequence[Node], configured: Sequence[Node]) -> tuple[Node, ...]:
    """Return the nodes of a profile for several in the order of their ranks: those that were named, else all there are.

    Raises `InvalidInput` where these are not exactly as many as the profile is for.
    """
    chosen = tuple(named or configured)
    if len(chosen) == profile.nodes:
        return chosen
    some = [str(node.name) for node in configured][: profile.nodes]
    some += ["NODE"] * (profile.nodes - len(some))
    hint = f"the first one answers clients: {' '.join(f'--node {name}' for name in some)}"
    wanted = f"{profile.name} is for {profile.nodes} Sparks"
    if named:
        raise InvalidInput(f"{wanted}, and {_several(named)} named", hint)
    if len(chosen) < profile.nodes:
        raise InvalidInput(f"{wanted}, and {_several(chosen)} configured", f"add the others: sparkctl init; or {hint}")
    raise InvalidInput(f"{wanted}; which of the {len(chosen)} that are configured?", hint)


def _several(nodes: Sequence[Node]) -> str:
    return f"{len(nodes)} {'is' if len(nodes) == 1 else 'are'}"


def refuse_wrong_node_count(profile: Profile, nodes: Sequence[Node]) -> None:
    """Raise `InvalidInput` where these nodes are not as many as the profile is for."""
    if profile.nodes > 1:
        assign_nodes_to_ranks(profile, nodes, nodes)
    elif len(nodes) > 1:
        raise InvalidInput(
            f"{profile.name} is for one Spark, and {' and '.join(node.name for node in nodes)} are named",
            f"name one: --node {nodes[0].name}",
        )


def format_transfer_command(words: Sequence[str], source: str, target: str) -> str:
    """Return the command that brings what a start needs to another Spark. ``words``: the profile and its overrides, of which
    those count that say which image and which model."""
    profile, *rest = words
    pairs = zip(rest[::2], rest[1::2], strict=False)
    told = [
        word for pair in pairs if pair[1].partition("=")[0].partition(".")[0] in ("image", "model") for word in pair
    ]
    return shlex.join(["sparkctl", "sync", profile, "--from", source, "--to", target, *redact_words(told)])


def refuse_different_images(
    words: Sequence[str], plans: Sequence[LaunchPlan], scenes: Sequence[PreflightInspection]
) -> None:
    """Raise where some nodes have the image and others do not, or another one under its name; of none at all `decide` tells.
    ``words`` as in `sync_command`."""
    if all(_running(plan, scene) is not None for plan, scene in zip(plans, scenes, strict=True)):
        return
    having = [(plan, scene.image) for plan, scene in zip(plans, scenes, strict=True) if scene.image is not None]
    if not having:
        return
    source, image = having[0]
    for plan, scene in zip(plans, scenes, strict=True):
        hint = format_transfer_command(words, source.node, plan.node)
        if scene.image is None:
            raise ImageNotFound(plan.node, f"{plan.node} does not have the image {plan.image}; {source.node} has", hint)
        if not scene.image.is_same_image(image):
            raise OperationRefused(
                f"{plan.image} is another image on {plan.node} ({_short(scene.image.id)}) than on {source.node} "
                f"({_short(image.id)}): the ranks of one model need the same",
                hint,
            )


def refuse_partially_running(plans: Sequence[LaunchPlan], scenes: Sequence[PreflightInspection]) -> None:
    """Raise `Refused` where this version of the model runs on some of its nodes only, or not as it was asked for."""
    found = [(plan, _running(plan, scene)) for plan, scene in zip(plans, scenes, strict=True)]
    there = [(plan, one) for plan, one in found if one is not None]
    if not there:
        return
    instance, down = plans[0].instance, f"sparkctl down {plans[0].instance}"
    if len(there) < len(plans):
        standing, missing = (
            _names([plan.node for plan, _ in there]),
            _names([plan.node for plan, one in found if not one]),
        )
        raise OperationRefused(
            f"half of {instance} runs: a rank of it is on {standing}, and none on {missing}",
            f"stop what is left of it: {down}; then start it anew",
        )
    if not all(_is_of_one_start(one, other) for (_, one), (_, other) in pairwise(there)):
        raise OperationRefused(f"the ranks of {instance} that run are of different starts", f"stop them: {down}")
    nodes = parse_rank_nodes_label(there[0][1])
    if nodes and nodes != tuple(plan.node for plan in plans):
        again = shlex.join(["sparkctl", "up", plans[0].profile, *(word for name in nodes for word in ("--node", name))])
        raise OperationRefused(
            f"{instance} already runs with its ranks in another order: {', '.join(nodes)}",
            f"watch that one: {again}; or stop it: {down}",
        )


def refuse_partial_stop(plans: Sequence[LaunchPlan], stops: Sequence[Container | None]) -> None:
    """Raise `Refused` where what would be stopped has ranks elsewhere, too: half of a model is never left behind."""
    own = {plan.node for plan in plans}
    for plan, one in zip(plans, stops, strict=True):
        elsewhere = [] if one is None else [name for name in parse_rank_nodes_label(one) if name not in own]
        if elsewhere:
            raise OperationRefused(
                f"the {plan.instance} that runs on {plan.node} has a rank on {_names(elsewhere)}, too",
                f"stop all of it first: sparkctl down {plan.instance}",
            )


def _running(plan: LaunchPlan, scene: PreflightInspection) -> Container | None:
    """Return the container of this very version that runs there, None where none does."""
    return next(
        (
            one
            for one in scene.containers
            if one.is_alive
            and one.label(ContainerLabel.INSTANCE) == plan.instance
            and one.label(ContainerLabel.HASH) == plan.profile_hash
        ),
        None,
    )


def _is_of_one_start(one: Container, other: Container) -> bool:
    return parse_start_id_label(one) == parse_start_id_label(other) and one.label(ContainerLabel.NODES) == other.label(
        ContainerLabel.NODES
    )


def _short(image: str) -> str:
    return image.removeprefix("sha256:")[:12]


def _names(nodes: Sequence[NodeName]) -> str:
    return " and ".join(nodes)
