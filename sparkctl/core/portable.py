"""A profile's launch without a node: what `docker run` would be told, still with ``~`` and ``${VAR}``. Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace

from sparkctl.core.planning import container_name, usual_network, wanted
from sparkctl.engines.base import Engine
from sparkctl.model.profile import ArgValue, JsonText, Profile
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
    box = profile.container
    told = replace(
        profile,
        args=tuple((key, _noted(value)) for key, value in args),
        command=None if command is None else tuple(literal(word) for word in command),
        model=replace(
            profile.model,
            path=None if profile.model.path is None else literal(profile.model.path),
            served_name=None if profile.model.served_name is None else literal(profile.model.served_name),
        ),
    )
    return Portable(
        profile=profile, title=_line(profile.title), name=container_name(profile),
        words=engine.argv(told), gpus=wanted(box.gpus, engine.defaults.gpus),
        network=box.network or usual_network(profile.port or engine.defaults.port, box.options), env=tuple(draft.env.items()),
        beside=beside(profile), remarks=tuple(remark.text for remark in draft.ledger.remarks),
    )  # fmt: skip


def _line(text: str | None) -> str | None:
    """Return a text as one line: a second one behind a comment's sign would be read as more than words."""
    return None if text is None else " ".join(clean(text).split()) or None


def _noted(value: ArgValue) -> ArgValue:
    return JsonText(literal(value.text)) if isinstance(value, JsonText) else value
