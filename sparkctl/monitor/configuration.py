"""Asking a node who it is and how it is set, through the probe."""

from __future__ import annotations

import asyncio
from contextlib import aclosing

from sparkctl.errors import AgentFailed
from sparkctl.model.events import SampleArrived
from sparkctl.model.sample import Sample
from sparkctl.monitor.sampler import NodeSampler
from sparkctl.node.agent_decoder import AgentHello
from sparkctl.transport.session import Session

_WITHIN = 10.0


async def read_identity_and_sample(session: Session) -> tuple[AgentHello, Sample] | None:
    """Return who a node is and its second sample: whose a process of the GPU is, the first does not know yet.

    None where the probe does not run there or says nothing in time.
    """
    sampler = NodeSampler(session, every=0.5, disks=())
    try:
        async with asyncio.timeout(_WITHIN), aclosing(sampler.stream_samples()) as events:
            async for event in events:
                if isinstance(event, SampleArrived) and event.sample.sequence >= 2 and sampler.identity is not None:
                    return sampler.identity, event.sample
    except (TimeoutError, AgentFailed):
        return None
    return None
