"""A launch plan for people."""

from __future__ import annotations

import re

from sparkctl.model.json_codec import redact_launch_plan
from sparkctl.model.launch_plan import GuardRule, LaunchPlan
from sparkctl.model.sanitize import sanitize_line
from sparkctl.model.units import format_duration, format_gib, format_size
from sparkctl.profiles.exporters.docker_line import format_docker_run
from sparkctl.views.text.line_wrap import wrap_line

_HANG = 5  # below the words of a step

_NEEDLESS = re.compile(r"\\([ !\"#%&',/:;<=>@`~-])")  # escapes that only a program writes; shown without


def format_launch_plan(plan: LaunchPlan, width: int | None = None) -> list[str]:
    """Return what would be done, step by step, within ``width`` columns, ending with the docker run line as it is."""
    rule = redact_launch_plan(plan).ready
    line = _NEEDLESS.sub(r"\1", rule.line or "")
    ready = [f"the line /{line}/"] if line else []
    ready += [f"{rule.health} answers"] if rule.health else []
    ready += [f"one token by {rule.probe}"] if rule.probe != "none" else []
    limits = plan.timeouts
    rank = "" if plan.ranks == 1 else f", rank {plan.rank} of {plan.ranks}"
    proof = ", then ".join(ready) or "it runs" if plan.rank == 0 else "its head is"
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
        steps.append(f"  it is expected to hold {format_gib(plan.expected_memory)}, by its profile")
    folded = [line for step in steps for line in wrap_line(sanitize_line(step), width, _HANG)]
    return [*folded, "", *format_docker_run(plan).splitlines()]


def describe_guard_rule(rule: GuardRule | None) -> str:
    """Return in a sentence when the guard on the node acts."""
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
