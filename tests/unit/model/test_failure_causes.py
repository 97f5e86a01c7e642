"""The closed set of causes: each has a name, a meaning, and can be read from what an older sparkctl wrote."""

from __future__ import annotations

import pytest

from sparkctl.model.json_codec import from_json_data, to_json_data
from sparkctl.model.verdict import CAUSE_MEANINGS, Evidence, FailureCause, Verdict, normalize_cause_name

DOCUMENTED = [
    "startup-memory-check", "weights-do-not-fit", "memory-changed-during-start", "kv-cache-too-small",
    "draft-workspace", "cuda-out-of-memory", "host-oom-kill", "guard-stopped", "unknown-flag", "bad-value",
    "model-not-found", "hub-unreachable", "model-gated", "model-files", "truncated-weights",
    "model-unsupported", "trust-remote-code", "image-missing", "image-arch", "gpu-runtime-missing",
    "driver-mismatch", "kernel-unsupported", "attention-backend", "port-in-use", "nccl", "worker-lost", "ray",
    "disk-full", "permission", "engine-bug", "wedged", "crashed", "host-memory", "draft-mismatch", "broken-image",
    "jit-failed", "gpu-fault",
]  # fmt: skip
OURS = ["docker-refused", "killed", "exited", "stopped-by-others", "timed-out"]


def test_the_set_is_closed_and_every_cause_means_something() -> None:
    assert sorted(FailureCause) == sorted([*DOCUMENTED, *OURS])
    assert set(CAUSE_MEANINGS) == set(FailureCause)
    assert len({*CAUSE_MEANINGS.values()}) == len(FailureCause)


@pytest.mark.parametrize(
    ("then", "now"),
    [
        ("bad-flag", FailureCause.UNKNOWN_FLAG),
        ("oom-killed", FailureCause.HOST_OOM_KILL),
        ("no-memory-for-kv-cache", FailureCause.KV_CACHE_TOO_SMALL),
        ("not-generating", FailureCause.WEDGED),
        ("crashed", FailureCause.CRASHED),
    ],
)
def test_old_cause_names_are_read(then: str, now: FailureCause) -> None:
    written = to_json_data(
        Verdict(cause=FailureCause.CRASHED, summary="s", evidence=(Evidence("t", "log", 1),), remedy="r")
    )
    assert isinstance(written, dict)
    assert from_json_data(Verdict, {**written, "cause": then}).cause is now
    assert normalize_cause_name(then) == now


def test_an_unknown_cause_name_is_no_cause() -> None:
    with pytest.raises(ValueError, match="howl"):
        FailureCause("howl")
    assert normalize_cause_name("howl") == "howl"
