"""What counts as a secret, and how it is kept out of everything that is shown or written."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

MASK = "••••••"
_NAMED_SECRET = re.compile(
    r"SECRET|PASSW|PASSPHRASE|CREDENTIAL|API_?KEY|ACCESS_?KEY|PRIVATE_?KEY"
    r"|(?:^|_)(?:KEY|PAT|PASS|TOK|JWT|BEARER)\d*$|_PWD$|AUTHZ?$|AUTHORIZATION$"
)
# A token is a secret, the tokens of a text are not: what is said beside the word decides.
_TOKEN = re.compile(r"TOKEN_?\d*$")  # HF_TOKEN, HFTOKEN, TOKEN_2
_TOKEN_WORD = re.compile(r"TOKEN_|[A-Z0-9]_?TOKENS$")  # HF_TOKEN_WRITE, HF_TOKENS; never TOKENS alone
_NUMBER_OF = re.compile(r"(?:^|_)(?:MAX|MIN|NUM|N|PER)(?:_|$)")
_OF_TEXT = re.compile(
    r"(?:^|_)(?:ADDED|BATCHED|BLOCK|BUDGET|CACHED|COMPLETION|CONTEXT|COUNT|DECODE|DRAFT|EXTRA|IDS?|INPUT|LEN|LENGTH"
    r"|LIMIT|NEW|OUTPUT|PAGE|PARTIAL|PREFILL|PROMPT|RATE|REASONING|RETURN|RUNNING|SIZE|SKIP|SPECIAL|SPECULATIVE|STOP"
    r"|THINKING|THRESHOLD|TOTAL|WAITING)(?:_|$)"
)
# Secrets recognisable by their own shape, wherever they turn up.
_SHAPED_SECRET = re.compile(
    r"\bhf_[A-Za-z0-9]{16,}|\bnvapi-[A-Za-z0-9_-]{16,}|\bsk-[A-Za-z0-9_-]{20,}|\bgh[pousr]_[A-Za-z0-9]{20,}"
    r"|\bgithub_pat_[A-Za-z0-9_]{20,}|\bglpat-[A-Za-z0-9_.-]{16,}|\bxox[a-z]-[A-Za-z0-9-]{10,}"
    r"|\b(?:AKIA|ASIA)[A-Z0-9]{16}\b|\bAIza[A-Za-z0-9_-]{30,}"
    r"|\beyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}(?:\.[A-Za-z0-9_-]*)?"  # a JSON web token
)
_SHAPES = ("hf_", "nvapi-", "sk-", "ghp_", "gho_", "ghu_", "ghs_", "ghr_", "github_pat_", "glpat-", "xox", "AKIA", "ASIA",
           "AIza", "eyJ", "earer ")  # fmt: skip
# What a bearer bears, in a header or a log line; a word of prose after it is none.
_BEARER = re.compile(r"(?P<head>\b[Bb]earer\s+)(?P<value>(?=[\w.~+/=-]*[\d.~+/=_])[\w.~+/=-]{12,}|[\w.~+/=-]{24,})")
# scheme://user:PASSWORD@host; a password that is only ${A_REFERENCE} is none yet.
_URL_PASSWORD = re.compile(r"""(?P<head>://[^\s/:@"<>]*:)(?!\$\{\w+\}@)(?P<value>[^\s/"<>]+)(?=@)""")
# name=value and --name value inside a longer text: a URL's query, a log option, a shell's command line.
_ASSIGNED = re.compile(
    r"""(?<![\w.-])(?P<head>(?P<name>-{0,2}[A-Za-z_][\w.-]*)=)"""
    r"""(?P<value>"[^"]+"|'[^']+'|(?:(?:Bearer|Basic)\s+)?[^\s&;|"',]+)"""
)
_FLAGGED = re.compile(r"(?<![\w.-])(?P<head>--(?P<name>[A-Za-z][\w.-]*)[ \t]+)(?P<value>[^\s-]\S*)")
# name: value, as YAML, JSON and headers write it; what follows is masked to the end of the line.
_HEADED = re.compile(
    r"""(?P<head>["']?(?P<name>[A-Za-z_][\w.-]*)["']?\s*:[ \t]+)"""
    r"""(?P<value>"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*'|\S[^\n]*)"""
)
# The same where a program tells its own settings, {'api_key': ['V']} and ServerArgs(api_key='V'): in quotes only.
_TOLD = re.compile(
    r"""(?<![\w.-])(?P<head>["']?(?P<name>[A-Za-z_][\w.-]{0,80})["']?\s?[:=]\s?)"""
    r"""(?P<value>"(?:[^"\\\n]|\\.)+"|'(?:[^'\\\n]|\\.)+'|[\[(]\s?["'][^\])\n]+[\])])"""
)
_QUOTED = re.compile(r"""(?P<quote>["'])(?:(?!(?P=quote))[^\\\n]|\\.)+(?P=quote)""")
_HEADER = re.compile(
    r"""(?<![\w-])(?P<head>(?:x-)?api[-_]key|(?:proxy-)?authorization)(?P<colon>["']?\s?:\s?["']?)"""
    r"""(?!\$|none\b|null\b)(?P<value>(?:(?:bearer|basic|token)\s+)?[^\s"',;{}\[\]()]+)""",
    re.IGNORECASE,
)
# What a name holds whose value these look for; a quick look, over which no name gets that it does not know.
_WORDS = ("api_key", "api-key", "Api-Key", "API-Key", "API-KEY", "Api_Key", "API_KEY", "apikey", "uthorization", "UTHORIZATION",
          "assword", "ASSWORD", "ecret", "ECRET", "redential", "_token", "_TOKEN", "private_key", "access_key")  # fmt: skip
_SCHEME = re.compile(r"(?:Bearer|Basic|Token)\s+", re.IGNORECASE)
_SHORTEST = 6  # a shorter value cannot be masked by value: it would take innocent text with it


def is_secret_name(name: str) -> bool:
    """Tell whether an environment variable or flag of this name holds a secret (``HF_TOKEN``, ``--api-key``)."""
    plain = re.sub(r"[-.]", "_", name).strip("_").upper()
    plain = plain.removeprefix(
        "TIKTOKEN_"
    )  # a vocabulary's name, not a token's: TIKTOKEN_ENCODINGS_BASE is a directory
    if _NAMED_SECRET.search(plain):
        return True
    if _NUMBER_OF.search(plain):
        return False
    return _TOKEN.search(plain) is not None or (_TOKEN_WORD.search(plain) is not None and not _OF_TEXT.search(plain))


def is_token(text: str) -> bool:
    """Tell whether something in ``text`` has the shape of a known token."""
    return _SHAPED_SECRET.search(text) is not None


def secret_values(env: Mapping[str, str] | Iterable[tuple[str, str]]) -> frozenset[str]:
    """Return what must not be seen of these entries: the values of those named like secrets, and secrets in others."""
    found: set[str] = set()
    for name, value in env.items() if isinstance(env, Mapping) else env:
        found.update([value] if is_secret_name(name) else ())
        found.update(_inside(value))
    return findable(found)


def secret_arguments(argv: Iterable[str]) -> frozenset[str]:
    """Return the values of flags named like secrets, ``--api-key V`` and ``--api-key=V``, and secrets inside words."""
    words = tuple(argv)
    found = {word for word, secret in zip(words, _after_secret_flag(words), strict=True) if secret}
    for word in words:
        found.update(_inside(word))
    return findable(found)


def findable(values: Iterable[str]) -> frozenset[str]:
    """Return the values as they may turn up in a text: whole, line by line, and as JSON and URLs write them.

    What is too short to be looked for is left out.
    """
    found: set[str] = set()
    for value in values:
        forms = {value, value.strip(), *(line.strip() for line in value.splitlines())}
        found |= (
            forms
            | {json.dumps(form)[1:-1] for form in forms}
            | {json.dumps(form, ensure_ascii=False)[1:-1] for form in forms}
        )
        if not re.fullmatch(r"[\w.~-]*", value, re.ASCII):
            from urllib.parse import quote, quote_plus  # rarely needed

            found |= {quote(value.encode("utf-8", "replace"), safe=""), quote_plus(value.encode("utf-8", "replace"))}
    return frozenset(value for value in found if len(value) >= _SHORTEST)


def may_hold_secret(text: str, secrets: Iterable[str] = ()) -> bool:
    """Tell whether `redact` could change ``text``: a quick look, for a whole batch of lines at once."""
    return (
        any(shape in text for shape in _SHAPES)
        or any(word in text for word in _WORDS)
        or ("://" in text and "@" in text)
        or any(secret in text for secret in secrets)
    )


def redact(text: str, secrets: Iterable[str] = ()) -> str:
    """Return ``text`` with every given secret value, every URL's password and every known shape of token masked."""
    # The longest first: one secret may be a part of another.
    for secret in sorted((secret for secret in secrets if secret in text), key=len, reverse=True):
        text = text.replace(secret, MASK)
    if "://" in text:
        text = _URL_PASSWORD.sub(rf"\g<head>{MASK}", text)
    if "earer" in text:
        text = _BEARER.sub(rf"\g<head>{MASK}", text)
    if any(word in text for word in _WORDS):
        text = _TOLD.sub(_mask_told, text)
        text = _HEADER.sub(rf"\g<head>\g<colon>{MASK}", text)
    return _SHAPED_SECRET.sub(MASK, text)


def _mask_told(found: re.Match[str]) -> str:
    name = found["name"]
    if name.upper() in ("TOKEN", "KEY") or not is_secret_name(name):  # a word of a model's own, a map's key
        return found[0]
    return found["head"] + _QUOTED.sub(_mask_quoted, found["value"])


def _mask_quoted(one: re.Match[str]) -> str:
    is_reference = re.fullmatch(r"\$\{\w+(?::?-)?\}", one[0][1:-1]) is not None
    return one[0] if is_reference else f"{one['quote']}{MASK}{one['quote']}"


def redact_word(text: str, secrets: Iterable[str] = ()) -> str:
    """Return a value of the operator's own, a word of a command or an option, with what is assigned in it masked too."""
    name, equals, _ = text.partition("=")
    if equals and re.fullmatch(r"[\w.-]+", name) and is_secret_name(name):
        return f"{name}={MASK}"
    text = redact(text, secrets)
    for pattern in (_ASSIGNED, _FLAGGED):
        text = pattern.sub(lambda m: m["head"] + MASK if is_secret_name(m["name"]) else m[0], text)
    inner = _json(text) is not None  # a list or a map under a name is masked from within, below
    for found in reversed(list(_headed_secrets(text))):
        text = text[: found.start("value")] + _headed(found["value"], inner) + text[found.end() :]
    for value in sorted(_in_json(text), key=len, reverse=True):
        if value:
            text = text.replace(json.dumps(value), f'"{MASK}"').replace(
                json.dumps(value, ensure_ascii=False), f'"{MASK}"'
            )
    return text


def redact_words(argv: Sequence[str], secrets: Iterable[str] = ()) -> tuple[str, ...]:
    """Return a command with its secrets masked, those that follow a flag like ``--api-key`` however short they are."""
    known = tuple(secrets)
    return tuple(
        MASK if secret else redact_word(word, known)
        for word, secret in zip(argv, _after_secret_flag(argv), strict=True)
    )


def _after_secret_flag(argv: Sequence[str]) -> Iterator[bool]:
    """Yield for each word whether it is a value of a flag named like a secret, which may take several."""
    secret = False
    for word in argv:
        is_flag = word.startswith("--") or re.match(r"-[A-Za-z]", word) is not None
        yield secret and not is_flag
        if is_flag:
            secret = "=" not in word and is_secret_name(word)


def _inside(text: str) -> Iterator[str]:
    """Yield the secrets in a value that is not one as a whole."""
    name, equals, rest = text.partition("=")
    if equals and re.fullmatch(r"[\w.-]+", name) and is_secret_name(name):
        yield rest
    for pattern in (_ASSIGNED, _FLAGGED):
        yield from (m["value"].strip("\"'") for m in pattern.finditer(text) if is_secret_name(m["name"]))
    yield from (_SCHEME.sub("", found["value"].strip()) for found in _headed_secrets(text))
    yield from (m["value"] for m in _BEARER.finditer(text))
    yield from (match["value"] for match in _URL_PASSWORD.finditer(text))
    yield from _in_json(text)


def _headed_secrets(text: str) -> Iterator[re.Match[str]]:
    """Yield what stands under names of secrets: a name that is none may have one that is in what follows it."""
    at = 0
    while (found := _HEADED.search(text, at)) is not None:
        is_secret = is_secret_name(found["name"])
        if is_secret:
            yield found
        at = found.end() if is_secret else found.end("head")


def _headed(value: str, inner: bool) -> str:
    if inner and value[0] in "[{":
        return value
    return f"{value[0]}{MASK}{value[0]}" if value[0] in "\"'" and value[-1] == value[0] else MASK


def _in_json(text: str) -> Iterator[str]:
    """Yield the texts under keys named like secrets where ``text`` is a JSON map or list."""
    yield from _under_secret_keys(_json(text), secret=False)


def _json(text: str) -> object:
    """Return the JSON map or list that ``text`` is, None where it is none."""
    if not text.startswith(("{", "[")):
        return None
    try:
        value: object = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return value


def _under_secret_keys(value: object, *, secret: bool) -> Iterator[str]:
    if isinstance(value, dict):
        for key, item in value.items():
            yield from _under_secret_keys(item, secret=secret or is_secret_name(str(key)))
    elif isinstance(value, list):
        for item in value:
            yield from _under_secret_keys(item, secret=secret)
    elif isinstance(value, str) and secret:
        yield value
