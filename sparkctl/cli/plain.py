"""``sparkctl --plain``: the panel as sentences, one for each change. For screen readers, and for a log of the day."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator
from contextlib import aclosing
from pathlib import Path

from sparkctl.cli import loop, output
from sparkctl.cli.drive import until_stopped
from sparkctl.cli.setup import chosen_nodes, make_context
from sparkctl.core.store import LoadView
from sparkctl.present.changes import Teller


def listen(replay: Path | None = None) -> int:
    """Tell what changes until Ctrl-C, or the end of a recording."""
    if replay is not None:
        from sparkctl.core.clock import SystemClock
        from sparkctl.core.recording import read
        from sparkctl.operations import replay as playing

        looks = playing.replay(SystemClock(), read(replay))
    else:
        from sparkctl.operations.top import watch

        context, nodes = make_context(), chosen_nodes(())
        output.text(_line(context.clock.now(), f"connecting to {' and '.join(node.name for node in nodes)}"))
        looks = watch(context, nodes)
    loop.run(until_stopped(_tell(looks)))
    return 0


async def _tell(looks: AsyncGenerator[tuple[LoadView, ...], None]) -> None:
    teller = Teller()
    async with aclosing(looks):
        async for views in looks:
            for view in views:
                for sentence in teller.tell(view):
                    output.text(_line(view.when, sentence))


def _line(when: float, sentence: str) -> str:
    return f"{time.strftime('%H:%M:%S', time.localtime(when))}  {sentence}"
