"""``sparkctl check``: ask a running model whether its answers make sense."""

from __future__ import annotations

import click

from sparkctl.cli import stdout
from sparkctl.cli.event_printers import TextPrinter
from sparkctl.cli.options import (
    complete_instances,
    create_context,
    json_option,
    node_option,
    select_configured_nodes,
)
from sparkctl.model.events import Event, FindingReported


class CheckPrinter(TextPrinter):
    """Prints each check on stdout, with what was asked and what came where it is not good."""

    def print_event(self, event: Event) -> None:
        """Print one check."""
        if not isinstance(event, FindingReported):
            return super().print_event(event)
        from sparkctl.views.finding_view import format_answer_check

        return stdout.print_lines(format_answer_check(event))


@click.command("check", short_help="Ask a running model whether its answers make sense.")
@click.argument("instance", shell_complete=complete_instances)
@node_option(many=True)
@click.option("--basic", is_flag=True, help="Ask only what `up` asks: one question, and its context.")
@click.option("--strict", is_flag=True, help="Exit 5 if a check fails.")
@json_option
def command(instance: str, node: tuple[str, ...], basic: bool, strict: bool, as_json: bool) -> int:
    """Ask INSTANCE a question with a known answer, and check what comes: sense, the end at max_tokens, JSON mode, a tool
    call where it has a tool parser, a stream, its context, and whether its drafts are accepted.

    \b
    sparkctl check qwen36
    sparkctl check qwen36 --basic --strict && start-my-agents

    It changes nothing and takes about ten requests, one after the other. `up` asks the basic ones by itself once a model is
    ready (`start.check` in its profile). To check a profile's file: sparkctl profiles check.
    """
    from sparkctl.cli.event_printers import JsonPrinter
    from sparkctl.cli.verb_runner import run_verb
    from sparkctl.commands.ask_instance import CheckInstance, check_instance

    request = CheckInstance(instance=instance, nodes=select_configured_nodes(node), is_full=not basic, is_strict=strict)
    context = create_context(may_ask=not as_json)
    return run_verb(context, lambda ctx: check_instance(ctx, request), JsonPrinter() if as_json else CheckPrinter())
