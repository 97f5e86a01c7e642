"""``profiles import``: read a docker run line, a compose file, a recipe or a container, check the profile and save
it.
"""

from __future__ import annotations

import contextlib
import glob
import os.path
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import reduce
from io import BufferedReader
from pathlib import Path

from sparkctl.context import CommandContext
from sparkctl.engines import engine_names as engine_names
from sparkctl.errors import ContainerNotFound, InvalidInput, OperationRefused, format_did_you_mean
from sparkctl.files import open_user_file, write_whole_file
from sparkctl.model.lazy_dataclass import dataclass
from sparkctl.model.node import Node
from sparkctl.model.profile import Profile
from sparkctl.model.verdict import FieldChange
from sparkctl.profiles.env_references import is_variable_name
from sparkctl.profiles.importers.profile_draft import ImportResult
from sparkctl.profiles.importers.profile_importer import ImportOptions, import_container, import_text
from sparkctl.profiles.profile_library import ProfileLibrary
from sparkctl.profiles.profile_lint import StartWarning, list_patchable_flags, list_proved_settings, list_start_warnings
from sparkctl.profiles.validation import find_token_issues, merge_profile_layer, parse_setting, validate_profile
from sparkctl.profiles.yaml_reader import InvalidFile, parse_yaml
from sparkctl.profiles.yaml_writer import render_profile_yaml
from sparkctl.transport.node_session import NodeSession

_MAX_FILE_BYTES = 512 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportProfile:
    """The options of an import.

    ``define``: ``NAME=VALUE`` texts. ``allow``: dangerous settings to accept, by the names that
    ``import_policy.parse_allow_names`` gives them; True: all. ``directory``: where the profile will be saved, None where
    that is not known.
    """

    name: str | None = None
    service: str | None = None
    allow: bool | frozenset[str] = False
    define: tuple[str, ...] = ()
    directory: Path | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportedProfile:
    """An import that passed the check: ``text`` is the file, ``path`` where it was saved, None where it was not.

    ``cautions``: warnings from the engine's flag catalogue, with the ``field=value`` that fixes each where one is
    known.
    """

    imported: ImportResult
    profile: Profile
    text: str
    cautions: tuple[StartWarning, ...]
    path: Path | None = None
    over_shipped: bool = False


def import_from_source(source: str, request: ImportProfile) -> ImportedProfile:
    """Import a file by its path, or a text: a pasted line, a recipe from stdin.

    Raises `InvalidInput` with each fault and its place, also for a profile that does not pass the check.
    """
    if not source.strip():
        raise InvalidInput(
            "there is nothing to import: the text is empty", "paste a docker run line in quotes, or name a file"
        )
    path = Path(source).expanduser() if "\n" not in source and len(source) < 4096 else None
    if path is not None and os.path.lexists(path):  # for a path that is no file, reading it gives the error
        return check_imported_profile(
            import_text(
                _read_recipe_file(path), str(path), _build_import_options(request, path.parent, has_file=path.is_file())
            )
        )
    if path is not None and " " not in source.strip():
        raise InvalidInput(
            f"{source}: there is no such file", "a docker run line goes in quotes, or - reads it from stdin"
        )
    return check_imported_profile(import_text(source, "pasted", _build_import_options(request, Path.cwd())))


async def import_from_container(ctx: CommandContext, node: Node, name: str, request: ImportProfile) -> ImportedProfile:
    """Import a container from a node. Raises `InvalidInput` where there is none of that name, `NodeError` and
    `DockerError`.
    """
    async with NodeSession(node, ctx.prompter, ctx.clock) as session:
        await session.link.connect()
        try:
            run = await session.docker.read_run_options(name)
        except ContainerNotFound:
            names = [one.name for one in await session.docker.list_containers()]
            raise InvalidInput(
                f"{node.name} has no container {name}{format_did_you_mean(name, names)}",
                f"its containers: {', '.join(names)}" if names else "it has none",
            ) from None
        beyond = await session.docker.read_extra_options(name)
    return check_imported_profile(import_container(run, node.name, _build_import_options(request, Path.cwd()), beyond))


def check_imported_profile(imported: ImportResult) -> ImportedProfile:
    """Write the profile as text and check it as `profiles check` does. Raises `InvalidInput` with every fault."""
    text = render_profile_yaml(imported.profile, imported.comments)
    name = f"{imported.profile.name}.yaml (as imported)"
    try:
        tree = parse_yaml(text.encode(), name)
    except UnicodeEncodeError as error:
        line = text.count("\n", 0, error.start) + 1
        raise InvalidInput(f"{name}:{line}: invalid Unicode (half of a surrogate pair)") from error
    if faults := find_token_issues(tree):
        raise InvalidFile(faults)
    profile_path = Path(f"{imported.profile.name}.yaml")
    profile = validate_profile(tree, profile_path, shipped=False)
    patched = list_patchable_flags(profile)
    if patched:
        imported.ledger.add_remark(
            f"No known version takes {', '.join(patched)} so: correct it. Only if the image's engine is patched and takes it, "
            f"patched_flags: [{', '.join(one.lstrip('-') for one in patched)}] in the profile ends these warnings."
        )

    def load_changed(changes: Sequence[FieldChange]) -> Profile:
        layers = (parse_setting(one.set_argument) for one in changes)
        return validate_profile(reduce(merge_profile_layer, layers, tree), profile_path, shipped=False)

    cautions = [
        replace(one, settings=list_proved_settings(one.setting, load_changed)) if one.setting else one
        for one in list_start_warnings(profile)
    ]
    return ImportedProfile(imported=imported, profile=profile, text=text, cautions=tuple(cautions))


def write_profile_file(written: ImportedProfile, path: Path, *, force: bool) -> ImportedProfile:
    """Write the file. Raises `OperationRefused` where it exists already, `InvalidInput` where it cannot be written."""
    try:
        write_whole_file(path, written.text.encode("utf-8"), replace=force)
    except FileExistsError:
        raise OperationRefused(
            f"{path} already exists", "--force overwrites it, --name gives it another name"
        ) from None
    except OSError as error:
        raise InvalidInput(f"{path}: cannot be written: {error.strerror}") from error
    return replace(written, path=path)


def save_to_library(written: ImportedProfile, library: ProfileLibrary, *, force: bool) -> ImportedProfile:
    """Save the profile in the operator's own library."""
    name = written.profile.name
    shipped = library.shipped / f"{name}.yaml"
    with contextlib.suppress(OSError):  # the write says why
        library.user.mkdir(parents=True, exist_ok=True)
    done = write_profile_file(written, library.user / f"{name}.yaml", force=force)
    return replace(done, over_shipped=shipped.is_file())


def _read_recipe_file(path: Path) -> str:
    try:
        with BufferedReader(open_user_file(path)) as file:
            raw = file.read(_MAX_FILE_BYTES + 1)
    except OSError as error:
        raise InvalidInput(
            f"{path}: cannot be read: {error.strerror or error}", "give the path of a recipe file"
        ) from error
    if len(raw) > _MAX_FILE_BYTES:
        raise InvalidInput(f"{path}: larger than {_MAX_FILE_BYTES // 1024} KiB: too large for a recipe")
    if raw[:2] in (b"\xff\xfe", b"\xfe\xff"):
        return raw.decode("utf-16", "replace")
    return raw.decode("utf-8-sig", "replace")


def _build_import_options(request: ImportProfile, directory: Path, *, has_file: bool = False) -> ImportOptions:
    """Return the importer's options. ``has_file``: the source is a file in ``directory``; a pasted text has only its
    includes.
    """
    finder = IncludeFinder(directory)
    stays = has_file and (request.directory is None or request.directory.resolve() == directory.resolve())
    return ImportOptions(
        engines=engine_names(), name=request.name, service=request.service, allow=request.allow,
        defined=_parse_definitions(request.define), lookup=finder.read_include, is_beside=finder.contains_file if stays else lambda _: False,
    )  # fmt: skip


def _parse_definitions(texts: tuple[str, ...]) -> Mapping[str, str]:
    found: dict[str, str] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not is_variable_name(name):
            raise InvalidInput(f"--define {name or text}: write --define NAME=VALUE")
        found[name] = value
    return found


@dataclass(frozen=True, slots=True)
class IncludeFinder:
    """Finds an included recipe: next to the including one, or anywhere below its registry's folder."""

    directory: Path

    def read_include(self, reference: str) -> str | None:
        """Return the recipe's text, None where it was not found."""
        name = reference.rpartition("/")[2] if reference.startswith("@") else reference
        if Path(name).is_absolute() or ".." in Path(name).parts:
            return None
        root = self._find_registry()
        for directory in filter(None, (self.directory, root)):
            for suffix in ("", ".yaml", ".yml"):
                if (path := directory / f"{name}{suffix}").is_file() and _is_within(path, directory):
                    return _read_recipe_file(path)
        if root is None:
            return None
        found = sorted(one for one in root.rglob(f"{glob.escape(Path(name).name)}.y*ml") if _is_within(one, root))[:1]
        return _read_recipe_file(found[0]) if found else None

    def contains_file(self, name: str) -> bool:
        """Tell whether the directory holds a file of this name that is no link to another place."""
        path = self.directory / name
        return "/" not in name and path.is_file() and _is_within(path, self.directory)

    def _find_registry(self) -> Path | None:
        for directory in (self.directory, *self.directory.absolute().parents[:6]):
            if (directory / ".sparkrun" / "registry.yaml").is_file():
                return directory
        return None


def _is_within(path: Path, directory: Path) -> bool:
    """Tell whether a file lies below a directory, links resolved; files of /proc and /dev never do."""
    try:
        real, base = path.resolve(strict=True), directory.resolve(strict=True)
    except (OSError, RuntimeError):
        return False
    return real.is_relative_to(base) and real.parts[1:2] not in (("proc",), ("sys",), ("dev",))
