"""A launch plan as text: its steps, the ready rule, the guard rule and the docker run line."""

from __future__ import annotations

import re
from collections.abc import Sequence

from sparkctl.model.instance import InstanceView
from sparkctl.model.json_codec import redact_launch_plan
from sparkctl.model.launch_plan import GuardRule, LaunchPlan, ReadinessRule
from sparkctl.model.memory_fit import FitOutcome, MemoryFit
from sparkctl.model.node import NodeName
from sparkctl.model.phase import Phase
from sparkctl.model.profile import Profile
from sparkctl.model.sample import MemoryBar
from sparkctl.model.text.sanitize import sanitize_line
from sparkctl.model.text.units import format_duration, format_gib, format_size
from sparkctl.monitor.node_views import NodeTelemetryView
from sparkctl.profiles.exporters.docker_command import format_docker_run
from sparkctl.views.event_text import TRANSITION_PHASES, format_phase_name
from sparkctl.views.text.charts import render_memory_bar_line
from sparkctl.views.text.line_wrap import wrap_line
from sparkctl.views.text.styled_text import Span, TextRow, TextStyle, make_row, sanitize_span

_HANG_COLUMNS = 5  # indent below the words of a step

_NEEDLESS_ESCAPES = re.compile(r"\\([ !\"#%&',/:;<=>@`~-])")  # needless escapes, which are not shown


def format_launch_plan(plan: LaunchPlan, width: int | None) -> list[str]:
    """Return the steps of a launch plan within ``width`` columns, followed by the unwrapped docker run line."""
    rule = redact_launch_plan(plan).ready
    limits = plan.timeouts
    rank = "" if plan.ranks == 1 else f", rank {plan.rank} of {plan.ranks}"
    proof = describe_ready_rule(rule) if plan.rank == 0 else "its head is"
    steps = [
        f"{plan.instance} on {plan.node}{rank}   (profile {plan.profile}, hash {plan.profile_hash}, engine {plan.engine})",
        "  1  drop the page cache" if plan.drop_caches else "  1  leave the page cache as it is",
        f"  2  create and start the container {plan.container_name} from {plan.image}",
        f"  3  watch it: starting at most {format_duration(limits.starting)}, loading {format_duration(limits.loading)}, "
        f"warming up {format_duration(limits.warming)}",
        f"  4  ready means: {proof}",
    ]
    steps.append(f"     {describe_guard_rule(plan.guard)}")
    if plan.expected_memory is not None:
        steps.append(f"  expected memory by its profile: {format_gib(plan.expected_memory)}")
    folded = [line for step in steps for line in wrap_line(sanitize_line(step), width, _HANG_COLUMNS)]
    return [*folded, "", *format_docker_run(plan).splitlines()]


_PROOFS = {
    "speech": "sound for a sentence",
    "embeddings": "a vector for a sentence",
    "rerank": "scores for two texts",
    "http": "an answer with status 2xx",
}


def describe_ready_rule(rule: ReadinessRule | None) -> str:
    """Return the conditions under which the instance counts as ready."""
    if rule is None:
        return "not in its labels"
    line = _NEEDLESS_ESCAPES.sub(r"\1", rule.line or "")
    parts = [f"the line /{line}/"] if line else []
    parts += [f"{rule.health} answers"] if rule.health else []
    parts += [_PROOFS.get(rule.probe, f"one token by {rule.probe}")] if rule.probe != "none" else []
    parts += ["a request without its key is refused"] if rule.requires_key else []
    return ", then ".join(parts) or "it runs"


def describe_guard_rule(rule: GuardRule | None) -> str:
    """Return in one sentence when the guard acts."""
    if rule is None:
        return "no guard: nothing stops it before the node's memory runs out"
    cache = "the page cache is left alone"
    if rule.cache_below != 0:
        below = (
            "little memory is free" if rule.cache_below is None else f"less than {format_gib(rule.cache_below)} is free"
        )
        cache = f"page cache is dropped when {below} while weights load"
    limit = "" if rule.limit is None else f", for at most {format_duration(rule.limit)}"
    return f"guarded until it is ready{limit}: stopped before less than {format_size(rule.floor)} is available; {cache}"


_MAX_BAR_COLUMNS = 36
_LABEL_COLUMNS = 5
_BAR_TEXT_COLUMNS = 38  # width of the words beside a bar


def render_budget_before_start(
    profile: Profile,
    view: NodeTelemetryView,
    columns: int,
    fit: MemoryFit | None,
    *,
    is_counting: bool = False,
) -> list[TextRow]:
    """Return what runs on the node, and its memory now and as expected after the start.

    ``fit``: the memory estimate, if known; it is more exact than the profile's figure. ``is_counting``: the estimate
    is being computed, so that no other figure is shown meanwhile.
    """
    cells = max(8, min(_MAX_BAR_COLUMNS, columns - _BAR_TEXT_COLUMNS))
    rows = [
        make_row(Span("     ", TextStyle.LABEL), *_render_running_instance(one, profile))
        for one in view.instances
        if one.is_alive
    ]
    bar = view.memory
    if bar is None:
        return rows or [make_row(Span("     "), sanitize_span(f"{view.name} has not been read yet", TextStyle.STALE))]
    rows.append(render_memory_bar_line(f"{'now':<{_LABEL_COLUMNS}}", bar, cells))
    if fit is None and is_counting:
        rows.append(
            make_row(Span(f"{'then':<{_LABEL_COLUMNS}}", TextStyle.LABEL), Span("calculating ...", TextStyle.STALE))
        )
    elif fit is not None and (counted := _predict_estimated_memory(fit, bar)) is not None:
        rows.append(render_memory_bar_line(f"{'then':<{_LABEL_COLUMNS}}", counted, cells, is_expected=True))
    elif profile.expected_memory is not None:
        back, coming = _sum_replaced_memory(profile, view), _sum_pending_memory(profile, view)
        then = _predict_memory(bar, profile.expected_memory + coming, back)
        rows.append(render_memory_bar_line(f"{'then':<{_LABEL_COLUMNS}}", then, cells, is_expected=True))
        if fit is None and (short := _compute_missing_memory(profile.expected_memory, bar, back, coming)) > 0:
            rows.append(make_row("     ", Span(f"{format_gib(short)} too little: stop something first", TextStyle.BAD)))
    return rows


def describe_rank_nodes(profile: Profile, nodes: Sequence[NodeName] = ()) -> str:
    """Return a sentence about a profile for several Sparks; ``nodes``: those of its ranks, the head first."""
    if not nodes:
        return f"for {profile.nodes} Sparks together: a rank on each"
    if len(nodes) < profile.nodes:
        return f"for {profile.nodes} Sparks together, and only {' and '.join(nodes)} {'is' if len(nodes) == 1 else 'are'} there"
    others = " and ".join(nodes[1:])
    return f"for {profile.nodes} Sparks together: the head on {nodes[0]}, a rank on {others}"


def list_start_obstacles(profile: Profile, view: NodeTelemetryView, fit: MemoryFit | None) -> list[str]:
    """Return what prevents a start there, a sentence each: too little memory, a port in use."""
    found = [
        f"{one.name} is on port {one.port} there, and {profile.name} needs the same port."
        for one in view.instances
        if one.is_alive
        and profile.port is not None
        and one.port == profile.port
        and not _is_same_instance(one, profile)
    ]
    if fit is not None and fit.answer is not FitOutcome.UNKNOWN:
        return [*found, f"{fit.summary_sentence}."] if fit.is_refused else found
    bar, wanted, back = view.memory, profile.expected_memory, _sum_replaced_memory(profile, view)
    if (
        bar is not None
        and wanted is not None
        and (short := _compute_missing_memory(wanted, bar, back, _sum_pending_memory(profile, view))) > 0
    ):
        gone = f", {format_gib(back)} more once the {profile.name} that runs there is gone" if back else ""
        found.append(
            f"{profile.name} needs {format_gib(wanted)}. {view.name} has {format_gib(bar.available)} available{gone}."
        )
        if coming := _sum_pending_memory(profile, view):
            found.append(f"The start in progress there will take {format_gib(coming)} more.")
        found.append(f"That is {format_gib(short)} too little: stop something first.")
    return found


def _sum_replaced_memory(profile: Profile, view: NodeTelemetryView) -> int:
    """Return the bytes held by instances that this start replaces."""
    return sum(one.memory or 0 for one in view.instances if one.is_alive and _is_same_instance(one, profile))


def _is_same_instance(one: InstanceView, profile: Profile) -> bool:
    return one.ours and one.name == profile.name


def _sum_pending_memory(profile: Profile, view: NodeTelemetryView) -> int:
    """Return the bytes that other starts in progress there will still take, as far as known."""
    return sum(
        max(0, one.expected - (one.memory or 0))
        for one in view.instances
        if _is_starting(one) and not _is_same_instance(one, profile) and one.expected is not None
    )


def _compute_missing_memory(wanted: int, bar: MemoryBar, back: int, coming: int) -> int:
    return wanted - max(0, bar.available - coming) - back


def _is_starting(one: InstanceView) -> bool:
    return one.ours and one.phase in TRANSITION_PHASES and one.phase is not Phase.STOPPING


def _render_running_instance(one: InstanceView, profile: Profile) -> TextRow:
    state = f" holds {format_gib(one.memory)}" if one.memory is not None else " runs"
    if _is_starting(one) and one.phase is not None:
        takes = "" if one.expected is None else f", {format_gib(one.expected)} expected"
        state = f" is {format_phase_name(one.phase)} here now{takes}"
    if _is_same_instance(one, profile):
        return make_row(
            sanitize_span(one.name, TextStyle.TITLE),
            Span(f"{state}: it is replaced if its settings are others", TextStyle.ATTENTION),
        )
    if profile.port is not None and one.port == profile.port:
        return make_row(
            sanitize_span(one.name, TextStyle.TITLE),
            Span(f"{state}, and port {one.port}: stop it first", TextStyle.BAD),
        )
    if _is_starting(one):
        return make_row(sanitize_span(one.name, TextStyle.TITLE), Span(state, TextStyle.ATTENTION))
    return make_row(sanitize_span(one.name, TextStyle.TITLE), Span(f"{state} and stays", TextStyle.LABEL))


def _predict_memory(bar: MemoryBar, expected: int, back: int) -> MemoryBar:
    """Return the estimated memory with the model in it, after the caches were dropped."""
    gpu = max(0, (bar.gpu_processes or 0) - back) + expected
    free = max(0, bar.total - gpu - bar.other_used)
    return MemoryBar(
        total=bar.total,
        available=free,
        gpu_processes=gpu,
        other_used=bar.other_used,
        page_cache=0,
        free=free,
        swap_used=bar.swap_used,
    )


def _predict_estimated_memory(fit: MemoryFit, bar: MemoryBar) -> MemoryBar | None:
    """Return the memory with the model in it by the memory estimate; None if the estimate is incomplete."""
    there = fit.standing
    if there is None or fit.needed_bytes is None or fit.answer is FitOutcome.UNKNOWN:
        return None
    used = there.total - there.available_after_drop + fit.needed_bytes
    gpu = min(used, fit.needed_bytes + there.pending_bytes + max(0, (bar.gpu_processes or 0) - there.returned_bytes))
    free = max(0, there.total - used)
    return MemoryBar(
        total=there.total,
        available=free,
        gpu_processes=gpu,
        other_used=used - gpu,
        page_cache=0,
        free=free,
        swap_used=bar.swap_used,
    )
