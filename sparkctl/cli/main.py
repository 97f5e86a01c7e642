"""The root command. A verb's module is imported only when that verb runs; ``--help`` lists them from the table `VERBS`."""

from __future__ import annotations

import importlib
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

import click

from sparkctl import __version__
from sparkctl.cli.help_formatter import HelpContext
from sparkctl.cli.options import VERB_ALIASES, ascii_option, colour_option, prepare_command, refuse_unknown_command
from sparkctl.errors import InvalidInput

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

# by what one wants to do, in the order in which a new user needs it; verb: (module in cli.verbs, what it does)
VERB_GROUPS = {
    "Set up": {
        "init": ("setup", "Ask for each Spark's address, test it, write the config."),
        "doctor": ("doctor", "Check the nodes and show the command that fixes each problem."),
        "setup": ("setup", "Set up Docker's group, the right to drop the page cache, and the cable; or undo it."),
        "guard": ("guard_and_drop_caches", "Watch a node's memory, and stop a model before the node freezes."),
        "drop-caches": ("guard_and_drop_caches", "Drop the page cache, and show memory before and after."),
    },
    "Choose a model and get it": {
        "profiles": ("profiles", "List, show, check, edit and import profiles."),
        "plan": ("plan", "Check whether a profile fits on a node, and show the calculation."),
        "pull": ("pull", "Get a profile's image and model onto a node."),
        "images": ("stored", "List the images on each node; remove one that nothing uses."),
        "models": ("stored", "Show the models on each node; remove one."),
        "sync": ("pull", "Copy a profile's image and model from one Spark to another."),
    },
    "Start and stop": {
        "up": ("up", "Start a profile on a node and wait until it is ready."),
        "switch": ("switch", "Stop what conflicts, start another profile; roll back if that fails."),
        "restart": ("down", "Stop an instance, and start its profile again on the same nodes."),
        "down": ("down", "Stop an instance and wait until its memory is back."),
        "free": ("down", "Stop everything that sparkctl started on a node; list the rest."),
        "resume": ("switch", "Finish an interrupted switch: switch --continue."),
        "abort": ("switch", "Undo an interrupted switch: switch --abort."),
    },
    "Use and watch": {
        "status": ("status", "Show the nodes, their memory and what runs there."),
        "endpoints": ("shell", "Print the URLs of running models, ready for client configs."),
        "tunnel": ("shell", "Bring an instance's endpoint to localhost, over the SSH connection."),
        "say": ("shell", "Speak a text with a speech server, as a WAV file."),
        "check": ("shell", "Ask a running model whether its answers make sense."),
        "bench": ("bench", "Measure a running model, and compare two measurements."),
        "top": ("top", "Show memory, GPU, CPU, links and instances, live."),
        "metrics": ("metrics", "Print nodes and instances as Prometheus metrics, or serve them."),
        "shell": ("shell", "Open a shell on a node, or in an instance's container."),
        "exec": ("shell", "Run a command in an instance's container."),
    },
    "Find out why": {
        "logs": ("logs", "Show an instance's log, even after its container is gone."),
        "diagnose": ("diagnose", "Read a log and explain why the engine failed."),
        "history": ("history", "Show past starts, stops and switches, and their results."),
    },
    "This program": {
        "demo": ("demo", "Run the panel, or any command, on two simulated Sparks."),
        "help": ("help", "Explain a command or a topic."),
        "completion": ("help", "Print the shell completion for bash, zsh or fish."),
    },
}
VERBS = {verb: row for group in VERB_GROUPS.values() for verb, row in group.items()}

_EPILOG = """\b
sparkctl init                                tell sparkctl about your Sparks
sparkctl up qwen36-vllm --node spark1        start it, wait until it answers
sparkctl demo up qwen36-vllm --node spark1   the same, without hardware

Exit codes: 0 done; 1 the engine failed; 2 usage or an invalid file; 3 node unreachable or untrusted; 4 timed out; 5 unhealthy
(doctor, status --check, --strict); 6 refused, nothing was changed; 70 a bug in sparkctl; 74 the output or the
recording could not be written; 130 interrupted; 129 its terminal was closed; 141 stdout was closed early."""


_LISTING_WORDS = ("list", "ls", "ps", "get", "show")
_LISTED_VERBS = {word: verb for verb in ("profiles", "models", "images", "endpoints") for word in (verb, verb[:-1])} | {
    "history": "history",
    "nodes": "status",
    "bench": "bench",
}


class LazyVerbGroup(click.Group):
    """A click group that imports the module of a command only when the command runs."""

    context_class = HelpContext

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the verbs in the order in which a new user needs them."""
        return list(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import the module of the verb and return its command."""
        if cmd_name not in VERBS:
            return None
        module = importlib.import_module(f"sparkctl.cli.verbs.{VERBS[cmd_name][0]}")
        command = getattr(module, f"{cmd_name.replace('-', '_')}_command")
        assert isinstance(command, click.Command)
        return prepare_command(command)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Refuse a node before the verb, as other tools take it, with the command line that is meant."""
        if args[:1] in (["-n"], ["--node"]) and len(args) > 2:
            raise InvalidInput(f"{args[0]} stands after the command", shlex.join(("sparkctl", *args[2:], *args[:2])))
        own = {name for param in self.get_params(ctx) for name in param.opts}
        if args[1:] and args[0].startswith("-") and args[0].partition("=")[0] not in own and args[1] in VERBS:
            raise InvalidInput(f"{args[0]} stands after the command", shlex.join(("sparkctl", *args[1:], args[0])))
        return super().parse_args(ctx, args)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Take a verb of another tool for ours, and suggest one when there is no verb of that name."""
        if args[0] in ("systemctl", "docker") and args[1:2] and (args[1] in VERBS or args[1] in VERB_ALIASES):
            args = args[1:]
        if args[0] != "status" and VERB_ALIASES.get(args[0]) == ("status",) and args[1:2] in (["node"], ["nodes"]):
            args = [args[0], *args[2:]]  # `describe node spark1`: a node's name says that it is one
        if args[0] in _LISTING_WORDS and (listed := _LISTED_VERBS.get(args[1] if args[1:] else "")):
            args = [listed, *args[2:]]  # `ls models`, `get profiles`
        args = [*VERB_ALIASES.get(args[0], args[:1]), *args[1:]]
        if args[0] not in VERBS and not args[0].startswith("-"):
            refuse_unknown_command(args[0], VERBS)
        return super().resolve_command(ctx, args)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Complete verbs and options, without importing the verbs."""
        from click.shell_completion import CompletionItem

        verbs = [CompletionItem(verb, help=about) for verb, (_, about) in VERBS.items() if verb.startswith(incomplete)]
        return [*verbs, *click.Command.shell_complete(self, ctx, incomplete)]

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the verbs by what one wants to do, without importing them."""
        first_column = max(map(len, VERBS)) + 2
        for group, verbs in VERB_GROUPS.items():
            with formatter.section(group):
                formatter.write_dl([(verb.ljust(first_column - 2), about) for verb, (_, about) in verbs.items()])


@click.group(
    cls=LazyVerbGroup,
    epilog=_EPILOG,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120},
    invoke_without_command=True,
)
@click.option("--replay", type=click.Path(), metavar="FILE", help="Show a recording in the panel; connects to no node.")
@click.option("--readonly", is_flag=True, help="Open the panel read-only: it changes nothing on any node.")
@click.option("--plain", is_flag=True, help="Print changes as sentences instead of opening the panel.")
@ascii_option
@colour_option
@click.version_option(__version__, "-V", "-v", "--version", prog_name="sparkctl", message="%(prog)s %(version)s")
@click.pass_context
def sparkctl_command(ctx: click.Context, replay: str | None, readonly: bool, plain: bool) -> int:
    """Start, watch and stop LLM engines on NVIDIA DGX Sparks, and explain why one did not start.

    Without a command, on a terminal, sparkctl opens the panel. Data goes to stdout, messages to stderr; --json prints JSON lines. For one
    command or topic, see sparkctl help COMMAND. The words of other tools (ps, ls, start, run, stop, rm) work, too.
    """
    if ctx.invoked_subcommand is not None:
        given = {"--replay": replay is not None, "--readonly": readonly, "--plain": plain}
        if ctx.invoked_subcommand == "demo" and replay is None:
            ctx.default_map = {
                "demo": {"readonly": readonly, "plain": plain}
            }  # these options work before and after `demo`
            return 0
        if idle := [name for name, there in given.items() if there]:
            raise click.UsageError(f"{idle[0]} is an option of the panel: use it without a command", ctx)
        return 0
    recording = None if replay is None else Path(replay)
    if plain:
        from sparkctl.cli.plain_mode import run_plain_mode

        return run_plain_mode(recording)
    from sparkctl.cli import panel_launcher

    if panel_launcher.can_open_panel():
        from sparkctl.cli.command_line_parser import CommandLineParser

        return panel_launcher.open_panel(
            lambda: CommandLineParser(sparkctl_command), readonly=readonly, replay=recording
        )
    if replay is not None or readonly:
        raise click.UsageError("the panel needs a terminal; --plain prints the same as sentences", ctx)
    click.echo(ctx.get_help())
    return 0
