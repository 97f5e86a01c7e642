"""A setting that is kept in a profile's file: one value, and nothing else of the text."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparkctl.errors import InvalidInput, SparkctlError
from sparkctl.profiles.profile_edit import save_setting, set_field_in_text
from sparkctl.profiles.profile_library import ProfileLibrary
from sparkctl.profiles.yaml_reader import parse_yaml

TEXT = """# mine
schema: 1
name: mine
engine: sglang
image: 'a/b:0.5.12'   # pinned
port: 8003
args:
  tp: 1
  # as measured on 12 May
  mem-fraction-static: 0.82  # was 0.85
flow: {a: 1, b: 2}
"""


@pytest.mark.parametrize(
    ("setting", "old", "new"),
    [
        ("args.mem-fraction-static=0.72", "static: 0.82 ", "static: 0.72 "),
        ("args.mem-fraction-static=null", "static: 0.82 ", "static: null "),
        ("port=8004", "port: 8003", "port: 8004"),
        ("image=a/b:0.5.13", "'a/b:0.5.12'", "a/b:0.5.13"),
        ("args.context-length=32768", "  tp: 1\n", "  context-length: 32768\n  tp: 1\n"),
        ("flow.c=x", "{a: 1", "{c: x, a: 1"),
        ("flow.a=7", "{a: 1", "{a: 7"),
        ("container.shm_size=16g", "b: 2}\n", "b: 2}\ncontainer:\n  shm_size: 16g\n"),
        ("env.X=yes #1", "b: 2}\n", 'b: 2}\nenv:\n  X: "yes #1"\n'),
        ("args.list=[a, b]", "  tp: 1\n", '  list: ["a","b"]\n  tp: 1\n'),
    ],
)
def test_one_value_is_changed_and_the_rest_of_the_text_stays(setting: str, old: str, new: str) -> None:
    assert set_field_in_text(TEXT, setting, "f") == TEXT.replace(old, new, 1)
    assert set_field_in_text(TEXT.replace("\n", "\r\n"), setting, "f") == TEXT.replace(old, new, 1).replace(
        "\n", "\r\n"
    )


@pytest.mark.parametrize("setting", ["args=3", "flow.a.b=1", "args.mem-fraction-static.x=1"])
def test_what_cannot_be_changed_for_certain_is_refused(setting: str) -> None:
    with pytest.raises(InvalidInput, match="cannot be edited there safely"):
        set_field_in_text(TEXT, setting, "f")


@given(st.sampled_from(["port", "args.tp", "args.new", "env.A", "flow.z", "new.deep.er"]), st.text(max_size=30))
def test_whatever_is_set_the_file_means_it_or_is_not_changed(field: str, value: str) -> None:
    try:
        result = set_field_in_text(TEXT, f"{field}={value}", "f")
    except SparkctlError:
        return
    before, after = parse_yaml(TEXT.encode(), "f").to_plain_data(), parse_yaml(result.encode(), "f").to_plain_data()
    for step in field.split(".")[:-1]:
        before, after = before.get(step, {}), after[step]
    last = field.rpartition(".")[2]
    assert after[last] == value or not isinstance(after[last], str) or after[last].strip() == value.strip(" '\"")
    assert {key: one for key, one in after.items() if key != last} == {
        key: one for key, one in before.items() if key != last
    }


def test_a_shipped_profile_is_copied_first_and_not_where_it_does_not_take_the_value(tmp_path: Path) -> None:
    library = ProfileLibrary(user=tmp_path / "mine")
    shipped = (library.shipped / "qwen36.yaml").read_text()
    with pytest.raises(InvalidInput, match="whole number"):
        save_setting(library, "qwen36", "port=many")
    assert library.is_shipped(library.find_profile_file("qwen36"))
    path, copied = save_setting(library, "qwen36", "args.mem-fraction-static=0.55")
    assert (path, copied) == (tmp_path / "mine" / "qwen36.yaml", True)
    changed = [line for line in path.read_text().splitlines() if line not in shipped.splitlines()]
    assert changed == ["  mem-fraction-static: 0.55"]
    assert save_setting(library, "qwen36", "port=8009") == (path, False)
    assert library.load_profile("qwen36").port == 8009
