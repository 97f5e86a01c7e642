"""What is different between two starts that were kept: fields of the profile, the image, the node; never a guess."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from sparkctl.history.model import NodeResult, OperationKind, OperationRecord
from sparkctl.history.start_diff import StartDifference, diff_profiles, diff_starts
from sparkctl.model.node import NodeName

SPARK1, SPARK2 = NodeName("spark1"), NodeName("spark2")
TEXT = """schema: 1
name: qwen36
engine: sglang
args:
  mem-fraction-static: 0.82
  tp: 1
  json: {a: 1}
mounts:
  - ~/models:/models
  - /tmp:/tmp
"""


def make_start_record(text: str | None = TEXT, **share: str) -> OperationRecord:
    own = NodeResult(
        node=SPARK1, instance="qwen36", **{"image_digest": "sha256:1", "driver": "580.95", "kernel": "6.11", **share}
    )  # type: ignore[arg-type]
    return OperationRecord(
        id=1,
        kind=OperationKind.START,
        began=0.0,
        operator="milo",
        nodes=(SPARK1,),
        profile="qwen36",
        instance="qwen36",
        text=text,
        shares=(own,),
    )


def test_equal_starts_have_no_differences() -> None:
    changes = diff_starts(make_start_record(engine_version="0.5.12"), make_start_record(engine_version="0.5.12"))
    assert (changes.found, changes.unknown) == ((), ())


def test_fields_of_the_profile_that_came_went_and_changed() -> None:
    after = TEXT.replace("0.82", "0.95").replace("  tp: 1\n", "").replace("  - /tmp:/tmp\n", "  - ~/hub:/hub\n")
    after = after.replace("{a: 1}", "{a: 1, b: [2]}") + "env:\n  NEW: yes\n"
    assert diff_profiles(TEXT, after) == (
        StartDifference("args.mem-fraction-static", "0.82", "0.95"),
        StartDifference("args.json.b", None, "[2]"),
        StartDifference("mounts ~/hub:/hub", None, "~/hub:/hub"),
        StartDifference("env.NEW", None, "yes"),
        StartDifference("args.tp", "1", None),
        StartDifference("mounts /tmp:/tmp", "/tmp:/tmp", None),
    )


def test_image_driver_and_kernel_are_compared_on_the_node_itself() -> None:
    changes = diff_starts(make_start_record(), make_start_record(image_digest="sha256:2", driver="580.142"))
    assert changes.found == (
        StartDifference("image digest", "sha256:1", "sha256:2"), StartDifference("driver of spark1", "580.95", "580.142"),
    )  # fmt: skip
    assert changes.unknown == ("engine version of spark1",)
    elsewhere = replace(
        make_start_record(),
        nodes=(SPARK2,),
        shares=(NodeResult(node=SPARK2, instance="qwen36", image_digest="sha256:1", driver="1"),),
    )
    assert diff_starts(make_start_record(), elsewhere).found == (StartDifference("nodes", "spark1", "spark2"),)


def test_what_was_not_kept_is_said_to_be_unknown_and_never_the_same() -> None:
    assert "the profile" in diff_starts(make_start_record(None), make_start_record()).unknown
    assert "the profile" in diff_starts(make_start_record("a: [\n"), make_start_record()).unknown
    assert "image digest" in diff_starts(replace(make_start_record(), shares=()), make_start_record()).unknown


@given(st.text(max_size=200), st.text(max_size=200))
def test_whatever_text_was_kept_is_no_reason_to_fail(before: str, after: str) -> None:
    found = diff_profiles(before, after)
    if before == after and found is not None:
        assert found == ()
