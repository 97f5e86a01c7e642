"""Footer and help show the keys of the actions. The table of keys in docs/panel.md: `tests/unit/test_docs.py`."""

from __future__ import annotations

from sparkctl.core.actions import ACTIONS, ActionId, Situation, meant_on, there_are
from sparkctl.present.keys import footer, help_rows
from sparkctl.present.spans import text


def test_enter_is_offered_where_it_does_something() -> None:
    actions = meant_on(there_are(Situation(screens=frozenset(("doctor",)))), "doctor")
    for now, is_offered in (
        (Situation(remedy="buy a disk"), False),
        (Situation(remedy="sparkctl drop-caches", deed=("drop-caches",)), True),
    ):
        assert ("do it" in text(footer(actions, now, 100)[0])) is is_offered


def test_what_has_no_key_has_its_verb_in_place_of_one() -> None:
    actions = [one for one in ACTIONS if one.id in (ActionId.FREE, ActionId.DOWN)]
    down, free = (text(one) for one in help_rows(actions, Situation()))
    assert free.lstrip().startswith(":free   stop all that sparkctl started")
    assert free.count(":free") == 1
    assert down.lstrip().startswith("x   stop the instance")
