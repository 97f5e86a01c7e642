"""The README's table of keys is the actions' own."""

from __future__ import annotations

from pathlib import Path

from sparkctl.commands.actions import (
    ACTIONS,
    OVERVIEW,
    ActionContext,
    ActionId,
    has_screens,
    list_enabled_actions,
    list_screen_actions,
)
from sparkctl.tui.key_hints import format_key, render_key_footer, render_key_help
from sparkctl.tui.screens.registry import AVAILABLE_SCREENS
from sparkctl.views.text.styled_text import join_text

README = Path(__file__).parents[3] / "README.md"


def readme_table(screens: frozenset[str]) -> str:
    """Return the README's table of keys, in Markdown."""
    lines = ["| key | does | as a command | `keys:` |", "| --- | --- | --- | --- |"]
    for one in ACTIONS:
        if not has_screens(one, screens):
            continue
        keys = ", ".join(f"`{format_key(key)}`" for key in one.keys) or "—"
        where = "" if not one.on or OVERVIEW in one.on else f"{', '.join(sorted(one.on & screens))}: "
        notes = where + one.title + (" (asks first)" if one.confirm else "")
        lines.append(f"| {keys} | {notes} | {f'`:{one.verb}`' if one.verb else ''} | `{one.id}` |")
    return "\n".join(lines) + "\n"


def test_the_readme_has_the_keys_that_there_are() -> None:
    between = README.read_text().partition("<!-- keys -->\n")[2].partition("<!-- /keys -->")[0]
    assert between == readme_table(AVAILABLE_SCREENS)


def test_enter_is_offered_where_it_does_something() -> None:
    actions = list_screen_actions(list_enabled_actions(ActionContext(screens=frozenset(("doctor",)))), "doctor")
    for now, is_offered in (
        (ActionContext(remedy="buy a disk"), False),
        (ActionContext(remedy="sparkctl drop-caches", deed=("drop-caches",)), True),
    ):
        assert ("do it" in join_text(render_key_footer(actions, now, 100)[0])) is is_offered


def test_what_has_no_key_has_its_verb_in_place_of_one() -> None:
    actions = [one for one in ACTIONS if one.id in (ActionId.FREE, ActionId.DOWN)]
    down, free = (join_text(one) for one in render_key_help(actions, ActionContext()))
    assert free.lstrip().startswith(":free   stop everything that sparkctl started")
    assert free.count(":free") == 1
    assert down.lstrip().startswith("x   stop the instance")
