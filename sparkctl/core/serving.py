"""Whom a command line would cut off: instances of ours that are answering requests right now. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # a key is looked up without them
    from sparkctl.core.situation import Situation
    from sparkctl.model.instance import InstanceView

_NODE = ("--node", "-n")
_VALUED = (*_NODE, "--grace", "--timeout", "--set", "--record", "--format")


def is_answering(one: InstanceView) -> bool:
    """Tell whether requests run in it; what is not known is not told."""
    return bool(one.numbers and one.numbers.running)


def cut_off(now: Situation, words: Sequence[str]) -> tuple[InstanceView, ...]:
    """Return the answering instances that a ``down``, or an ``up --replace``, would end.

    Judged by the last figures of each, which are up to a few seconds old; an ``up`` of a file ends what is called like it.
    """
    if not words or words[0] not in ("down", "up") or (words[0] == "up" and "--replace" not in words):
        return ()
    named, nodes = meant(words[1:])
    names = {name.rpartition("/")[2].removesuffix(".yaml").removesuffix(".yml") for name in named}
    everything = words[0] == "down" and "--all" in words
    return tuple(
        one
        for view in now.views
        if not nodes or view.name in nodes
        for one in view.instances
        if one.ours and one.is_alive and is_answering(one) and (everything or one.name in names)
    )


def meant(words: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return what the words behind a verb name, and on which nodes, in their order."""
    names: list[str] = []
    nodes: list[str] = []
    rest = list(words)
    while rest:
        word, *rest = rest
        option, given, value = word.partition("=")
        if option in _VALUED:
            value = value if given else rest.pop(0) if rest else ""
            nodes += [value] if option in _NODE else []
        elif not word.startswith("-"):
            names.append(word)
    return names, nodes
