"""The panel's two themes, and the style of each `TextStyle` in any Textual theme."""

from __future__ import annotations

from io import StringIO

from rich.console import Console
from rich.style import Style
from textual.color import Color
from textual.constants import COLOR_SYSTEM
from textual.theme import Theme

from sparkctl.views.text.styled_text import AREA_BODIES, TextStyle

DARK_THEME = Theme(
    name="spark", primary="#7fa9f0", secondary="#7fa9f0", accent="#7fa9f0", foreground="#d6dade", background="#101317",
    surface="#171b21", panel="#1d2229", success="#86c06c", warning="#e2b45f", error="#e5686a", dark=True,
)  # fmt: skip
LIGHT_THEME = Theme(
    name="spark-light", primary="#2a57b0", secondary="#2a57b0", accent="#2a57b0", foreground="#20262c", background="#f7f8f9",
    surface="#eceef1", panel="#e2e5e9", success="#3d7a2a", warning="#8f6200", error="#b3282d", dark=False,
)  # fmt: skip


# Of memory, of tokens, of load, power and heat, and of links: beside the accent and the states, which have the warm ones.
_HUES_ON_DARK = ("#4fc3ab", "#b794ea", "#e391b8", "#62bfe0")
_HUES_ON_LIGHT = ("#0b7a66", "#7440b8", "#a83274", "#0a6f93")
_BODY_SHARE, _BODY_SHARE_OF_256 = (
    0.48,
    0.35,
)  # of the ground in what lies under a curve; of 256 colours the darker ones are grey
_FEW_COLOURS = ("standard", "windows")
MIN_CONTRAST = 4.5  # WCAG 2.1 level AA for text


def has_few_colours() -> bool:
    """Tell whether the terminal has sixteen colours only. They have to reach it as they are: Textual would turn them into those of
    a theme, of which Rich takes the nearest of the sixteen, and yellow became red, and red magenta."""
    console = Console(color_system=COLOR_SYSTEM, file=StringIO(), force_terminal=True)  # type: ignore[arg-type]
    return (console.color_system or "") in _FEW_COLOURS


def build_theme_styles(theme: Theme, *, colourless: bool, colour_system: str | None) -> dict[TextStyle, Style]:
    """Return the style of each `TextStyle`. ``colourless``: bold and dim only, for NO_COLOR. ``colour_system``: the terminal's, as
    Rich calls it; with sixteen colours the nearest one of a hue is often grey, so the terminal's own are used."""
    if colourless or theme.ansi or colour_system in _FEW_COLOURS:
        return _build_ansi_styles(colourless)
    ground = Color.parse(theme.background or ("#101317" if theme.dark else "#f7f8f9"))
    text = Color.parse(theme.foreground or ("#d6dade" if theme.dark else "#20262c"))
    accent = Color.parse(theme.primary)
    good, attention, bad = (
        Color.parse(given or other)
        for given, other in ((theme.success, "#86c06c"), (theme.warning, "#e2b45f"), (theme.error, "#e5686a"))
    )

    def make_style(colour: Color, *, bold: bool = False) -> Style:
        return Style(color=colour.rich_color, bold=bold or None)

    dim, old, faint = ensure_contrast(text, ground, 0.30), ensure_contrast(text, ground, 0.42), text.blend(ground, 0.72)
    hues = map(Color.parse, _HUES_ON_DARK if theme.dark else _HUES_ON_LIGHT)
    accent, good, attention, bad, memory, rate, power, link = (
        ensure_contrast(one, ground) for one in (accent, good, attention, bad, *hues)
    )
    hot = attention.blend(bad, 0.5)
    body = _BODY_SHARE_OF_256 if colour_system == "256" else _BODY_SHARE
    memory_warm, power_warm = memory.blend(attention, 0.5), power.blend(attention, 0.5)
    bright = text.blend(Color.parse("white" if theme.dark else "black"), 0.45)
    return {
        TextStyle.PLAIN: make_style(text),
        TextStyle.LABEL: make_style(dim),
        TextStyle.UNIT: make_style(dim),
        TextStyle.VALUE: make_style(text),
        TextStyle.STRONG: make_style(bright, bold=True),
        TextStyle.TITLE: make_style(bright, bold=True),
        TextStyle.ACCENT: make_style(accent),
        TextStyle.GOOD: make_style(good),
        TextStyle.ATTENTION: make_style(attention),
        TextStyle.BAD: make_style(bad, bold=True),
        TextStyle.STALE: make_style(old),
        TextStyle.FRAME: make_style(faint),
        TextStyle.CHOSEN: make_style(accent),
        TextStyle.KEY: make_style(accent, bold=True),
        TextStyle.GPU: make_style(memory),
        TextStyle.OTHER: make_style(memory.blend(ground, 0.30)),
        TextStyle.CACHE: make_style(text.blend(ground, 0.62)),
        TextStyle.FREE: make_style(text.blend(ground, 0.80)),
        TextStyle.RATE: make_style(rate),
        TextStyle.POWER: make_style(power),
        TextStyle.LINK: make_style(link),
        TextStyle.MEMORY_WARM: make_style(memory_warm),
        TextStyle.POWER_WARM: make_style(power_warm),
        TextStyle.HOT: make_style(hot),
        TextStyle.BODY: make_style(accent.blend(ground, body)),
        TextStyle.MEMORY_BODY: make_style(memory.blend(ground, body)),
        TextStyle.RATE_BODY: make_style(rate.blend(ground, body)),
        TextStyle.POWER_BODY: make_style(power.blend(ground, body)),
        TextStyle.LINK_BODY: make_style(link.blend(ground, body)),
        TextStyle.MEMORY_WARM_BODY: make_style(memory_warm.blend(ground, body)),
        TextStyle.POWER_WARM_BODY: make_style(power_warm.blend(ground, body)),
        TextStyle.ATTENTION_BODY: make_style(attention.blend(ground, body)),
        TextStyle.HOT_BODY: make_style(hot.blend(ground, body)),
        TextStyle.BAD_BODY: make_style(bad.blend(ground, body)),
    }


def contrast_ratio(one: Color, other: Color) -> float:
    """Return the contrast ratio of two colours, 1 to 21 (WCAG 2.1)."""
    lighter, darker = sorted((_compute_luminance(one), _compute_luminance(other)), reverse=True)
    return (lighter + 0.05) / (darker + 0.05)


def ensure_contrast(colour: Color, ground: Color, faded: float = 0.0) -> Color:
    """Return a colour blended into its ground by ``faded``, or by less, so that the contrast is at least `MIN_CONTRAST`."""
    for share in (faded, faded * 0.75, faded * 0.5, faded * 0.25, 0.0):
        if contrast_ratio(made := colour.blend(ground, share), ground) >= MIN_CONTRAST:
            return made
    away = Color.parse("white" if _compute_luminance(ground) < 0.18 else "black")
    shades = (colour.blend(away, step / 10) for step in range(1, 11))
    return next((shade for shade in shades if contrast_ratio(shade, ground) >= MIN_CONTRAST), away)


def _compute_luminance(colour: Color) -> float:
    shares = (part / 12.92 if part <= 0.03928 else ((part + 0.055) / 1.055) ** 2.4 for part in colour.normalized)
    return sum(weight * share for weight, share in zip((0.2126, 0.7152, 0.0722), shares, strict=True))


def _build_ansi_styles(colourless: bool) -> dict[TextStyle, Style]:
    """Return styles in the terminal's sixteen colours; ``colourless``: bold and dim only."""

    def make_style(colour: str | None, *, bold: bool = False, dim: bool = False) -> Style:
        return Style(color=None if colourless else colour, bold=bold or None, dim=dim or None)

    return {
        TextStyle.PLAIN: make_style(None),
        TextStyle.LABEL: make_style(None, dim=True),
        TextStyle.UNIT: make_style(None, dim=True),
        TextStyle.VALUE: make_style(None),
        TextStyle.STRONG: make_style(None, bold=True),
        TextStyle.TITLE: make_style(None, bold=True),
        TextStyle.ACCENT: make_style("cyan"),
        TextStyle.GOOD: make_style("green"),
        TextStyle.ATTENTION: make_style("yellow"),
        TextStyle.BAD: make_style("red", bold=True),
        TextStyle.STALE: make_style("bright_black", dim=colourless),
        TextStyle.FRAME: make_style("bright_black", dim=colourless),
        TextStyle.CHOSEN: make_style("cyan", bold=True),
        TextStyle.KEY: make_style("cyan", bold=True),
        TextStyle.GPU: make_style("bright_cyan"),
        TextStyle.OTHER: make_style("cyan"),
        TextStyle.CACHE: make_style(None, dim=True),
        TextStyle.FREE: make_style("bright_black", dim=colourless),
        TextStyle.RATE: make_style("magenta"),
        TextStyle.POWER: make_style("bright_magenta"),
        TextStyle.LINK: make_style("bright_blue"),
        TextStyle.MEMORY_WARM: make_style("bright_cyan"),
        TextStyle.POWER_WARM: make_style("bright_magenta"),
        TextStyle.HOT: make_style("yellow", bold=True),
        **dict.fromkeys(AREA_BODIES, make_style("bright_black", dim=colourless)),
    }
