"""``include`` and ``overrides`` of sparkrun's recipes: a base below, conditions above."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from sparkctl.errors import InvalidInput
from sparkctl.profiles.importers import foreign_yaml, plain
from sparkctl.profiles.importers.import_report import ImportReport

DEEPEST = 8
_WHOLE = ("defaults", "env")  # their values are not merged any deeper
_ARCHITECTURES = ("arm64", "aarch64", "gb10", "sm121", "sm_121", "sm_121a", "spark", "dgx-spark", "blackwell")


def merge_included_recipes(
    data: dict[str, Any], ledger: ImportReport, lookup: Callable[[str], str | None]
) -> dict[str, Any]:
    """Return a recipe over the one it includes. Raises `InvalidInput` for a chain that is too long or leads back."""
    chain, seen = [data], set[str]()
    while plain.scalar_text(name := chain[-1].get("include")):
        reference = plain.scalar_text(name) or ""
        if reference in seen:
            raise InvalidInput(f"include: {reference} leads back to here")
        if len(seen) >= DEEPEST:
            raise InvalidInput(f"include: more than {DEEPEST} recipes in a row")
        seen.add(reference)
        text = lookup(reference)
        if text is None:
            ledger.add_unsupported(
                f"include {reference}", "that recipe is not at hand (it is looked for beside this one); without it"
            )
            break
        base, mended = foreign_yaml.load_foreign_yaml(text, reference)
        for remark in mended:
            ledger.remark(f"{reference}: {remark}.")
        ledger.add_mapped(f"include {reference}", "the fields it gives")
        chain.append(base)
    found = chain[-1]
    for above in reversed(chain[:-1]):
        found = _merge_maps(found, above)
    return found


def _merge_maps(base: Mapping[str, Any], top: Mapping[str, Any]) -> dict[str, Any]:
    """Maps merge, lists and scalars replace, null removes, ``overrides`` are appended."""
    found = {key: value for key, value in base.items() if key not in ("include",)}
    for key, value in top.items():
        if value is None:
            found.pop(key, None)
        elif key == "overrides" and isinstance(value, list) and isinstance(found.get(key), list):
            found[key] = [*found[key], *value]
        elif isinstance(value, dict) and isinstance(found.get(key), dict):
            found[key] = _flat(found[key], value) if key in _WHOLE else _merge_maps(found[key], value)
        else:
            found[key] = value
    return found


def _flat(base: Mapping[str, Any], top: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in {**base, **top}.items() if value is not None}


def apply_overrides(data: dict[str, Any], ledger: ImportReport, nodes: int) -> dict[str, Any]:
    """Return the recipe with those of its ``overrides`` that hold on a Spark, for this number of nodes."""
    found = dict(data)
    entries = data.get("overrides")
    for number, entry in enumerate(entries if isinstance(entries, list) else [entries] if entries else []):
        key, body = f"overrides[{number}]", plain.as_mapping(entry)
        when = plain.as_mapping(body.get("when"))
        doubt = [name for name in when if name not in ("nodes", "arch", "config", "runtime", "engine")]
        if doubt:
            ledger.add_unsupported(key, f"nobody here knows the condition {', '.join(doubt)}: it does not match")
        elif all(_matches_condition(name, wanted, found, nodes) for name, wanted in when.items()):
            found = _merge_maps(found, {part: value for part, value in body.items() if part != "when"})
            ledger.add_mapped(key, "the fields it gives: its condition holds")
        else:
            ledger.keep_extra(key, plain.to_json_data(body), "its condition does not hold here")
    return found


def _matches_condition(name: str, wanted: object, data: Mapping[str, Any], nodes: int) -> bool:
    if name == "nodes":
        text = (plain.scalar_text(wanted) or "").replace(" ", "")
        for sign, test in ((">=", nodes.__ge__), ("<=", nodes.__le__), (">", nodes.__gt__), ("<", nodes.__lt__)):
            if text.startswith(sign):
                limit = plain.whole_number(text.removeprefix(sign))
                return limit is not None and bool(test(limit))
        return nodes in [plain.whole_number(one) for one in plain.scalar_texts(wanted)]
    if name == "arch":
        return any(one.lower() in _ARCHITECTURES for one in plain.scalar_texts(wanted))
    if name in ("runtime", "engine"):
        return plain.scalar_text(data.get("runtime")) in plain.scalar_texts(wanted)
    defaults = plain.as_mapping(data.get("defaults"))
    return all(
        plain.scalar_text(defaults.get(key)) == plain.scalar_text(value)
        for key, value in plain.as_mapping(wanted).items()
    )
