"""The generated tables: which rows there are comes from the code, what is said of them from `tests.tools.docs.words`."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import MISSING, Field, fields
from enum import StrEnum
from typing import Any, get_args, get_type_hints

from sparkctl.cli.main import VERBS
from sparkctl.commands.actions import ACTIONS, OVERVIEW, Action, has_screens
from sparkctl.engines.lint import LintRule
from sparkctl.engines.traps import load_traps
from sparkctl.errors import ExitCode
from sparkctl.model.events import EVENT_TYPES
from sparkctl.model.finding import FindingKind, Severity
from sparkctl.model.kernel_event import KernelEventKind
from sparkctl.model.node import Node
from sparkctl.model.verdict import CAUSE_MEANINGS, FailureCause
from sparkctl.monitor.findings.host_detectors import rate_kernel_line
from sparkctl.monitor.kernel_log import load_kernel_rules
from sparkctl.profiles.profile_library import ProfileLibrary
from sparkctl.profiles.schema import build_field_schema, iter_value_fields
from sparkctl.tui.key_hints import format_key
from sparkctl.tui.panel_options import AVAILABLE_SCREENS
from tests.tools.docs import words
from tests.tools.docs.pages import ROOT

_SCREENS = (OVERVIEW, "instance", "logs", "profiles", "doctor", "history", "switch", "node", "bench")
_EVERY_SCREEN = "Every screen"


def blocks() -> dict[str, str]:
    """Return each generated block by its name, in Markdown."""
    made: Mapping[str, Callable[[], str]] = {
        "keys": _keys,
        "exit-codes": _exit_codes,
        "causes": _causes,
        "findings": _findings,
        "kernel-lines": _kernel_lines,
        "xids": _xids,
        "known-bad": _known_bad,
        "config-fields": _config_fields,
        "profile-fields": _profile_fields,
        "shipped-profiles": _shipped_profiles,
        "lint-rules": _lint_rules,
        "verbs": _verbs,
        "events": _events,
    }
    return {name: make() for name, make in made.items()}


def table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a Markdown table."""
    lines = [heads, ["---"] * len(heads), *rows]
    return "".join(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |\n" for line in lines)


def _keys() -> str:
    groups: dict[str, list[Action]] = {_EVERY_SCREEN: [], **{screen: [] for screen in _SCREENS}}
    for action in ACTIONS:
        if has_screens(action, AVAILABLE_SCREENS):
            groups[next((one for one in _SCREENS if one in action.on), _EVERY_SCREEN)].append(action)
    return "".join(
        f"\n### {group.capitalize()}\n\n"
        + table(("key", "does", "`:` command", "name in `keys:`"), (_key_row(action, group) for action in actions))
        for group, actions in groups.items()
        if actions
    )


def _key_row(action: Action, group: str) -> Sequence[str]:
    keys = ", ".join(f"`{format_key(key)}`" for key in action.keys) or "—"
    others = [screen for screen in _SCREENS if screen in action.on and screen != group]
    does = action.title + (f" (also on: {', '.join(others)})" if others else "")
    return keys, does, f"`:{action.verb}`" if action.verb else "", f"`{action.id}`"


def _exit_codes() -> str:
    assert set(ExitCode) <= set(words.EXIT_CODES), "an exit code has no words"
    return table(("code", "meaning"), ((str(int(code)), meaning) for code, meaning in sorted(words.EXIT_CODES.items())))


def _causes() -> str:
    return "\n".join(
        f"### {cause}\n{CAUSE_MEANINGS[cause][0].upper()}{CAUSE_MEANINGS[cause][1:]}. **Do:** {words.CAUSE_REMEDIES[cause]}\n"
        + (f"\n**Example:** `{words.CAUSE_EXAMPLES[cause]}`\n" if cause in words.CAUSE_EXAMPLES else "")
        for cause in FailureCause
    )


def _findings() -> str:
    rows = ((f"*{kind}*", *words.FINDINGS[kind]) for kind in FindingKind)
    return table(("finding", "what it means", "what to do"), rows)


def _kernel_lines() -> str:
    rules, _ = load_kernel_rules()
    rows = {
        (_name_parts(rule.data["meaning"]), _name_parts(rule.data["remedy"]) or "—"): str(
            rate_kernel_line(rule.severity, rule.data["hours"])
        )
        for rule in rules
    }
    return table(
        ("the kernel says that", "how serious", "what to do"),
        ((meaning, severity, remedy) for (meaning, remedy), severity in rows.items()),
    )


def _name_parts(text: str) -> str:
    """Return a sentence whose parts in braces are words, as placeholders in italics."""
    return re.sub(r"\{(\w+)\}", lambda part: part[1].upper(), text)


def _xids() -> str:
    rules, xids = load_kernel_rules()
    hours = next(
        rule.data["hours"] for rule in rules if rule.kind is KernelEventKind.XID and rule.severity is not Severity.NOTE
    )
    rows = (
        (number, row["meaning"], str(rate_kernel_line(Severity(row["severity"]), row.get("hours", hours))))
        for number, row in xids.items()
    )
    return table(("Xid", "meaning", "how serious"), rows)


def _known_bad() -> str:
    rows = (
        (
            trap.meaning.format(version=trap.node.pattern.replace("\\", "").removesuffix(".*")),
            trap.remedy,
            f"<{trap.source}>",
        )
        for trap in load_traps()
        if trap.node is not None
    )
    return table(("fault", "what to do", "source"), rows)


def _config_fields() -> str:
    rows = ((f"`{one.name}`", words.CONFIG_FIELDS[one.name] + _default_words(one)) for one in fields(Node))
    return table(("field of a node", "meaning"), rows)


def _default_words(one: Field[Any]) -> str:
    if one.default is MISSING:
        return " (required)"
    return f" (default {one.default:g})" if isinstance(one.default, float) else ""


def _profile_fields() -> str:
    rows = (
        (f"`{path}`", _field_values(build_field_schema(field, {})), field.spec.help)
        for path, field in iter_value_fields()
    )
    return table(("field", "value", "meaning"), rows)


def _field_values(node: Mapping[str, Any]) -> str:
    form = next(one for one in node.get("anyOf", [node]) if one.get("type") != "null")
    default = node.get("default")
    said = _kind_words(form)
    if isinstance(default, bool):
        return f"{said}; default `{str(default).lower()}`"
    return f"{said}; default {default:g}" if isinstance(default, int | float) else said


def _kind_words(form: Mapping[str, Any]) -> str:
    if "const" in form or "enum" in form:
        return ", ".join(f"`{value}`" for value in form.get("enum", [form.get("const")]))
    if "examples" in form:
        return ", ".join(f"`{value}`" for value in form["examples"]) + ", ..."
    description = form.get("description", "")
    if "Bytes, as in" in description:
        return "size"
    if "A duration" in description:
        return "time"
    kind = form["type"] if isinstance(form["type"], str) else form["type"][0]
    names = {"string": "text", "object": "map", "array": "list", "boolean": "true or false", "integer": "number"}
    return names[kind]


def _shipped_profiles() -> str:
    library = ProfileLibrary(user=ROOT / "no-such-folder", shipped=ROOT / "profiles")
    loaded = [library.load_profile(name) for name in library.list_names()]
    rows = ((f"`{one.name}`", one.engine, str(one.nodes), one.title or "") for one in loaded)
    return table(("profile", "engine", "Sparks", "what it is"), rows)


def _lint_rules() -> str:
    return table(("rule", "level", "what it finds"), ((f"`{rule}`", *words.LINT_RULES[rule]) for rule in LintRule))


def _verbs() -> str:
    rows = (
        (f"`sparkctl {verb}`", about, f"[{words.VERB_PAGES[verb]}]({words.VERB_PAGES[verb]})")
        for verb, (_, about) in VERBS.items()
    )
    return table(("command", "what it does", "page"), rows)


def _events() -> str:
    rows = ((f"`{name}`", _event_fields(kind), words.EVENT_NOTES[name]) for name, kind in EVENT_TYPES.items())
    return table(("event", "fields", "notes"), rows)


def _event_fields(kind: type) -> str:
    hints = get_type_hints(kind)
    own = [one.name for one in fields(kind) if one.name not in ("ts", "node")]
    return ", ".join(f"`{name}`{_choices(hints[name])}" for name in own)


def _choices(hint: Any) -> str:
    kinds = [one for one in (hint, *get_args(hint)) if isinstance(one, type) and issubclass(one, StrEnum)]
    return f" ({', '.join(f'`{value}`' for value in kinds[0])})" if kinds else ""
