"""The gate for text from a node, and what counts as a secret."""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Collection

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparkctl.model.text.log_line import LogLine
from sparkctl.model.text.sanitize import load_json, sanitize_line, sanitize_lines, truncate_text
from sparkctl.model.text.secrets import (
    MASK,
    find_secret_arguments,
    find_secret_values,
    is_secret_name,
    list_secret_spellings,
    mask_log_lines,
    redact,
    redact_word,
    redact_words,
)


def mask_line(text: str, secrets: Collection[str] = ()) -> str:
    return mask_log_lines([LogLine(when="", text=text, number=1)], secrets)[0].text


HOSTILE = {
    "colour": "\x1b[31mred\x1b[0m",
    "clear the screen": "\x1b[2J\x1b[H",
    "title": "\x1b]0;owned\x07",
    "clipboard, ended by ST": "\x1b]52;c;aGVsbG8=\x1b\\",
    "clipboard, never ended": "\x1b]52;c;aGVsbG8=",
    "cursor report": "\x1b[6n",
    "device control string": "\x1bP$q q\x1b\\",
    "eight-bit CSI": "\x9b31mred",
    "eight-bit OSC": "\x9d0;owned\x9c",
    "bidi override": "user\u202egnp.exe",
    "bell, backspace, NUL, DEL": "a\x07b\x08c\x00d\x7f",
    "zero width": "pass\u200bword",
    "lone surrogate": "a\udc80b",
    "line separators": "a\u2028b\u2029c\x85d",
}


def shows_nothing_but_text(text: str) -> bool:
    return all(unicodedata.category(char)[0] not in "C" and char not in "\u2028\u2029" for char in text)


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE.keys())
def test_no_control_byte_passes(text: str) -> None:
    cleaned = sanitize_line(f"before {text} after")
    assert shows_nothing_but_text(cleaned), ascii(cleaned)
    assert cleaned.startswith("before ")


def test_escape_sequences_leave_no_trace_and_text_stays() -> None:
    assert (
        sanitize_line("\x1b[0;36m(APIServer pid=9134)\x1b[0;0m \x1b[32mINFO\x1b[0m ok")
        == "(APIServer pid=9134) INFO ok"
    )
    assert sanitize_line("Loading ▕█████▋ 67 % größer 日本 🔥") == "Loading ▕█████▋ 67 % größer 日本 🔥"
    assert sanitize_line("a\tb") == "a    b"


@given(st.text())
def test_the_gate_holds_for_any_text_and_twice_is_once(text: str) -> None:
    once = sanitize_line(text)
    assert shows_nothing_but_text(once)
    assert sanitize_line(once) == once


@given(st.text())
def test_lines_are_lines(text: str) -> None:
    assert all(shows_nothing_but_text(line) for line in sanitize_lines(text))


def test_json_of_a_node_holds_no_half_of_a_character() -> None:
    found = load_json(r'{"\udcfd": ["a\ud800b", "\ud83d\ude00", "\\ud800"], "n": 1}')
    assert found == {"?": ["a?b", "\U0001f600", "\\ud800"], "n": 1}
    assert json.dumps(found, ensure_ascii=False).encode()
    assert load_json(b'{"a": null}') == {"a": None}
    with pytest.raises(ValueError, match="utf-8"):
        load_json(b'"\xff"')


def test_shorten_marks_its_cut() -> None:
    assert truncate_text("abcdef", 4) == "abc…"
    assert truncate_text("abc", 3) == "abc"


@pytest.mark.parametrize(
    "name",
    [
        "HF_TOKEN",
        "HUGGING_FACE_HUB_TOKEN",
        "OPENAI_API_KEY",
        "--api-key",
        "DB_PASSWORD",
        "api-key",
        "SECRET_SAUCE",
        "DB_PASS",
        "MYSQL_PWD",
        "HF_TOKENS",
        "api-tokens",
        "HF_TOKEN_WRITE",
        "HFTOKEN",
        "TOKEN_2",
        "splunk-token",
        "Authorization",
        "HF_TOK",
        "SESSION_JWT",
    ],
)
def test_names_of_secrets(name: str) -> None:
    assert is_secret_name(name)


@pytest.mark.parametrize(
    "name",
    [
        "speculative-num-draft-tokens",
        "MAX_TOKENS",
        "tokenizer-path",
        "NCCL_IB_HCA",
        "KEYBOARD",
        "max-num-batched-tokens",
        "max-new-tokens",
        "long-prefill-token-threshold",
        "stop-token-ids",
        "skip-special-tokens",
        "NUM_TOKEN",
        "tokens",
        "PWD",
        "OLDPWD",
        "BYPASS",
        "sort-keys",
        "TIKTOKEN_ENCODINGS_BASE",
    ],
)
def test_names_that_only_look_like_it(name: str) -> None:
    assert not is_secret_name(name)


def test_secrets_are_masked_by_value_and_by_shape() -> None:
    secrets = find_secret_values({"HF_TOKEN": "sesame-open", "A": "b"}) | find_secret_arguments(
        ["serve", "--api-key", "xyzzy-123", "--x=1"]
    )
    assert secrets == {"sesame-open", "xyzzy-123"}
    assert redact("token=sesame-open key xyzzy-123", secrets) == f"token={MASK} key {MASK}"
    assert "hf_" not in redact("see hf_abcdefghijklmnopqrstuvwxyz")
    assert find_secret_arguments(["--api-key=open-sesame"]) == {"open-sesame"}


def test_a_secret_of_several_lines_is_masked_line_by_line() -> None:
    secrets = find_secret_values({"TLS_PRIVATE_KEY": "-----BEGIN-----\n  MIIEabcdef\nab\n-----END-----\n"})
    assert {"MIIEabcdef", "-----BEGIN-----", "-----END-----"} <= secrets
    assert "ab" not in secrets
    assert redact("read MIIEabcdef from the environment", secrets) == f"read {MASK} from the environment"


def test_a_secret_is_found_as_json_and_urls_write_it() -> None:
    secrets = list_secret_spellings(['pa"ss\\w+rd'])
    assert redact(r'{"k": "pa\"ss\\w+rd"}', secrets) == f'{{"k": "{MASK}"}}'
    assert redact("?k=pa%22ss%5Cw%2Brd", secrets) == f"?k={MASK}"


@pytest.mark.parametrize(
    ("words", "shown"),
    [
        ("serve --api-key k1 --port 8000", f"serve --api-key {MASK} --port 8000"),
        ("--api-key k1 k2 -x k3", f"--api-key {MASK} {MASK} -x k3"),
        ("--api-key=k1 k2", f"--api-key={MASK} k2"),
        ("--model k1", "--model k1"),
    ],
)
def test_what_follows_a_secrets_flag_is_masked_however_short_it_is(words: str, shown: str) -> None:
    assert redact_words(words.split()) == tuple(shown.split())


def test_the_longer_secret_is_masked_first() -> None:
    assert redact("abcdefghi", ["abcdef", "abcdefghi"]) == MASK


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("redis://:hunter2@h:6379/0", f"redis://:{MASK}@h:6379/0"),
        ("at postgres://u:p@ss@h/db now", f"at postgres://u:{MASK}@h/db now"),
        ("http://h:8000/a@b", "http://h:8000/a@b"),
        ('{"a":"http://h:8000","mail":"x@y"}', '{"a":"http://h:8000","mail":"x@y"}'),
        ("pg://u:${DB_PASS}@h", "pg://u:${DB_PASS}@h"),
        ("ssh://milo@spark1:22", "ssh://milo@spark1:22"),
    ],
)
def test_a_password_in_a_url_is_masked_by_its_place(text: str, shown: str) -> None:
    assert redact(text) == shown
    assert mask_line(text) == shown


def test_secrets_inside_the_words_of_a_command() -> None:
    words = ["bash", "-c", "export HF_TOKEN='sesame-one'; serve --api-key sesame-two --max-tokens 123456"]
    assert find_secret_arguments(words) == {"sesame-one", "sesame-two"}
    assert find_secret_arguments(["--api-key", "sesame-one", "sesame-two", "--port", "800000"]) == {
        "sesame-one",
        "sesame-two",
    }


@given(st.text(max_size=200), st.lists(st.text(min_size=1, max_size=8), max_size=4))
def test_the_quick_look_misses_nothing_that_would_be_masked(text: str, secrets: list[str]) -> None:
    assert mask_line(text, secrets) == redact(text, secrets)


SHAPED = {
    "a web token": "eyJ" + "hbGciOi" * 3 + "." + "eyJzdWIi" * 3 + "." + "c2ln" * 5,
    "AWS": "AKIA" + "Q7" * 8,
    "Slack": "xoxb-" + "12345-" * 3 + "abc",
    "GitLab": "glpat-" + "aB3_" * 5,
    "GitHub": "github_pat_" + "aB3_" * 6,
    "Google": "AIza" + "aB3_" * 9,
    "borne": "Bearer " + "Sesame42" * 3,
}


@pytest.mark.parametrize("token", SHAPED.values(), ids=SHAPED.keys())
def test_a_token_shows_itself_by_its_shape_under_any_name(token: str) -> None:
    secret = token.split()[-1]
    for text in (
        mask_line(f"got {token}, bad"),
        redact(f"got {token}, bad"),
        redact_word(f"LD={token}"),
        redact_word(f"X: {token}"),
    ):
        assert secret not in text
        assert MASK in text


def test_a_header_is_masked_by_its_name_and_its_value_is_known() -> None:
    assert redact_word("Authorization: Bearer abcdef") == f"Authorization: {MASK}"
    assert "abcdefgh" in find_secret_values({"AUTHZ": "Authorization: Bearer abcdefgh", "X": "X-Api-Key: 1"})
    assert "abcdefgh" in find_secret_values({"HEADER": "Authorization: Bearer abcdefgh"})


@pytest.mark.parametrize(
    "text",
    [
        "401: Bearer authentication is required",
        "the bearer of this",
        "a token eyJ",
        "max_tokens: 5",
        "Total: 5\nName: mine",
    ],
)
def test_prose_stays(text: str) -> None:
    assert redact_word(text) == text


def test_json_keeps_its_form() -> None:
    text = '{"model": "mine", "api_key": "sesame", "auth": ["sesame"], "deep": {"hub_token": "sesame"}, "n": 1}'
    assert redact_word(text) == text.replace('"sesame"', f'"{MASK}"')


@pytest.mark.parametrize(
    ("line", "secret"),
    [
        ("non-default args: {'model': '/m', 'api_key': ['listsecret99'], 'port': 8000}", "listsecret99"),
        ("non-default args: {'api_key': ['one-secret', 'two-secret'], 'model': '/m'}", "two-secret"),
        ('"api_key": "plainsecret77", "model": "/m"', "plainsecret77"),
        ('{"model":"/m","api_key":"plainsecret77"}', "plainsecret77"),
        ("server_args=ServerArgs(model_path='/m', api_key='plainsecret77', port=1)", "plainsecret77"),
        ("got X-Api-Key: zzz999secret from 10.0.0.7 /m", "zzz999secret"),
        ("headers {'x-api-key': 'zzz999secret', 'path': '/m'}", "zzz999secret"),
        ("/m Authorization: Bearer abc.def.ghi", "abc.def.ghi"),
        ("/m authorization: Basic dXNlcjpwYXNz", "dXNlcjpwYXNz"),
        ("'hf_token': 'sesame99', 'model': '/m'", "sesame99"),
    ],
)
def test_what_a_program_prints_of_its_settings_and_its_clients_is_masked(line: str, secret: str) -> None:
    for expected in (mask_line(line), redact(line), redact_word(line)):
        assert secret not in expected
        assert MASK in expected
    assert "/m" in redact(line)


@pytest.mark.parametrize(
    "line",
    [
        "non-default args: {'api_key': None, 'model': '/m', 'max_num_batched_tokens': 8192}",
        "'stop_token_ids': [1, 2], 'token': 'hello', 'skip_special_tokens': 'yes'",
        "[2026-05-01 10:09:00] Decode batch, #running-req: 3, #token: 422, token usage: 0.00",
        "Authorization: ${HF_TOKEN}",
    ],
)
def test_what_only_sounds_like_a_secret_stays_in_a_log(line: str) -> None:
    assert redact(line) == line
