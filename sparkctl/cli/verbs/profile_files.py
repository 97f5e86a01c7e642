"""``sparkctl profiles new``, ``edit``, ``rename`` and ``remove``: the operator's own profile files."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import click

from sparkctl.cli.options import complete_profiles

if TYPE_CHECKING:
    from pathlib import Path

    from sparkctl.profiles.profile_library import ProfileLibrary

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


@click.command("new", short_help="Make a profile of your own.")
@click.argument("name")
@click.option("--from", "base", metavar="PROFILE", help="Extend this profile.", shell_complete=complete_profiles)
@click.option("--set", "overrides", multiple=True, metavar="FIELD=VALUE", help="Set a field in it (with --from).")
@click.pass_context
def new_command(ctx: click.Context, name: str, base: str | None, overrides: tuple[str, ...]) -> int:
    """Make a profile NAME among your own, and print its path. It is checked before it is written.

    \b
    sparkctl profiles new mine --from qwen36-vllm --set args.max-model-len=32768
    sparkctl profiles new mine                       an example to edit
    """
    from sparkctl.cli import stderr, stdout
    from sparkctl.errors import InvalidInput
    from sparkctl.profiles.field_types import check_name
    from sparkctl.profiles.profile_edit import set_field_in_text
    from sparkctl.profiles.profile_library import ProfileLibrary

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
        library.load_profile(base, overrides)
        text = f"schema: 1\nname: {name}\nextends: {base}\n"
        for setting in overrides:
            text = set_field_in_text(text, setting, str(path))
    _write_new_file(path, text)
    stdout.print_line(str(path))
    stderr.print_message(f"next: sparkctl profiles edit {name}")
    return 0


@click.command("edit", short_help="Edit a profile in your editor, and check it.")
@click.argument("name", shell_complete=complete_profiles)
def edit_command(name: str) -> int:
    """Open the file of NAME in $VISUAL or $EDITOR, then check it. A shipped profile is copied to your own first; a copy
    without changes is removed again.

    \b
    sparkctl profiles edit qwen36-vllm
    EDITOR=vim sparkctl profiles edit mine

    Exit 2 if the check finds an error.
    """
    from sparkctl.cli import stderr
    from sparkctl.cli.instance_program import run_program
    from sparkctl.engines.lint.model import LintSeverity
    from sparkctl.errors import ExitCode
    from sparkctl.files import read_regular_file
    from sparkctl.profiles.profile_library import ProfileLibrary
    from sparkctl.profiles.profile_lint import lint_profile_file
    from sparkctl.tui.profile_editor import build_editor_argv, find_editor
    from sparkctl.views.profiles.lint_view import format_lint

    library, editor = ProfileLibrary(), find_editor()
    path, copied = library.get_or_copy_user_file(name)
    before = read_regular_file(path, 1 << 20)
    errors = lint_profile_file(library, path).list_by_level(LintSeverity.ERROR)
    place = next((one.place for one in errors if one.place.file == str(path)), None)
    line, column = (None, None) if place is None else (place.line, place.column)
    try:
        status = run_program(build_editor_argv(editor, path, line, column))
    finally:
        is_same = path.exists() and read_regular_file(path, 1 << 20) == before
        if copied and is_same:
            path.unlink()
    if status:
        stderr.print_warning(None, f"the editor ended with {status}", None)
    if is_same and copied:
        stderr.print_message(f"{name}: nothing was changed; the shipped one stays")
        return 0
    checked = lint_profile_file(library, path)
    for each in format_lint(name, checked):
        stderr.print_message(each, 2)
    return int(ExitCode.USAGE if checked.list_by_level(LintSeverity.ERROR) else ExitCode.DONE)


@click.command("rename", short_help="Rename a profile of your own.")
@click.argument("name", shell_complete=complete_profiles)
@click.argument("new_name", metavar="NEW")
@click.pass_context
def rename_command(ctx: click.Context, name: str, new_name: str) -> int:
    """Rename a profile of your own, in its file and the file itself. What runs keeps the name that it was started with.

    \b
    sparkctl profiles rename mine qwen-long
    sparkctl profiles list
    """
    from sparkctl.cli import stdout
    from sparkctl.errors import InvalidInput
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


@click.command("remove", short_help="Delete a profile of your own.")
@click.argument("name", shell_complete=complete_profiles)
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
def remove_command(name: str, yes: bool) -> int:
    """Delete the file of a profile of your own, after a question. What runs goes on running; a shipped profile of the same
    name applies again.

    \b
    sparkctl profiles remove mine
    sparkctl profiles remove mine --yes
    """
    import sys

    from sparkctl.cli import stderr
    from sparkctl.errors import OperationRefused
    from sparkctl.profiles.profile_library import ProfileLibrary

    library = ProfileLibrary()
    path = _find_own_file(library, name)
    if not (library.shipped / f"{name}.yaml").is_file():
        _refuse_base(library, name)
    if not yes and not sys.stdin.isatty():
        raise OperationRefused(f"{path} is not deleted without a yes", f"sparkctl profiles remove {name} --yes")
    if not yes:
        stderr.print_prompt(f"delete {path}? [y/N] ")
        if sys.stdin.readline().strip().casefold() not in ("y", "yes"):
            raise OperationRefused(f"{path} is not deleted", None)
    path.unlink()
    stderr.print_message(f"deleted {path}")
    return 0


def _find_own_file(library: ProfileLibrary, name: str) -> Path:
    """Return the operator's file of a profile. Raises `InvalidInput` for a shipped one."""
    from sparkctl.errors import InvalidInput

    path = library.find_profile_file(name)
    if not library.is_writable(path):
        what = (
            "shipped with sparkctl" if library.is_shipped(path) else "your own profile, which the demo does not change"
        )
        raise InvalidInput(f"{name} is {what}", f"sparkctl profiles new NAME --from {name}")
    return path


def _refuse_base(library: ProfileLibrary, name: str) -> None:
    """Raise `InvalidInput` where other profiles extend this one."""
    from sparkctl.errors import InvalidInput
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
        raise InvalidInput(f"{', '.join(heirs)} extend {name}" if len(heirs) > 1 else f"{heirs[0]} extends {name}",
                           f"sparkctl profiles edit {heirs[0]}")  # fmt: skip


def _write_new_file(path: Path, content: str | bytes) -> None:
    """Write a file that does not exist yet."""
    from sparkctl.errors import InvalidInput

    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("xb") as file:
            file.write(content.encode("utf-8") if isinstance(content, str) else content)
    except OSError as error:
        raise InvalidInput(f"{path}: cannot be written: {error.strerror}") from error


FILE_COMMANDS = (new_command, edit_command, rename_command, remove_command)
