"""``sparkctl profiles``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from sparkctl.cli.setup import complete_profiles, json_document_option

if TYPE_CHECKING:
    from pathlib import Path

    from sparkctl.core.profiles import ProfileLibrary


@click.group("profiles", short_help="List, show and check profiles.")
def command() -> None:
    """Profiles say what to start and how: shipped ones, and your own, which win over shipped ones of the same name."""


@command.command("list")
@json_document_option
def list_command(as_json: bool) -> int:
    """List all profiles and where each comes from."""
    from sparkctl.cli import output
    from sparkctl.core.profiles import ProfileLibrary
    from sparkctl.core.record import plain
    from sparkctl.present.profile_table import profile_lines

    summaries = ProfileLibrary().list()
    if as_json:
        output.document({"schema": 1, "profiles": plain(summaries)})
    else:
        output.texts(profile_lines(summaries))
    return 0


@command.command("show")
@click.argument("name", shell_complete=complete_profiles)
@click.option("--set", "overrides", multiple=True, metavar="FIELD=VALUE", help="As for up.")
@json_document_option
def show(name: str, overrides: tuple[str, ...], as_json: bool) -> int:
    """Show a profile with everything that `extends` brings in."""
    from sparkctl.cli import output
    from sparkctl.core.profiles import ProfileLibrary
    from sparkctl.present.profile_table import profile_document, profile_text

    profile = ProfileLibrary().load(name, overrides=overrides)
    if as_json:
        output.document(profile_document(profile))
    else:
        output.texts(profile_text(profile))
    return 0


@command.command("check")
@click.argument("files", nargs=-1, required=True, metavar="FILE|NAME...", shell_complete=complete_profiles)
@json_document_option
def check(files: tuple[str, ...], as_json: bool) -> int:
    """Check profiles, by file or by name: every fault as file:line:column, exit 2 if there is one."""
    from sparkctl.cli import output
    from sparkctl.core.profiles import ProfileLibrary
    from sparkctl.core.record import plain
    from sparkctl.errors import ExitCode

    library = ProfileLibrary()
    faults = [fault for file in files for fault in library.check(_file(library, file))]
    if as_json:
        output.document({"schema": 1, "faults": plain(faults)})
    else:
        output.remote(str(fault) for fault in faults)
        if not faults:
            output.text(f"{len(files)} good" if len(files) > 1 else f"{files[0]}: good")
    return int(ExitCode.USAGE if faults else ExitCode.DONE)


def _file(library: ProfileLibrary, text: str) -> Path:
    """Return the file that is meant: one that is there, else the profile of that name."""
    from pathlib import Path

    path = Path(text).expanduser()
    return path if path.is_file() or "/" in text or path.suffix in (".yaml", ".yml") else library.find(text)


@command.command("schema")
def schema() -> int:
    """Print the JSON Schema of profiles, for editors."""
    import json

    from sparkctl.cli import output
    from sparkctl.core.profiles import profile_json_schema

    output.text(json.dumps(profile_json_schema(), indent=2))
    return 0
