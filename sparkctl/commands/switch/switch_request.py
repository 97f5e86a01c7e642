"""The request of ``switch``."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from sparkctl.commands.start.start_request import StartInstance
from sparkctl.engines.base import Engine
from sparkctl.model.node import Node
from sparkctl.model.profile import Profile


@dataclass(frozen=True, slots=True, kw_only=True)
class SwitchInstance:
    """What to start, and where.

    Attributes:
        nodes: in the order of ranks, the head first.
        known: every node that may hold a rank of a stopped model, ``nodes`` included.
        keep_going: continue although a node that only loses something is silent, or a check has no clear result.
        rolls_back: False: leave a failed new instance as it is, for study.
        timeout: seconds for the start of the new one.
        words: the profile and its overrides as the operator typed them.
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
        """Return the `up` request for the new instance; ``kept``: the containers that a rollback may need."""
        flags = (("--keep-going", self.keep_going), ("--no-rollback", not self.rolls_back))
        return StartInstance(
            profile=self.profile, engine=self.engine, nodes=self.nodes, timeout=self.timeout, environ=self.environ, words=self.words,
            guarded=self.guarded, once_more=True, kept=frozenset(kept),
            switch_flags=tuple(flag for flag, given in flags if given),
        )  # fmt: skip

    @property
    def retry_command(self) -> str:
        """The command that repeats this request, secrets in it masked."""
        return self.to_start_request().build_switch_command()
