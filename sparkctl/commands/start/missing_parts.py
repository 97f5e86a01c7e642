"""What a node lacks of a profile's image and model files. Pure, but for `read_missing_parts`."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from sparkctl.commands.start.start_preflight import (
    check_mounts,
    format_making_hint,
    format_pull_hint,
    list_mount_sections,
)
from sparkctl.concurrency import gather_or_cancel
from sparkctl.context import CommandContext
from sparkctl.engines.memory_estimate import map_path_to_node
from sparkctl.errors import SparkctlError
from sparkctl.history.operation_history import OperationHistory
from sparkctl.model.events import PartsMissing
from sparkctl.model.launch_plan import LaunchPlan
from sparkctl.model.memory_fit import CheckpointFiles
from sparkctl.model.missing_part import MODEL_KINDS, SOURCE_FIELDS, HubSource, MissingPart, PartKind, parse_model_source
from sparkctl.model.node import NodeName
from sparkctl.model.profile import Profile
from sparkctl.model.text.secrets import redact_words
from sparkctl.model.text.units import format_gib
from sparkctl.node.node_inspection import NodeInspection
from sparkctl.profiles.fit_evaluation import find_model_paths, list_checkpoint_paths
from sparkctl.transport.docker.docker_responses import DockerInfo, ImageInfo
from sparkctl.transport.node_session import NodeSession

if TYPE_CHECKING:
    from sparkctl.transport.hub_client import HubClient


def find_missing_parts(
    profile: Profile,
    plan: LaunchPlan,
    *,
    image: ImageInfo | None,
    engine: DockerInfo,
    models: Sequence[CheckpointFiles],
) -> tuple[MissingPart, ...]:
    """Return what the node certainly lacks; what it cannot tell is not missing. ``models``: as inspected there."""
    found = []
    if (why := _explain_missing_image(image, engine)) is not None:
        found.append(build_missing_image(profile, plan, why))
    return (*found, *find_missing_models(profile, plan, models))


def find_missing_models(
    profile: Profile, plan: LaunchPlan, models: Sequence[CheckpointFiles]
) -> tuple[MissingPart, ...]:
    """Return the model, the draft model and the tokenizer that the node certainly does not have whole."""
    found = []
    by_place = {one.place: one for one in models}
    paths = find_model_paths(profile, plan)
    sources = (profile.model.source, profile.model.draft_source, profile.model.tokenizer_source)
    for kind, path, source in zip(MODEL_KINDS, paths, sources, strict=True):
        place = map_path_to_node(path, plan)
        if path is None or place is None or place not in by_place or path in paths[: MODEL_KINDS.index(kind)]:
            continue
        is_hub_id = not path.startswith("/")
        why = _explain_missing_files(by_place[place], kind)
        if why is not None:
            found.append(
                MissingPart(
                    kind=kind,
                    node=plan.node,
                    name=place,
                    reason=why,
                    source=source or (f"hf:{path}" if is_hub_id else None),
                    is_required=not is_hub_id,
                    made_by=None if source or is_hub_id else profile.made_by,
                )
            )
    return tuple(found)


def build_missing_image(profile: Profile, plan: LaunchPlan, why: str) -> MissingPart:
    """Return the missing image of a profile; ``why`` as `MissingPart.reason`."""
    made_by = profile.image_made_by
    return MissingPart(
        kind=PartKind.IMAGE, node=plan.node, name=plan.image, reason=why, is_built=profile.build is not None,
        source=profile.build or (plan.image if made_by is None else None), made_by=made_by,
    )  # fmt: skip


def mark_copied_images(
    missing: Mapping[NodeName, tuple[MissingPart, ...]],
) -> dict[NodeName, tuple[MissingPart, ...]]:
    """Return what the nodes of one start lack, with where an image is copied from that another of them has."""
    has = next(
        (node for node, parts in missing.items() if all(part.kind is not PartKind.IMAGE for part in parts)), None
    )
    return {
        node: tuple(replace(part, copied_from=has) if part.kind is PartKind.IMAGE else part for part in parts)
        for node, parts in missing.items()
    }


def _explain_missing_image(image: ImageInfo | None, engine: DockerInfo) -> str | None:
    if image is None:
        return "is not there"
    return f"is for {image.architecture}, and the node is {engine.machine}" if engine.is_wrong_for(image) else None


def _explain_missing_files(files: CheckpointFiles, kind: PartKind) -> str | None:
    if files.is_there is False:
        return "is not there"
    if files.is_there is None:
        return None
    if files.unfinished:
        return f"is incomplete ({files.unfinished} files are unfinished)"
    if kind is PartKind.TOKENIZER:
        return None
    if not files.files:
        return "has no weights"
    size = sum(size for name, size in files.files if name.endswith(".safetensors"))
    if files.index_total is not None and size < files.index_total:
        return f"is incomplete ({format_gib(size)} of {format_gib(files.index_total)})"
    return None


def describe_missing_mounts(profile: Profile, plan: LaunchPlan, inspection: NodeInspection) -> tuple[str, ...]:
    """Return what else its mounts name and the node does not have, as sentences: no pull gets it. Directories of its models
    are not among them.
    """
    places = list_checkpoint_paths(profile, plan)
    others = [
        one for one in plan.mounts if not any(f"{place}/".startswith(f"{one.source.rstrip('/')}/") for place in places)
    ]
    return tuple(one.message for one in check_mounts(replace(plan, mounts=tuple(others)), inspection) if one.is_missing)


def estimate_pull_times(history: OperationHistory, parts: Sequence[MissingPart]) -> tuple[MissingPart, ...]:
    """Return the parts with how long each takes to come at the rate of earlier pulls onto its node."""
    return tuple(
        part
        if part.size is None or part.is_built
        else replace(
            part, seconds=history.estimate_pull_seconds(part.node, part.size, is_image=part.kind is PartKind.IMAGE)
        )
        for part in parts
    )


_TOKENIZER_FILES = ("*.json", "*.jinja", "*.model", "*.txt", "*.tiktoken", "*.py")
_GGUF_NUMBER = re.compile(r"-\d{5}-of-")


def list_wanted_names(profile: Profile, part: MissingPart) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return which files of its source a missing model is, and which are left out, as patterns; none to get: what an engine
    reads. The profile's are those of the model, not of its draft model. Of a tokenizer, whose repository may hold a model,
    those without weights.
    """
    if part.kind is PartKind.TOKENIZER:
        return _TOKENIZER_FILES, ("*/*", "*.index.json")
    include, exclude = (profile.model.include, profile.model.exclude) if part.kind is PartKind.MODEL else ((), ())
    if not include and part.name.endswith(".gguf"):
        include = (_GGUF_NUMBER.sub("-*-of-", PurePosixPath(part.name).name),)
    return include, exclude


async def read_missing_from_hub(
    client: HubClient, profile: Profile, parts: Sequence[MissingPart], models: Sequence[CheckpointFiles]
) -> tuple[tuple[MissingPart, ...], tuple[CheckpointFiles, ...], tuple[str, ...]]:
    """Return the parts with their sizes, the models with what the Hub has in place of what is missing, and sentences on
    what the Hub did not tell.
    """
    from sparkctl.transport.hub_client import HubUnreachable  # late: most starts ask no Hub

    found, by_place, cautions = [], {one.place: one for one in models}, []
    for part in parts:
        source = None if part.kind is PartKind.IMAGE or part.source is None else parse_model_source(part.source)
        if isinstance(source, HubSource):
            try:
                model = await client.read_model(source, *list_wanted_names(profile, part))
            except SparkctlError as error:
                way = f"; {error.hint}" if error.hint else ""
                if isinstance(error, HubUnreachable):  # else it certainly cannot come
                    part = estimate_size(profile, part)
                what = "estimated from model.weights of the profile" if part.is_estimate else "not known"
                cautions.append(f"the size of {part.source} is {what}: {error.message}{way}")
                found.append(part)
                continue
            by_place[part.name] = model.build_checkpoint(part.name)
            found.append(replace(part, size=model.size))
        else:
            found.append(estimate_size(profile, part))
    return tuple(found), tuple(by_place.values()), tuple(cautions)


def reuse_image_sizes(parts: Sequence[MissingPart], measured: Sequence[MissingPart]) -> tuple[MissingPart, ...]:
    """Return the parts, images with the sizes that were ``measured`` before: registries limit how often they are asked."""
    known = {(one.node, one.name): one for one in measured if one.kind is PartKind.IMAGE}
    return tuple(
        replace(part, size=one.size, unpacked=one.unpacked)
        if part.kind is PartKind.IMAGE and (one := known.get((part.node, part.name))) is not None
        else part
        for part in parts
    )


def estimate_size(profile: Profile, part: MissingPart) -> MissingPart:
    """Return a model whose source does not tell its size with that of its weights, where the profile has it."""
    weights = {PartKind.MODEL: profile.model.weights, PartKind.DRAFT_MODEL: profile.model.draft_weights}.get(part.kind)
    if part.size is not None or part.source is None or weights is None:
        return part
    return replace(part, size=weights, is_estimate=True)


async def measure_free_space(
    session: NodeSession, parts: Sequence[MissingPart], engine: DockerInfo
) -> tuple[MissingPart, ...]:
    """Return the parts with what is free on the disk where each goes, and what else goes there. Raises `NodeError`."""
    places = {part: _list_directories_above(part, engine) for part in parts}
    sections = dict.fromkeys(f"disk={place}" for above in places.values() for place in above)
    if not sections:
        return tuple(parts)
    disks = {disk.path: disk for disk in (await session.read_node(*sections)).disks if disk.free is not None}
    found = [(part, next((disks[place] for place in above if place in disks), None)) for part, above in places.items()]
    return tuple(
        part if disk is None else replace(
            part, free=disk.free, beside=sum(
                other.room or 0 for other, at in found
                if other is not part and at is not None and at.mount is not None and at.mount == disk.mount
            ),
        )
        for part, disk in found
    )  # fmt: skip


def describe_full_disk(part: MissingPart) -> str | None:
    """Return that the disk cannot hold a part; None where it can, or that is not known."""
    if not part.is_too_large:
        return None
    if part.kind is PartKind.IMAGE:
        return f"the disk of {part.node} may not hold {part.name}, unless many of its layers are there already"
    return f"the disk of {part.node} cannot hold {part.name}"


def _list_directories_above(part: MissingPart, engine: DockerInfo) -> tuple[str, ...]:
    """Return directories on the disk where a part goes, the nearest first: what is missing cannot be asked itself."""
    if part.kind is PartKind.IMAGE:
        return (engine.root_dir,) if engine.root_dir else ()
    return tuple(str(one) for one in PurePosixPath(part.name).parents[:6]) if part.name.startswith("/") else ()


def describe_way_to_get(part: MissingPart, plan: LaunchPlan, again: str) -> str:
    """Return what to do about a part that a start requires. ``again``: the command that repeats the start or switch."""
    if part.source is not None:
        return format_pull_hint(plan, again)
    if part.made_by is not None:
        return format_making_hint(part.made_by)
    way = f"put it there, or set {SOURCE_FIELDS.get(part.kind, 'image')} in the profile for `sparkctl pull`"
    if again.startswith("sparkctl up "):  # a switch has no such flag
        way += f"; start it anyway: {again} --force"
    return way


def build_missing_event(
    ctx: CommandContext,
    words: Sequence[str],
    node: NodeName,
    parts: Sequence[MissingPart],
    together: Sequence[NodeName] = (),
) -> PartsMissing:
    """Return the event that says what is missing, with the command that gets it, if `pull` can. ``words``: the profile
    and its overrides, as typed. ``together``: the nodes of that command, where there are several.
    """
    profile, *settings = redact_words(words)
    nodes = [word for each in together or (node,) for word in ("--node", each)]
    command = shlex.join(["sparkctl", "pull", profile, *nodes, *settings])
    return PartsMissing(
        ts=ctx.clock.unix_time(),
        node=node,
        instance=profile,
        parts=tuple(parts),
        commands=(command,) if all(part.can_come for part in parts) else (),
    )


async def read_missing_parts(
    session: NodeSession, profile: Profile, plan: LaunchPlan
) -> tuple[tuple[MissingPart, ...], DockerInfo, tuple[str, ...]]:
    """Inspect one node; return what it lacks, its Docker, and as sentences what it lacks that no pull gets. Raises `NodeError`,
    `DockerError`.
    """
    inspection, image, engine = await gather_or_cancel(
        session.read_node(
            "identity",
            *(f"model={place}" for place in list_checkpoint_paths(profile, plan)),
            *list_mount_sections(plan),
        ),
        session.docker.inspect_image(plan.image),
        session.docker.read_info(),
    )
    missing = find_missing_parts(profile, plan, image=image, engine=engine, models=inspection.models)
    return missing, engine, describe_missing_mounts(profile, plan, inspection)
