"""A frozen dataclass whose methods are made late behaves as one of ``dataclasses`` does."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import pickle
from collections.abc import Callable
from typing import Any, ClassVar

import pytest

from sparkctl.model import lazy_dataclass

Decorator = Callable[..., Any]


def make_classes(dataclass: Decorator) -> dict[str, Any]:
    """Return classes of every shape that the product uses, made by this decorator."""

    @dataclass(frozen=True, slots=True)
    class Empty:
        pass

    @dataclass(frozen=True, slots=True)
    class Pair:
        first: int
        second: str = "two"

        def is_large(self) -> bool:
            return self.first > 10

    @dataclass(frozen=True, slots=True, kw_only=True)
    class Named:
        name: str
        items: list[int] = dataclasses.field(default_factory=list)
        password: str | None = dataclasses.field(default=None, repr=False)
        cached: dict[str, int] = dataclasses.field(default_factory=dict, compare=False, repr=False)
        length: int = dataclasses.field(init=False, default=0)

        def __post_init__(self) -> None:
            object.__setattr__(self, "length", len(self.name))

    @dataclass(frozen=True, slots=True)
    class Mixed:
        first: int
        _: dataclasses.KW_ONLY
        second: int
        third: int = 3

    @dataclass(frozen=True, slots=True)
    class Child(Pair):
        third: float = 0.5

    @dataclass(frozen=True, slots=True)
    class OwnMethods:
        value: int

        def __eq__(self, other: object) -> bool:
            return isinstance(other, OwnMethods)

        def __repr__(self) -> str:
            return "own"

    @dataclass(frozen=True, slots=True)
    class Shared:
        value: int
        limit: ClassVar[int] = 5

    @dataclass(slots=True)
    class Changing:
        value: int

    return {one.__name__: one for one in (Empty, Pair, Named, Mixed, Child, OwnMethods, Shared, Changing)}


LATE, THEIRS = make_classes(lazy_dataclass.dataclass), make_classes(dataclasses.dataclass)
globals().update(LATE)  # pickle finds a class by its name in its module
for _one in LATE.values():
    _one.__qualname__ = _one.__name__

MADE: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = [
    ("Empty", (), {}),
    ("Pair", (1,), {}),
    ("Pair", (1, "other"), {}),
    ("Pair", (), {"second": "by name", "first": 11}),
    ("Named", (), {"name": "qwen36"}),
    ("Named", (), {"name": "qwen36", "items": [1, 2], "password": "x"}),
    ("Mixed", (1,), {"second": 2}),
    ("Child", (1, "two", 2.5), {}),
    ("OwnMethods", (1,), {}),
    ("Shared", (1,), {}),
    ("Changing", (1,), {}),
]
REFUSED: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = [
    ("Empty", (1,), {}),
    ("Pair", (), {}),
    ("Pair", (1, "two", 3), {}),
    ("Pair", (1,), {"third": 3}),
    ("Named", ("qwen36",), {}),
    ("Named", (), {}),
    ("Named", (), {"name": "a", "length": 3}),
    ("Mixed", (1, 2), {}),
]


@pytest.mark.parametrize(("name", "values", "named"), MADE)
def test_objects_are_the_same_as_those_of_dataclasses(
    name: str, values: tuple[Any, ...], named: dict[str, Any]
) -> None:
    late, theirs = LATE[name](*values, **named), THEIRS[name](*values, **named)
    assert repr(late) == repr(theirs).replace("make_classes.<locals>.", "")
    assert dataclasses.asdict(late) == dataclasses.asdict(theirs)
    assert late == LATE[name](*values, **named)
    assert late != theirs
    assert late != 1
    assert LATE[name].__match_args__ == THEIRS[name].__match_args__
    assert [(one.name, one.type, one.kw_only, one.init) for one in dataclasses.fields(late)] == [
        (one.name, one.type, one.kw_only, one.init) for one in dataclasses.fields(theirs)
    ]
    assert not hasattr(late, "__dict__")


@pytest.mark.parametrize(("name", "values", "named"), REFUSED)
def test_wrong_arguments_are_refused_in_the_same_words(
    name: str, values: tuple[Any, ...], named: dict[str, Any]
) -> None:
    with pytest.raises(TypeError) as theirs:
        THEIRS[name](*values, **named)
    with pytest.raises(TypeError) as late:
        LATE[name](*values, **named)
    assert str(late.value) == str(theirs.value).replace("make_classes.<locals>.", "")


@pytest.mark.parametrize("name", ["Empty", "Pair", "Child"])
def test_equal_objects_have_equal_hashes(name: str) -> None:
    values = () if name == "Empty" else (1,)
    assert hash(LATE[name](*values)) == hash(LATE[name](*values))
    assert len({LATE[name](*values), LATE[name](*values)}) == 1


def test_what_differs_is_not_equal() -> None:
    pair, named = LATE["Pair"], LATE["Named"]
    assert pair(1) != pair(2)
    assert hash(pair(1)) != hash(pair(2))
    assert pair(1) != LATE["Child"](1)
    assert named(name="a", cached={"b": 1}) == named(name="a")  # not compared
    assert named(name="a", items=[1]) != named(name="a")
    with pytest.raises(TypeError, match="unhashable"):
        hash(named(name="a"))


def test_nothing_can_be_set_or_deleted() -> None:
    one = LATE["Pair"](1)
    with pytest.raises(dataclasses.FrozenInstanceError, match="cannot assign to field 'first'"):
        one.first = 2
    with pytest.raises(dataclasses.FrozenInstanceError, match="cannot delete field 'first'"):
        del one.first
    assert one.first == 1
    changing = LATE["Changing"](1)
    changing.value = 2
    assert changing.value == 2


def test_each_object_has_its_own_default() -> None:
    one, other = LATE["Named"](name="a"), LATE["Named"](name="a")
    one.items.append(1)
    assert (one.items, other.items, one.length) == ([1], [], 1)


def test_replaced_copied_and_pickled_objects_are_equal() -> None:
    one = LATE["Child"](12, "b", 1.0)
    assert dataclasses.replace(one, first=3) == LATE["Child"](3, "b", 1.0)
    assert copy.copy(one) == copy.deepcopy(one) == pickle.loads(pickle.dumps(one)) == one
    assert one.is_large()


def test_init_is_compiled_at_the_first_object() -> None:
    late = make_classes(lazy_dataclass.dataclass)["Pair"]
    before = late.__init__
    late(1)
    compiled = late.__init__
    late(2)
    assert before is not compiled
    assert late.__init__ is compiled


@pytest.mark.parametrize("name", THEIRS)
def test_the_signature_is_known_before_the_first_object(name: str) -> None:
    late, theirs = (
        inspect.signature(make_classes(one)[name]) for one in (lazy_dataclass.dataclass, dataclasses.dataclass)
    )
    assert [(one.name, one.kind, one.default is one.empty) for one in late.parameters.values()] == [
        (one.name, one.kind, one.default is one.empty) for one in theirs.parameters.values()
    ]


def test_a_mutable_default_is_refused_when_the_class_is_made() -> None:
    with pytest.raises(ValueError, match="mutable default"):

        @lazy_dataclass.dataclass(frozen=True, slots=True)
        class Wrong:
            items: list[int] = []  # noqa: RUF012  (what is refused)
