"""Remove the secrets from a profile: as text for a reader, and as YAML to be kept. Pure."""

from __future__ import annotations

import json
import re
from dataclasses import replace

from sparkctl.model.profile import ArgValue, JsonValue, Profile, list_arg_texts, map_arg_texts
from sparkctl.model.text.secrets import (
    MASK,
    Redactor,
    find_secret_arguments,
    find_secret_values,
    is_secret_name,
    list_secret_spellings,
    redact_word,
    redact_words,
)
from sparkctl.profiles.env_references import REFERENCE_PATTERN, find_engine_secrets


def find_profile_secrets(profile: Profile) -> frozenset[str]:
    """Return the secrets in the profile itself: literal values, and defaults of ``${VAR:-default}``."""
    literal = [(name, REFERENCE_PATTERN.sub("", value)) for name, value in (*profile.env, *profile.container.options)]
    for key, value in profile.args:
        literal += [(key, REFERENCE_PATTERN.sub("", text)) for text in _list_secret_texts(value)]
        literal += [(key, default) for text in _list_secret_texts(value) for default in _list_reference_defaults(text)]
    literal += [(name, default) for name, value in profile.env for default in _list_reference_defaults(value)]
    literal += [(key, kept.text) for key, kept in profile.extra]
    return (
        find_secret_values(literal)
        | find_secret_arguments(profile.command or ())
        | list_secret_spellings(find_engine_secrets(profile, {}))
    )


def redact_value(text: str, own: frozenset[str], *, secret: bool) -> str:
    """Return a value with its secrets masked: a reference to the operator's environment is not a secret, a literal is."""
    redacted, end = "", 0
    for match in REFERENCE_PATTERN.finditer(text):
        redacted += _redact_literal(text[end : match.start()], own, secret=secret) + _redact_reference_default(
            match, own, secret=secret
        )
        end = match.end()
    return redacted + _redact_literal(text[end:], own, secret=secret)


def render_redacted_yaml(profile: Profile) -> str:
    """Return the profile as YAML, merged with its bases and ``--set``, without its secrets."""
    from sparkctl.profiles.yaml_writer import render_profile_yaml

    own = find_profile_secrets(profile)
    box, scrub = profile.container, Redactor(own)

    def redact_texts(texts: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(redact_word(text, own) for text in texts)

    masked = replace(
        profile,
        env=tuple((name, redact_value(value, own, secret=is_secret_name(name))) for name, value in profile.env),
        args=tuple((key, _redact_arg(key, value, own)) for key, value in profile.args),
        command=None if profile.command is None else redact_words(profile.command, own),
        mounts=redact_texts(profile.mounts),
        container=replace(
            box,
            options=tuple((name, redact_value(value, own, secret=is_secret_name(name))) for name, value in box.options),
            entrypoint=None if box.entrypoint is None else redact_word(box.entrypoint, own),
        ),
        made_by=None if profile.made_by is None else scrub.redact_text(profile.made_by),
        notes=None if profile.notes is None else scrub.redact_text(profile.notes),
        source=None if profile.source is None else scrub.redact_text(profile.source),
        extra=(),  # only kept to be written back; its content is not known here
    )
    return scrub.redact_text(render_profile_yaml(masked))


def _list_reference_defaults(text: str) -> tuple[str, ...]:
    return tuple(match["default"] for match in REFERENCE_PATTERN.finditer(text) if match["default"])


def _list_secret_texts(value: ArgValue) -> tuple[str, ...]:
    return (value.text,) if isinstance(value, JsonValue) else list_arg_texts(value)


def _redact_literal(text: str, own: frozenset[str], *, secret: bool) -> str:
    return MASK if secret and text else redact_word(text, own)


def _redact_reference_default(match: re.Match[str], own: frozenset[str], *, secret: bool) -> str:
    name, default = match["name"], match["default"]
    if name is None or not default:
        return match[0]
    return f"${{{name}:-{_redact_literal(default, own, secret=secret or is_secret_name(name))}}}"


def _redact_arg(key: str, value: ArgValue, own: frozenset[str]) -> ArgValue:
    """Return a value of the same type, so that the stored profile can be compared with another one."""
    secret = is_secret_name(key)
    if isinstance(value, JsonValue):
        return MASK if secret else _parse_json_or_text(redact_word(value.text, own))
    return map_arg_texts(value, lambda text: redact_value(text, own, secret=secret))


def _parse_json_or_text(text: str) -> ArgValue:
    try:
        json.loads(text)
    except ValueError:
        return text  # masking removed its type
    return JsonValue(text)
