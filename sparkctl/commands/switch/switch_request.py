"""What ``switch`` is asked for."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from sparkctl.commands.start.start_request import StartInstance
from sparkctl.engines.base import Engine
from sparkctl.model.node import Node
from sparkctl.model.profile import Profile


@dataclass(frozen=True, slots=True, kw_only=True)
class SwitchInstance:
    """What to start, and where. ``nodes`` in the order of ranks, the head first; ``known``: every node that may hold a rank
    of what goes, these among them.

    ``keep_going``: also where a node that only loses something is silent, and where a check is not conclusive.
    ``rolls_back`` False: a new one that failed is left as it is, for study. ``timeout``: seconds for the new one's start.
    ``words`` are the profile and its overrides as the operator gave them.
    """

    profile: Profile
    engine: Engine
    nodes: tuple[Node, ...]
    known: Sequence[Node]
    dry_run: bool = False
    keep_going: bool = False
    rolls_back: bool = True
    timeout: float | None = None
    environ: Mapping[str, str] = field(default_factory=dict)
    words: tuple[str, ...] = ()
    guarded: bool = True

    def to_start_request(self, kept: Iterable[str] = ()) -> StartInstance:
        """What is asked of `up` once the way is free; ``kept`` are the containers that may have to come back."""
        flags = (("--keep-going", self.keep_going), ("--no-rollback", not self.rolls_back))
        return StartInstance(
            profile=self.profile, engine=self.engine, nodes=self.nodes, timeout=self.timeout, environ=self.environ, words=self.words,
            guarded=self.guarded, once_more=True, kept=frozenset(kept),
            switch_flags=tuple(flag for flag, given in flags if given),
        )  # fmt: skip

    @property
    def retry_command(self) -> str:
        """The command that asks for the same once more, secrets in it masked."""
        return self.to_start_request().build_switch_command()
