"""The root command. A verb's module is imported when that verb runs; ``--help`` knows them by this table alone."""

from __future__ import annotations

import importlib
import os
import sys
from typing import NoReturn

import click

from sparkctl import __version__
from sparkctl.cli import narrate
from sparkctl.errors import ExitCode, SparkctlError

# verb: (module in cli.verbs, what it does)
VERBS = {
    "init": ("init", "Ask for each Spark's address, test it, write the config."),
    "doctor": ("doctor", "Say what is missing on the nodes, each with the command that mends it."),
    "profiles": ("profiles", "List, show and check profiles."),
    "up": ("up", "Start a profile on a node and wait until it is ready."),
    "status": ("status", "Show the nodes, their memory and what runs there."),
    "top": ("top", "Show memory, GPU, CPU, links and instances, live."),
    "logs": ("logs", "Show an instance's log, also of one that is gone."),
    "drop-caches": ("drop_caches", "Drop the page cache, with memory before and after."),
    "down": ("down", "Stop an instance and wait until its memory is back."),
    "demo": ("demo", "Run any verb on two simulated Sparks, without hardware."),
    "completion": ("completion", "Print the shell completion for bash, zsh or fish."),
}

_EPILOG = """\b
Exit codes:
  0  done                       4  timed out
  1  the engine failed          5  unhealthy (doctor, status --check)
  2  usage or an invalid file   6  refused, nothing was changed
  3  node unreachable or        130  interrupted
     untrusted

\b
  sparkctl init                        tell sparkctl about your Sparks
  sparkctl up qwen36 --node spark1     start a model, wait until it answers
  sparkctl demo up qwen36 --node spark1   the same, without hardware"""


class LazyGroup(click.Group):
    """A group whose commands are modules that wait to be needed."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the verbs in the order of a first evening with sparkctl."""
        return list(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import the one verb that is wanted."""
        if cmd_name not in VERBS:
            return None
        command = importlib.import_module(f"sparkctl.cli.verbs.{VERBS[cmd_name][0]}").command
        assert isinstance(command, click.Command)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Say what was probably meant when there is no such verb."""
        if args and args[0] not in VERBS and not args[0].startswith("-"):
            from sparkctl.model.suggest import did_you_mean

            raise click.UsageError(f"no such verb: {args[0]}{did_you_mean(args[0], VERBS)}", ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the verbs without importing them."""
        with formatter.section("Verbs"):
            formatter.write_dl([(verb, about) for verb, (_, about) in VERBS.items()])


@click.group(
    cls=LazyGroup,
    epilog=_EPILOG,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    invoke_without_command=True,
)
@click.version_option(__version__, "-V", "--version", prog_name="sparkctl", message="%(prog)s %(version)s")
@click.pass_context
def root(ctx: click.Context) -> None:
    """Start, watch and stop LLM engines on NVIDIA DGX Sparks, and say why one did not start.

    stdout is data, stderr is talk; --json gives JSON lines. VERB --help says more.
    """
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())


def run() -> NoReturn:
    """Run the command line and exit with a code that tells the truth."""
    os.environ.setdefault("PYTHONUTF8", "1")
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(errors="replace")  # a terminal in the C locale still gets every line
    sys.exit(invoke(sys.argv[1:]))


def invoke(arguments: list[str]) -> int:
    """Run one command line and return its exit code; also how ``demo`` runs a verb."""
    try:
        result = root.main(arguments, prog_name="sparkctl", standalone_mode=False)
        return int(result) if isinstance(result, int) else int(ExitCode.DONE)
    except click.exceptions.Exit as exit_:
        return exit_.exit_code
    except click.ClickException as wrong:
        narrate.usage(wrong)
        return int(ExitCode.USAGE)
    except click.Abort:
        narrate.error("interrupted", None)
        return int(ExitCode.INTERRUPTED)
    except SparkctlError as error:
        narrate.error(error.message, error.hint)
        return int(error.exit_code)
    except KeyboardInterrupt:
        narrate.error("interrupted", None)
        return int(ExitCode.INTERRUPTED)
    except BrokenPipeError:
        # Whoever read our stdout has gone (`| head`): as quiet as any other filter.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return int(ExitCode.DONE)
