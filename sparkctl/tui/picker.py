"""What to start, and where: the profiles, the node, and what stands there already."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ClassVar

from textual.binding import Binding, BindingType

from sparkctl.core.store import LoadView
from sparkctl.model.fit import Fit
from sparkctl.model.node import NodeName
from sparkctl.model.phase import Phase
from sparkctl.model.profile import Profile
from sparkctl.model.units import gib
from sparkctl.present.fit_signs import fit_legend, fit_line, fit_sign, share_lines, worst_of
from sparkctl.present.fold import fold
from sparkctl.present.spans import Row, Span, Tone, cells, cut, ends, row, said, width
from sparkctl.present.starting import for_several, obstacles, standing_rows
from sparkctl.present.symbols import symbol
from sparkctl.tui.dialogs import Choice, Dialog, paragraph
from sparkctl.tui.offers import Offer

_ANYWAY = "anyway"

_NAME = 24  # columns that a name may take in any terminal
_WITH_LEGEND = 18  # lines from which on the signs are explained
_LOOK = 1.0  # seconds between two looks at the Sparks


def _about(profile: Profile) -> str:
    return profile.title or profile.engine


def _runs(profile: Profile, view: LoadView) -> bool:
    return any(one.ours and one.is_alive and one.name == profile.name for one in view.instances)


class Picker(Dialog[tuple[str, ...]]):
    """Gives the words of an `up`, or of a `switch`."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("down,j", "move(1)", show=False),
        Binding("up,k", "move(-1)", show=False),
        Binding("right,tab,l", "node(1)", show=False),
        Binding("left,shift+tab,h", "node(-1)", show=False),
        Binding("enter", "take", show=False),
        Binding("s", "switch", show=False),
        Binding("q", "cancel", show=False),
    ]

    def __init__(
        self,
        offers: Sequence[Offer],
        seen: Callable[[], Sequence[LoadView]],
        node: str | None,
        title: str = "start a profile",
        fit: Callable[[Profile, NodeName], Fit | None] = lambda profile, node: None,
        *,
        to_switch: bool = False,
    ) -> None:
        super().__init__(title)
        self._to_switch = to_switch
        self._offers, self._seen, self._views = offers, seen, list(seen())
        self._fit = fit
        self._at = 0
        names = [view.name for view in self._views]
        self._node = names.index(node) if node in names else 0  # type: ignore[arg-type]

    def on_mount(self) -> None:
        """Go on showing what stands there: it may change while somebody chooses."""
        self.set_interval(_LOOK, self._look)

    def _look(self) -> None:
        """See anew the Sparks that there were; one that went since stays as it was last seen, and says so when it is asked."""
        fresh = {view.name: view for view in self._seen()}
        views = [fresh.get(view.name, view) for view in self._views]
        fits = [self._worst(one.profile) for one in self._offers if one.profile is not None]
        if fits != self._answered or views != self._views:
            self._answered, self._views = fits, views
            self.draw()

    _answered: Sequence[Fit | None] = ()

    @property
    def view(self) -> LoadView:
        """The node that it would be started on, as it is now."""
        return self._views[self._node]

    def rows(self) -> Sequence[Row]:
        """Return the profiles, the nodes, and what starting this one there would mean."""
        _, high = self.room
        below = [(), self._nodes_row(), *self._standing(), ()]  # above the Sparks it is said what more there is
        shown = max(2, high - len(below) - 2)
        legend = fit_legend(self.panel.ascii_only)
        if high >= _WITH_LEGEND and width(legend) <= self.room[0]:
            below.insert(1, legend)
            shown = max(2, shown - 1)
        first = max(0, min(self._at - shown // 2, len(self._offers) - shown))
        more = len(self._offers) - first - shown
        if more > 0:
            below[0] = row(Span(f"  {'v' if self.panel.ascii_only else '↓'} {more} more", Tone.LABEL))
        wide = min(max((cells(one.name) for one in self._offers), default=0), max(_NAME, self.room[0] // 3))
        about = max((cells(_about(one.profile)) for one in self._offers if one.profile), default=0)
        rows = [self._offer(at, one, wide, about) for at, one in enumerate(self._offers)][first : first + shown]
        return [(), *rows, *below]

    def _offer(self, at: int, one: Offer, wide: int, widest: int) -> Row:
        mine = at == self._at
        mark = (">" if self.panel.ascii_only else "▸") if mine else " "
        name = cut(row(said(one.name)), wide, "~" if self.panel.ascii_only else "…")[0].text
        if one.profile is None:
            return row(Span(f"{mark} ", Tone.ACCENT), said(f"{name:<{wide}}   {one.trouble}", Tone.STALE))
        plain, fit = self.panel.ascii_only, self._worst(one.profile)
        left = row(
            Span(f"{mark} ", Tone.ACCENT), said(f"{name:<{wide}}", Tone.STRONG if mine else Tone.VALUE),
            said(f"   {_about(one.profile)}", Tone.LABEL),
        )  # fmt: skip
        columns = min(self.room[0], wide + widest + 20)
        size = one.profile.expected_memory  # a claim by a share of what is free changes with what stands there
        right = row(Span("" if size is None else f"{gib(size):>10}", Tone.UNIT), Span("  "), fit_sign(fit, plain))
        if all(_runs(one.profile, view) for view in self._ranks(one.profile)):
            right = row(Span(f"{'runs':>10}  ", Tone.GOOD), Span(symbol(Phase.READY, plain), Tone.GOOD))
        return ends(left, right, columns)

    def _nodes_row(self) -> Row:
        spans: list[Span] = [Span("on   ", Tone.LABEL)]
        for at, view in enumerate(self._views):
            mine = at == self._node
            spans += [
                said(f"[ {view.name} ]" if mine else f"  {view.name}  ", Tone.KEY if mine else Tone.LABEL),
                Span(" "),
            ]
        return tuple(spans)

    def _standing(self) -> list[Row]:
        chosen = self._offers[self._at].profile if self._offers else None
        if chosen is None:
            return []
        fit, plain, wide = self._answer(), self.panel.ascii_only, self.room[0]
        if self._to_switch:
            words = "What would stop, stay and start there is shown before anything is done."
            return [row(said(line, Tone.LABEL)) for line in fold(words, wide, 0)]
        if chosen.nodes > 1:
            return self._of_several(chosen)
        return [
            *standing_rows(chosen, self.view, plain, wide, fit, is_counting=True),
            *fit_line(fit, wide, plain),
        ]

    def _of_several(self, chosen: Profile) -> list[Row]:
        """Return where its ranks would be, and whether each finds room there."""
        wide, views = self.room[0], self._ranks(chosen)
        tone = Tone.LABEL if len(views) == chosen.nodes else Tone.ATTENTION
        rows = [row(said(line, tone)) for line in fold(for_several(chosen, [view.name for view in views]), wide, 0)]
        fits = [self._fit(chosen, view.name) for view in views]
        for view, fit in zip(views, fits, strict=True):
            standing = standing_rows(
                chosen, view, self.panel.ascii_only, max(20, wide - len(view.name) - 2), fit, is_counting=True
            )
            rows += [row(said(f"{view.name}  ", Tone.LABEL), *standing[-1])] if standing else []
        return rows + (share_lines(fits, wide, self.panel.ascii_only) if len(views) == chosen.nodes else [])

    def _ranks(self, chosen: Profile) -> list[LoadView]:
        """Return the Sparks of its ranks, the head's first: the one that is selected, and the next ones."""
        count = min(chosen.nodes, len(self._views))
        return [self._views[(self._node + at) % len(self._views)] for at in range(count)]

    def _answer(self) -> Fit | None:
        """Return whether the chosen one fits there, as far as it was counted."""
        chosen = self._offers[self._at].profile if self._offers else None
        return None if chosen is None else self._fit(chosen, self.view.name)

    def _worst(self, profile: Profile) -> Fit | None:
        """Return the answer that decides for a profile on the Sparks of its ranks; None until all were counted."""
        fits = [self._fit(profile, view.name) for view in self._ranks(profile)]
        known = [one for one in fits if one is not None]
        return worst_of(known) if known and len(known) == len(fits) else None

    def answers(self) -> Sequence[Row]:
        """Return what keys do."""
        chosen = self._offers[self._at].profile if self._offers else None
        others = len(self._views) - 1
        words = " the other Spark   " if others == 1 else " another Spark   "
        tab = (Span("tab", Tone.KEY), Span(words, Tone.LABEL)) if others else ()
        can = chosen is not None and chosen.nodes <= len(self._views)
        starts = (Span("enter", Tone.KEY), Span(" starts   ", Tone.LABEL)) if can else ()
        switches = (Span("s", Tone.KEY), Span(" switches   ", Tone.LABEL)) if chosen else ()
        if self._to_switch:
            starts, switches = (Span("enter", Tone.KEY), Span(" shows the switch   ", Tone.LABEL)) if chosen else (), ()
        made = row(*starts, *switches, *tab, Span("esc", Tone.KEY), Span(" leaves", Tone.LABEL))
        if width(made) > self.room[0]:
            made = row(*starts, *switches, Span("esc", Tone.KEY), Span(" leaves", Tone.LABEL))
        return [made]

    def action_move(self, by: int) -> None:
        """Go to another profile."""
        self._at = max(0, min(len(self._offers) - 1, self._at + by))
        self.draw()

    def action_node(self, by: int) -> None:
        """Go to another node."""
        self._node = (self._node + by) % len(self._views)
        self.draw()

    def action_switch(self) -> None:
        """Have it shown what a switch to this one there would be."""
        if (chosen := self._offers[self._at].profile) is not None:
            nodes = [word for each in self._ranks(chosen) for word in ("--node", each.name)]
            self.dismiss(("switch", self._offers[self._at].name, *nodes))

    def action_take(self) -> None:
        """Start this one there; another version of it is replaced, as the dialog has said. Asks where it cannot do well."""
        if self._to_switch:
            self.action_switch()
            return
        chosen = self._offers[self._at].profile
        if chosen is None:
            return
        ranks = self._ranks(chosen)
        if len(ranks) < chosen.nodes:
            self.panel.bell()  # why is said below
            return
        runs = any(_runs(chosen, each) for each in ranks)
        nodes = [word for each in ranks for word in ("--node", each.name)]
        words = ("up", self._offers[self._at].name, *nodes, *(("--replace",) if runs else ()))
        against = [why for each in ranks for why in obstacles(chosen, each, self._fit(chosen, each.name))]
        if not against:
            self.dismiss(words)
            return
        where = " and ".join(each.name for each in ranks)
        asked = paragraph(f"Start {chosen.name} on {where} all the same?", Tone.STRONG)
        body = [*asked, (), *(line for one in against for line in paragraph(one, Tone.ATTENTION))]

        def take(answer: str | None) -> None:
            if answer == _ANYWAY:
                self.dismiss(words)

        choices = (("cancel", "Cancel"), (_ANYWAY, "start it"))
        self.panel.push_screen(Choice("this cannot do well", body, choices, Tone.ATTENTION), take)
