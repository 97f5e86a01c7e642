"""``sparkctl profiles``: list, show, check, import, export and edit profiles."""

from __future__ import annotations

import json
import re
import shlex
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from sparkctl.cli import stderr, stdout
from sparkctl.cli.options import (
    VerbGroup,
    complete_profiles,
    create_context,
    json_document_option,
    node_option,
    select_one_node,
)
from sparkctl.errors import ExitCode, InvalidInput, OperationRefused
from sparkctl.model.text.sanitize import sanitize_line

if TYPE_CHECKING:
    from sparkctl.commands.import_profile import ImportedProfile
    from sparkctl.model.profile import Profile
    from sparkctl.profiles.profile_library import ProfileLibrary
    from sparkctl.profiles.profile_lint import LintDiagnostic


_NEW_PROFILE = """\
# The fields: sparkctl help profiles. What is wrong: sparkctl profiles check {name}
schema: 1
name: {name}
engine: vllm
image: scitrera/dgx-spark-vllm:0.19.1
model:
  path: /models/MODEL  # in the container; the directory on the Spark is mounted below
args:
  gpu-memory-utilization: 0.8
mounts:
  - ~/models:/models
"""

_NAME_LINE = re.compile(r"(?m)^(name:[ \t]*+)([\"']?)([A-Za-z0-9._-]+)\2(?=\s|$)")  # of a profile file


@click.group("profiles", cls=VerbGroup, short_help="List, show, check, edit and import profiles.")
def profiles_command() -> None:
    """Manage profiles. A profile says what to start and how. Your own win over shipped ones of the same name.

    \b
    sparkctl profiles list
    sparkctl profiles new mine --from qwen36-vllm
    sparkctl profiles import recipe.yaml --save
    """


@profiles_command.command("new", short_help="Make a profile of your own.")
@click.argument("name")
@click.option(
    "--from",
    "base",
    metavar="PROFILE|hf:ORG/NAME",
    help="Extend this profile; of a model on the Hub, write one with plain settings.",
    shell_complete=complete_profiles,
)
@click.option("--set", "overrides", multiple=True, metavar="FIELD=VALUE", help="Set a field in it (with --from).")
@click.pass_context
def new_command(ctx: click.Context, name: str, base: str | None, overrides: tuple[str, ...]) -> int:
    """Make a profile of your own called NAME, and print its path. It is checked before it is written: a flag that the
    engine's version does not take is refused (exit 2), everything else is a warning.

    \b
    sparkctl profiles new mine --from qwen36-vllm --set args.max-model-len=32768
    sparkctl profiles new mine --from hf:Qwen/Qwen3-8B     a model without a profile
    sparkctl profiles new mine                             an example to edit
    """
    from sparkctl.commands.start.check_fit import propose_profile
    from sparkctl.profiles.field_types import check_name
    from sparkctl.profiles.profile_edit import set_field_in_text
    from sparkctl.profiles.profile_library import ProfileLibrary
    from sparkctl.profiles.yaml_writer import render_profile_yaml

    try:
        check_name(name)
    except ValueError as wrong:
        raise click.UsageError(str(wrong), ctx) from wrong
    if overrides and base is None:
        raise click.UsageError("--set needs --from", ctx)
    library = ProfileLibrary()
    if name in library.list_names():
        raise InvalidInput(f"there is a profile {name} already", f"sparkctl profiles edit {name}")
    text = _NEW_PROFILE.format(name=name)
    path = library.user / f"{name}.yaml"
    if base is not None:
        is_model = base.startswith("hf:")
        profile = propose_profile(base, overrides) if is_model else library.load_profile(base, overrides)
        _check_new_profile(profile)
        text = f"schema: 1\nname: {name}\nextends: {base}\n"
        for setting in overrides:
            text = set_field_in_text(text, setting, str(path))
        if is_model:
            text = render_profile_yaml(replace(profile, name=name))
    _write_new_file(path, text)
    stdout.print_line(str(path))
    stderr.print_message(f"next: sparkctl {'plan' if base and base.startswith('hf:') else 'profiles edit'} {name}")
    return 0


def _check_new_profile(profile: Profile) -> None:
    """Print the check's warnings. Raises `InvalidInput` for a flag that the engine's version does not take."""
    from sparkctl.profiles.profile_lint import list_start_warnings

    found = list_start_warnings(profile)
    if wrong := [one for one in found if one.refused_flag is not None]:
        names = ", ".join(dict.fromkeys((one.refused_flag or "").lstrip("-") for one in wrong if one.is_patchable))
        patched = f"if your image is patched and takes it: --set 'patched_flags=[{names}]'" if names else None
        raise InvalidInput("; ".join(one.message for one in wrong), patched)
    for one in found:
        stderr.print_message(f"▲ {one.message}")


@profiles_command.command("edit", short_help="Edit a profile in your editor, and check it.")
@click.argument("name", shell_complete=complete_profiles)
def edit_command(name: str) -> int:
    """Open the file of NAME in $VISUAL or $EDITOR, then check it. A shipped profile is copied to your own first; a copy
    without changes is removed again.

    \b
    sparkctl profiles edit qwen36-vllm
    EDITOR=vim sparkctl profiles edit mine

    Exit 2 if the check finds an error.
    """
    from sparkctl.cli.verbs.shell import run_program
    from sparkctl.engines.lint import LintSeverity
    from sparkctl.profiles.profile_editor import ProfileEdit
    from sparkctl.views.profiles.lint_view import format_lint

    edit = ProfileEdit.begin(name)
    try:
        status = run_program(edit.argv)
    finally:
        is_same = edit.end()
    for note in edit.describe_end(status, is_same=is_same):
        stderr.print_message(note, is_trouble=bool(status))
    if not edit.path.exists():
        return int(ExitCode.DONE if is_same else ExitCode.USAGE)
    checked = edit.check()
    for each in format_lint(name, checked):
        stderr.print_message(each, 2)
    return int(ExitCode.USAGE if checked.list_by_level(LintSeverity.ERROR) else ExitCode.DONE)


@profiles_command.command("rename", short_help="Rename a profile of your own.")
@click.argument("name", shell_complete=complete_profiles)
@click.argument("new_name", metavar="NEW")
@click.pass_context
def rename_command(ctx: click.Context, name: str, new_name: str) -> int:
    """Rename a profile of your own: the name in its file, and the file. What runs keeps the name that it was started with.

    \b
    sparkctl profiles rename mine qwen-long
    sparkctl profiles list
    """
    from sparkctl.profiles.field_types import check_name
    from sparkctl.profiles.profile_edit import read_source
    from sparkctl.profiles.profile_library import ProfileLibrary

    try:
        check_name(new_name)
    except ValueError as wrong:
        raise click.UsageError(str(wrong), ctx) from wrong
    library = ProfileLibrary()
    path = _find_own_file(library, name)
    if new_name in library.list_names():
        raise InvalidInput(f"there is a profile {new_name} already", "sparkctl profiles list")
    _refuse_base(library, name)
    mark, text = read_source(path)
    named = _NAME_LINE.sub(lambda found: f"{found[1]}{new_name}" if found[3] == name else found[0], text, count=1)
    target = path.with_name(f"{new_name}{path.suffix}")
    _write_new_file(target, mark + named.encode("utf-8"))
    path.unlink()
    stdout.print_line(str(target))
    return 0


@profiles_command.command("remove", short_help="Delete a profile of your own.")
@click.argument("name", shell_complete=complete_profiles)
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
def remove_command(name: str, yes: bool) -> int:
    """Delete the file of a profile of your own, after a question. What runs keeps running; a shipped profile of the same
    name applies again.

    \b
    sparkctl profiles remove mine
    sparkctl profiles remove mine --yes
    """
    from sparkctl.cli import stderr, verb_runner
    from sparkctl.cli.terminal_prompter import confirm
    from sparkctl.profiles.profile_library import ProfileLibrary

    library = ProfileLibrary()
    path = _find_own_file(library, name)
    if not (library.shipped / f"{name}.yaml").is_file():
        _refuse_base(library, name)
    if not yes and not sys.stdin.isatty():
        raise OperationRefused(f"{path} is not deleted without a yes", f"sparkctl profiles remove {name} --yes")
    if not yes and not verb_runner.run_async(confirm(f"delete {path}?")):
        raise OperationRefused(f"{path} is not deleted", None)
    path.unlink()
    stderr.print_message(f"deleted {path}")
    return 0


def _find_own_file(library: ProfileLibrary, name: str) -> Path:
    """Return the operator's file of a profile. Raises `InvalidInput` for a shipped one."""
    path = library.find_profile_file(name)
    if not library.is_writable(path):
        what = (
            "shipped with sparkctl, and stays"
            if library.is_shipped(path)
            else "your own profile, which the demo does not change"
        )
        raise InvalidInput(
            f"{name} is {what}", f"one of your own that builds on it: sparkctl profiles new NAME --from {name}"
        )
    return path


def _refuse_base(library: ProfileLibrary, name: str) -> None:
    """Raise `InvalidInput` where other profiles extend this one."""
    from sparkctl.profiles.yaml_reader import read_yaml

    heirs = []
    for one in library.list_names():
        try:
            extends = read_yaml(library.find_profile_file(one)).entries.get("extends")
        except InvalidInput:
            continue
        if one != name and extends is not None and extends.item.raw == name:
            heirs.append(one)
    if heirs:
        raise InvalidInput(
            f"{', '.join(heirs)} extend {name}" if len(heirs) > 1 else f"{heirs[0]} extends {name}",
            f"sparkctl profiles edit {heirs[0]}",
        )


def _write_new_file(path: Path, content: str | bytes) -> None:
    """Write a file that does not exist yet."""
    from sparkctl.files import write_whole_file

    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole_file(path, content.encode("utf-8") if isinstance(content, str) else content)
    except OSError as error:
        raise InvalidInput(f"{path}: cannot be written: {error.strerror}") from error


class _PastedLineCommand(click.Command):
    """A command that accepts a command line without quotes: everything after ``docker`` or ``vllm`` belongs to it."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Insert ``--`` before the command line."""
        programs = _list_command_programs()
        args = _with_allow_values(args, programs)
        at = next((at for at, word in enumerate(args) if word in programs), None)
        if at is not None and "--" not in args[:at] and len(args) > at + 1:
            args = [*args[:at], "--", *args[at:]]
        return super().parse_args(ctx, args)


def _list_command_programs() -> frozenset[str]:
    """Return the words that begin a pasted command line."""
    from sparkctl.profiles.importers.command_line import list_launch_programs

    return list_launch_programs() | {"docker", "podman", "nerdctl", "sudo"}


def _with_allow_values(args: list[str], programs: frozenset[str]) -> list[str]:
    """Rewrite ``--allow NAME`` to ``--allow=NAME``, so that a bare ``--allow`` does not take the source as its name."""
    from sparkctl.profiles.importers.import_policy import ALLOW_ALL

    found: list[str] = []
    at = 0
    while at < len(args) and args[at] != "--" and args[at] not in programs:
        word, following = args[at], args[at + 1] if at + 1 < len(args) else None
        at += 1
        if word == "--allow" and following is not None and _is_allow_name(following, programs):
            word, at = f"--allow={following}", at + 1
        found.append(f"--allow={ALLOW_ALL}" if word == "--allow" else word)
    return [*found, *args[at:]]


def _is_allow_name(word: str, programs: frozenset[str]) -> bool:
    """Tell whether the word is a name for `--allow`, even a misspelled one, and not a flag, a command, a dash or a path."""
    from sparkctl.profiles.importers.import_policy import normalize_allow_name

    if word.startswith("-") or word in programs:
        return False
    looks_so = re.fullmatch(r"[A-Za-z][A-Za-z_-]*(=.*)?", word) is not None
    return normalize_allow_name(word.partition("=")[0]) is not None or (looks_so and not Path(word).exists())


@profiles_command.command(
    "import",
    cls=_PastedLineCommand,
    short_help="Make a profile from a docker run line, an engine's command, a recipe or a container.",
)
@click.argument("source", nargs=-1, metavar="FILE|LINE|-")
@click.option("-o", "--output", type=click.Path(dir_okay=False), metavar="FILE", help="Write the profile to FILE.")
@click.option("--save", is_flag=True, help="Save it among your own profiles, where `up` finds it.")
@click.option("--force", is_flag=True, help="Overwrite an existing file.")
@click.option("--name", metavar="NAME", help="The name of the profile.")
@click.option("--service", metavar="NAME", help="The service of a compose file to import.")
@click.option("--define", multiple=True, metavar="NAME=VALUE", help="Set a $NAME, or a {NAME} of a recipe.")
@click.option(
    "--allow",
    multiple=True,
    metavar="[NAME[=VALUE]]",
    help="Also import what is withheld: everything, or only what the report calls NAME (mount, device, privileged, env, ...).",
)
@click.option("--from-container", metavar="CONTAINER", help="Import a container that is on --node.")
@node_option(many=False)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document on stdout instead of text.")
@click.pass_context
def import_command(
    ctx: click.Context, source: tuple[str, ...], output: str | None, save: bool, force: bool, name: str | None,
    service: str | None, define: tuple[str, ...], allow: tuple[str, ...], from_container: str | None, node: str | None,
    as_json: bool,
) -> int:  # fmt: skip
    """Make a profile from a `docker run` line, an engine's own command, a compose file, a recipe, a systemd unit, a Podman quadlet, or a container.

    \b
    sparkctl profiles import docker run -p 8000:8000 vllm/vllm-openai:v0.19.1 --model Qwen/Qwen3-8B
    sparkctl profiles import 'vllm serve Qwen/Qwen3-8B --port 8000' --define container=vllm/vllm-openai:v0.19.1
    sparkctl profiles import './launch-cluster.sh exec vllm serve Qwen/Qwen3-8B'
    sparkctl profiles import recipe.yaml --save
    sparkctl profiles import --from-container vllm_node --node spark1 -o mine.yaml

    Prints the profile on stdout, and on stderr each key that could not be imported. Nothing is started, and no part of
    the source is executed.
    """
    if (from_container is None) == (not source):
        raise click.UsageError("name a file, paste a docker run line, or give --from-container and --node", ctx)
    if output is not None and save:
        raise click.UsageError("either -o FILE or --save, not both", ctx)
    if node is not None and from_container is None:
        raise click.UsageError("--node needs --from-container", ctx)
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
    """Return stdin for a dash, one word unchanged, several words as a shell line. Raises `InvalidInput` for several files."""
    if len(source) > 1 and all(Path(word).is_file() for word in source):
        raise InvalidInput(
            f"{len(source)} files: one is imported at a time", f"sparkctl profiles import {shlex.quote(source[0])}"
        )
    if source == ("-",):
        return sys.stdin.buffer.read(1 << 20).decode("utf-8-sig", "replace")
    return source[0] if len(source) == 1 else shlex.join(source)


def _print_report(found: ImportedProfile, as_json: bool) -> None:
    from sparkctl.views.profiles.profile_view import build_import_json, format_import_report

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
        hint = None
        if one.settings:
            hint = f"in the profile, or for one start: {' '.join(f'--set {each}' for each in one.settings)}"
        elif one.setting is not None:  # only the sum of its memory tells what goes with it
            hint = f"`sparkctl up {found.path or found.profile.name} --node NODE --dry-run` names the settings that fit"
        stderr.print_warning(None, one.message, hint)
    if found.over_shipped:
        stderr.print_warning(
            None,
            f"it takes precedence over the shipped profile {found.profile.name}",
            "to keep both, give it another name with --name",
        )


_EXPORT_FORMATS = ("docker", "compose", "systemd", "sparkrun")


@profiles_command.command("export", short_help="Print a profile as a docker run line, compose file, unit or recipe.")
@click.argument("name", shell_complete=complete_profiles)
@click.option("--as", "form", type=click.Choice(_EXPORT_FORMATS), required=True, help="The output format.")
@click.option("--set", "overrides", multiple=True, metavar="FIELD=VALUE", help="As for up.")
def export_command(name: str, form: str, overrides: tuple[str, ...]) -> int:
    """Print a profile in the format of another tool; `profiles import` turns it back into the same profile.

    \b
    sparkctl profiles export qwen36 --as compose > compose.yaml
    sparkctl profiles export qwen36 --as systemd | ssh spark1 'sudo tee /etc/systemd/system/qwen36.service'
    """
    from sparkctl.engines import load_engine
    from sparkctl.profiles.exporters.yaml_exporter import build_portable_launch
    from sparkctl.profiles.profile_library import ProfileLibrary

    profile = ProfileLibrary().load_profile(name, overrides=overrides)
    one = build_portable_launch(profile, load_engine(profile.engine))
    if form in ("docker", "systemd"):
        from sparkctl.profiles.exporters import docker_command

        lines = docker_command.export_docker_run(one) if form == "docker" else docker_command.export_systemd_unit(one)
    else:
        from sparkctl.profiles.env_references import has_literal_values
        from sparkctl.profiles.exporters import yaml_exporter

        if form == "compose":
            lines = yaml_exporter.export_compose(one, needs_raw_env_file=has_literal_values(profile))
        else:
            lines = yaml_exporter.export_sparkrun(one)
    stdout.print_sanitized_lines(lines)
    for remark in one.remarks:
        stderr.print_warning(None, remark, None)
    return 0


@profiles_command.command("list")
@click.option("-q", "--quiet", "names_only", is_flag=True, help="Print only the names.")
@json_document_option
def list_command(names_only: bool, as_json: bool) -> int:
    """List all profiles and where each comes from.

    \b
    sparkctl profiles list
    sparkctl profiles list --json
    """
    from sparkctl.model.json_codec import to_json_data
    from sparkctl.profiles.profile_library import ProfileLibrary
    from sparkctl.views.profiles.profile_view import format_profile_list

    library = ProfileLibrary()
    summaries = library.list_summaries()
    if (trouble := library.find_directory_fault()) is not None:
        stderr.print_warning(
            None, trouble, "sparkctl looks for your own profiles there: make it a directory that you can read"
        )
    if as_json:
        stdout.print_json({"schema": 1, "profiles": to_json_data(summaries)})
    elif names_only:
        stdout.print_lines(one.name for one in summaries)
    else:
        stdout.print_rows(format_profile_list(summaries, stdout.get_terminal_width()))
    return 0


@profiles_command.command("show")
@click.argument("name", shell_complete=complete_profiles)
@click.option("--set", "overrides", multiple=True, metavar="FIELD=VALUE", help="As for up.")
@json_document_option
def show_command(name: str, overrides: tuple[str, ...], as_json: bool) -> int:
    """Show a profile, including everything it inherits with `extends`.

    \b
    sparkctl profiles show qwen36-vllm
    sparkctl profiles show qwen36-vllm --set args.max-model-len=32768 --json
    """
    from sparkctl.profiles.profile_library import ProfileLibrary
    from sparkctl.views.profiles.profile_view import build_profile_json, render_profile

    profile = ProfileLibrary().load_profile(name, overrides=overrides)
    if as_json:
        stdout.print_json(build_profile_json(profile))
    else:
        stdout.print_rows(render_profile(profile, stdout.get_terminal_width()))
    return 0


@profiles_command.command("check")
@click.argument("files", nargs=-1, required=True, metavar="FILE|NAME...", shell_complete=complete_profiles)
@click.option(
    "--engine-version",
    metavar="VERSION",
    help="Check the flags against this engine version, for example before you use a newer image.",
)
@click.option("--fix", is_flag=True, help="Fix in the file what is safe to fix; comments and order stay.")
@json_document_option
def check_command(files: tuple[str, ...], engine_version: str | None, fix: bool, as_json: bool) -> int:
    """Check profiles, given by file or name: the file itself, and each flag against the catalogue of its engine's version.

    \b
    sparkctl profiles check qwen36-vllm
    sparkctl profiles check ./mine.yaml --engine-version 0.19.1 --fix

    Prints a line for each finding: file:line:column: level[kind]: message. Exit 2 if one is an error.
    """
    from sparkctl.engines.lint import LintSeverity
    from sparkctl.files import state_dir
    from sparkctl.history.operation_history import OperationHistory
    from sparkctl.profiles.field_types import normalize_version
    from sparkctl.profiles.profile_editor import fix_profile_file
    from sparkctl.profiles.profile_library import ProfileLibrary
    from sparkctl.profiles.profile_lint import lint_profile_file
    from sparkctl.views.profiles.lint_view import build_lint_json, format_lint

    try:
        version = None if engine_version is None else normalize_version(engine_version)
    except ValueError as error:
        raise InvalidInput(f"--engine-version: {error}") from error
    library, history, checked = ProfileLibrary(), OperationHistory(state_dir()), []
    fixed: list[LintDiagnostic] = []
    for file in files:
        if fix:
            writable = _find_writable_file(library, file)
            found, done = fix_profile_file(library, writable, version, history.find_longest_phases)
            fixed += done
        else:
            found = lint_profile_file(library, _find_file(library, file), version, history.find_longest_phases)
        checked.append((file, found))
    if as_json:
        stdout.print_json(build_lint_json(checked, fixed))
    else:
        for one in fixed:
            stderr.print_message(f"fixed: {one}", 2)
        if fix and not fixed:
            stderr.print_message("nothing was changed: there is nothing that --fix repairs")
        stdout.print_rows(sanitize_line(line) for name, found in checked for line in format_lint(name, found))
    return int(
        ExitCode.USAGE if any(found.list_by_level(LintSeverity.ERROR) for _, found in checked) else ExitCode.DONE
    )


def _find_writable_file(library: ProfileLibrary, text: str) -> Path:
    """Return the file to fix. Raises `InvalidInput` for a shipped profile (an update would undo it) and for one that the demo reads."""
    from sparkctl.profiles.yaml_reader import quote_source

    path = _find_file(library, text)
    if not ("/" in text or path.name == text) and library.is_shipped(path):
        raise InvalidInput(
            f"{quote_source(text)} is shipped with sparkctl and cannot be changed",
            f"sparkctl profiles edit {path.stem} makes a copy of your own",
        )
    if not library.is_writable(path):
        raise InvalidInput(
            f"{quote_source(text)} is your own profile, and the demo does not change it", "fix it without `demo`"
        )
    return path


def _find_file(library: ProfileLibrary, text: str) -> Path:
    """Return the file of that path if it exists or looks like a path, else the file of the profile with that name."""
    path = Path(text).expanduser()
    return (
        path if path.is_file() or "/" in text or path.suffix in (".yaml", ".yml") else library.find_profile_file(text)
    )


@profiles_command.command("schema")
def schema_command() -> int:
    """Print the JSON Schema of profiles, for editors.

    \b
    sparkctl profiles schema
    sparkctl profiles schema > ~/.config/sparkctl/profile.schema.json
    """
    from sparkctl.profiles.profile_library import profile_json_schema

    stdout.print_line(json.dumps(profile_json_schema(), indent=2))
    return 0
