"""The failure rules for lines that every engine can print, because torch, the model hub, argparse, Docker or the kernel
write them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from sparkctl.engines import FALLBACK_ENGINE
from sparkctl.engines.base import adapt_remedy
from sparkctl.engines.failures.hub_failures import HUB_FAILURES
from sparkctl.engines.failures.library_failures import (
    ARGUMENT_FAILURES,
    CRASH_FAILURES,
    LIBRARY_FAILURES,
    SIGNAL_DEATHS,
)
from sparkctl.engines.failures.memory_failures import HOST_MEMORY_FAILURES, cuda_memory_rules
from sparkctl.engines.failures.model_file_failures import MODEL_FILE_FAILURES
from sparkctl.engines.failures.node_failures import NODE_FAILURES, RANK_FAILURES
from sparkctl.engines.log_rules import EXCEPTION_PREFIX, FailureRule

__all__ = [
    "COMMON_CAUSES",
    "CRASH_FAILURES",
    "EXCEPTION_PREFIX",
    "SIGNAL_DEATHS",
    "adapt_rules",
    "cuda_memory_rules",
]

# The rules that name a cause; `CRASH_FAILURES` only say that something failed.
COMMON_CAUSES = (
    HOST_MEMORY_FAILURES
    + HUB_FAILURES
    + MODEL_FILE_FAILURES
    + NODE_FAILURES
    + RANK_FAILURES
    + ARGUMENT_FAILURES
    + LIBRARY_FAILURES
)


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
