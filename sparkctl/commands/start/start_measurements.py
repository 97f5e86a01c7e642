"""The measurements of one start: the memory fit before it, the memory it took, and its duration, recorded for later estimates.

What a decode step reads is measured by the tensors of the model's files on the node; the profile's figures are the fallback.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace

from sparkctl.commands.start import node_fit
from sparkctl.context import CommandContext
from sparkctl.engines.engine_flags import CommandFlags
from sparkctl.engines.memory_estimate import EstimateInput, KvCacheLayout, map_path_to_node, parse_kv_layout
from sparkctl.errors import NodeError, PortInUse
from sparkctl.history.expected_durations import compute_model_key
from sparkctl.history.model import NodeResult
from sparkctl.model.container import Container
from sparkctl.model.decode_step import DecodeStepSpec, RoutedExperts, TensorSizes
from sparkctl.model.events import Emit, Event, MemoryFitEvaluated, WarningEmitted
from sparkctl.model.launch_plan import ContainerLabel, LaunchPlan
from sparkctl.model.memory_fit import CheckpointFiles, EstimateSource, FitOutcome, MemoryFit
from sparkctl.model.phase import ExpectedDurations
from sparkctl.model.profile import Profile
from sparkctl.model.sample import MemoryBeforeStart
from sparkctl.model.text.units import GIB
from sparkctl.monitor.startup_timeline import PhaseTimer
from sparkctl.node.model_files_decoder import WeightsCheck
from sparkctl.node.node_inspection import NodeInspection
from sparkctl.profiles.container_labels import format_decode_step_label, parse_decode_step_label
from sparkctl.profiles.fit_evaluation import build_estimate_input, find_model_paths
from sparkctl.profiles.setting_proof import CommandWithChanges, SettingProof
from sparkctl.transport.node_session import NodeSession

_SAMPLE_SECONDS = 10.0  # seconds between memory readings of a node during a start


class StartMemory:
    """``again`` returns the command of this start with fields changed, ``proof`` says which changes are accepted.
    ``forced``: a refusal is only a warning.
    """

    def __init__(
        self, ctx: CommandContext, profile: Profile, again: CommandWithChanges, proof: SettingProof, *, forced: bool
    ) -> None:
        self.emit: Emit = lambda event: None
        self._ctx, self._profile, self._again, self._forced = ctx, profile, again, forced
        self._proof = proof
        self._fit: MemoryFit | None = None
        self._session: NodeSession | None = None
        self._plan: LaunchPlan | None = None
        self._before: int | None = None
        self._least: int | None = None
        self._held_before: int | None = None

    @property
    def estimated_bytes(self) -> int | None:
        """The estimated memory in bytes, None where no estimate was possible."""
        return None if self._fit is None else self._fit.estimated

    def check_fit(self, plan: LaunchPlan, measured: node_fit.MeasuredNode, stops: Container | None) -> None:
        """Check the fit and emit a changed answer; raise `OperationRefused` where it does not fit.

        ``stops`` is stopped first: its memory counts as free.
        """
        self._plan = plan
        fit = measured.evaluate(self._profile, frozenset() if stops is None else frozenset((stops.id,)))
        is_new, self._fit = self._fit is None or self._fit.answer is not fit.answer, fit
        if is_new:
            commands = node_fit.suggest_commands(fit, self._again, self._proof)
            self.emit(MemoryFitEvaluated(self._ctx.clock.unix_time(), plan.node, fit, commands))
            self._warn_about_fit(plan, fit)
        if fit.is_refused and fit.absent is None and not self._forced:
            raise node_fit.build_fit_refusal(fit, self._again, self._proof)

    def refuse_certain_misfit(
        self, plan: LaunchPlan, measured: node_fit.MeasuredNode, busy: PortInUse | None = None
    ) -> None:
        """Raise `OperationRefused` where it does not fit, whatever stops and whatever is got: whoever got or stopped the rest first
        would have done it in vain. ``busy``: the error of its port, which another has. Then it is raised also where something
        must stop for the memory: that may free the port, too.
        """
        fit = measured.evaluate_in_place(self._profile)
        is_certain = fit.answer in (FitOutcome.SHORT, FitOutcome.SEVERAL)
        if fit.is_refused and (is_certain or busy is not None) and not self._forced:
            commands = node_fit.suggest_commands(
                fit, node_fit.avoid_busy_port(busy, fit.stops, self._again), self._proof
            )
            self.emit(MemoryFitEvaluated(self._ctx.clock.unix_time(), plan.node, fit, commands))
            raise node_fit.build_fit_refusal(fit, self._again, self._proof, busy)

    def _warn_about_fit(self, plan: LaunchPlan, fit: MemoryFit) -> None:
        now = self._ctx.clock.unix_time()
        words = shlex.join(["sparkctl", "plan", *self._proof.words, "--node", plan.node])
        sum_ = f"see the calculation: {words}"
        if fit.is_refused:
            if fit.absent is not None:  # nothing to load takes no memory: the engine's own error is clearer
                self.emit(
                    WarningEmitted(
                        now,
                        plan.node,
                        f"{fit.summary_sentence}; and the model {fit.absent} is missing or incomplete",
                        sum_,
                    )
                )
            elif self._forced:
                self.emit(WarningEmitted(now, plan.node, f"{fit.summary_sentence}; --force starts it anyway", None))
            return
        if fit.answer is FitOutcome.AFTER_DROP_CACHES and not plan.drop_caches:
            self.emit(WarningEmitted(now, plan.node, fit.summary_sentence, f"sparkctl drop-caches --node {plan.node}"))
        if fit.answer is FitOutcome.UNKNOWN:
            why = f": {fit.cautions[0]}" if fit.cautions else ""
            self.emit(WarningEmitted(now, plan.node, fit.summary_sentence + why, sum_))
            return
        for caution in fit.cautions:
            self.emit(WarningEmitted(now, plan.node, caution, sum_))

    async def measure_before(self, session: NodeSession) -> None:
        """Read the available memory just before the container is created."""
        self._session = session
        with suppress(NodeError):
            inspection = await session.read_node("memory", "processes", "gpu")
            self._before = self._least = None if inspection.memory is None else inspection.memory.available
            self._record_facts(available_before=self._before)
            self._held_before = inspection.everybody

    def save_baseline(self, plan: LaunchPlan, container: str) -> None:
        """Save the memory that was available before this container, which the release check after its end compares
        with. Raises OSError.
        """
        if self._before is not None:
            before = MemoryBeforeStart(self._before, self._held_before)
            self._ctx.history.save_memory_before(plan.instance, plan.node, container, before)

    async def sample_memory(self) -> None:
        """Read the available memory every ten seconds, until cancelled."""
        while self._session is not None and self._before is not None:
            await self._ctx.clock.sleep(_SAMPLE_SECONDS)
            with suppress(NodeError):
                self._update_least_available(await self._session.read_node("memory"))

    async def measure_peak_bytes(self, container: str) -> int | None:
        """Return the start's peak memory in bytes; None where it was not started here, or other processes came or went
        meanwhile.
        """
        if self._session is None or self._before is None:
            return None
        try:
            inspection = await self._session.read_node("memory", "processes", "gpu")
        except NodeError:
            return None
        self._update_least_available(inspection)
        if self._least is None or inspection.memory is None:
            return None
        settled, memory = self._before - inspection.memory.available, inspection.get_container_memory(container)
        if memory is not None and abs(settled - memory) > memory // 4 + 4 * GIB:
            return None
        self._record_facts(settled=max(0, settled))
        return max(0, self._before - self._least) or None

    def _record_facts(self, **facts: int | None) -> None:
        if self._plan is not None:
            self._ctx.record_node_result(NodeResult(node=self._plan.node, instance=self._plan.instance, **facts))  # type: ignore[arg-type]

    def _update_least_available(self, inspection: NodeInspection) -> None:
        if inspection.memory is not None:
            self._least = min(
                inspection.memory.available, self._least if self._least is not None else inspection.memory.available
            )


class StartTimer:
    """Times one start. ``has_joined``: the start was already running, so the times are not complete."""

    def __init__(self, ctx: CommandContext, profile: Profile) -> None:
        self._ctx, self._profile = ctx, profile
        self._stopwatch = PhaseTimer()
        self.expected = ExpectedDurations()
        self.has_joined = False

    def record_event(self, event: Event) -> None:
        self._stopwatch.record_event(event)

    def load_expected(self, plan: LaunchPlan) -> None:
        """Read the expected duration; the profile's own value counts until a start was measured."""
        known = self._ctx.history.get_expected_durations(
            plan.profile, plan.profile_hash, plan.node, self._compute_model_key(plan)
        )
        self.expected = replace(known, seconds=known.seconds or self._profile.expected_start_seconds)

    def save_duration(self, plan: LaunchPlan, seconds: float, peak: int | None, estimated: int | None) -> None:
        """Save the duration in seconds, the ``peak`` in bytes and the ``estimated`` bytes. Raises OSError."""
        parts = () if self.has_joined else self._stopwatch.get_durations()
        if self._ctx.operation is not None:
            self._ctx.record_node_result(
                NodeResult(
                    node=plan.node, instance=plan.instance, seconds=seconds, parts=parts, has_joined=self.has_joined or None,
                    peak=peak, estimated=estimated,
                )
            )  # fmt: skip
            return
        self._ctx.history.record_start(
            plan.profile, plan.profile_hash, plan.node, seconds,
            kind=self._compute_model_key(plan), parts=parts, has_joined=self.has_joined,
            peak=peak, estimated=estimated,
        )  # fmt: skip

    def _compute_model_key(self, plan: LaunchPlan) -> str:
        return compute_model_key(plan.image, self._profile.model.path)


_MOSTLY = 0.5  # share of the bytes in 32 bits, above which engines load the model in 16


def add_measured_weights(
    plan: LaunchPlan,
    alone: LaunchPlan,
    profile: Profile,
    checks: Sequence[WeightsCheck],
    models: Sequence[CheckpointFiles],
) -> LaunchPlan:
    """Return the launch with a label of what a step reads by the files on the node, unchanged if they were not read.

    Where their tensors are not known, the size of the files stands for `model.weights` that the profile does not have.

    ``alone``: the same launch of a model on one node, whose arguments name the files.
    """
    by_place = {one.place: one.tensors for one in checks if one.tensors is not None}
    main, draft = (by_place.get(map_path_to_node(path, alone) or "") for path in find_model_paths(profile, alone)[:2])
    labels = dict(plan.labels)
    label = parse_decode_step_label(labels.get(ContainerLabel.PER_STEP)) or DecodeStepSpec()
    words = CommandFlags(alone.command, alone.entrypoint)
    subject = build_estimate_input(profile, alone, models)
    if main is None and label.weights is None and subject.weights.obtained is EstimateSource.MEASURED:
        if words.get_value("quantization", "q") is None:  # else the files may not be what it loads
            labels[ContainerLabel.PER_STEP] = (
                format_decode_step_label(replace(label, weights=subject.weights.size)) or ""
            )
        return replace(plan, labels=tuple(labels.items()))
    if main is None or _is_changed_on_load(main, words):
        return plan
    kv, state = label.kv_per_token, None if subject.layout is None else subject.layout.state or None
    if kv is None and subject.layout is not None:
        shared = replace(subject, ranks=label.ranks, words=CommandFlags(plan.command, plan.entrypoint))
        draft_place = map_path_to_node(find_model_paths(profile, alone)[1], alone)
        drafts = next((parse_kv_layout(one.config) for one in models if one.place == draft_place), None)
        kv = count_context_bytes(label, shared, drafts, has_own_layers=draft is None and bool(main.draft)) or None
    step = measure_decode_step(replace(label, kv_per_token=kv, state_per_request=state), main, draft)
    labels[ContainerLabel.PER_STEP] = format_decode_step_label(step) or ""
    return replace(plan, labels=tuple(labels.items()))


def count_context_bytes(
    label: DecodeStepSpec, subject: EstimateInput, drafts: KvCacheLayout | None, *, has_own_layers: bool
) -> int:
    """Return the bytes of cache that a step of all ranks reads for each token of context: each pass of a draft model reads its own.

    ``drafts``: a draft model's layout; ``has_own_layers``: the model has a layer for drafts itself, shaped as its others.
    """
    assert subject.layout is not None
    width, _ = subject.kv_number_width
    whole = subject.layout.count_bytes_per_token(width)
    if label.draft_tokens and label.draft_passes != 0:
        passes = label.draft_passes or 1
        if drafts is not None:
            whole += passes * drafts.count_bytes_per_token(width)
        elif has_own_layers:
            whole += passes * subject.layout.count_bytes_per_layer(width)
    return whole * label.ranks // subject.cache_ranks  # what is whole on each rank is read by each


def measure_decode_step(label: DecodeStepSpec, main: TensorSizes, draft: TensorSizes | None) -> DecodeStepSpec:
    """Return the step by the files: ``told`` is by the profile and the engine's flags, ``draft`` a draft model's files."""
    experts = label.experts
    if main.parts.get("experts") and main.expert_count and main.experts_per_token:
        per_token = min(main.experts_per_token, main.expert_count)
        experts = RoutedExperts(_load(main, main.parts["experts"]), main.expert_count, per_token)
    unread = main.table + main.parts.get("vision", 0) + main.draft
    return replace(
        label,
        weights=_load(main, main.whole),
        unread=_load(main, unread) or None,
        experts=experts,
        draft_weights=_measure_draft(label, main, draft),
        is_measured=True,
    )


def _measure_draft(label: DecodeStepSpec, main: TensorSizes, draft: TensorSizes | None) -> int | None:
    """Return what one pass of the draft model reads; one without an output layer of its own uses the model's."""
    if not label.draft_tokens or label.draft_passes == 0:
        return label.draft_weights
    output = _load(main, main.output)
    if draft is not None:
        own = draft.whole - draft.table - draft.parts.get("vision", 0) - _list_idle_experts(draft, "experts")
        is_shared = not draft.parts.get("output") and not (draft.is_tied and draft.parts.get("embedding"))
        own -= draft.parts.get("embedding", 0) if is_shared else 0
        return _load(draft, own) + (output if is_shared else 0)
    if not main.draft:
        return label.draft_weights
    own = main.draft - main.parts.get("draft_embedding", 0) - _list_idle_experts(main, "draft_experts")
    return _load(main, own) + (0 if main.parts.get("draft_output") else output)


def _list_idle_experts(sizes: TensorSizes, part: str) -> int:
    """Return the bytes of the experts that one token does not use."""
    if not sizes.expert_count or not sizes.experts_per_token:
        return 0
    return int(sizes.parts.get(part, 0) * (1 - min(1.0, sizes.experts_per_token / sizes.expert_count)))


def _load(sizes: TensorSizes, size: int) -> int:
    """Return the bytes in memory: engines load a checkpoint of 32 bits in 16."""
    return size // 2 if sizes.float32 > _MOSTLY * sizes.whole else size


def _is_changed_on_load(sizes: TensorSizes, words: CommandFlags) -> bool:
    """Tell whether the engine makes other numbers of the files' ones while it loads: then their size says nothing."""
    quantizes = words.get_value("quantization", "q") is not None and not sizes.is_quantized
    return (
        quantizes
        or (words.get_value("dtype") or "").lower() in ("float32", "float")
        or words.get_value("torchao-config") is not None
    )
