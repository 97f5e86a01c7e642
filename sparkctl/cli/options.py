"""Common options of the verbs, the context and nodes that a verb runs with, and verbs that run a request. Imports little."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

import click

from sparkctl.cli.help_formatter import HelpContext
from sparkctl.cli.stdout import ASCII_OPTION, COLOUR_OPTION, FORMAT_OPTION, QUIET_OPTION
from sparkctl.errors import InvalidInput, SparkctlError, find_closest_match
from sparkctl.model.lazy_dataclass import dataclass

if TYPE_CHECKING:
    from sparkctl.cli.verb_runner import EventPrinter, EventSource
    from sparkctl.commands.request import Request
    from sparkctl.context import CommandContext
    from sparkctl.model.node import Node
    from sparkctl.model.profile import Profile

F = TypeVar("F", bound=Callable[..., Any])

# what hands type that know other tools: the words that stand for it; they are in no list and no completion
VERB_ALIASES = {
    **dict.fromkeys(("ps", "ls", "list", "info", "inspect", "describe", "node", "nodes"), ("status",)),
    **dict.fromkeys(("start", "run", "serve"), ("up",)),
    **dict.fromkeys(("stop", "rm"), ("down",)),
    **dict.fromkeys(("log", "journal", "tail"), ("logs",)),
    **dict.fromkeys(("url", "urls", "port", "ports"), ("endpoints",)),
    **dict.fromkeys(("download", "fetch", "build"), ("pull",)),
    **dict.fromkeys(("copy", "cp", "push"), ("sync",)),
    **dict.fromkeys(("validate", "lint"), ("profiles", "check")),
    "kill": ("down", "--kill"),
    "drain": ("free",),
    "ssh": ("shell",),
    "stats": ("top",),
    "health": ("doctor",),
    "port-forward": ("tunnel",),
    "profile": ("profiles",),
    "edit": ("profiles", "edit"),
    "new": ("profiles", "new"),
    "rename": ("profiles", "rename"),
    "import": ("profiles", "import"),
    "export": ("profiles", "export"),
    "model": ("models",),
    "image": ("images",),
    "rmi": ("images", "remove"),
    "version": ("help", "version"),
}

_OWN_DOCKER = "images are Docker's own: on the node, sparkctl shell NODE, then docker"
# words that sparkctl has no command for, or more than one: what to type instead, one a line
VERB_HINTS = {
    "show": "sparkctl status NAME        what runs\nsparkctl profiles show NAME\nsparkctl history show ID",
    "get": "sparkctl status\nsparkctl profiles list\nsparkctl pull PROFILE        to get a model onto a node",
    **dict.fromkeys(
        ("remove", "delete"),
        "sparkctl down NAME        stops a model\nsparkctl profiles remove NAME\nsparkctl models remove NAME\nsparkctl images remove IMAGE",
    ),
    **dict.fromkeys(
        ("create", "add", "apply"), "sparkctl up PROFILE\nsparkctl profiles new NAME --from PROFILE\nsparkctl init        for a node"
    ),
    **dict.fromkeys(("events", "watch"), "sparkctl history\nsparkctl status --watch\nsparkctl --plain        changes as they happen"),
    "attach": "sparkctl logs NAME --follow\nsparkctl shell NAME",
    "cat": "sparkctl logs NAME\nsparkctl profiles show NAME",
    "journalctl": "sparkctl logs NAME --follow\nsparkctl doctor        reads the kernel's log, too",
    "config": "sparkctl init        writes the config\nsparkctl help config",
    **dict.fromkeys(("du", "df", "system"), "sparkctl models\nsparkctl images\nsparkctl top --once        with the disks"),
    **dict.fromkeys(
        ("prune", "images prune", "models prune"), "sparkctl images remove --old-builds\nsparkctl models        what is there, and what uses it"
    ),
    **dict.fromkeys(("why", "explain", "debug"), "sparkctl diagnose NAME        why it failed\nsparkctl doctor        what is wrong with the Sparks"),
    **dict.fromkeys(("console", "bash", "sh"), "sparkctl shell NODE\nsparkctl shell NAME        in its container"),
    **dict.fromkeys(("record", "recording", "replay"), "sparkctl top --record FILE\nsparkctl --replay FILE        shows it in the panel"),
    "uninstall": "sparkctl setup --undo        takes back what setup changed\nuv tool uninstall dgx-sparkctl        or: pipx uninstall dgx-sparkctl",
    "wait": "sparkctl up PROFILE waits until it is ready, also for one that starts already\nsparkctl status --watch",
    **dict.fromkeys(("tag", "save", "load", "login", "commit"), _OWN_DOCKER),
    **dict.fromkeys(("pause", "unpause", "suspend"), "a model that is paused keeps its memory: sparkctl down NAME, later sparkctl up NAME"),
    "reload": "sparkctl restart NAME",
    **dict.fromkeys(("enable", "disable"), "nothing starts at boot; for a systemd unit: sparkctl profiles export NAME --as systemd"),
    "is-active": "sparkctl status NAME --check",
    **dict.fromkeys(("systemctl", "service", "docker"), "sparkctl status NAME\nsparkctl up PROFILE, sparkctl down NAME, sparkctl restart NAME"),
    "scale": "a profile runs once on a Spark; on the other one, too: sparkctl up PROFILE --node NODE",
    "search": "sparkctl profiles list",
    **dict.fromkeys(("update", "upgrade"), "uv tool upgrade dgx-sparkctl        or: pipx upgrade dgx-sparkctl"),
    **dict.fromkeys(("chat", "test"), "sparkctl check NAME        asks questions with known answers\nsparkctl endpoints        for your own client"),
    **dict.fromkeys(("monitor", "htop", "nvidia-smi", "gpu"), "sparkctl top\nsparkctl        alone, it opens the panel"),
    **dict.fromkeys(("panel", "ui", "tui", "dashboard"), "sparkctl        alone, it opens the panel"),
    "rollback": "sparkctl switch --abort        undoes one that was interrupted\nsparkctl history",
    **dict.fromkeys(("replace", "swap"), "sparkctl switch PROFILE"),
}  # fmt: skip

_STATUS_FILTER = "sparkctl status NAME        one model or Spark\nsparkctl status -o json        for jq"
_UP_FOLLOW = "sparkctl up PROFILE        shows each step until it is ready\nsparkctl logs PROFILE --follow"
# options of other tools, by the verb: what to type instead, one a line
OPTION_HINTS = {
    **dict.fromkeys((("status", "--filter"), ("status", "-f")), _STATUS_FILTER),
    **dict.fromkeys((("up", "--follow"), ("up", "-f"), ("up", "--attach")), _UP_FOLLOW),
    ("setup", "--node"): "sparkctl setup NODE        without the option",
}
COPY_HINT = "sparkctl sync PROFILE --from NODE --to NODE        copies a model\na file: scp, or on the node docker cp"

# the same below a verb, where it has the command that stands for it
SUBCOMMAND_ALIASES = {
    **dict.fromkeys(("ls", "ps"), "list"),
    **dict.fromkeys(("rm", "del", "delete", "rmi", "uninstall"), "remove"),
    **dict.fromkeys(("mv", "move"), "rename"),
    **dict.fromkeys(("cat", "view", "inspect", "describe", "get", "info"), "show"),
    **dict.fromkeys(("create", "add", "init", "copy", "cp"), "new"),
    **dict.fromkeys(("lint", "validate", "test", "verify"), "check"),
    **dict.fromkeys(("vi", "vim", "open", "change", "modify"), "edit"),
    **dict.fromkeys(("diff", "cmp"), "compare"),
    **dict.fromkeys(("load", "paste"), "import"),
    **dict.fromkeys(("save", "convert"), "export"),
    **dict.fromkeys(("start", "enable", "on"), "arm"),
    **dict.fromkeys(("stop", "disable", "off"), "disarm"),
}


def refuse_unknown_command(word: str, known: Iterable[str], before: str = "") -> NoReturn:
    """Raise `InvalidInput` for a word that is no command: with what to type instead, or the nearest of the known ones.

    ``before``: the words of the command line before it, with a space at the end.
    """
    if hint := VERB_HINTS.get(f"{before}{word}"):
        raise InvalidInput(f"sparkctl has no command {before}{word}", hint)
    if not before:
        for is_it, what, hint in (
            (is_configured_node, "node", f"sparkctl status {word}\nsparkctl shell {word}"),
            (is_profile, "profile", f"sparkctl up {word}\nsparkctl status {word}\nsparkctl profiles show {word}"),
        ):
            if is_it(word):
                raise InvalidInput(f"{word} is a {what}: begin with what to do", hint)
        known = (*known, *VERB_ALIASES)
    near = find_closest_match(word, known)
    near = near if near is None or before else " ".join(VERB_ALIASES.get(near, (near,)))  # the name that the help has
    suggestion = f"; did you mean `{near}`?" if near else ""
    raise InvalidInput(f"unknown command: {before}{word}{suggestion}", f"sparkctl {before}--help")


def is_configured_node(word: str) -> bool:
    """Tell whether a word is the name of a node of the config; False where that cannot be read."""
    return word in _list_node_names()


def is_profile(word: str) -> bool:
    return word in _list_profile_names(word)


class VerbGroup(click.Group):
    """A verb with commands below it: it takes the words of other tools for them, and lists where none is named."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Insert the command that lists where only its options stand, and drop it where the verb itself lists."""
        is_help = any(word in ctx.help_option_names for word in args)
        if self.invoke_without_command:
            args = args[1:] if args[:1] and args[0] in _LIST_WORDS else args
        elif not is_help and (not args or args[0].startswith("-")):
            args = ["list" if "list" in self.commands else "status", *args]
        return super().parse_args(ctx, args)

    def find_command_name(self, word: str) -> str | None:
        """Return the command that a word stands for, None where there is none."""
        choices = (word, SUBCOMMAND_ALIASES.get(word), "status" if word in _LIST_WORDS else None)
        return next((one for one in choices if one in self.commands), None)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Take a word of another tool for ours, and say what is meant where there is no such command."""
        name = self.find_command_name(args[0])
        if name is None and not args[0].startswith("-"):
            refuse_unknown_command(args[0], self.commands, f"{ctx.info_name} ")
        return super().resolve_command(ctx, [name or args[0], *args[1:]])

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands, what each does in full."""
        with formatter.section("Commands"):
            formatter.write_dl(
                [(name, self.commands[name].get_short_help_str(200)) for name in self.list_commands(ctx)]
            )


_LIST_WORDS = ("list", "ls", "ps")


def create_context(*, may_ask: bool = True) -> CommandContext:
    """Return a context for this operator; questions are asked on this terminal."""
    from sparkctl.cli.terminal_prompter import create_prompter
    from sparkctl.context import CommandContext, UnshownEvents, get_operator
    from sparkctl.files import state_dir
    from sparkctl.history.operation_history import OperationHistory

    unshown = UnshownEvents()
    return CommandContext(
        history=OperationHistory(state_dir()),
        operator=get_operator(),
        unshown=unshown,
        prompter=create_prompter(unshown, allowed=may_ask),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedVerb:
    """A request, and how a verb prints its events.

    Attributes:
        request: a source of events where the panel has no such command.
        later: requests that run after it, one after the other, whatever became of it; Ctrl-C ends them all.
        printer: creates the printer of text; None: `TextPrinter`.
        json_printer: creates the printer of JSON; None: `JsonPrinter`.
        warnings: printed before it runs.
    """

    request: Request | EventSource
    later: Sequence[Request] = ()
    printer: Callable[[], EventPrinter] | None = None
    json_printer: Callable[[], EventPrinter] | None = None
    warnings: Sequence[str] = ()


class RequestCommand(click.Command):
    """A verb that runs a request: its callback returns a `PreparedVerb`. The panel takes the request alone."""

    def prepare_verb(self, ctx: click.Context) -> PreparedVerb:
        """Return what the parsed options ask for."""
        prepared = super().invoke(ctx)
        assert isinstance(prepared, PreparedVerb)
        return prepared

    def invoke(self, ctx: click.Context) -> int:
        """Run the request and return the exit code."""
        from sparkctl.cli import stderr
        from sparkctl.cli.event_printers import JsonPrinter, TextPrinter
        from sparkctl.cli.verb_runner import RecordingPrinter, choose_exit_code, open_recorder, run_verb

        prepared, options = self.prepare_verb(ctx), ctx.params
        for warning in prepared.warnings:
            stderr.print_warning(None, warning, None)
        create_printer: Callable[[], EventPrinter] = (
            prepared.json_printer or JsonPrinter if options["as_json"] else prepared.printer or TextPrinter
        )
        with open_recorder(ctx, options.get("record"), options.get("overwrite", False)) as recording:
            code = 0
            for request in (prepared.request, *prepared.later):
                printer = create_printer()
                if recording is not None:
                    printer = RecordingPrinter(printer, recording)
                context = create_context(may_ask=not options["as_json"])  # each runs in a loop of its own
                code = run_verb(context, request if callable(request) else request.run, printer) or code
                if context.interrupt.presses:
                    break
            return choose_exit_code(code, recording)


def select_configured_nodes(names: Sequence[str]) -> list[Node]:
    """Return the named nodes, or all configured ones; print the config's warnings."""
    from sparkctl.cli import stderr
    from sparkctl.config import find_node, load_config

    config = load_config(required=not names)
    for warning in config.warnings:
        stderr.print_warning(None, warning, None)
    if not names and not config.nodes:
        raise InvalidInput("no node is configured", "sparkctl init")
    if not names:
        return list(config.nodes)
    found = [find_node(config, name) for name in names]
    return list({node.name: node for node in found}.values())


def list_nodes() -> list[Node]:
    """Return all configured nodes; none without a config."""
    from sparkctl.config import load_config

    return list(load_config(required=False).nodes)


def add_other_nodes(nodes: Sequence[Node]) -> tuple[Node, ...]:
    """Return these nodes, followed by all other configured nodes."""
    return tuple({one.name: one for one in (*nodes, *select_configured_nodes(()))}.values())


def select_one_node(name: str | None) -> Node:
    """Return the named node, or the only configured one."""
    from sparkctl.config import get_only_node, load_config

    if name is not None:
        return select_configured_nodes([name])[0]
    return get_only_node(load_config())


def format_overrides(overrides: Sequence[str]) -> tuple[str, ...]:
    """Return the overrides of a profile as words of a command line."""
    return tuple(word for override in overrides for word in ("--set", override))


def select_rank_nodes(names: Sequence[str], profile: Profile) -> tuple[Node, ...]:
    """Return the node of each rank, the head first: the named nodes, or all configured ones if their number matches."""
    from sparkctl.commands.start.start_preflight import assign_nodes_to_ranks, refuse_wrong_node_count

    if profile.nodes > 1:
        configured = select_configured_nodes(())
        return assign_nodes_to_ranks(profile, select_configured_nodes(names) if names else (), configured)
    if not names:
        return (select_one_node(None),)
    nodes = select_configured_nodes(names)
    refuse_wrong_node_count(profile, nodes)
    return tuple(nodes)


def node_option(*, many: bool, about: str = " (repeatable; default: all)") -> Callable[[F], F]:
    """Return the ``--node`` option, completed from the config."""
    about = "A configured node, an SSH alias, or user@host" + (about if many else "") + "."
    return click.option(
        "-n", "--node", multiple=True, metavar="NODE", help=about, shell_complete=complete_nodes,
        callback=None if many else _require_single_node,
    )  # fmt: skip


def _require_single_node(ctx: click.Context, param: click.Parameter, value: tuple[str, ...]) -> str | None:
    names = list(dict.fromkeys(value))
    if len(names) > 1:
        raise click.UsageError(f"{ctx.info_name} takes one node; you gave {' and '.join(names)}", ctx)
    return names[0] if names else None


def json_option(command: F) -> F:
    """Add ``--json``, ``-o`` and ``-q`` to a verb that prints events."""
    return _output_options("Print JSON lines on stdout instead of text.", is_stream=True)(quiet_option(command))


def json_document_option(command: F) -> F:
    """Add ``--json`` and ``-o`` to a verb that prints one document."""
    return _output_options("Print one JSON document on stdout instead of text.")(command)


def wide_document_option(command: F) -> F:
    """Add ``--json`` and ``-o``, which knows ``wide``, too, to a verb that prints a table."""
    return _output_options("Print one JSON document on stdout instead of text.", "wide")(command)


def _output_options(about: str, *more: str, is_stream: bool = False) -> Callable[[F], F]:
    def add_options(command: F) -> F:
        command = click.option(
            "-o", "--output", type=click.Choice([*more, *_JSON_FORMATS]), is_eager=True, expose_value=False,
            callback=_note_in(FORMAT_OPTION), help="Choose the format; json is --json.",
        )(command)  # fmt: skip
        if not is_stream:
            command = click.option(  # as Docker calls it
                "--format",
                type=click.Choice([*more, *_JSON_FORMATS]),
                is_eager=True,
                expose_value=False,
                hidden=True,
                callback=_note_in(FORMAT_OPTION),
            )(command)
        return click.option("--json", "as_json", is_flag=True, callback=_is_json_asked, help=about)(command)

    return add_options


_JSON_FORMATS = ("json", "yaml")


def _is_json_asked(ctx: click.Context, param: click.Parameter, value: bool) -> bool:
    return value or ctx.meta.get(FORMAT_OPTION) in _JSON_FORMATS


def _note_in(key: str) -> Callable[[click.Context, click.Parameter, object], None]:
    def note(ctx: click.Context, param: click.Parameter, value: object) -> None:
        if value:
            ctx.meta[key] = value

    return note


quiet_option = click.option(
    "-q",
    "--quiet",
    is_flag=True,
    expose_value=False,
    callback=_note_in(QUIET_OPTION),
    help="Print only data, warnings and errors.",
)
colour_option = click.option(
    "--color",
    type=click.Choice(["auto", "always", "never"]),
    expose_value=False,
    callback=_note_in(COLOUR_OPTION),
    help="Use colour: auto (on a terminal, unless NO_COLOR is set), always or never.",
)


def complete_nodes(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """Complete node names; nothing if the config is invalid, because an error would disturb the prompt."""
    return [name for name in _list_node_names() if name.startswith(incomplete)]


def _list_node_names() -> list[str]:
    from sparkctl.cli.instance_cache import read_config_nodes

    def read_names() -> list[str]:
        from sparkctl.config import load_config  # late: the parser of YAML takes a quarter of the time

        return [str(node.name) for node in load_config(required=False).nodes]

    try:
        return read_config_nodes(read_names)
    except SparkctlError:
        return []


def complete_profiles(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    return _list_profile_names(incomplete)


def _list_profile_names(prefix: str) -> list[str]:
    from sparkctl.files import read_only_profiles_dir, shipped_profiles_dir, user_profiles_dir

    # by the files alone: importing what reads them takes longer than a shell may wait
    directories = (user_profiles_dir(), read_only_profiles_dir(), shipped_profiles_dir())
    files = (path for one in directories if one is not None for path in one.glob("*.y*ml"))
    return sorted({path.stem for path in files if path.name.startswith(prefix) and path.name[0] not in "._"})


def complete_instances(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """Complete the names of instances: those that the panel knows or that were last seen, else profiles; no node is asked."""
    from sparkctl.cli.instance_cache import read_instances

    if callable(ctx.obj):
        return [name for name in ctx.obj(ctx.info_name) if name.startswith(incomplete)]
    seen = [name for name in read_instances() or () if name.startswith(incomplete)]
    return seen or complete_profiles(ctx, param, incomplete)


def complete_logged_instances(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """Complete the names of instances, and of those that have gone and left a saved log."""
    from sparkctl.files import state_dir

    saved = (path.name for path in (state_dir() / "logs").glob("*"))
    found = [*complete_instances(ctx, param, incomplete), *sorted(saved)]
    return [name for name in dict.fromkeys(found) if name.startswith(incomplete)]


def parse_duration_option(ctx: click.Context, param: click.Parameter, value: str | None) -> float | None:
    """Parse a duration option such as ``20m`` into seconds."""
    from sparkctl.model.text.units import parse_duration

    try:
        found = None if value is None else parse_duration(value)
    except ValueError as wrong:
        raise click.BadParameter(str(wrong), ctx, param) from wrong
    if found == 0:
        raise click.BadParameter(f"{value!r} is zero; give a duration such as 20m", ctx, param)
    return found


class _Limits:
    """Says in the words of the other options that a value is no number within limits."""

    name: Any
    min: Any
    max: Any

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        try:
            return super().convert(value, param, ctx)  # type: ignore[misc]  # click's, whose class comes after this one
        except click.BadParameter as wrong:
            limits = f"from {self.min:g} " + ("upwards" if self.max is None else f"to {self.max:g}")
            raise click.BadParameter(f"{value!r} is not a {self.name} {limits}", ctx, param) from wrong


class WholeNumber(_Limits, click.IntRange):
    name = "whole number"


class Number(_Limits, click.FloatRange):
    name = "number"


def accept_silently(*names: str) -> Callable[[F], F]:
    """Add flags of other tools that ask for what is done anyway; help does not show them."""
    return click.option(*names, is_flag=True, hidden=True, expose_value=False)


ascii_option = click.option(
    "--ascii", is_flag=True, expose_value=False, callback=_note_in(ASCII_OPTION), help="Use only ASCII characters."
)


def prepare_command(command: click.Command) -> click.Command:
    """Let a verb take ``--ascii`` and ``--color`` (shown in sparkctl's own help alone); its help follows the terminal's width."""
    command.context_class = HelpContext
    for decorate in (ascii_option, colour_option):
        holder = decorate(click.Command(None))
        (option,) = holder.params
        assert isinstance(option, click.Option)
        option.hidden = True
        if not any(set(option.opts) & set(one.opts) for one in command.params):
            command.params.append(option)
    for below in command.commands.values() if isinstance(command, click.Group) else ():
        prepare_command(below)
    return command


def record_options(command: F) -> F:
    """Add ``--record`` and ``--overwrite``, with ``--force`` as its alias for verbs that have no other --force."""
    return record_option(_overwrite_option("--overwrite", "--force")(command))


def _overwrite_option(*names: str) -> Callable[[F], F]:
    return click.option(*names, "overwrite", is_flag=True, help="Let --record overwrite an existing file.")


overwrite_option = _overwrite_option("--overwrite")
record_option = click.option(
    "--record",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Write all events to FILE, for `top --replay`; secrets are masked.",
)
