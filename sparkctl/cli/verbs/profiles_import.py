"""``sparkctl profiles import``."""

from __future__ import annotations

import re
import shlex
import sys
from pathlib import Path

import click

from sparkctl.cli.options import create_context, json_document_option, node_option, select_one_node

_COMMAND_PROGRAMS = ("docker", "podman", "nerdctl", "sudo")


class _PastedLineCommand(click.Command):
    """A command whose words may be a `docker run` line without quotes: all behind ``docker`` is the line's own."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Put ``--`` before the line."""
        args = _with_allow_values(args)
        at = next((at for at, word in enumerate(args) if word in _COMMAND_PROGRAMS), None)
        if at is not None and "--" not in args[:at] and len(args) > at + 1:
            args = [*args[:at], "--", *args[at:]]
        return super().parse_args(ctx, args)


def _with_allow_values(args: list[str]) -> list[str]:
    """Return the words with ``--allow NAME`` as ``--allow=NAME``: a bare ``--allow`` must not take the source for a name."""
    from sparkctl.profiles.importers.import_policy import ALLOW_ALL

    found: list[str] = []
    at = 0
    while at < len(args) and args[at] != "--" and args[at] not in _COMMAND_PROGRAMS:
        word, following = args[at], args[at + 1] if at + 1 < len(args) else None
        at += 1
        if word == "--allow" and following is not None and _is_allow_name(following):
            word, at = f"--allow={following}", at + 1
        found.append(f"--allow={ALLOW_ALL}" if word == "--allow" else word)
    return [*found, *args[at:]]


def _is_allow_name(word: str) -> bool:
    """Tell a name of `--allow`, a misspelled one too, from a flag, a line, a dash for stdin and a file's path."""
    from sparkctl.profiles.importers.import_policy import normalize_allow_name

    if word.startswith("-") or word in _COMMAND_PROGRAMS:
        return False
    looks_so = re.fullmatch(r"[A-Za-z][A-Za-z_-]*(=.*)?", word) is not None
    return normalize_allow_name(word.partition("=")[0]) is not None or (looks_so and not Path(word).exists())


@click.command(
    "import", cls=_PastedLineCommand, short_help="Make a profile of a docker run line, a recipe or a container."
)
@click.argument("source", nargs=-1, metavar="FILE|LINE|-")
@click.option("-o", "--output", type=click.Path(dir_okay=False), metavar="FILE", help="Write the profile to FILE.")
@click.option("--save", is_flag=True, help="Write it into your own profiles, so that `up` finds it.")
@click.option("--force", is_flag=True, help="Write over a file that is there.")
@click.option("--name", metavar="NAME", help="What the profile is called.")
@click.option("--service", metavar="NAME", help="Which service of a compose file.")
@click.option("--define", multiple=True, metavar="NAME=VALUE", help="The value of a $NAME or of a recipe's {NAME}.")
@click.option(
    "--allow",
    multiple=True,
    metavar="[NAME[=VALUE]]",
    help="Take what is withheld too: all of it, or what the report calls NAME (mount, device, privileged, env, ...).",
)
@click.option("--from-container", metavar="CONTAINER", help="Import a container that is on --node.")
@node_option(many=False)
@json_document_option
@click.pass_context
def command(
    ctx: click.Context, source: tuple[str, ...], output: str | None, save: bool, force: bool, name: str | None,
    service: str | None, define: tuple[str, ...], allow: tuple[str, ...], from_container: str | None, node: str | None,
    as_json: bool,
) -> int:  # fmt: skip
    """Make a profile of a `docker run` line, a compose file, a sparkrun or eugr recipe, or a container.

    \b
    sparkctl profiles import 'docker run --gpus all -p 8000:8000 vllm/vllm-openai:v0.19.1 --model Qwen/Qwen3-8B'
    sparkctl profiles import recipe.yaml --save
    sparkctl profiles import --from-container vllm_node --node spark1 -o mine.yaml

    Prints the profile; what could not be taken over is said on stderr, key by key. Nothing is started, and nothing of
    the source is run.
    """
    if (from_container is None) == (not source):
        raise click.UsageError("name a file, paste a docker run line, or give --from-container and --node", ctx)
    if output is not None and save:
        raise click.UsageError("either -o FILE or --save, not both", ctx)
    if node is not None and from_container is None:
        raise click.UsageError("--node belongs to --from-container", ctx)
    from sparkctl.commands import import_profile
    from sparkctl.profiles import field_types
    from sparkctl.profiles.importers.import_policy import parse_allow_names
    from sparkctl.profiles.profile_library import ProfileLibrary

    library = ProfileLibrary()
    directory = library.user if save else Path(output).expanduser().parent if output is not None else None
    try:
        chosen = name and field_types.check_name(name)
    except ValueError as wrong:
        raise click.UsageError(f"--name: {wrong}", ctx) from wrong
    try:
        request = import_profile.ImportProfile(
            name=chosen, service=service, allow=parse_allow_names(allow), define=define, directory=directory
        )
    except ValueError as wrong:
        raise click.UsageError(f"--allow: {wrong}", ctx) from wrong
    if from_container is not None:
        context = create_context(may_ask=not as_json)
        from sparkctl.cli import verb_runner

        found = verb_runner.run_async(
            import_profile.import_from_container(context, select_one_node(node), from_container, request)
        )
    else:
        found = import_profile.import_from_source(_read_source(source), request)
    if output is not None:
        found = import_profile.write_profile_file(found, Path(output).expanduser(), force=force)
    elif save:
        found = import_profile.save_to_library(found, library, force=force)
    _print_report(found, as_json)
    return 0


def _read_source(source: tuple[str, ...]) -> str:
    """Return what is meant: stdin for a dash, one word as it is, several as the line they were before the shell."""
    if source == ("-",):
        return sys.stdin.buffer.read(1 << 20).decode("utf-8-sig", "replace")
    return source[0] if len(source) == 1 else shlex.join(source)


def _print_report(found: object, as_json: bool) -> None:
    from sparkctl.cli import stderr, stdout
    from sparkctl.commands.import_profile import ImportedProfile
    from sparkctl.views.profiles.profile_import_view import build_import_json, format_import_report

    assert isinstance(found, ImportedProfile)
    if as_json:
        path = None if found.path is None else str(found.path)
        stdout.print_json(build_import_json(found.imported, found.text, path, found.cautions))
    else:
        for line in format_import_report(found.imported):
            stderr.print_message(line, 12)
        if found.path is None:
            stdout.print_sanitized_lines(found.text.rstrip("\n").split("\n"))
        else:
            stdout.print_line(str(found.path))
    for one in found.cautions if not as_json else ():
        hint = None if one.setting is None else f"in the profile, or for one start: --set {one.setting}"
        stderr.print_warning(None, one.message, hint)
    if found.over_shipped:
        stderr.print_warning(
            None, f"it stands over the shipped profile {found.profile.name}", "--name gives it another name"
        )
