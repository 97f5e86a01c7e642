"""The operator's environment in a profile: references, and the values for an engine (``env_file``, ``env``).

References: ``${NAME}`` and ``${NAME:-default}`` are the operator's variables, ``$${`` is the text
``${``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from sparkctl.errors import InvalidInput
from sparkctl.files import open_regular_file
from sparkctl.model.profile import ArgValue, JsonValue, Profile, list_arg_texts, map_arg_texts
from sparkctl.model.text.secrets import is_secret_name
from sparkctl.profiles.yaml_reader import FileIssue, FilePosition, InvalidFile, find_value, quote_source, read_yaml

# ${NAME} or ${NAME:-default}; $${ is a dollar sign before a brace.
REFERENCE_PATTERN = re.compile(r"\$\$\{|\$\{(?P<name>[A-Za-z_][A-Za-z0-9_]*+)(?::-(?P<default>[^}]{0,4096}+))?\}")
_VARIABLE_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
# In compose text: $NAME, ${NAME}, ${NAME:-default}, ${NAME-default}, ${NAME:?words}, ${NAME?words}; $$ is a dollar sign.
_COMPOSE_VARIABLE = re.compile(
    r"\$\$\{?|\$(?:(?P<bare>[A-Za-z_][A-Za-z0-9_]*)|\{(?P<name>[A-Za-z_][A-Za-z0-9_]*)"
    r"(?:(?P<how>:?[-?+=])(?P<words>[^{}]*))?\})"
)


def escape_references(text: str) -> str:
    """Return text escaped so that a profile takes it literally."""
    return text.replace("${", "$${")


def resolve_defaults(text: str) -> str | None:
    """Return the text with each reference replaced by its default, None if one has no default."""
    missing = False

    def replace_reference(match: re.Match[str]) -> str:
        nonlocal missing
        if match["name"] is None:
            return "${"
        missing = missing or match["default"] is None
        return match["default"] or ""

    found = REFERENCE_PATTERN.sub(replace_reference, text)
    return None if missing else found


def has_references(text: str) -> bool:
    """Tell whether the text refers to the operator's environment."""
    return any(match["name"] is not None for match in REFERENCE_PATTERN.finditer(text))


def map_references(text: str, reference: Callable[[re.Match[str]], str], literal: Callable[[str], str] = str) -> str:
    """Return the text in another notation: each reference by ``reference``, the text between them by ``literal``."""
    out, end = "", 0
    for match in REFERENCE_PATTERN.finditer(text):
        out += literal(text[end : match.start()]) + (literal("${") if match["name"] is None else reference(match))
        end = match.end()
    return out + literal(text[end:])


def list_referenced_names(text: str) -> tuple[str, ...]:
    return tuple(match["name"] for match in REFERENCE_PATTERN.finditer(text) if match["name"] is not None)


def format_reference(name: str, default: str | None = None) -> str:
    """Return ``${NAME}`` or ``${NAME:-default}``; a default that this notation cannot hold is left out."""
    return f"${{{name}}}" if default is None or set(default) & set("{}") else f"${{{name}:-{default}}}"


def convert_compose_references(text: str, known: Mapping[str, str]) -> str:
    """Return a compose file's text in a profile's notation, variables in ``known`` replaced; ``$$`` is a literal dollar sign."""
    out, end = "", 0
    for match in _COMPOSE_VARIABLE.finditer(text):
        out += escape_references(text[end : match.start()])
        end = match.end()
        is_literal = match[0].startswith("$$")
        out += escape_references(match[0][1:]) if is_literal else _convert_variable(match, known)
    return out + escape_references(text[end:])


def _convert_variable(match: re.Match[str], known: Mapping[str, str]) -> str:
    name = match["bare"] or match["name"]
    if name in known:
        return known[name]
    if match["how"] in ("-", ":-", "=", ":="):
        return format_reference(name, match["words"])
    return format_reference(name)


def is_variable_name(text: str) -> bool:
    """Tell whether a text is a valid variable name."""
    return _VARIABLE_NAME.fullmatch(text) is not None


# What compose takes off or fills in when it reads an env file, and `docker run --env-file` does not.
_COMPOSE_SYNTAX = (
    (re.compile(r"""^\s*(?P<quote>["']).*(?P=quote)"""), "the quotes too"),
    (re.compile(r"\s#"), "the `#` and what follows it too"),
    (re.compile(r"\$(?:\{|[A-Za-z_])"), "the `$` and the name as they stand"),
)
MAX_ENV_FILE_BYTES = 64 * 1024


def resolve_engine_env(profile: Profile, environ: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    """Return real values with secrets; ``env`` overrides ``env_file``. Raises `InvalidFile` with every unset variable and bad line."""
    values = dict(read_env_file_pairs(profile))
    missing: dict[str, list[str]] = {}
    for name, text in profile.env:
        values[name] = _expand_references(text, environ, missing.setdefault(name, []))
    _refuse_missing(profile, "env", missing)
    return tuple(values.items())


def resolve_engine_args(profile: Profile, environ: Mapping[str, str]) -> tuple[tuple[str, ArgValue], ...]:
    """Return the profile's ``args`` with real values. Raises `InvalidFile` with every variable that is not set."""
    missing: dict[str, list[str]] = {}

    def fill_value(name: str, value: ArgValue) -> ArgValue:
        return map_arg_texts(value, lambda text: _expand_references(text, environ, missing.setdefault(name, [])))

    values = tuple((name, fill_value(name, value)) for name, value in profile.args)
    _refuse_missing(profile, "args", missing)
    return values


def find_engine_secrets(profile: Profile, environ: Mapping[str, str]) -> tuple[str, ...]:
    """Return the values of every ``${VAR}`` in ``env`` and ``args`` whose name is that of a secret."""
    found = {
        environ.get(match["name"]) or match["default"] or ""
        for text in _iter_reference_texts(profile)
        for match in REFERENCE_PATTERN.finditer(text)
        if match["name"] is not None and is_secret_name(match["name"])
    }
    return tuple(sorted(found - {""}))


def list_unset_secrets(profile: Profile, environ: Mapping[str, str]) -> tuple[str, ...]:
    """Return the names of the secrets that ``env`` and ``args`` take from variables that are not set."""
    found = (match for text in _iter_reference_texts(profile) for match in REFERENCE_PATTERN.finditer(text))
    names = (match["name"] for match in found if match["name"] is not None and not match["default"])
    return tuple(dict.fromkeys(name for name in names if is_secret_name(name) and not environ.get(name)))


def _iter_reference_texts(profile: Profile) -> Iterator[str]:
    yield from (text for _, text in profile.env)
    for _, value in profile.args:
        yield from (value.text,) if isinstance(value, JsonValue) else list_arg_texts(value)


def _refuse_missing(profile: Profile, section: str, missing: Mapping[str, list[str]]) -> None:
    faults = [
        FileIssue(
            _find_variable_position(profile, section, name),
            f"{section}.{name}: ${{{variable}}} is not set in your environment",
        )
        for name, variables in missing.items()
        for variable in variables
    ]
    if faults:
        first = next(variable for variables in missing.values() for variable in variables)
        raise InvalidFile(faults, hint=f"export {first}=..., or give a default in the profile: ${{{first}:-...}}")


def check_env_file_permissions(profile: Profile) -> tuple[str, ...]:
    """Return a warning if other users of this machine can read the profile's env_file."""
    if profile.env_file is None:
        return ()
    path = _resolve_env_file(profile, profile.env_file)
    try:
        mode = path.stat().st_mode
    except OSError:
        return ()  # reading the file reports the error
    return (f"{path} can be read by others (mode {mode & 0o777:03o}): chmod 600 {path}",) if mode & 0o077 else ()


def list_literal_values(profile: Profile) -> tuple[FileIssue, ...]:
    """Return the env_file's lines that most shells read otherwise; the engine gets them as they are. Raises `InvalidInput`."""
    return tuple(
        FileIssue(place, f"{name} gets {what}: sparkctl passes values as they are, as docker run --env-file does")
        for place, name, value in _read_env_file(profile)
        for pattern, what in _COMPOSE_SYNTAX
        if pattern.search(value)
    )


def has_literal_values(profile: Profile) -> bool:
    """Tell whether compose would change values of the env_file; False for a file that is not here, or that a start refuses."""
    try:
        return bool(list_literal_values(profile))
    except InvalidInput:
        return False


def _expand_references(text: str, environ: Mapping[str, str], missing: list[str]) -> str:
    def expand_match(match: re.Match[str]) -> str:
        name = match["name"]
        if name is None:
            return "${"
        own = environ.get(name)
        if match["default"] is not None:
            return own or match["default"]
        if own is None:
            missing.append(name)
        return own or ""

    return REFERENCE_PATTERN.sub(expand_match, text)


def _find_variable_position(profile: Profile, section: str, name: str) -> FilePosition:
    """Return where the profile sets the variable; the whole file if a base profile or a flag sets it."""
    try:
        root = read_yaml(Path(profile.origin))
    except InvalidInput:
        return FilePosition(profile.origin)
    item = find_value(root, (section, name))
    return item.place if item else FilePosition(profile.origin)


def _resolve_env_file(profile: Profile, text: str) -> Path:
    """Return the env_file's path; a relative one is relative to the profile."""
    return Path(profile.origin).parent / Path(text).expanduser()


def read_env_file_pairs(profile: Profile) -> list[tuple[str, str]]:
    """Return what a profile's env_file on this computer sets, empty without one. Raises `InvalidInput`."""
    return [(name, value) for _, name, value in _read_env_file(profile)]


def _read_env_file(profile: Profile) -> list[tuple[FilePosition, str, str]]:
    if profile.env_file is None:
        return []
    path = _resolve_env_file(profile, profile.env_file)
    try:
        with open_regular_file(path) as file:
            raw = file.read(MAX_ENV_FILE_BYTES + 1)
    except OSError as error:
        raise InvalidInput(f"{path}: the env_file of {profile.name} cannot be read: {error.strerror}") from error
    if len(raw) > MAX_ENV_FILE_BYTES:
        raise InvalidInput(f"{path}: the env_file of {profile.name} is larger than {MAX_ENV_FILE_BYTES // 1024} KiB")
    return parse_env_file(raw, str(path))


def parse_env_file(raw: bytes, file: str) -> list[tuple[FilePosition, str, str]]:
    """Return the place, name and value of each pair of an env file, as `docker run --env-file` reads it: ``KEY=VALUE`` lines,
    ``#`` comments, the value unchanged.

    Raises `InvalidFile`; messages never contain values.
    """
    pairs: list[tuple[FilePosition, str, str]] = []
    faults: list[FileIssue] = []
    for number, line in enumerate(raw.split(b"\n"), start=1):
        text, place = line.removesuffix(b"\r"), FilePosition(file, number, 1)
        if not text.strip() or text.lstrip().startswith(b"#"):
            continue
        try:
            name, equals, value = text.decode("utf-8-sig" if number == 1 else "utf-8").partition("=")
        except UnicodeDecodeError:
            faults.append(FileIssue(place, "this is not UTF-8 text"))
            continue
        if not equals:
            faults.append(FileIssue(place, "write KEY=VALUE"))
        elif not _VARIABLE_NAME.fullmatch(name.strip()):
            faults.append(FileIssue(place, f"{quote_source(name.strip())} is not a variable's name"))
        elif "\0" in value:
            faults.append(FileIssue(place, "a NUL is not allowed here"))
        else:
            pairs.append((place, name.strip(), value))
    if faults:
        raise InvalidFile(faults)
    return pairs
