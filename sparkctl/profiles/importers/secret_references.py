"""Replace secrets in an imported profile by references to the operator's environment."""

from __future__ import annotations

import re

from sparkctl.engines.engine_flags import find_shell_script
from sparkctl.model.profile import ArgValue, FlagValues, JsonValue, map_arg_texts
from sparkctl.model.text.secrets import contains_token, find_secret_arguments, find_secret_values, is_secret_name
from sparkctl.profiles.env_references import REFERENCE_PATTERN, format_reference, resolve_defaults
from sparkctl.profiles.importers.profile_draft import ProfileDraft


def replace_env_secrets(draft: ProfileDraft) -> None:
    """Replace every secret value among the environment entries."""
    for name, value in draft.env.items():
        if _is_secret_value(name, value):
            draft.env[name] = format_reference(name)
            _note_replacement(draft, f"env.{name}", name)
        else:
            draft.env[name] = _strip_secret_defaults(draft, f"env.{name}", name, value)


def replace_flag_secrets(draft: ProfileDraft, found: list[tuple[str, ArgValue]]) -> list[tuple[str, ArgValue]]:
    """Return flags with every secret value replaced."""
    out: list[tuple[str, ArgValue]] = []
    for key, value in found:
        name = re.sub(r"[^A-Za-z0-9]+", "_", key.strip("-")).upper()
        texts = value.words if isinstance(value, FlagValues) else value if isinstance(value, tuple) else (value,)
        words = [text.text if isinstance(text, JsonValue) else text for text in texts if not isinstance(text, bool)]
        if not any(_is_secret_value(key, word) for word in words):
            out.append((key, _strip_arg_secret_defaults(draft, key, value)))
            continue
        kept = tuple(format_reference(name) if _is_secret_value(key, word) else word for word in words)
        out.append(
            (key, FlagValues(kept) if isinstance(value, FlagValues) else kept if isinstance(value, tuple) else kept[0])
        )
        _note_replacement(draft, f"args.{key}", name)
    return out


def replace_command_secrets(draft: ProfileDraft, command: tuple[str, ...]) -> tuple[str, ...]:
    """Return a command of literal words with its secrets taken from the container's environment, if a shell can do
    that, else masked.
    """
    secrets = find_secret_arguments(command)
    if not secrets:
        return command
    named = {secret: f"SECRET_{number}" for number, secret in enumerate(sorted(secrets, key=len, reverse=True), 1)}
    out = []
    script = find_shell_script(command)
    for position, word in enumerate(command):
        for secret, name in named.items():
            if secret in word and position == script:
                word = word.replace(secret, f"${{{name}}}")
                draft.env[name] = format_reference(name)
            elif secret in word:
                word = word.replace(secret, "CHANGE-ME")
        out.append(word)
    for name in named.values():
        _note_replacement(draft, "command", name)
    return tuple(out)


def replace_data_secrets(value: object, name: str = "") -> object:
    """Return kept data without its secrets."""
    if isinstance(value, dict):
        return {key: replace_data_secrets(one, key) for key, one in value.items()}
    if isinstance(value, list):
        return [replace_data_secrets(one, name) for one in value]
    if isinstance(value, str) and _is_secret_value(name or "_", value):
        return format_reference(re.sub(r"[^A-Za-z0-9]+", "_", name or "SECRET").strip("_").upper() or "SECRET")
    return value


def _strip_arg_secret_defaults(draft: ProfileDraft, key: str, value: ArgValue) -> ArgValue:
    return map_arg_texts(value, lambda text: _strip_secret_defaults(draft, f"args.{key}", key, text))


def _strip_secret_defaults(draft: ProfileDraft, field: str, name: str, text: str) -> str:
    """Return a text without defaults that are secrets: ``${HF_TOKEN:-hf_...}`` becomes ``${HF_TOKEN}``."""

    def strip_secret_default(match: re.Match[str]) -> str:
        variable, default = match["name"], match["default"]
        if variable is None or not default or _is_dummy_secret(default):
            return match[0]
        if not (
            is_secret_name(name)
            or is_secret_name(variable)
            or contains_token(default)
            or find_secret_values([("_", default)])
        ):
            return match[0]
        draft.ledger.add_remark(
            f"The default of {variable} in {field} looks like a secret and is not saved: set it in your environment.",
            field,
        )
        return format_reference(variable)

    return REFERENCE_PATTERN.sub(strip_secret_default, text)


def _is_secret_value(name: str, value: str) -> bool:
    plain = REFERENCE_PATTERN.sub("", value)
    if not plain.strip() or _is_path_of_secret(name, plain):
        return False
    default = any(match["default"] for match in REFERENCE_PATTERN.finditer(value) if match["name"])
    if is_secret_name(name) and (plain != "" or default) and not _is_dummy_secret(plain):
        return True
    text = resolve_defaults(value) or plain
    return contains_token(text) or bool(find_secret_values([("_", text)]) - {text[:0]})


def _is_path_of_secret(name: str, text: str) -> bool:
    """Tell whether a value says where a secret lies (``--api-key-file /run/keys``, ``HF_TOKEN_PATH``), which is none."""
    return re.search(r"[-_](file|path)$", name, re.IGNORECASE) is not None and text.startswith(("/", "~/", "./"))


def _is_dummy_secret(text: str) -> bool:
    """Tell whether a value is a placeholder such as EMPTY, which servers get if there is no key."""
    return text.strip().upper() in ("EMPTY", "NONE", "DUMMY", "NOT-NEEDED", "NULL", "TRUE", "FALSE", "0", "1")


def _note_replacement(draft: ProfileDraft, field: str, name: str) -> None:
    draft.ledger.add_remark(
        f"The value of {field} looks like a secret and is not saved: it is taken from {name} in your environment.",
        field,
    )
