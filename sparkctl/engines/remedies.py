"""Remedies as they help in one engine: rules and traps that are common to several mark what is said for one of them only."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from sparkctl.engines import FALLBACK_ENGINE
from sparkctl.model.text import lazy_pattern

if TYPE_CHECKING:
    from sparkctl.engines.log_rules import FailureRule

_NO_LETTER = lazy_pattern.compile(r"\W")
# What a remedy says for one engine only, and the flags that it names.
_ENGINE_WORDS = lazy_pattern.compile(
    r"<(?P<engine>[\w.-]{2,20}): (?P<text>[^<>]+)>|\bargs\.(?P<flag>[a-z][\w-]*)(?P<value>: (?:true|\d[\d.]*\d))?"
)


def adapt_remedy(remedy: str, engine: str, flags: Mapping[str, str] | None = None) -> str:
    """Return a remedy as it helps in one engine.

    A part such as ``<vLLM: Set args.moe-backend: marlin.>`` is for that engine alone. Where no engine is known, all parts stay, with
    the engines' names. ``<engine: …>`` is for every engine, ``<program: …>`` for a program of no known one. ``flags``: what the
    engine calls the flags outside of such parts; None: as they are called there. A flag that it does not have is told in words.
    """

    def adapt(found: re.Match[str]) -> str:
        name, text, flag = found["engine"], found["text"], found["flag"]
        if flag is not None:
            own = flag if flags is None else flags.get(flag)
            value = found["value"] or ""
            return f"its {flag.replace('-', ' ')}{value.replace(':', ' to')}" if own is None else f"args.{own}{value}"
        if name in ("engine", "program"):
            return text if (name == "program") is (engine == FALLBACK_ENGINE) else ""
        if engine == FALLBACK_ENGINE:
            is_plain = text.partition(" ")[0][1:].islower()  # no name such as DeepGEMM
            return f"{name}: {text[0].lower() if is_plain else text[0]}{text[1:]}"
        return text if _NO_LETTER.sub("", name).lower() == engine else ""

    if "<" not in remedy and (flags is None or "args." not in remedy):
        return remedy
    return " ".join(_ENGINE_WORDS.sub(adapt, remedy).split())


def adapt_rules(
    rules: Iterable[FailureRule], engine: str, flags: Mapping[str, str] | None = None
) -> tuple[FailureRule, ...]:
    """Return rules with the remedies that help in one engine: see `adapt_remedy`.

    A rule loses a field that is a flag of other engines. It keeps it where no engine is known: the line is then mostly of one that
    has the flag.
    """
    return tuple(_adapt_rule(rule, engine, flags) for rule in rules)


def _adapt_rule(rule: FailureRule, engine: str, flags: Mapping[str, str] | None) -> FailureRule:
    remedy, field = adapt_remedy(rule.remedy, engine, flags), rule.field
    if flags is not None and field is not None and field.startswith("args.") and "{" not in field:
        name = flags.get(field.removeprefix("args."))
        if name is None and engine != FALLBACK_ENGINE:
            return replace(rule, remedy=remedy, field=None, value=None, change=None)
        field = field if name is None else f"args.{name}"
    return rule if (remedy, field) == (rule.remedy, rule.field) else replace(rule, remedy=remedy, field=field)
