"""Why a finding matters, a sentence for each kind: what its own words leave out."""

from __future__ import annotations

from sparkctl.model.finding import FindingKind as Kind

WHY: dict[Kind, str] = {
    Kind.STUCK_CLOCK: "At this clock it decodes at a fraction of its speed, however the engine is set.",
    Kind.SLOW_PATH: "Weights are unpacked to 16 bits for every step: what they save of memory is not gained in speed.",
    Kind.THERMAL: "A GPU that is too hot slows down, and the engine with it.",
    Kind.BUSY_WAIT: "It costs power and heat that the GPU could have, and no request is served by it.",
    Kind.SWAP: "An engine in swap answers in minutes, and the node may freeze without ever saying that memory is out.",
    Kind.PAGE_CACHE: "Engines ask what is free, and page cache is not: a start fails although there is room.",
    Kind.IDLE_FUNCTION: "The link has two functions that share its speed: with one idle, half of it is left unused.",
    Kind.FABRIC_ROUTE: "Two Sparks that work together would talk over the slow network.",
    Kind.GID: "With another GID than its partner's, RDMA fails or falls back to TCP.",
    Kind.RDMA_OFF: "Without RDMA, what two Sparks send each other goes through the CPU.",
    Kind.DISK: "A full disk stops Docker, logs and the download of models.",
    Kind.ORPHAN: "It holds memory that the next start is going to miss.",
    Kind.RESTART_LOOP: "Each of its starts takes the memory and the disk from whatever else runs.",
    Kind.NOT_GENERATING: "It takes requests and answers none: its clients wait for nothing.",
    Kind.PARTNER: "A model on several Sparks answers only with all of them; what is left alone holds its memory for nothing.",
    Kind.MIN_FREE: "What the kernel keeps for itself, no engine can have.",
    Kind.SWAPPINESS: "Page cache is read again in seconds; an engine that was swapped out crawls.",
    Kind.EARLYOOM: "It has to act before the kernel does, and not before an engine is in trouble.",
    Kind.DIFFERENCE: "Engines that span two Sparks fail on unlike drivers, and figures do not compare.",
    Kind.SETTINGS: "What is set and what is written down should be the same, or a restart changes it.",
    Kind.KHO: "That memory is lost to every engine until the node is started without it.",
    Kind.VERSIONS: "What an engine supports depends on them; a bug report begins with them.",
    Kind.CONNECTION: "Everything sparkctl does on a node goes through this one SSH connection.",
    Kind.CLOCK: "Logs of two nodes are merged by their clocks, and `--since` counts by the node's.",
    Kind.MEMORY: "The GPU has no memory of its own: what is available here is all there is.",
    Kind.DROP_CACHES: "Before a start the page cache is dropped, or the engine finds too little memory.",
    Kind.PYTHON: "The live figures come from a small program that needs it on the node.",
    Kind.DOCKER: "Engines run in its containers.",
    Kind.GPU: "Without it a container starts and finds no GPU.",
    Kind.NVIDIA_SMI: "It says which process holds how much of the GPU's memory.",
    Kind.MODELS: "Profiles mount models from there.",
    Kind.FABRIC: "A model over several Sparks is as fast as the slowest lane between them.",
    Kind.RDMA: "With it what two Sparks send each other goes past the CPU; NCCL has to find it at its GID index.",
}  # fmt: skip


def explain_finding(check: str) -> str | None:
    """Return why a check matters; None for one that this version does not know."""
    return WHY[Kind(check)] if check in set(Kind) else None
