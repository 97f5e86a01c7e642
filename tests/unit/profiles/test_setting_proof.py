"""What a command proposes is accepted by our own check and memory estimate, or is not proposed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from sparkctl.engines.lint import LintSeverity
from sparkctl.model.memory_fit import FitOutcome, MemoryFit
from sparkctl.model.node import NodeName
from sparkctl.model.profile import Profile
from sparkctl.model.verdict import FailureCause, FieldChange, Verdict
from sparkctl.profiles.profile_library import ProfileLibrary
from sparkctl.profiles.profile_lint import FitsOfProfile, lint_profile, list_start_warnings
from sparkctl.profiles.setting_proof import SettingProof

LIBRARY = ProfileLibrary(Path("/nonexistent"))
DRAFTS = FieldChange("args.speculative-num-draft-tokens", "20")
SHARE = "args.mem-fraction-static"


def make_fit(answer: FitOutcome, largest: str | None = None) -> MemoryFit:
    change = None if largest is None else FieldChange(SHARE, largest)
    return MemoryFit(node=NodeName("spark1"), profile="p", answer=answer, largest=change)


def refuse_above(most: float) -> FitsOfProfile:
    """A node on which a larger share than this does not fit, nor drafts of the post's number with it."""

    def evaluate(profile: Profile) -> Sequence[MemoryFit]:
        args = dict(profile.args)
        wants_workspace = "speculative-num-draft-tokens" in args
        if wants_workspace and float(str(args["mem-fraction-static"])) > most:
            return [make_fit(FitOutcome.SHORT, f"{most:.2f}")]
        return [make_fit(FitOutcome.FITS)]

    return evaluate


def make_proof(name: str, fits: FitsOfProfile | None = None, *settings: str) -> SettingProof:
    return SettingProof((name, *(word for one in settings for word in ("--set", one))), LIBRARY, fits)


def test_what_does_not_fit_alone_is_proposed_with_the_share_that_fits() -> None:
    by_flags = make_proof("qwen36-as-posted").prove_changes(DRAFTS)
    assert by_flags == (DRAFTS, FieldChange(SHARE, "0.7")), "without a node the check decides"
    proved = make_proof("qwen36-as-posted", refuse_above(0.5)).prove_changes(DRAFTS)
    assert proved == (DRAFTS, FieldChange(SHARE, "0.50"))


def test_where_nothing_fits_nothing_is_proposed() -> None:
    proof = make_proof("qwen36-as-posted", lambda profile: [make_fit(FitOutcome.SHORT)])
    assert proof.prove_changes(DRAFTS) is None
    (trap,) = list_start_warnings(LIBRARY.load_profile("qwen36-as-posted"), LIBRARY)
    assert proof.format_remedy(trap, lambda *changes: "never") is None


def test_a_field_that_is_taken_away_is_not_set_again() -> None:
    """An engine that does not know a flag does not know another value of it either."""
    unknown = FieldChange("args.gpu-memory-utilization", "null", "0.8")
    assert make_proof("qwen36-vllm").prove_changes(unknown) is None, "the check wants the field set"
    draft = FieldChange("args.speculative-config", "null", "{}")
    fits = [make_fit(FitOutcome.FITS)]
    assert make_proof("qwen36-vllm", lambda profile: fits).prove_changes(draft) == (draft,)
    short = [replace(make_fit(FitOutcome.SHORT), largest=FieldChange(draft.field, "{}"))]
    assert make_proof("qwen36-vllm", lambda profile: short).prove_changes(draft) is None, "the estimate does"


def test_what_is_in_the_way_is_no_reason_for_a_tiny_share() -> None:
    proof = make_proof("qwen36-as-posted", lambda profile: [make_fit(FitOutcome.IF_STOPPED, "0.06")])
    assert proof.prove_changes(DRAFTS) is None


def test_a_share_that_the_check_objects_to_is_not_proposed() -> None:
    proposed = FieldChange("args.gpu-memory-utilization", "0.80")
    proved = make_proof("qwen3-coder-next-dflash", None, "args.gpu-memory-utilization=0.9").prove_changes(proposed)
    assert proved == (FieldChange("args.gpu-memory-utilization", "0.6"),), "one rule for the share of DFlash"
    assert make_proof("qwen36-vllm").prove_changes(FieldChange("args.gpu-memory-utilization", "0.94")) == (
        FieldChange("args.gpu-memory-utilization", "0.85"),
    )


@pytest.mark.parametrize(
    "change", [FieldChange("args.no-such-flag", "1"), FieldChange("engine", "none"), FieldChange("port", "x")]
)
def test_what_the_check_refuses_is_not_proposed(change: FieldChange) -> None:
    assert make_proof("qwen36").prove_changes(change) is None


def test_a_profile_that_is_gone_proves_nothing() -> None:
    assert make_proof("no-such-profile").prove_changes(DRAFTS) is None


def test_a_verdict_proposes_what_was_proved_or_nothing() -> None:
    edit = FieldChange(SHARE, "0.74", "0.82", is_first_try=True)
    verdict = Verdict(
        cause=FailureCause.CUDA_OUT_OF_MEMORY, summary="s", evidence=(), remedy="r", field=SHARE, edit=edit
    )
    proof = make_proof("qwen36-as-posted", refuse_above(0.67), DRAFTS.set_argument)
    proved = proof.prove_verdict(verdict, lambda *changes: " ".join(one.set_argument for one in changes))
    assert proved.edit == FieldChange(SHARE, "0.67", "0.82", is_first_try=True)
    assert proved.again == f"{SHARE}=0.67"
    gone = make_proof("no-such-profile").prove_verdict(verdict, lambda *changes: "never")
    assert (gone.edit, gone.again) == (None, None)


@pytest.mark.parametrize("name", LIBRARY.list_names())
def test_every_setting_that_the_check_of_a_shipped_profile_names_is_accepted_by_it(name: str) -> None:
    profile = LIBRARY.load_profile(name)
    for one in lint_profile(profile):
        if one.setting is None:
            continue
        changed = LIBRARY.load_profile(name, [one.setting])
        assert one.message not in [other.message for other in lint_profile(changed)], "it mends what it is named for"
        assert not [other for other in lint_profile(changed) if other.level is LintSeverity.ERROR]
