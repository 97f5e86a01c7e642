"""Profiles as text."""

from __future__ import annotations

from collections.abc import Sequence

from sparkctl.core.profiles import ProfileSummary
from sparkctl.core.record import plain
from sparkctl.model.plan import Timeouts
from sparkctl.model.profile import ArgValue, JsonText, Profile
from sparkctl.model.secrets import MASK, is_secret_name, redact
from sparkctl.model.text import clean
from sparkctl.model.units import gib, spoken


def profile_lines(summaries: Sequence[ProfileSummary]) -> list[str]:
    """Return one line a profile: name, engine, whose it is, title; a broken one says how to see why."""
    if not summaries:
        return ["no profiles"]
    name_width = max(len(s.name) for s in summaries)
    engine_width = max(len(s.engine or "?") for s in summaries)
    lines = []
    for summary in summaries:
        whose = (
            "shipped" if summary.shipped else ("yours, over the shipped one" if summary.overrides_shipped else "yours")
        )
        about = clean(summary.title or "")
        if summary.faults:
            about = f"broken ({len(summary.faults)}): sparkctl profiles check {summary.origin}"
        lines.append(
            f"{summary.name:{name_width}}  {summary.engine or '?':{engine_width}}  {whose:7}  {about}".rstrip()
        )
    return lines


def profile_text(profile: Profile) -> list[str]:
    """Return the whole profile as labelled lines; values of secrets are masked."""
    rows: list[tuple[str, object]] = [
        ("title", profile.title),
        ("from", f"{profile.origin} ({'shipped' if profile.shipped else 'yours'})"),
        ("engine", profile.engine),
        ("image", profile.image),
        ("model", profile.model.path),
        ("served as", profile.model.served_name),
        ("weights", None if profile.model.weights is None else gib(profile.model.weights)),
        ("nodes", profile.nodes),
        ("port", profile.port),
        ("container", profile.container.name),
        ("expected", None if profile.expected_memory is None else gib(profile.expected_memory)),
        ("stop grace", spoken(profile.stop_grace)),
        ("hash", profile.digest),
        ("source", profile.source),
    ]
    lines = [clean(f"{label:10}  {value}") for label, value in [("name", profile.name), *rows] if value is not None]
    lines += [clean(f"{'mount':10}  {mount}") for mount in profile.mounts]
    lines += [clean(f"{'env':10}  {name}={_env(name, value)}") for name, value in profile.env]
    lines += [clean(f"{'arg':10}  {key}: {_arg(key, value)}") for key, value in profile.args]
    if profile.start.timeouts != Timeouts():
        limits = profile.start.timeouts
        lines.append(f"{'timeouts':10}  loading {spoken(limits.loading)}, warming up {spoken(limits.warming)}")
    if profile.notes:
        lines += ["", *(clean(line) for line in profile.notes.strip().splitlines())]
    return lines


def profile_document(profile: Profile) -> dict[str, object]:
    """Return the profile as JSON data, secrets masked."""
    document = plain(profile)
    assert isinstance(document, dict)
    document["env"] = {name: _env(name, value) for name, value in profile.env}
    document["args"] = {key: _arg(key, value) for key, value in profile.args}
    return {"schema": 1, **document}


def _env(name: str, value: str) -> str:
    """A reference to the operator's environment is no secret; a value in the file is."""
    return value if value.startswith("${") or not is_secret_name(name) else MASK


def _arg(key: str, value: ArgValue) -> object:
    if isinstance(value, JsonText):
        return redact(value.text)
    if is_secret_name(key) and isinstance(value, str) and not value.startswith("${"):
        return MASK
    return list(value) if isinstance(value, tuple) else value
