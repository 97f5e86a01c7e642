"""What counts as a secret, and how it is kept out of everything that is shown or written."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

MASK = "••••••"
_NAMED_SECRET = re.compile(
    r"TOKEN(?!S|IZ)|SECRET|PASSW|PASSPHRASE|CREDENTIAL|API_?KEY|ACCESS_?KEY|PRIVATE_?KEY|(?:^|_)KEY$|(?:^|_)PAT$|AUTH$",
    re.IGNORECASE,
)
# Secrets recognisable by their own shape, wherever they turn up.
_SHAPED_SECRET = re.compile(
    r"\bhf_[A-Za-z0-9]{16,}|\bnvapi-[A-Za-z0-9_-]{16,}|\bsk-[A-Za-z0-9_-]{20,}|\bgh[pousr]_[A-Za-z0-9]{20,}"
)
_SHAPES = ("hf_", "nvapi-", "sk-", "ghp_", "gho_", "ghu_", "ghs_", "ghr_")
_SHORTEST = 6  # a shorter value cannot be masked by value: it would take innocent text with it


def is_secret_name(name: str) -> bool:
    """Tell whether an environment variable or flag of this name holds a secret (``HF_TOKEN``, ``--api-key``)."""
    return _NAMED_SECRET.search(name.replace("-", "_").lstrip("_")) is not None


def secret_values(env: Mapping[str, str] | Iterable[tuple[str, str]]) -> frozenset[str]:
    """Return the values of the entries that are named like secrets and are long enough to be found in a text."""
    pairs = env.items() if isinstance(env, Mapping) else env
    return frozenset(value for name, value in pairs if is_secret_name(name) and len(value) >= _SHORTEST)


def may_hold_secret(text: str, secrets: Iterable[str] = ()) -> bool:
    """Tell whether `redact` could change ``text``: a quick look, for a whole batch of lines at once."""
    return any(shape in text for shape in _SHAPES) or any(secret in text for secret in secrets)


def redact(text: str, secrets: Iterable[str] = ()) -> str:
    """Return ``text`` with every given secret value, and everything shaped like a known token, masked."""
    for secret in secrets:
        if secret in text:
            text = text.replace(secret, MASK)
    return _SHAPED_SECRET.sub(MASK, text)


def secret_arguments(argv: Iterable[str]) -> frozenset[str]:
    """Return the values that follow flags named like secrets: ``--api-key V`` and ``--api-key=V``."""
    found: set[str] = set()
    secret_next = False
    for word in argv:
        if secret_next and not word.startswith("--"):
            found.add(word)
        flag, equals, value = word.partition("=")
        named = flag.startswith("-") and is_secret_name(flag.lstrip("-"))
        secret_next = named and not equals
        if named and equals:
            found.add(value)
    return frozenset(value for value in found if len(value) >= _SHORTEST)
