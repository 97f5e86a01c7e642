"""The profile picker: asks which profile to start or switch to, and on which node, with memory estimates."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ClassVar

from textual import events
from textual.binding import Binding, BindingType

from sparkctl.model.lazy_dataclass import dataclass
from sparkctl.model.memory_fit import MemoryFit
from sparkctl.model.node import NodeName
from sparkctl.model.phase import Phase
from sparkctl.model.profile import Profile
from sparkctl.model.text.sanitize import sanitize_line
from sparkctl.model.text.units import format_gib
from sparkctl.monitor.node_views import NodeTelemetryView
from sparkctl.profiles.profile_library import ProfileOffer
from sparkctl.tui.dialogs.base import MAX_TYPED, REFRESH_SECONDS, ChoiceDialog, TypedFilter, render_sentence
from sparkctl.views.profiles.launch_plan_view import (
    describe_rank_nodes,
    list_start_obstacles,
    render_budget_before_start,
)
from sparkctl.views.profiles.memory_estimate_view import (
    find_worst_estimate,
    format_symbol_legend,
    render_estimate_line,
    render_estimate_symbol,
    render_rank_estimates,
)
from sparkctl.views.text.line_wrap import wrap_text
from sparkctl.views.text.styled_text import (
    Span,
    TextRow,
    TextStyle,
    find_span,
    get_state_symbol,
    justify_row,
    make_row,
    measure_row,
    measure_text,
    pad_text,
    sanitize_span,
    truncate_row,
)

_ANYWAY_ANSWER = "anyway"

_NAME_COLUMNS = 24  # minimum columns of a name
_MIN_LEGEND_LINES = 18  # rows from which on the legend is shown
_PAGE_ROWS, _ALL_ROWS = 10, 9999


def _format_claim(fit: MemoryFit | None) -> str:
    """Return what `plan` sums up; nothing before that is known, so that no figure changes while it is read."""
    return "" if fit is None or fit.needed_bytes is None else format_gib(fit.needed_bytes)


def _describe_profile(profile: Profile) -> str:
    return profile.title or profile.engine


def _is_running(profile: Profile, view: NodeTelemetryView) -> bool:
    return any(one.ours and one.is_alive and one.name == profile.name for one in view.instances)


@dataclass(frozen=True, slots=True, kw_only=True)
class PickedStart:
    """What was picked: a profile under its name, the nodes of its ranks, and how to start it."""

    name: str
    profile: Profile
    nodes: tuple[NodeName, ...]
    switches: bool = False
    replaces: bool = False


class ProfilePicker(TypedFilter[PickedStart]):
    """Returns what to start or to switch to, and where."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("down,ctrl+n", "move(1)", show=False),
        Binding("up,ctrl+p", "move(-1)", show=False),
        Binding("pagedown", f"move({_PAGE_ROWS})", show=False),
        Binding("pageup", f"move(-{_PAGE_ROWS})", show=False),
        Binding("home", f"move(-{_ALL_ROWS})", show=False),
        Binding("end", f"move({_ALL_ROWS})", show=False),
        Binding("tab", "node(1)", show=False),
        Binding("shift+tab", "node(-1)", show=False),
        Binding("enter", "take", show=False),
        Binding("ctrl+s", "switch", show=False),
        Binding("backspace", "erase", show=False),
        Binding("ctrl+u", "erase_all", show=False),
    ]

    def __init__(
        self,
        offers: Sequence[ProfileOffer],
        seen: Callable[[], Sequence[NodeTelemetryView]],
        node: str | None,
        title: str,
        fit: Callable[[Profile, NodeName], MemoryFit | None] = lambda profile, node: None,
        missing: Callable[[Profile, NodeName], Sequence[str]] = lambda profile, node: (),
        *,
        to_switch: bool,
    ) -> None:
        super().__init__(title)
        self._to_switch = to_switch
        self._every, self._seen, self._views = offers, seen, list(seen())
        self._offers = offers  # those that match what was typed
        self._fit, self._missing = fit, missing
        self._at = 0
        names = [view.name for view in self._views]
        self._node = names.index(node) if node in names else 0  # type: ignore[arg-type]
        self._visible: dict[int, TextRow] = {}  # the rows of the visible profiles
        self._nodes_row: TextRow = ()

    def on_mount(self) -> None:
        """Start to update the node views."""
        self.set_interval(REFRESH_SECONDS, self._refresh_views)

    def _refresh_views(self) -> None:
        """Update the views of the listed nodes; a node that has gone keeps its last view."""
        fresh = {view.name: view for view in self._seen()}
        views = [fresh.get(view.name, view) for view in self._views]
        fits = [self._worst_estimate(one.profile) for one in self._every if one.profile is not None]
        if fits != self._answered or views != self._views:
            self._answered, self._views = fits, views
            self.draw_dialog()

    _answered: Sequence[MemoryFit | None] = ()

    @property
    def target_view(self) -> NodeTelemetryView:
        """The view of the target node."""
        return self._views[self._node]

    @property
    def _selected_profile(self) -> Profile | None:
        return self._offers[self._at].profile if self._offers else None

    def render_rows(self) -> Sequence[TextRow]:
        """Return the profiles, the nodes, and the effect of the selected start."""
        _, high = self.inner_size
        below = [
            (),
            nodes := self._render_nodes_row(),
            *self._render_node_budget(),
            (),
        ]  # the first row may show how many profiles follow
        self._nodes_row = nodes
        shown = max(2, high - len(below) - 2)
        waits = [one.profile for one in self._offers if one.profile is not None]
        legend = format_symbol_legend(is_counting=any(self._worst_estimate(one) is None for one in waits))
        if measure_row(legend) > self.inner_size[0]:
            legend = format_symbol_legend()
        if high >= _MIN_LEGEND_LINES and measure_row(legend) <= self.inner_size[0]:
            below.insert(1, legend)
            shown = max(2, shown - 1)
        if self._typed and not self._offers:
            below[0] = make_row(Span("  no profile matches", TextStyle.ATTENTION))
        first = max(0, min(self._at - shown // 2, len(self._offers) - shown))
        more = len(self._offers) - first - shown
        if more > 0:
            below[0] = make_row(Span(f"  ↓ {more} more", TextStyle.LABEL))
        wide = min(
            max((measure_text(one.name) for one in self._every), default=0),
            max(_NAME_COLUMNS, self.inner_size[0] // 3),
        )
        about = max((measure_text(_describe_profile(one.profile)) for one in self._every if one.profile), default=0)
        ends = min(len(self._offers), first + shown)
        self._visible = {at: self._render_offer(at, self._offers[at], wide, about) for at in range(first, ends)}
        rows = [*self._visible.values()]
        blank: list[TextRow] = [()] * (min(len(self._every), shown) - len(rows))  # the dialog keeps its size
        return [self._render_filter(), *rows, *blank, *below]

    def _render_filter(self) -> TextRow:
        """Return what was typed, or that typing filters; nothing where there is one profile only."""
        if len(self._every) == 1:
            return ()
        if not self._typed:
            return make_row(Span("  type to filter", TextStyle.STALE))
        return make_row(
            Span("  / ", TextStyle.KEY),
            sanitize_span(self._typed, TextStyle.STRONG),
            Span("▏", TextStyle.ACCENT),
            Span(f"  {len(self._offers)} of {len(self._every)}", TextStyle.LABEL),
        )

    def _render_offer(self, at: int, one: ProfileOffer, wide: int, widest: int) -> TextRow:
        mine = at == self._at
        mark = "▸" if mine else " "
        name = truncate_row(make_row(sanitize_span(one.name)), wide, "…")[0].text
        if one.profile is None:
            return make_row(
                Span(f"{mark} ", TextStyle.ACCENT),
                sanitize_span(f"{pad_text(name, wide)}   {one.trouble}", TextStyle.STALE),
            )
        fit = self._worst_estimate(one.profile)
        left = make_row(
            Span(f"{mark} ", TextStyle.ACCENT),
            sanitize_span(pad_text(name, wide), TextStyle.STRONG if mine else TextStyle.VALUE),
            sanitize_span(f"   {_describe_profile(one.profile)}", TextStyle.LABEL),
        )
        columns = min(self.inner_size[0], wide + widest + 20)
        right = make_row(
            Span(f"{_format_claim(fit):>10}", TextStyle.UNIT),
            Span("  "),
            render_estimate_symbol(fit),
        )
        if all(_is_running(one.profile, view) for view in self._list_rank_views(one.profile)):
            right = make_row(
                Span(f"{'runs':>10}  ", TextStyle.GOOD), Span(get_state_symbol(Phase.READY), TextStyle.GOOD)
            )
        return justify_row(left, right, columns)

    def _render_nodes_row(self) -> TextRow:
        spans: list[Span] = [Span("on   ", TextStyle.LABEL)]
        for at, view in enumerate(self._views):
            mine = at == self._node
            spans += [
                sanitize_span(
                    f"[ {view.name} ]" if mine else f"  {view.name}  ", TextStyle.KEY if mine else TextStyle.LABEL
                ),
                Span(" "),
            ]
        return tuple(spans)

    def _render_node_budget(self) -> list[TextRow]:
        chosen = self._selected_profile
        if chosen is None:
            return []
        fit, wide = self._get_selected_fit(), self.inner_size[0]
        if self._to_switch:
            words = "You see what stops, stays and starts there before anything is done."
            return wrap_text(words, wide, TextStyle.LABEL)
        if chosen.nodes > 1:
            return self._render_rank_nodes(chosen)
        return [
            *render_budget_before_start(chosen, self.target_view, wide, fit, is_counting=True),
            *render_estimate_line(fit, wide),
            *self._render_missing(chosen),
        ]

    def _render_missing(self, chosen: Profile) -> list[TextRow]:
        parts = self._missing(chosen, self.target_view.name)
        if not parts:
            return []
        label = Span("get  ", TextStyle.LABEL)
        words = f"{' and '.join(parts)}: not on {self.target_view.name}; you are asked before it is fetched"
        return wrap_text(words, self.inner_size[0], TextStyle.ATTENTION, head=(label,))

    def _render_rank_nodes(self, chosen: Profile) -> list[TextRow]:
        """Return the nodes of its ranks, and whether each fits there."""
        wide, views = self.inner_size[0], self._list_rank_views(chosen)
        tone = TextStyle.LABEL if len(views) == chosen.nodes else TextStyle.ATTENTION
        rows = wrap_text(describe_rank_nodes(chosen, [view.name for view in views]), wide, tone)
        fits = [self._fit(chosen, view.name) for view in views]
        for view, fit in zip(views, fits, strict=True):
            standing = render_budget_before_start(
                chosen, view, max(20, wide - len(view.name) - 2), fit, is_counting=True
            )
            rows += [make_row(sanitize_span(f"{view.name}  ", TextStyle.LABEL), *standing[-1])] if standing else []
        return rows + (render_rank_estimates(fits, wide) if len(views) == chosen.nodes else [])

    def _list_rank_views(self, chosen: Profile) -> list[NodeTelemetryView]:
        """Return the nodes of its ranks: the selected one as head, then the next ones."""
        count = min(chosen.nodes, len(self._views))
        return [self._views[(self._node + at) % len(self._views)] for at in range(count)]

    def _get_selected_fit(self) -> MemoryFit | None:
        """Return the estimate of the selected profile on the target node; None where it is not computed yet."""
        chosen = self._selected_profile
        return None if chosen is None else self._fit(chosen, self.target_view.name)

    def _worst_estimate(self, profile: Profile) -> MemoryFit | None:
        """Return the worst estimate of a profile's ranks; None until all are computed."""
        fits = [self._fit(profile, view.name) for view in self._list_rank_views(profile)]
        known = [one for one in fits if one is not None]
        return find_worst_estimate(known) if known and len(known) == len(fits) else None

    def render_footer_rows(self) -> Sequence[TextRow]:
        chosen = self._selected_profile
        others = len(self._views) - 1
        words = " the other Spark   " if others == 1 else " another Spark   "
        tab = (Span("tab", TextStyle.KEY), Span(words, TextStyle.LABEL)) if others else ()
        can = chosen is not None and chosen.nodes <= len(self._views)
        starts = (Span("enter", TextStyle.KEY), Span(" starts   ", TextStyle.LABEL)) if can else ()
        switches = (Span("ctrl+s", TextStyle.KEY), Span(" switches   ", TextStyle.LABEL)) if chosen else ()
        if self._to_switch:
            starts, switches = (
                (Span("enter", TextStyle.KEY), Span(" shows the switch   ", TextStyle.LABEL)) if chosen else (),
                (),
            )
        made = make_row(*starts, *switches, *tab, Span("esc", TextStyle.KEY), Span(" leaves", TextStyle.LABEL))
        if measure_row(made) > self.inner_size[0]:
            made = make_row(*starts, *switches, Span("esc", TextStyle.KEY), Span(" leaves", TextStyle.LABEL))
        return [made]

    def on_paste(self, event: events.Paste) -> None:
        """Add pasted text to the filter."""
        event.stop()
        self.apply_filter((self._typed + sanitize_line(event.text).strip())[:MAX_TYPED])

    def apply_filter(self, typed: str) -> None:
        """Show the profiles with all typed words in name or title, that of this name first, then those whose name has the whole text."""
        if len(self._every) == 1:
            return
        chosen = self._offers[self._at].name if self._offers else None
        self._typed = typed.lstrip()
        words = self._typed.casefold().split()

        def describe(one: ProfileOffer) -> str:
            return f"{one.name} {'' if one.profile is None else _describe_profile(one.profile)}".casefold()

        found = [one for one in self._every if all(word in describe(one) for word in words)]
        whole = self._typed.casefold().strip()
        self._offers = sorted(
            found,
            key=lambda one: (
                one.name.casefold() != whole,
                not one.name.casefold().startswith(whole),
                whole not in one.name,
            ),
        )
        names = [one.name for one in self._offers]
        self._at = names.index(chosen) if not words and chosen in names else 0
        self.draw_dialog()

    def action_erase_all(self) -> None:
        self.apply_filter("")

    def action_move(self, by: int) -> None:
        self._at = max(0, min(len(self._offers) - 1, self._at + by))
        self.draw_dialog()

    def click_row(self, row: TextRow, x: int, *, twice: bool) -> None:
        """Select the clicked profile, twice as enter does; or the clicked node."""
        if (at := next((at for at, one in self._visible.items() if one is row), None)) is not None:
            self._at = at
            self.draw_dialog()
            if twice:
                self.action_take()
        elif row is self._nodes_row and (at := find_span(row, x)) is not None and at % 2:
            self._node = at // 2  # the label, then each node and a blank
            self.draw_dialog()

    def on_mouse_scroll_down(self) -> None:
        """Select the next profile by the wheel."""
        self.action_move(1)

    def on_mouse_scroll_up(self) -> None:
        """Select the previous profile by the wheel."""
        self.action_move(-1)

    def action_node(self, by: int) -> None:
        self._node = (self._node + by) % len(self._views)
        self.draw_dialog()

    def action_switch(self) -> None:
        """Plan a switch to the selected profile and node."""
        if (chosen := self._selected_profile) is not None:
            nodes = tuple(each.name for each in self._list_rank_views(chosen))
            self.dismiss(PickedStart(name=self._offers[self._at].name, profile=chosen, nodes=nodes, switches=True))

    def action_take(self) -> None:
        """Start the selected profile; replace a running version of it. Ask first where an obstacle is known."""
        if self._to_switch:
            self.action_switch()
            return
        chosen = self._selected_profile
        if chosen is None:
            return
        ranks = self._list_rank_views(chosen)
        if len(ranks) < chosen.nodes:
            self.panel.bell()  # the dialog shows why
            return
        picked = PickedStart(
            name=self._offers[self._at].name,
            profile=chosen,
            nodes=tuple(each.name for each in ranks),
            replaces=any(_is_running(chosen, each) for each in ranks),
        )
        against = [why for each in ranks for why in list_start_obstacles(chosen, each, self._fit(chosen, each.name))]
        if not against:
            self.dismiss(picked)
            return
        where = " and ".join(each.name for each in ranks)
        question = render_sentence(f"Start {chosen.name} on {where} anyway?", TextStyle.STRONG)
        body = [*question, (), *(line for one in against for line in render_sentence(one, TextStyle.ATTENTION))]

        def start_if_confirmed(answer: str | None) -> None:
            if answer == _ANYWAY_ANSWER:
                self.dismiss(picked)

        choices = (("cancel", "Cancel"), (_ANYWAY_ANSWER, "start it"))
        self.panel.push_screen(
            ChoiceDialog("this cannot do well", body, choices, TextStyle.ATTENTION), start_if_confirmed
        )
