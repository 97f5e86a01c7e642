"""From "lower this field" to a value that can be tried: the log's own where it names one, else a step from the plan's. Pure."""

from __future__ import annotations

from sparkctl.model.guard_state import DEFAULT_FLOOR
from sparkctl.model.launch_plan import LaunchPlan
from sparkctl.model.units import parse_size
from sparkctl.model.verdict import ChangeDirection, FieldChange

# What a share of memory may become by a guess. On memory that the desktop and the page cache share, more than the upper
# one is not safe whatever the engine says, and with less than the lower one another model is the better advice.
_LOWEST, _HIGHEST = 0.3, 0.85
_STEP = 0.08


def suggest_field_change(
    plan: LaunchPlan, field: str | None, change: ChangeDirection | None = None, value: str | None = None
) -> FieldChange | None:
    """Return the change to try, None where no value can be known.

    ``value`` is what the engine itself says to set; without it ``change`` and the plan's own value make a first try.
    """
    if field is None:
        return None
    was = get_current_value(plan, field)
    if change is ChangeDirection.REMOVE:
        return FieldChange(field, "null", was)
    if value is not None:
        return None if value == was else FieldChange(field, value, was)
    found = _next_value(field, was, change)
    return None if found is None or found == was else FieldChange(field, found, was, is_first_try=True)


def get_current_value(plan: LaunchPlan, field: str) -> str | None:
    """Return what the failed start had in this field, None where the plan does not tell."""
    section, _, name = field.partition(".")
    match section:
        case "args":
            return plan.get_flag_value(name)
        case "port":
            return None if plan.port is None else str(plan.port)
        case "container" if name == "shm_size":
            return plan.shm_size
        case "container" if name.startswith("options."):
            return dict(plan.options).get(name.removeprefix("options."))
        case "start" if name.startswith("timeouts."):
            seconds = getattr(plan.timeouts, name.removeprefix("timeouts."), None)
            return None if seconds is None else f"{seconds:g}s"
        case "start" if name == "guard.floor" and plan.guard is not None:
            return str(plan.guard.floor)
        case _:
            return None


def _next_value(field: str, was: str | None, change: ChangeDirection | None) -> str | None:
    if field == "start.guard.floor":
        return f"{DEFAULT_FLOOR >> 20}m"
    if field == "container.shm_size":
        return "16g" if was is None else f"{max(1, 2 * _gigabytes(was))}g"
    if was is None:
        return None
    if field == "port":
        return str(int(was) + 1) if int(was) < 65535 else str(int(was) - 1)
    if field.startswith("start.timeouts."):
        return f"{2 * float(was.removesuffix('s')):g}s"
    return _number(was, change)


def _number(was: str, change: ChangeDirection | None) -> str | None:
    """Return a share one step on, or a count halved or doubled; None for what is no number or has no way to go."""
    try:
        now = float(was)
    except ValueError:
        return None
    if now <= 0 or change not in (ChangeDirection.LOWER, ChangeDirection.RAISE):
        return None
    if now > 1 or was.isdecimal():
        count = int(now) // 2 if change is ChangeDirection.LOWER else int(now) * 2
        return str(count) if count >= 1 and now == int(now) else None
    moved = min(_HIGHEST, max(_LOWEST, now - _STEP if change is ChangeDirection.LOWER else now + _STEP))
    is_right_way = moved < now if change is ChangeDirection.LOWER else moved > now
    return f"{moved:.2f}".rstrip("0") if is_right_way else None


def _gigabytes(text: str) -> int:
    try:
        return -(-parse_size(text) // (1 << 30))
    except ValueError:
        return 8
