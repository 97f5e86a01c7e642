"""Masking what leaves the operator's machine in a file: texts and Docker's JSON of whatever shape."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from sparkctl.model.secrets import MASK, is_secret_name, redact_word, redact_words


@dataclass(frozen=True, slots=True)
class Scrubber:
    """Masks secrets by name, by shape, and the values that are ``known`` wherever they turn up."""

    known: frozenset[str] = frozenset()

    def text(self, text: str) -> str:
        """Return a text, each line masked."""
        return "\n".join(redact_word(line, self.known) for line in text.split("\n"))

    def data(self, value: object) -> object:
        """Return decoded JSON, masked: values under names like secrets, words behind flags like secrets, and the rest."""
        if isinstance(value, dict):
            return {self.text(str(key)): self._under(str(key), item) for key, item in value.items()}
        if isinstance(value, list):
            return self._list(value)
        return self.text(value) if isinstance(value, str) else value

    def _under(self, name: str, value: object) -> object:
        return _blank(value) if is_secret_name(name) else self.data(value)

    def _list(self, values: list[object]) -> list[object]:
        if all(isinstance(one, str) for one in values):  # a command or an environment
            return [self.text(word) for word in redact_words([str(one) for one in values], self.known)]
        return [self.data(one) for one in values]


def _blank(value: object) -> object:
    """Return the same shape with every text and number masked."""
    if isinstance(value, dict):
        return {key: _blank(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_blank(one) for one in value]
    return value if value is None or isinstance(value, bool) or value == "" else MASK


def known_in(*several: Iterable[str]) -> frozenset[str]:
    """Return all the values together."""
    return frozenset(one for some in several for one in some)
