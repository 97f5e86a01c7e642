"""Estimate whether a model fits on a node: the input of the engines' memory rules, from a launch and from the model's
files, and their estimate against the memory budget of the node. Pure arithmetic.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import accumulate

from sparkctl.engines import load_engine
from sparkctl.engines.engine_flags import CommandFlags, parse_version
from sparkctl.engines.memory_estimate import (
    AvailableMemory,
    DraftWorkspace,
    EstimateInput,
    MemoryEstimate,
    MemoryRule,
    WeightsSize,
    map_path_to_node,
    measure_weights,
    parse_kv_layout,
)
from sparkctl.model.launch_plan import LaunchPlan
from sparkctl.model.memory_fit import (
    CheckpointFiles,
    EstimatePart,
    EstimateSource,
    FitOutcome,
    MeasuredPeak,
    MemoryBudget,
    MemoryFit,
    MemoryHolder,
)
from sparkctl.model.missing_part import MODEL_KINDS, PartKind
from sparkctl.model.node import NodeName
from sparkctl.model.profile import Profile
from sparkctl.model.text.units import format_gib
from sparkctl.model.verdict import FieldChange

_VERSION_PATTERN = re.compile(r"(?<![\d.])(\d+\.\d+(?:\.\d+)?)")


def has_model(profile: Profile) -> bool:
    """Tell whether its engine is one that serves a model by its own command."""
    return bool(load_engine(profile.engine).defaults.command)


def find_model_paths(profile: Profile, plan: LaunchPlan) -> tuple[str | None, str | None, str | None]:
    """Return the model, the draft model and the tokenizer of a launch, in the order of `MODEL_KINDS`: paths in the container
    or hub ids, those that its command names. Of a program whose flags nobody knows, the profile names the model.
    """
    if not has_model(profile):
        return profile.model.path or None, None, None
    words = CommandFlags(plan.command, plan.entrypoint)
    named = words.get_value("model-path", "model", "m") or words.get_served_model() or profile.model.path
    draft = words.get_value(
        "speculative-draft-model-path", "speculative-draft-model", "model-draft", "md", "spec-model"
    )
    more = words.get_json("speculative-config", "sc").get("model")
    tokenizer = words.get_value("tokenizer-path", "tokenizer")
    return named or None, draft or (more if isinstance(more, str) else None), tokenizer


def list_checkpoint_paths(
    profile: Profile, plan: LaunchPlan, kinds: Sequence[PartKind] = MODEL_KINDS
) -> tuple[str, ...]:
    """Return the paths on the node where the files of its models should be, as far as the mounts tell."""
    paths = zip(MODEL_KINDS, find_model_paths(profile, plan), strict=True)
    found = (map_path_to_node(path, plan) for kind, path in paths if kind in kinds)
    return tuple(dict.fromkeys(one for one in found if one is not None))


def find_missing_draft_layers(profile: Profile, plan: LaunchPlan, found: Sequence[CheckpointFiles]) -> str | None:
    """Return a sentence where the drafts are to come from layers of the model's own, and its files name none."""
    main, draft, _ = find_model_paths(profile, plan)
    words = CommandFlags(plan.command, plan.entrypoint)
    method = (
        words.get_value("speculative-algorithm", "speculative-algo")
        or words.get_value("spec-method")
        or str(words.get_json("speculative-config", "sc").get("method") or "")
    )
    is_own_head = method.upper() == "NEXTN" or method.casefold().endswith("mtp")
    if not is_own_head or draft not in (None, main) or main is None:
        return None
    where = map_path_to_node(main, plan)
    one = next((one for one in found if one.place == where), None)
    if one is None or one.has_draft_layers is not False or one.unfinished:
        return None
    return (
        f"{method} drafts with layers of the model's own, and no tensor in {one.place} is named like one (mtp): the engine "
        "does not start with it, or drafts nothing; take a checkpoint that has kept them"
    )


def build_estimate_input(
    profile: Profile,
    plan: LaunchPlan,
    found: Sequence[CheckpointFiles],
    workspace: DraftWorkspace = DraftWorkspace.UNKNOWN,
) -> EstimateInput:
    """Return the input of the memory rules. ``found``: what is at `list_checkpoint_paths` on the node."""
    by_place = {one.place: one for one in found}
    main, draft, _ = find_model_paths(profile, plan)
    own = by_place.get(map_path_to_node(main, plan) or "")
    is_asked = draft is not None and draft != main
    drafts = by_place.get(map_path_to_node(draft, plan) or "") if is_asked else None
    model, words = profile.model, CommandFlags(plan.command, plan.entrypoint)
    return EstimateInput(
        engine=profile.engine,
        words=words,
        weights=measure_weights(own, model.weights),
        draft=_measure_draft(drafts, model.draft_weights) if is_asked else None,
        layout=parse_kv_layout(own.config) if own is not None else None,
        per_token=model.kv_per_token,
        version=parse_engine_version(profile),
        ranks=count_weight_shards(profile, words),
        copies=_count_copies(words),
        experts=None if model.experts is None else model.experts.weights,
        expected=profile.expected_memory,
        workspace=DraftWorkspace.TAKEN if profile.draft_workspace is not None else workspace,
        has_gpu=bool(plan.gpus),
        env=dict(plan.env),
    )


_TENSOR_PARALLEL_FLAGS = ("tensor-parallel-size", "tp", "tp-size")
_PIPELINE_PARALLEL_FLAGS = ("pipeline-parallel-size", "pp", "pp-size")
_DATA_PARALLEL_FLAGS = ("data-parallel-size", "dp", "dp-size")
_EXPERT_PARALLEL_FLAGS = ("enable-expert-parallel", "ep")


def count_weight_shards(profile: Profile, words: CommandFlags) -> int:
    """Return how many Sparks (one GPU each) share the weights: from the flags, else the profile's number of nodes.

    Copies that serve side by side (data parallel) share nothing, except the experts where they are spread.
    """
    tensor, pipeline = words.get_count(*_TENSOR_PARALLEL_FLAGS), words.get_count(*_PIPELINE_PARALLEL_FLAGS)
    if tensor is None and pipeline is None:
        copies = 1 if words.has_flag(*_EXPERT_PARALLEL_FLAGS) else words.get_count(*_DATA_PARALLEL_FLAGS) or 1
        return max(1, profile.nodes // copies)
    return max(1, tensor or 1) * max(1, pipeline or 1)


def _count_copies(words: CommandFlags) -> int:
    """Return how many copies of all but the experts the shards hold: with expert parallelism, or attention by rank."""
    copies = words.get_count(*_DATA_PARALLEL_FLAGS) or 1
    is_split = words.get_count(*_TENSOR_PARALLEL_FLAGS) is None and words.get_count(*_PIPELINE_PARALLEL_FLAGS) is None
    if words.has_flag("enable-dp-attention") or (is_split and words.has_flag(*_EXPERT_PARALLEL_FLAGS)):
        return copies
    return 1


def count_nodes(profile: Profile, plan: LaunchPlan) -> int:
    """Return the number of Sparks that a launch needs."""
    return (
        max(profile.nodes, count_weight_shards(profile, CommandFlags(plan.command, plan.entrypoint)))
        if has_model(profile)
        else profile.nodes
    )


def _measure_draft(found: CheckpointFiles | None, declared: int | None) -> WeightsSize:
    return measure_weights(found, declared, "model.draft_weights")


def parse_engine_version(profile: Profile) -> tuple[int, ...]:
    """Return the engine's version from the profile or the image's tag, an empty text if neither has it."""
    if profile.engine_version:
        return parse_version(profile.engine_version)
    _, colon, tag = profile.image.partition("@")[0].rpartition("/")[2].partition(":")
    found = _VERSION_PATTERN.findall(tag) if colon else []
    return parse_version(max(found, key=lambda one: one.count("."))) if found else ()


_SHARE_STEPS = 100  # step of a share: hundredths
_ROUND_STEPS = 5  # of them


def evaluate_memory_fit(
    node: NodeName,
    profile: str,
    claim: MemoryRule,
    standing: MemoryBudget | None,
    floor: int,
    expected: int | None = None,
    seen: MeasuredPeak | None = None,
) -> MemoryFit:
    """Return whether it fits. ``expected``: the profile's own figure, used if the estimate is not complete."""
    if standing is None:
        return MemoryFit(
            node=node,
            profile=profile,
            answer=FitOutcome.UNKNOWN,
            floor=floor,
            cautions=(f"{node} did not report its memory",),
        )

    seen_error = _compute_seen_error(claim, standing.total, seen)

    def estimate_with_history(
        there: MemoryBudget, at: float, rule: Callable[[AvailableMemory, float], MemoryEstimate] = claim.rule
    ) -> MemoryEstimate:
        bare = rule(AvailableMemory(there.total, there.available_after_drop), at)
        return _correct_estimate(bare, expected, seen, seen_error)

    bare = claim.rule(AvailableMemory(standing.total, standing.available_after_drop), claim.share)
    made = _correct_estimate(bare, expected, seen, seen_error)
    cautions = made.cautions
    if made.lacking and made.why:
        cautions = (made.why, *cautions)
    fit = MemoryFit(
        node=node,
        profile=profile,
        answer=FitOutcome.UNKNOWN,
        parts=made.parts,
        standing=standing,
        floor=floor,
        lacking=made.lacking,
        cautions=cautions,
        estimated=bare.needed_bytes if bare.is_known else None,
    )

    def fits_in(
        there: MemoryBudget, at: float, rule: Callable[[AvailableMemory, float], MemoryEstimate] = claim.rule
    ) -> bool:
        one = estimate_with_history(there, at, rule)
        return not one.lacking and there.available_after_drop - floor - one.needed_bytes >= 0

    if not made.is_known:
        unsized = (part for part in made.parts if part.size is None and part.words)
        cautions = (*cautions, *(f"{part.name}: not known: {part.words}" for part in unsized))
        fit = replace(fit, cautions=cautions)
    if fits_in(standing, claim.share):
        if not made.is_known:  # what is known has room: the rest decides
            return fit
        at_once = standing.available_after_drop - standing.droppable
        answer = FitOutcome.FITS if made.needed_bytes + floor <= at_once else FitOutcome.AFTER_DROP_CACHES
        fit = replace(fit, answer=answer)
        return replace(
            fit, cautions=(*cautions, *_list_tight_cautions(fit), *_list_uncertainties(claim, standing, fits_in))
        )
    if unknown := [one.name for one in standing.holders if one.is_replaced and one.held is None]:
        what = f"what {unknown[0]} holds is not known, nor what is freed when it is replaced"
        return replace(fit, lacking=0, cautions=(*cautions, what))
    stops, then = next(
        ((names, there) for names, there in _iter_stop_options(standing) if fits_in(there, claim.share)), ((), standing)
    )
    made = estimate_with_history(
        then, claim.share
    )  # what it needs once they are gone: a share of the free memory is larger then
    fit = replace(fit, parts=made.parts, answer=FitOutcome.IF_STOPPED if stops else FitOutcome.SHORT, stops=stops)
    if not made.is_known:  # then no share is known to hold it
        return fit
    return replace(
        fit,
        largest=_find_fitting_share(claim, standing, fits_in, _iter_shares_below(claim.share, claim.safe)),
        least=_find_fitting_share(claim, standing, fits_in, _iter_shares_above(claim.share)),
    )


FitCheck = Callable[..., bool]


def _compute_seen_error(claim: MemoryRule, total: int, seen: MeasuredPeak | None) -> int | None:
    """Return the bytes that the last start took more than the sum; None if nothing tells.

    The sum is today's for the memory that was available then. The one made then may be of another rule: that start itself
    has shown that no draft workspace comes first, its model was not there yet, or sparkctl was older.
    """
    if seen is None:
        return None
    if seen.available is not None:
        then = claim.rule(AvailableMemory(total, seen.available), claim.share)
        if then.is_known:
            return seen.peak - then.needed_bytes
    return None if seen.estimated is None else seen.peak - seen.estimated


def _correct_estimate(
    made: MemoryEstimate, expected: int | None, seen: MeasuredPeak | None, seen_error: int | None
) -> MemoryEstimate:
    """Correct the estimate by the last start's peak; ``seen_error``: what `_compute_seen_error` returns."""
    if seen is not None and made.is_known and seen_error is not None:
        more = "more" if seen_error >= 0 else "less"
        words = (
            f"corrected: the last start of this very profile took {format_gib(seen.peak)} at its peak, "
            f"{format_gib(abs(seen_error))} {more} than this sum makes it"
        )
        return made.with_total(
            EstimatePart(
                name="seen last time",
                size=max(0, made.needed_bytes + seen_error),
                obtained=EstimateSource.HISTORY,
                words=words,
            )
        )
    if made.is_known:
        return made
    if seen is not None:
        words = "what the last start of this very profile took at its peak"
        return made.with_total(
            EstimatePart(name="seen last time", size=seen.peak, obtained=EstimateSource.HISTORY, words=words)
        )
    if expected is not None:
        words = "memory.expected of the profile, because not every part is known"
        return made.with_total(
            EstimatePart(name="as the profile expects", size=expected, obtained=EstimateSource.PROFILE, words=words)
        )
    return made


def _list_tight_cautions(fit: MemoryFit) -> list[str]:
    """Warn if the margin is smaller than half of the estimated part."""
    if not fit.is_tight:
        return []
    return [f"tight: {format_gib(fit.margin)} to spare, and {format_gib(fit.estimated_bytes)} of the sum are estimates"]


def _list_uncertainties(claim: MemoryRule, standing: MemoryBudget, fits: FitCheck) -> list[str]:
    """Say what would not fit under an assumption that is not known to be true."""
    if claim.doubt is None:
        return []
    rule, what = claim.doubt
    if fits(standing, claim.share, rule):
        return []
    below = list(_iter_shares_below(claim.share))
    # a round one first: the advice on the flags rounds more, and one share must not get two numbers
    rounded = [at for at in below if round(at * _SHARE_STEPS) % _ROUND_STEPS == 0]
    sure = next((at for at in (*rounded, *below) if fits(standing, at, rule)), None)
    way = f"; {claim.field}={sure:g} fits either way" if sure is not None else ""
    return [f"{what}. With such an image it does not fit{way}"]


def _iter_stop_options(standing: MemoryBudget) -> Iterator[tuple[tuple[str, ...], MemoryBudget]]:
    """Yield what could be stopped, and the budget then: one before several, managed before foreign, small before large."""
    free = [one for one in standing.holders if not one.is_replaced and (one.held or one.coming)]
    ours = [one for one in free if one.ours]
    for some in (ours, free):
        order = sorted(some, key=lambda one: (not one.ours, one.held or 0))
        for one in order:
            yield (one.name,), _release_holders(standing, [one])
        for several in accumulate(([one] for one in reversed(order)), lambda a, b: a + b):
            yield tuple(one.name for one in several), _release_holders(standing, several)


def _release_holders(standing: MemoryBudget, some: Sequence[MemoryHolder]) -> MemoryBudget:
    return replace(
        standing, holders=tuple(replace(one, is_replaced=True) if one in some else one for one in standing.holders)
    )


def _iter_shares_below(share: float, most: float = 1.0) -> Iterator[float]:
    return (
        at / _SHARE_STEPS
        for at in range(min(_SHARE_STEPS, int(share * _SHARE_STEPS + 1e-9)), 0, -1)
        if at / _SHARE_STEPS < share and at / _SHARE_STEPS <= most
    )


def _iter_shares_above(share: float) -> Iterator[float]:
    return (at / _SHARE_STEPS for at in range(int(share * _SHARE_STEPS + 1e-9) + 1, _SHARE_STEPS))


def _find_fitting_share(
    claim: MemoryRule, standing: MemoryBudget, fits: FitCheck, values: Iterator[float]
) -> FieldChange | None:
    if claim.field is None:
        return None
    found = next((at for at in values if at <= claim.most and fits(standing, at)), None)
    return None if found is None else FieldChange(claim.field, f"{found:.2f}")
