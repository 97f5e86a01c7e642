"""The one place that chooses between SSH and this very machine."""

from __future__ import annotations

from sparkctl.model.node import Node
from sparkctl.model.questions import NonInteractivePrompter, Prompter
from sparkctl.transport.node_connection import NodeConnection


def open_connection(node: Node, asker: Prompter | None = None) -> NodeConnection:
    """Return a link that is not connected yet. asyncssh is imported only for a node that needs it."""
    if node.is_local:
        from sparkctl.transport.local_connection import LocalConnection

        return LocalConnection(node)
    from sparkctl.transport.lean import import_asyncssh_fast

    import_asyncssh_fast()
    from sparkctl.transport.ssh.ssh_connection import SshConnection

    return SshConnection(node, asker if asker is not None else NonInteractivePrompter())
