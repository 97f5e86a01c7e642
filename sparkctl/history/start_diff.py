"""Compares two starts of the history: the profile field by field, the image, the node. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from sparkctl.errors import InvalidInput
from sparkctl.history.model import OperationRecord
from sparkctl.model.lazy_dataclass import dataclass
from sparkctl.model.text.sanitize import sanitize_line, truncate_text

if TYPE_CHECKING:
    from sparkctl.model.profile import Profile
    from sparkctl.model.reference import Reference
    from sparkctl.profiles.yaml_reader import YamlValue

_MOST_CHANGES, _MAX_VALUE_CHARS = 5, 60  # fields of a profile that are named, and of each value
_COMPARED_FACTS = (("driver", "driver"), ("kernel", "kernel"))


@dataclass(frozen=True, slots=True)
class StartDifference:
    """One difference. ``what``: a profile field (dotted), ``image digest``, or ``driver of spark1``. None: was not there."""

    what: str
    before: str | None
    after: str | None


@dataclass(frozen=True, slots=True)
class StartDiff:
    """The differences between two starts. ``unknown``: what cannot be compared, because one of them did not record it."""

    found: tuple[StartDifference, ...]
    unknown: tuple[str, ...] = ()


def diff_starts(before: OperationRecord, after: OperationRecord) -> StartDiff:
    """Return what is different in ``after``: the profile first, then the image and the nodes."""
    found: list[StartDifference] = []
    unknown: list[str] = []
    if before.hash is None or before.hash != after.hash:
        fields = diff_profiles(before.text, after.text)
        unknown += ["the profile"] if fields is None else []
        found += fields or ()
    if before.nodes != after.nodes:
        found.append(StartDifference("nodes", ", ".join(before.nodes), ", ".join(after.nodes)))
    for share in after.shares:
        same = next((one for one in before.shares if one.node == share.node), None)
        other = same or next(iter(before.shares), None)
        _compare_values(
            "image digest", None if other is None else other.image_digest, share.image_digest, found, unknown
        )
        if same is not None:
            # an image has one version, which the log of a start that failed may not tell
            is_same_image = share.image_digest is not None and share.image_digest == same.image_digest
            facts = _COMPARED_FACTS if is_same_image else (*_COMPARED_FACTS, ("engine_version", "engine version"))
            for name, words in facts:
                _compare_values(f"{words} of {share.node}", getattr(same, name), getattr(share, name), found, unknown)
    return StartDiff(tuple(dict.fromkeys(found)), tuple(dict.fromkeys(unknown)))


def _compare_values(
    what: str, before: str | None, after: str | None, found: list[StartDifference], unknown: list[str]
) -> None:
    if before is None or after is None:
        unknown.append(what)
    elif before != after:
        found.append(StartDifference(what, before, after))


def load_recorded_reference(text: str | None) -> tuple[Reference, ...]:
    """Return the reference of a recorded profile; empty where it has none, or cannot be read."""
    profile = load_recorded_profile(text) if "\nreference:\n" in (text or "") else None
    return () if profile is None else profile.reference


def load_recorded_profile(text: str | None) -> Profile | None:
    """Return a recorded profile, None where it cannot be read."""
    if text is None:
        return None
    from sparkctl.profiles.validation import validate_profile
    from sparkctl.profiles.yaml_reader import parse_yaml

    try:
        return validate_profile(parse_yaml(text.encode(), "the stored profile"), Path("stored.yaml"), shipped=False)
    except InvalidInput:
        return None


def diff_profiles(before: str | None, after: str | None) -> tuple[StartDifference, ...] | None:
    """Return the fields in which two profiles differ, in their order; None where one is missing or cannot be read."""
    if before is None or after is None:
        return None
    from sparkctl.profiles.yaml_reader import parse_yaml

    try:
        old, new = (dict(_flatten_fields(parse_yaml(text.encode(), "the stored profile"))) for text in (before, after))
    except InvalidInput:
        return None
    names = [name for name in dict.fromkeys((*new, *old)) if name not in ("notes", "reference")]  # no settings
    return tuple(
        StartDifference(name, old.get(name), new.get(name)) for name in names if old.get(name) != new.get(name)
    )


def describe_changes(record: OperationRecord, profile: Profile) -> str | None:
    """Return in words what a profile has otherwise than the one that was started; None where nothing is, or the start kept none."""
    from sparkctl.profiles.redaction import render_redacted_yaml

    if record.hash is None or record.hash == profile.digest:
        return None
    changes = diff_profiles(record.text, render_redacted_yaml(profile))
    shown = [
        f"{one.what}: {_format_value(one.before)} -> {_format_value(one.after)}"
        for one in (changes or ())[:_MOST_CHANGES]
    ]
    more = len(changes or ()) - len(shown)
    if not shown:  # a secret, or a field of another version
        return f"hash {record.hash} -> {profile.digest}"
    return "; ".join(shown) + (f"; and {more} more" if more > 0 else "")


def _format_value(value: str | None) -> str:
    return "not set" if value is None else truncate_text(sanitize_line(value), _MAX_VALUE_CHARS)


def _flatten_fields(item: YamlValue, path: str = "") -> Iterator[tuple[str, str]]:
    """Yield (dotted field, value as text); a list is one value, but for mounts: of those each is a field."""
    if isinstance(item.value, dict) and item.value:
        for key, entry in item.value.items():
            yield from _flatten_fields(entry.item, f"{path}.{key}" if path else key)
    elif isinstance(item.value, tuple) and path == "mounts":
        yield from ((f"mounts {one.raw}", one.raw or "") for one in item.value)
    else:
        yield path, item.to_json_text() if item.raw is None else item.raw
