"""A launch plan for people."""

from __future__ import annotations

from sparkctl.core.record import masked
from sparkctl.model.plan import LaunchPlan
from sparkctl.model.text import clean
from sparkctl.model.units import gib, spoken
from sparkctl.present.docker_line import docker_line


def plan_lines(plan: LaunchPlan) -> list[str]:
    """Return what would be done, step by step, ending with the docker run line."""
    rule = masked(plan).ready
    ready = [f"the line /{rule.line}/"] if rule.line else []
    ready += [f"{rule.health} answers"] if rule.health else []
    ready += [f"one token by {rule.probe}"] if rule.probe != "none" else []
    limits = plan.timeouts
    steps = [
        f"{plan.instance} on {plan.node}   (profile {plan.profile}, hash {plan.profile_hash}, engine {plan.engine})",
        "  1  drop the page cache" if plan.drop_caches else "  1  leave the page cache as it is",
        f"  2  create and start the container {plan.container_name} from {plan.image}",
        f"  3  watch it: starting at most {spoken(limits.starting)}, loading {spoken(limits.loading)}, "
        f"warming up {spoken(limits.warming)}",
        f"  4  ready means: {', then '.join(ready) or 'it runs'}",
    ]
    if plan.expected_memory is not None:
        steps.append(f"  it is expected to hold {gib(plan.expected_memory)}")
    return [clean(step) for step in steps] + ["", *docker_line(plan).splitlines()]
