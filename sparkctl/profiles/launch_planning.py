"""Build a `LaunchPlan` from a profile and a node. Pure, except that it reads the profile's ``env_file``."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, replace

from sparkctl import __version__
from sparkctl.engines import engine_flags, load_engine
from sparkctl.engines.base import Engine, EngineRank
from sparkctl.errors import InvalidInput
from sparkctl.model.launch_plan import ContainerLabel, GuardRule, LaunchPlan, Mount, ReadinessRule, resolve_node_port
from sparkctl.model.lazy_dataclass import dataclass
from sparkctl.model.node import Node, NodeName
from sparkctl.model.profile import Profile
from sparkctl.model.reference import format_reference_label, select_comparable
from sparkctl.profiles import container_labels
from sparkctl.profiles.container_labels import is_api_key_variable
from sparkctl.profiles.env_references import find_engine_secrets, resolve_engine_args, resolve_engine_env
from sparkctl.profiles.yaml_reader import quote_source

_INFINIBAND_DEVICE = "/dev/infiniband"
_KEY_AT_START = "generated-at-the-start"
EXPLICIT_NONE = "none"  # a profile writes this to turn the engine's own default off


@dataclass(frozen=True, slots=True, kw_only=True)
class RankPlacement:
    """The place of one rank. ``env``: the network settings of its libraries; ``has_devices``: its container can be
    given RDMA devices.

    ``nodes``: the nodes of all ranks, the head first; ``run``: the id of this start.
    """

    rank: EngineRank
    nodes: tuple[NodeName, ...]
    run: str
    env: tuple[tuple[str, str], ...] = ()
    has_devices: bool = False


class DefaultingEnviron(dict[str, str]):
    """The operator's environment; missing variables are empty, because nothing is started with it."""

    def __contains__(self, name: object) -> bool:
        return True

    def get(self, name: str, default: object = None) -> str:
        """Return a variable's value."""
        return super().get(name, "")

    def __missing__(self, name: str) -> str:
        return ""


def build_launch_plan(
    profile: Profile,
    node: Node,
    *,
    home: str,
    operator: str,
    environ: Mapping[str, str],
    place: RankPlacement | None = None,
    generated_key: str | None = None,
) -> LaunchPlan:
    """Return the launch plan of ``profile`` on ``node``; with ``place`` that of one rank of several.

    ``home``: the node user's home; ``operator``: who starts it (for the label); ``environ``: the operator's
    environment; ``generated_key``: for ``api_key: generate``, None where nothing is started.

    Raises `InvalidInput` for an unset ``${VAR}``, an unreadable env_file, or a mount that is not valid on the node.
    """
    box, rules, engine = profile.container, profile.start, load_engine(profile.engine)
    instance = profile.name
    port = profile.port or engine.defaults.port
    env = resolve_engine_env(profile, environ)
    if profile.api_key is not None:
        env = (*env, (engine.api_key_variables[0], generated_key or _KEY_AT_START))
    secrets = find_engine_secrets(profile, environ)
    profile = replace(profile, args=resolve_engine_args(profile, environ))
    ready = build_readiness_rule(profile, engine)
    network = box.network or choose_default_network(port, box.options)
    command = engine.build_command(profile)
    step = container_labels.format_decode_step_label(
        container_labels.build_decode_step_spec(profile.model, engine.read_decoding_settings(command))
    )
    made = LaunchPlan(
        node=node.name, instance=instance, profile=profile.name, profile_hash=profile.digest, engine=profile.engine,
        container_name=choose_container_name(profile), image=profile.image, entrypoint=box.entrypoint, command=command, env=env,
        mounts=tuple(resolve_mount(text, home) for text in profile.mounts), gpus=choose_or_default(box.gpus, engine.defaults.gpus),
        shm_size=box.shm_size, ipc=box.ipc, network=network, ulimits=box.ulimits, devices=box.devices, options=box.options,
        labels=_build_labels(profile, instance, operator, resolve_node_port(port, network, box.options), ready, step),
        port=port, served_model=profile.model.served_name or profile.model.path,
        api_key=engine.find_api_key(profile) or next((value for name, value in env if is_api_key_variable(name)), None),
        ready=ready, timeouts=rules.timeouts, drop_caches=rules.drop_caches, stop_grace=profile.stop_grace,
        expected_memory=profile.expected_memory, floor_memory=profile.floor_memory, guard=build_guard_rule(profile),
        secrets=secrets, requires_key=ready.requires_key, engine_version=profile.engine_version,
    )  # fmt: skip
    return made if place is None else _apply_rank_placement(made, place, engine, home)


def _apply_rank_placement(made: LaunchPlan, place: RankPlacement, engine: Engine, home: str) -> LaunchPlan:
    """Return the launch plan of one rank. Settings of the profile override those derived from the network route.

    A worker answers no clients: it has no port and is ready while its process lives. The head decides for the model.
    """
    if made.network not in (None, "host"):
        raise InvalidInput(
            f"container.network is {made.network}, but the ranks of a model connect over the Sparks' own addresses",
            "set container.network: host, or leave it out",
        )
    engine_flags.reject_shell_script((made.entrypoint or "", *made.command))
    rank, own = place.rank, {name for name, _ in made.env}
    devices = (_INFINIBAND_DEVICE,) if place.has_devices and _INFINIBAND_DEVICE not in made.devices else ()
    memlock = () if any(name == "memlock" for name, _ in made.ulimits) else (("memlock", "-1"),)
    placed = replace(
        made,
        command=engine.build_rank_command(made.command, rank),
        env=(*((name, value) for name, value in place.env if name not in own), *made.env),
        mounts=(*made.mounts, *(resolve_mount(text, home) for text in engine.list_ssh_key_mounts(rank))),
        devices=(*made.devices, *devices),
        ulimits=(*made.ulimits, *memlock),
        ipc=made.ipc or "host",
        network="host",
        rank=rank.index,
        ranks=rank.count,
        labels=(
            *made.labels,
            (ContainerLabel.RANK, f"{rank.index}/{rank.count}"),
            (ContainerLabel.NODES, ",".join(place.nodes)),
            (ContainerLabel.RUN, place.run),
        ),
    )
    if rank.is_head:
        return placed
    silent = ReadinessRule(line=None, health=None, probe="none")
    labels = tuple(
        (name, _encode_readiness_rule(silent) if name == ContainerLabel.READY else value)
        for name, value in placed.labels
    )
    return replace(
        placed,
        port=None,
        ready=silent,
        labels=tuple(pair for pair in labels if pair[0] not in (ContainerLabel.PORT, ContainerLabel.LIVENESS)),
    )


def choose_container_name(profile: Profile) -> str:
    """Return the container's name: ``<engine>-<profile>`` unless the profile sets it."""
    return profile.container.name or f"{profile.engine}-{profile.name}"


def build_readiness_rule(profile: Profile, engine: Engine) -> ReadinessRule:
    """Return when this profile counts as ready: the engine's rule, overridden by the profile."""
    rules, own = profile.start, engine.defaults
    prompt = {} if rules.prompt is None else {"prompt": rules.prompt}
    return ReadinessRule(
        line=choose_or_default(rules.ready_line, own.ready_line),
        health=choose_or_default(rules.health, own.health),
        probe=rules.probe or own.probe,
        requires_key=profile.api_key is not None,
        **prompt,
    )


def build_guard_rule(profile: Profile) -> GuardRule | None:
    """Return how the guard acts in this start, None if it is off; without the profile's page cache drop it drops none either."""
    rules = profile.start
    if rules.guard is None:
        return None
    limits = rules.timeouts
    phases = limits.creating + limits.starting + limits.loading + limits.warming
    cache = rules.guard.cache_below if rules.drop_caches or rules.guard.cache_below is not None else 0
    return replace(rules.guard, cache_below=cache, limit=rules.guard.limit or phases)


def resolve_mount(text: str, home: str) -> Mount:
    """Return a profile's mount on a node where the user's home is ``home``."""
    source, target, *mode = text.split(":")
    if source == "~" or source.startswith("~/"):
        if not home.startswith("/"):
            raise InvalidInput(
                f"the home directory on the node is not known, but the mount {quote_source(text)} needs it"
            )
        source = home.rstrip("/") + source[1:] or "/"
    elif "/" in source and not source.startswith("/"):
        raise InvalidInput(f"mounts: {quote_source(text)}: the source is a path on the node: begin it with / or ~/")
    return Mount(source, target, read_only=mode == ["ro"])


def choose_default_network(port: int | None, options: tuple[tuple[str, str], ...]) -> str | None:
    """Return the host's network if no port is published, as in every recipe for Sparks, so that clients reach it."""
    published = any(name == "publish" for name, _ in options)
    return "host" if port is not None and not published else None


def choose_or_default(own: str | None, default: str | None) -> str | None:
    """Return the profile's choice, else the default; ``none`` counts as a choice."""
    chosen = default if own is None else own
    return None if chosen == EXPLICIT_NONE else chosen


def _build_labels(
    profile: Profile, instance: str, operator: str, port: int | None, ready: ReadinessRule, step: str | None
) -> tuple[tuple[str, str], ...]:
    labels = [
        (ContainerLabel.PROFILE, profile.name),
        (ContainerLabel.HASH, profile.digest),
        (ContainerLabel.INSTANCE, instance),
        (ContainerLabel.ENGINE, profile.engine),
        (ContainerLabel.OPERATOR, operator),
        (ContainerLabel.READY, _encode_readiness_rule(ready)),
        (ContainerLabel.GRACE, f"{profile.stop_grace:g}"),
        (ContainerLabel.VERSION, __version__),
    ]
    if profile.liveness is not None:
        labels.append((ContainerLabel.LIVENESS, profile.liveness))
    if profile.group is not None:
        labels.append((ContainerLabel.GROUP, profile.group))
    if port is not None:
        labels.insert(5, (ContainerLabel.PORT, str(port)))
    if profile.expected_memory is not None:
        labels.append((ContainerLabel.EXPECTED, str(profile.expected_memory)))
    if step is not None:
        labels.append((ContainerLabel.PER_STEP, step))
    if (comparable := select_comparable(profile.reference)) is not None:
        labels.append((ContainerLabel.REFERENCE, format_reference_label(comparable)))
    return tuple(labels)


def _encode_readiness_rule(ready: ReadinessRule) -> str:
    known = {name: value for name, value in asdict(ready).items() if name != "requires_key" or value}
    return json.dumps(known, ensure_ascii=False, separators=(",", ":"))
