"""The located reader: every byte string is either data with places or faults with places."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparkctl.errors import InvalidInput
from sparkctl.profiles.yaml_reader import (
    MAX_DEPTH,
    FileIssue,
    InvalidFile,
    YamlValue,
    find_position,
    find_value,
    parse_yaml,
    read_yaml,
    resolve_scalar,
)


def list_faults(raw: bytes) -> list[str]:
    with pytest.raises(InvalidFile) as caught:
        parse_yaml(raw, "f.yaml")
    assert caught.value.message.splitlines() == [str(fault) for fault in caught.value.faults]
    return [str(fault) for fault in caught.value.faults]


@pytest.mark.parametrize(
    ("text", "meaning"),
    [
        ("no", "no"),
        ("off", "off"),
        ("22:22", "22:22"),
        ("1_000", "1_000"),
        ("0x10", "0x10"),
        ("2026-01-01", "2026-01-01"),
        (".inf", ".inf"),
        ("1e999", "1e999"),
        ("9" * 5000, "9" * 5000),
        ("", None),
        ("~", None),
        ("null", None),
        ("true", True),
        ("False", False),
        ("8003", 8003),
        ("-1", -1),
        ("0.82", 0.82),
        ("1e-5", 1e-5),
        (".5", 0.5),
    ],
)
def test_scalars_are_yaml_1_2_in_decimal(text: str, meaning: object) -> None:
    assert resolve_scalar(text) == meaning
    assert type(resolve_scalar(text)) is type(meaning)


def test_places_and_raw_text_are_kept() -> None:
    read = parse_yaml(b"a: 1.10\nb:\n  - x\n  - {c: 'y'}\n", "f.yaml")
    assert read.to_plain_data() == {"a": 1.1, "b": ["x", {"c": "y"}]}
    first, inner = find_value(read, ("a",)), find_value(read, ("b",))
    assert first is not None
    assert first.raw == "1.10"
    assert str(find_position(read, ("a",))) == "f.yaml:1:4"
    assert str(find_position(read, ("b", 1, "c"))) == "f.yaml:4:9"
    assert str(find_position(read, ("b", 1, "c"), key=True)) == "f.yaml:4:6"
    assert str(find_position(read, ("b", 1, "missing"), key=True)) == "f.yaml:4:5"
    assert inner is not None
    assert inner.raw is None


def test_json_keeps_numbers_as_written() -> None:
    root = parse_yaml('{a: 1.10, b: 1e-5, c: .5, d: "1", e: [true, ~, é]}'.encode(), "f")
    assert root.to_json_text() == '{"a":1.10,"b":1e-5,"c":0.5,"d":"1","e":[true,null,"é"]}'


def test_an_alias_is_its_anchor() -> None:
    assert parse_yaml(b"a: &x [1]\nb: *x\n", "f").to_plain_data() == {"a": [1], "b": [1]}


def test_a_byte_order_mark_is_no_content() -> None:
    assert parse_yaml(b"\xef\xbb\xbfa: 1\r\n", "f").to_plain_data() == {"a": 1}


BOMB = "a0: &a0 [x, x]\n" + "".join(f"a{i}: &a{i} [*a{i - 1}, *a{i - 1}]\n" for i in range(1, 17))


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        (b"a: 1\nb: 2\na: 3\n", ["f.yaml:3:1: `a` appears twice, first in line 1"]),
        (b"a: 1\na: 2\nb: {c: 1, c: 2}", ["f.yaml:2:1: `a` appears twice", "f.yaml:3:11: `c` appears twice"]),
        (
            b"a: 1\na: 2\nb: [",
            ["f.yaml:2:1: `a` appears twice", "f.yaml:3:5: a value, or the end of [ or {, is missing here"],
        ),
        (b"a: b: c", ["f.yaml:1:5: no `: ` can stand here"]),
        (
            b"a:\n  b: 1\n   c: 2\n",
            [
                "f.yaml:3:5: no `: ` can stand here: is this line, or the one above it, indented too far? If not, quote text"
            ],
        ),
        (b"a: 1\n\tb: 2\n", ["f.yaml:2:1: a tab stands here: indent with spaces"]),
        (b"a:\n\tb: c", ["f.yaml:2:1: no value begins like this: indent with spaces"]),
        (b"nodes:\n  - name: a\n    host b\n", ["f.yaml:3:5: this line is no `key: value`: is its `:` missing"]),
        (b"nodes:\n  - name: a\n   host: b\n", ["f.yaml:3:4: this is no item of the list above: begin it with `- `"]),
        (b"a: 1\n- b\n", ["f.yaml:2:1: this is no key of the map above"]),
        (b"a: [1\nb: 2\n", ["f.yaml:1:4: the [ that begins here has no end: add `]`"]),
        (b"a: {b: 1\nc: 2\n", ["f.yaml:1:4: the { that begins here has no end: add `}`"]),
        (b"a: 'x\nb: 2\n", ["f.yaml:1:4: the quote that begins here has no end"]),
        (b'a: "C:\\qwen"\n', ["f.yaml:1:7: this \\ begins no character that YAML knows"]),
        (b"a: *.gguf\n", ["f.yaml:1:5: no name stands behind this * or &: quote"]),
        (b"a: - b\n", ["f.yaml:1:4: no list can begin here: write each `- `"]),
        (b"a: | b\n", ["f.yaml:1:6: only the lines below belong to the text"]),
        (b"a: !!\n", ["f.yaml:1:6: quote text that begins with !"]),
        (b"%x\na: 1\n", ["f.yaml:1:3: no line can begin with %: quote it"]),
        (b"a: 1\n\x00", ["f.yaml:2:1: a control character (U+0000)"]),
        (b'a: "\\e[2J"', ["f.yaml:1:4: a control character (U+001B)"]),
        (b"\xff\xfea\x00", ["f.yaml:1:1: the file is UTF-16"]),
        ("é: ".encode() + b"\xff", ["f.yaml:1:4: this is not UTF-8"]),
        (b"[" * 900, [f"f.yaml:1:{MAX_DEPTH + 1}: nested deeper than {MAX_DEPTH}"]),
        (b"[" * 100_000, ["f.yaml:1:1: the file is larger than 64 KiB"]),
        (b"a: &x [*x]", ["f.yaml:1:8: the alias `x` is inside its own anchor"]),
        (b"a: *nope", ["f.yaml:1:4: the alias `nope` has no anchor"]),
        (b"a: &x 1\nb: [" + b"*x, " * 33 + b"]", ["f.yaml:2:133: more than 32 aliases"]),
        (BOMB.encode(), ["f.yaml:12:12: more than 10000 values"]),
        (b"? [a]\n: b", ["f.yaml:1:3: a key must be plain text"]),
        (b"a: !!python/object:os.system x", ["f.yaml:1:4: the tag"]),
        (b"a: 1\n---\nb: 2", ["f.yaml:2:1: a second document"]),
        (b"", ["f.yaml:1:1: the file is empty"]),
        (b"# nothing\n", ["f.yaml:1:1: the file is empty"]),
    ],
)
def test_faults_are_located(raw: bytes, expected: list[str]) -> None:
    found = list_faults(raw)
    assert len(found) == len(expected), found
    for line, beginning in zip(found, expected, strict=True):
        assert line.startswith(beginning)


def test_depth_beyond_what_the_parser_itself_takes_is_the_same_fault() -> None:
    assert [line.partition(": ")[2] for line in list_faults(b"[" * 60_000)] == [f"nested deeper than {MAX_DEPTH}"]


def test_depth_counts_through_aliases() -> None:
    nested = "a: &a " + "[" * 12 + "1" + "]" * 12 + "\nb: " + "[" * 12 + "*a" + "]" * 12
    assert "nested deeper" in list_faults(nested.encode())[0]


def test_a_secret_in_a_key_is_not_repeated() -> None:
    line = list_faults(b"hf_abcdefghijklmnopqrstu: 1\nhf_abcdefghijklmnopqrstu: 2\n")[0]
    assert "hf_abc" not in line


YAMLISH = st.text(alphabet="ab:-[]{}&*!|>'\"%@`#?, \n\t0.~é\x00\x1b", max_size=80).map(lambda text: text.encode())


@settings(max_examples=300, deadline=None)
@given(st.one_of(st.binary(max_size=200), YAMLISH))
def test_any_bytes_are_data_or_located_faults(raw: bytes) -> None:
    read, faults = try_parse(raw)
    if read is not None:
        assert find_position(read, ()).line is not None
        read.to_json_text()
        return
    assert faults
    for fault in faults:
        assert fault.place.line is not None
        assert fault.place.line >= 1
        assert str(fault).isprintable()


def try_parse(raw: bytes) -> tuple[YamlValue | None, tuple[FileIssue, ...]]:
    try:
        return parse_yaml(raw, "f.yaml"), ()
    except InvalidFile as error:
        return None, error.faults


def test_what_cannot_be_read_says_why(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="No such file"):
        read_yaml(tmp_path / "none.yaml")
    with pytest.raises(InvalidInput, match="Is a directory"):
        read_yaml(tmp_path)
    with pytest.raises(InvalidInput, match="is not a path"):
        read_yaml(Path("a\0b"))
