"""Sentences of torch, Gloo and NCCL, by which ranks of any engine say that they have lost each other."""

from __future__ import annotations

from sparkctl.engines.simulation.joining import SocketAddress


def format_address(place: SocketAddress) -> str:
    """Return a place as logs write it."""
    return f"{place[0]}:{place[1]}"


def store_timeout_message(seconds: float, have: int, of: int) -> str:
    """Return what torch's store says at the head when workers are missing."""
    return (
        f"torch.distributed.DistStoreError: Timed out after {seconds + 1:.0f} seconds waiting for clients. "
        f"{have}/{of} clients joined."
    )


def head_unreachable_message(seconds: float, place: SocketAddress) -> str:
    """Return what torch's store says at a worker that does not reach the head."""
    return (
        f"torch.distributed.DistNetworkError: The client socket has timed out after {seconds * 1000:.0f}ms while trying to "
        f"connect to ({place[0]}, {place[1]})."
    )


def gloo_closed_message(address: str) -> str:
    """Return what Gloo says of a rank whose process is gone."""
    return f"RuntimeError: [/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:538] Connection closed by peer [{address}]:41873"


def nccl_error_messages() -> tuple[str, str]:
    """Return what NCCL says of a rank whose process is gone."""
    return (
        "torch.distributed.DistBackendError: NCCL error in: /pytorch/torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp:3699, "
        "remote process exited or there was a network error, NCCL version 2.28.9",
        "ncclRemoteError: A call failed possibly due to a network error or a remote process exiting prematurely.",
    )


def nccl_timeout_message(rank: int) -> str:
    """Return what torch's watchdog says of a collective operation that does not end, since the cable is gone."""
    return (
        f"[rank{rank}]:[E ProcessGroupNCCL.cpp:688] [Rank {rank}] Watchdog caught collective operation timeout: "
        "WorkNCCL(SeqNum=41, OpType=ALLREDUCE, NumelIn=6144, NumelOut=6144, Timeout(ms)=600000) ran for 600012 milliseconds "
        "before timing out."
    )
