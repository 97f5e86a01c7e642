"""A profile's launch without a node: the arguments of `docker run`, with ``~`` and ``${VAR}`` kept. Pure."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace

from sparkctl.engines.base import Engine
from sparkctl.model.profile import ArgValue, JsonValue, Profile
from sparkctl.model.text.sanitize import sanitize_line
from sparkctl.model.text.secrets import Redactor, redact_word
from sparkctl.profiles.env_references import escape_references
from sparkctl.profiles.importers import secret_references
from sparkctl.profiles.importers.export_metadata import format_metadata_json
from sparkctl.profiles.importers.import_report import ImportReport
from sparkctl.profiles.importers.profile_draft import ProfileDraft, SourceFormat
from sparkctl.profiles.launch_planning import choose_container_name, choose_default_network, choose_or_default
from sparkctl.profiles.redaction import find_profile_secrets


@dataclass(frozen=True, slots=True, kw_only=True)
class PortableLaunch:
    """Texts are in a profile's notation: ``${NAME}`` is the operator's variable, ``$${`` the text ``${``; ``~`` the
    node's home.

    ``title`` is one line. ``words`` follow the image; ``remarks`` are notes for the reader; ``beside`` holds what the
    target form cannot express.
    """

    profile: Profile
    title: str | None
    name: str
    words: tuple[str, ...]
    gpus: str | None
    network: str | None
    env: tuple[tuple[str, str], ...]
    beside: str
    remarks: tuple[str, ...]


def build_portable_launch(profile: Profile, engine: Engine) -> PortableLaunch:
    """Return the launch of a profile; its secrets come from the environment of the person who starts it."""
    draft = ProfileDraft(kind=SourceFormat.DOCKER, ledger=ImportReport(), env=dict(profile.env))
    secret_references.replace_env_secrets(draft)
    args = secret_references.replace_flag_secrets(draft, list(profile.args))
    command = profile.command and secret_references.replace_command_secrets(draft, profile.command)
    box, own = profile.container, find_profile_secrets(profile)
    scrub = Redactor(own)
    shown_box = replace(
        box,
        options=tuple((name, redact_word(value, own)) for name, value in box.options),
        entrypoint=None if box.entrypoint is None else redact_word(box.entrypoint, own),
    )
    mounts = tuple(redact_word(mount, own) for mount in profile.mounts)
    if (shown_box, mounts) != (box, profile.mounts):
        draft.ledger.add_remark(
            "Values in the container's options and mounts that look like secrets are masked; write them again there."
        )
    told = replace(
        profile,
        title=None if profile.title is None else scrub.redact_text(profile.title),
        made_by=None if profile.made_by is None else scrub.redact_text(profile.made_by),
        notes=None if profile.notes is None else scrub.redact_text(profile.notes),
        source=None if profile.source is None else scrub.redact_text(profile.source),
        extra=tuple((key, _remove_extra_secrets(key, kept)) for key, kept in profile.extra),
        container=shown_box,
        mounts=mounts,
        args=tuple((key, _escape_json_references(value)) for key, value in args),
        command=None if command is None else tuple(escape_references(word) for word in command),
        model=replace(
            profile.model,
            path=None if profile.model.path is None else escape_references(profile.model.path),
            served_name=None if profile.model.served_name is None else escape_references(profile.model.served_name),
        ),
    )
    # Words are in a profile's notation; the texts beside them are literal.
    plain = replace(told, args=tuple(args), command=command, model=profile.model)
    return PortableLaunch(
        profile=plain, title=_to_single_line(told.title), name=choose_container_name(profile),
        words=engine.build_command(told), gpus=choose_or_default(box.gpus, engine.defaults.gpus),
        network=box.network or choose_default_network(profile.port or engine.defaults.port, box.options), env=tuple(draft.env.items()),
        beside=format_metadata_json(plain), remarks=tuple(remark.text for remark in draft.ledger.remarks),
    )  # fmt: skip


def _to_single_line(text: str | None) -> str | None:
    """Return a text as one line: a second line after a comment sign would not be a comment."""
    return None if text is None else " ".join(sanitize_line(text).split()) or None


def _remove_extra_secrets(key: str, kept: JsonValue) -> JsonValue:
    value = json.loads(kept.text)
    found = secret_references.replace_data_secrets(value, key)
    return kept if found == value else JsonValue(json.dumps(found, ensure_ascii=False, separators=(",", ":")))


def _escape_json_references(value: ArgValue) -> ArgValue:
    return JsonValue(escape_references(value.text)) if isinstance(value, JsonValue) else value
