"""Messages of torch and uvicorn that several simulated engines print."""

from __future__ import annotations

from sparkctl.engines.simulation.engine_launch import SimLaunch, SocketAddress
from sparkctl.engines.simulation.unified_memory import GIB


def cuda_oom_message(wanted: int, free: int, held: int) -> str:
    """Return torch's message for ``wanted`` bytes that a process with ``held`` bytes could not allocate."""
    return (
        f"CUDA out of memory. Tried to allocate {wanted / GIB:.2f} GiB. GPU 0 has a total capacity of 121.69 GiB of "
        f"which {free / GIB:.2f} GiB is free. Including non-PyTorch memory, this process has {held / GIB:.2f} GiB memory in use. "
        f"Of the allocated memory {max(0, held - GIB) / GIB:.2f} GiB is allocated by PyTorch, and 412.55 MiB is reserved by PyTorch but "
        "unallocated. If reserved but unallocated memory is large try setting "
        "PYTORCH_ALLOC_CONF=expandable_segments:True to avoid fragmentation."
    )


def port_in_use_message(launch: SimLaunch) -> str:
    """Return uvicorn's message for a port that is in use."""
    return f"ERROR:    [Errno 98] error while attempting to bind on address ('{launch.host}', {launch.port}): address already in use"


def pick_unknown_flag(launch: SimLaunch) -> str:
    """Return the flag to reject: the last one given."""
    return next((word for word in reversed(launch.argv) if word.startswith("--")), "--no-such-flag")


def format_address(place: SocketAddress) -> str:
    """Return an address and port as logs write them."""
    return f"{place[0]}:{place[1]}"


def store_timeout_message(seconds: float, have: int, of: int) -> str:
    """Return the message of torch's store on the head when workers are missing."""
    return (
        f"torch.distributed.DistStoreError: Timed out after {seconds + 1:.0f} seconds waiting for clients. "
        f"{have}/{of} clients joined."
    )


def head_unreachable_message(seconds: float, place: SocketAddress) -> str:
    """Return the message of torch's store on a worker that does not reach the head."""
    return (
        f"torch.distributed.DistNetworkError: The client socket has timed out after {seconds * 1000:.0f}ms while trying to "
        f"connect to ({place[0]}, {place[1]})."
    )


def gloo_closed_message(address: str) -> str:
    """Return Gloo's message about a rank whose process is gone."""
    return f"RuntimeError: [/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:538] Connection closed by peer [{address}]:41873"


def nccl_error_messages() -> tuple[str, str]:
    """Return NCCL's messages about a rank whose process is gone."""
    return (
        "torch.distributed.DistBackendError: NCCL error in: /pytorch/torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp:3699, "
        "remote process exited or there was a network error, NCCL version 2.28.9",
        "ncclRemoteError: A call failed possibly due to a network error or a remote process exiting prematurely.",
    )


def nccl_timeout_message(rank: int) -> str:
    """Return the message of torch's watchdog about a collective operation that does not end after the cable is cut."""
    return (
        f"[rank{rank}]:[E ProcessGroupNCCL.cpp:688] [Rank {rank}] Watchdog caught collective operation timeout: "
        "WorkNCCL(SeqNum=41, OpType=ALLREDUCE, NumelIn=6144, NumelOut=6144, Timeout(ms)=600000) ran for 600012 milliseconds "
        "before timing out."
    )
