"""What ``up --dry-run`` prints: the plan as text, as the docker run line, or as JSON."""

from __future__ import annotations

from sparkctl.cli import output
from sparkctl.cli.tellers import WordTeller
from sparkctl.core.record import masked, plain
from sparkctl.model.events import Event, PlanMade
from sparkctl.present.docker_line import docker_line
from sparkctl.present.plan_text import plan_lines


class PlanTeller(WordTeller):
    """Prints the plan on stdout; warnings and refusals are told as ever."""

    def __init__(self, plan_format: str) -> None:
        super().__init__()
        self.plan_format = plan_format

    def tell(self, event: Event) -> None:
        """Print the plan when it comes."""
        if not isinstance(event, PlanMade):
            return super().tell(event)
        if self.plan_format == "docker":
            if event.plan.ranks > 1:
                output.text(f"# on {event.node}, rank {event.plan.rank} of {event.plan.ranks}")
            return output.text(docker_line(event.plan))
        if self.plan_format == "json":
            return output.document(plain(masked(event.plan)))
        return output.texts(plan_lines(event.plan, output.width()))
