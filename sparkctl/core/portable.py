"""A profile's launch without a node: what `docker run` would be told, still with ``~`` and ``${VAR}``. Pure."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace

from sparkctl.core.planning import container_name, usual_network, wanted
from sparkctl.core.profile_masked import own_secrets
from sparkctl.core.scrub import Scrubber
from sparkctl.engines.base import Engine
from sparkctl.model.profile import ArgValue, JsonText, Profile
from sparkctl.model.secrets import redact_word
from sparkctl.model.text import clean
from sparkctl.recipes import secrecy
from sparkctl.recipes.beside import beside
from sparkctl.recipes.draft import Draft, Kind
from sparkctl.recipes.ledger import Ledger
from sparkctl.recipes.references import literal


@dataclass(frozen=True, slots=True)
class Portable:
    """Texts in a profile's notation: ``${NAME}`` is the operator's own, ``$${`` the text ``${``; ``~`` the node's home.

    ``title`` is one line. ``words`` stand behind the image; ``options`` as in `LaunchPlan`; ``remarks`` are what should
    be known of it; ``beside`` is what the form has no word for.
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


def portable(profile: Profile, engine: Engine) -> Portable:
    """Return the launch of a profile, its secrets left to the environment of whoever starts it."""
    draft = Draft(Kind.DOCKER, Ledger(), env=dict(profile.env))
    secrecy.env(draft)
    args = secrecy.flags(draft, list(profile.args))
    command = profile.command and secrecy.words(draft, profile.command)
    box, own = profile.container, own_secrets(profile)
    scrub = Scrubber(own)
    shown_box = replace(
        box,
        options=tuple((name, redact_word(value, own)) for name, value in box.options),
        entrypoint=None if box.entrypoint is None else redact_word(box.entrypoint, own),
    )
    mounts = tuple(redact_word(mount, own) for mount in profile.mounts)
    if (shown_box, mounts) != (box, profile.mounts):
        draft.ledger.remark(
            "What looked like a secret among the container's options and mounts is masked: write it again there."
        )
    told = replace(
        profile,
        title=None if profile.title is None else scrub.text(profile.title),
        notes=None if profile.notes is None else scrub.text(profile.notes),
        source=None if profile.source is None else scrub.text(profile.source),
        extra=tuple((key, _without_secrets(key, kept)) for key, kept in profile.extra),
        container=shown_box,
        mounts=mounts,
        args=tuple((key, _noted(value)) for key, value in args),
        command=None if command is None else tuple(literal(word) for word in command),
        model=replace(
            profile.model,
            path=None if profile.model.path is None else literal(profile.model.path),
            served_name=None if profile.model.served_name is None else literal(profile.model.served_name),
        ),
    )
    # Words are in a profile's notation; what is written beside them is text as it stands.
    plain = replace(told, args=tuple(args), command=command, model=profile.model)
    return Portable(
        profile=plain, title=_line(told.title), name=container_name(profile),
        words=engine.argv(told), gpus=wanted(box.gpus, engine.defaults.gpus),
        network=box.network or usual_network(profile.port or engine.defaults.port, box.options), env=tuple(draft.env.items()),
        beside=beside(plain), remarks=tuple(remark.text for remark in draft.ledger.remarks),
    )  # fmt: skip


def _line(text: str | None) -> str | None:
    """Return a text as one line: a second one behind a comment's sign would be read as more than words."""
    return None if text is None else " ".join(clean(text).split()) or None


def _without_secrets(key: str, kept: JsonText) -> JsonText:
    value = json.loads(kept.text)
    found = secrecy.data(value, key)
    return kept if found == value else JsonText(json.dumps(found, ensure_ascii=False, separators=(",", ":")))


def _noted(value: ArgValue) -> ArgValue:
    return JsonText(literal(value.text)) if isinstance(value, JsonText) else value
