"""``sparkctl profiles``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from sparkctl.cli.options import complete_profiles, json_document_option
from sparkctl.cli.verbs import profiles_export, profiles_import

if TYPE_CHECKING:
    from pathlib import Path

    from sparkctl.profiles.profile_library import ProfileLibrary
    from sparkctl.profiles.profile_lint import LintDiagnostic


@click.group("profiles", short_help="List, show, check and import profiles.")
def command() -> None:
    """Profiles say what to start and how: shipped ones, and your own, which win over shipped ones of the same name."""


@command.command("list")
@json_document_option
def list_command(as_json: bool) -> int:
    """List all profiles and where each comes from."""
    from sparkctl.cli import stderr, stdout
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
    else:
        stdout.print_lines(format_profile_list(summaries))
    return 0


@command.command("show")
@click.argument("name", shell_complete=complete_profiles)
@click.option("--set", "overrides", multiple=True, metavar="FIELD=VALUE", help="As for up.")
@json_document_option
def show_command(name: str, overrides: tuple[str, ...], as_json: bool) -> int:
    """Show a profile with everything that `extends` brings in."""
    from sparkctl.cli import stdout
    from sparkctl.profiles.profile_library import ProfileLibrary
    from sparkctl.views.profiles.profile_view import build_profile_json, format_profile

    profile = ProfileLibrary().load_profile(name, overrides=overrides)
    if as_json:
        stdout.print_json(build_profile_json(profile))
    else:
        stdout.print_lines(format_profile(profile))
    return 0


@command.command("check")
@click.argument("files", nargs=-1, required=True, metavar="FILE|NAME...", shell_complete=complete_profiles)
@click.option(
    "--engine-version", metavar="VERSION", help="Hold the flags against this version: what would a newer image break?"
)
@click.option("--fix", is_flag=True, help="Mend in the file what is safe to mend; comments and order stay.")
@json_document_option
def check_command(files: tuple[str, ...], engine_version: str | None, fix: bool, as_json: bool) -> int:
    """Check profiles, by file or by name: the file itself, and each flag by the catalogue of its engine's version.

    A line for each finding, file:line:column: level[kind]: message. Exit 2 if one is an error.
    """
    from sparkctl.cli import stderr, stdout
    from sparkctl.engines.lint.model import LintSeverity
    from sparkctl.errors import ExitCode, InvalidInput
    from sparkctl.profiles import profile_lint
    from sparkctl.profiles.field_types import normalize_version
    from sparkctl.profiles.profile_edit import apply_lint_fixes
    from sparkctl.profiles.profile_library import ProfileLibrary
    from sparkctl.views.profiles.lint_view import build_lint_json, format_lint

    try:
        asked = None if engine_version is None else normalize_version(engine_version)
    except ValueError as error:
        raise InvalidInput(f"--engine-version: {error}") from error
    library, checked = ProfileLibrary(), []
    fixed: list[LintDiagnostic] = []
    for file in files:
        path = _find_writable_file(library, file) if fix else _find_file(library, file)
        found = profile_lint.lint_profile_file(library, path, asked)
        if fix and (mended := apply_lint_fixes(path, found.diagnostics)):
            fixed += mended
            found = profile_lint.lint_profile_file(library, path, asked)
        checked.append((file, found))
    if as_json:
        stdout.print_json(build_lint_json(checked, fixed))
    else:
        for one in fixed:
            stderr.print_message(f"fixed: {one}", 2)
        stdout.print_sanitized_lines(line for name, found in checked for line in format_lint(name, found))
    return int(
        ExitCode.USAGE if any(found.list_by_level(LintSeverity.ERROR) for _, found in checked) else ExitCode.DONE
    )


def _find_writable_file(library: ProfileLibrary, text: str) -> Path:
    """Return the file to mend. Raises `InvalidInput` for the name of a shipped one, which an update would undo, and of one that
    the demo only reads."""
    from sparkctl.errors import InvalidInput
    from sparkctl.profiles.file_issues import quote_source

    path = _find_file(library, text)
    if not ("/" in text or path.name == text) and library.is_shipped(path):
        raise InvalidInput(
            f"{quote_source(text)} is shipped with sparkctl, and is not changed",
            "write a profile of your own that extends it, or press e on it in the panel",
        )
    if not library.is_writable(path):
        raise InvalidInput(
            f"{quote_source(text)} is yours, and the demo changes nothing of yours", "check it without `demo`"
        )
    return path


def _find_file(library: ProfileLibrary, text: str) -> Path:
    """Return the file that is meant: one that is there, else the profile of that name."""
    from pathlib import Path

    path = Path(text).expanduser()
    return (
        path if path.is_file() or "/" in text or path.suffix in (".yaml", ".yml") else library.find_profile_file(text)
    )


@command.command("schema")
def schema_command() -> int:
    """Print the JSON Schema of profiles, for editors."""
    import json

    from sparkctl.cli import stdout
    from sparkctl.profiles.profile_library import profile_json_schema

    stdout.print_line(json.dumps(profile_json_schema(), indent=2))
    return 0


command.add_command(profiles_import.command)
command.add_command(profiles_export.command)
