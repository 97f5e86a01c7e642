"""What is carried from one Spark to another: which way is asked, how far it is told in a line, and it can be ended."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sparkctl.model.events import CommandEnded, Event, TransferProgressed
from sparkctl.model.node import NodeName
from sparkctl.tui.dialogs.base import ChoiceDialog, wrap_paragraph
from sparkctl.views.text.styled_text import TextStyle

if TYPE_CHECKING:
    from sparkctl.tui.app import PanelApp


class TransferTracker:
    """What is on its way now, the latest word of each."""

    def __init__(self) -> None:
        self._going: dict[tuple[NodeName, NodeName, str], TransferProgressed] = {}

    @property
    def running_transfers(self) -> tuple[TransferProgressed, ...]:
        """Each that is not through."""
        return tuple(self._going.values())

    def apply_event(self, event: Event) -> bool:
        """Take in an event of whatever verb; tell whether there is news."""
        if isinstance(event, TransferProgressed):
            key = event.source, event.node, event.what
            self._going.pop(key, None)
            if event.total is None or event.done < event.total:
                self._going[key] = event
            return True
        return False

    def clear(self, ended: CommandEnded | None) -> None:
        """Forget what was on its way: its verb has ended, however it did."""
        del ended
        self._going.clear()


async def ask_and_start_transfer(panel: PanelApp, profile: str) -> None:
    """Ask which way, and do it; where it goes on, whether to end it."""
    room = panel.room
    assert room is not None
    going = next((job for job in room.jobs.running if job.started.verb == "sync"), None)
    if going is not None:
        body = [
            *wrap_paragraph(f"sparkctl {' '.join(going.started.words)}", TextStyle.LABEL), (),
            *wrap_paragraph("It goes on. What has come stays, and the same goes on from there when it is asked for again."),
        ]  # fmt: skip
        whether = (("go on", "let it go on"), ("end", "end it"))
        if await room.dialogs.show_dialog(ChoiceDialog("sync", body, whether, TextStyle.ATTENTION)) == "end":
            going.started.context.interrupt.press()
        return
    names = panel.names
    first = panel.node or names[0]
    ways = [(first, other) for other in names if other != first]
    ways += [(other, first) for other in names if other != first]
    body = [
        *wrap_paragraph(
            f"Bring what {profile} needs, its image and the files of its model, from one Spark to another?",
            TextStyle.STRONG,
        ),
        (),
        *wrap_paragraph("Only what differs is sent, straight between them. A disk that cannot hold it is left alone."),
    ]
    arrow = ">" if panel.ascii_only else "→"
    choices = (
        ("cancel", "Cancel"),
        *((f"{source}\n{target}", f"{source} {arrow} {target}") for source, target in ways),
    )
    answer = await room.dialogs.show_dialog(ChoiceDialog(f"sync {profile}", body, choices))
    if answer is not None and "\n" in answer:
        source, target = answer.split("\n")
        panel.run_command_line(("sync", profile, "--from", source, "--to", target))
