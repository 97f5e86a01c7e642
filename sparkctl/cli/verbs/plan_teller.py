"""What ``up --dry-run`` prints: the plan as text, as the docker run line, or as JSON."""

from __future__ import annotations

from sparkctl.cli import stdout
from sparkctl.cli.event_printers import TextPrinter
from sparkctl.model.events import Event, LaunchPlanned
from sparkctl.model.json_codec import redact_launch_plan, to_json_data
from sparkctl.profiles.exporters.docker_line import format_docker_run
from sparkctl.views.profiles.launch_plan_view import format_launch_plan


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
                stdout.print_line(f"# on {event.node}, rank {event.plan.rank} of {event.plan.ranks}")
            return stdout.print_line(format_docker_run(event.plan))
        if self.plan_format == "json":
            return stdout.print_json(to_json_data(redact_launch_plan(event.plan)))
        return stdout.print_lines(format_launch_plan(event.plan, stdout.width()))
