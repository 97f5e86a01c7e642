"""What a decode step reads, by the tensors of the model's files on the node; the profile's figures are the fallback. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from sparkctl.engines.decode_step_label import format_decode_step_label, parse_decode_step_label
from sparkctl.engines.flags.command_flags import CommandFlags
from sparkctl.engines.memory.model_weights import map_path_to_node
from sparkctl.model.decode_step import DecodeStepSpec, RoutedExperts, TensorSizes
from sparkctl.model.launch_plan import ContainerLabel, LaunchPlan
from sparkctl.model.memory_fit import CheckpointFiles, EstimateSource
from sparkctl.model.profile import Profile
from sparkctl.node.model_files_decoder import WeightsCheck
from sparkctl.profiles.fit_evaluation import build_estimate_input, find_model_paths

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
    main, draft = (by_place.get(map_path_to_node(path, alone) or "") for path in find_model_paths(profile, alone))
    labels = dict(plan.labels)
    told = parse_decode_step_label(labels.get(ContainerLabel.PER_STEP)) or DecodeStepSpec()
    words = CommandFlags(alone.command, alone.entrypoint)
    subject = build_estimate_input(profile, alone, models)
    if main is None and told.weights is None and subject.weights.obtained is EstimateSource.MEASURED:
        if words.get_value("quantization", "q") is None:  # else the files may not be what it loads
            labels[ContainerLabel.PER_STEP] = (
                format_decode_step_label(replace(told, weights=subject.weights.size)) or ""
            )
        return replace(plan, labels=tuple(labels.items()))
    if main is None or _is_changed_on_load(main, words):
        return plan
    kv = told.kv_per_token
    if kv is None and subject.layout is not None:
        kv = subject.layout.count_bytes_per_token(subject.kv_number_width[0]) or None
    step = measure_decode_step(replace(told, kv_per_token=kv), main, draft)
    labels[ContainerLabel.PER_STEP] = format_decode_step_label(step) or ""
    return replace(plan, labels=tuple(labels.items()))


def measure_decode_step(told: DecodeStepSpec, main: TensorSizes, draft: TensorSizes | None) -> DecodeStepSpec:
    """Return the step by the files: ``told`` is by the profile and the engine's flags, ``draft`` a draft model's files."""
    experts = told.experts
    if main.parts.get("experts") and main.expert_count and main.experts_per_token:
        per_token = min(main.experts_per_token, main.expert_count)
        experts = RoutedExperts(_load(main, main.parts["experts"]), main.expert_count, per_token)
    unread = main.table + main.parts.get("vision", 0) + main.draft
    return replace(
        told,
        weights=_load(main, main.whole),
        unread=_load(main, unread) or None,
        experts=experts,
        draft_weights=_measure_draft(told, main, draft),
        is_measured=True,
    )


def _measure_draft(told: DecodeStepSpec, main: TensorSizes, draft: TensorSizes | None) -> int | None:
    """Return what one pass of the draft model reads; one without an output layer of its own uses the model's."""
    if not told.draft_tokens or told.draft_passes == 0:
        return told.draft_weights
    output = _load(main, main.output)
    if draft is not None:
        own = draft.whole - draft.table - draft.parts.get("vision", 0) - _list_idle_experts(draft, "experts")
        is_shared = not draft.parts.get("output") and not (draft.is_tied and draft.parts.get("embedding"))
        own -= draft.parts.get("embedding", 0) if is_shared else 0
        return _load(draft, own) + (output if is_shared else 0)
    if not main.draft:
        return told.draft_weights
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
