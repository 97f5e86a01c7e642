"""From a launch and what was found of its model on the node to what the rules are asked about. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence

from sparkctl.core.fit.claim import Subject, Workspace
from sparkctl.core.fit.kv import layout
from sparkctl.core.fit.weights import Weighed, place, weigh
from sparkctl.core.fit.words import Words
from sparkctl.model.checkpoint import Checkpoint
from sparkctl.model.flags import version_key
from sparkctl.model.plan import LaunchPlan
from sparkctl.model.profile import Profile

_VERSION = re.compile(r"(?<![\d.])(\d+\.\d+(?:\.\d+)?)")
_WITH_MODELS = ("sglang", "vllm", "llamacpp", "trtllm")


def models(profile: Profile, plan: LaunchPlan) -> tuple[str | None, str | None]:
    """Return the model and the draft model that a launch names, as paths in the container or hub ids."""
    if profile.engine not in _WITH_MODELS:
        return None, None
    words = Words(plan.command)
    named = words.text("model-path", "model", "m") or words.served() or profile.model.path
    draft = words.text("speculative-draft-model-path", "speculative-draft-model", "model-draft", "md", "spec-model")
    more = words.map("speculative-config", "sc").get("model")
    return named or None, draft or (more if isinstance(more, str) else None)


def places(profile: Profile, plan: LaunchPlan) -> tuple[str, ...]:
    """Return where on the node its files should lie, as far as the mounts tell."""
    found = (place(one, plan) for one in models(profile, plan))
    return tuple(dict.fromkeys(one for one in found if one is not None))


def absent(profile: Profile, plan: LaunchPlan, found: Sequence[Checkpoint]) -> str | None:
    """Return where the model should lie on the node, if it was looked for there and no weights are there.

    Of a model by its name on the hub this is not said: the engine fetches what is not there.
    """
    named = models(profile, plan)[0] or ""
    where = place(named, plan) if named.startswith("/") else None
    return where if any(one.place == where and one.is_there is not None and not one.files for one in found) else None


def subject(
    profile: Profile, plan: LaunchPlan, found: Sequence[Checkpoint], workspace: Workspace = Workspace.UNKNOWN
) -> Subject:
    """Return what the rules need. ``found``: what lies in `places` on the node."""
    by_place = {one.place: one for one in found}
    main, draft = models(profile, plan)
    own = by_place.get(place(main, plan) or "")
    is_asked = draft is not None and draft != main
    drafts = by_place.get(place(draft, plan) or "") if is_asked else None
    told = profile.model
    return Subject(
        engine=profile.engine,
        words=Words(plan.command),
        weights=weigh(own, told.weights),
        draft=_draft(drafts, told.draft_weights) if is_asked else None,
        layout=layout(own.config) if own is not None else None,
        per_token=told.kv_per_token,
        version=version(profile),
        ranks=ranks(profile, Words(plan.command)),
        expected=profile.expected_memory,
        workspace=Workspace.TAKEN if profile.draft_workspace is not None else workspace,
        cpu_cache=None if plan.gpus else dict(plan.env).get("VLLM_CPU_KVCACHE_SPACE"),
    )


_TENSOR = ("tensor-parallel-size", "tp", "tp-size")
_PIPELINE = ("pipeline-parallel-size", "pp", "pp-size")


def ranks(profile: Profile, words: Words) -> int:
    """Return among how many Sparks, of a GPU each, the weights are divided: what the flags say, else the profile's nodes."""
    tensor, pipeline = words.count(*_TENSOR), words.count(*_PIPELINE)
    if tensor is None and pipeline is None:
        return profile.nodes
    return max(1, tensor or 1) * max(1, pipeline or 1)


def sparks(profile: Profile, plan: LaunchPlan) -> int:
    """Return how many Sparks a launch is for."""
    return max(profile.nodes, ranks(profile, Words(plan.command))) if profile.engine in _WITH_MODELS else profile.nodes


def _draft(found: Checkpoint | None, told: int | None) -> Weighed:
    return weigh(found, told, "model.draft_weights")


def version(profile: Profile) -> tuple[int, ...]:
    """Return the engine's version as the profile or the image's tag has it, an empty one where neither does."""
    if profile.engine_version:
        return version_key(profile.engine_version)
    _, colon, tag = profile.image.partition("@")[0].rpartition("/")[2].partition(":")
    found = _VERSION.findall(tag) if colon else []
    return version_key(max(found, key=lambda one: one.count("."))) if found else ()
