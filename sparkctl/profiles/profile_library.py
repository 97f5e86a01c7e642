"""The profile library: the operator's own profiles, and the shipped ones, which those of the same name replace."""

from __future__ import annotations

import re
import stat
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sparkctl import files
from sparkctl.errors import InvalidInput, SparkctlError, format_did_you_mean
from sparkctl.files import describe_irregular_file, read_regular_file, write_whole_file
from sparkctl.model.lazy_dataclass import dataclass
from sparkctl.model.missing_part import HubSource, parse_model_source
from sparkctl.model.profile import Profile
from sparkctl.model.text.sanitize import sanitize_line

if TYPE_CHECKING:
    from sparkctl.profiles.yaml_reader import FileIssue, YamlValue

MAX_BASES = 8
_PROFILE_SUFFIXES = (".yaml", ".yml")


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileSummary:
    """One line of ``profiles list``. ``faults`` is empty if the profile can be started."""

    name: str
    title: str | None
    engine: str | None
    origin: Path
    shipped: bool
    overrides_shipped: bool
    faults: tuple[FileIssue, ...]


@dataclass(frozen=True, slots=True)
class ProfileEntry:
    """A profile of the library; its ``profile`` is None if it is broken, and its summary lists the faults."""

    summary: ProfileSummary
    profile: Profile | None


@dataclass(frozen=True, slots=True)
class ProfileNeed:
    """A profile that another needs, on a node of its own; None: where the other runs."""

    profile: Profile
    node: str | None


class ProfileLibrary:
    """Directories of profiles, the operator's first. Names are file names, so listing them reads no file.

    ``beneath``: the operator's real directory if ``user`` is the demo's. It is never written to.
    """

    def __init__(self, user: Path | None = None, shipped: Path | None = None) -> None:
        self.user = user or files.user_profiles_dir()
        self.shipped = shipped or files.shipped_profiles_dir()
        self.beneath = files.read_only_profiles_dir() if user is None else None
        # while all profiles are read: each directory's, listed once
        self._files: dict[Path, dict[str, Path]] | None = None
        self._apart: Path | None = None  # and the operator's, where it is another than the shipped one

    @property
    def directories(self) -> tuple[Path, ...]:
        """The directories in which a name is looked up, in that order."""
        return tuple(one for one in (self.user, self.beneath, self.shipped) if one is not None)

    def list_names(self) -> tuple[str, ...]:
        """Return all names, sorted. Cheap enough for shell completion."""
        return tuple(sorted({name for directory in self.directories for name in self._list_files(directory)}))

    def find_directory_fault(self) -> str | None:
        """Return why a directory of profiles cannot be read, None if all can. A missing one is fine."""
        for directory in self.directories:
            try:
                state = directory.stat()
            except FileNotFoundError:
                continue
            except OSError as error:
                return f"{directory} cannot be read: {error.strerror}"
            if not stat.S_ISDIR(state.st_mode):
                return f"{directory} is not a directory, but {describe_irregular_file(state) or 'a file'}"
        return None

    def list_summaries(self) -> tuple[ProfileSummary, ...]:
        """Return a summary of every profile, the broken ones with their faults."""
        return tuple(entry.summary for entry in self.load_all_entries())

    def load_all_entries(self) -> tuple[ProfileEntry, ...]:
        """Return an entry for every profile, the broken ones with their summary only."""
        with self._listed_once():
            return tuple(self.load_entry(name) for name in self.list_names())

    def list_relatives(self, name: str) -> tuple[str, ...]:
        """Return the profile that this one extends, then those that extend either; files that cannot be read are skipped."""
        from sparkctl.profiles.yaml_reader import read_yaml

        bases: dict[str, str | None] = {}
        with self._listed_once():
            for one in self.list_names():
                with suppress(InvalidInput):
                    extends = read_yaml(self.find_profile_file(one)).entries.get("extends")
                    bases[one] = None if extends is None else extends.item.raw
        base = bases.get(name)
        family = [one for one, of in bases.items() if one != name and of is not None and of in (name, base)]
        return tuple(dict.fromkeys([*([base] if base is not None and base in bases else []), *family]))

    def load_profile(self, name: str, overrides: Sequence[str] = ()) -> Profile:
        """Return a profile by name, or by path (``./mine.yaml``).

        ``overrides`` are ``--set`` texts, ``field=value``. Raises `InvalidFile` with every fault, `InvalidInput` for an
        unknown name.
        """
        path = Path(name).expanduser() if _is_path(name) else self.find_profile_file(name)
        if _is_path(name) and not path.exists() and (model := _find_hub_source(name)) is not None:
            raise self._refuse_model(name, model)
        return self._load_path(path, overrides)

    def _refuse_model(self, name: str, model: HubSource) -> InvalidInput:
        """Return the error for the name of a model on the Hub where a profile's is wanted."""
        profiles = [one.profile for one in self.load_all_entries() if one.profile is not None]
        own = [
            one.name for one in profiles if f"{one.model.source or ''}@".startswith(f"{HubSource(model.repository)}@")
        ]
        own += [one.name for one in profiles if one.name not in own and one.model.path == model.repository]
        message = f"{sanitize_line(name)} is a model of the Hugging Face Hub, not a profile"
        if own:
            return InvalidInput(
                f"{message}; {', '.join(own[:4])} start{'' if own[1:] else 's'} it", f"sparkctl plan {own[0]}"
            )
        return InvalidInput(
            f"{message}, and no profile has it yet",
            f"whether it fits: sparkctl plan {model}\n"
            f"a profile that `up` and `pull` take: sparkctl profiles new {suggest_profile_name(model.repository)} --from {model}",
        )

    def find_profile_file(self, name: str) -> Path:
        """Return a profile's file, the operator's before the shipped one. Raises `InvalidInput` for an unknown name."""
        for directory in self.directories:
            if path := self._list_files(directory).get(name):
                return path
        near = format_did_you_mean(name, self.list_names())
        from sparkctl.profiles.yaml_reader import quote_source

        trouble = self.find_directory_fault()
        also = "" if trouble is None else f"; {trouble}"
        raise InvalidInput(f"no profile is called {quote_source(name)}{near}{also}", hint="sparkctl profiles list")

    def get_modification_times(self) -> tuple[tuple[str, int], ...]:
        """Return the modification time of each file, to notice changes in the library."""
        found = []
        for directory in self.directories:
            for path in self._list_files(directory).values():
                with suppress(OSError):  # deleted meanwhile
                    found.append((str(path), path.stat().st_mtime_ns))
        return tuple(found)

    def get_or_copy_user_file(self, name: str) -> tuple[Path, bool]:
        """Return the operator's file of a profile, and whether it was just made as a copy of the shipped one.

        Raises `InvalidInput` for an unknown name, OSError if no file can be written.
        """
        path = self.find_profile_file(name)
        if self.is_writable(path):
            return path, False
        self.user.mkdir(parents=True, exist_ok=True)
        mine = self.user / path.name
        write_whole_file(mine, read_regular_file(path, 1 << 20))
        return mine, True

    def load_entry(self, name: str) -> ProfileEntry:
        """Return one profile's entry. Raises `InvalidInput` for an unknown name."""
        from sparkctl.profiles.yaml_reader import FileIssue, FilePosition, InvalidFile

        path = self.find_profile_file(name)
        shipped = self.is_shipped(path)
        overrides = not shipped and name in self._list_files(self.shipped)
        profile: Profile | None = None
        faults: tuple[FileIssue, ...] = ()
        try:
            profile = self._load_path(path, ())
        except InvalidFile as error:
            faults = error.faults
        except InvalidInput as error:
            faults = (FileIssue(FilePosition(str(path)), error.message),)
        summary = ProfileSummary(
            name=name,
            title=None if profile is None else profile.title,
            engine=None if profile is None else profile.engine,
            origin=path,
            shipped=shipped,
            overrides_shipped=overrides,
            faults=faults,
        )
        return ProfileEntry(summary, profile)

    def _load_path(self, path: Path, overrides: Sequence[str]) -> Profile:
        return self.load_with_positions(path, overrides)[0]

    def load_with_positions(self, path: Path, overrides: Sequence[str] = ()) -> tuple[Profile, YamlValue]:
        """Return a profile, and its tree merged with what it extends, which has the position of each value.

        Raises `InvalidFile` with every fault, also of its needs, `InvalidInput` if a file is unreadable.
        """
        from sparkctl.profiles.yaml_reader import InvalidFile

        profile, tree = self._load_without_needs(path, overrides)
        if profile.needs and (faults := self._find_need_issues(profile, tree)):
            raise InvalidFile(faults)
        return profile, tree

    def load_needs(self, profile: Profile) -> tuple[ProfileNeed, ...]:
        """Return what a profile needs in the order of its start: what a need needs comes before it. Each comes once."""
        found: dict[ProfileNeed, None] = {}
        for text in profile.needs:
            name, _, node = text.partition("@")
            need = self.load_profile(name)
            for below in self.load_needs(need):
                found[below if below.node is not None else replace(below, node=node or None)] = None
            found[ProfileNeed(need, node or None)] = None
        return tuple(found)

    def _find_need_issues(self, profile: Profile, tree: YamlValue) -> list[FileIssue]:
        """Return what is wrong with a profile's needs, each at its place in the file."""
        from sparkctl.profiles.yaml_reader import FileIssue, quote_source

        item = tree.entries["needs"].item
        several = item.value if isinstance(item.value, tuple) else (item,)
        faults = []
        for one, text in zip(several, profile.needs, strict=True):
            name, _, node = text.partition("@")
            try:
                wrong = self._check_need(profile, name, node, (profile.name,))
            except InvalidInput as error:
                wrong = error.message.splitlines()[0]
            if wrong is not None:
                faults.append(FileIssue(one.place, f"needs: {quote_source(text)}: {wrong}"))
        return faults

    def _check_need(self, profile: Profile, name: str, node: str, trail: tuple[str, ...]) -> str | None:
        if name in trail:
            return f"a profile cannot need itself: {' → '.join((*trail[trail.index(name) :], name))}"
        if len(trail) > MAX_BASES:
            return f"more than {MAX_BASES} profiles in a row"
        need = self._load_without_needs(self.find_profile_file(name), ())[0]
        if need.nodes > 1:
            return f"it is for {need.nodes} Sparks; a need runs on one"
        if not node and need.port is not None and need.port == profile.port:
            return f"it has port {need.port}, as {profile.name} has"
        below = (one.partition("@") for one in need.needs)
        found = (self._check_need(need, other, where, (*trail, name)) for other, _, where in below)
        return next((wrong for wrong in found if wrong is not None), None)

    def _load_without_needs(self, path: Path, overrides: Sequence[str]) -> tuple[Profile, YamlValue]:
        """Return a profile with its tree as `load_with_positions`, its needs not looked at."""
        from sparkctl.profiles.validation import (
            find_token_issues,
            merge_profile_layer,
            parse_setting,
            strip_base_fields,
            validate_profile,
        )
        from sparkctl.profiles.yaml_reader import InvalidFile

        chain = self._load_base_chain(path)
        faults = [fault for _, tree in chain for fault in find_token_issues(tree)]
        faults += self._check_file_name(chain[0])
        tree = chain[-1][1]
        for _, above in reversed(chain[:-1]):
            tree = merge_profile_layer(strip_base_fields(tree), above)
        for text in overrides:
            try:
                change = parse_setting(text)
                faults += find_token_issues(change)
                tree = merge_profile_layer(tree, change)
            except InvalidFile as error:
                faults += error.faults
        try:
            profile = validate_profile(tree, path, shipped=self.is_shipped(path))
        except InvalidFile as error:
            raise InvalidFile([*error.faults, *faults]) from None
        if faults:
            raise InvalidFile(faults)
        return profile, tree

    def _load_base_chain(self, path: Path) -> Sequence[tuple[Path, YamlValue]]:
        """Return the file and the files it extends, the nearest first."""
        from sparkctl.profiles.yaml_reader import FileIssue, InvalidFile, quote_source, read_yaml

        chain = [(path, read_yaml(path))]
        seen: set[Path] = set()
        while (entry := chain[-1][1].entries.get("extends")) is not None and entry.item.value is not None:
            seen.add(chain[-1][0].resolve())
            base = self._find_base_file(chain[-1][0], entry.item)
            if base.resolve() in seen:
                raise InvalidFile(
                    [FileIssue(entry.item.place, f"extends: {quote_source(entry.item.raw)} leads back to here")]
                )
            if len(chain) > MAX_BASES:
                raise InvalidFile([FileIssue(entry.item.place, f"extends: more than {MAX_BASES} profiles in a row")])
            chain.append((base, read_yaml(base)))
        return chain

    def _find_base_file(self, path: Path, item: YamlValue) -> Path:
        """Return the file that ``extends`` means; a profile that extends its own name means the shipped one."""
        from sparkctl.profiles.yaml_reader import FileIssue, InvalidFile, quote_source

        name = item.raw or ""
        files = [file for directory in self.directories if (file := self._list_files(directory).get(name)) is not None]
        others = [file for file in files if file.resolve() != path.resolve()]
        # One that extends its own name means the shipped one of that name.
        below = [file for file in others if files.index(file) > _index_of_file(files, path)]
        if below:
            return below[0]
        if files and not others:
            raise InvalidFile([FileIssue(item.place, f"extends: {quote_source(name)} is this profile itself")])
        if others:
            return others[0]
        near = format_did_you_mean(name, self.list_names())
        raise InvalidFile([FileIssue(item.place, f"extends: no profile is called {quote_source(name)}{near}")])

    def _check_file_name(self, source: tuple[Path, YamlValue]) -> Sequence[FileIssue]:
        """Return a fault if a profile in the library has another name than its file."""
        from sparkctl.profiles.yaml_reader import FileIssue, quote_source

        path, tree = source
        entry = tree.entries.get("name")
        if entry is None or entry.item.raw is None or entry.item.raw == path.stem:
            return []
        if path.parent.resolve() not in [one.resolve() for one in self.directories]:
            return []
        return [FileIssue(entry.item.place, f"name: must be {quote_source(path.stem)}, like the file")]

    @contextmanager
    def _listed_once(self) -> Iterator[None]:
        """List each directory only once inside the block, not for each profile."""
        self._files = {}
        self._apart = self.user if self.user.resolve() != self.shipped.resolve() else None
        try:
            yield
        finally:
            self._files = self._apart = None

    def _list_files(self, directory: Path) -> dict[str, Path]:
        """Return the profiles of a directory by name."""
        known = self._files
        if known is None:
            return _list_profile_files(directory)
        if directory not in known:
            known[directory] = _list_profile_files(directory)
        return known[directory]

    def is_shipped(self, path: Path) -> bool:
        """Tell whether a file is part of sparkctl."""
        return path.parent == self.shipped or (
            path.parent != self._apart and path.parent.resolve() == self.shipped.resolve()
        )

    def is_writable(self, path: Path) -> bool:
        """Tell whether a file may be written: it is not shipped, and not the operator's real one while in the demo."""
        fixed = [self.shipped, *([self.beneath] if self.beneath is not None else [])]
        return path.parent.resolve() not in [one.resolve() for one in fixed]


def profile_json_schema() -> dict[str, Any]:
    """Return the JSON Schema of a profile file, for editors."""
    from sparkctl.profiles.schema import build_json_schema

    return build_json_schema()


def _list_profile_files(directory: Path) -> dict[str, Path]:
    """Return the profiles of a directory by name; none if the directory does not exist."""
    try:
        entries: Iterable[Path] = sorted(directory.iterdir(), key=lambda path: (path.suffix != ".yml", path.name))
    except OSError:
        return {}
    return {
        path.stem: path for path in entries if path.suffix in _PROFILE_SUFFIXES and not path.name.startswith((".", "_"))
    }


def _index_of_file(files: Sequence[Path], path: Path) -> int:
    """Return a file's index in the list, -1 if it is not in it."""
    return next((at for at, file in enumerate(files) if file.resolve() == path.resolve()), -1)


def suggest_profile_name(repository: str) -> str:
    """Return a name for the profile of a repository of the Hub, ``ORG/NAME``."""
    title = repository.partition("/")[2].casefold()
    return re.sub(r"[^a-z0-9-]+", "-", title).strip("-")[:40].strip("-")


def _find_hub_source(text: str) -> HubSource | None:
    """Return the repository that ``hf:ORG/NAME`` or ``ORG/NAME`` names; None for anything else, and for a profile's file."""
    if text.endswith(_PROFILE_SUFFIXES):
        return None
    try:
        source = parse_model_source(text if text.startswith("hf:") else f"hf:{text}")
    except ValueError:
        return None
    return source if isinstance(source, HubSource) else None


def _is_path(text: str) -> bool:
    return "/" in text or text.endswith(_PROFILE_SUFFIXES)


@dataclass(frozen=True, slots=True)
class ProfileOffer:
    """A profile offered for a start; ``profile`` is None if it cannot be read, and ``trouble`` says why."""

    name: str
    profile: Profile | None
    trouble: str | None = None


def list_startable_profiles(recent: Sequence[str]) -> list[ProfileOffer]:
    """Read every profile; ``recent`` are the names of the last started ones, the latest first."""
    library = ProfileLibrary()

    def load_offer(name: str) -> ProfileOffer:
        try:
            return ProfileOffer(name, library.load_profile(name))
        except SparkctlError as error:
            return ProfileOffer(name, None, error.message.splitlines()[0])

    def offer_sort_key(one: ProfileOffer) -> tuple[bool, int, str]:
        return one.profile is None, recent.index(one.name) if one.name in recent else len(recent), one.name

    return sorted(map(load_offer, library.list_names()), key=offer_sort_key)
