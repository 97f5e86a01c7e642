"""``@dataclass`` whose methods are made when they are first used: for frozen classes with slots, which is nearly all of them.

``dataclasses`` writes and compiles seven methods for each frozen class. A command imports some 280 of them and makes objects of
70, so that took a third of the whole time of ``sparkctl status``. Here ``__init__`` is compiled at the first object, ``dataclasses``
itself makes the tables of the fields when they are asked for, and the other methods are the same functions for every class.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass
else:
    import dataclasses
    from operator import attrgetter

    _MISSING = object()
    _TABLES = ("__dataclass_fields__", "__dataclass_params__", "__match_args__")

    def dataclass(cls=None, **options):
        """Take what ``dataclasses.dataclass`` takes. A class that is not frozen with slots is left to that."""

        def decorate(cls):
            is_usual = (
                options.keys() <= {"frozen", "slots", "kw_only"} and options.get("frozen") and options.get("slots")
            )
            if not is_usual or any("Var[" in note for note in cls.__annotations__.values()):
                return dataclasses.dataclass(cls, **options)
            return _make_frozen_class(cls, kw_only=options.get("kw_only", False))

        return decorate if cls is None else decorate(cls)

    class _Table:
        """One of the tables of ``dataclasses``: asked for, all of a class are made, by a class that has nothing but its fields."""

        def __init__(self, name, make_tables):
            self._name, self._make_tables = name, make_tables

        def __get__(self, _one, _cls):
            return getattr(self._make_tables(), self._name)

    def _make_frozen_class(cls, *, kw_only):
        notes = cls.__annotations__
        own = dict(cls.__dict__)
        defaults = {name: own.pop(name) for name in notes if name in own}

        def list_own_fields():
            by_name = kw_only
            for name, note in notes.items():
                if note.endswith("KW_ONLY"):
                    by_name = True
                    continue
                one = defaults.get(name, dataclasses.MISSING)
                one = one if isinstance(one, dataclasses.Field) else dataclasses.field(default=one)
                one.name = name
                one.kw_only = by_name if one.kw_only is dataclasses.MISSING else one.kw_only
                yield one

        def make_tables():
            # each type as a plain one: `dataclasses` would search every text for ClassVar, which takes half the time
            kinds = {name: dataclasses.KW_ONLY if note.endswith("KW_ONLY") else object for name, note in notes.items()}
            body = {"__doc__": "-", "__module__": cls.__module__, "__annotations__": kinds} | defaults
            body |= {name: own[name] for name in ("__orig_bases__",) if name in own}  # of a generic class
            twin = type(cls)(cls.__name__, cls.__bases__, body)
            known = dataclasses.dataclass(twin, init=False, repr=False, eq=False, kw_only=kw_only)
            for name in kinds.keys() & known.__dataclass_fields__.keys():
                known.__dataclass_fields__[name].type = notes[name]
            for name in _TABLES:
                setattr(cls, name, getattr(known, name))
            return cls

        def __init__(self, *values, **named):
            cls.__init__ = compiled = _compile_init(cls, list_own_fields() if is_base else dataclasses.fields(cls))
            compiled(self, *values, **named)

        def read_values(one):
            nonlocal read_values
            names = [field.name for field in dataclasses.fields(cls) if field.compare]
            read_values = attrgetter(*names) if names else lambda _one: ()
            return read_values(one)

        def __eq__(self, other):
            return read_values(self) == read_values(other) if other.__class__ is self.__class__ else NotImplemented

        def __hash__(self):
            return hash(read_values(self))

        if own.get("__hash__") is None:
            own["__hash__"] = __hash__
        is_base = not any("__dataclass_fields__" in base.__dict__ for base in cls.__mro__[1:])
        inherited = {name for base in cls.__mro__[1:] for name in getattr(base, "__slots__", ())}
        slots = tuple(name for name, note in notes.items() if not note.endswith("KW_ONLY") and name not in inherited)
        body = (
            {"__init__": __init__, "__repr__": _format_fields, "__eq__": __eq__}
            | _FROZEN
            | {name: value for name, value in own.items() if name not in ("__dict__", "__weakref__")}
            | {name: _Table(name, make_tables) for name in _TABLES}
            | {"__slots__": slots, "__qualname__": cls.__qualname__}
        )
        cls = type(cls)(cls.__name__, cls.__bases__, body)
        if any(default.__class__.__hash__ is None for default in defaults.values()):
            make_tables()  # it refuses a default that all objects would share
        return cls

    def _compile_init(cls, fields):
        scope = {"put": object.__setattr__, "missing": _MISSING}
        parameters, keywords, body = ["self"], [], []
        for index, one in enumerate(fields):
            given = one.name
            if one.default_factory is not dataclasses.MISSING:
                scope[f"default{index}"] = one.default_factory
                default, made = "=missing", f"default{index}()"
                given = f"{made} if {one.name} is missing else {one.name}" if one.init else made
            elif one.default is not dataclasses.MISSING:
                scope[f"default{index}"] = one.default
                default, given = f"=default{index}", one.name if one.init else f"default{index}"
            elif not one.init:
                continue
            else:
                default = ""
            if one.init:
                (keywords if one.kw_only else parameters).append(one.name + default)
            body.append(f"put(self, {one.name!r}, {given})")
        if hasattr(cls, "__post_init__"):
            body.append("self.__post_init__()")
        arguments = ", ".join(parameters + (["*", *keywords] if keywords else []))
        exec(f"def __init__({arguments}):\n " + "\n ".join(body or ["pass"]), scope)  # noqa: S102  (field names of our own classes)
        method = scope["__init__"]
        method.__qualname__ = f"{cls.__qualname__}.__init__"
        return method

    def _format_fields(self):
        shown = (f"{one.name}={getattr(self, one.name)!r}" for one in dataclasses.fields(self) if one.repr)
        return f"{self.__class__.__qualname__}({', '.join(shown)})"

    def _refuse_to_set(_self, name, _value):
        raise dataclasses.FrozenInstanceError(f"cannot assign to field {name!r}")

    def _refuse_to_delete(_self, name):
        raise dataclasses.FrozenInstanceError(f"cannot delete field {name!r}")

    def _read_state(self):
        return [getattr(self, one.name) for one in dataclasses.fields(self)]

    def _restore_state(self, state):
        for one, value in zip(dataclasses.fields(self), state, strict=True):
            object.__setattr__(self, one.name, value)

    class _Signature:
        """What ``inspect.signature`` tells of a class whose ``__init__`` may not be compiled yet."""

        def __get__(self, _one, cls):
            import inspect

            method = inspect.signature(_compile_init(cls, dataclasses.fields(cls)))
            return method.replace(parameters=list(method.parameters.values())[1:])

    _FROZEN = {
        "__signature__": _Signature(),
        "__setattr__": _refuse_to_set,
        "__delattr__": _refuse_to_delete,
        "__getstate__": _read_state,
        "__setstate__": _restore_state,
    }
