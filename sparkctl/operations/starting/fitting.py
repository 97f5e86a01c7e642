"""Whether a start fits on a node: what was looked at there, held against the profile's claim."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence
from dataclasses import replace

from sparkctl.core.context import Context
from sparkctl.core.fit.claim import Workspace
from sparkctl.core.fit.judge import claim_of, judge
from sparkctl.core.fit.readable import impossible, unread
from sparkctl.core.fit.subject import absent, places, sparks, subject
from sparkctl.core.fit.words import Words
from sparkctl.core.session import Session
from sparkctl.core.store import LoadView
from sparkctl.core.together import together
from sparkctl.errors import InvalidInput, Refused
from sparkctl.model.checkpoint import Checkpoint
from sparkctl.model.container import Container
from sparkctl.model.fit import Answer, Fit, Holder, Standing
from sparkctl.model.guard import DEFAULT_FLOOR
from sparkctl.model.phase import Phase
from sparkctl.model.plan import Label, LaunchPlan, Service
from sparkctl.model.profile import Profile
from sparkctl.model.secrets import redact
from sparkctl.model.units import GIB
from sparkctl.model.verdict import Cause, Edit
from sparkctl.operations.labels import expected_of, port_of, rule_of
from sparkctl.operations.starting import readiness
from sparkctl.operations.starting.request import as_switch
from sparkctl.probe.look import Look

_TO_COME = 2 * GIB  # of what it is expected to hold: whoever lacks less is taken for ready unasked
_COMING = (Phase.CREATING, Phase.STARTING, Phase.LOADING, Phase.WARMING)
_HEALTH = 3.0  # seconds


def sections(profile: Profile, plan: LaunchPlan) -> list[str]:
    """Return what to look at beside the rest: the model's files."""
    return [f"model={place}" for place in places(profile, plan)]


async def loading(session: Session, look: Look, containers: Sequence[Container]) -> frozenset[str]:
    """Return the ids of those that are still being started, and so take more than they hold now.

    Only who holds much less than it is expected to is asked, and who does not answer is loading.
    """
    asked = []
    for one in containers:
        expected, held, rule = expected_of(one), look.held_by(one.id), rule_of(one)
        lacks = expected is not None and held is not None and held < expected - _TO_COME
        if lacks and one.is_ours and one.is_alive and rule is not None and rule.health is not None:
            asked.append((one.id, Service(port_of(one), rule)))
    answers = await together(*(readiness.health(session.link, service, _HEALTH) for _, service in asked))
    return frozenset(one for (one, _), answer in zip(asked, answers, strict=True) if not answer.good)


def standing(
    look: Look, containers: Sequence[Container], replaced: frozenset[str], comes: frozenset[str]
) -> Standing | None:
    """Return what stands on the node, None where it did not say what memory it has."""
    if look.memory is None:
        return None
    holders = []
    for one in containers:
        if not one.is_alive:
            continue
        held = look.held_by(one.id)
        coming = max(0, (expected_of(one) or 0) - held) if one.id in comes and held is not None else 0
        name = one.label(Label.INSTANCE) or one.name
        holders.append(Holder(name, one.is_ours, held, coming, one.id in replaced))
    memory = look.memory
    return Standing(
        memory.total, max(0, memory.available), min(memory.reclaimable, max(0, memory.available)), tuple(holders)
    )


def standing_of(view: LoadView, instance: str) -> Standing | None:
    """Return what a node has that is followed, to a start of ``instance``; None where its memory is not known."""
    memory = (view.sample.memory if view.sample is not None else None) or view.reading
    if memory is None:
        return None
    holders = []
    for one in view.instances:
        if not one.is_alive:
            continue
        is_coming = one.ours and one.phase in _COMING and one.memory is not None
        coming = max(0, (one.expected or 0) - (one.memory or 0)) if is_coming else 0
        holders.append(Holder(one.name, one.ours, one.memory, coming, one.ours and one.name == instance))
    available = max(0, memory.available)
    return Standing(memory.total, available, min(memory.reclaimable, available), tuple(holders))


def fit(
    ctx: Context, profile: Profile, plan: LaunchPlan, look: Look, containers: Sequence[Container],
    replaced: frozenset[str] = frozenset(), comes: frozenset[str] = frozenset(), asked: int = 1,
) -> Fit:  # fmt: skip
    """Return whether the launch fits beside what stands there. Raises `InvalidInput` for a flag that cannot be so."""
    if (wrong := impossible(profile.engine, Words(plan.command))) is not None:
        raise InvalidInput(*(redact(one, plan.known_secrets) for one in wrong))
    return fit_of(ctx, profile, plan, look.models, standing(look, containers, replaced, comes), asked)


def fit_of(
    ctx: Context,
    profile: Profile,
    plan: LaunchPlan,
    models: Sequence[Checkpoint],
    there: Standing | None,
    asked: int = 1,
) -> Fit:
    """Return whether the launch fits there. ``models``: what was found of its files; the history is read. ``asked``: how many
    Sparks are to carry it together."""
    if (why := _unread(profile, plan)) is not None:
        return Fit(plan.node, plan.profile, Answer.UNKNOWN, standing=there, cautions=(redact(why, plan.known_secrets),))
    history = ctx.history
    workspace = Workspace.UNKNOWN
    if history.failed_for(plan.profile_hash, Cause.DRAFT_WORKSPACE):
        workspace = Workspace.TAKEN
    elif history.was_ready(plan.profile_hash):
        workspace = Workspace.NOT_TAKEN
    claim = claim_of(subject(profile, plan, models, workspace), there.total if there else 0)
    floor = plan.floor_memory if plan.floor_memory is not None else plan.guard.floor if plan.guard else DEFAULT_FLOOR
    seen = history.seen(plan.profile_hash, plan.node)
    missing = absent(profile, plan, models)
    made = judge(plan.node, plan.profile, claim, there, floor, plan.expected_memory, seen)
    secrets = plan.known_secrets
    cautions = (
        made.cautions
        if missing is None
        else (*made.cautions, f"no weights lie in {missing}: put the model there first")
    )
    parts = tuple(replace(part, words=redact(part.words, secrets)) for part in made.parts)
    cautions = tuple(redact(one, secrets) for one in cautions)
    wanted = sparks(profile, plan)
    made = replace(made, parts=parts, cautions=cautions, absent=missing, sparks=wanted)
    if wanted <= asked:
        return made
    return replace(made, answer=Answer.SEVERAL, stops=(), largest=None, least=None)


def _unread(profile: Profile, plan: LaunchPlan) -> str | None:
    """Return why nothing can be summed: a flag that decides is not there yet, or cannot be so."""
    words = Words(plan.command)
    if (wrong := impossible(profile.engine, words)) is not None:
        return wrong[0]
    if (flag := unread(profile.engine, words)) is not None:
        return f"{flag[0]} is {flag[1]}, which only the shell of the container knows"
    return None


def commands(one: Fit, again: Callable[[Edit | None], str]) -> tuple[str, ...]:
    """Return what follows from the answer: the start, or each way to make it fit. ``again`` gives the command that starts it,
    with a field changed."""
    if not one.is_refused:
        return (again(None),)
    ours = {each.name for each in one.standing.holders if each.ours} if one.standing is not None else set()
    found = [
        shlex.join(["sparkctl", "down", name, "--node", one.node])
        if name in ours
        else f"on {one.node}: {shlex.join(['docker', 'stop', name])}"
        for name in one.stops
    ]
    return (*found, *(again(each) for each in (one.largest, one.least) if each is not None))


def ways(one: Fit, again: Callable[[Edit | None], str]) -> tuple[str, ...]:
    """The same as whole ways: where all that is in the way is ours, the one command that has it give way and starts this."""
    if not _gives_way(one):
        return commands(one, again)
    return (as_switch(again(None)), *commands(one, again)[len(one.stops) :])


def _gives_way(one: Fit) -> bool:
    ours = {each.name for each in one.standing.holders if each.ours} if one.standing is not None else set()
    return one.answer is Answer.IF_STOPPED and ours.issuperset(one.stops)


def refusal(one: Fit, again: Callable[[Edit | None], str]) -> Refused:
    """Return the error of a start that does not fit."""
    why = f" ({one.cautions[0]})" if one.lacking and one.cautions else ""
    switch = [as_switch(again(None))] if _gives_way(one) else []
    all_the_same = f"start it all the same: {again(None)} --force"
    return Refused(one.sentence + why, "\n".join([*switch, *commands(one, again), all_the_same]))
