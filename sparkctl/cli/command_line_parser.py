"""Reads the panel's command line by the CLI's own options: a line becomes the request that the verb would run."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence

import click
from click.core import ParameterSource

from sparkctl.cli.options import VERB_ALIASES, VERB_HINTS, RequestCommand
from sparkctl.commands.actions import ACTIONS, PANEL_VERBS
from sparkctl.commands.request import Request, ScreenTarget
from sparkctl.errors import InvalidInput, format_did_you_mean
from sparkctl.model.node import NodeName
from sparkctl.tui.panel_options import AVAILABLE_SCREENS, InstanceLister

_CLI_ONLY_OPTIONS = ("--json", "--output", "-o", "--quiet", "-q", "--record", "--format")
_HIDDEN_OPTIONS = frozenset(_CLI_ONLY_OPTIONS)
_LOG_SCREEN_OPTIONS = frozenset(("--node", "--follow"))
_LOG_SCREEN_PARAMETERS = ("instance", "node", "follow")  # the log screen knows these; it always follows
_DIAGNOSIS_PARAMETERS = ("log", "node")  # the panel's diagnosis knows these
_SHOWN_VERBS = ("status", "top")  # a screen shows the same
# what only prints: the panel shows its text
_PRINTED_LINES = (
    ("endpoints",), ("models",), ("images",), ("check",), ("guard", "status"),
    ("profiles", "list"), ("profiles", "show"), ("profiles", "check"),
)  # fmt: skip
_CHANGING_OPTIONS = frozenset(("--fix",))  # of these
_EXPLICIT_SOURCES = (ParameterSource.COMMANDLINE, ParameterSource.ENVIRONMENT)


class CommandLineParser:
    """Parses and completes the `:` line with the click commands ``verbs``: those of its actions, and the read-only ones."""

    verbs = tuple(
        dict.fromkeys(
            (
                *(
                    action.verb
                    for action in ACTIONS
                    if action.verb and (action.screen is None or action.screen in AVAILABLE_SCREENS)
                ),
                *_SHOWN_VERBS,
                *(line[0] for line in _PRINTED_LINES),
            )
        )
    )

    def __init__(self, root_command: click.Group) -> None:
        self._root_command = root_command

    def complete_line(self, line: str, instances: InstanceLister | None = None) -> tuple[str, ...]:
        """Return completions of the last word, as whole words; none for a line that cannot be parsed.

        ``instances`` returns the names of the instances that a verb may take; None: profiles take their place.
        """
        from click.shell_completion import ShellComplete

        try:
            words = shlex.split(line)
        except ValueError:
            return ()
        last = words.pop() if words and not line.endswith(" ") else ""
        if not words:
            return tuple(verb for verb in self.verbs if verb.startswith(last))
        if words[0] == "help" and len(words) == 1:
            return tuple(verb for verb in self.verbs if verb not in PANEL_VERBS and verb.startswith(last))
        if words[0] not in self.verbs or words[0] in PANEL_VERBS:
            return ()
        group = self._root_command.get_command(self._make_context(), words[0])
        if isinstance(group, click.Group):
            default = getattr(group, "default_command", None)
            if default is None or set(words[1:2]) & set(group.commands):
                return ()  # subcommands are for the command line only
            words = [words[0], default, *words[1:]]
        items = ShellComplete(self._root_command, {"obj": instances}, "sparkctl", "_SPARKCTL_COMPLETE").get_completions(
            words, last
        )
        taken = (
            _HIDDEN_OPTIONS
            if words[0] != "logs"
            else {item.value for item in items if item.value[:1] == "-"} - _LOG_SCREEN_OPTIONS
        )
        return tuple(item.value for item in items if item.type == "plain" and item.value not in taken)

    def parse_request(self, words: Sequence[str], nearest: Sequence[NodeName] = ()) -> Request | ScreenTarget:
        """Return what a command line asks for. Raises `SparkctlError` as the command line does.

        ``nearest``: the nodes that a switch takes where the line names none, as many as the profile has ranks.
        """
        if not words:
            raise InvalidInput("type a command", ", ".join(self.verbs))
        words = (*VERB_ALIASES.get(words[0], words[:1]), *words[1:])
        verb, *rest = words
        outer = self._make_context()
        if verb not in self.verbs:
            if hint := VERB_HINTS.get(verb):
                raise InvalidInput(f"sparkctl has no command {verb}", hint)
            elsewhere = verb in self._root_command.list_commands(outer)
            raise InvalidInput(
                f"no command `{verb}` in the panel; in a shell: sparkctl {shlex.join(words)}"
                if elsewhere
                else f"no command `{verb}`{format_did_you_mean(verb, self.verbs)}",
                f"the panel knows: {', '.join(self.verbs)}",
            )
        if verb in PANEL_VERBS:
            raise InvalidInput(f"`{verb}` takes nothing else" if rest else f"`{verb}` is for the panel")
        if idle := [word for word in rest if word.partition("=")[0] in _CLI_ONLY_OPTIONS]:
            raise InvalidInput(f"{idle[0]} is for the command line: sparkctl {shlex.join(words)}")
        command = self._root_command.get_command(outer, verb)
        assert command is not None
        if "--help" not in rest and self._only_prints(words, command):
            return ScreenTarget(verb=verb, words=tuple(words))
        default = getattr(command, "default_command", None)  # `bench NAME` is `bench run NAME`
        if isinstance(command, click.Group) and default is not None:
            if rest[:1] == [default]:
                rest = rest[1:]
            if not set(rest[:1]) & set(command.commands):
                outer = click.Context(command, info_name=verb, parent=outer)
                command = command.commands[default]
        if "--help" in rest or "-h" in rest:
            raise InvalidInput(
                command.get_usage(click.Context(command, info_name=verb, parent=outer)), command.short_help
            )
        try:
            with command.make_context(verb, list(rest), parent=outer) as ctx:
                if verb in _SCREEN_TARGETS:
                    given = {
                        str(param.name): next((one for one in param.opts if one.startswith("--")), param.opts[-1])
                        for param in command.params
                        if ctx.get_parameter_source(param.name or "") in _EXPLICIT_SOURCES
                    }
                    return _SCREEN_TARGETS[verb](ctx, words, given)
                if verb == "switch" and nearest and not ctx.params["node"]:
                    ctx.params["node"] = _choose_rank_nodes(ctx, nearest)
                if isinstance(command, RequestCommand):
                    prepared = command.prepare_verb(ctx)
                    if prepared.later:
                        raise InvalidInput(f"`{verb}` takes one at a time here")
                    if not callable(prepared.request):
                        return prepared.request
        except click.ClickException as wrong:
            usage = wrong.ctx.get_usage() if isinstance(wrong, click.UsageError) and wrong.ctx else None
            raise InvalidInput(wrong.format_message(), usage) from wrong
        raise InvalidInput(f"`{verb}` is for the command line: sparkctl {shlex.join(words)}")

    def _only_prints(self, words: Sequence[str], command: click.Command) -> bool:
        """Tell whether a command line prints something and changes nothing."""
        line = next((line for line in _PRINTED_LINES if tuple(words[: len(line)]) == line), None)
        if line is None or _CHANGING_OPTIONS.intersection(words):
            return False
        return len(line) > 1 or not (isinstance(command, click.Group) and set(words[1:]) & set(command.commands))

    def _make_context(self) -> click.Context:
        return click.Context(self._root_command, info_name="sparkctl", **self._root_command.context_settings)


def _choose_rank_nodes(ctx: click.Context, nearest: Sequence[NodeName]) -> tuple[str, ...]:
    """Return as many of the nodes as the profile of a switch has ranks. Raises `InvalidInput` for a bad profile."""
    from sparkctl.profiles.profile_library import ProfileLibrary

    profile = ProfileLibrary().load_profile(ctx.params["profile"], overrides=ctx.params["overrides"])
    return tuple(map(str, nearest[: profile.nodes]))


def _parse_log_target(ctx: click.Context, words: Sequence[str], given: Mapping[str, str]) -> ScreenTarget:
    if idle := [option for name, option in given.items() if name not in _LOG_SCREEN_PARAMETERS]:
        raise InvalidInput(
            f"{idle[0]} is for the command line: sparkctl {shlex.join(words)}",
            "in the panel's log: / searches, & filters, T goes back in time",
        )
    if ctx.params["instance"] is None:
        raise InvalidInput("whose log?", "logs NAME    or `l` on an instance")
    return ScreenTarget(verb="logs", name=ctx.params["instance"], nodes=tuple(map(NodeName, ctx.params["node"])))


def _parse_diagnosis_target(ctx: click.Context, words: Sequence[str], given: Mapping[str, str]) -> ScreenTarget:
    name = ctx.params["log"]
    if set(given) - set(_DIAGNOSIS_PARAMETERS) or name is None or "/" in name or name == "-":
        raise InvalidInput(
            "the panel diagnoses instances only: diagnose NAME [--node NODE]",
            f"for a file or other options use the command line: sparkctl {shlex.join(words)}",
        )
    return ScreenTarget(verb="diagnose", name=name, nodes=tuple(map(NodeName, ctx.params["node"])))


def _parse_history_target(ctx: click.Context, words: Sequence[str], given: Mapping[str, str]) -> ScreenTarget:
    first, *more = ctx.params["words"] or ("",)
    if first == "show":
        number = int(more[0]) if more and more[0].isdecimal() else None
        return ScreenTarget(verb="history", operation=number)
    return ScreenTarget(verb="history", name=first or None)


def _parse_shown_target(ctx: click.Context, words: Sequence[str], given: Mapping[str, str]) -> ScreenTarget:
    """Return the instance or the node that `status` and `top` are about; how they would print it is no matter here."""
    nodes = (*ctx.params.get("nodes", ()), *ctx.params["node"])
    return ScreenTarget(verb=words[0], name=ctx.params.get("name"), nodes=tuple(map(NodeName, nodes)))


# what the panel shows on a screen: its reading of the parsed line, its words, and the options given in it
_SCREEN_TARGETS = {
    "logs": _parse_log_target,
    "diagnose": _parse_diagnosis_target,
    "history": _parse_history_target,
    "status": _parse_shown_target,
    "top": _parse_shown_target,
}
