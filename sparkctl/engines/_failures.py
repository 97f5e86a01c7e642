"""Failure lines that every engine can print, because torch, the model hub, argparse or the kernel word them."""

from __future__ import annotations

from sparkctl.engines._vocabulary import Rule, rule
from sparkctl.engines.base import Weight
from sparkctl.model.verdict import Cause

# The end of a traceback: the exception's name begins the line, or is the reason another line gives first.
ERROR = r"^(?:[\w.]+: )?(?:[A-Za-z_][\w.]*)?(?:Error|Exception): "


def cuda_memory(lower: str, on: str | None, *, fatal: bool) -> tuple[Rule, ...]:
    """Return the rules for CUDA memory that ran out; ``lower`` is what to make smaller, ``on`` its profile field."""
    remedy = f"{lower} Drop the page caches before the start, and stop whatever else holds memory on the node."
    cause = Cause.CUDA_OUT_OF_MEMORY
    numbers = (
        r"CUDA out of memory\. Tried to allocate (?P<size>[\d.]+ \w+)(?:.*? of which (?P<free>[\d.]+ \w+) is free)?"
    )
    summary = "CUDA ran out of memory: it tried to allocate {size}[ and {free} was free]."
    rejected = r"CUDA out of memory\. Allocation was preemptively rejected"
    other = (
        r"CUDA (?:driver )?error: out of memory|Triton Error \[CUDA\]: out of memory|cudaErrorMemoryAllocation"
        r"|CUBLAS_STATUS_ALLOC_FAILED|cudaMalloc failed: out of memory"
    )
    said = "CUDA ran out of memory."
    return (
        rule(rf"OutOfMemoryError: {numbers}", cause, summary, remedy, needle="OutOfMemoryError", on=on, fatal=fatal),
        rule(rf"^{numbers}", cause, summary, remedy, needle="CUDA out of memory", on=on),
        rule(rf"{ERROR}.*{rejected}", cause, said, remedy, needle="preemptively", on=on, fatal=fatal),
        rule(rf"{ERROR}.*(?:{other})", cause, said, remedy, needle="rror: ", on=on, fatal=fatal),
    )


_MODEL = (
    rule(
        r"Repo id must be in the form '[^']*' or '[^']*': '(?P<path>[^']*)'",
        Cause.MODEL_NOT_FOUND,
        "There is no {path} in the container.",
        "Correct model.path, or the mount that should bring it in.",
        needle="Repo id must be",
        on="model.path",
    ),
    rule(
        r"GatedRepoError|(?:401|403) Client Error|Cannot access gated repo|You are trying to access a gated repo"
        r"|Access to model (?P<model>\S+) is restricted",
        Cause.MODEL_GATED,
        "The model hub does not let you have this model[ ({model})].",
        "Accept the model's licence on the hub and set env.HF_TOKEN to a token of that account.",
        needle="",
        on="env.HF_TOKEN",
    ),
    rule(
        r"LocalEntryNotFoundError: |We couldn't connect to '(?P<hub>[^']*)' to load",
        Cause.MODEL_NOT_FOUND,
        "The model is not on the node, and the hub[ {hub}] could not be asked for it.",
        "Download the model beforehand and mount it, or give the container a way to the hub (HF_HUB_OFFLINE unset).",
        needle="o",
        on="model.path",
    ),
    rule(
        r"RepositoryNotFoundError|RevisionNotFoundError|404 Client Error.*huggingface",
        Cause.MODEL_NOT_FOUND,
        "The hub has no such model.",
        "Correct model.path; for a private model set env.HF_TOKEN.",
        needle="rror",
        on="model.path",
    ),
    rule(
        r"Invalid repository ID or local directory specified: '(?P<path>[^']*)'",
        Cause.MODEL_NOT_FOUND,
        "{path} is no model: it has no config.json that the engine can read.",
        "Correct model.path, or finish the download.",
        needle="Invalid repository ID",
        on="model.path",
    ),
    rule(
        rf"{ERROR}Unrecognized model in (?P<path>\S+?)\. ",
        Cause.MODEL_UNSUPPORTED,
        "The config.json in {path} names no model type that this image knows.",
        "Finish the download, correct model.path, or take a newer image.",
        needle="Unrecognized model",
        on="model.path",
    ),
    rule(
        r"Cannot find any model weights with [`'](?P<path>[^`']*)",
        Cause.MODEL_NOT_FOUND,
        "{path} holds no weights.",
        "Finish the download: only the small files are there.",
        needle="Cannot find any model weights",
        on="model.path",
    ),
    rule(
        r"Couldn't instantiate the backend tokenizer|Can't load tokenizer for",
        Cause.MODEL_NOT_FOUND,
        "The model's tokenizer files are missing.",
        "Finish the download: tokenizer.json or its like is not there.",
        needle="okenizer",
        on="model.path",
    ),
    rule(
        rf"{ERROR}.*(?:contains custom code which must be executed|[Pp]lease pass the argument `trust_remote_code=True`"
        r"|consider setting `trust_remote_code=True`)",
        Cause.TRUST_REMOTE_CODE,
        "The model brings code of its own, which the engine may not run.",
        "If you trust the model's author, set args.trust-remote-code: true.",
        needle="trust_remote_code",
        on="args.trust-remote-code",
    ),
    rule(
        r"Model architectures (?P<names>\[[^\]]*\]) (?:are not supported|failed to be inspected)",
        Cause.MODEL_UNSUPPORTED,
        "This image does not support the model's architecture {names}.",
        "Take a newer image.",
        needle="Model architectures",
        on="image",
    ),
    rule(
        r"Cannot find the config file for (?P<kind>\w+)",
        Cause.UNKNOWN_FLAG,
        "The model is not quantized as {kind}.",
        "Remove args.quantization or give the kind the weights were made with.",
        needle="Cannot find the config file for",
        on="args.quantization",
    ),
)

_MACHINE = (
    rule(
        r"NVIDIA driver on your system is too old|CUDA driver version is insufficient|forward compatibility was attempt"
        r"|requirement error: unsatisfied condition: (?P<wants>\S+)|system has unsupported display driver"
        r"|Error 803",
        Cause.DRIVER_MISMATCH,
        "The node's NVIDIA driver is too old for this image[ (it wants {wants})].",
        "Update the node (DGX OS), or take an image built for its CUDA version.",
        needle="r",
        on="image",
    ),
    rule(
        r"exec format error|[Ee]xec format error",
        Cause.IMAGE_ARCH,
        "The image holds programs of another processor: a Spark is arm64.",
        "Take an image built for linux/arm64.",
        needle="xec format error",
        on="image",
        fatal=True,
    ),
    rule(
        rf"{ERROR}.*no kernel image is available for execution",
        Cause.KERNEL_UNSUPPORTED,
        "The image has no GPU code for the GB10 (compute capability 12.1).",
        "Take an image built for sm_121.",
        needle="no kernel image",
        on="image",
    ),
    rule(
        r"ptxas fatal\s*: Value '(?P<arch>sm_\w+)' is not defined",
        Cause.KERNEL_UNSUPPORTED,
        "The image's ptxas does not know {arch}.",
        "Set env.TRITON_PTXAS_PATH: /usr/local/cuda/bin/ptxas, or take a newer image.",
        needle="ptxas fatal",
        on="env.TRITON_PTXAS_PATH",
    ),
    rule(
        rf"{ERROR}.*(?:an illegal instruction was encountered|cudaErrorIllegalInstruction)",
        Cause.KERNEL_UNSUPPORTED,
        "A GPU kernel of this image uses an instruction that the GB10 lacks.",
        "Choose another backend for the MoE or FP4 kernels, or take a newer image.",
        needle="llegal",
        on="image",
    ),
    rule(
        r"No space left on device",
        Cause.DISK_FULL,
        "A disk is full on the node, or the container's shared memory is.",
        "Free space (df -h on the node); if /dev/shm is meant, raise container.shm_size.",
        needle="No space left on device",
        on="container.shm_size",
    ),
    rule(
        r"can't allocate memory: you tried to allocate (?P<size>\d+) bytes|^MemoryError\b|std::bad_alloc",
        Cause.STARTUP_MEMORY_CHECK,
        "The node had no memory left to give[: {size} bytes were asked for].",
        "Stop what else holds memory on the node, or make the model's memory smaller.",
        needle="a",
    ),
    rule(
        r"Watchdog caught collective operation timeout|DistStoreError: |NCCL error in: |ncclSystemError"
        r"|ncclInternalError|ncclRemoteError|Connection closed by peer"
        r"|The client socket has timed out after|Gloo connectFullMesh failed",
        Cause.WORKER_LOST,
        "The other node of this model did not answer.",
        "Look at the log of the other node and at the link between the two.",
        needle="e",
        weight=Weight.DEATH,
    ),
    rule(
        r"^(?:ERROR:\s+|[\w.]*Error: )?\[Errno 98\]|^[\w.]*Error: .*[Aa]ddress already in use"
        r"|couldn't bind HTTP server socket",
        Cause.PORT_IN_USE,
        "The port is in use by another process.",
        "Stop the other process (ss -ltnp on the node shows it), or choose another port.",
        needle="",
        on="port",
        fatal=True,
    ),
)

_PROGRAM = (
    rule(
        r"^[\w./ -]{1,80}: error: (?P<what>(?:unrecognized arguments|ambiguous option): --?(?P<flag>[\w.-]+).*)",
        Cause.UNKNOWN_FLAG,
        "The engine refused its flags: {what}",
        "Correct or remove args.{flag}: this image does not know it.",
        needle=": error: ",
        on="args.{flag}",
        fatal=True,
    ),
    rule(
        r"^[\w./ -]{1,80}: error: (?P<what>argument (?:-\w+/)?--?(?P<flag>[\w.-]+)\S*: .*)",
        Cause.UNKNOWN_FLAG,
        "The engine refused a flag's value: {what}",
        "Correct args.{flag}.",
        needle=": error: argument ",
        on="args.{flag}",
        fatal=True,
    ),
    rule(
        r"^[\w./ -]{1,80}: error: "
        r"(?P<what>(?:the following arguments are required|unrecognized arguments|argument ).*)",
        Cause.UNKNOWN_FLAG,
        "The engine refused its command line: {what}",
        "Correct args or command.",
        needle=": error: ",
        on="args",
        fatal=True,
    ),
    rule(
        r"No module named '?(?P<name>sglang|vllm)\b",
        Cause.CRASHED,
        "The image does not hold {name}.",
        "Correct image or engine.",
        needle="No module named",
        on="image",
    ),
    rule(
        r"^Fatal Python error: (?P<what>.*)",
        Cause.CRASHED,
        "Python crashed: {what}",
        "The lines after it say where; a newer or older image may not do it.",
        needle="Fatal Python error",
        weight=Weight.DEATH,
    ),
    rule(
        r"^(?P<what>(?:[A-Za-z_]\w*\.)*[A-Za-z_]\w*(?:Error|Exception): .*)",
        Cause.CRASHED,
        "The engine stopped on an error: {what}",
        "Read the log around this line.",
        needle=": ",
        weight=Weight.EXCEPTION,
    ),
    rule(
        r"^(?P<what>(?:AssertionError|KeyboardInterrupt|NotImplementedError|RuntimeError))$",
        Cause.CRASHED,
        "The engine stopped on an error: {what}",
        "Read the log around this line.",
        needle="rror",
        weight=Weight.EXCEPTION,
    ),
)

COMMON = _MODEL + _MACHINE + _PROGRAM
