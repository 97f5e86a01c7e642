"""Makes values of a dataclass from its types alone, so that every key, and every word of a closed set, is seen once."""

from __future__ import annotations

import types
import typing
from collections.abc import Iterator, Sequence
from dataclasses import fields, is_dataclass
from enum import Enum
from pathlib import Path

from sparkctl.model import finding, sample
from tests.golden.shapes import FREE_TEXT

# Names that a module imports for its annotations alone.
_TYPING_ONLY = vars(finding) | vars(sample)


class Sampler:
    """Makes values; ``turn`` chooses among the words of a closed set and the members of a union.

    ``words`` are all values of enumerations that were met. ``is_empty``: lists are empty, and what may be None is;
    ``empty_depth``: only what may be None so many dataclasses deep is. ``depth`` is the deepest that was met.
    """

    def __init__(self) -> None:
        self.words: set[str] = set()
        self.turn = 0
        self.turns = 1
        self.is_empty = False
        self.empty_depth: int | None = None
        self.depth = 0
        self._open: list[type] = []

    def make(self, hint: object) -> object:
        """Return a value of a type."""
        origin, parts = typing.get_origin(hint), typing.get_args(hint)
        if origin in (typing.Union, types.UnionType):
            return self._make_member([one for one in parts if one is not type(None)], type(None) in parts)
        if origin is frozenset:
            return frozenset() if self.is_empty else frozenset({self.make(parts[0])})
        if origin in (tuple, Sequence):
            return self._make_tuple(parts if origin is tuple else (*parts, ...))
        if origin is typing.Literal:
            return self._choose(parts)
        if isinstance(hint, typing.NewType):
            return self.make(hint.__supertype__)
        if isinstance(hint, type):
            return self._make_plain(hint)
        raise TypeError(f"no value is known for {hint}")

    def _make_member(self, parts: list[object], may_be_none: bool) -> object:
        is_none = may_be_none and (self.is_empty or len(self._open) == self.empty_depth)
        if is_none:
            return None
        enums = [one for one in parts if isinstance(one, type) and issubclass(one, Enum)]
        if len(enums) == len(parts) or not enums:
            return self.make(self._choose(parts))
        # a closed set of ours, and what others may write: every word of it is seen, too
        chosen = self._choose([*(one for each in enums for one in each), *(one for one in parts if one not in enums)])
        self.words |= {one.value for each in enums for one in each if isinstance(one.value, str)}
        return chosen if isinstance(chosen, Enum) else self.make(chosen)

    def _make_tuple(self, parts: tuple[object, ...]) -> object:
        if parts[-1:] == (Ellipsis,):
            return () if self.is_empty else (self.make(parts[0]),)
        return tuple(self.make(part) for part in parts)

    def _make_plain(self, kind: type) -> object:
        if is_dataclass(kind):
            return self._make_dataclass(kind)
        if issubclass(kind, Enum):
            self.words |= {one.value for one in kind if isinstance(one.value, str)}
            return self._choose(list(kind))
        if issubclass(kind, Path):
            return kind(FREE_TEXT)
        values: dict[type, object] = {bool: True, int: 1, float: 1.5, str: FREE_TEXT, object: FREE_TEXT}
        return values[kind]

    def _make_dataclass(self, kind: type) -> object:
        assert is_dataclass(kind)
        hints = typing.get_type_hints(kind, localns=_TYPING_ONLY)
        self._open.append(kind)
        self.depth = max(self.depth, len(self._open))
        was_empty, self.is_empty = (
            self.is_empty,
            self.is_empty or self._open.count(kind) > 1,
        )  # one within itself ends there
        try:
            return kind(**{one.name: self.make(hints[one.name]) for one in fields(kind) if one.init})
        finally:
            self.is_empty = was_empty
            self._open.pop()

    def _choose(self, choices: typing.Sequence[object]) -> object:
        self.turns = max(self.turns, len(choices))
        return choices[self.turn % len(choices)]


def make_samples(kind: object, words: set[str]) -> Iterator[object]:
    """Yield values of a type: an empty one, full ones until every word was seen, and some without what may be None.

    The words are added to ``words``.
    """
    sampler = Sampler()
    sampler.is_empty = True
    yield sampler.make(kind)
    sampler.is_empty = False
    while sampler.turn < sampler.turns:
        yield sampler.make(kind)
        sampler.turn += 1
    sampler.turn = 0  # whatever the number of words is
    for depth in range(1, sampler.depth + 1):
        sampler.empty_depth = depth
        for turn in range(sampler.turns):
            sampler.turn = turn
            yield sampler.make(kind)
    words |= sampler.words


T = typing.TypeVar("T")


def make_samples_of(kind: type[T], words: set[str]) -> Iterator[T]:
    """Yield the same, as values of their class."""
    for one in make_samples(kind, words):
        assert isinstance(one, kind)
        yield one
