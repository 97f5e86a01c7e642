"""ctrl+p: every action that can be done now, by its name, and the themes. What cannot be done is not offered."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from textual.command import DiscoveryHit, Hit, Hits, Provider
from textual.content import Content

from sparkctl.core.actions import Action, ActionId, available
from sparkctl.model.text import clean
from sparkctl.present.keys import key_words

if TYPE_CHECKING:
    from sparkctl.tui.app import Panel

_NOT = (ActionId.PALETTE, ActionId.BACK)


class Actions(Provider):
    """The panel's actions."""

    def _those(self) -> list[tuple[str, str, Action]]:
        panel: Panel = self.app  # type: ignore[assignment]
        now = panel.situation()
        return [
            (one.title, key_words(one.keys[0]) + (f"   {clean(' '.join(one.words(now)))}" if one.words else ""), one)
            for one in available(panel.actions if panel.front is None else panel.front.actions, now)
            if one.id not in _NOT
        ]

    async def discover(self) -> Hits:
        """Offer all."""
        for title, about, one in self._those():
            yield DiscoveryHit(Content(title), self._do(one), text=title, help=Content(about))  # type: ignore[arg-type]

    async def search(self, query: str) -> Hits:
        """Offer what fits."""
        matcher = self.matcher(query)
        for title, about, one in self._those():
            if (score := matcher.match(title)) > 0:
                yield Hit(score, matcher.highlight(title), self._do(one), text=title, help=Content(about))  # type: ignore[arg-type]

    def _do(self, one: Action) -> partial[None]:
        panel: Panel = self.app  # type: ignore[assignment]
        return partial(panel.act, str(one.id))


class Themes(Provider):
    """The colours."""

    async def search(self, query: str) -> Hits:
        """Offer what fits."""
        matcher = self.matcher(query)
        for name in sorted(self.app.available_themes):
            words = f"theme {name}"
            if (score := matcher.match(words)) > 0:
                yield Hit(score, matcher.highlight(words), partial(setattr, self.app, "theme", name), text=words)
