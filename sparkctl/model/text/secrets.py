"""Find secrets in text, and mask them in everything that is shown or written.

The text is not trusted, so every pattern runs in linear time: repetitions are possessive or bounded, and no search
begins inside a word. ``tests/unit/test_patterns_are_linear.py`` times each of them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache

from sparkctl.model.lazy_dataclass import dataclass
from sparkctl.model.text import lazy_pattern
from sparkctl.model.text.log_line import LogLine, join_texts

MASK = "••••••"
_SECRET_NAME_PATTERN = lazy_pattern.compile(
    r"SECRET|PASSW|PASS_?PHRASE|PASS_?CODE|CREDENTIAL|CREDEN$|(?:API|ACCESS|PRIVATE|ACCOUNT|MASTER|ENCRYPTION)_?KEY"
    r"|(?:^|_)(?:KEY|PAT|PASS|PW|TOK|JWT|BEARER|CREDS?|COOKIES?|DSN|SAS|SIG|SIGNATURE|T?OTP(?:_SEED)?|PSK|MNEMONIC)_?\d*$"
    r"|_PWD_?\d*$|(?:DB|USER|ROOT|ADMIN|MY|SQL|PG|HTTP|HTTPS|FTP|SMTP|IMAP|MAIL)PW_?\d*$"
    r"|AUTHZ?_?\d*$|AUTHORIZATION$|(?:^|_)AUTH_(?:CONFIG|HEADERS?|DATA|STRING|VALUE|LINE|INFO|JSON|B64|BASE64|COOKIE)(?:_|$)"
    r"|CONN(?:ECTION)?_?STR(?:ING)?S?(?:_|$)|WEB_?HOOKS?(?:_UR[LI]S?)?_?\d*$|DOCKER_?CONFIG_?JSON|_CREDS?_"
    # abbreviations that argparse accepts: --api-k, --hf-tok, --passw
    r"|(?:^|_)(?:API|ACCESS|AUTH|PRIVATE|SECRET|MASTER|ADMIN|ENCRYPTION)_KE?$|_TOKE?$|(?:^|_)SECRE$|^HFT$"  # -hft: --hf-token
)
# DBPASS and MASTERKEY hold secrets, these do not.
_HARMLESS_WORDS = frozenset(
    [
        "PWD",
        "OLDPWD",
        "BYPASS",
        "COMPASS",
        "ENCOMPASS",
        "OVERPASS",
        "SURPASS",
        "TRESPASS",
        "UNDERPASS",
        "DONKEY",
        "HOCKEY",
        "HOTKEY",
        "JOCKEY",
        "LACKEY",
        "MONKEY",
        "PUBKEY",
        "PUBLICKEY",
        "SORTKEY",
        "TURKEY",
        "WHISKEY",
    ]
)
# A token is a secret, the tokens of a text are not: the words around it decide.
_TOKEN_NAME_PATTERN = lazy_pattern.compile(r"TOKEN_?\d*$")  # HF_TOKEN, HFTOKEN, TOKEN_2
_TOKEN_WORD_PATTERN = lazy_pattern.compile(r"TOKEN_|[A-Z0-9]_?TOKENS$")  # HF_TOKEN_WRITE, HF_TOKENS; never TOKENS alone
_COUNT_NAME_PATTERN = lazy_pattern.compile(r"(?:^|_)(?:MAX|MIN|NUM|N|PER)(?:_|$)")
# Names for tokens of a text: eos_token, image_tokens, new-token.
_VOCABULARY_WORDS = (
    r"ADDED|AUDIO|BOI|BOS|BREAK|CACHED|CLS|DRAFT|EOI|EOM|EOS|EOT|FIM|FIRST|FROM|GENERATED|IMAGE|LAST|MASK|MTP|NEW|NEWLINE|NEXT"
    r"|OUTPUT|PAD|PADDING|PENDING|PREFIX|PROMPT|REASONING|SEP|SPECIAL|STOP|THINK|TEXT|TIMESTAMP|UNK|VIDEO|VISION|VISUAL"
)
_TEXT_TOKEN_PATTERN = lazy_pattern.compile(rf"(?:^|_)(?:{_VOCABULARY_WORDS})(?:_(?:START|END|BEGIN))?_?TOKEN$")
_TEXT_WORD_PATTERN = lazy_pattern.compile(
    rf"(?:^|_)(?:{_VOCABULARY_WORDS}|BATCH|BATCHED|BLOCK|BUDGET|COMPLETION|CONTEXT|COUNT|DECODE|EMBD|EMBED\w*|EXTRA|IDS?|INPUT"
    r"|LEN|LENGTH|LIMIT|PAGE|PARTIAL|PREFILL|RATE|RETURN|RUNNING|SIZE|SKIP|SPECULATIVE|THINKING|THRESHOLD"
    r"|BUCKETS?|BUDGETS|GRAPH|INTER|LATENCY|SPEC|TIME|TOTAL|TYPES?|USAGE|WAITING)(?:_|$)"
)
# In a log a name with small letters is a setting or prose: it needs more than "key" or "pass".
_STRONG_NAME_PATTERN = lazy_pattern.compile(
    r"SECRET|PASSW|PASS_?PHRASE|CREDENTIAL|AUTHORIZATION|(?:API|ACCESS|PRIVATE|ACCOUNT|MASTER|ENCRYPTION|AUTH|PASS|SIGNING|ADMIN)"
    r"_?KE?Y?S?_?\d*$|[A-Z\d]_?TOKENS?_?\d*$|CONN(?:ECTION)?_?STR|WEB_?HOOK|(?:^|_)(?:SET_)?COOKIES?$|_(?:PWD|PW|DSN|JWT|CREDS?)_?\d*$"
)
_AMBIGUOUS_NAMES = frozenset(
    [
        "AUTH",
        "AUTHZ",
        "CREDS",
        "KEY",
        "KEYS",
        "PASS",
        "PAT",
        "PW",
        "SAS",
        "SIG",
        "SECRETS",
        "SIGNATURE",
        "TOK",
        "TOKEN",
        "TOKENS",
    ]
)
_SECRET_QUERY_NAMES = frozenset(
    ["ACCESS_TOKEN", "API_KEY", "KEY", "SIG", "SIGNATURE", "TOKEN", "X_AMZ_SIGNATURE", "X_GOOG_SIGNATURE"]
)  # ?token=V in a URL
_SECRET_HEADER_PATTERN = lazy_pattern.compile(
    r"(?:X_)?API_KEY|(?:PROXY_)?AUTHORIZATION|(?:SET_)?COOKIE|X_(?:AUTH|ACCESS|AMZ_SECURITY|GITLAB|VAULT)_TOKEN|PRIVATE_TOKEN"
    r"|X_GOOG_API_KEY"
)

_COLOUR = r"(?:\x1b\[[\d;]{0,20}+m){0,3}+"
# Where a token may begin: at the beginning of a word, after a colour, an escaped newline or a URL-encoded byte.
_TOKEN_START = r"(?:\b|(?<=[\d;\[]m)|(?<=\\[nrt])|(?<=%[\dA-Fa-f][\dA-Fa-f]))"  # noqa: S105
# Secrets with a shape of their own: the beginning, and what follows.
_TOKEN_SHAPES = {
    "hf_": r"[A-Za-z0-9]{16}", "api_org_": r"[A-Za-z0-9]{16}", "nvapi-": r"[\w-]{16}", "sk-": r"[\w-]{20}",
    "sk_live_": r"\w{16}", "sk_test_": r"\w{16}", "rk_live_": r"\w{16}", "rk_test_": r"\w{16}", "whsec_": r"\w{16}",
    "ghp_": r"\w{20}", "gho_": r"\w{20}", "ghu_": r"\w{20}", "ghs_": r"\w{20}", "ghr_": r"\w{20}", "github_pat_": r"\w{20}",
    "glpat-": r"[\w.-]{16}", "gldt-": r"[\w.-]{16}", "glrt-": r"[\w.-]{16}", "glptt-": r"[\w.-]{16}", "glcbt-": r"[\w.-]{16}",
    "glsoat-": r"[\w.-]{16}", "glft-": r"[\w.-]{16}", "glagent-": r"[\w.-]{16}", "tskey-": r"[\w-]{10}",
    "xoxa-": r"[\w-]{10}", "xoxb-": r"[\w-]{10}", "xoxc-": r"[\w-]{10}", "xoxd-": r"[\w-]{10}", "xoxe-": r"[\w-]{10}",
    "xoxe.": r"[\w-]{10}", "xoxo-": r"[\w-]{10}", "xoxp-": r"[\w-]{10}", "xoxr-": r"[\w-]{10}", "xoxs-": r"[\w-]{10}",
    "xapp-": r"[\w-]{10}", "AIza": r"[\w-]{30}", "ya29.": r"[\w-]{20}", "npm_": r"[A-Za-z0-9]{30}", "pypi-AgE": r"[\w-]{20}",
    "dckr_pat_": r"[\w-]{20}", "dckr_oat_": r"[\w-]{20}", "dop_v1_": r"[a-f0-9]{20}", "hvs.": r"[\w-]{20}",
    "SG.": r"[\w-]{16}\.[\w-]{16}", "gsk_": r"[A-Za-z0-9]{20}", "r8_": r"[A-Za-z0-9]{20}", "xai-": r"[A-Za-z0-9]{20}",
    "pplx-": r"[A-Za-z0-9]{20}", "tvly-": r"[\w-]{16}", "lin_api_": r"\w{20}", "ntn_": r"[A-Za-z0-9]{20}",
    "shpat_": r"\w{20}", "shpss_": r"\w{20}", "ATATT3x": r"[\w-]{20}", "AGE-SECRET-KEY-1": r"[A-Z0-9]{20}",
    "AKIA": r"[A-Z0-9]{16}(?![\w.-])", "ASIA": r"[A-Z0-9]{16}(?![\w.-])",
    "eyJ": r"[\w-]{8,400}+\.[\w-]{8}",  # a JSON web token
}  # fmt: skip
_TOKEN_PATTERN = lazy_pattern.compile(
    rf"{_TOKEN_START}(?:{'|'.join(re.escape(start) + rest for start, rest in _TOKEN_SHAPES.items())})[\w-]*+(?:[.=][\w-]++)*+"
)
_MIN_TOKEN_CHARS = 15  # of the shortest one, xoxb- and ten more
_PRIVATE_KEY_PATTERN = lazy_pattern.compile(
    r"-----BEGIN (?P<kind>[A-Z\d ]{0,40}PRIVATE KEY(?: BLOCK)?)-----(?:[^-]++|-(?!----))*+(?P<end>-----END (?P=kind)-----)?"
)
_KEY_LINE_PATTERN = lazy_pattern.compile(r"\s*+[A-Za-z\d+/]{2,100}+={0,2}+\s*+")
# A URL whose path is the secret.
_WEBHOOK_PATTERN = lazy_pattern.compile(
    r"(?P<head>hooks\.slack(?:-gov)?\.com/(?:services|workflows|triggers)/|discord(?:app)?\.com/api/(?:v\d{1,2}/)?webhooks/"
    r"|webhook\.office\.com/webhookb2/|api\.telegram\.org/bot)[^\s\"'<>\\]++"
)
_WEBHOOK_HOSTS = ("hooks.slack", "/webhooks/", "webhook.office.com", "api.telegram.org/bot")
# The token after "bearer", in a header or a log line; not a word of prose.
_BEARER_PATTERN = lazy_pattern.compile(rf"(?P<head>\b[Bb]earer{_COLOUR}\s++{_COLOUR})(?P<value>[\w.~+/=-]{{12,}}+)")
_RANDOM_CHAR_PATTERN = lazy_pattern.compile(r"[\d.~+/=_]")
# scheme://user:PASSWORD@host; a password that is only ${A_REFERENCE} is not one yet.
_URL_PASSWORD_PATTERN = lazy_pattern.compile(
    r"""(?P<head>://[^\s/:@"<>]*+:)(?!\$\{\w++\}@)(?P<value>[^\s/"<>]+)(?=@)"""
)
# The same of a database, whose password may have a slash; not redis://host:6379/0 with an @ behind it.
_DATABASE_PASSWORD_PATTERN = lazy_pattern.compile(
    r"""(?P<head>\b(?:postgres(?:ql)?|mysql|mariadb|mongodb|rediss?|amqps?)(?:\+\w{1,20}+)?+://[^\s/:@"<>]*+:)"""
    r"""(?!\$\{\w++\}@|\d++/)(?P<value>[^\s"<>@]++)(?=@)"""
)
# curl -u user:PASSWORD, docker login -p PASSWORD
_CURL_PASSWORD_PATTERN = lazy_pattern.compile(
    r"""(?P<head>(?<=[ \t])(?:-u[ \t]*+|--(?:proxy-)?user(?:[ \t]++|=))(?P<quote>["'])?+[^\s:"'$-][^\s:"']{0,200}+:)"""
    r"""(?!\$|[\d:]++(?:\s|$))(?P<value>(?(quote)[^"'\n]++|[^\s"'$]++))"""
)
_LOGIN_PASSWORD_PATTERN = lazy_pattern.compile(
    r"""(?P<head>\b(?:docker|podman|nerdctl|registry|oras)[ \t]++login\b[^\n]{0,200}?[ \t]-p[ \t]*+=?+["']?)(?P<value>[^\s"'$]++)"""
)
# A line of a .netrc: machine h login u password V. Alone on its line the word may also be one of a sentence.
_NETRC_PASSWORD_PATTERN = lazy_pattern.compile(
    r"""(?P<head>\blogin[ \t]++\S{1,200}+[ \t]++password[ \t]++|^[ \t]*+password[ \t]++(?=\S*[\d~+/=_!@#$%^&*]\S*[ \t]*+$))"""
    r"""(?P<value>\S++)""",
    re.MULTILINE,
)
# https://TOKEN@host, and https://TOKEN:@host; in other schemes the user is not a secret, ssh://milo@spark1.
_URL_TOKEN_PATTERN = lazy_pattern.compile(
    r"""(?P<head>\b(?:https?|wss?)(?:://|:\\/\\/|%3A%2F%2F))(?!\$\{\w++\}@)(?P<value>[^\s/:@"'<>?\#\\]++)(?=(?::(?:x-oauth-basic|••••••)?)?@)""",
    re.IGNORECASE,
)
# A name and its assignment: name=, "name": and \"name\": in a quoted text, os.environ["name"] = , name -> , and a tab alone.
_ASSIGNED_NAME_PATTERN = lazy_pattern.compile(
    rf"""(?<![\w.-])(?P<name>[\w.-]++){_COLOUR}(?P<close>\\*+["']?)\]?{_COLOUR}[ \t]*+"""
    rf"""(?P<sign>:=|=>|-{{1,2}}+>|={{1,2}}+|:(?![:/])|%3[Dd]|>|→|,(?=[ \t]*+[bB]?+\\*+["'])|(?<=\t))(?P<gap>[ \t]*+){_COLOUR}(?=[^\s])"""
)
# --name value; setenv NAME value, ENV NAME value
_FLAG_NAME_PATTERN = lazy_pattern.compile(r"-(?<![\w.-]-)-?(?P<name>[A-Za-z][\w.-]*+)[ \t]++(?=[^\s-])")
_ENV_SET_PATTERN = lazy_pattern.compile(r"(?:set(?:env| -[gU]?x)|ENV)[ \t]++(?P<name>\w++)[ \t]++(?=[^\s-])")
_WEAK_SIGNS = ("-", "→", "\t")  # an arrow or a tab, behind which prose may stand, too
_OPEN_QUOTE_PATTERN = lazy_pattern.compile(r"""(?:[bBrRuUfF]{0,2}|\$)(?P<escape>\\*+)(?P<quote>["'])""")
_BARE_VALUE_PATTERN = lazy_pattern.compile(
    r"""(?:[^\s&;|"',)\]}<>`\\\x1b$]++|\$(?:\{[^}\s]{0,400}+\})?+|[)\]}<>`](?![\s,;)\]}<>`"'.\\]|$)|\\(?![\\"'nrt])"""
    r"""|,(?![\s"'\[({\\]|$|[\w.-]{1,80}+["']?[:=]))++"""
)
_AUTH_SCHEME_PATTERN = lazy_pattern.compile(
    r"(?:Bearer|Basic|Token|Digest|ApiKey|Negotiate)[ \t]++(?=[^\s\"',;])", re.IGNORECASE
)
_ANY_AUTH_SCHEME_PATTERN = lazy_pattern.compile(
    r"[A-Za-z][\w-]{0,40}+[ \t]++(?=[^\s\"',;])"
)  # for the one header that always has a scheme
_NEXT_COOKIE_PATTERN = lazy_pattern.compile(r";[ \t]*+(?=[^\s;=\"']{1,200}+=)")
# before a name: ("name", (b"name"
_PAIR_START_PATTERN = lazy_pattern.compile(r"""[(\[][bB]?["']$|[(\[].$""", re.DOTALL)
_BRACKET_PATTERN = lazy_pattern.compile(r"""[\[\](){}\n]|(?<!\\)\\*+["']""")
_REFERENCE_PATTERN = lazy_pattern.compile(
    rf"\$\{{\w++(?::?-(?:{MASK})?)?\}}|\$\w++|\$\(.*|\{{\{{.*|%s|%\(.*", re.DOTALL
)
_EMPTY_VALUES = frozenset(["...", "none", "null", "nil", "true", "false", "undefined", "unset", MASK])
_NUMBER_PATTERN = lazy_pattern.compile(r"[-+]?\d[\d.,]*+%?")
_PROSE_WORDS = frozenset(
    [
        "a",
        "an",
        "and",
        "are",
        "as",
        "at",
        "be",
        "by",
        "can",
        "for",
        "from",
        "has",
        "if",
        "in",
        "is",
        "it",
        "may",
        "must",
        "nor",
        "not",
        "of",
        "on",
        "or",
        "should",
        "that",
        "the",
        "then",
        "to",
        "was",
        "when",
        "will",
        "with",
    ]
)
_JSON_STRING_PATTERN = lazy_pattern.compile(r'"(?:[^"\\]++|\\.)*+\\?(?:"|\Z)')
_VARIABLE_NAME_PATTERN = lazy_pattern.compile(r"[\w.-]++")
_FLAG_START_PATTERN = lazy_pattern.compile(r"-[A-Za-z]")
# A name whose value may be a secret, and its assignment: a fast check on lower-case text that never misses what
# `_find_named_value_spans` finds. Most lines of an engine mention tokens with their number.
_SUSPECT_NAME_PATTERN = lazy_pattern.compile(
    r"(?:secre|passw|pass_?[pc]|cred|authori|auth[_-]?[ckhdsvlijb]|cookie|dsn|jwt|bearer|web_?hook|conn(?:ection)?_?str|dockerc|token_"
    r"|api[_-]?k|(?<=[\w?&-])(?:tok|auth|pwd?(?![a-z])|pass(?![a-z])|key(?![a-rt-z])|pat(?![a-z])|s(?:as|ig)(?![a-mo-z])|otp|psk|mnemonic))"
    rf"[\w.-]{{0,100}}+{_COLOUR}\\*+[\"']?\]?{_COLOUR}[ \t]*+(?:=|%3d|>|:(?![:/])(?![ \t]*+[\d.]{{1,12}}+(?:[,\s%]|$))"
    rf"|:=|-{{1,2}}+>|→|(?<=\t)[^\s-]|,[ \t]*+b?+\\*+[\"'])"
)
_CAMEL_CASE_PATTERN = lazy_pattern.compile(r"(?<=[a-z\d])(?=[A-Z])")
_MAX_NAME_CHARS = 200
_MAX_UNMASKED_CHARS = (
    1024  # of text after a secret's flag that does not look like a secret: more would be read again and again
)
_MIN_SECRET_CHARS = 6  # a shorter value cannot be masked by value: innocent text would be masked, too


def is_secret_name(name: str) -> bool:
    """Tell whether an environment variable or flag of this name holds a secret (``HF_TOKEN``, ``--api-key``)."""
    return _is_secret(_normalize_name(name))


def _is_key_choice(name: str, value: str) -> bool:
    """Tell whether it is `api_key: generate` of a profile, which asks for a key and is none."""
    return value == "generate" and _normalize_name(name) == "API_KEY"


def _normalize_name(name: str) -> str:
    """Return a name in the form of an environment variable: apiKey and --api-key become API_KEY. Of a long name only
    both ends.
    """
    if len(name) > _MAX_NAME_CHARS:
        name = name[: _MAX_NAME_CHARS // 2] + name[-_MAX_NAME_CHARS // 2 :]
    plain = _CAMEL_CASE_PATTERN.sub("_", name.replace("-", "_").replace(".", "_")).strip("_").upper()
    return plain.removeprefix("TIKTOKEN_")  # a vocabulary's name: TIKTOKEN_ENCODINGS_BASE is a directory


@lru_cache(4096)
def _is_secret(plain: str) -> bool:
    if _SECRET_NAME_PATTERN.search(plain):
        return not plain.startswith(("NOPASS", "NO_PASS"))
    last = plain.rstrip("0123456789_").rpartition("_")[2]
    if last.endswith(("KEY", "PASS", "PWD")) and last not in _HARMLESS_WORDS:
        return True
    if _COUNT_NAME_PATTERN.search(plain) or _TEXT_TOKEN_PATTERN.search(plain):
        return False
    return _TOKEN_NAME_PATTERN.search(plain) is not None or (
        _TOKEN_WORD_PATTERN.search(plain) is not None and not _TEXT_WORD_PATTERN.search(plain)
    )


def _is_secret_in_log(name: str, sign: str, before: str) -> bool:
    """Tell whether a name in foreign text holds a secret; ``sign`` assigns it, ``before`` is the character before it."""
    plain = _normalize_name(name)
    if plain in _SECRET_QUERY_NAMES and before in ("?", "&"):
        return True
    if plain in _AMBIGUOUS_NAMES or not _is_secret(plain):
        return False
    if name.isupper():
        return sign == "=" or "_" in plain or _STRONG_NAME_PATTERN.search(plain) is not None
    return _STRONG_NAME_PATTERN.search(plain) is not None


def contains_token(text: str) -> bool:
    if len(text) < _MIN_TOKEN_CHARS:
        return False
    # a token holds no white space, and most words of a note are short
    return any(_TOKEN_PATTERN.search(word) is not None for word in text.split() if len(word) >= _MIN_TOKEN_CHARS)


def find_secret_values(env: Mapping[str, str] | Iterable[tuple[str, str]]) -> frozenset[str]:
    """Return the secrets in these entries: values of names like secrets, and secrets in other values."""
    found: set[str] = set()
    for name, value in env.items() if isinstance(env, Mapping) else env:
        found.update([value] if is_secret_name(name) else ())
        found.update(_find_embedded_secrets(value))
    return list_secret_spellings(found)


def find_secret_arguments(argv: Iterable[str]) -> frozenset[str]:
    """Return the values of flags named like secrets, ``--api-key V`` and ``--api-key=V``, and secrets inside other
    words.
    """
    words = tuple(argv)
    found = {word for word, secret in zip(words, _mark_secret_flag_values(words), strict=True) if secret}
    for word in words:
        found.update(_find_embedded_secrets(word))
    return list_secret_spellings(found)


def list_secret_spellings(values: Iterable[str]) -> frozenset[str]:
    """Return the values in every form in which they may appear in a text: whole, line by line, and as JSON and URLs
    encode them.

    Values that are too short to search for are left out.
    """
    found: set[str] = set()
    for value in values:
        forms = {value, value.strip(), *(line.strip() for line in value.splitlines())}
        found |= (
            forms
            | {json.dumps(form)[1:-1] for form in forms}
            | {json.dumps(form, ensure_ascii=False)[1:-1] for form in forms}
        )
        if not re.fullmatch(r"[\w.~-]*+", value, re.ASCII):
            from urllib.parse import quote, quote_plus  # rarely needed

            found |= {quote(value.encode("utf-8", "replace"), safe=""), quote_plus(value.encode("utf-8", "replace"))}
    return frozenset(value for value in found if len(value) >= _MIN_SECRET_CHARS)


def is_key_line(text: str) -> bool:
    """Tell whether a line looks like one from the middle of a private key."""
    return _KEY_LINE_PATTERN.fullmatch(text) is not None


# An engine repeats its lines with other numbers. No check below tells one digit from another, except in %3d.
_ONE_DIGIT = str.maketrans("012456789", "3" * 9)
_SHAPE_FORMS = tuple(shape.translate(_ONE_DIGIT) for shape in _TOKEN_SHAPES)
_MAX_CACHED_CHARS = 400


def _has_secret_form(form: str) -> bool:
    """Tell whether a text, with every digit replaced by 3, has a name or a shape of a secret."""
    return (
        _SUSPECT_NAME_PATTERN.search(form.lower()) is not None
        or _FLAG_NAME_PATTERN.search(form) is not None
        or _ENV_SET_PATTERN.search(form) is not None
        or any(map(form.__contains__, _SHAPE_FORMS))
        or any(host in form for host in _WEBHOOK_HOSTS)
        or "PRIVATE KEY" in form
        or "earer" in form
        or "curl" in form
        or " login" in form
        or ("password" in form and _NETRC_PASSWORD_PATTERN.search(form) is not None)
    )


_has_known_form = lru_cache(4096)(_has_secret_form)


def _has_secret(form: str) -> bool:
    return (_has_secret_form if len(form) > _MAX_CACHED_CHARS else _has_known_form)(form)


def _has_url(text: str) -> bool:
    return "://" in text or ":\\/\\/" in text or "%2F%2F" in text or "%2f%2f" in text


def redact(text: str, secrets: Iterable[str] = ()) -> str:
    """Return ``text`` with every given secret value, URL password, known token shape, and value of a secret's name,
    flag or header masked.
    """
    # The longest first: one secret may be part of another.
    for secret in sorted((secret for secret in secrets if secret in text), key=len, reverse=True):
        text = text.replace(secret, MASK)
    if "@" in text and _has_url(text):
        text = _URL_PASSWORD_PATTERN.sub(rf"\g<head>{MASK}", text)
        text = _DATABASE_PASSWORD_PATTERN.sub(rf"\g<head>{MASK}", text)
        text = _URL_TOKEN_PATTERN.sub(rf"\g<head>{MASK}", text)
    if "curl" in text:
        text = _CURL_PASSWORD_PATTERN.sub(rf"\g<head>{MASK}", text)
    if " login" in text:
        text = _LOGIN_PASSWORD_PATTERN.sub(rf"\g<head>{MASK}", text)
    if "password" in text:
        text = _NETRC_PASSWORD_PATTERN.sub(rf"\g<head>{MASK}", text)
    if "earer" in text:
        text = _BEARER_PATTERN.sub(_mask_bearer, text)
    if "PRIVATE KEY" in text:
        text = _PRIVATE_KEY_PATTERN.sub(rf"-----BEGIN \g<kind>-----{MASK}\g<end>", text)
    if any(host in text for host in _WEBHOOK_HOSTS):
        text = _WEBHOOK_PATTERN.sub(rf"\g<head>{MASK}", text)
    if " " in text or "\t" in text:
        text = _mask_flag_values(text, own=False)
    if _SUSPECT_NAME_PATTERN.search(text.lower()) is not None:
        text = _mask_spans(text, _find_named_value_spans(text, own=False))
    if any(map(text.__contains__, _TOKEN_SHAPES)):
        text = _TOKEN_PATTERN.sub(MASK, text)
    return text


def _mask_bearer(found: re.Match[str]) -> str:
    value = found["value"]
    return found["head"] + MASK if len(value) >= 24 or _RANDOM_CHAR_PATTERN.search(value) else found[0]


def redact_word(text: str, secrets: Iterable[str] = ()) -> str:
    """Return a word of the operator's command or options, with values assigned inside it masked too."""
    name, equals, value = text.partition("=")
    if equals and _VARIABLE_NAME_PATTERN.fullmatch(name) and is_secret_name(name) and not _is_key_choice(name, value):
        return f"{name}={MASK}"
    text = redact(text, secrets)
    text = _mask_flag_values(text, own=True)
    values = frozenset(_find_json_secrets(text)) - {"", MASK}
    text = _mask_spans(text, _find_named_value_spans(text, own=True))
    return (
        _JSON_STRING_PATTERN.sub(lambda one: f'"{MASK}"' if json.loads(one[0]) in values else one[0], text)
        if values
        else text
    )


def redact_words(argv: Sequence[str], secrets: Iterable[str] = ()) -> tuple[str, ...]:
    """Return a command with its secrets masked; values after a flag like ``--api-key`` even if they are short."""
    known = tuple(secrets)
    return tuple(
        MASK if secret else redact_word(word, known)
        for word, secret in zip(argv, _mark_secret_flag_values(argv), strict=True)
    )


def _mark_secret_flag_values(argv: Sequence[str]) -> Iterator[bool]:
    """Yield for each word whether it is a value of a flag named like a secret; such a flag may take several values."""
    secret = False
    for word in argv:
        is_flag = word.startswith("--") or _FLAG_START_PATTERN.match(word) is not None
        yield secret and not is_flag
        if is_flag:
            secret = "=" not in word and is_secret_name(word)


def _find_embedded_secrets(text: str) -> Iterator[str]:
    """Yield the secrets inside a value that is not a secret as a whole."""
    name, equals, rest = text.partition("=")
    if equals and _VARIABLE_NAME_PATTERN.fullmatch(name) and is_secret_name(name):
        yield rest
    for spans in (
        *(_find_flag_value_spans(text, form, own=True) for form in (_FLAG_NAME_PATTERN, _ENV_SET_PATTERN)),
        _find_named_value_spans(text, own=True),
    ):
        for start, end in spans:
            value = text[start:end].strip()
            yield value
            yield _AUTH_SCHEME_PATTERN.sub("", value)
    yield from (found["value"] for found in _BEARER_PATTERN.finditer(text) if _mask_bearer(found) != found[0])
    for pattern in (
        _URL_PASSWORD_PATTERN,
        _URL_TOKEN_PATTERN,
        _DATABASE_PASSWORD_PATTERN,
        _CURL_PASSWORD_PATTERN,
        _LOGIN_PASSWORD_PATTERN,
        _NETRC_PASSWORD_PATTERN,
    ):
        yield from (found["value"] for found in pattern.finditer(text))
    yield from (found[0][len(found["head"]) :] for found in _WEBHOOK_PATTERN.finditer(text))
    yield from (found[0] for found in _PRIVATE_KEY_PATTERN.finditer(text))
    yield from _find_json_secrets(text)


Span = tuple[int, int]


def _mask_spans(text: str, spans: Iterable[Span]) -> str:
    """Return a text with these spans masked; the spans are in order."""
    parts, at = [], 0
    for start, end in spans:
        parts += [text[at:start], MASK]
        at = end
    return "".join([*parts, text[at:]]) if parts else text


def _mask_flag_values(text: str, *, own: bool) -> str:
    for form in (_FLAG_NAME_PATTERN, _ENV_SET_PATTERN):
        text = _mask_spans(text, _find_flag_value_spans(text, form, own=own))
    return text


def _find_flag_value_spans(text: str, form: re.Pattern[str], *, own: bool) -> Iterator[Span]:
    """Yield the spans of values of flags and variables named like secrets."""
    values, at = _ValueScanner(text), 0
    while (found := form.search(text, at)) is not None:
        name, at = found["name"], found.end("name")
        if not is_secret_name(name):
            continue
        spans, end = values.scan_word(found.end(), own=own)
        looked_through = found.end()
        for start, stop in spans:
            value = text[start:stop].strip("[]<>{}()`.,:")
            if own or (
                value.lower() not in _PROSE_WORDS
                and value != _normalize_name(name)
                and not _REFERENCE_PATTERN.fullmatch(value)
            ):
                yield start, stop
                at = looked_through = stop
        if end - looked_through > _MAX_UNMASKED_CHARS:
            yield looked_through, end
            at = end


def _find_named_value_spans(text: str, *, own: bool) -> Iterator[Span]:
    """Yield the spans of values under secrets' names: name=value, "name": "value", Name: value."""
    values, at = _ValueScanner(text), 0
    is_json = own and _parse_json_container(text) is not None
    while (found := _ASSIGNED_NAME_PATTERN.search(text, at)) is not None:
        at = found.end()
        name, sign = found["name"], found["sign"][:1] or "\t"
        if sign == ">" and name.endswith("-"):
            sign = "-"
        before = text[found.start() - 1 : found.start()]
        is_header = sign == ":" and _SECRET_HEADER_PATTERN.fullmatch(_normalize_name(name)) is not None
        is_own_word = own or (name.startswith("--") and sign == "=")  # a flag, as in --name value
        if not (is_header or (is_secret_name(name) if is_own_word else _is_secret_in_log(name, sign, before))):
            continue
        if sign == "," and not (
            name.startswith("-") or _PAIR_START_PATTERN.search(text[max(0, found.start() - 3) : found.start()])
        ):
            continue  # a list of names, not a pair
        if sign == ">" and (before != "<" or found["gap"]):
            continue
        if sign != ":" or found["sign"] == ":=":
            spans, end = values.scan_word(at, own=own)
            if sign == "," and not name.startswith("-"):
                spans = [span for span in spans if text[end : end + 1] in (")", "]")]
            if sign in _WEAK_SIGNS and not own:
                spans = [span for span in spans if values.is_standalone(*span)]
        elif _OPEN_QUOTE_PATTERN.match(text, at) or text[at] in "[(":
            spans, end = values.scan_word(at, own=False)
        elif text[at] == "{" or (found["close"] and not is_header):
            continue  # a map: the names inside decide
        elif own and not is_json and found["gap"]:
            spans, end = values.scan_line(at)
        elif is_header:
            spans, end = values.scan_header(at, _normalize_name(name))
        elif found["gap"] or not own:
            spans, end = values.scan_word(at, own=own)
            if not own:
                spans = [span for span in spans if values.is_standalone(*span)]
        else:
            continue
        of_text = sign == ":" and "TOKEN" in name.upper()
        for start, stop in spans:
            value = text[start:stop]
            if value.lower() in _EMPTY_VALUES or (of_text and _NUMBER_PATTERN.fullmatch(value)):
                continue
            if not own and _REFERENCE_PATTERN.fullmatch(value):
                continue
            if _is_key_choice(name, value):
                continue
            yield start, stop
        at = max(at, end)


class _ValueScanner:
    """Finds where a value ends. Every character is looked at once or lies within a value, so the time is linear however
    often it is called.
    """

    def __init__(self, text: str) -> None:
        self._text = text
        self._line_end = -1

    def scan_word(self, at: int, *, own: bool) -> tuple[list[Span], int]:
        """Return the spans of the value at ``at`` without its quotes, one for each item of a list; and where it ends."""
        if self._text[at] in "[(":
            return self._scan_list(at)
        begin, spans = at, []
        scheme = _AUTH_SCHEME_PATTERN.match(self._text, at)
        at = at if scheme is None else scheme.end()
        while at < len(self._text):
            if (quoted := _OPEN_QUOTE_PATTERN.match(self._text, at)) is not None:
                start, end, after = self._scan_quoted(quoted)
                spans.append((start, end))
                at = after
                if not own or (
                    not self._text[at : at + 1].isalnum() and self._text[at : at + 1] not in ("'", '"', "$")
                ):
                    break
            elif (bare := _BARE_VALUE_PATTERN.match(self._text, at)) is not None:
                spans.append(bare.span())
                at = bare.end()
                if bare[0][-1] != "(":  # SecretStr('value')
                    break
            else:
                break
        if not spans:
            return [], max(at, begin)
        one = spans[0] if len(spans) == 1 and scheme is None else (begin, at)
        return ([one] if one[0] < one[1] else []), at

    def scan_line(self, at: int) -> tuple[list[Span], int]:
        """Return the span of the rest of the line."""
        end = self._find_line_end(at)
        text = self._text[at:end]
        return [(at, at + len(text.rstrip()))], end

    def scan_header(self, at: int, name: str) -> tuple[list[Span], int]:
        """Return the spans of an HTTP header's value: a word with the scheme before it; for cookies all of them."""
        scheme = (_ANY_AUTH_SCHEME_PATTERN if name.endswith("AUTHORIZATION") else _AUTH_SCHEME_PATTERN).match(
            self._text, at
        )
        found = _BARE_VALUE_PATTERN.match(self._text, at if scheme is None else scheme.end())
        if found is None:
            return [], at
        end = found.end()
        while name == "COOKIE" and (further := _NEXT_COOKIE_PATTERN.match(self._text, end)) is not None:
            found = _BARE_VALUE_PATTERN.match(self._text, further.end())
            if found is None:
                break
            end = found.end()
        return [(at, end)], end

    def is_standalone(self, start: int, end: int) -> bool:
        """Tell whether the text after a name and a colon, an arrow or a tab is a value and not a sentence."""
        value = self._text[start:end]
        if len(value) >= 24 or (len(value) >= _MIN_SECRET_CHARS and _RANDOM_CHAR_PATTERN.search(value)):
            return True
        return self._text[end : end + 1] in ("", "\n", "\r", "\t", ",", ";", "}", "]", '"', "'", "\\")

    def _scan_list(self, at: int) -> tuple[list[Span], int]:
        depth, spans, start = 0, [], at
        while (found := _BRACKET_PATTERN.search(self._text, at)) is not None and found[0] != "\n":
            at = found.end()
            if found[0][-1] in "\"'":
                quoted = _OPEN_QUOTE_PATTERN.match(self._text, found.start())
                assert quoted is not None
                first, end, at = self._scan_quoted(quoted)
                spans.append((first, end))
                continue
            depth += 1 if found[0] in "[({" else -1
            if depth == 0:
                break
        else:
            at = self._find_line_end(at)
        if not spans and start + 1 < at - 1:
            return [(start + 1, at - 1)], at
        return [span for span in spans if span[0] < span[1]], at

    def _scan_quoted(self, opened: re.Match[str]) -> tuple[int, int, int]:
        """Return the start and end of quoted text, and where the text after it begins; an unclosed quote ends with the
        line.
        """
        start, escape, quote = opened.end(), len(opened["escape"]), opened["quote"]
        line, at = self._find_line_end(start), start
        while (found := self._text.find(quote, at, line)) >= 0:
            first = found
            while first > start and self._text[first - 1] == "\\":
                first -= 1
            slashes = found - first
            if (slashes % 2 == 0) if escape == 0 else (slashes <= escape):
                return start, found - (min(slashes, escape)), found + 1
            at = found + 1
        return start, line, line

    def _find_line_end(self, at: int) -> int:
        if at > self._line_end or self._line_end < 0:
            end = self._text.find("\n", at)
            self._line_end = len(self._text) if end < 0 else end
        return self._line_end


def _find_json_secrets(text: str) -> Iterator[str]:
    """Yield the texts under keys named like secrets if ``text`` is a JSON map or list."""
    yield from _find_secret_key_values(_parse_json_container(text), secret=False)


def _parse_json_container(text: str) -> object:
    """Return the JSON map or list in ``text``, None if it is neither."""
    if not text.startswith(("{", "[")):
        return None
    try:
        value: object = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return value


def _find_secret_key_values(value: object, *, secret: bool) -> Iterator[str]:
    if isinstance(value, dict):
        for key, item in value.items():
            yield from _find_secret_key_values(item, secret=secret or is_secret_name(str(key)))
    elif isinstance(value, list):
        for item in value:
            yield from _find_secret_key_values(item, secret=secret)
    elif isinstance(value, str) and secret:
        yield value


# name = value, as in INI files, and name: value after another name; the rest of the line is masked.
_NAME_IN_TEXT_PATTERN = lazy_pattern.compile(
    rf"""(?<![\w.-])(?P<name>[\w.-]++)["']?(?:\s*+:\s++|\s++=\s*+|=\s++)(?=\S)(?!["']?{MASK}|(?:Bearer|Basic|Token)\s++{MASK})"""
)
# name: with its value on the following, more indented lines: a block of YAML, or a map.
_BLOCK_START_PATTERN = lazy_pattern.compile(
    r"""(?P<indent>[\s-]*+)["']?(?P<name>[A-Za-z_][\w.-]*+)["']?\s*+:\s*+(?:[|>][-+\d]*+\s*+)?(?:#.*)?"""
)
_PEM_BEGIN, _PEM_END = (
    re.compile(r"-----BEGIN [A-Z\d ]{0,40}PRIVATE KEY(?: BLOCK)?-----"),
    re.compile(r"-----END [A-Z\d ]{0,40}PRIVATE KEY(?: BLOCK)?-----"),
)


@dataclass(frozen=True, slots=True)
class Redactor:
    """Masks secrets by name, by shape, and ``known`` values anywhere."""

    known: frozenset[str] = frozenset()

    def redact_text(self, text: str) -> str:
        """Return a text with each line masked; whole lines if they are the value of a name above, or part of a private
        key.
        """
        found: list[str] = []
        within: int | None = None  # the column of the name whose value these lines are
        in_key = False
        for line in text.split("\n"):
            inset = len(line) - len(line.lstrip())
            if within is not None and line.strip() and inset <= within:
                within = None
            ends = _PEM_END.search(line) is not None
            if ends and not in_key and _PEM_BEGIN.search(line) is None:  # the key's beginning is not in this text
                for at in range(len(found) - 1, -1, -1):
                    if not is_key_line(found[at]):
                        break
                    found[at] = MASK
            ends = ends and in_key
            if line.strip() and ((in_key and not ends) or within is not None):
                found.append(line[:inset] + MASK)
            else:
                redact_line = _redact_line if len(line) > _MAX_CACHED_CHARS else _redact_short_line
                found.append(redact_line(line, self.known))
            opened = _BLOCK_START_PATTERN.fullmatch(line) if within is None else None
            if opened and is_secret_name(opened["name"]):
                within = len(opened["indent"])
            in_key = not ends and (in_key or _PEM_BEGIN.search(line) is not None)
        return "\n".join(found)

    def redact_json(self, value: object) -> object:
        """Return decoded JSON with masked values: under names like secrets, after flags like secrets, and the rest."""
        if isinstance(value, dict):
            return {self.redact_text(str(key)): self._redact_item(str(key), item) for key, item in value.items()}
        if isinstance(value, list):
            return self._redact_list(value)
        return self.redact_text(value) if isinstance(value, str) else value

    def _redact_item(self, name: str, value: object) -> object:
        return _mask_all_values(value) if is_secret_name(name) else self.redact_json(value)

    def _redact_list(self, values: list[object]) -> list[object]:
        if all(isinstance(one, str) for one in values):  # a command or an environment
            return [self.redact_text(word) for word in redact_words([str(one) for one in values], self.known)]
        return [self.redact_json(one) for one in values]


def _redact_line(line: str, known: frozenset[str]) -> str:
    line = redact_word(line, known)
    if _is_json_container(line):
        return line  # the inside of a map or a list is already masked
    named = next((one for one in _NAME_IN_TEXT_PATTERN.finditer(line) if is_secret_name(one["name"])), None)
    if named is None or _is_key_choice(named["name"], line[named.end() :]):
        return line
    return line[: named.end()] + MASK


_redact_short_line = lru_cache(256)(_redact_line)  # a profile is masked as it is rendered, and as it is stored


def _is_json_container(text: str) -> bool:
    if not text.startswith(("{", "[")):
        return False
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True


def _mask_all_values(value: object) -> object:
    """Return the same structure with every text and number masked."""
    if isinstance(value, dict):
        return {key: _mask_all_values(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_mask_all_values(one) for one in value]
    return value if value is None or isinstance(value, bool) or value == "" else MASK


_MAX_KEY_LINES = 200  # maximum lines of a private key without an end


def mask_log_lines(lines: Sequence[LogLine], secrets: Collection[str]) -> Sequence[LogLine]:
    """Return the lines with secrets masked. Nearly all have no secret, and are the same objects.

    A cheap check of the whole batch tells which lines `redact` could change: most differ in their numbers alone.
    """
    block = join_texts(lines)
    forms = block.translate(_ONE_DIGIT).split("\n") if block.isascii() else []
    if len(forms) != len(lines):
        forms = [line.text.translate(_ONE_DIGIT) for line in lines]
    suspects = {form for form in set(forms) if _has_secret(form)}
    known = [secret for secret in secrets if secret in block]
    if not suspects and not known and "@" not in block:
        return lines
    return tuple(
        [
            _redact_log_line(line, secrets)
            if form in suspects
            or ("@" in line.text and _has_url(line.text))
            or any(secret in line.text for secret in known)
            else line
            for line, form in zip(lines, forms, strict=True)
        ]
    )


class LineMasker:
    """Masks the lines of one log in order: a private key spans many lines, and batches."""

    def __init__(self, secrets: Collection[str]) -> None:
        self._secrets = secrets
        self._key_lines = 0  # how many lines of a private key may still follow

    def add_secrets(self, secrets: Collection[str]) -> bool:
        """Mask these values too from now on; return whether any of them is new."""
        new = [secret for secret in secrets if secret not in self._secrets]
        self._secrets = (*self._secrets, *new)
        return bool(new)

    def mask_batch(self, lines: Sequence[LogLine]) -> Sequence[LogLine]:
        if not self._key_lines and "PRIVATE KEY-----" not in join_texts(lines):
            return mask_log_lines(lines, self._secrets)
        found: list[LogLine] = []
        for line in lines:
            if not self._key_lines and "-----END " in line.text and "-----BEGIN " not in line.text:
                self._mask_headless_key(found)
            found.append(self._mask_line(line))
        return tuple(found)

    def _mask_headless_key(self, found: list[LogLine]) -> None:
        """Mask the last lines if they belong to a private key whose beginning is not in the requested part of the log."""
        for at in range(len(found) - 1, -1, -1):
            if not is_key_line(found[at].text):
                return
            found[at] = replace(found[at], text=MASK)

    def _mask_line(self, line: LogLine) -> LogLine:
        if self._key_lines:
            word = line.text.rpartition(" ")[2].strip()
            is_of_key = "-----END " in line.text or word == line.text.strip() or (len(word) >= 40 and "." not in word)
            self._key_lines = self._key_lines - 1 if is_of_key and "-----END " not in line.text else 0
            if is_of_key:
                return replace(line, text=MASK)
        begins = line.text.rpartition("-----BEGIN ")[2]
        if "PRIVATE KEY" in begins and begins != line.text and "-----END " not in begins:
            self._key_lines = _MAX_KEY_LINES
        return _redact_log_line(line, self._secrets)


def _redact_log_line(line: LogLine, secrets: Collection[str]) -> LogLine:
    return replace(line, text=redact(line.text, secrets))
