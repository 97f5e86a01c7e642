"""``@dataclass`` whose methods are made when they are first used: for frozen classes with slots, which is nearly all of them.

``dataclasses`` writes and compiles seven methods for each frozen class. A command imports some 280 of them and makes objects of
70, so that took a third of the whole time of ``sparkctl status``. Here the fields, the slots and ``__match_args__`` are those
of ``dataclasses``; ``__init__`` is compiled at the first object, and the other methods are the same functions for every class.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass
else:
    import dataclasses
    from operator import attrgetter

    _MISSING = object()

    def dataclass(cls=None, **options):
        """Take what ``dataclasses.dataclass`` takes. A class that is not frozen with slots is left to that."""

        def decorate(cls):
            if not (options.get("frozen") and options.get("slots")) or options.keys() - {"frozen", "slots", "kw_only"}:
                return dataclasses.dataclass(cls, **options)
            return _add_frozen_methods(
                dataclasses.dataclass(cls, init=False, repr=False, eq=False, **options | {"frozen": False})
            )

        return decorate if cls is None else decorate(cls)

    def _add_frozen_methods(cls):
        names = [one.name for one in dataclasses.fields(cls) if one.compare]
        read_values = attrgetter(*names) if names else lambda _one: ()

        def __init__(self, *values, **named):
            cls.__init__ = compiled = _compile_init(cls)
            compiled(self, *values, **named)

        def __eq__(self, other):
            return read_values(self) == read_values(other) if other.__class__ is self.__class__ else NotImplemented

        def __hash__(self):
            return hash(read_values(self))

        own = cls.__dict__
        methods = {"__init__": __init__, "__repr__": _format_fields, "__eq__": __eq__} | _FROZEN
        for name, method in methods.items():
            if name not in own:
                setattr(cls, name, method)
        if own.get("__hash__") is None:
            cls.__hash__ = __hash__
        return cls

    def _compile_init(cls):
        scope = {"put": object.__setattr__, "missing": _MISSING}
        parameters, keywords, body = ["self"], [], []
        for index, one in enumerate(dataclasses.fields(cls)):
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

            method = inspect.signature(_compile_init(cls))
            return method.replace(parameters=list(method.parameters.values())[1:])

    _FROZEN = {
        "__signature__": _Signature(),
        "__setattr__": _refuse_to_set,
        "__delattr__": _refuse_to_delete,
        "__getstate__": _read_state,
        "__setstate__": _restore_state,
    }
