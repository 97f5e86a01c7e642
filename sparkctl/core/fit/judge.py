"""The answer: a claim's sum held against what stands on the node. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import accumulate

from sparkctl.core.fit import others, sglang, vllm
from sparkctl.core.fit.claim import Claim, Room, Subject, Sum
from sparkctl.model.fit import Answer, Fit, Holder, Obtained, Part, Seen, Standing
from sparkctl.model.node import NodeName
from sparkctl.model.units import gib
from sparkctl.model.verdict import Edit

_STEP = 100  # of a share: hundredths


def claim_of(subject: Subject, total: int) -> Claim:
    """Return the claim by the rule of its engine."""
    match subject.engine:
        case "sglang":
            return sglang.claim(subject, total)
        case "vllm":
            return vllm.claim(subject)
        case "llamacpp":
            return others.llamacpp(subject)
        case "trtllm":
            return others.trtllm(subject)
        case _:
            return others.container(subject)


def judge(
    node: NodeName,
    profile: str,
    claim: Claim,
    standing: Standing | None,
    floor: int,
    expected: int | None = None,
    seen: Seen | None = None,
) -> Fit:
    """Return whether it fits. ``expected``: the profile's own figure, where the sum does not come out."""
    if standing is None:
        return Fit(node, profile, Answer.UNKNOWN, floor=floor, cautions=(f"{node} did not say what memory it has",))

    def summed(there: Standing, at: float, rule: Callable[[Room, float], Sum] = claim.rule) -> Sum:
        return _corrected(rule(Room(there.total, there.to_be_had), at), expected, seen)

    bare = claim.rule(Room(standing.total, standing.to_be_had), claim.share)
    made = _corrected(bare, expected, seen)
    cautions = made.cautions
    if made.lacking and made.why:
        cautions = (made.why, *cautions)
    fit = Fit(
        node, profile, Answer.UNKNOWN, made.parts, standing, floor, lacking=made.lacking, cautions=cautions,
        estimated=bare.need if bare.is_known else None,
    )  # fmt: skip
    if not made.is_known:
        return replace(fit, lacking=0, cautions=(*made.cautions, *_unknown(made)))

    def fits(there: Standing, at: float, rule: Callable[[Room, float], Sum] = claim.rule) -> bool:
        one = summed(there, at, rule)
        return not one.lacking and there.to_be_had - floor - one.need >= 0

    if fits(standing, claim.share):
        at_once = standing.to_be_had - standing.droppable
        answer = Answer.FITS if made.need + floor <= at_once else Answer.AFTER_DROP_CACHES
        fit = replace(fit, answer=answer)
        return replace(fit, cautions=(*cautions, *_tight(fit), *_doubts(claim, standing, fits)))
    if unknown := [one.name for one in standing.holders if one.is_replaced and one.held is None]:
        what = f"what {unknown[0]} holds is not known, and so what comes back when it is replaced"
        return replace(fit, lacking=0, cautions=(*cautions, what))
    stops, then = next(
        ((names, there) for names, there in _without(standing) if fits(there, claim.share)), ((), standing)
    )
    made = summed(then, claim.share)  # what it takes where they are gone: a share of what is free is more then
    return replace(
        fit, parts=made.parts, answer=Answer.IF_STOPPED if stops else Answer.SHORT, stops=stops,
        largest=_nearest(claim, standing, fits, _below(claim.share)),
        least=_nearest(claim, standing, fits, _above(claim.share)),
    )  # fmt: skip


Fits = Callable[..., bool]


def _corrected(made: Sum, expected: int | None, seen: Seen | None) -> Sum:
    """Let what was seen decide, where it was: the last start's peak, as far as the sum differs from what it was then."""
    if seen is not None and made.is_known and seen.estimated is not None:
        differs = seen.peak - seen.estimated
        more = "more" if differs >= 0 else "less"
        words = (
            f"corrected: the last start of this very profile took {gib(seen.peak)} at its peak, {gib(abs(differs))} {more} "
            "than the sum said"
        )
        return made.replaced(Part("seen last time", max(0, made.need + differs), Obtained.HISTORY, words))
    if made.is_known:
        return made
    if seen is not None:
        words = "what the last start of this very profile took at its peak"
        return made.replaced(Part("seen last time", seen.peak, Obtained.HISTORY, words))
    if expected is not None:
        words = "memory.expected of the profile, because not every part is known"
        return made.replaced(Part("as the profile expects", expected, Obtained.PROFILE, words))
    return made


def _unknown(made: Sum) -> list[str]:
    return [f"{part.name}: not known: {part.words}" for part in made.parts if part.size is None and part.words]


def _tight(fit: Fit) -> list[str]:
    """Say where less is to spare than half of what is only estimated in the sum."""
    if not fit.is_tight:
        return []
    return [f"tight: {gib(fit.margin)} to spare, and {gib(fit.guessed)} of the sum are estimates"]


def _doubts(claim: Claim, standing: Standing, fits: Fits) -> list[str]:
    """Say what would not fit if something that nobody knows were so."""
    if claim.doubt is None:
        return []
    rule, what = claim.doubt
    if fits(standing, claim.share, rule):
        return []
    sure = next((at for at in _below(claim.share) if fits(standing, at, rule)), None)
    way = f"; {claim.field}={sure:g} fits either way" if sure is not None else ""
    return [f"{what}. With such an image it does not fit{way}"]


def _without(standing: Standing) -> Iterator[tuple[tuple[str, ...], Standing]]:
    """Yield who could be stopped, and what stood then: one alone before several, ours before others', small before large."""
    free = [one for one in standing.holders if not one.is_replaced and (one.held or one.coming)]
    ours = [one for one in free if one.ours]
    for some in (ours, free):
        order = sorted(some, key=lambda one: (not one.ours, one.held or 0))
        for one in order:
            yield (one.name,), _gone(standing, [one])
        for several in accumulate(([one] for one in reversed(order)), lambda a, b: a + b):
            yield tuple(one.name for one in several), _gone(standing, several)


def _gone(standing: Standing, some: Sequence[Holder]) -> Standing:
    return replace(
        standing, holders=tuple(replace(one, is_replaced=True) if one in some else one for one in standing.holders)
    )


def _below(share: float) -> Iterator[float]:
    return (at / _STEP for at in range(min(_STEP, int(share * _STEP + 1e-9)), 0, -1) if at / _STEP < share)


def _above(share: float) -> Iterator[float]:
    return (at / _STEP for at in range(int(share * _STEP + 1e-9) + 1, _STEP))


def _nearest(claim: Claim, standing: Standing, fits: Fits, values: Iterator[float]) -> Edit | None:
    if claim.field is None:
        return None
    found = next((at for at in values if fits(standing, at)), None)
    return None if found is None else Edit(claim.field, f"{found:.2f}")
