"""What a node lacks of a profile's image and model files. Pure, but for `read_missing_parts`."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from sparkctl.commands.start.start_preflight import format_pull_hint
from sparkctl.concurrency import gather_or_cancel
from sparkctl.context import CommandContext
from sparkctl.engines.memory.model_weights import map_path_to_node
from sparkctl.model.events import PartsMissing
from sparkctl.model.launch_plan import LaunchPlan
from sparkctl.model.memory_fit import CheckpointFiles
from sparkctl.model.missing_part import MissingPart, PartKind
from sparkctl.model.node import NodeName
from sparkctl.model.profile import Profile
from sparkctl.model.text.secrets import redact_words
from sparkctl.model.text.units import format_gib
from sparkctl.profiles.fit_evaluation import find_model_paths, list_checkpoint_paths
from sparkctl.transport.docker.docker_responses import DockerInfo, ImageInfo
from sparkctl.transport.node_session import NodeSession


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
        found.append(MissingPart(kind=PartKind.IMAGE, node=plan.node, name=plan.image, reason=why, source=plan.image))
    by_place = {one.place: one for one in models}
    paths = find_model_paths(profile, plan)
    sources = (profile.model.source, profile.model.draft_source)
    for kind, path, source in zip((PartKind.MODEL, PartKind.DRAFT_MODEL), paths, sources, strict=True):
        place = map_path_to_node(path, plan)
        if (
            path is None
            or place is None
            or place not in by_place
            or (kind is PartKind.DRAFT_MODEL and path == paths[0])
        ):
            continue
        is_hub_id = not path.startswith("/")
        why = _explain_missing_files(by_place[place])
        if why is not None:
            found.append(
                MissingPart(
                    kind=kind, node=plan.node, name=place, reason=why,
                    source=source or (f"hf:{path}" if is_hub_id else None), is_required=not is_hub_id,
                )
            )  # fmt: skip
    return tuple(found)


def _explain_missing_image(image: ImageInfo | None, engine: DockerInfo) -> str | None:
    if image is None:
        return "is not there"
    return f"is for {image.architecture}, and the node is {engine.machine}" if engine.is_wrong_for(image) else None


def _explain_missing_files(files: CheckpointFiles) -> str | None:
    if files.is_there is False:
        return "is not there"
    if files.is_there is None:
        return None
    if files.unfinished:
        return f"is not whole ({files.unfinished} files are only begun)"
    if not files.files:
        return "has no weights"
    size = sum(size for name, size in files.files if name.endswith(".safetensors"))
    if files.index_total is not None and size < files.index_total:
        return f"is not whole ({format_gib(size)} of {format_gib(files.index_total)})"
    return None


def describe_way_to_get(part: MissingPart, plan: LaunchPlan, again: str) -> str:
    """Return what to do about a part that a start requires. ``again``: the command that repeats the start."""
    if part.source is not None:
        return format_pull_hint(plan, again)
    return f"put it there, or set model.source in the profile for `sparkctl pull`; start it anyway: {again} --force"


def build_missing_event(
    ctx: CommandContext, words: Sequence[str], node: NodeName, parts: Sequence[MissingPart]
) -> PartsMissing:
    """Return the event that says what is missing, with the command that gets it, if `pull` can. ``words``: the profile
    and its overrides, as typed.
    """
    profile, *settings = redact_words(words)
    command = shlex.join(["sparkctl", "pull", profile, "--node", node, *settings])
    return PartsMissing(
        ctx.clock.unix_time(), node, profile, tuple(parts), (command,) if all(part.source for part in parts) else ()
    )


async def read_missing_parts(session: NodeSession, profile: Profile, plan: LaunchPlan) -> tuple[MissingPart, ...]:
    """Inspect one node. Raises `NodeError`, `DockerError`."""
    look, image, engine = await gather_or_cancel(
        session.read_node("identity", *(f"model={place}" for place in list_checkpoint_paths(profile, plan))),
        session.docker.inspect_image(plan.image),
        session.docker.read_info(),
    )
    return find_missing_parts(profile, plan, image=image, engine=engine, models=look.models)
