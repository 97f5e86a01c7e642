"""An image on its way: ``docker save`` on one node, ``docker load`` on the other, nothing of it on a disk in between."""

from __future__ import annotations

from typing import Any

from sparkctl.commands.transfer.transfer_files import TransferReporter
from sparkctl.commands.transfer.transfer_stream import RouteUnreachable, TransferRoute, open_transfer_stream
from sparkctl.errors import DockerError, SparkctlError
from sparkctl.model.sanitize import sanitize_line
from sparkctl.transport.docker.docker_errors import error_for_response
from sparkctl.transport.docker.docker_responses import ImageInfo
from sparkctl.transport.session import Session


async def transfer_image(
    near: Session, far: Session, name: str, image: ImageInfo, road: TransferRoute, progress: TransferReporter
) -> str:
    """Bring an image over and prove that it is the same on both; return the proof in words. Raises `DockerError`."""
    progress.begin(f"image {name}", image.size)
    job = {"n": 0, "image": name}
    try:
        await _stream(near, far, job, road, progress)
    except RouteUnreachable:
        progress.warn(
            f"{near.node.name} does not reach {far.node.name} between them: the image goes through this machine"
        )
        await _stream(near, far, job, TransferRoute(), progress)
    arrived = await far.docker.inspect_image(name)
    if arrived is None or not arrived.is_same_image(image):
        seen = "it is not there" if arrived is None else f"there it is {arrived.id[:19]}, here {image.id[:19]}"
        raise DockerError(
            far.node.name, f"{name} did not arrive on {far.node.name} as it left: {seen}",
            f"on {far.node.name}: docker pull {name}",
        )  # fmt: skip
    if image.size is not None:
        progress.at(image.size, is_last=True)  # the stream itself is a little longer or shorter
    return f"the image is {arrived.id[:19]} on both"


async def _stream(
    near: Session, far: Session, job: dict[str, Any], road: TransferRoute, progress: TransferReporter
) -> None:
    ended: dict[str, tuple[int, str]] = {}
    refused: list[str] = []
    async with open_transfer_stream(near, far, ([job], [job]), road, 1) as pair:
        async for side, said in pair.read_messages():
            if "at" in said:
                progress.at(said["at"])
            if "status" in said:
                ended[side] = int(said["status"]), sanitize_line(str(said.get("said", "")))
                refused += [sanitize_line(str(name)) for name in said.get("refused") or ()]
            if "got" in said:
                await pair.send_to_receiver(end=True)
    for side, session, what in (("send", near, "docker save"), ("take", far, "docker load")):
        status, words = ended.get(side, (0, ""))
        if status:
            node = session.node.name
            raise _failed(node, what, words or f"exit {status}")
    if refused:
        raise DockerError(
            far.node.name,
            f"{near.node.name} sent more than the image {job['image']}: {', '.join(refused[:5])}; all of it was put back on "
            f"{far.node.name} to what it was before",
            f"docker save of one image never does that: see what Docker on {near.node.name} is, and who can change it",
        )


def _failed(node: str, what: str, words: str) -> SparkctlError:
    """Return the error of a docker command that failed."""
    known = error_for_response(node, 0, words)
    return type(known)(node, f"{what} failed on {node}: {words}", known.hint)
