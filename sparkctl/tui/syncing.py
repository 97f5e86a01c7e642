"""What is carried from one Spark to another: which way is asked, how far it is told in a line, and it can be ended."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sparkctl.model.events import Ended, Event, Moved
from sparkctl.model.node import NodeName
from sparkctl.present.spans import Tone
from sparkctl.tui.dialogs import Choice, paragraph

if TYPE_CHECKING:
    from sparkctl.tui.app import Panel


class Moves:
    """What is on its way now, the latest word of each."""

    def __init__(self) -> None:
        self._going: dict[tuple[NodeName, NodeName, str], Moved] = {}

    @property
    def going(self) -> tuple[Moved, ...]:
        """Each that is not through."""
        return tuple(self._going.values())

    def take(self, event: Event) -> bool:
        """Take in an event of whatever verb; tell whether there is news."""
        if isinstance(event, Moved):
            key = event.source, event.node, event.what
            self._going.pop(key, None)
            if event.total is None or event.done < event.total:
                self._going[key] = event
            return True
        return False

    def over(self, ended: Ended | None) -> None:
        """Forget what was on its way: its verb has ended, however it did."""
        del ended
        self._going.clear()


async def ask_and_sync(panel: Panel, profile: str) -> None:
    """Ask which way, and do it; where it goes on, whether to end it."""
    room = panel.room
    assert room is not None
    going = next((job for job in room.jobs.running if job.started.verb == "sync"), None)
    if going is not None:
        body = [
            *paragraph(f"sparkctl {' '.join(going.started.words)}", Tone.LABEL), (),
            *paragraph("It goes on. What has come stays, and the same goes on from there when it is asked for again."),
        ]  # fmt: skip
        whether = (("go on", "let it go on"), ("end", "end it"))
        if await room.dialogs.ask(Choice("sync", body, whether, Tone.ATTENTION)) == "end":
            going.started.context.interrupt.press()
        return
    names = panel.names
    first = panel.node or names[0]
    ways = [(first, other) for other in names if other != first]
    ways += [(other, first) for other in names if other != first]
    body = [
        *paragraph(f"Bring what {profile} needs, its image and the files of its model, from one Spark to another?", Tone.STRONG),
        (), *paragraph("Only what differs is sent, straight between them. A disk that cannot hold it is left alone."),
    ]  # fmt: skip
    arrow = ">" if panel.ascii_only else "→"
    choices = (
        ("cancel", "Cancel"),
        *((f"{source}\n{target}", f"{source} {arrow} {target}") for source, target in ways),
    )
    answer = await room.dialogs.ask(Choice(f"sync {profile}", body, choices))
    if answer is not None and "\n" in answer:
        source, target = answer.split("\n")
        panel.command(("sync", profile, "--from", source, "--to", target))
