"""Where secrets stand that nobody put there on purpose, and what must stay: by name, by shape, by place, in any length."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from sparkctl.model.text.log_line import LogLine
from sparkctl.model.text.secrets import (
    MASK,
    LineMasker,
    Redactor,
    find_secret_values,
    is_secret_name,
    mask_log_lines,
    redact,
    redact_word,
)
from sparkctl.transport.docker import docker_responses
from tests.unit.engines import failed_start_logs


def mask_line(text: str) -> str:
    return mask_log_lines([LogLine(when="", text=text, number=1)], ())[0].text


V = "Sesame-0pen"
PLACES = [
    f"export HF_TOKEN={V}", f"setenv HF_TOKEN {V}", f"set -gx HF_TOKEN {V}", f"ENV HF_TOKEN {V}", f'$env:HF_TOKEN="{V}"',
    f"docker run -e HF_TOKEN={V} image", f"Environment=HF_TOKEN={V}", f"vllm serve m --api-key {V} --port 8000",
    f"vllm serve m --api-k {V}",
    f"postgres://u:a/{V}@h/db", f"redis://:{V}/x@h:6379/0", f"curl -s -u user:{V} http://h/", f"curl --user 'bob:x {V}' http://h",
    f"docker login -u bob -p {V} reg", f"podman login reg -p{V}", f"[(b'authorization', b'Token {V}'), (b'host', b'h')]",
    f"llama-server -hft {V} --port 1", f"--api_k={V}", f"--api-key '{V} two'", f"-token {V}", f"api_key={V}", f"api_key = {V}",
    f"api_key={V},b=2", f"api_key=b'{V}'", f"api_key=SecretStr('{V}')", f"api_key='{V}", f"api_key=['{V}', 'x']",
    f"api_key=[{V}]", f"credentials=('u', '{V}')", f'{{"api_key": "{V}"}}', f'{{\\"api_key\\": \\"{V}\\"}}',
    f'\\\\\\"api_key\\\\\\": \\\\\\"{V}\\\\\\"', f"os.environ['HF_TOKEN'] = '{V}'", f"[('api_key', '{V}')]",
    f"['--api-key', '{V}']", f"\x1b[36mapi_key\x1b[0m=\x1b[35m{V}\x1b[0m", f"HF_TOKEN: {V}", f"apiKey: '{V}'",
    f"Cookie: session={V}", f"Set-Cookie: id={V}; Path=/", f"X-Auth-Token: {V}", f"?token={V}&x=1", f"HF_TOKEN%3D{V}",
    f"HF_TOKEN=$'{V}'", f"hf auth login --token={V}", f"Cookie: theme=dark; id={V}", f"Authorization: Custom {V}",
    f"-H 'Authorization: Key {V}' x", f"WIFI_PSK={V}",
    f"machine h.example login bob password {V}", f"  password {V}7", f"HF_TOKEN -> {V}", f"Env: HF_TOKEN --> {V}", f"HF_TOKEN->{V}",
    f"HF_TOKEN → {V}", f"HF_TOKEN\t{V}", f"HOME\t/root\nHF_TOKEN\t{V}\tset\n", f"| api_key -> '{V}' |",
    f"curl -H 'X-Api-Key:{V}'", f"<password>{V}</password>", f"https://{V}@github.com/x.git", f"https://{V}:@h/",
    f"https://{V}:x-oauth-basic@github.com/", f"https:\\/\\/{V}@h\\/x", f"https://hooks.slack.com/services/T0/B0/{V}",
    f"x -----BEGIN RSA PRIVATE KEY-----\\n{V}\\n-----END RSA PRIVATE KEY----- y",
]  # fmt: skip
NAMES = [
    "TS_AUTHKEY", "DOCKER_AUTH_CONFIG", "COOKIE", "AUTH_HEADER", "GIT_CREDS", "DBPASS", "USERPASS", "MYPASS", "DB_PW", "PASSKEY",
    "ENCRYPTIONKEY", "LITELLM_MASTERKEY", "SENTRY_DSN", "AZURE_STORAGE_CONNECTION_STRING", "SLACK_WEBHOOK_URL", "SMTP_PASS_2",
    "--api-k", "--hf-tok", "--admin-api-k", "apiKey", "clientSecret", "DBPWD", "WIFI_PSK", "TOTP_SEED", "WALLET_MNEMONIC",
]  # fmt: skip
NO_NAMES = [
    "MONKEY", "PATH", "KV_CACHE_DTYPE", "--tokenizer-mode", "tokenizer", "num_tokens", "max_tokens", "maxTokens", "eos_token",
    "pad_token_id", "new-token", "token_embd.weight", "num_key_value_heads", "--cpu-offload-gb", "NOPASSWD", "AUTHOR", "COMPASS",
    "--ssl-keyfile", "HOTKEY", "classifier_from_token", "SSH_AUTH_SOCK", "--bucket-time-to-first-token", "embed_tokens",
]  # fmt: skip
SHAPES = {
    "Tailscale": "tskey-auth-" + "kAbc12" * 3, "Hugging Face": "hf_" + "aB3" * 8, "NVIDIA": "nvapi-" + "aB3_" * 8,
    "OpenAI": "sk-proj-" + "aB3_" * 8, "npm": "npm_" + "aB3" * 12, "Slack's app": "xapp-1-" + "A0B1" * 5,
    "Docker": "dckr_pat_" + "aB3_" * 6, "Stripe": "sk_live_" + "aB3" * 8, "behind a newline": "\\nhf_" + "aB3" * 8,
    "behind a colour": "\x1b[36mhf_" + "aB3" * 8, "in a URL": "%20hf_" + "aB3" * 8,
}  # fmt: skip
LONG = {
    "a word": "a", "names": "a_token=['x", "lists": "[(", "heads": "a: ", "keys": '"a_token": "x", ', "flags": "--api-key x ",
    "flags of references": "--api-key [$( ", "flags of formats": "setenv API_KEY (%( ", "flags of nothing": '--api-key ["" ',
    "colours": "a\x1b[0m", "backslashes": "\\", "quotes": '\\"', "cores": "pass", "addresses": "https://a:b",
    "PEM": "-----BEGIN RSA PRIVATE KEY-----",
    "bearer": "Bearer ", "web tokens": "-eyJaaaaaaaaa", "JSON": '{"api_key":', "pairs": "('api_key', ",
    "unclosed": "api_key=\"x api_key='x ",
    "blanks": "key      ", "hook": "hooks.slack.com/services/", "cookies": "cookie: a=b; ", "dollars": "api_key=$'",
}  # fmt: skip


@pytest.mark.parametrize("text", PLACES)
def test_a_value_is_masked_by_its_place_also_in_a_text_of_others(text: str) -> None:
    for masked in (mask_line(text), redact(text), redact_word(text), Redactor().redact_text(text)):
        assert V not in masked
        assert MASK in masked


@pytest.mark.parametrize("text", PLACES)
def test_masking_twice_is_masking_once(text: str) -> None:
    assert redact(redact(text)) == redact(text)


@pytest.mark.parametrize("name", NAMES)
def test_more_names_of_secrets(name: str) -> None:
    assert is_secret_name(name)
    assert V not in redact_word(f"{name}={V}")


@pytest.mark.parametrize("name", NO_NAMES)
def test_names_that_are_none(name: str) -> None:
    assert not is_secret_name(name)


@pytest.mark.parametrize("token", SHAPES.values(), ids=SHAPES.keys())
def test_more_shapes_of_tokens(token: str) -> None:
    assert token[-12:] not in mask_line(token) + redact(f"got {token}, bad") + redact_word(f"LD={token}")


@pytest.mark.parametrize(
    "line",
    [
        "max_tokens=4096", "monkey=1", "tokenizer='/m', tokenizer_mode='auto'", "--tokenizer-mode auto --max-num-seqs 4",
        "num_tokens: 12", "Decode batch, #running-req: 3, #token: 422, token usage: 0.05, cuda graph: True",
        "Prefill batch, #new-seq: 1, #new-token: 6, #cached-token: 0, token usage: 0.00", "eos_token='</s>', pad_token='<pad>'",
        "api_key=None, admin_api_key=None", "KV_CACHE_DTYPE=fp8", "PATH=/usr/bin", "use --api-key to set one",
        "[--api-key API_KEY]",
        "invalid token: the request has none", "%s: author: me", "milo ALL=(root) NOPASSWD: /usr/bin/tee", "ssh://milo@spark1:22",
        "https://example.com/@user/x?mail=a@b", "cache_key=abc, sort_key=x", "tensor token_embd.weight = 5",
        "redis://host:6379/0?x=a@b", "docker run -u 1000:1000 curlimages/curl x", "curl -u $U:$P http://h", "user login at -p x",
        "docker login -u bob --password-stdin", "[b'token', b'key', b'other']", "postgres://u:${PW}@h/db",
        "pass --hf-token or set HF_TOKEN in the environment", "expects a PEM file", "api_key=${HF_KEY}",
        "password authentication failed for user bob", "password required", "HF_TOKEN -> used to download models", "HF_TOKEN\tnot set",
        "model.layers.0.key -> blocks.0.key", "Renamed k_proj.key -> attn.k", "token\tcount\n12\t4", "api_key -> None",
    ],
)  # fmt: skip
def test_ordinary_words_stay(line: str) -> None:
    assert redact(line) == line


def test_no_log_of_an_engine_loses_a_word() -> None:
    """These logs hold no secrets: whatever is masked in them is masked wrongly."""
    logs = [
        failed_start_logs.build_vllm_log(version, death)
        for version in ("0.19.1", "0.33.0")
        for death in (*failed_start_logs.ANY, *failed_start_logs.VLLM)
    ]
    logs += [
        failed_start_logs.build_sglang_log("0.5.23", death)
        for death in (*failed_start_logs.ANY, *failed_start_logs.SGLANG)
    ]
    lines = {line for log in logs for line in log.splitlines()}
    assert len(lines) > 200
    assert [(line, redact(line)) for line in lines if redact(line) != line] == []


FUNCTIONS: dict[str, Callable[[str], object]] = {
    "redact": redact,
    "redact_word": redact_word,
    "a value": lambda text: find_secret_values({"NOTE": text}),
    "an environment": lambda text: docker_responses.parse_secret_values(
        {"Config": {"Env": [f"NOTE={text}"], "Cmd": ["sh", "-c", text]}}
    ),
    "a text to post": lambda text: Redactor().redact_text(text),
    "a label to post": lambda text: Redactor().redact_json({"Labels": {"note": text}}),
    "a name": is_secret_name,
}


@pytest.mark.parametrize("piece", LONG.values(), ids=LONG.keys())
def test_masking_takes_time_in_proportion_to_the_text(piece: str) -> None:
    for name, function in FUNCTIONS.items():
        short, long = (
            _measure_seconds(function, (piece * (size // len(piece) + 1))[:size]) for size in (4 << 10, 64 << 10)
        )
        assert long < 60 * max(short, 0.005), f"{name}: {short:.3f} s for 4 KiB, {long:.3f} s for 16 times of it"


def _measure_seconds(function: Callable[[str], object], text: str) -> float:
    began = time.process_time()
    function(text)
    return time.process_time() - began


async def test_a_private_key_over_lines_and_batches_is_masked_and_what_follows_stays() -> None:
    texts = [
        "loading",
        "-----BEGIN RSA PRIVATE KEY-----",
        "MIIE" + "aB3/" * 15,
        "Qw==",
        "-----END RSA PRIVATE KEY-----",
        "ready to serve",
    ]
    masker, found = LineMasker(()), []
    for number, text in enumerate(texts):
        found += [line.text for line in masker.mask_batch([LogLine(when="", text=text, number=number)])]
    assert found[0] == "loading"
    assert found[-1] == "ready to serve"
    assert "MIIE" not in "".join(found)
    assert "Qw==" not in "".join(found)
    mentioned = [
        LogLine(when="", text=text, number=1)
        for text in ("expects -----BEGIN PRIVATE KEY-----", "INFO: it goes on", "a b c")
    ]
    assert [line.text for line in masker.mask_batch(mentioned)][1:] == ["INFO: it goes on", "a b c"]


def test_secrets_in_very_long_lines_are_masked_and_nothing_else_is_lost() -> None:
    lines = [
        LogLine(when="", text="x" * (256 << 10) + f" api_key={V} " + "y" * 100, number=number) for number in range(4)
    ]
    found = LineMasker(()).mask_batch(lines)
    assert [line.number for line in found] == [0, 1, 2, 3]
    assert all(V not in line.text and len(line.text) > (256 << 10) for line in found)


def test_a_line_that_differs_from_a_harmless_one_only_in_digits_or_a_secret_is_checked_for_itself() -> None:
    harmless = [f"step {number} of 9, key: {number}" for number in range(9)]
    hidden = [
        f"step 1 of 9, key: {V}",
        "api%3dkey%3d7f7f7f7f7f7f7f7f7f7f",
        "r8_" + "a1" * 12,
        "token ya29." + "b2" * 15,
    ]
    lines = [LogLine(when="", text=text, number=at) for at, text in enumerate([*harmless, *hidden, *harmless])]
    whole = "\n".join(line.text for line in LineMasker((V,)).mask_batch(lines))
    assert whole == "\n".join(redact(line.text, (V,)) for line in lines)
    assert V not in whole
    assert "a1a1" not in whole
    assert "b2b2" not in whole


async def test_a_private_key_whose_beginning_was_not_asked_for_is_masked_too() -> None:
    texts = ["12 lines loaded", "aB3/" * 16, "cD4+" * 16, "Qw==", "-----END RSA PRIVATE KEY-----", "ready to serve"]
    lines = [LogLine(when="2026-11-22T12:00:00Z", text=text, number=number) for number, text in enumerate(texts, 1)]
    kept = [line.text for line in LineMasker(()).mask_batch(lines)]
    assert kept == [texts[0], MASK, MASK, MASK, *texts[4:]]
    assert Redactor().redact_text("\n".join(texts)).split("\n") == kept


@pytest.mark.parametrize("head", ["Authorization: Bearer ", "Bearer "])
@pytest.mark.parametrize(("length", "is_masked"), [(23, False), (24, True), (25, True)])
def test_a_word_without_digits_is_a_token_from_its_length_on(head: str, length: int, is_masked: bool) -> None:
    """Shorter ones are words of a sentence: `bearer authentication`."""
    value = "abcdefghijklmnopqrstuvwxyz"[:length]
    text = f"x {head}{value} more of a sentence"
    assert (value not in redact(text)) is (is_masked or head.startswith("Auth"))


@pytest.mark.parametrize(("length", "is_masked"), [(23, False), (24, True)])
def test_after_a_name_and_a_colon_a_long_word_is_a_value_and_a_short_one_belongs_to_a_sentence(
    length: int, is_masked: bool
) -> None:
    value = "abcdefghijklmnopqrstuvwxyz"[:length]
    assert (value not in redact(f"the password: {value} was wrong")) is is_masked


def test_the_choice_to_generate_a_key_is_no_key() -> None:
    for text in ("set api_key: generate (vLLM)", "api_key: generate", "api_key=generate"):
        assert redact(text) == text
    assert redact_word("api_key=generate") == "api_key=generate"
    assert "generated-9Xk2" not in redact("api_key: generated-9Xk2")
    assert "generate" not in redact("DB_PASSWORD=generate")
