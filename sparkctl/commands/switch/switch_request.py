"""The request of ``switch``."""

from __future__ import annotations

import importlib
from collections.abc import AsyncGenerator, Iterable, Sequence
from typing import TYPE_CHECKING

from sparkctl.commands.request import Preview, Request, list_flags
from sparkctl.commands.start.start_request import LaunchRequest, StartInstance
from sparkctl.commands.stop.stop_impact import preview_replacement
from sparkctl.model.lazy_dataclass import dataclass
from sparkctl.model.node import Node

if TYPE_CHECKING:
    from sparkctl.commands.action_context import ActionContext
    from sparkctl.context import CommandContext
    from sparkctl.model.events import Event


@dataclass(frozen=True, slots=True, kw_only=True)
class SwitchInstance(LaunchRequest):
    """What to start in place of what runs.

    Attributes:
        known: every node that may hold a rank of a stopped model, ``nodes`` included.
        keep_going: continue although a node that only loses something is silent, or a check has no clear result.
        rolls_back: False: leave a failed new instance as it is, so that somebody can examine it.
        forced: start although a flag is not in the engine's catalogue.
        from_up: it is an ``up --replace``: without a plan to look at first.
    """

    known: Sequence[Node]
    keep_going: bool = False
    rolls_back: bool = True
    forced: bool = False
    from_up: bool = False

    def format_as_command(self) -> tuple[str, ...]:
        profile, *settings = self.words or (self.profile.name,)
        flags = {
            "--replace": self.from_up,
            "--keep-going": self.keep_going,
            "--no-rollback": not self.rolls_back,
            "--no-guard": not self.guarded,
            "--force": self.forced,
            "--again": self.once_more,
            "--dry-run": self.dry_run,
            f"--timeout={self.timeout or 0:g}s": self.timeout is not None,
        }
        return ("up" if self.from_up else "switch", profile, *self.format_node_options(), *list_flags(flags), *settings)

    def preview(self, now: ActionContext) -> Preview:
        """Return the question before an ``up --replace``, for what runs under that name; a switch shows its plan."""
        if not self.from_up or self.dry_run:
            return Request.preview(self, now)
        return preview_replacement(now, self.profile.name, self.named_nodes)

    def run(self, ctx: CommandContext) -> AsyncGenerator[Event, None]:
        """Switch. The module that does it imports this one."""
        events: AsyncGenerator[Event, None] = importlib.import_module(
            "sparkctl.commands.switch.switch_instance"
        ).switch_instance(ctx, self)
        return events

    def to_start_request(self, kept: Iterable[str] = ()) -> StartInstance:
        """Return the `up` request for the new instance; ``kept``: the containers that a rollback may need."""
        flags = (("--keep-going", self.keep_going), ("--no-rollback", not self.rolls_back), ("--force", self.forced))
        return StartInstance(
            profile=self.profile, nodes=self.nodes, timeout=self.timeout, environ=self.environ, words=self.words,
            guarded=self.guarded, once_more=True, forced=self.forced, kept=frozenset(kept), known=self.known,
            switch_flags=tuple(flag for flag, given in flags if given),
        )  # fmt: skip

    @classmethod
    def from_start(cls, start: StartInstance, known: Sequence[Node], *, from_up: bool = False) -> SwitchInstance:
        """Return the switch that starts the same; ``known``: further nodes that may hold a rank of a stopped model."""
        return cls(
            profile=start.profile, nodes=start.nodes, names_nodes=start.names_nodes,
            known=tuple({node.name: node for node in (*start.nodes, *known)}.values()), dry_run=start.dry_run,
            timeout=start.timeout, environ=start.environ, words=start.words, guarded=start.guarded, forced=start.forced,
            once_more=start.once_more, from_up=from_up,
        )  # fmt: skip

    @property
    def retry_command(self) -> str:
        """The command that repeats this request, secrets in it masked."""
        return self.to_start_request().build_switch_command()
