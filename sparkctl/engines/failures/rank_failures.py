"""Failure rules for ranks of a model that lost each other, as NCCL, Gloo, torch's store and Ray report it."""

from __future__ import annotations

from sparkctl.engines.base import FailureWeight
from sparkctl.engines.log_rules import EXCEPTION_PREFIX, failure_rule
from sparkctl.model.verdict import FailureCause

_CHECK_OTHER_NODE = "Look at the log of the other node and at the link between the two."

RANK_FAILURES = (
    failure_rule(
        r"(?P<count>\d+) Workers? \(tasks / actors\) killed due to memory pressure \(OOM\)(?:.*?IP: (?P<ip>[\w.:]+))?"
        r"|^(?:[\w.]+\.)?OutOfMemoryError: Task was killed due to the node running low on memory"
        r"|exceeds the memory usage threshold of (?P<share>[\d.]*\d).*Ray killed this worker",
        FailureCause.RAY,
        "Ray's memory monitor killed a worker[ on {ip}][: over {share} of the node's memory was in use].",
        "On a Spark it counts the model's own memory: set env.RAY_memory_monitor_refresh_ms: 0 on every node, and leave the "
        "watch to sparkctl's guard.",
        needle=("killed due to", "Ray killed this worker"),
        on="env.RAY_memory_monitor_refresh_ms",
        to="0",
    ),
    failure_rule(
        rf"{EXCEPTION_PREFIX}.*(?:Ray does not allocate any GPUs|Current node has no GPU available|Ray is not (?:initialized|installed)"
        r"|Cannot provide a placement group|available GPUs in the placement group|No available node types can fulfill"
        r"|Could not connect to Ray|Failed to connect to (?:Ray|GCS)|Ray cluster)"
        r"|^(?:[\w.]+\.)?ConnectionError: Could not find any running Ray instance",
        FailureCause.RAY,
        "Ray could not place the model's workers on the nodes.",
        "Look at `ray status` in the head's container: every Spark has to be there with its GPU. Without Ray: "
        "args.distributed-executor-backend: mp with nnodes and node-rank.",
        needle=(
            "Ray does not allocate any GPUs",
            "Current node has no GPU available",
            "Ray is not ",
            "placement group",
            "No available node types can fulfill",
            "Could not connect to Ray",
            "Failed to connect to ",
            "Ray cluster",
            "Could not find any running Ray instance",
        ),
        on="args.distributed-executor-backend",
    ),
    failure_rule(
        r"^(?:ray\.(?:exceptions\.)?)?(?P<what>(?:ActorDiedError|ActorUnavailableError|WorkerCrashedError|NodeDiedError"
        r"|RaySystemError|RayActorError)[:(].*)|RayWorkerProc rank=(?P<rank>\d+) died unexpectedly"
        r"|\(raylet\).*(?P<said>The node with node id.*marked dead|raylet.*died)",
        FailureCause.RAY,
        "Ray lost a worker[ (rank {rank})][: {what}][: {said}].",
        _CHECK_OTHER_NODE,
        needle=(
            "(raylet)",
            "ActorDiedError",
            "ActorUnavailableError",
            "NodeDiedError",
            "RayActorError",
            "RaySystemError",
            "RayWorkerProc rank=",
            "WorkerCrashedError",
        ),
        weight=FailureWeight.DEATH,
    ),
    failure_rule(
        r"Some Ray subprocesses exited unexpectedly",
        FailureCause.RAY,
        "Ray ended on this node: a worker's does where the head is gone, or the way to it.",
        _CHECK_OTHER_NODE,
        needle="Some Ray subprocesses exited unexpectedly",
        weight=FailureWeight.DEATH,
    ),
    failure_rule(
        r"DistStoreError: Timed out after (?P<seconds>\d+) seconds waiting for clients\. (?P<have>\d+)/(?P<of>\d+) clients"
        r"|The client socket has (?:timed out after|failed to connect)(?:.*?connect to \(?(?P<peer>[\w.:]+), \d+)?",
        FailureCause.WORKER_LOST,
        "The other node of this model did not come[: {have} of {of} joined within {seconds} s][: no answer from {peer}].",
        "Start the model on both nodes at about the same time, and check that args.dist-init-addr (master-addr) is reachable "
        f"from the other. {_CHECK_OTHER_NODE}",
        needle=("DistStoreError: Timed out after", "The client socket has"),
        weight=FailureWeight.DEATH,
    ),
    failure_rule(
        r"Watchdog caught collective operation timeout: WorkNCCL\((?:.*?OpType=(?P<op>\w+))?|NCCL error in: (?P<where>\S+)"
        rf"|{EXCEPTION_PREFIX}.*NCCL (?:error|operation)|^(?:[\w.]+: )?(?P<code>nccl(?:SystemError|InternalError|RemoteError"
        r"|UnhandledCudaError|InvalidUsage))\b|NCCL WARN (?!NET/IB ?: Got completion)(?P<warn>.*)",
        FailureCause.NCCL,
        "NCCL, by which the ranks talk to each other, failed[ ({code})][ (in {op})][: {warn}].",
        "Check the link between the nodes (sparkctl doctor), NCCL_SOCKET_IFNAME, NCCL_IB_HCA and GLOO_SOCKET_IFNAME on both. "
        f"{_CHECK_OTHER_NODE}",
        needle=(
            "InternalError",
            "InvalidUsage",
            "NCCL error",
            "NCCL operation",
            "NCCL WARN ",
            "RemoteError",
            "SystemError",
            "UnhandledCudaError",
            "Watchdog caught collective operation timeout: WorkNCCL(",
        ),
        weight=FailureWeight.DEATH,
    ),
    failure_rule(
        r"Gloo connectFullMesh failed|\bgloo\b.*(?:Connection refused|[Tt]imed out|[Uu]nable to find address for: (?P<name>\S+))",
        FailureCause.NCCL,
        "The ranks could not reach each other (Gloo)[: no address for {name}].",
        f"Set env.GLOO_SOCKET_IFNAME to the link's interface on both nodes. {_CHECK_OTHER_NODE}",
        needle=("Gloo connectFullMesh failed", "gloo"),
        on="env.GLOO_SOCKET_IFNAME",
        weight=FailureWeight.DEATH,
    ),
    failure_rule(
        r"^Root Cause \(first observed failure\):",
        FailureCause.WORKER_LOST,
        "A rank of this model ended, by the word of torch's launcher.",
        "The lines of that rank before this one, or its own log, say why.",
        needle="Root Cause (first",
        weight=FailureWeight.DYING,
    ),
    failure_rule(
        r"Connection closed by peer \[(?P<peer>[^\]]*)\]",
        FailureCause.WORKER_LOST,
        "The other node ({peer}) closed the connection.",
        "It ended first: its own log says why.",
        needle="Connection closed by peer",
        weight=FailureWeight.DEATH,
    ),
)
