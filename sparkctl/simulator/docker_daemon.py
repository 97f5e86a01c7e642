"""The daemon behind the simulated Docker API: creates, runs, ends and removes containers."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence

from sparkctl.engines.simulation.rank_network import RankNetwork
from sparkctl.simulator.engine_process import EngineProcess
from sparkctl.simulator.sim_container import JsonBody, SimContainer
from sparkctl.simulator.sim_download import SimDownload
from sparkctl.simulator.sim_node import NodeFault, SimNode

SIGKILL_EXIT_CODE = 137
_MAX_PAST_EVENTS = 256  # events that a daemon remembers
GPU_RUNTIME_MISSING_MESSAGE = 'could not select device driver "" with capabilities: [[gpu]]'


class DockerApiError(Exception):
    """An error answer: a status code and Docker's message."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class SimDockerDaemon:
    """The daemon of one node."""

    def __init__(self, node: SimNode, fabric: RankNetwork) -> None:
        self.node = node
        self.fabric = fabric
        self.containers: dict[str, SimContainer] = {}  # by id, oldest first
        self.running: dict[str, EngineProcess | SimDownload] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._past_events: list[JsonBody] = []
        self._listeners: set[asyncio.Queue[JsonBody]] = set()
        self._reaping: set[asyncio.Task[None]] = set()
        self.visitors: Callable[[EngineProcess], Awaitable[None]] | None = (
            None  # callbacks for an engine that becomes ready
        )

    async def close(self) -> None:
        """End every process at once, as a power cut does."""
        while self._tasks:  # one that was about to end frees its memory in another task
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)

    def find_container(self, key: str) -> SimContainer:
        """Return a container by name, id or the beginning of its id; 404 if there is none."""
        for one in self.containers.values():
            if key.lstrip("/") == one.name or key == one.id:
                return one
        begun = [one for one in self.containers.values() if one.id.startswith(key)]
        if len(begun) != 1:
            raise DockerApiError(404, f"No such container: {key}")
        return begun[0]

    def create_container(self, name: str | None, body: JsonBody) -> SimContainer:
        """Create a container; 404 if the image is missing, 409 if the name is taken."""
        image = str(body.get("Image", ""))
        if not self.node.images.has_image(image):
            raise DockerApiError(404, f"No such image: {image}")
        container_id = f"{self.node.random.getrandbits(256):064x}"
        name = name or f"quiet_spark_{container_id[:4]}"
        for other in self.containers.values():
            if other.name == name:
                raise DockerApiError(
                    409,
                    f'Conflict. The container name "/{name}" is already in use by container "{other.id}". '
                    "You have to remove (or rename) that container to be able to reuse that name.",
                )
        container = self.containers[container_id] = SimContainer(
            container_id, name, body, self.node.images.get_image_id(image), self.node.now_ns
        )
        self.publish_event("create", container)
        return container

    def start_container(self, container: SimContainer, ready_since: float | None = None) -> None:
        """Start it; with ``ready_since`` (seconds) as one that has been ready for that long."""
        if container.wants_gpu and not self.node.options.gpu_runtime:
            container.error = GPU_RUNTIME_MISSING_MESSAGE
            raise DockerApiError(500, GPU_RUNTIME_MISSING_MESSAGE)
        for port in container.published_ports:
            if port in self.node.ports:
                container.error = (
                    f"driver failed programming external connectivity on endpoint {container.name}: "
                    f"Bind for 0.0.0.0:{port} failed: port is already allocated"
                )
                raise DockerApiError(500, container.error)
        try:
            process = (
                SimDownload(self.node, container)
                if SimDownload.runs_in(container)
                else EngineProcess(self.node, container, self.fabric)
            )
        except ValueError as error:
            raise DockerApiError(500, f"the simulation cannot read this command: {error}") from error
        container.mark_started(process.main_pid)
        self.running[container.id] = process
        if container.host_config.get("IpcMode") == "host":
            self.node.remains.add_shared_memory(container.id, process.pids, self.node.unix_time())
        if ready_since is not None and isinstance(process, EngineProcess):
            process.start_as_running_since(ready_since)
        self._track_task(asyncio.ensure_future(self._wait_for_exit(container, process)))
        if self.visitors is not None and isinstance(process, EngineProcess):
            self._track_task(asyncio.ensure_future(self.visitors(process)))
        self.publish_event("start", container)

    async def _wait_for_exit(self, container: SimContainer, process: EngineProcess | SimDownload) -> None:
        try:
            ending = await process.run()
        finally:
            self.running.pop(container.id, None)
        if ending.oom_killed:
            self.publish_event("oom", container)
            self.node.log_oom_kill(process.main_pid, container.id)
        litters = ending.code == SIGKILL_EXIT_CODE and NodeFault.LITTERS in self.node.options.troubles
        self.node.remains.remove_shared_memory(container.id, litters=litters)
        container.mark_ended(ending.code, oom_killed=ending.oom_killed)
        self.publish_event("die", container)
        reaping = asyncio.ensure_future(self.node.end_processes(process.pids))
        self._track_task(reaping)
        self._reaping.add(reaping)
        reaping.add_done_callback(self._reaping.discard)

    @property
    def is_busy(self) -> bool:
        """Tell whether something starts, stops, or is freeing its memory."""
        return bool(self._reaping) or any(not one.ready.is_set() or one.is_stopping for one in self.running.values())

    def _track_task(self, task: asyncio.Future[None]) -> None:
        assert isinstance(task, asyncio.Task)
        self._tasks.add(task)  # no TaskGroup: a container runs until its own end, or that of the daemon
        task.add_done_callback(self._tasks.discard)

    async def stop_container(self, container: SimContainer, grace: float) -> None:
        """SIGTERM, then SIGKILL after ``grace`` simulated seconds."""
        process = self.running.get(container.id)
        if process is None:
            return
        self.publish_event("kill", container, signal="15")
        process.terminate()
        try:
            await asyncio.wait_for(container.ended.wait(), grace / self.node.pace.speed / self.node.clock.rate)
        except TimeoutError:
            self.publish_event("kill", container, signal="9")
            process.kill()
            await container.ended.wait()

    def publish_event(self, action: str, container: SimContainer, **more: str) -> None:
        """Publish an event to all followers of /events, and keep it."""
        now = self.node.now_ns()
        attributes = {**container.labels, "image": container.image, "name": container.name, **more}
        if action == "die":
            attributes["exitCode"] = str(container.exit_code)
        event: JsonBody = {
            "Type": "container",
            "Action": action,
            "scope": "local",
            "status": action,
            "id": container.id,
        }
        event |= {"from": container.image, "Actor": {"ID": container.id, "Attributes": attributes}}
        event |= {"time": now // 1_000_000_000, "timeNano": now}
        self._past_events = [*self._past_events, event][-_MAX_PAST_EVENTS:]
        for queue in self._listeners:
            queue.put_nowait(event)

    def encode_past_events(self, container: str, actions: Sequence[str]) -> bytes:
        """Return a container's past events, one JSON object per line."""
        found = [event for event in self._past_events if event["id"] == container and event["Action"] in actions]
        return b"".join(json.dumps(event).encode() + b"\n" for event in found)

    async def stream_events(self) -> AsyncIterator[bytes]:
        """Yield events from now on, one JSON object per line."""
        queue: asyncio.Queue[JsonBody] = asyncio.Queue()
        self._listeners.add(queue)
        try:
            while True:
                yield json.dumps(await queue.get()).encode() + b"\n"
        finally:
            self._listeners.discard(queue)
