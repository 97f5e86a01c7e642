"""A verdict's change, accepted: tried once with ``--set``, or kept in the operator's own profile; then the model is started
again, as `u` does it."""

from __future__ import annotations

import asyncio
import shlex
from collections.abc import Sequence
from typing import TYPE_CHECKING

from sparkctl.errors import SparkctlError
from sparkctl.model.node import NodeName
from sparkctl.model.text.sanitize import sanitize_line
from sparkctl.paths import user_profiles_dir
from sparkctl.profiles.profile_library import ProfileLibrary
from sparkctl.tui.dialogs.base import ChoiceDialog, wrap_paragraph
from sparkctl.views.instance_rows import render_change
from sparkctl.views.profiles.launch_plan_view import list_start_obstacles, render_budget_before_start
from sparkctl.views.profiles.lint_view import shorten_path
from sparkctl.views.profiles.memory_estimate_view import render_estimate_line
from sparkctl.views.text.line_wrap import wrap_line
from sparkctl.views.text.styled_text import Span, TextRow, TextStyle, make_row, sanitize_span

if TYPE_CHECKING:
    from sparkctl.model.memory_fit import MemoryFit
    from sparkctl.model.profile import Profile
    from sparkctl.model.verdict import FieldChange
    from sparkctl.monitor.node_views import NodeTelemetryView
    from sparkctl.tui.app import PanelApp

_ONCE_ANSWER, _KEEP_ANSWER = "once", "keep"
_LABEL_COLUMNS = 6  # columns of the words before what is told
_FRAME_COLUMNS = 8  # columns of a dialog's frame, and of what is around it


async def ask_to_apply_remedy(panel: PanelApp, profile: str, node: str, edit: FieldChange, again: str | None) -> None:
    """Show what would be changed and what it would meet on its Spark, and do what is chosen; no is the default.

    ``again``: the command of the failed start with the change.
    """
    library = ProfileLibrary()
    try:
        made = await asyncio.to_thread(library.load_profile, profile, [edit.set_argument])
        is_shipped = library.is_shipped(library.find_profile_file(profile))
    except SparkctlError as error:
        panel.show_error(error)
        return
    fit = None if panel.controller is None else await panel.controller.fits.compute_estimate(made, NodeName(node))
    view = next((one for one in panel.build_action_context().views if one.name == node), None)
    choices = (("cancel", "Cancel"), (_ONCE_ANSWER, "try it once"), (_KEEP_ANSWER, "keep it, and start"))
    words = tuple(shlex.split(again)[1:]) if again else ("up", profile, "--node", node, "--set", edit.set_argument)

    body = _render_remedy_preview(panel, made, view, edit, words, fit, is_shipped=is_shipped)

    def apply_answer(answer: str | None) -> None:
        if answer == _ONCE_ANSWER:
            panel.run_command_line(words)
        elif answer == _KEEP_ANSWER:
            panel.spawn_task(_save_remedy_to_profile(panel, profile, edit, _drop_set_option(words, edit.set_argument)))

    panel.push_screen(ChoiceDialog(f"change {profile} and start it again", body, choices), apply_answer)


def _render_remedy_preview(
    panel: PanelApp,
    made: Profile,
    view: NodeTelemetryView | None,
    edit: FieldChange,
    command: Sequence[str],
    fit: MemoryFit | None,
    *,
    is_shipped: bool,
) -> list[TextRow]:
    """Return the change, what a start with it would meet, and where it would be kept."""
    guess = "The way is known, how far is a guess." if edit.is_first_try else ""
    rows = [render_change(edit), *([make_row(Span(guess, TextStyle.LABEL))] if guess else []), ()]
    if view is not None:
        columns = max(40, min(panel.size.width - _FRAME_COLUMNS, 100))
        rows += [*render_budget_before_start(made, view, panel.ascii_only, columns, fit)]
        rows += render_estimate_line(fit, columns, panel.ascii_only) if fit is not None else []
        against = [
            one
            for one in list_start_obstacles(made, view, fit)
            if fit is None or not one.startswith(fit.summary_sentence)
        ]
        rows += [line for told in against for line in wrap_paragraph(told, TextStyle.ATTENTION)]
        rows += [()]
    copied = ", your copy of the shipped one" if is_shipped else ""
    kept = f"{user_profiles_dir() / made.name}.yaml" if is_shipped else str(made.origin)
    for name, words in (("once", f"sparkctl {shlex.join(command)}"), ("keep", f"{shorten_path(kept)}{copied}")):
        for at, line in enumerate(
            wrap_line(sanitize_line(words), max(20, panel.size.width - _FRAME_COLUMNS - _LABEL_COLUMNS), 2)
        ):
            rows.append(
                make_row(
                    Span(f"{name if not at else '':<{_LABEL_COLUMNS}}", TextStyle.LABEL),
                    sanitize_span(line, TextStyle.VALUE),
                )
            )
    return rows


def _drop_set_option(words: Sequence[str], setting: str) -> tuple[str, ...]:
    """Return a command without the ``--set`` that stands in the profile from now on."""
    at = next((at for at, word in enumerate(words[1:], 1) if word == setting and words[at - 1] == "--set"), None)
    return tuple(words) if at is None else (*words[: at - 1], *words[at + 1 :])


async def _save_remedy_to_profile(panel: PanelApp, profile: str, edit: FieldChange, words: Sequence[str]) -> None:
    from sparkctl.profiles.profile_edit import save_setting

    try:
        path, copied = await asyncio.to_thread(save_setting, ProfileLibrary(), profile, edit.set_argument)
    except SparkctlError as error:
        panel.show_error(error)
    except OSError as error:
        panel.show_toast(f"{error.filename or profile}: {error.strerror or error}", severity="error")
    else:
        over = "; yours now goes before the shipped one" if copied else ""
        panel.show_toast(f"{sanitize_line(edit.field)} is {sanitize_line(edit.value)} in {path}{over}")
        panel.run_command_line(words)
