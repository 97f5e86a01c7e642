"""Before a start: check that its port can be reached over the connection to its node, so that the start can be
watched.
"""

from __future__ import annotations

import asyncio

from sparkctl.errors import OperationRefused
from sparkctl.model.launch_plan import LaunchPlan
from sparkctl.transport.node_session import NodeSession

_LOOPBACK = "127.0.0.1"
_CONNECT_TIMEOUT_SECONDS = 5.0  # seconds; on its own loopback a node answers at once


async def verify_port_access(session: NodeSession, plan: LaunchPlan) -> None:
    """Open a connection to the port and close it again; a refused connection is fine, because nothing listens there
    yet.

    Raises:
        ForwardingForbidden: sshd forwards no connection to it.
        OperationRefused: nothing answers, not even with a refusal.
    """
    service = plan.readiness_target
    is_asked = service.ready.health is not None or service.ready.probe != "none"
    if plan.rank != 0 or service.port is None or not is_asked:
        return
    try:
        async with asyncio.timeout(_CONNECT_TIMEOUT_SECONDS):
            _, writer = await session.link.open_tcp(_LOOPBACK, service.port)
        writer.close()
    except ConnectionRefusedError:
        return
    except TimeoutError as silent:
        node = session.node.name
        raise OperationRefused(
            f"port {service.port} of {node} does not answer on its own loopback, so the start could not be watched",
            f"a firewall on {node} may drop it: sudo iptables -S; or take another port: --set port=PORT",
        ) from silent
