"""The base class of everything that a user can ask for, and the question before a dangerous request. It imports little."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from enum import StrEnum
from typing import TYPE_CHECKING

from sparkctl.model.lazy_dataclass import dataclass
from sparkctl.model.node import Node, NodeName, NodeState

if TYPE_CHECKING:  # a key is looked up without them
    from sparkctl.commands.action_context import ActionContext
    from sparkctl.context import CommandContext
    from sparkctl.model.events import Event


class SentenceTone(StrEnum):
    """How a sentence of a question is meant."""

    PLAIN = "plain"
    STRONG = "strong"
    ATTENTION = "attention"
    BAD = "bad"
    LABEL = "label"


Sentence = tuple[str, SentenceTone]


@dataclass(frozen=True, slots=True, kw_only=True)
class Preview:
    """The question before a command, built from the nodes' last known state.

    Attributes:
        sections: first the question, then the consequences; printed with a blank row between sections.
        is_required: the command does not run without a yes.
        title: of the dialog; None: the name of the action.
        accept: the label of the yes; None: the name of the action.
        wanted: the word that must be typed instead of `y`, because clients may lose their model; None: `y` is enough.
    """

    sections: tuple[tuple[Sentence, ...], ...]
    is_required: bool = False
    title: str | None = None
    accept: str | None = None
    wanted: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What a user asked for. A key, a palette entry, a `:` line and a verb of the command line make the same request.

    Attributes:
        nodes: the nodes that it is for; a field of each subclass.
        names_nodes: False: the user named none, and ``nodes`` are all of the config.
    """

    if TYPE_CHECKING:

        @property
        def nodes(self) -> Sequence[Node]: ...

    names_nodes: bool = True

    @property
    def verb(self) -> str:
        """Its verb on the command line."""
        return self.format_as_command()[0]

    def format_as_command(self) -> tuple[str, ...]:
        """Return the words of its command line, without ``sparkctl`` in front."""
        raise NotImplementedError

    def run(self, ctx: CommandContext) -> AsyncGenerator[Event, None]:
        """Run it: yield its events; the last one is `CommandEnded`."""
        raise NotImplementedError

    def preview(self, now: ActionContext) -> Preview:
        """Return the question to ask before it runs."""
        where = f" for {' and '.join(self.named_nodes)}" if self.named_nodes else ""
        return Preview(
            sections=((("Run this" + where + "?", SentenceTone.STRONG),), *describe_unreachable(now, self.named_nodes))
        )

    @property
    def named_nodes(self) -> tuple[NodeName, ...]:
        """The names of the nodes that the user named."""
        return tuple(node.name for node in self.nodes) if self.names_nodes else ()

    def format_node_options(self) -> tuple[str, ...]:
        """Return ``--node`` for each node that the user named."""
        return tuple(word for name in self.named_nodes for word in ("--node", str(name)))


@dataclass(frozen=True, slots=True, kw_only=True)
class ScreenTarget:
    """A command for which the panel opens a screen instead of running it: a log, a diagnosis, the history, an instance, a node, or
    the output of a verb that changes nothing.

    Attributes:
        name: an instance; for the history a profile.
        nodes: names of nodes.
        operation: the number of an operation of the history.
        words: the command line whose text is shown; empty where a screen shows it.
    """

    verb: str
    name: str | None = None
    nodes: tuple[NodeName, ...] = ()
    operation: int | None = None
    words: tuple[str, ...] = ()

    def format_as_command(self) -> tuple[str, ...]:
        """Return the words of its command line, without ``sparkctl``."""
        if self.words:
            return self.words
        options = (word for node in self.nodes for word in ("--node", str(node)))
        return (self.verb, *([] if self.name is None else [self.name]), *options)


def list_flags(flags: Mapping[str, bool]) -> tuple[str, ...]:
    return tuple(flag for flag, is_set in flags.items() if is_set)


def describe_unreachable(now: ActionContext, named: Sequence[NodeName]) -> tuple[tuple[Sentence, ...], ...]:
    """Return a section that names the target nodes that do not answer; empty where all do. The rest of the question shows their last state."""
    targets = named or (now.node,)
    sentences = tuple(
        (f"{view.name} is {view.state}: commands cannot reach it now.", SentenceTone.BAD)
        for view in now.views
        if view.name in targets and view.state not in (NodeState.OK, NodeState.UNKNOWN)
    )
    return (sentences,) if sentences else ()
