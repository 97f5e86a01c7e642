"""The processes of a simulated container: they run the engine's script, allocate memory, serve its HTTP API, and handle signals."""

from __future__ import annotations

import asyncio
import json
import math
import struct
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from http import HTTPStatus
from typing import Any

from sparkctl.concurrency import run_until_first
from sparkctl.engines.simulation.decode_model import DecodeModel
from sparkctl.engines.simulation.engine_launch import EngineFault, SimLaunch
from sparkctl.engines.simulation.rank_network import LossReason, RankLoss, RankMember, RankNetwork, RendezvousTimeout
from sparkctl.engines.simulation.script_player import (
    LOG_DATETIME,
    LOG_TIME,
    AllocateMemoryStep,
    ExitStep,
    JoinRanksStep,
    LeakMemoryStep,
    ListenStep,
    LoadWeightsStep,
    LogStep,
    RankErrorStep,
    Script,
    ScriptAction,
    ScriptStep,
    TimedStep,
)
from sparkctl.engines.simulation.simulated_clock import MIN_SLEEP_SECONDS, DriftFreeTimer
from sparkctl.engines.simulation.simulated_engine import SimulatedEngine, list_simulated_engines, parse_launch
from sparkctl.model.text.units import GIB
from sparkctl.simulator.http_server import SimHttpReply, SimHttpRequest, build_json_reply
from sparkctl.simulator.sim_container import SimContainer
from sparkctl.simulator.sim_node import NodeFault, SimNode

FAULT_WEIGHTS_SHARE = 0.6  # of the weights


def build_start_script(engine: SimulatedEngine) -> Script:
    """Return the start script of a launch, with its fault."""
    if engine.launch.fault is EngineFault.BAD_FLAG:
        return engine.play_section("bad-flag")
    return _apply_fault(engine, engine.play_section("start"))


def _apply_fault(engine: SimulatedEngine, script: Script) -> Script:
    launch = engine.launch
    is_spared = launch.fault is EngineFault.WORKER_DIES and launch.rank == 0
    if launch.fault is None or not launch.fault.strikes_while_loading or is_spared:
        return script
    return _inject_fault(engine, script)


def _inject_fault(engine: SimulatedEngine, script: Script) -> Script:
    """Follow the script up to the fault, then the fault."""
    launch = engine.launch
    for step in script:
        yield step
        if (isinstance(step, ListenStep) and step.ready) or (
            isinstance(step, LoadWeightsStep) and step.done >= FAULT_WEIGHTS_SHARE * step.total
        ):
            break
    if launch.fault is EngineFault.FABRIC_CUT:
        yield ScriptAction.CUT_CABLE
        yield from script
    elif launch.fault is EngineFault.WORKER_DIES:
        yield ExitStep(137)
    elif launch.fault is EngineFault.CUDA_OOM:
        loaded = int(FAULT_WEIGHTS_SHARE * launch.weights)
        yield from engine.play_section("out-of-memory", wanted=int(2.25 * GIB), free=int(1.18 * GIB), held=loaded)
    elif launch.fault is EngineFault.OOM_KILLED:
        yield ExitStep(137, oom_killed=True)
    elif launch.fault is EngineFault.HANG:
        yield ScriptAction.HANG
    elif launch.fault is EngineFault.MEMORY_RUNAWAY:
        while engine.available() > 0:
            yield LeakMemoryStep(0.1, GIB // 4)
        yield ScriptAction.HANG
    elif launch.fault is EngineFault.EXIT0:
        yield ExitStep(0)
    else:
        raise AssertionError(f"{launch.fault} has no script")


SIGKILL_EXIT = ExitStep(137)
STUCK_CLOCK_SHARE = 0.33  # share of its speed: about what remains of a busy GPU's clock, 800 of 2400 MHz
COPY_GPU_SHARE, WARMUP_GPU_SHARE = 0.03, 0.42  # how busy the GPU is while weights come, and while graphs are captured


class EngineProcess:
    """One run of one container. ``pids``: its main process, and the one that uses the GPU."""

    def __init__(self, node: SimNode, container: SimContainer, fabric: RankNetwork) -> None:
        self.node = node
        self.fabric = fabric
        self.container = container
        launch = parse_launch(container.image, container.command, container.env, node.fault, container.labelled_port)
        self.launch = replace(
            launch, share=STUCK_CLOCK_SHARE if NodeFault.STUCK_CLOCK in node.options.troubles else 1.0
        )
        self._node_port = container.find_node_port(self.launch.port)
        self.pids = [node.spawn_process(container.id), node.spawn_process(container.id)]
        self.ready = asyncio.Event()
        self._create_engine()
        self._signal: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self.deaf = not self.engine.hears_sigterm
        self._rushed: float | None = None
        self._handler = self.serving.handle_request
        self._starting = 0.0  # how busy the start keeps the GPU
        self.member = self._build_rank_member()
        self._depends = asyncio.Event()  # whether it notices the end of another rank
        if self.member is not None:
            node.spread.add(self.pids[1])
        node.at_work[self.pids[1]] = lambda: 0.96 if self._count_running_requests() else self._starting

    def _create_engine(self) -> None:
        memory, ports = self.node.memory, self.node.ports
        self.decoding = DecodeModel(self.launch, self.node.pace)
        self.engine = list_simulated_engines()[self.launch.kind](
            self.launch,
            self.decoding,
            lambda: memory.available_bytes,
            lambda: self.container.has_host_network and self.launch.port in ports,
        )
        self.serving = SimOpenAiServer(self.engine, self._write_access_line, lambda port: port in ports)

    def _build_rank_member(self) -> RankMember | None:
        joining = self.launch.joining
        if joining is None:
            return None
        rank = None if self.engine.has_section("follow") else self.launch.rank
        listens = (
            joining.is_head != joining.bond.is_dialed_by_head
        )  # if the head looks for its workers, the worker does
        own = joining.own or (joining.main_address[0] if listens else self.node.address)
        return RankMember(
            launch=self.launch,
            node=self.node.name,
            joining=joining,
            address=own,
            running=lambda: self.decoding.running_requests,
            rank=rank,
        )

    def _count_running_requests(self) -> int:
        """Return how many requests it works on; for a worker those of its head."""
        group = None if self.member is None else self.member.group
        return self.decoding.running_requests if group is None or group.loss is not None else group.head.running()

    @property
    def is_stopping(self) -> bool:
        """Tell whether it was asked to end."""
        return self._signal.done()

    @property
    def main_pid(self) -> int:
        return self.pids[0]

    def start_as_running_since(self, ready_since: float) -> None:
        """Run the start without waiting, as if it had begun this many seconds ago."""
        began = self.node.now_ns() - int(ready_since * 1e9)
        self._rushed = 0.0
        self.container.created = began - 2_000_000_000
        self.container.started = began
        self.container.journal.clock = lambda: began + int((self._rushed or 0) * 1e9)

    def add_background_load(self, requests: int, since: float) -> None:
        """Serve this many requests from now on, with log and counters as if it had done so for ``since`` seconds."""
        self.decoding.update_counts()
        self.decoding.background = requests
        self.decoding.add_past_load(since)
        now = self.node.now_ns()
        for age, line, stream in self.engine.build_past_work_lines(since):
            stamp = now - int(age * 1e9)
            self.container.journal.clock = lambda stamp=stamp: stamp  # type: ignore[misc]
            self._write_log(line + "\n", stream)
        self.container.journal.clock = self.node.now_ns

    def terminate(self) -> None:
        """Send SIGTERM; a hanging process ignores it."""
        if not self.deaf and not self._signal.done():
            self._signal.set_result("TERM")

    def kill(self) -> None:
        """Send SIGKILL."""
        if self._signal.done():
            self._signal = asyncio.get_running_loop().create_future()
        self._signal.set_result("KILL")

    async def run(self) -> ExitStep:
        """Run until the end; return the exit status. Frees only the port."""
        # not `run_until_first`, here and below: a signal is a future, which outlives the wait for it
        ending = asyncio.ensure_future(self._run_engine())
        try:
            waiting: set[asyncio.Future[Any]] = {ending, self._signal}
            await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            if ending.done():
                return ending.result()
            if self._signal.result() == "KILL":
                return SIGKILL_EXIT
            return await self._shut_down()
        finally:
            ending.cancel()
            await asyncio.gather(ending, return_exceptions=True)
            if self.member is not None:
                self.fabric.leave_group(self.member)
            if self._node_port is not None and self.node.ports.get(self._node_port) == self._handler:
                self.node.close_port(self._node_port)

    async def _shut_down(self) -> ExitStep:
        leaving = asyncio.ensure_future(self._run_script(self.engine.play_section("farewell")))
        killed = self._signal = asyncio.get_running_loop().create_future()
        try:
            await asyncio.wait({leaving, killed}, return_when=asyncio.FIRST_COMPLETED)
            return leaving.result() or ExitStep(0) if leaving.done() else SIGKILL_EXIT
        finally:
            leaving.cancel()
            await asyncio.gather(leaving, return_exceptions=True)

    async def _run_engine(self) -> ExitStep:
        """Start and serve; if another rank is lost, end as this engine does, or begin again."""
        while True:
            _, found = await run_until_first(self._serve_requests(), self._wait_for_rank_loss())
            if isinstance(found, ExitStep):
                return found
            self.ready.clear()
            ended = await self._run_script(self.engine.play_section("apart", loss=found))
            if ended is not None:
                return ended

    async def _wait_for_rank_loss(self) -> RankLoss:
        """Return how another rank was lost, once this one can notice it."""
        await self._depends.wait()
        self._depends.clear()
        member = self.member
        assert member is not None
        assert member.group is not None
        group = member.group
        await group.lost.wait()
        loss = group.loss_seen_by(member)
        if loss.address == member.address:  # this rank was lost but lives: it continues until its head is gone, too
            await group.headless.wait()
            return RankLoss(LossReason.DIED, group.head.address)
        return loss

    async def _serve_requests(self) -> ExitStep:
        ended = await self._run_script(build_start_script(self.engine))
        if ended is not None:
            return ended
        self._rushed, self._starting = None, 0.0
        self.container.journal.clock = self.node.now_ns
        self.ready.set()
        async for line, stream in self.engine.stream_work_lines():
            self._write_log(line + "\n", stream)
        return ExitStep(0)

    async def _run_script(self, script: Script) -> ExitStep | None:
        """Run the steps of a script in simulated time; None if it ends without an exit."""
        schedule = DriftFreeTimer(self.node.pace)
        for step in script:
            after = step.after if isinstance(step, TimedStep) else 0.0
            if self._rushed is None:
                await schedule.wait(after)
            else:
                self._rushed += after
            if isinstance(step, ExitStep):
                return step
            if step is ScriptAction.FOLLOW_HEAD:
                return await self._run_script(_apply_fault(self.engine, self.engine.play_section("follow")))
            try:
                await self._run_step(step)
                if isinstance(step, JoinRanksStep) or step is ScriptAction.WAIT_FOR_RANKS:
                    schedule = DriftFreeTimer(self.node.pace)  # from when they were there
            except RendezvousTimeout as none:
                return await self._run_script(self.engine.play_section("alone", have=none.have, of=none.of))
            except MemoryError as short:
                gpu_memory = self.node.memory.gpu.get(self.pids[1], 0)
                free = self.node.memory.cuda_available_bytes
                wanted = int(str(short))
                return await self._run_script(
                    self.engine.play_section("out-of-memory", wanted=wanted, free=free, held=gpu_memory)
                )
        return None

    async def _run_step(self, step: ScriptStep) -> None:
        memory, (main, worker) = self.node.memory, self.pids
        match step:
            case LogStep(_, text, stream, end):
                self._write_log(text + end, stream)
            case LoadWeightsStep(_, _, _, size):
                memory.read_file(self.launch.model, size)
                memory.allocate(worker, gpu=size)
                self._starting = COPY_GPU_SHARE
            case AllocateMemoryStep(_, gpu, anonymous, kv_tokens):
                memory.allocate(worker, gpu=gpu, anonymous=anonymous // 3)
                memory.allocate(main, anonymous=anonymous - anonymous // 3)
                self._starting = WARMUP_GPU_SHARE if gpu else self._starting
                self.decoding.kv_tokens = kv_tokens or self.decoding.kv_tokens
            case LeakMemoryStep(_, size):
                memory.allocate_until_full(main, size)
                await asyncio.sleep(0)  # observers get a turn, however fast time goes
            case ListenStep(ready):
                if self._node_port is not None:
                    await self.node.open_port(self._node_port, self._handler)
                self.serving.ready = ready
            case ScriptAction.OPEN_GROUP if self.member is not None:
                self.fabric.open_group(self.member)
            case JoinRanksStep(meanwhile):
                await self._join_ranks(meanwhile)
            case ScriptAction.WATCH_PEERS if self.member is not None:
                self._depends.set()
            case ScriptAction.WAIT_FOR_RANKS if self.member is not None and self.member.group is not None:
                self._depends.set()
                self.member.group.mark_loaded(self.member)
                await self.member.group.loaded.wait()
            case RankErrorStep(said) if self.member is not None and self.member.group is not None:
                self.member.group.mark_lost(LossReason.RAISED, self.member, said)
            case ScriptAction.CUT_CABLE:
                self.fabric.cut_cable()
                await asyncio.sleep(MIN_SLEEP_SECONDS)  # the others notice it first, however fast time goes
            case ScriptAction.FREE_MEMORY:
                for pid in self.pids:
                    memory.release(pid)
            case ScriptAction.HANG:
                self.deaf = True
                await asyncio.Event().wait()

    async def _join_ranks(self, meanwhile: tuple[LogStep, ...]) -> None:
        """Wait for the other ranks; one that knew nothing of the model now knows its head's launch."""
        assert self.member is not None
        telling = asyncio.ensure_future(self._run_script(iter(meanwhile if self._rushed is None else ())))
        try:
            group = await self.fabric.join_group(self.member, self.node.pace.sleep)
        finally:
            telling.cancel()
            await asyncio.gather(telling, return_exceptions=True)
        if self.engine.has_section("follow"):
            self._copy_head_launch(group.head.launch)

    def _copy_head_launch(self, head: SimLaunch) -> None:
        own = self.launch
        rank = None if self.member is None else self.member.rank
        self.launch = replace(
            head, kind=own.kind, argv=own.argv, port=own.port, rank=rank or 1, fault=own.fault, joining=own.joining,
            share=own.share, api_key=None,
        )  # fmt: skip
        self._create_engine()

    def _write_log(self, text: str, stream: str) -> None:
        now = time.gmtime(self.container.journal.clock() // 1_000_000_000)
        for mark, spelling in ((LOG_TIME, self.engine.time_format), (LOG_DATETIME, "%Y-%m-%d %H:%M:%S")):
            text = text.replace(mark, time.strftime(spelling, now))
        self.container.journal.write(text, stream)

    def _write_access_line(self, line: str) -> None:
        if self.engine.access_prefix is not None:
            self._write_log(f"{self.engine.access_prefix}{line}\n", "stdout")


SAMPLE_ANSWER_TOKENS = (
    " Paris",
    ",",
    " a",
    " city",
    " on",
    " the",
    " Seine",
    ",",
    " known",
    " for",
    " its",
    " bridges",
    ".",
)
METRICS_TYPE = "text/plain; version=0.0.4; charset=utf-8"
COMPLETION_PATHS = {"/v1/completions": False, "/v1/chat/completions": True}


class SimOpenAiServer:
    """Answers on the engine's port. ``say`` gets the access log; ``is_open`` tells whether a port has a listener."""

    def __init__(self, engine: SimulatedEngine, say: Callable[[str], None], is_open: Callable[[int], bool]) -> None:
        self._is_open = is_open
        self.engine = engine
        self.launch, self.decoding = engine.launch, engine.decoding
        self.ready = False
        self._say = say
        self._requests = 0

    async def handle_request(self, request: SimHttpRequest) -> SimHttpReply:
        """Answer one request and log it."""
        reply = await self._route_request(request)
        self._requests += 1
        client = f"127.0.0.1:{40000 + self._requests * 14 % 20000}"
        status = f"{reply.status} {HTTPStatus(reply.status).phrase}"
        self._say(f'INFO:     {client} - "{request.method} {request.target or request.path} HTTP/1.1" {status}')
        return reply

    async def _route_request(self, request: SimHttpRequest) -> SimHttpReply:
        if request.path in self.engine.health_paths and self.engine.writes_text:
            return self._check_health()
        if self.engine.loading_body is not None and not self.ready:
            return _build_error_reply(503, "Loading model", "unavailable_error")
        if request.path.startswith("/v1/") and not self._is_allowed(request):
            return build_json_reply({"error": "Unauthorized"}, 401)
        if request.path in COMPLETION_PATHS and self.engine.writes_text:
            return await self._create_completion(request, chat=COMPLETION_PATHS[request.path])
        if request.path == "/v1/audio/speech" and self.engine.speaks:
            return await self._create_speech(request)
        return self._get_information(request.path)

    async def _create_speech(self, request: SimHttpRequest) -> SimHttpReply:
        """Answer with a tone for each word; without the model behind it, with a WAV that has no samples."""
        try:
            words = str(request.parse_json_body()["input"]).split()
        except (ValueError, KeyError):
            return _build_error_reply(422, "Field required: input", "invalid_request_error")
        upstream = self.launch.upstream
        if upstream is not None and not self._is_open(upstream):
            self._say(
                f"Error: HTTPConnectionPool(host='127.0.0.1', port={upstream}): Max retries exceeded with url: /v1/completions"
            )
            return SimHttpReply(body=_build_wav(b""), type="audio/wav")
        await self.decoding.pace.decode_for(_WORD_SECONDS * len(words) / _SPEECH_SPEED)
        volume = 0 if self.launch.fault is EngineFault.NO_TOKEN else _TONE_VOLUME
        return SimHttpReply(body=_build_wav(b"".join(_build_tone(word, volume) for word in words)), type="audio/wav")

    def _is_allowed(self, request: SimHttpRequest) -> bool:
        key, fault = self.launch.api_key, self.launch.fault
        if fault in (EngineFault.OPEN_DOOR, EngineFault.OTHER_KEY):
            return fault is EngineFault.OPEN_DOOR
        return key is None or request.headers.get("authorization") == f"Bearer {key}"

    def _check_health(self) -> SimHttpReply:
        if not self.ready:
            loading = self.engine.loading_body
            return SimHttpReply(status=503) if loading is None else build_json_reply(loading, 503)
        if (line := self.engine.count_health_check()) is not None:
            self._say(line)
        body = self.engine.health_body
        return SimHttpReply(status=200) if body is None else build_json_reply(body)

    def _get_information(self, path: str) -> SimHttpReply:
        launch = self.launch
        model = {
            "id": launch.served,
            "object": "model",
            "created": int(self.decoding.pace.clock.unix_time()),
            "root": launch.model,
        }
        if path == "/v1/models" and self.engine.writes_text:
            return build_json_reply(
                {"object": "list", "data": [model | {"owned_by": launch.kind, "max_model_len": launch.context}]}
            )
        if path == "/metrics" and self.engine.loading_body is not None and not launch.metrics:
            return _build_error_reply(
                501, "This server does not support metrics endpoint. Start it with `--metrics`", "not_supported_error"
            )
        if path == "/metrics" and launch.metrics:
            return SimHttpReply(body=self.engine.build_metrics_page().encode(), type=METRICS_TYPE)
        page = self.engine.build_page(path)
        if isinstance(page, str):
            return SimHttpReply(body=page.encode(), type="text/html; charset=utf-8")
        if page is not None:
            return build_json_reply(page)
        return SimHttpReply(status=200) if path == "/ping" else build_json_reply({"detail": "Not Found"}, 404)

    async def _create_completion(self, request: SimHttpRequest, *, chat: bool) -> SimHttpReply:
        try:
            body: dict[str, Any] = request.parse_json_body()
            tokens = int(body.get("max_tokens") or body.get("max_completion_tokens") or (64 if chat else 16))
        except (ValueError, TypeError) as error:
            return _build_error_reply(400, f"invalid request: {error}", "BadRequestError")
        if self.engine.needs_model_name and body.get("model") not in (None, self.launch.served):
            return _build_error_reply(404, f"The model `{body['model']}` does not exist.", "NotFoundError")
        if self.launch.fault is EngineFault.NO_TOKEN:
            if self.engine.stuck_error is not None:
                return _build_error_reply(500, self.engine.stuck_error, "InternalServerError")
            await asyncio.Event().wait()  # the scheduler hangs: no answer, no error
        prompt = max(1, len(json.dumps(body.get("messages") if chat else body.get("prompt", ""))) // 4)
        if body.get("stream"):
            return SimHttpReply(
                type="text/event-stream; charset=utf-8",
                stream=self._stream_completion(prompt, tokens, chat=chat, thinks=chat and self._shall_think(body)),
            )
        self.decoding.served += 1
        try:
            await self.decoding.wait_for_prefill(prompt)
            await self.decoding.wait_for_decode(tokens)
        finally:
            self.decoding.served -= 1
        self.decoding.add_request(prompt, tokens)
        choice = _build_choice("".join(self._make_token(n) for n in range(tokens)), chat=chat, end=True)
        if chat and self.launch.fault is not EngineFault.NONSENSE:
            choice = _build_special_choice(body) or choice
        return build_json_reply(self._build_completion(choice, chat=chat) | {"usage": _build_usage(prompt, tokens)})

    def _shall_think(self, body: dict[str, Any]) -> bool:
        settings = body.get("chat_template_kwargs")
        return self.launch.thinks and isinstance(settings, dict) and settings.get("enable_thinking") is True

    async def _stream_completion(self, prompt: int, tokens: int, *, chat: bool, thinks: bool) -> AsyncIterator[bytes]:
        """Yield the events of an answer; where it ``thinks``, its first half is reasoning."""
        self.decoding.served += 1
        try:
            await self.decoding.wait_for_prefill(prompt)
            for n in range(tokens):
                await self.decoding.wait_for_decode(1)
                choice = _build_choice(self._make_token(n), chat=chat, end=n == tokens - 1, piece=True)
                if thinks and n < tokens // 2:
                    choice["delta"] = {"reasoning_content": choice["delta"]["content"]}
                yield _format_sse_event(self._build_completion(choice, chat=chat, piece=True))
        finally:
            self.decoding.served -= 1
        self.decoding.add_request(prompt, tokens)
        yield _format_sse_event(
            self._build_completion(None, chat=chat, piece=True) | {"usage": _build_usage(prompt, tokens)}
        )
        yield b"data: [DONE]\n\n"

    def _make_token(self, number: int) -> str:
        """Return a token of the answer; after the sentence it counts, for a text that does not repeat itself."""
        if self.launch.fault is EngineFault.NONSENSE:
            return "!"
        return SAMPLE_ANSWER_TOKENS[number] if number < len(SAMPLE_ANSWER_TOKENS) else f" {number}"

    def _build_completion(self, choice: dict[str, Any] | None, *, chat: bool, piece: bool = False) -> dict[str, Any]:
        name = ("chat.completion.chunk" if piece else "chat.completion") if chat else "text_completion"
        choices = [] if choice is None else [choice]
        return {
            "id": f"cmpl-{self._requests}",
            "object": name,
            "created": int(self.decoding.pace.clock.unix_time()),
            "model": self.launch.served,
            "choices": choices,
        }


_SAMPLE_RATE, _TONE_VOLUME = 24000, 9000
_WORD_SECONDS, _SPEECH_SPEED = 0.35, 1.6  # sound for a word, and how much faster than it sounds it is made


def _build_tone(word: str, volume: int) -> bytes:
    """Return a tone that fades in and out, its height from the word's letters."""
    count, step = round(_SAMPLE_RATE * _WORD_SECONDS), math.tau * (180 + 12 * (sum(word.encode()) % 16)) / _SAMPLE_RATE
    levels = (volume * math.sin(math.pi * at / count) * math.sin(step * at) for at in range(count))
    return b"".join(struct.pack("<h", round(level)) for level in levels)


def _build_wav(samples: bytes) -> bytes:
    layout = struct.pack("<4sIHHIIHH", b"fmt ", 16, 1, 1, _SAMPLE_RATE, 2 * _SAMPLE_RATE, 2, 16)
    content = b"WAVE" + layout + struct.pack("<4sI", b"data", len(samples)) + samples
    return struct.pack("<4sI", b"RIFF", len(content)) + content


def _build_choice(text: str, *, chat: bool, end: bool, piece: bool = False) -> dict[str, Any]:
    content: dict[str, Any] = {"text": text}
    if chat:
        content = {"delta" if piece else "message": {"role": "assistant", "content": text}}
    return {"index": 0, **content, "logprobs": None, "finish_reason": "length" if end else None}


def _build_special_choice(body: dict[str, Any]) -> dict[str, Any] | None:
    """Return the answer where a tool or JSON was asked for, None for plain text."""
    form = body.get("response_format")
    if body.get("tools"):
        name = body["tools"][0]["function"]["name"]
        call = {"id": "call-0", "type": "function", "function": {"name": name, "arguments": '{"city": "Paris"}'}}
        message = {"role": "assistant", "content": None, "tool_calls": [call]}
        return {"index": 0, "message": message, "logprobs": None, "finish_reason": "tool_calls"}
    if isinstance(form, dict) and form.get("type") in ("json_object", "json_schema"):
        schema = form.get("json_schema", {}).get("schema", {}).get("properties", {})
        (city,) = schema.get("city", {}).get("enum", ["Paris"])
        return _build_choice(json.dumps({"city": city}), chat=True, end=True) | {"finish_reason": "stop"}
    return None


def _build_usage(prompt: int, tokens: int) -> dict[str, int]:
    return {"prompt_tokens": prompt, "completion_tokens": tokens, "total_tokens": prompt + tokens}


def _format_sse_event(value: object) -> bytes:
    return f"data: {json.dumps(value, separators=(',', ':'))}\n\n".encode()


def _build_error_reply(status: int, message: str, kind: str) -> SimHttpReply:
    return build_json_reply({"error": {"message": message, "type": kind, "param": None, "code": status}}, status)
