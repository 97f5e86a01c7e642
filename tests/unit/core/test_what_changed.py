"""What is different between two starts that were kept: fields of the profile, the image, the node; never a guess."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from sparkctl.core.what_changed import Change, differences, what_changed
from sparkctl.model.history import Kind, Operation, Share
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


def start(text: str | None = TEXT, **share: str) -> Operation:
    own = Share(SPARK1, "qwen36", **{"image_digest": "sha256:1", "driver": "580.95", "kernel": "6.11", **share})  # type: ignore[arg-type]
    return Operation(1, Kind.START, 0.0, "milo", (SPARK1,), "qwen36", "qwen36", text=text, shares=(own,))


def test_nothing_is_different_where_nothing_is() -> None:
    changes = what_changed(start(engine_version="0.5.12"), start(engine_version="0.5.12"))
    assert (changes.found, changes.unknown) == ((), ())


def test_fields_of_the_profile_that_came_went_and_changed() -> None:
    after = TEXT.replace("0.82", "0.95").replace("  tp: 1\n", "").replace("  - /tmp:/tmp\n", "  - ~/hub:/hub\n")
    after = after.replace("{a: 1}", "{a: 1, b: [2]}") + "env:\n  NEW: yes\n"
    assert differences(TEXT, after) == (
        Change("args.mem-fraction-static", "0.82", "0.95"), Change("args.json.b", None, "[2]"),
        Change("mounts ~/hub:/hub", None, "~/hub:/hub"), Change("env.NEW", None, "yes"), Change("args.tp", "1", None),
        Change("mounts /tmp:/tmp", "/tmp:/tmp", None),
    )  # fmt: skip


def test_image_driver_and_kernel_are_compared_on_the_node_itself() -> None:
    changes = what_changed(start(), start(image_digest="sha256:2", driver="580.142"))
    assert changes.found == (
        Change("image digest", "sha256:1", "sha256:2"), Change("driver of spark1", "580.95", "580.142"),
    )  # fmt: skip
    assert changes.unknown == ("engine version of spark1",)
    elsewhere = replace(
        start(), nodes=(SPARK2,), shares=(Share(SPARK2, "qwen36", image_digest="sha256:1", driver="1"),)
    )
    assert what_changed(start(), elsewhere).found == (Change("nodes", "spark1", "spark2"),)


def test_what_was_not_kept_is_said_to_be_unknown_and_never_the_same() -> None:
    assert "the profile" in what_changed(start(None), start()).unknown
    assert "the profile" in what_changed(start("a: [\n"), start()).unknown
    assert "image digest" in what_changed(replace(start(), shares=()), start()).unknown


@given(st.text(max_size=200), st.text(max_size=200))
def test_whatever_text_was_kept_is_no_reason_to_fail(before: str, after: str) -> None:
    found = differences(before, after)
    if before == after and found is not None:
        assert found == ()
