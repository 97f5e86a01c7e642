"""Masking what leaves the operator's machine in a file: texts and Docker's JSON of whatever shape."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass

from sparkctl.model.secrets import MASK, is_key_line, is_secret_name, redact_word, redact_words

# name = value, as INI files write it, and name: value behind another name; what follows is masked to the line's end.
_NAME_IN_TEXT = re.compile(
    rf"""(?<![\w.-])(?P<name>[\w.-]++)["']?(?:\s*+:\s++|\s++=\s*+|=\s++)(?=\S)(?!["']?{MASK}|(?:Bearer|Basic|Token)\s++{MASK})"""
)
# name: with its value on the lines below, which are further in: a block of YAML, or a map.
_OPENING_LINE = re.compile(
    r"""(?P<indent>[\s-]*+)["']?(?P<name>[A-Za-z_][\w.-]*+)["']?\s*+:\s*+(?:[|>][-+\d]*+\s*+)?(?:#.*)?"""
)
_PEM_BEGIN, _PEM_END = (
    re.compile(r"-----BEGIN [A-Z\d ]{0,40}PRIVATE KEY(?: BLOCK)?-----"),
    re.compile(r"-----END [A-Z\d ]{0,40}PRIVATE KEY(?: BLOCK)?-----"),
)


@dataclass(frozen=True, slots=True)
class Redactor:
    """Masks secrets by name, by shape, and the values that are ``known`` wherever they turn up."""

    known: frozenset[str] = frozenset()

    def redact_text(self, text: str) -> str:
        """Return a text, each line masked; whole lines where they are the value of a name above, or a private key's."""
        found: list[str] = []
        within: int | None = None  # the column of the name whose value these lines are
        in_key = False
        for line in text.split("\n"):
            inset = len(line) - len(line.lstrip())
            if within is not None and line.strip() and inset <= within:
                within = None
            ends = _PEM_END.search(line) is not None
            if ends and not in_key and _PEM_BEGIN.search(line) is None:  # its beginning is not in this text
                for at in range(len(found) - 1, -1, -1):
                    if not is_key_line(found[at]):
                        break
                    found[at] = MASK
            ends = ends and in_key
            if line.strip() and ((in_key and not ends) or within is not None):
                found.append(line[:inset] + MASK)
            else:
                found.append(self._line(line))
            opened = _OPENING_LINE.fullmatch(line) if within is None else None
            if opened and is_secret_name(opened["name"]):
                within = len(opened["indent"])
            in_key = not ends and (in_key or _PEM_BEGIN.search(line) is not None)
        return "\n".join(found)

    def redact_json(self, value: object) -> object:
        """Return decoded JSON, masked: values under names like secrets, words behind flags like secrets, and the rest."""
        if isinstance(value, dict):
            return {self.redact_text(str(key)): self._under(str(key), item) for key, item in value.items()}
        if isinstance(value, list):
            return self._list(value)
        return self.redact_text(value) if isinstance(value, str) else value

    def _under(self, name: str, value: object) -> object:
        return _blank(value) if is_secret_name(name) else self.redact_json(value)

    def _list(self, values: list[object]) -> list[object]:
        if all(isinstance(one, str) for one in values):  # a command or an environment
            return [self.redact_text(word) for word in redact_words([str(one) for one in values], self.known)]
        return [self.redact_json(one) for one in values]

    def _line(self, line: str) -> str:
        line = redact_word(line, self.known)
        if _is_json(line):
            return line  # a map or a list was masked from within
        named = next((one for one in _NAME_IN_TEXT.finditer(line) if is_secret_name(one["name"])), None)
        return line if named is None else line[: named.end()] + MASK


def _is_json(text: str) -> bool:
    if not text.startswith(("{", "[")):
        return False
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True


def _blank(value: object) -> object:
    """Return the same shape with every text and number masked."""
    if isinstance(value, dict):
        return {key: _blank(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_blank(one) for one in value]
    return value if value is None or isinstance(value, bool) or value == "" else MASK


def collect_known_secrets(*several: Iterable[str]) -> frozenset[str]:
    """Return all the values together."""
    return frozenset(one for some in several for one in some)
