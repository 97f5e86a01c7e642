"""A verdict's change, accepted: tried once with ``--set``, or kept in the operator's own profile; then the model is started
again, as `u` does it."""

from __future__ import annotations

import asyncio
import shlex
from collections.abc import Sequence
from typing import TYPE_CHECKING

from sparkctl.core.paths import user_profiles_dir
from sparkctl.core.profiles import ProfileLibrary
from sparkctl.errors import SparkctlError
from sparkctl.model.node import NodeName
from sparkctl.model.text import clean
from sparkctl.present.check_rows import briefly
from sparkctl.present.fit_signs import fit_line
from sparkctl.present.fold import fold
from sparkctl.present.instance_parts import change_row
from sparkctl.present.spans import Row, Span, Tone, row, said
from sparkctl.present.starting import obstacles, standing_rows
from sparkctl.tui.dialogs import Choice, paragraph

if TYPE_CHECKING:
    from sparkctl.core.store import LoadView
    from sparkctl.model.fit import Fit
    from sparkctl.model.profile import Profile
    from sparkctl.model.verdict import Edit
    from sparkctl.tui.app import Panel

_ONCE, _KEEP = "once", "keep"
_NAME = 6  # columns of the words before what is told
_FRAME = 8  # columns of a dialog's frame, and of what is around it


async def accept(panel: Panel, profile: str, node: str, edit: Edit, again: str | None) -> None:
    """Show what would be changed and what it would meet on its Spark, and do what is chosen; no is the default.

    ``again``: the command of the failed start with the change.
    """
    library = ProfileLibrary()
    try:
        made = await asyncio.to_thread(library.load, profile, [edit.setting])
        is_shipped = library.is_shipped(library.find(profile))
    except SparkctlError as error:
        panel.refuse(error)
        return
    fit = None if panel.room is None else await panel.room.fits.once(made, NodeName(node))
    view = next((one for one in panel.situation().views if one.name == node), None)
    choices = (("cancel", "Cancel"), (_ONCE, "try it once"), (_KEEP, "keep it, and start"))
    words = tuple(shlex.split(again)[1:]) if again else ("up", profile, "--node", node, "--set", edit.setting)

    body = _body(panel, made, view, edit, words, fit, is_shipped=is_shipped)

    def take(answer: str | None) -> None:
        if answer == _ONCE:
            panel.command(words)
        elif answer == _KEEP:
            panel.spawn(_keep(panel, profile, edit, _without(words, edit.setting)))

    panel.push_screen(Choice(f"change {profile} and start it again", body, choices), take)


def _body(
    panel: Panel,
    made: Profile,
    view: LoadView | None,
    edit: Edit,
    command: Sequence[str],
    fit: Fit | None,
    *,
    is_shipped: bool,
) -> list[Row]:
    """Return the change, what a start with it would meet, and where it would be kept."""
    guess = "The way is known, how far is a guess." if edit.is_first_try else ""
    rows = [change_row(edit), *([row(Span(guess, Tone.LABEL))] if guess else []), ()]
    if view is not None:
        columns = max(40, min(panel.size.width - _FRAME, 100))
        rows += [*standing_rows(made, view, panel.ascii_only, columns, fit)]
        rows += fit_line(fit, columns, panel.ascii_only) if fit is not None else []
        against = [one for one in obstacles(made, view, fit) if fit is None or not one.startswith(fit.sentence)]
        rows += [line for told in against for line in paragraph(told, Tone.ATTENTION)]
        rows += [()]
    copied = ", your copy of the shipped one" if is_shipped else ""
    kept = f"{user_profiles_dir() / made.name}.yaml" if is_shipped else str(made.origin)
    for name, words in (("once", f"sparkctl {shlex.join(command)}"), ("keep", f"{briefly(kept)}{copied}")):
        for at, line in enumerate(fold(clean(words), max(20, panel.size.width - _FRAME - _NAME), 2)):
            rows.append(row(Span(f"{name if not at else '':<{_NAME}}", Tone.LABEL), said(line, Tone.VALUE)))
    return rows


def _without(words: Sequence[str], setting: str) -> tuple[str, ...]:
    """Return a command without the ``--set`` that stands in the profile from now on."""
    at = next((at for at, word in enumerate(words[1:], 1) if word == setting and words[at - 1] == "--set"), None)
    return tuple(words) if at is None else (*words[: at - 1], *words[at + 1 :])


async def _keep(panel: Panel, profile: str, edit: Edit, words: Sequence[str]) -> None:
    from sparkctl.core.amend import amend

    try:
        path, copied = await asyncio.to_thread(amend, ProfileLibrary(), profile, edit.setting)
    except SparkctlError as error:
        panel.refuse(error)
    except OSError as error:
        panel.say(f"{error.filename or profile}: {error.strerror or error}", severity="error")
    else:
        over = "; yours now goes before the shipped one" if copied else ""
        panel.say(f"{clean(edit.field)} is {clean(edit.value)} in {path}{over}")
        panel.command(words)
