"""What a start and its parts take: looked up before, measured while it goes on, kept when it went well."""

from __future__ import annotations

from dataclasses import replace

from sparkctl.commands.context import CommandContext
from sparkctl.history.expected_durations import compute_model_key
from sparkctl.history.model import NodeResult
from sparkctl.model.events import Event
from sparkctl.model.launch_plan import LaunchPlan
from sparkctl.model.phase import ExpectedDurations
from sparkctl.model.profile import Profile
from sparkctl.monitor.stopwatch import PhaseTimer


class StartTimer:
    """Of one start. ``has_joined``: it was under way already, so what was seen of it is not all."""

    def __init__(self, ctx: CommandContext, profile: Profile) -> None:
        self._ctx, self._profile = ctx, profile
        self._stopwatch = PhaseTimer()
        self.expected = ExpectedDurations()
        self.has_joined = False

    def record_event(self, event: Event) -> None:
        """Note what happens."""
        self._stopwatch.record_event(event)

    def load_expected(self, plan: LaunchPlan) -> None:
        """Find out how long it may take; the profile's own word counts until one was seen."""
        known = self._ctx.history.expected(plan.profile, plan.profile_hash, plan.node, self._kind(plan))
        self.expected = replace(known, seconds=known.seconds or self._profile.start.expected)

    def save_duration(
        self, plan: LaunchPlan, seconds: float, peak: int | None = None, estimated: int | None = None
    ) -> None:
        """Keep what it took: seconds, and bytes at its ``peak``, which the sum had ``estimated``. Raises OSError."""
        parts = () if self.has_joined else self._stopwatch.get_durations()
        if self._ctx.operation is not None:
            self._ctx.record_node_result(
                NodeResult(
                    plan.node, plan.instance, seconds=seconds, parts=parts, has_joined=self.has_joined or None,
                    peak=peak, estimated=estimated,
                )
            )  # fmt: skip
            return
        self._ctx.history.record_start(
            plan.profile, plan.profile_hash, plan.node, seconds,
            kind=self._kind(plan), parts=parts, has_joined=self.has_joined,
            peak=peak, estimated=estimated,
        )  # fmt: skip

    def _kind(self, plan: LaunchPlan) -> str:
        return compute_model_key(plan.image, self._profile.model.path)
