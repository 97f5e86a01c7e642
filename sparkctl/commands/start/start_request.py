"""The request of ``up``."""

from __future__ import annotations

import importlib
import math
import os
import shlex
from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from dataclasses import field, replace
from typing import TYPE_CHECKING

from sparkctl.commands.request import Preview, Request, SentenceTone, describe_unreachable, list_flags
from sparkctl.commands.stop.stop_impact import preview_replacement
from sparkctl.engines import load_engine
from sparkctl.engines.base import Engine
from sparkctl.errors import InvalidInput
from sparkctl.model.lazy_dataclass import dataclass
from sparkctl.model.node import Node, NodeName
from sparkctl.model.profile import Profile
from sparkctl.model.text.secrets import redact_words
from sparkctl.model.text.units import format_duration
from sparkctl.model.verdict import FieldChange
from sparkctl.profiles.profile_library import ProfileLibrary

if TYPE_CHECKING:
    from sparkctl.commands.action_context import ActionContext
    from sparkctl.context import CommandContext
    from sparkctl.history.operation_history import OperationHistory
    from sparkctl.model.events import Event


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchRequest(Request):
    """What to start and where: what a start and a switch have in common.

    Attributes:
        nodes: in the order of ranks; the first is the head, which alone answers clients.
        timeout: seconds for the whole start of the new one; None: only the limits of the phases.
        words: the profile and its overrides as the operator typed them, for hints.
        guarded: False: without a guard, whatever the profile says.
        once_more: start although the last starts failed.
    """

    profile: Profile
    nodes: tuple[Node, ...]
    dry_run: bool = False
    timeout: float | None = None
    environ: Mapping[str, str] = field(default_factory=dict)
    words: tuple[str, ...] = ()
    guarded: bool = True
    once_more: bool = False

    @property
    def engine(self) -> Engine:
        """The profile's engine."""
        return load_engine(self.profile.engine)

    def check_timeout(self, history: OperationHistory) -> tuple[str, str] | None:
        """Return a warning and its hint where ``--timeout`` is shorter than such a start took."""
        if self.timeout is None:
            return None
        longest = history.find_longest_start(self.profile, self.nodes[0].name)
        if longest is None or longest <= self.timeout:
            return None
        took = f"is shorter than such a start took: {format_duration(longest)}"
        more = f"give it more time: --timeout={math.ceil(2 * longest / 60)}m"  # as for a limit in the profile
        return f"--timeout {format_duration(self.timeout)} {took}", more


@dataclass(frozen=True, slots=True, kw_only=True)
class StartInstance(LaunchRequest):
    """What to start and how.

    Attributes:
        forced: start although it does not fit.
        kept: ids of ended containers that a switch keeps until this start has proved itself; they are not removed.
        switch_flags: the options of that switch.
        pull: get the image and the model first where they are missing.
        tunnel: once it is ready, keep its endpoint open on this machine until Ctrl-C.
        queue: while another operation works on the nodes, wait until it has ended.
        strict: an answer that makes no sense, once it is ready, ends the command with exit 5.
        alone: its needs are no matter of this request.
        reserved: bytes that what starts before it will take, by node; it does not run yet.
        labels: further labels of its containers, as (name, value).
        known: the nodes of the config, where a need may run.
        restarts: an instance that has ended is started again: it asks first.
    """

    detach: bool = False
    replace: bool = False
    forced: bool = False
    kept: frozenset[str] = frozenset()
    switch_flags: tuple[str, ...] = ()
    restarts: bool = False
    pull: bool = False
    tunnel: bool = False
    queue: bool = False
    strict: bool = False
    alone: bool = False
    reserved: Mapping[NodeName, int] = field(default_factory=dict)
    labels: tuple[tuple[str, str], ...] = ()
    known: Sequence[Node] = ()

    def format_as_command(self) -> tuple[str, ...]:
        profile, *settings = self.words or (self.profile.name,)
        flags = {
            "--replace": self.replace, "--detach": self.detach, "--again": self.once_more, "--force": self.forced, "--pull": self.pull,
            "--tunnel": self.tunnel, "--queue": self.queue,
            "--no-guard": not self.guarded, "--strict": self.strict, "--dry-run": self.dry_run,
            f"--timeout={self.timeout or 0:g}s": self.timeout is not None,
        }  # fmt: skip
        return ("up", profile, *self.format_node_options(), *list_flags(flags), *settings)

    def preview(self, now: ActionContext) -> Preview:
        """Return the question before it; where it replaces what runs under its name, what that cuts off."""
        if self.restarts:
            what = f"Start {self.words[0]} on {self.head_node.name} again, as it was?"
            sections = (((what, SentenceTone.STRONG),), *describe_unreachable(now, self.named_nodes))
            return Preview(sections=sections, is_required=True, title="restart", accept="start it")
        if not self.replace or self.dry_run:
            return Request.preview(self, now)
        return preview_replacement(now, self.profile.name, self.named_nodes)

    def run(self, ctx: CommandContext) -> AsyncGenerator[Event, None]:
        """Start it. The modules that do it import this one."""
        if self.tunnel:
            tunnelling: AsyncGenerator[Event, None] = importlib.import_module(
                "sparkctl.commands.tunnel"
            ).start_and_tunnel(ctx, self)
            return tunnelling
        events: AsyncGenerator[Event, None] = importlib.import_module(
            "sparkctl.commands.pull.pull_and_start"
        ).start_or_pull(ctx, self)
        return events

    @property
    def head_node(self) -> Node:
        """The head's node, or the only one."""
        return self.nodes[0]

    @property
    def retry_command(self) -> str:
        """The command that repeats this request."""
        return self.build_retry_command()

    def build_retry_command(self, *changes: FieldChange) -> str:
        """The same command for hints, secrets in it masked; the fields of ``changes`` have their new values."""
        if self.is_of_switch:
            return self.build_switch_command(*changes)
        own = {
            "--again": self.once_more, "--pull": self.pull, "--force": self.forced, "--queue": self.queue,
        }  # fmt: skip
        return self._build_command("up", own, changes)

    def for_proved_change(self, *, is_again: bool) -> StartInstance:
        """The same request for a change that is proved, so without ``--force``; ``is_again``: with ``--again``."""
        flags = (*(("--again",) if is_again else ()), *(one for one in self.switch_flags if one != "--force"))
        return replace(self, forced=False, once_more=is_again or self.once_more, switch_flags=flags)

    def build_switch_command(self, *changes: FieldChange) -> str:
        """The command of the switch that this start is a step of."""
        return self._build_command("switch", dict.fromkeys(self.switch_flags, True), changes)

    def _build_command(self, verb: str, own: Mapping[str, bool], changes: Sequence[FieldChange]) -> str:
        profile, *words = self.words or (self.profile.name,)
        changed = {one.field for one in changes}
        given = zip(words[::2], words[1::2], strict=False)
        pairs = [pair for pair in given if pair[1].partition("=")[0] not in changed]
        pairs += [("--set", one.set_argument) for one in changes]
        flags = {
            "--no-guard": not self.guarded,
            **own,
            f"--timeout={self.timeout or 0:g}s": self.timeout is not None,
        }
        masked = redact_words([word for pair in pairs for word in pair])
        where = [word for node in self.nodes for word in ("--node", node.name)]
        return shlex.join(
            ["sparkctl", verb, profile, *where, *masked, *(flag for flag, given in flags.items() if given)]
        )

    @property
    def is_of_switch(self) -> bool:
        """Tell whether it is a step of a switch; started by itself it would be refused."""
        return bool(self.kept)


def build_start_request(
    profile: Profile, nodes: Sequence[Node], typed: str, known: Sequence[Node] = ()
) -> StartInstance:
    """Return a start without options; ``typed``: the name under which the profile was found."""
    return StartInstance(
        profile=profile,
        nodes=tuple(nodes),
        environ=os.environ,
        words=(typed,),
        known=known,
    )


def to_switch_command(again: str) -> str:
    """Return a start command as the switch command that also stops what is in the way."""
    of_up = ("--again", "--force", "--replace", "--pull", "--queue")
    return shlex.join(["sparkctl", "switch", *(one for one in shlex.split(again)[2:] if one not in of_up)])


def list_need_nodes(request: StartInstance) -> tuple[Node, ...]:
    """Return the nodes that a profile names for what it needs. Raises `InvalidInput` for one that nobody knows."""
    names = [need.node for need in ProfileLibrary().load_needs(request.profile) if need.node is not None]
    return tuple(
        find_need_node(name, request.profile, (*request.nodes, *request.known)) for name in dict.fromkeys(names)
    )


def find_need_node(name: str, profile: Profile, known: Iterable[Node]) -> Node:
    """Return the node that a profile names for what it needs. Raises `InvalidInput` if nobody knows it."""
    by_name = {node.name: node for node in known}
    if (found := by_name.get(NodeName(name))) is None:
        raise InvalidInput(
            f"{profile.name} needs a profile on {name}, and no node is called that (configured: {', '.join(by_name)})",
            "change its `needs`, or add the node: sparkctl init",
        )
    return found
