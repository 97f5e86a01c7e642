"""Containers that a switch has stopped and keeps: they have not failed, and are started again should the new one fail. Pure."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

from sparkctl.model.instance import InstanceView
from sparkctl.model.phase import Phase
from sparkctl.model.switch_plan import SwitchJournalStatus, SwitchStep

_BACK = (SwitchStep.RESTORING, SwitchStep.RESTORED)


def list_rollback_containers(view: SwitchJournalStatus | None) -> tuple[str, ...]:
    """Return the ids of the containers that a journal keeps; of a way back that broke off none, as one that is down then may
    have failed."""
    if view is None or view.journal is None or (view.journal.step in _BACK and not view.is_held):
        return ()
    return tuple(container for _, container in view.journal.old)


def mark_rollback_containers(instances: Sequence[InstanceView], kept: Collection[str]) -> tuple[InstanceView, ...]:
    """Return a node's instances, those that ended because a switch stopped them as what they are."""
    return tuple(
        replace(one, phase=Phase.STOPPED, step=None, detail=None, is_kept=True)
        if one.ours and not one.is_alive and one.container_id in kept
        else one
        for one in instances
    )
