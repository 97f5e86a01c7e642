"""What ``up --dry-run`` prints: the plan as text, as the docker run line, or as JSON."""

from __future__ import annotations

from sparkctl.cli import output
from sparkctl.cli.tellers import TextPrinter
from sparkctl.core.record import redact_launch_plan, to_json_data
from sparkctl.model.events import Event, LaunchPlanned
from sparkctl.present.docker_line import format_docker_run
from sparkctl.present.plan_text import format_launch_plan


class LaunchPlanPrinter(TextPrinter):
    """Prints the plan on stdout; warnings and refusals are told as ever."""

    def __init__(self, plan_format: str) -> None:
        super().__init__()
        self.plan_format = plan_format

    def print_event(self, event: Event) -> None:
        """Print the plan when it comes."""
        if not isinstance(event, LaunchPlanned):
            return super().print_event(event)
        if self.plan_format == "docker":
            if event.plan.ranks > 1:
                output.print_line(f"# on {event.node}, rank {event.plan.rank} of {event.plan.ranks}")
            return output.print_line(format_docker_run(event.plan))
        if self.plan_format == "json":
            return output.print_json(to_json_data(redact_launch_plan(event.plan)))
        return output.print_lines(format_launch_plan(event.plan, output.width()))
