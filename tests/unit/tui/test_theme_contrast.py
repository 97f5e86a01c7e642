"""What is written can be read: its contrast with the ground, in our themes and in Textual's."""

from __future__ import annotations

import pytest
from rich.color import ColorSystem
from textual.color import Color
from textual.theme import BUILTIN_THEMES, Theme

from sparkctl.tui.theme import (
    DARK_THEME,
    LIGHT_THEME,
    MIN_CONTRAST,
    build_theme_styles,
    contrast_ratio,
    has_few_colours,
)
from sparkctl.views.text.styled_text import AREA_BODIES, TextStyle

READ = (
    TextStyle.PLAIN,
    TextStyle.LABEL,
    TextStyle.VALUE,
    TextStyle.UNIT,
    TextStyle.STRONG,
    TextStyle.ACCENT,
    TextStyle.GOOD,
    TextStyle.ATTENTION,
    TextStyle.BAD,
    TextStyle.STALE,
    TextStyle.KEY,
    TextStyle.TITLE,
    TextStyle.GPU,
    TextStyle.RATE,
    TextStyle.POWER,
    TextStyle.LINK,
)
COLOURED = [one for one in (DARK_THEME, LIGHT_THEME, *BUILTIN_THEMES.values()) if not one.ansi]


@pytest.mark.parametrize("theme", COLOURED, ids=lambda one: one.name)
def test_text_can_be_read(theme: Theme) -> None:
    ground = Color.parse(theme.background or ("#101317" if theme.dark else "#f7f8f9"))
    found = build_theme_styles(theme, colourless=False, colour_system=None)
    for tone in READ:
        colour = found[tone].color
        assert colour is not None
        assert contrast_ratio(Color.from_rich_color(colour), ground) >= MIN_CONTRAST - 0.1, tone


@pytest.mark.parametrize("theme", [DARK_THEME, LIGHT_THEME], ids=lambda one: one.name)
def test_what_log_views_dim_can_be_read(theme: Theme) -> None:
    text, ground = (Color.parse(one) for one in (theme.foreground or "", theme.background or ""))
    assert contrast_ratio(text.blend(ground, 0.35), ground) >= MIN_CONTRAST


def test_contrast_is_that_of_the_web() -> None:
    assert contrast_ratio(Color.parse("white"), Color.parse("black")) == pytest.approx(21.0)
    assert contrast_ratio(Color.parse("#777777"), Color.parse("white")) == pytest.approx(4.48, abs=0.01)


@pytest.mark.parametrize("theme", [DARK_THEME, LIGHT_THEME], ids=lambda one: one.name)
def test_each_quantity_has_a_hue_of_its_own_beside_the_accent_and_the_states(theme: Theme) -> None:
    found = build_theme_styles(theme, colourless=False, colour_system=None)
    tones = (
        TextStyle.ACCENT, TextStyle.GPU, TextStyle.RATE, TextStyle.POWER, TextStyle.LINK, TextStyle.GOOD, TextStyle.ATTENTION, TextStyle.BAD,
    )  # fmt: skip
    colours = [found[tone].color for tone in tones]
    assert len(set(colours)) == len(tones)


def test_sixteen_colours_keep_the_hues_apart_and_no_colour_has_none() -> None:
    ansi = next(one for one in BUILTIN_THEMES.values() if one.ansi)
    found = build_theme_styles(ansi, colourless=False, colour_system=None)
    hues = [
        found[tone].color for tone in (TextStyle.GPU, TextStyle.RATE, TextStyle.POWER, TextStyle.LINK, TextStyle.ACCENT)
    ]
    assert len(set(hues)) == len(hues)
    assert all(style.color is None for style in build_theme_styles(ansi, colourless=True, colour_system=None).values())


@pytest.mark.parametrize("theme", [DARK_THEME, LIGHT_THEME], ids=lambda one: one.name)
def test_a_terminal_with_sixteen_colours_gets_its_own_so_that_no_state_turns_grey(theme: Theme) -> None:
    found = build_theme_styles(theme, colourless=False, colour_system="standard")
    names = {tone: found[tone].color for tone in (TextStyle.GOOD, TextStyle.ATTENTION, TextStyle.BAD)}
    assert [colour and colour.name for colour in names.values()] == ["green", "yellow", "red"]
    of_256, of_all = (build_theme_styles(theme, colourless=False, colour_system=one) for one in ("256", None))
    assert {tone for tone in of_all if of_256[tone] != of_all[tone]} <= {*AREA_BODIES, TextStyle.BODY}


@pytest.mark.parametrize("theme", [DARK_THEME, LIGHT_THEME], ids=lambda one: one.name)
def test_what_lies_under_a_curve_keeps_its_hue_in_256_colours(theme: Theme) -> None:
    found = build_theme_styles(theme, colourless=False, colour_system="256")
    for tone in (TextStyle.MEMORY_BODY, TextStyle.RATE_BODY, TextStyle.POWER_BODY, TextStyle.LINK_BODY):
        colour = found[tone].color
        assert colour is not None
        shown = colour.downgrade(ColorSystem.EIGHT_BIT).get_truecolor()
        assert max(shown) - min(shown) >= 40, tone


@pytest.mark.parametrize(
    ("term", "depth", "few"), [("xterm", "", True), ("xterm-256color", "", False), ("xterm", "truecolor", False)]
)
def test_sixteen_colours_reach_the_terminal_as_they_are(
    monkeypatch: pytest.MonkeyPatch, term: str, depth: str, few: bool
) -> None:
    monkeypatch.setenv("TERM", term)
    monkeypatch.setenv("COLORTERM", depth)
    assert has_few_colours() is few
