"""One way in for every source: what it is, is seen from its text."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePath

from sparkctl.errors import InvalidInput
from sparkctl.model.plan import DockerRun
from sparkctl.recipes import beside, compose, docker_line, eugr, policy, services, sparkrun, systemd, yamltext
from sparkctl.recipes.container import read_container
from sparkctl.recipes.draft import Draft, Imported
from sparkctl.recipes.finish import finish
from sparkctl.recipes.ledger import Fate, Ledger

Lookup = Callable[[str], str | None]
_EXPORT = (
    "It claims to be an export of sparkctl. Anybody can write that, so the same is withheld as from any other source."
)


@dataclass(frozen=True, slots=True)
class Wishes:
    """What the operator says beside the source. ``lookup``: gives the text of a recipe that another one includes.

    ``allow``: names of `policy.ALLOW_NAMES`, True for all; ``is_beside``: tells whether a file of this name lies beside the
    source, and will lie beside the profile.
    """

    engines: Sequence[str]
    name: str | None = None
    service: str | None = None
    allow: bool | Collection[str] = False
    defined: Mapping[str, str] = field(default_factory=dict)
    lookup: Lookup = lambda _: None
    is_beside: Callable[[str], bool] = lambda _: False


def read_text(text: str, origin: str, wishes: Wishes) -> Imported:
    """Return the profile of a text. ``origin``: a file's name, or `pasted` and the like.

    Raises `InvalidInput` with what is wrong and where.
    """
    if not text.strip():
        raise InvalidInput(f"{origin}: there is nothing in it")
    ledger = Ledger(allow=wishes.allow)
    ledger.locate = lambda key: _place(text, origin, key)
    suffix = PurePath(origin).suffix.lower()
    if suffix not in (".yaml", ".yml") and systemd.is_unit(text):
        draft = systemd.read(text, ledger, wishes.defined)
    elif suffix not in (".yaml", ".yml") and docker_line.is_line(text) and not _has_keys(text):
        draft = docker_line.read(text, ledger, wishes.defined)
    else:
        draft = _yaml(text, origin, ledger, wishes)
    draft.source = draft.source or _source(draft, origin)
    fields = beside.read(draft)
    if fields is None:
        found = finish(draft, wishes.engines, wishes.name or _stem(draft, origin))
    else:
        beside.complete(draft, fields)
        found = beside.restored(finish(draft, wishes.engines, wishes.name), fields)
    found = policy.apply_policy(found, wishes.is_beside)
    if fields is not None and ledger.of(Fate.WITHHELD):
        ledger.remark(_EXPORT)
    return found


def read_run(run: DockerRun, node: str, wishes: Wishes, beyond: Sequence[tuple[str, str]] = ()) -> Imported:
    """Return the profile of a container; ``beyond``: what it was created with and no profile can say."""
    draft = read_container(run, Ledger(allow=wishes.allow), beyond)
    draft.source = f"The container {run.name} on {node}"
    return policy.apply_policy(finish(draft, wishes.engines, wishes.name), wishes.is_beside)


def _place(text: str, origin: str, key: str) -> str:
    """Return file and line of the first key of that name (the last word of a dotted one)."""
    name = key if key.startswith("#") else re.split(r"[.: ]", key.strip())[-1]
    found = re.search(rf"""(?:^|[\s{{,"'-]){re.escape(name)}["']?\s*:""", text, re.MULTILINE)
    return origin if found is None else f"{origin}:{text.count(chr(10), 0, found.end()) + 1}"


def _yaml(text: str, origin: str, ledger: Ledger, wishes: Wishes) -> Draft:
    data, mended = yamltext.load(text, origin)
    for remark in mended:
        ledger.remark(f"{origin}: {remark}.")
    if compose.is_compose(data):
        written, _ = yamltext.load(text, origin, as_written=True)
        return compose.read(written, ledger, wishes.service, wishes.defined)
    if isinstance(data.get("services"), list):
        return services.read(data, ledger, wishes.service, wishes.defined)
    if data.get("schema") == 1 and "engine" in data:
        raise InvalidInput(f"{origin}: this is a sparkctl profile already", f"sparkctl profiles check {origin}")
    if not any(key in data for key in ("model", "container", "command", "include")):
        known = ", ".join(list(data)[:6])
        raise InvalidInput(
            f"{origin}: this is no recipe: it has none of model, container, command (it has {known})",
            "compose files, sparkrun and eugr recipes, and docker run lines can be imported",
        )
    if str(data.get("recipe_version", "")).strip() in ("1", "1.0") and "runtime" not in data:
        return eugr.read(data, ledger, wishes.defined)
    return sparkrun.read(data, ledger, wishes.defined, wishes.lookup)


def _has_keys(text: str) -> bool:
    """Tell a recipe whose command or notes name `docker run` from a pasted line."""
    return re.search(r"^(recipe_version|services|model|container):", text, re.MULTILINE) is not None


def _stem(draft: Draft, origin: str) -> str | None:
    """Recipes are called as their files are, where they do not say."""
    if draft.kind.value in ("sparkrun", "eugr") and draft.name is None and "." in origin:
        return PurePath(origin).stem
    return None


def _source(draft: Draft, origin: str) -> str:
    words = {
        "docker": "A docker run line", "compose": "A compose file", "sparkrun": "A sparkrun recipe", "eugr": "An eugr recipe",
        "services": "A recipe of services", "systemd": "A systemd unit",
    }  # fmt: skip
    name = PurePath(origin).name
    return words[draft.kind.value] if name == origin and "." not in origin else f"{words[draft.kind.value]}: {name}"
