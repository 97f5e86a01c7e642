"""``bench``: measure running instances cell by cell, over the SSH connection.

Several instances: one after the other, or at the same time on different nodes. What does not run is started for its
measurement and stopped again; what stops for it runs again at the end.
"""

from __future__ import annotations

import asyncio
import math
import shlex
import tempfile
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, ExitStack, contextmanager, suppress
from dataclasses import field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sparkctl.commands.bench.cell_watch import CellWatch
from sparkctl.commands.bench.chat_stream import stream_chat
from sparkctl.commands.bench.load_generator import (
    CellFailed,
    LoadGenerator,
    LoadTarget,
    describe_generator,
    find_load_generator,
    hash_book,
    is_same_generator,
)
from sparkctl.commands.event_stream import build_end, build_end_from_error, forward_events, open_session, stream_events
from sparkctl.commands.history_writer import OperationSubject, record_operation
from sparkctl.commands.list_endpoints import ServedEndpoint, ServedModel, list_endpoints
from sparkctl.commands.request import Preview, Request, SentenceTone, describe_unreachable
from sparkctl.commands.restart_instance import build_restart, find_profile_changes
from sparkctl.commands.show_log import find_container
from sparkctl.commands.start.launch_plans import build_changed_plan
from sparkctl.commands.start.start_request import StartInstance
from sparkctl.commands.stop.stop_instance import StopInstance
from sparkctl.commands.switch.switch_request import SwitchInstance
from sparkctl.concurrency import gather_or_cancel
from sparkctl.context import CommandContext, CommandInterrupted, InterruptSignal
from sparkctl.engines import load_engine
from sparkctl.engines.base import Engine
from sparkctl.engines.engine_flags import CommandFlags
from sparkctl.engines.memory_estimate import map_path_to_node, parse_longest_context
from sparkctl.errors import ConnectionLost, ExitCode, InvalidInput, NodeError, OperationRefused, SparkctlError
from sparkctl.history.bench_store import BenchStore
from sparkctl.history.model import OperationKind
from sparkctl.logs.start_verdict import describe_guard_kill
from sparkctl.model.bench import BenchCell, BenchRun, BenchSetup, CellResult, estimate_seconds
from sparkctl.model.container import Container
from sparkctl.model.events import (
    BenchCellMeasured,
    BenchCellProgressed,
    CommandEnded,
    Emit,
    Event,
    Outcome,
    SwitchPlanned,
    WarningEmitted,
)
from sparkctl.model.launch_plan import ContainerLabel, DockerRunSpec, explain_no_tokens, find_flag_value
from sparkctl.model.lazy_dataclass import dataclass
from sparkctl.model.memory_fit import CheckpointFiles
from sparkctl.model.missing_part import PartKind
from sparkctl.model.node import Node, NodeName, NodeState
from sparkctl.model.questions import BenchStartQuestion, NonInteractivePrompter
from sparkctl.model.text.sanitize import load_json_map, sanitize_line, truncate_text
from sparkctl.model.text.secrets import redact_words
from sparkctl.model.text.units import format_duration
from sparkctl.monitor.engine_probe import request_engine
from sparkctl.monitor.guard_client import read_receipt, save_receipt
from sparkctl.monitor.meters.bandwidth import build_decode_step_reads
from sparkctl.monitor.node_status import read_node_statuses
from sparkctl.monitor.node_views import build_missing_instance_error, choose_instance
from sparkctl.node.node_inspection import NodeIdentity
from sparkctl.profiles.container_labels import parse_decode_step_label, parse_port_label
from sparkctl.profiles.fit_evaluation import list_checkpoint_paths
from sparkctl.transport.http_client import InvalidHttpResponse
from sparkctl.transport.node_connection import ByteReader, ByteWriter
from sparkctl.transport.node_session import NodeSession
from sparkctl.transport.socket_relay import HeaderWriter, SocketRelay

if TYPE_CHECKING:
    from sparkctl.commands.action_context import ActionContext

_LOOPBACK = "127.0.0.1"
_MAX_TOKENIZER_BYTES = 64 << 20
_TOKENIZER_HINT = "name one: --tokenizer DIRECTORY, with the tokenizer.json of this model"
_GGUF_SUFFIX = ".gguf"  # a file that holds its tokenizer in itself
_READ_SECONDS = 60.0
_VERSION_SECONDS, _MAX_VERSION_CHARS = 5.0, 40
_THOUGHT_TOKENS = 16  # of a question that shows whether an answer begins with thoughts
_PARSER_FLAGS = ("reasoning-parser", "reasoning-format")
_RECEIPT_SECONDS = (0.0, 1.0, 2.0)  # seconds before each look for the guard's receipt
PRESETS = {  # quick and owner are what owners of a Spark post: al-engr.com/qwen3.6-ngram-vs-nvfp4-mtp and -single-spark-sglang
    "quick": tuple(
        BenchCell(pp=pp, tg=128, depth=depth, concurrency=concurrency)
        for depth in (0, 4096)
        for pp in (512, 2048)
        for concurrency in (1, 8)
    ),
    "owner": tuple(
        BenchCell(pp=2048, tg=tg, depth=depth, concurrency=concurrency)
        for depth in (0, 16384)
        for tg in (128, 256)
        for concurrency in (1, 4, 8)
    ),
    "full": tuple(
        BenchCell(pp=2048, tg=128, depth=depth, concurrency=concurrency)
        for depth in (0, 8192, 32768)
        for concurrency in (1, 2, 4, 8)
    ),
}
PRESET_RUNS = {"quick": 1}  # as its post has it; of the others `DEFAULT_RUNS`
DEFAULT_RUNS = 3
INTERRUPTED = "interrupted"  # why a benchmark ended early: by Ctrl-C
NOTHING_MEASURED = "nothing was measured"


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasureInstance(Request):
    """A request to measure an instance, by cells or by kind of text; ``nodes``: where it is looked for."""

    instance: str
    nodes: Sequence[Node]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunBench(MeasureInstance):
    """A request to measure an instance by cells. A profile of its name that does not run is not started.

    Attributes:
        runs: how often each cell is measured.
        drops_long_cells: leave out cells that are longer than the model's context, in place of refusing.
        timeout: seconds for a cell; None: no limit.
        generator: the words that start llama-benchy, None: found by itself.
        tokenizer: a directory or a name, None: read from the node.
        book: a text that prompts are cut from, None: the one that comes with sparkctl.
        resume: the number of a benchmark whose missing cells are measured.
    """

    cells: tuple[BenchCell, ...]
    runs: int = DEFAULT_RUNS
    drops_long_cells: bool = False
    timeout: float | None = None
    generator: str | None = None
    tokenizer: str | None = None
    book: Path | None = None
    resume: int | None = None

    def format_as_command(self) -> tuple[str, ...]:
        if self.resume is not None:
            return ("bench", "--resume", str(self.resume), *self.format_node_options())
        options = [
            word
            for name in ("pp", "tg", "depth", "concurrency")
            for word in (f"--{name}", ",".join(dict.fromkeys(str(getattr(cell, name)) for cell in self.cells)))
        ]
        return ("bench", self.instance, *self.format_node_options(), *options, "--runs", str(self.runs))

    def select_cells(self, context: int | None) -> tuple[BenchCell, ...]:
        """Return the cells that fit into a ``context`` of so many tokens, all where it is None.

        Raises `OperationRefused` where one is longer that may not be left out, or where all are.
        """
        long = [cell for cell in self.cells if context is not None and cell.context > context]
        cells = tuple(cell for cell in self.cells if cell not in long)
        if long and not (cells and self.drops_long_cells):
            raise OperationRefused(
                f"{long[0]} needs {long[0].context} tokens, and {self.instance} takes {context} in one request",
                f"choose cells up to {context} tokens: --depth, --pp, --tg",
            )
        return cells

    def run(self, ctx: CommandContext) -> AsyncGenerator[Event, None]:
        return run_bench(ctx, self)


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchTarget:
    """The instance that is measured, and its server."""

    session: NodeSession
    container: Container
    run: DockerRunSpec
    port: int
    engine: Engine
    served: ServedEndpoint
    identity: NodeIdentity | None  # of its node, None where that could not be read
    version: str | None = None  # of the engine, as it tells it itself

    @property
    def model(self) -> ServedModel | None:
        """The model that is measured: the first that the server names, None where it names none."""
        return next(iter(self.served.models), None)

    @property
    def auth_headers(self) -> tuple[tuple[str, str], ...]:
        """The header with its key; empty where it wants none."""
        return (("Authorization", f"Bearer {self.served.key}"),) if self.served.key else ()


def run_bench(ctx: CommandContext, request: RunBench) -> AsyncGenerator[Event, None]:
    """Measure each cell, with one event each; what was measured is kept whatever happens later."""

    async def run_cells(ctx: CommandContext, emit: Emit) -> CommandEnded:
        began = ctx.clock.monotonic()
        words = find_load_generator(request.generator, request.instance)
        store, book = BenchStore(), hash_book(request.book)
        async with AsyncExitStack() as stack:
            interruptible = ctx.interrupt.run_interruptible
            target = await interruptible(find_target(stack, ctx, request, emit), NOTHING_MEASURED)
            generator_version = await interruptible(describe_generator(words), NOTHING_MEASURED)
            thinking = None
            if request.resume is None:
                thinking = await interruptible(_find_thinking(ctx, target), NOTHING_MEASURED)
            run = _prepare_run(
                ctx, emit, request, store, target, generator=generator_version, book=book, thinking=thinking
            )
            home = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="sparkctl-bench-")))
            tokenizer = request.tokenizer
            if not tokenizer:
                tokenizer = await interruptible(_fetch_tokenizer(target, home), NOTHING_MEASURED)
            relay = await _open_relay(target)
            stack.push_async_callback(relay.close)
            generator = LoadGenerator(
                words=words, home=home, runs=run.setup.runs, timeout=request.timeout, book=request.book,
                target=LoadTarget(
                    url=f"http://{_LOOPBACK}:{relay.port}/v1", model=run.setup.served or request.instance, tokenizer=tokenizer,
                    extra=target.engine.bench_fields,
                ),
            )  # fmt: skip
            run = stack.enter_context(keep_run(ctx, emit, store, run))
            reads = parse_decode_step_label(target.container.get_label(ContainerLabel.PER_STEP))
            watch = CellWatch(
                target.session,
                target.engine,
                port=target.port,
                container=target.container.id,
                headers=target.auth_headers,
                reads=build_decode_step_reads(reads),
            )
            stack.push_async_callback(watch.aclose)
            watch.start()
            sweep = _CellSweep(ctx=ctx, emit=emit, store=store, target=target, generator=generator, watch=watch)
            run = await sweep.measure_all(run)
        left, failed = len(run.missing), next((one for one in run.results if one.error is not None), None)
        kept = count_measured(store, run, left, len(run.wanted), "cells")
        return build_run_end(
            ctx, run, left, began, saved=describe_saving(store, run), kept=kept,
            failure=None if failed is None else f"{failed.cell}: {failed.error}; {kept}",
        )  # fmt: skip

    return record_bench(ctx, request, run_cells)


def record_bench(
    ctx: CommandContext,
    request: MeasureInstance,
    measure: Callable[[CommandContext, Emit], Coroutine[Any, Any, CommandEnded]],
) -> AsyncGenerator[Event, None]:
    """Yield the events of one measurement, with a row in the history once something was measured."""

    def stream_measurement(own: CommandContext) -> AsyncGenerator[Event, None]:
        return stream_events(own, partial(measure, own), request.instance, on_interrupt=None)

    command = shlex.join(("sparkctl", *redact_words(request.format_as_command())))
    subject = OperationSubject(
        kind=OperationKind.BENCH, nodes=request.nodes, instance=request.instance, command=command
    )
    return record_operation(ctx, subject, stream_measurement)


@dataclass(slots=True, kw_only=True)
class BenchSweep:
    """Measures what one run is made of, one part after the other."""

    ctx: CommandContext
    emit: Emit
    store: BenchStore
    target: BenchTarget

    def save(self, run: BenchRun) -> BenchRun:
        """Write what was measured so far; see `save_run`."""
        return save_run(self.ctx, self.emit, self.store, run)


@dataclass(slots=True, kw_only=True)
class _CellSweep(BenchSweep):
    """The cells of one run."""

    generator: LoadGenerator
    watch: CellWatch
    _place: tuple[str, int, int] = ("", 0, 0)  # instance, number of the cell, of how many
    _left: tuple[BenchCell, ...] = ()  # this cell, and those after it
    _seen: list[CellResult] = field(default_factory=list)  # what tells how long the rest takes
    _extra: list[float] = field(default_factory=list)  # seconds of each cell beside its requests

    async def measure_all(self, run: BenchRun) -> BenchRun:
        """Measure what is missing; the run is on disk after each cell. Ctrl-C and the end of the engine end it early."""
        cells = run.missing
        done = len(run.wanted) - len(cells)
        self._seen += [one for one in run.results if one.error is None]
        for index, cell in enumerate(cells):
            self._place, self._left = (run.instance, done + index + 1, len(run.wanted)), cells[index:]
            try:
                result = await self.ctx.interrupt.run_interruptible(self._measure(cell), INTERRUPTED)
            except CommandInterrupted:
                return self.save(replace(run, why=INTERRUPTED))
            rest = [one for one in run.results if one.cell != cell]
            run = self.save(replace(run, results=(*rest, result)))
            self._left = cells[index + 1 :]
            self.emit(
                BenchCellMeasured.from_result(
                    self.ctx.clock.unix_time(), self.target.session.node.name, run.instance, result,
                    number=done + index + 1, total=len(run.wanted), remaining=self._estimate_remaining(),
                    benchmark=run.number or None,
                )
            )  # fmt: skip
            if result.error is not None:
                try:
                    ending = find_why_it_ended(self.ctx, self.emit, self.target)
                    why = await self.ctx.interrupt.run_interruptible(ending, INTERRUPTED)
                except CommandInterrupted:
                    why = INTERRUPTED
                if why is not None:
                    return self.save(replace(run, why=why))
        return self.save(replace(run, ended=self.ctx.clock.unix_time(), why=None))

    async def _measure(self, cell: BenchCell) -> CellResult:
        generator, requests = self.generator, self.generator.runs * cell.concurrency
        try:
            self._report_progress(cell, 0, requests)
            if not generator.is_warm:
                began = self.ctx.clock.monotonic()
                self._note_speed(await generator.warm_up(cell), 1, began)
                self._report_progress(cell, 0, requests)  # now it is known how long all takes
            await self.watch.prepare()
            began = self.ctx.clock.monotonic()
            result = await generator.run_cell(
                cell,
                self.watch.begin,
                self.watch.end,
                lambda done, requests: self._report_progress(cell, done, requests),
            )
            result = await self.watch.complete(result, cell.tg * requests, (cell.pp + cell.depth) * requests)
            self._note_speed(result, generator.runs, began)
            return result
        except CellFailed as failed:
            return CellResult(cell=cell, error=failed.message)
        except ConnectionLost as lost:
            return CellResult(cell=cell, error=lost.message)

    def _note_speed(self, result: CellResult | None, runs: int, began: float) -> None:
        """Keep what a cell tells of the time that others take."""
        if result is None or (estimate := estimate_seconds([result.cell], runs, [result])) is None:
            return
        self._extra.append(max(0.0, self.ctx.clock.monotonic() - began - estimate))
        self._seen.append(result)

    def _estimate_remaining(self, done: float = 0.0) -> float | None:
        """Return about how many seconds are left, None before a cell was measured; ``done``: the share of the first of those left."""
        estimates = [estimate_seconds([cell], self.generator.runs, self._seen) for cell in self._left]
        if any(one is None for one in estimates):
            return None
        extra = sum(self._extra) / len(self._extra) if self._extra else 0.0
        each = [(one or 0.0) + extra for one in estimates]
        return sum(each) - (each[0] * done if each else 0.0)

    def _report_progress(self, cell: BenchCell, done: int, requests: int) -> None:
        instance, number, total = self._place
        self.emit(
            BenchCellProgressed(
                ts=self.ctx.clock.unix_time(), node=self.target.session.node.name, instance=instance, cell=cell, number=number,
                total=total, done=done, requests=requests, remaining=self._estimate_remaining(done / requests),
                tokens_per_second=self.watch.compute_generation_rate() if done else None,
            )
        )  # fmt: skip


async def find_why_it_ended(ctx: CommandContext, emit: Emit, target: BenchTarget) -> str | None:
    """Return why nothing more can be measured, None if the engine still runs."""
    session = target.session
    try:
        await session.wait_reconnected()
        containers = await session.docker.list_containers()
    except SparkctlError as error:
        return error.message
    if any(one.id == target.container.id and one.is_alive for one in containers):
        return None
    name = target.served.instance
    if (stopped := await _find_guard_action(ctx, emit, target)) is not None:
        return f"the guard stopped {name}: {stopped}"
    return f"{name} has ended, see why: sparkctl logs {name} --node {session.node.name}"


async def _find_guard_action(ctx: CommandContext, emit: Emit, target: BenchTarget) -> str | None:
    """Return in words why the guard stopped the container, None where it did not, as far as is known."""
    session, found = target.session, None
    for wait in _RECEIPT_SECONDS:  # the container ends before the receipt is written
        await ctx.clock.sleep(wait)
        with suppress(SparkctlError):
            found = await read_receipt(session, target.container.id) or found
        if found is not None:
            break
    if found is None:
        return None

    def warn(words: str) -> None:
        emit(WarningEmitted(ctx.clock.unix_time(), session.node.name, words))

    save_receipt(ctx, session, found, warn)
    return describe_guard_kill(found)


def refuse_without_tokens(name: str, probe: str | None) -> None:
    """Raise `OperationRefused` for a service that its ``probe`` shows to give no tokens."""
    if (why := explain_no_tokens(name, probe)) is not None:
        hint = f"hear it, with its speed: sparkctl say --instance {name} TEXT -o FILE" if probe == "speech" else None
        raise OperationRefused(why, hint)


async def find_target(stack: AsyncExitStack, ctx: CommandContext, request: MeasureInstance, emit: Emit) -> BenchTarget:
    """Connect to the node of a running instance. Raises `InvalidInput` where it does not run, or runs on several, `NodeError` where
    a node that may have it could not be asked.
    """
    served, failures = await list_endpoints(ctx, request.nodes)
    found = [one for one in served if one.instance == request.instance and one.ours]
    if not found:
        names = sorted({one.instance for one in served if one.ours})
        if (away := next((one for one in failures if one.is_node), None)) is not None:
            words = f"{request.instance} was not found, and {away.where} could not be asked: {away.message}"
            raise NodeError(away.where, words, away.hint)
        reason = next((one.message for one in failures if one.instance == request.instance), None)
        hint = (
            f"start it first: sparkctl up {request.instance} --node NODE; or for the measurement alone: sparkctl bench "
            f"{request.instance} --node NODE --start"
        )
        if reason is not None:
            raise InvalidInput(f"{request.instance} is not running, or does not answer; {reason}", hint)
        raise build_missing_instance_error(request.instance, names, hint=hint)
    if len(found) > 1:
        where = " and ".join(one.node for one in found)
        raise InvalidInput(f"{request.instance} runs on {where}", f"choose one: --node {found[0].node}")
    endpoint = found[0]
    refuse_without_tokens(endpoint.instance, endpoint.service)
    if endpoint.needs_key and (endpoint.key is None or not endpoint.models):
        raise OperationRefused(
            f"{request.instance} needs an API key that sparkctl does not know",
            f"start it again with a key that sparkctl knows: sparkctl restart {request.instance}",
        )
    node = next(one for one in request.nodes if one.name == endpoint.node)
    session = await open_session(stack, ctx, node, emit)
    await session.link.connect()
    container = await find_container(session, request.instance)
    port = None if container is None else parse_port_label(container)
    if container is None or port is None:
        raise InvalidInput(f"{request.instance} on {node.name} has ended", "sparkctl status")
    if (changes := find_profile_changes(ctx, request.instance, container)) is not None:
        words = f"{request.instance} is measured as it runs; its profile here has other settings now: {changes}"
        emit(WarningEmitted(ctx.clock.unix_time(), node.name, words, f"sparkctl restart {request.instance}"))
    engine = load_engine(container.get_label(ContainerLabel.ENGINE) or "")
    run, identity = await session.docker.read_run_options(container.id), None
    with suppress(SparkctlError):
        identity = (await session.read_node("identity")).identity
    target = BenchTarget(
        session=session, container=container, run=run, port=port, engine=engine, served=endpoint, identity=identity
    )
    return replace(target, version=await _read_engine_version(target))


async def _read_engine_version(target: BenchTarget) -> str | None:
    """Return what the engine says of its version, None where it says nothing."""
    if target.engine.version_source is None:
        return None
    path, field_name = target.engine.version_source
    with suppress(OSError, InvalidHttpResponse, SparkctlError):
        answer = await request_engine(
            target.session.link, target.port, "GET", path, headers=target.auth_headers, timeout=_VERSION_SECONDS
        )
        body = (load_json_map(answer.body.decode("utf-8", "replace")) or {}) if answer.is_success else {}
        if isinstance(value := body.get(field_name), str):
            return truncate_text(sanitize_line(value), _MAX_VERSION_CHARS) or None
    return None


async def _fetch_tokenizer(target: BenchTarget, home: Path) -> str:
    """Read the model's tokenizer.json from the node into a directory here. Raises `OperationRefused` if there is none."""
    session, name = target.session, target.session.node.name
    root = None if target.model is None else target.model.root
    place = map_path_to_node(root, target.run)
    if place is None:
        raise OperationRefused(f"the model's tokenizer was not found on {name}", _TOKENIZER_HINT)
    paths = [f"{place}/tokenizer.json"]
    if not (root or "").startswith("/"):  # a name of the Hub: its files lie below snapshots
        listed = await session.run(["find", f"{place}/snapshots", "-name", "tokenizer.json"], timeout=_READ_SECONDS)
        paths = listed.stdout.decode("utf-8", "replace").splitlines()[:1]
    for path in paths:
        read = await session.run(["head", "-c", str(_MAX_TOKENIZER_BYTES), path], timeout=_READ_SECONDS)
        if read.status == 0 and read.stdout:
            directory = home / "tokenizer"
            await asyncio.to_thread(directory.mkdir, exist_ok=True)
            await asyncio.to_thread((directory / "tokenizer.json").write_bytes, read.stdout)
            return str(directory)
    raise OperationRefused(f"there is no {place}/tokenizer.json on {name}", _TOKENIZER_HINT)


async def _open_relay(target: BenchTarget) -> SocketRelay:
    """Listen on a free port of this machine's loopback; each request gets a connection to the engine.

    A server may end a connection after a streamed answer without having said so. The load generator would send its next request on
    it before that is known here.
    """

    async def connect_client() -> tuple[ByteReader, ByteWriter]:
        reader, writer = await target.session.link.open_tcp(_LOOPBACK, target.port)
        return reader, HeaderWriter(writer, target.auth_headers)

    return await SocketRelay.listen_tcp(connect_client, 0)


def _prepare_run(
    ctx: CommandContext,
    emit: Emit,
    request: RunBench,
    store: BenchStore,
    target: BenchTarget,
    *,
    generator: str,
    book: str,
    thinking: bool | None,
) -> BenchRun:
    """Return the run to measure: a new one, or the one to resume. Raises `InvalidInput`."""
    setup = replace(describe_setup(ctx, request, target, generator, book, request.runs), thinking=thinking)
    if request.resume is not None:
        run = store.load(request.resume)
        if run.instance != request.instance:
            raise InvalidInput(f"benchmark {run.number} is of {run.instance}", f"sparkctl bench {run.instance}")
        own = [] if is_same_generator(run.setup.generator, generator) else ["generator"]
        refuse_changed_setup(run, setup, target, ("digest", "image_digest", "book"), own)
        return replace(run, why=None, ended=None)
    cells = request.select_cells(setup.context)
    if long := [cell for cell in request.cells if cell not in cells]:
        words = f"{request.instance} takes {setup.context} tokens in one request; left out: {', '.join(map(str, long))}"
        emit(WarningEmitted(ctx.clock.unix_time(), target.session.node.name, words))
    return BenchRun(
        number=0,
        began=ctx.clock.unix_time(),
        instance=request.instance,
        nodes=(target.session.node.name,),
        setup=setup,
        wanted=cells,
    )


def refuse_changed_setup(
    run: BenchRun, setup: BenchSetup, target: BenchTarget, names: Sequence[str], others: Sequence[str] = ()
) -> None:
    """Raise `OperationRefused` where a benchmark would go on with another set-up, as far as its fields of these ``names`` tell, or
    on another Spark. ``others``: what else has changed.
    """
    changed = [
        name for name in names if getattr(setup, name) is None or getattr(run.setup, name) != getattr(setup, name)
    ]
    changed += [*others, *([] if target.session.node.name in run.nodes else ["node"])]
    if changed:
        more = " --by-domain" if run.setup.prompts else ""
        raise OperationRefused(
            f"benchmark {run.number} had another (or unknown) {', '.join(changed).replace('_', ' ')}: its figures cannot be compared with new ones",
            f"measure again: sparkctl bench {run.instance}{more}",
        )


def describe_setup(
    ctx: CommandContext,
    request: MeasureInstance,
    target: BenchTarget,
    generator: str | None,
    book: str | None,
    runs: int = 1,
) -> BenchSetup:
    """Return what is measured, with which tool: name and version of the load generator, the hash of its ``book``.

    What the node itself tells comes from there: another operator may have started it, and this machine's history knows nothing of it.
    """
    container, model, identity = target.container, target.model, target.identity
    start = ctx.history.find_start_of(request.instance, container.id)
    share = None if start is None else next(iter(start.shares), None)
    words = CommandFlags(target.run.command, target.run.entrypoint)
    return BenchSetup(
        prefix_cache=read_prefix_cache(target.engine, words), temperature=read_temperature(target.engine, words),
        profile=container.get_label(ContainerLabel.PROFILE),
        digest=container.get_label(ContainerLabel.HASH) if start is None else start.hash,
        text=None if start is None else start.text, engine=target.engine.name,
        engine_version=target.version or (None if share is None else share.engine_version), image=container.image,
        image_digest=container.image_id or (None if share is None else share.image_digest),
        driver=(identity.driver or None) if identity is not None else None, kernel=(identity.kernel or None) if identity is not None else None,
        served=None if model is None else model.name,
        context=None if model is None else model.context, generator=generator,
        book=book, runs=runs,
    )  # fmt: skip


def read_prefix_cache(engine: Engine, words: CommandFlags) -> bool | None:
    """Tell whether a launch turns its engine's prefix cache on or off, None where it does neither."""
    turned_on, turned_off = (words.has_flag(*names) for names in engine.prefix_cache_flags)
    return False if turned_off else True if turned_on else None


def read_temperature(engine: Engine, words: CommandFlags) -> float | None:
    """Return the temperature that a launch sets for requests that have none, None where it sets none."""
    value = words.get_json(*engine.temperature_flags).get("temperature", words.get_value(*engine.temperature_flags))
    try:
        found = float(value) if isinstance(value, str | int | float) else None
    except ValueError:
        return None
    return found if found is not None and math.isfinite(found) else None


async def _find_thinking(ctx: CommandContext, target: BenchTarget) -> bool | None:
    """Ask a short question, which is not measured: return whether its answer begins with thoughts.

    None where that is not known: a server without a parser for thoughts does not tell them apart.
    """
    body = {
        "model": target.model.name if target.model else "default",
        "max_tokens": _THOUGHT_TOKENS,
        "messages": [{"role": "user", "content": "What is the capital of France?"}],
    }
    try:
        answer = await stream_chat(
            target.session.link, target.port, body, target.auth_headers, clock=ctx.clock, timeout=_READ_SECONDS
        )
    except (TimeoutError, InvalidHttpResponse, OSError, SparkctlError):  # the first cell tells what is wrong
        return None
    return True if answer.has_thought else False if has_thought_parser(target) else None


def has_thought_parser(target: BenchTarget) -> bool:
    """Tell whether the launch names a parser that tells thoughts apart from the answer."""
    return any(find_flag_value(target.run.command, name) is not None for name in _PARSER_FLAGS)


@contextmanager
def keep_run(ctx: CommandContext, emit: Emit, store: BenchStore, run: BenchRun) -> Iterator[BenchRun]:
    """Give a new run its number, and hold it while it is measured. Raises `OperationRefused` if somebody measures it now."""
    with ExitStack() as stack:
        try:
            run = run if run.number else store.add(run)
            stack.enter_context(store.hold(run.number))
        except OSError as error:
            words = f"the benchmark was not saved: {store.directory}: {error.strerror or error}"
            emit(WarningEmitted(ctx.clock.unix_time(), None, words))
        try:
            yield run
        except SparkctlError:  # refused after all
            store.discard_empty(run.number)
            raise


def save_run(ctx: CommandContext, emit: Emit, store: BenchStore, run: BenchRun) -> BenchRun:
    """Write what was measured, and return it with the number under which it is kept; a warning where it cannot be written.

    One that was interrupted before anything was measured is forgotten, and has the number 0.
    """
    if run.why == INTERRUPTED and not run.results and not run.domains:
        store.discard_empty(run.number)
        return replace(run, number=0)
    try:
        if not run.number:  # it could not be written when it began
            return store.add(run)
        store.save(run)
    except OSError as error:
        words = f"the benchmark was not written to {store.directory}: {error}"
        emit(WarningEmitted(ctx.clock.unix_time(), None, words))
    return run


def describe_saving(store: BenchStore, run: BenchRun) -> str:
    """Return in words whether a benchmark is on disk as it was measured."""
    return f"benchmark {run.number} is kept" if store.is_saved(run) else "the benchmark is not saved"


def count_measured(store: BenchStore, run: BenchRun, left: int, total: int, what: str) -> str:
    """Return in words how many of ``what`` are measured, and whether they are on disk."""
    kept = "" if left == total else " and saved" if store.is_saved(run) else ", and not saved"
    return f"{total - left} of {total} {what} are measured{kept}"


def choose_hint(run: BenchRun, left: int) -> str | None:
    """Return the command that shows a benchmark, or measures what is ``left`` of it; None where it is not kept."""
    if not run.number:
        return None
    return f"measure the rest: sparkctl bench --resume {run.number}" if left else f"sparkctl bench show {run.number}"


def build_run_end(
    ctx: CommandContext, run: BenchRun, left: int, began: float, *, saved: str, kept: str, failure: str | None
) -> CommandEnded:
    """Return how a benchmark ended of which so many parts are ``left``. ``saved`` and ``kept`` tell what is on disk of a whole one and of
    one that ended early; ``failure``: what failed in it.
    """
    outcome, message = Outcome.DONE, saved
    if run.why == INTERRUPTED:
        outcome, message = Outcome.INTERRUPTED, kept
    elif run.why is not None:
        outcome, message = Outcome.FAILED, f"{run.why}; {kept}"
    elif failure is not None:
        outcome, message = Outcome.FAILED, failure
    hint = choose_hint(run, left)
    return build_end(ctx, began, outcome, node=run.nodes[0], instance=run.instance, message=message, hint=hint)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunBenches(Request):
    """A request to measure several instances.

    Attributes:
        benches: what to measure in each.
        starts: the starts of those that are profiles, in the order of ``benches``; None where there is none.
        are_started: start what does not run without a question.
        everywhere: all nodes, where ranks of what has to stop may be.
        together: all at the same time; they have to run on different nodes.
        estimate: about how many seconds it takes, by earlier benchmarks; None where one has none.
    """

    benches: tuple[RunBench, ...]
    nodes: Sequence[Node]
    starts: tuple[StartInstance | None, ...]
    are_started: bool = False
    everywhere: Sequence[Node] = ()
    together: bool = False
    estimate: float | None = None

    def format_as_command(self) -> tuple[str, ...]:
        first = self.benches[0]
        if first.resume is not None:
            return first.format_as_command()
        names = [one.instance for one in self.benches]
        flags = [*(["--start"] if self.are_started else []), *(["--together"] if self.together else [])]
        _, _, *options = first.format_as_command()
        return ("bench", *names, *options, *flags)

    def preview(self, now: ActionContext) -> Preview:
        cells = sum(len(one.cells) for one in self.benches)
        names = " and ".join(one.instance for one in self.benches)
        where = f" on {' and '.join(self.named_nodes)}" if self.named_nodes else ""
        runs = max(one.runs for one in self.benches)
        each = f"{runs} runs of each cell." if runs > 1 else "1 run of each cell, which has no spread."
        question = f"Measure {names}{where}: {cells} cell{'s' if cells != 1 else ''}?"
        takes = "How long it takes is told after the warm-up."
        if self.estimate is not None:
            takes = f"It takes about {format_duration(self.estimate)}, by the last benchmark."
        words = f"{each} {takes} Requests of others wait meanwhile, and disturb the figures. What was measured is kept whenever you stop it."
        sentences = ((question, SentenceTone.STRONG),), ((words, SentenceTone.PLAIN),)
        return Preview(
            sections=(*sentences, *describe_unreachable(now, self.named_nodes)),
            is_required=True,
            title="bench",
            accept="measure",
        )

    def run(self, ctx: CommandContext) -> AsyncGenerator[Event, None]:
        return run_benches(ctx, self)


def run_benches(ctx: CommandContext, request: RunBenches) -> AsyncGenerator[Event, None]:
    """Measure each instance; what fails for one is a warning, and the others are measured all the same."""

    async def run_series(emit: Emit) -> CommandEnded:
        for one in request.benches:
            find_load_generator(one.generator, one.instance)  # what is not there is told before anything starts
        starts = request.starts or (None,) * len(request.benches)
        series = BenchSeries(
            ctx=ctx, emit=emit, pairs=tuple(zip(request.benches, starts, strict=True)), nodes=request.nodes,
            everywhere=request.everywhere, are_started=request.are_started, together=request.together,
        )  # fmt: skip
        return await series.run()

    return stream_events(ctx, run_series, on_interrupt=None)


@dataclass(slots=True, kw_only=True)
class BenchSeries:
    """Measurements, each with the start of its profile, None where there is none.

    Attributes:
        nodes, everywhere, are_started, together: as in `RunBenches`.
        stopped: what ran before and stopped for a measurement, each with the start that repeats its own.
        ends: of the measurements, in their order.
    """

    ctx: CommandContext
    emit: Emit
    pairs: Sequence[tuple[MeasureInstance, StartInstance | None]]
    nodes: Sequence[Node]
    everywhere: Sequence[Node] = ()
    are_started: bool = False
    together: bool = False
    stopped: dict[str, StartInstance] = field(default_factory=dict)
    ends: list[CommandEnded] = field(default_factory=list)
    _answers: dict[str, bool] = field(default_factory=dict)  # whether to start it, by instance
    # what would start again with other settings, as the questions said
    _named_changes: set[str] = field(default_factory=set)

    async def run(self) -> CommandEnded:
        """Measure all, then start again what stopped for it."""
        began = self.ctx.clock.monotonic()
        interruptible = self.ctx.interrupt.run_interruptible
        if self.together:
            await interruptible(self._require_different_nodes(self.pairs), NOTHING_MEASURED)
        await interruptible(self._ask_before(), NOTHING_MEASURED)
        try:
            if self.together:
                self.ends += await gather_or_cancel(*(self._measure_one(*pair) for pair in self.pairs))
            else:
                for pair in self.pairs:
                    self.ends.append(await self._measure_one(*pair))
                    if self.ctx.interrupt.presses:
                        break
        finally:
            await self._start_again()
        return _merge_ends(self.ctx, len(self.pairs), self.ends, began)

    @property
    def may_start(self) -> bool:
        """Tell whether anything may be started: it was said before, or there is somebody to ask."""
        return self.are_started or type(self.ctx.prompter) is not NonInteractivePrompter

    async def _ask_before(self) -> None:
        """Ask for each that does not run, before the first is measured: nobody waits for a question in the night."""
        if self.are_started or not self.may_start or len(self.pairs) < 2:
            return
        for bench, start in self.pairs:
            if start is None or await self.is_served(bench.instance, bench.nodes):
                continue
            stops, refused = await self._plan_stops(self._build_switch(start))
            if refused is not None:
                continue
            try:
                await self._refuse_unmeasurable(bench, start)
                _, changed = await self._build_restarts(stops)
            except SparkctlError:  # it is told when its turn comes
                continue
            question = _build_question(bench, start, stops, changed)
            self._answers[bench.instance] = await self.ctx.prompter.ask_yes_no(question)
            self._named_changes.update(changed)

    def _build_switch(self, start: StartInstance) -> SwitchInstance:
        # `once_more`: nobody waits for a question in the night
        return SwitchInstance.from_start(replace(start, once_more=True), self.everywhere)

    async def _measure_one(self, bench: MeasureInstance, start: StartInstance | None) -> CommandEnded:
        try:
            planned = await self.ctx.interrupt.run_interruptible(self._plan_start(bench, start), NOTHING_MEASURED)
        except SparkctlError as error:
            return build_end_from_error(error, self.ctx, 0.0, bench.instance)
        if isinstance(planned, CommandEnded):
            return planned
        if planned is None:  # where it does not run, that is told
            return await forward_events(bench.run(self.ctx), self.emit)
        start, was_there, restarts = planned
        stops, is_left = tuple(restarts), False
        for name, restart in restarts.items():
            self.stopped.setdefault(name, restart)
        try:
            action = self._build_switch(start) if stops else start
            ended = await forward_events(action.run(self.ctx), self.emit)
            if ended.outcome is Outcome.READY:
                return await forward_events(replace(bench, nodes=start.nodes[:1]).run(self.ctx), self.emit)
            # what failed stays to tell why, and an interrupted switch has its own way back
            is_left = bool(stops) or ended.outcome is not Outcome.INTERRUPTED
            if stops and ended.outcome is Outcome.INTERRUPTED:
                for name in stops:
                    self.stopped.pop(name, None)
            return ended
        except SparkctlError as error:
            is_left = True
            return build_end_from_error(error, self.ctx, 0.0, bench.instance)
        finally:
            if not is_left and not was_there and bench.instance not in self.stopped:
                await self._stop(bench.instance, start)

    async def _plan_start(
        self, bench: MeasureInstance, start: StartInstance | None
    ) -> tuple[StartInstance, bool, dict[str, StartInstance]] | CommandEnded | None:
        """Return the start for a measurement, whether it may be there already, and how what stops for it starts again; the end that
        refuses it; None: nothing is to be started.
        """
        if start is None or not self.may_start or await self.is_served(bench.instance, bench.nodes):
            return None
        start, was_there = self.stopped.get(bench.instance, start), await self._may_be_there(bench.instance, start)
        await self._refuse_unmeasurable(bench, start)
        stops, refused = await self._plan_stops(self._build_switch(start))
        if refused is not None:
            return refused
        restarts, changed = await self._build_restarts(stops)
        is_wanted = self.are_started or self._answers.get(bench.instance)
        if is_wanted is None:
            question = _build_question(bench, start, stops, changed)
            is_wanted = await self.ctx.prompter.ask_yes_no(question)
        elif is_wanted and (untold := [name for name in changed if name not in self._named_changes]):
            raise OperationRefused(
                f"{untold[0]} has to stop for {bench.instance}, and would not start again with the same settings: "
                f"{changed[untold[0]]}",
                f"have it run with its profile as it is here: sparkctl restart {untold[0]}; or leave out --start, to be asked",
            )
        return (start, was_there, restarts) if is_wanted else None

    async def _plan_stops(self, switch: SwitchInstance) -> tuple[tuple[str, ...], CommandEnded | None]:
        """Return the names of what has to stop for a start, and the end that refuses it, None where it may begin."""
        seen: list[Event] = []
        ended = await forward_events(replace(switch, dry_run=True).run(self.ctx), seen.append)
        stops = next((event.plan.stops for event in seen if isinstance(event, SwitchPlanned)), ())
        return stops, ended if ended.exit_code else None

    async def _build_restarts(self, stops: Sequence[str]) -> tuple[dict[str, StartInstance], dict[str, str]]:
        """Return how what stops starts again, by name, and why that has other settings than run now, for those for which it has.

        Raises `SparkctlError` where one cannot be started again: then nothing stops.
        """
        nodes = self.everywhere or self.nodes
        views = await read_node_statuses(self.ctx, nodes) if stops else ()
        restarts, changed = dict[str, StartInstance](), dict[str, str]()
        for name in stops:
            found = choose_instance(views, name)
            plan = build_restart(self.ctx, found, self.everywhere)
            restarts[name] = plan.start
            if name in self.stopped:
                continue
            if plan.changes is not None:
                changed[name] = f"its profile here has changed since it was started ({plan.changes})"
            if plan.is_known:
                continue
            async with self.ctx.create_session(next(one for one in nodes if one.name == found.node)) as session:
                await session.link.connect()
                container = await find_container(session, name)
            if container is None or container.get_label(ContainerLabel.HASH) != plan.start.profile.digest:
                changed[name] = "it runs with settings that are not in this computer's history"
        return restarts, changed

    async def _start_again(self) -> None:
        """Start what ran before and does not run now."""
        for name, start in self.stopped.items():
            if await self.is_served(name, start.nodes):
                continue
            ended = await forward_events(start.run(_without_interrupt(self.ctx)), self.emit)
            if ended.outcome is not Outcome.READY:
                words = f"{name} ran before and does not run again: {ended.message or ended.outcome}"
                self.emit(WarningEmitted(self.ctx.clock.unix_time(), ended.node, words, ended.hint))

    async def _stop(self, name: str, start: StartInstance) -> None:
        stopping = StopInstance(instance=name, nodes=start.nodes, everywhere=self.nodes)
        ended = await forward_events(stopping.run(_without_interrupt(self.ctx)), self.emit)
        if ended.exit_code:
            words = f"{name} was not stopped: {ended.message}"
            self.emit(WarningEmitted(self.ctx.clock.unix_time(), None, words, ended.hint))

    async def _refuse_unmeasurable(self, bench: MeasureInstance, start: StartInstance) -> None:
        """Raise `OperationRefused` where the profile, or the model's files on the node, tell that it cannot be measured: then nothing
        stops or starts for it.

        What the server itself takes may still be less than both.
        """
        if not isinstance(bench, RunBench):
            return
        engine, profile = start.engine, start.profile
        words = CommandFlags(engine.build_command(profile), profile.container.entrypoint)
        context = words.get_count(*engine.context_flags) or None  # 0: as long as the model's
        bench.select_cells(context)
        path = profile.model.path or ""
        if not bench.tokenizer and path.endswith(_GGUF_SUFFIX):
            raise OperationRefused(
                f"{bench.instance} has its tokenizer inside {path}, where it is not read", _TOKENIZER_HINT
            )
        files = await self._read_model_files(start)
        if files is None:
            return
        if context is None and engine.context_flags and not any(words.has_flag(name) for name in engine.config_flags):
            bench.select_cells(parse_longest_context(files.config))
        if not bench.tokenizer and files.has_tokenizer is False:
            raise OperationRefused(
                f"there is no {files.place}/tokenizer.json on {start.head_node.name}", _TOKENIZER_HINT
            )

    async def _read_model_files(self, start: StartInstance) -> CheckpointFiles | None:
        """Return the model's files on the node of a start, None where they cannot be looked at: it is told after the start, then."""
        with suppress(SparkctlError):
            async with self.ctx.create_session(start.head_node) as session:
                await session.link.connect()
                await session.read_node("identity")  # with the home, which mounts may name
                plan = build_changed_plan(self.ctx, replace(start, dry_run=True), session, start.profile)
                for place in list_checkpoint_paths(start.profile, plan, (PartKind.MODEL,)):
                    return next(iter((await session.read_node(f"model={place}")).models), None)
        return None

    async def _may_be_there(self, name: str, start: StartInstance) -> bool:
        """Tell whether an instance may run already, although it does not answer: it loads, or is not known. It is not ours to stop."""
        views = await read_node_statuses(self.ctx, start.nodes)
        return any(
            view.state is not NodeState.OK
            or not view.docker_known
            or any(one.name == name and one.is_alive for one in view.instances)
            for view in views
        )

    async def _require_different_nodes(self, pairs: Sequence[tuple[MeasureInstance, StartInstance | None]]) -> None:
        """Raise `OperationRefused` where two instances that are measured together share a node, as they would share its memory."""
        views = await read_node_statuses(self.ctx, self.everywhere or self.nodes)
        taken: dict[NodeName, str] = {}
        for bench, start in pairs:
            running = {
                one.node for view in views for one in view.instances if one.name == bench.instance and one.is_alive
            }
            for node in sorted(running or {one.name for one in (() if start is None else start.nodes)}):
                if node in taken:
                    raise OperationRefused(
                        f"{taken[node]} and {bench.instance} are both on {node}: measured together, each would slow the other down",
                        "without --together they are measured one after the other",
                    )
                taken[node] = bench.instance

    async def is_served(self, name: str, nodes: Sequence[Node]) -> bool:
        """Tell whether an instance of ours answers on one of these nodes."""
        served, _ = await list_endpoints(self.ctx, nodes)
        return any(one.ours and one.instance == name for one in served)


def _build_question(
    bench: MeasureInstance, start: StartInstance, stops: tuple[str, ...], changed: Mapping[str, str]
) -> BenchStartQuestion:
    nodes = tuple(node.name for node in start.nodes)
    return BenchStartQuestion(bench.instance, nodes, stops, tuple(changed.items()))


def _without_interrupt(ctx: CommandContext) -> CommandContext:
    """Return a context in which the Ctrl-C that ended the measurement does not end the stop as well."""
    return replace(ctx, interrupt=InterruptSignal())


def _merge_ends(ctx: CommandContext, count: int, ends: Sequence[CommandEnded], began: float) -> CommandEnded:
    """Return the end of all: done if all are, interrupted if not all were begun, else the first that is not done, with what became of
    the others.
    """
    bad, is_cut = next((one for one in ends if one.exit_code), None), len(ends) < count
    message = "; ".join(one.message for one in ends if one.message) or None
    hint = ends[-1].hint if is_cut else "sparkctl bench compare"
    merged = build_end(ctx, began, Outcome.DONE, message=message, hint=hint)
    if count == 1 and ends:
        return replace(ends[0], ts=merged.ts, seconds=merged.seconds)
    if bad is not None:
        merged = replace(
            bad, ts=merged.ts, seconds=merged.seconds, message=f"{bad.instance or 'one'}: {bad.message or bad.outcome}"
        )
    if is_cut:
        merged = replace(merged, outcome=Outcome.INTERRUPTED, exit_code=int(ExitCode.INTERRUPTED))
    if bad is not None or is_cut:
        done = sum(not one.exit_code for one in ends)
        words = f"{done} of {count} were measured completely"
        merged = replace(merged, message=f"{merged.message}; {words}" if merged.message else words)
    return merged
