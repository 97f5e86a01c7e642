"""``sparkctl setup``: put in place what `doctor` finds missing."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from sparkctl.cli.options import (
    PreparedVerb,
    RequestCommand,
    complete_nodes,
    complete_profiles,
    json_option,
    parse_duration_option,
    select_configured_nodes,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sparkctl.cli.verb_runner import EventPrinter
    from sparkctl.model.node import Node


@click.command(
    "setup", cls=RequestCommand, short_help="Set up Docker's group, the drop right and the cable; or undo it."
)
@click.argument("nodes", nargs=-1, metavar="[NODE]...", shell_complete=complete_nodes)
@click.option("--dry-run", is_flag=True, help="Show what would change; change nothing.")
@click.option("--undo", is_flag=True, help="Put back what was there before, byte for byte.")
@click.option("--yes", is_flag=True, help="Make the changes without asking.")
@click.option(
    "--cable-timeout", callback=parse_duration_option, metavar="TIME",
    help="How long the cable may take to come up before the old settings return (60s).",
)  # fmt: skip
@click.option(
    "--for", "profile", metavar="PROFILE", shell_complete=complete_profiles,
    help="Also set up SSH between the Sparks, if this profile needs it.",
)  # fmt: skip
@json_option
def command(
    nodes: tuple[str, ...],
    dry_run: bool,
    undo: bool,
    yes: bool,
    cable_timeout: float | None,
    profile: str | None,
    as_json: bool,
) -> PreparedVerb:
    """Set up the nodes (default: all): what `doctor` finds missing and a start needs.

    \b
    sparkctl setup --dry-run      show the changes
    sparkctl setup                show them, ask, make them
    sparkctl setup --undo         take them back
    sparkctl setup --for trtllm-qwen3-235b    with SSH between the Sparks, which this profile needs

    It lets your user use Docker (group docker) and drop the page cache (one line for sudo, checked by visudo), and it
    gives the cable between two Sparks addresses: a netplan file on each, MTU 9000, both functions of the port. If the
    cable does not come up in time, or the Spark loses sparkctl, it goes back to its old file by itself.

    Every file is shown as a diff first. sudo's password is asked for once, and not kept. Twice is once.
    """
    from sparkctl.commands.setup.setup_nodes import CABLE_LIMIT_SECONDS, SetUpNodes

    if profile is not None and undo:
        raise click.UsageError("--undo undoes everything: leave out --for", click.get_current_context())
    chosen = select_configured_nodes(nodes)
    request = SetUpNodes(
        nodes=chosen, ssh_profile=_check_ssh_profile(profile, chosen), names_nodes=bool(nodes),
        dry_run=dry_run, undo=undo, is_confirmed=yes,
        cable_limit=cable_timeout or CABLE_LIMIT_SECONDS,
    )  # fmt: skip
    return PreparedVerb(request=request, printer=lambda: create_setup_printer(plan_only=dry_run))


def create_setup_printer(*, plan_only: bool = False) -> EventPrinter:
    """Return the printer of diffs: on stdout for ``plan_only``, else on stderr."""
    from sparkctl.cli import stderr, stdout
    from sparkctl.cli.event_printers import TextPrinter
    from sparkctl.model.events import Event, SetupPlanned
    from sparkctl.views.setup_view import render_fine_part, render_setup_step

    class SetupPrinter(TextPrinter):
        """Prints what will change, then each step that is done."""

        def print_event(self, event: Event) -> None:
            if not isinstance(event, SetupPlanned):
                return super().print_event(event)
            self.live.clear()
            rows = [render_fine_part(event.node, sentence) for sentence in event.fine]
            rows += [row for step in event.steps for row in render_setup_step(event.node, step)]
            if plan_only:
                stdout.print_rows(rows)
            else:
                for row in rows:
                    stderr.print_message(row)
            return None

    return SetupPrinter()


def _check_ssh_profile(name: str | None, nodes: Sequence[Node]) -> str | None:
    """Return the profile if its ranks log in at each other by SSH, else None. Raises `InvalidInput`."""
    from sparkctl.cli import stderr
    from sparkctl.engines import load_engine
    from sparkctl.engines.base import EngineRank
    from sparkctl.errors import InvalidInput
    from sparkctl.profiles.profile_library import ProfileLibrary

    if name is None:
        return None
    profile = ProfileLibrary().load_profile(name)
    if profile.nodes < 2 or not load_engine(profile.engine).list_ssh_key_mounts(EngineRank(0, ("", ""))):
        stderr.print_message(f"{profile.name} needs no SSH between Sparks")
        return None
    if len(nodes) < 2:
        raise InvalidInput(
            f"{profile.name} runs on {profile.nodes} Sparks", "name them all: sparkctl setup spark1 spark2"
        )
    return profile.name
