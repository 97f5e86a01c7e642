"""Prompts by kind of text, for `bench --by-domain`: our own set, or a file in the form of Spec-Bench and SPEED-Bench.

Our set is `prompts.jsonl`: written for sparkctl, under its licence (Apache-2.0), and no part of a set on which drafters are trained.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from sparkctl.errors import InvalidInput
from sparkctl.files import read_regular_file
from sparkctl.model.text.sanitize import load_json, sanitize_line
from sparkctl.model.text.suggestions import format_did_you_mean

_OWN = Path(__file__).parent / "prompts.jsonl"
_MAX_FILE_BYTES = 64 << 20
_MAX_DOMAIN_CHARS = 40
_FORM = 'each line is {"category": "coding", "turns": ["the prompt"]}'


@dataclass(frozen=True, slots=True)
class DomainPrompt:
    """A prompt of one kind of text. ``tools``: as a chat request names them. Of several turns it is the first."""

    domain: str
    text: str
    tools: tuple[Mapping[str, Any], ...] = ()


@dataclass(frozen=True, slots=True)
class PromptSet:
    """``digest``: SHA-256 of the file, whatever part of it is used."""

    prompts: tuple[DomainPrompt, ...]
    digest: str

    @property
    def domains(self) -> tuple[str, ...]:
        """The kinds of text, in the order of the file."""
        return tuple(dict.fromkeys(one.domain for one in self.prompts))

    def select(self, domains: tuple[str, ...]) -> PromptSet:
        """Return the prompts of these domains, all without any. Raises `InvalidInput` for a domain that the set has not."""
        for name in domains:
            if name not in self.domains:
                raise InvalidInput(
                    f"no prompt is of the domain {name!r}{format_did_you_mean(name, self.domains)}",
                    f"choose from: {', '.join(self.domains)}",
                )
        return replace(self, prompts=tuple(one for one in self.prompts if not domains or one.domain in domains))


def load_prompts(path: Path | None) -> PromptSet:
    """Return the prompts of a file, None: our own. Raises `InvalidInput` with file and line."""
    try:
        raw = read_regular_file(path or _OWN, _MAX_FILE_BYTES)
    except OSError as error:
        raise InvalidInput(f"{path}: {error.strerror or error}", "name a file of prompts: --prompts FILE") from error
    prompts = []
    for number, line in enumerate(raw.split(b"\n"), 1):
        if line.strip():
            try:
                prompts.append(_parse_prompt(load_json(line)))
            except json.JSONDecodeError as wrong:
                raise InvalidInput(f"{path}:{number}: this line is not JSON: {wrong.msg}", _FORM) from wrong
            except (ValueError, RecursionError) as wrong:
                raise InvalidInput(f"{path}:{number}: {wrong}", _FORM) from wrong
    if not prompts:
        raise InvalidInput(f"{path}: it contains no prompt", _FORM)
    return PromptSet(tuple(prompts), hashlib.sha256(raw).hexdigest())


def _parse_prompt(data: object) -> DomainPrompt:
    if not isinstance(data, dict):
        raise ValueError("it is not a JSON object")
    domain = data.get("category", data.get("domain"))
    if not isinstance(domain, str) or not (domain := sanitize_line(domain).strip()):
        raise ValueError("category: the kind of text is missing")
    if len(domain) > _MAX_DOMAIN_CHARS:
        raise ValueError(f"category: longer than {_MAX_DOMAIN_CHARS} characters")
    turns = next((data[name] for name in ("turns", "messages", "prompt") if name in data), None)
    first = next(iter(_list_texts(turns)), None)
    if first is None or not first.strip():
        raise ValueError("turns: the prompt is missing")
    tools = data.get("tools", [])
    if not isinstance(tools, list) or not all(isinstance(one, dict) for one in tools):
        raise ValueError("tools: not a list of objects")
    return DomainPrompt(domain, first, tuple(tools))


def _list_texts(turns: object) -> list[str]:
    """Return what the user says: of texts, or of messages with a role."""
    if isinstance(turns, str):
        return [turns]
    if not isinstance(turns, list):
        return []
    texts = [
        one.get("content") if isinstance(one, dict) and one.get("role", "user") == "user" else one for one in turns
    ]
    return [text for text in texts if isinstance(text, str)]
