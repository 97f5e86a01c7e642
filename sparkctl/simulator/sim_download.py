"""Simulated downloads: an image's layers as Docker tells them, and a container that runs `node/download.py`."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import AsyncIterator, Sequence
from typing import Any

from sparkctl.engines.simulation.engine_launch import list_model_files
from sparkctl.engines.simulation.script_player import ExitStep
from sparkctl.model.launch_plan import ContainerLabel
from sparkctl.simulator.http_server import ReadStream
from sparkctl.simulator.sim_container import SimContainer
from sparkctl.simulator.sim_node import IMAGE_BYTES, ByteSink, SimNode

BYTES_PER_SECOND = 300e6  # bytes/s, a good line
_LAYER_SHARES = (0.02, 0.08, 0.55, 0.3, 0.05)
_TICK_SECONDS = 2.0
_BUILD_STEP_SECONDS = 20.0


async def pull_layers(node: SimNode, name: str, tag: str) -> AsyncIterator[bytes]:
    """Yield what Docker says while it pulls an image; at the end the image exists."""
    layers = [
        (hashlib.sha256(f"{name} {at}".encode()).hexdigest()[:12], int(share * IMAGE_BYTES))
        for at, share in enumerate(_LAYER_SHARES)
    ]
    yield _encode({"status": f"Pulling from {name.partition(':')[0]}", "id": tag})
    yield b"".join(_encode({"status": "Pulling fs layer", "progressDetail": {}, "id": layer}) for layer, _ in layers)
    for layer, size in layers:
        done = 0
        while done < size:
            await node.pace.sleep(_TICK_SECONDS)
            done = min(size, done + int(BYTES_PER_SECOND * _TICK_SECONDS))
            yield _encode({"status": "Downloading", "progressDetail": {"current": done, "total": size}, "id": layer})
        yield _encode({"status": "Download complete", "progressDetail": {}, "id": layer})
        yield _encode({"status": "Pull complete", "progressDetail": {}, "id": layer})
    node.images.add_image(name, "sha256:" + hashlib.sha256(name.encode()).hexdigest())
    yield _encode({"status": f"Status: Downloaded newer image for {name}"})


def _encode(message: dict[str, Any]) -> bytes:
    return json.dumps(message).encode() + b"\r\n"


_BUILD_STEPS = (
    "FROM nvidia/cuda:13.0.1-devel-ubuntu24.04",
    "RUN pip install --no-cache-dir vllm",
    "COPY patches /patches",
)


async def run_build(node: SimNode, words: Sequence[str], size: int, stdin: ReadStream, stdout: ByteSink) -> int:
    """Answer as the script that runs `docker build`: its steps, then how it ended; then the image exists."""
    while size > 0 and (taken := await stdin.read(min(size, 1 << 16))):
        size -= len(taken)
    for at, step in enumerate(_BUILD_STEPS, 1):
        stdout.write(f"#{at + 4} [{at}/{len(_BUILD_STEPS)}] {step}\n".encode())
        await node.pace.sleep(_BUILD_STEP_SECONDS)
        stdout.write(f"#{at + 4} DONE {_BUILD_STEP_SECONDS:.1f}s\n".encode())
    given = dict(zip(words[::2], words[1::2], strict=False))
    name, label = given["--tag"], given["--label"]
    node.images.add_image(
        name, "sha256:" + hashlib.sha256(f"{name} {label}".encode()).hexdigest(), dict([label.split("=", 1)])
    )
    stdout.write(b"@@ ended 0\n")
    return 0


class SimDownload:
    """The one process of a container that downloads a model."""

    def __init__(self, node: SimNode, container: SimContainer) -> None:
        self.node, self.container = node, container
        self.pids = [node.spawn_process(container.id)]
        self.ready = asyncio.Event()
        self.ready.set()
        self._signal: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    @staticmethod
    def runs_in(container: SimContainer) -> bool:
        """Tell whether a container was made for a download."""
        return ContainerLabel.DOWNLOAD in container.labels

    @property
    def main_pid(self) -> int:
        """Its process."""
        return self.pids[0]

    @property
    def is_stopping(self) -> bool:
        """Tell whether it was asked to end."""
        return self._signal.done()

    def terminate(self) -> None:
        """Send SIGTERM."""
        if not self._signal.done():
            self._signal.set_result(143)

    def kill(self) -> None:
        """Send SIGKILL."""
        if not self._signal.done():
            self._signal.set_result(137)

    async def run(self) -> ExitStep:
        """Download until it is whole, or a signal comes."""
        request = json.loads(self.container.command[-1])
        place, done = str(request["target"]), 0
        total = sum(int(line.split()[1]) for line in list_model_files(place) if line.startswith("file "))
        self._say(files=9, total=total, have=0, revision="0" * 40)
        while done < total:
            sleeping = asyncio.ensure_future(self.node.pace.sleep(_TICK_SECONDS))
            waiting: set[asyncio.Future[Any]] = {sleeping, self._signal}
            await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            if self._signal.done():
                sleeping.cancel()
                return ExitStep(self._signal.result())
            if self.container.state == "paused":
                continue
            done = min(total, done + int(BYTES_PER_SECOND * _TICK_SECONDS))
            self._say(at=done, total=total)
        self.node.downloaded.add(place)
        self._say(done=True, files=9, total=total, revision="0" * 40)
        return ExitStep(0)

    def _say(self, **message: object) -> None:
        self.container.journal.write(json.dumps(message) + "\n", "stdout")
