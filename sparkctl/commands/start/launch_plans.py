"""Builds the launch plan of each rank from a first inspection of its node: where files are, and how the Sparks reach each other.

An API key that sparkctl generates is in a file of its own for each instance, which only its owner reads (0600).
"""

from __future__ import annotations

import os
import re
import secrets
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from pathlib import Path

from sparkctl.commands.start.start_preflight import refuse_without_docker
from sparkctl.commands.start.start_request import StartInstance
from sparkctl.concurrency import gather_or_cancel
from sparkctl.context import CommandContext
from sparkctl.engines.base import EngineRank
from sparkctl.errors import InvalidInput
from sparkctl.files import plain_file_name, read_regular_file, safe_file_name
from sparkctl.model.container import Container
from sparkctl.model.fabric_route import FabricRoute, NodeLanes
from sparkctl.model.json_codec import redact_launch_plan
from sparkctl.model.launch_plan import ContainerLabel, DockerRunSpec, LaunchPlan, PhaseTimeouts, ReadinessRule
from sparkctl.model.lazy_dataclass import dataclass
from sparkctl.model.node import Node, NodeName
from sparkctl.model.profile import Profile
from sparkctl.monitor.find_fabric_route import build_nccl_environment, find_fabric_route
from sparkctl.node.node_inspection import LaneReadings
from sparkctl.profiles.container_labels import (
    parse_expected_memory_label,
    parse_port_label,
    parse_ready_rule_label,
    parse_stop_grace_label,
)
from sparkctl.profiles.launch_planning import RankPlacement, build_launch_plan
from sparkctl.transport.node_session import NodeSession, isolate_node_failures

_START_ID_LENGTH = 12


@dataclass(frozen=True, slots=True)
class RankLaunch:
    """``plan``: what Docker gets. ``alone``: the same without other ranks, in the engine's own arguments; the memory
    estimate uses it.
    """

    plan: LaunchPlan
    alone: LaunchPlan


async def build_rank_launches(
    ctx: CommandContext, request: StartInstance, sessions: Sequence[NodeSession]
) -> tuple[tuple[RankLaunch, ...], FabricRoute | None]:
    """Inspect the nodes of a start in parallel; return the launch on each, and the link between them where there are
    several.

    Raises `NodeError`, and `OperationRefused` where no link joins the nodes.
    """
    found = await gather_or_cancel(*(_read_lanes(session, len(sessions) > 1) for session in sessions))
    route = None if len(sessions) == 1 else _find_route(request.nodes, found)
    alone = [_build_plan(ctx, request, session) for session in sessions]
    if route is None:
        return tuple(RankLaunch(one, one) for one in alone), None
    addresses, run = tuple(end.address for end in route.ends), uuid.uuid4().hex[:_START_ID_LENGTH]
    places = [
        RankPlacement(
            rank=EngineRank(index, addresses),
            nodes=tuple(one.name for one in request.nodes),
            run=run,
            env=build_nccl_environment(route, node.name),
            has_devices=lanes is not None and lanes.has_devices,
        )
        for index, (node, lanes) in enumerate(zip(request.nodes, found, strict=True))
    ]
    placed = [_build_plan(ctx, request, session, at) for session, at in zip(sessions, places, strict=True)]
    return tuple(map(RankLaunch, placed, alone)), route


async def _read_lanes(session: NodeSession, is_of_several: bool) -> LaneReadings | None:
    """Read the home of the session's user; return the node's lanes where they are needed."""
    with isolate_node_failures(session.node):
        await session.link.connect()
        return await _look_for_lanes(session, is_of_several)


async def _look_for_lanes(session: NodeSession, is_of_several: bool) -> LaneReadings | None:
    sections = [*(["identity", "docker"] if session.home is None else []), *(["fabric"] if is_of_several else [])]
    if not sections:
        return None
    inspection = await session.read_node(*sections)
    refuse_without_docker(session.node.name, inspection)
    return inspection.lanes


def _find_route(nodes: Sequence[Node], found: Sequence[LaneReadings | None]) -> FabricRoute:
    lanes = [
        NodeLanes(node.name, each.lanes if each else (), each is not None and each.has_devices)
        for node, each in zip(nodes, found, strict=True)
    ]
    return find_fabric_route(lanes, {node.name: node.fabric for node in nodes if node.fabric is not None})


def _build_plan(
    ctx: CommandContext, request: StartInstance, session: NodeSession, place: RankPlacement | None = None
) -> LaunchPlan:
    key, head = None, request.head_node.name
    if request.profile.api_key is not None:
        get_key = read_api_key if request.dry_run else ensure_api_key
        key = get_key(ctx.history.directory, request.profile.name, head)
    plan = build_launch_plan(
        request.profile,
        session.node,
        home=session.user_home,
        operator=ctx.operator,
        environ=request.environ,
        place=place,
        generated_key=key,
    )
    plan = replace(plan, labels=(*plan.labels, *request.labels))
    return plan if request.guarded else replace(plan, guard=None)


def build_changed_plan(
    ctx: CommandContext, request: StartInstance, session: NodeSession, profile: Profile
) -> LaunchPlan:
    """Return the launch of a changed profile as the model of this node alone; the memory estimate uses it."""
    return _build_plan(ctx, replace(request, profile=profile), session)


async def read_node_home(ctx: CommandContext, node: Node) -> str:
    """Return the home of the node's user, ``~`` where the node does not say. Raises `NodeError`."""
    async with ctx.create_session(node) as session:
        await session.link.connect()
        await session.read_node("identity")
    return session.user_home


def build_preview_plan(
    ctx: CommandContext, profile: Profile, node: Node, home: str, environ: Mapping[str, str]
) -> LaunchPlan:
    """Build the launch that `up` would make of a profile. Raises `InvalidInput` where the profile is wrong."""
    return build_launch_plan(profile, node, home=home, operator=ctx.operator, environ=environ)


_UNSET_VARIABLE_PATTERN = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\} is not set")
_UNKNOWN_HOME = "/~"  # stands for an unknown home: no path begins like that
_ANY_NODE_NAME = NodeName("spark")


@dataclass(frozen=True, slots=True)
class LaunchPreview:
    """The launch as far as it is known: None where it cannot be built; ``refusal`` is why `up` would refuse it."""

    plan: LaunchPlan | None
    refusal: InvalidInput | None


def preview_launch(
    ctx: CommandContext, profile: Profile, node: Node | None, home: str | None, environ: Mapping[str, str]
) -> LaunchPreview:
    """Return the launch of a profile, also without a node: an unknown ``home`` stays ``~``, and an unset variable
    stays as written.
    """
    where = node or Node(name=_ANY_NODE_NAME, host=str(_ANY_NODE_NAME))
    refusal = None
    try:
        made = build_preview_plan(ctx, profile, where, home or _UNKNOWN_HOME, environ)
    except InvalidInput as error:
        refusal = error
        unset = {name: f"${{{name}}}" for name in _UNSET_VARIABLE_PATTERN.findall(error.message)}
        try:
            made = build_preview_plan(ctx, profile, where, home or _UNKNOWN_HOME, {**environ, **unset})
        except InvalidInput:
            return LaunchPreview(None, refusal)
    mounts = tuple(
        replace(one, source=one.source[1:]) if one.source.startswith(_UNKNOWN_HOME) else one for one in made.mounts
    )
    return LaunchPreview(replace(made, mounts=mounts), refusal)


@dataclass(frozen=True, slots=True)
class ContainerLaunch:
    """A launch plan read back from a container, with secrets masked, so that it may be shown.

    Only the ``docker run`` line and the values in labels are known: ``ready`` is None without its label.
    """

    plan: LaunchPlan
    ready: ReadinessRule | None


async def read_container_launch(ctx: CommandContext, node: Node, container_id: str) -> ContainerLaunch:
    """Read how a container was started. Raises `NodeError` and `DockerError` (`ContainerNotFound` among them)."""
    async with ctx.create_session(node) as session:
        await session.link.connect()
        container = await session.docker.inspect_container(container_id)
        return rebuild_launch_plan(node, container, await session.docker.read_run_options(container_id))


def rebuild_launch_plan(node: Node, container: Container, run: DockerRunSpec) -> ContainerLaunch:
    """Return the plan that a container was created from. Pure."""
    ready = parse_ready_rule_label(container)
    same = {one.name: getattr(run, one.name) for one in fields(DockerRunSpec) if one.name != "name"}
    plan = LaunchPlan(
        node=node.name,
        instance=container.instance_name,
        profile=container.get_label(ContainerLabel.PROFILE) or "",
        profile_hash=container.get_label(ContainerLabel.HASH) or "",
        engine=container.get_label(ContainerLabel.ENGINE) or "",
        container_name=run.name,
        port=parse_port_label(container),
        served_model=None,
        api_key=None,
        ready=ready or ReadinessRule(line=None, health=None, probe="none"),
        timeouts=PhaseTimeouts(),
        drop_caches=True,  # unless the profile says no, which no label tells
        stop_grace=parse_stop_grace_label(container) or 0.0,
        expected_memory=parse_expected_memory_label(container),
        floor_memory=None,
        **same,
    )
    return ContainerLaunch(redact_launch_plan(plan), ready)


_KEY_BYTES = 32
_MAX_FILE_BYTES = 4096


def get_api_key_path(directory: Path, instance: str, node: str) -> Path:
    """Return where the key of an instance is kept, below the state directory."""
    keys = directory / "keys"
    earlier = keys / plain_file_name(node) / plain_file_name(instance)  # as an earlier version named it
    path = keys / safe_file_name(node) / safe_file_name(instance)
    return earlier if earlier.exists() and not path.exists() else path


def read_api_key(directory: Path, instance: str, node: str) -> str | None:
    """Return the key of an instance, None where none was made. Raises `InvalidInput` for a file that cannot be used."""
    path = get_api_key_path(directory, instance, node)
    try:
        text = read_regular_file(path, _MAX_FILE_BYTES).decode("ascii").strip()
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise InvalidInput(f"{path}: the API key cannot be read: {error}", f"for a new one: rm {path}") from error
    if len(text) < _KEY_BYTES or not text.isprintable() or " " in text:
        raise InvalidInput(f"{path}: this is no API key", f"for a new one: rm {path}")
    return text


def ensure_api_key(directory: Path, instance: str, node: str) -> str:
    """Return the key of an instance; make it where there is none. Raises `InvalidInput` where it cannot be kept."""
    path = get_api_key_path(directory, instance, node)
    if (known := read_api_key(directory, instance, node)) is not None:
        return known
    made, fresh = f"sk-{secrets.token_urlsafe(_KEY_BYTES)}", path.with_name(f".{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        file = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            with os.fdopen(file, "w", encoding="ascii") as out:
                out.write(f"{made}\n")
            path.hardlink_to(fresh)  # of two at once the first one's counts
        finally:
            fresh.unlink()
    except FileExistsError:
        return read_api_key(directory, instance, node) or made
    except OSError as error:
        raise InvalidInput(f"{path}: the API key cannot be kept: {error.strerror}") from error
    return made
