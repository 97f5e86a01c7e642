"""Reads a command line that the panel runs, by the CLI's own options, and prepares it as a command of the panel."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

import click
from click.core import ParameterSource

from sparkctl.cli.options import use_context
from sparkctl.cli.verb_runner import capture_verbs
from sparkctl.commands.actions import ACTIONS, PANEL_VERBS
from sparkctl.context import CommandContext
from sparkctl.errors import InvalidInput
from sparkctl.model.text.suggestions import format_did_you_mean
from sparkctl.tui.panel_options import AVAILABLE_SCREENS, PreparedCommand

_CLI_ONLY_OPTIONS = ("--json", "--record", "--format")
_HIDDEN_OPTIONS = frozenset(_CLI_ONLY_OPTIONS)
_LOG_SCREEN_OPTIONS = frozenset(("--node", "--follow"))
_LOG_SCREEN_PARAMETERS = ("instance", "node", "follow")  # the log screen knows these; it always follows
_EXPLICIT_SOURCES = (ParameterSource.COMMANDLINE, ParameterSource.ENVIRONMENT)


class CommandLineParser:
    """Parses and completes the panel's command line (`:`) with the click commands. ``verbs`` are those of its actions."""

    verbs = tuple(
        dict.fromkeys(
            action.verb
            for action in ACTIONS
            if action.verb and (action.screen is None or action.screen in AVAILABLE_SCREENS)
        )
    )

    def __init__(self, root_command: click.Group) -> None:
        self._root_command = root_command

    def complete_line(self, line: str) -> tuple[str, ...]:
        """Return completions of the last word, as whole words; none for a line that cannot be parsed."""
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
        if isinstance(self._root_command.get_command(click.Context(self._root_command), words[0]), click.Group):
            return ()  # subcommands are for the command line only
        items = ShellComplete(self._root_command, {}, "sparkctl", "_SPARKCTL_COMPLETE").get_completions(words, last)
        taken = (
            _HIDDEN_OPTIONS
            if words[0] != "logs"
            else {item.value for item in items if item.value[:1] == "-"} - _LOG_SCREEN_OPTIONS
        )
        return tuple(item.value for item in items if item.type == "plain" and item.value not in taken)

    def parse_screen_target(self, words: Sequence[str]) -> tuple[str, ...]:
        """Parse a line that opens a screen; return its words as ``verb instance --node NAME``, without missing parts.

        Raises `InvalidInput` as the command line does, and for an option that no screen knows."""
        verb, *rest = words
        outer = click.Context(self._root_command, info_name="sparkctl")
        command = self._root_command.get_command(outer, verb)
        assert command is not None
        try:
            with command.make_context(verb, list(rest), parent=outer) as ctx:
                given = [one for one in command.params if ctx.get_parameter_source(one.name or "") in _EXPLICIT_SOURCES]
                idle = [one.opts[-1] for one in given if one.name not in _LOG_SCREEN_PARAMETERS]
                instance, nodes = ctx.params.get("instance"), ctx.params.get("node") or ()
        except click.ClickException as wrong:
            usage = wrong.ctx.get_usage() if isinstance(wrong, click.UsageError) and wrong.ctx else None
            raise InvalidInput(wrong.format_message(), usage) from wrong
        if idle:
            raise InvalidInput(
                f"{idle[0]} is for the command line: sparkctl {shlex.join(words)}",
                "in the panel's log: / searches, & filters, T goes back in time",
            )
        return (verb, *([str(instance)] if instance else []), *(["--node", str(nodes[0])] if nodes else []))

    def parse_command(self, words: Sequence[str], context: CommandContext) -> PreparedCommand:
        """Parse a command line without running it. Raises `SparkctlError` as the command line does."""
        if not words:
            raise InvalidInput("type a verb", ", ".join(self.verbs))
        verb, *rest = words
        if verb not in self.verbs:
            elsewhere = verb in self._root_command.list_commands(click.Context(self._root_command))
            raise InvalidInput(
                f"`{verb}` is for the command line"
                if elsewhere
                else f"no such verb: {verb}{format_did_you_mean(verb, self.verbs)}",
                f"here: {', '.join(self.verbs)}",
            )
        if verb in PANEL_VERBS:
            raise InvalidInput(f"`{verb}` takes nothing else" if rest else f"`{verb}` is for the panel")
        if idle := [word for word in rest if word.partition("=")[0] in _CLI_ONLY_OPTIONS]:
            raise InvalidInput(f"{idle[0]} is for the command line: sparkctl {shlex.join(words)}")
        return self._parse_with_click(verb, rest, context)

    def _parse_with_click(self, verb: str, rest: Sequence[str], context: CommandContext) -> PreparedCommand:
        outer = click.Context(self._root_command, info_name="sparkctl")
        command = self._root_command.get_command(outer, verb)
        assert command is not None
        if "--help" in rest or "-h" in rest:
            raise InvalidInput(command.get_usage(click.Context(command, info_name=verb)), command.short_help)
        with capture_verbs() as verbs, use_context(context):
            try:
                with command.make_context(verb, list(rest), parent=outer) as ctx:
                    nodes = _target_nodes(ctx.params.get("node") or ctx.params.get("nodes"))
                    command.invoke(ctx)
            except click.ClickException as wrong:
                usage = wrong.ctx.get_usage() if isinstance(wrong, click.UsageError) and wrong.ctx else None
                raise InvalidInput(wrong.format_message(), usage) from wrong
        if not verbs:
            raise InvalidInput(f"`{verb}` is for the command line: sparkctl {shlex.join((verb, *rest))}")
        return PreparedCommand(verb=verb, words=(verb, *rest), nodes=nodes, context=context, events=verbs[0])


def _target_nodes(given: object) -> tuple[str, ...]:
    """Return the nodes that a command line names, or the only configured node."""
    if isinstance(given, str):
        return (given,)
    if isinstance(given, tuple) and given:
        return tuple(map(str, given))
    from sparkctl.config import load_config

    names = [node.name for node in load_config(required=False).nodes]
    return tuple(names) if len(names) == 1 or given == () else ()
