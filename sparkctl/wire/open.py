"""The one place that chooses between SSH and this very machine."""

from __future__ import annotations

from sparkctl.model.ask import Asker, Nobody
from sparkctl.model.node import Node
from sparkctl.wire.link import Link


def open_link(node: Node, asker: Asker | None = None) -> Link:
    """Return a link that is not connected yet. asyncssh is imported only for a node that needs it."""
    if node.is_local:
        from sparkctl.wire.local import LocalLink

        return LocalLink(node)
    from sparkctl.wire.lean import import_asyncssh

    import_asyncssh()
    from sparkctl.wire.ssh import SshLink

    return SshLink(node, asker if asker is not None else Nobody())
