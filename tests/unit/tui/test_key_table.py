"""Footer and help show the keys of the actions. The table of keys in docs/panel.md: `tests/unit/test_docs.py`."""

from __future__ import annotations

from sparkctl.commands.actions import (
    ACTIONS,
    ActionContext,
    ActionId,
    list_enabled_actions,
    list_screen_actions,
)
from sparkctl.tui.key_hints import render_key_footer, render_key_help
from sparkctl.views.text.styled_text import join_text


def test_enter_is_offered_where_it_does_something() -> None:
    actions = list_screen_actions(list_enabled_actions(ActionContext(screens=frozenset(("doctor",)))), "doctor")
    for now, is_offered in (
        (ActionContext(remedy="buy a disk"), False),
        (ActionContext(remedy="sparkctl drop-caches", deed=("drop-caches",)), True),
    ):
        assert ("do it" in join_text(render_key_footer(actions, now, 100)[0])) is is_offered


def test_what_has_no_key_has_its_verb_in_place_of_one() -> None:
    actions = [one for one in ACTIONS if one.id in (ActionId.FREE, ActionId.DOWN)]
    down, free = (join_text(one) for one in render_key_help(actions, ActionContext(), words="", columns=None))
    assert free.lstrip().startswith(":free   stop everything that sparkctl started")
    assert free.count(":free") == 1
    assert down.lstrip().startswith("x   stop the instance")
