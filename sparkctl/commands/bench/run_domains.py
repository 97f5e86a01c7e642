"""``bench --by-domain``: acceptance and speed by kind of text, one prompt after the other, over the SSH connection.

The prompts are our own set or a file in the form of Spec-Bench and SPEED-Bench. Our set is `prompts.jsonl`: written for
sparkctl, under its licence (Apache-2.0), and no part of a set on which drafters are trained.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from sparkctl.commands.bench.chat_stream import RequestRefused, StreamedAnswer, stream_chat
from sparkctl.commands.bench.run_bench import (
    INTERRUPTED,
    NOTHING_MEASURED,
    BenchSeries,
    BenchSweep,
    BenchTarget,
    MeasureInstance,
    build_run_end,
    count_measured,
    describe_saving,
    describe_setup,
    find_target,
    find_why_it_ended,
    has_thought_parser,
    keep_run,
    record_bench,
    refuse_changed_setup,
)
from sparkctl.commands.event_stream import stream_events
from sparkctl.commands.list_endpoints import list_endpoints
from sparkctl.commands.start.start_request import StartInstance
from sparkctl.context import CommandContext, CommandInterrupted
from sparkctl.errors import (
    ConnectionLost,
    InvalidInput,
    MetricsUnreadable,
    OperationRefused,
    format_did_you_mean,
)
from sparkctl.files import read_regular_file
from sparkctl.history.bench_store import BenchStore
from sparkctl.model.bench import BenchRun, BenchSetup, DomainKey, DomainResult, Measurements
from sparkctl.model.engine_metrics import EngineMetrics
from sparkctl.model.events import BenchDomainMeasured, CommandEnded, Emit, Event
from sparkctl.model.lazy_dataclass import dataclass
from sparkctl.model.node import Node
from sparkctl.model.text.sanitize import load_json, sanitize_line
from sparkctl.monitor.engine_probe import QueryMarkerSupport, request_engine
from sparkctl.monitor.meters.metrics_window import compute_weighted_mean, has_restarted, subtract_counters
from sparkctl.transport.http_client import InvalidHttpResponse

_PROMPT_SECONDS = 300.0  # seconds for one answer, without --timeout
_METRICS_SECONDS = 5.0
_TEMPERATURE = 0.0
# how often, and after how many seconds, the counters are read until they have all tokens
_COUNTED_TRIES, _COUNTED_PAUSE = 5, 0.2
_DISTURBED_SHARE, _DISTURBED_TOKENS = 1.05, 16  # more tokens than ours by both: somebody else asked
_END_SECONDS = (0.0, 1.0, 2.0, 4.0)  # seconds before each look whether it has ended: its port closes first
_REFUSED_SETTING = (400, 422)  # of a server that does not know the setting of thinking


@dataclass(frozen=True, slots=True, kw_only=True)
class RunDomains(MeasureInstance):
    """A request to measure an instance by kind of text.

    Attributes:
        prompts: a file of prompts, None: our own set.
        domains: the kinds to measure, all without any.
        tokens: at most, of each answer.
        timeout: seconds for an answer.
        baseline: an instance or profile without drafts that is compared with: measured before, or now.
        resume: the number of a benchmark whose missing kinds of text are measured.
        start, baseline_start: the starts of both, where they are profiles.
        are_started: start what does not run without a question.
        everywhere: all nodes, where ranks of what has to stop may be.
    """

    prompts: Path | None = None
    domains: tuple[str, ...] = ()
    tokens: int = 256
    timeout: float | None = None
    baseline: str | None = None
    resume: int | None = None
    start: StartInstance | None = None
    baseline_start: StartInstance | None = None
    are_started: bool = False
    everywhere: Sequence[Node] = ()

    def format_as_command(self) -> tuple[str, ...]:
        more = [*(["--baseline", self.baseline] if self.baseline else []), *(["--start"] if self.are_started else [])]
        if self.resume is not None:
            return ("bench", "--resume", str(self.resume), *self.format_node_options(), *more)
        options = [word for name in self.domains for word in ("--domain", name)]
        options += ["--prompts", str(self.prompts)] if self.prompts else []
        return (
            "bench",
            self.instance,
            *self.format_node_options(),
            "--by-domain",
            *options,
            *more,
            "--max-tokens",
            str(self.tokens),
        )

    def run(self, ctx: CommandContext) -> AsyncGenerator[Event, None]:
        return run_domains(ctx, self)


def run_domains(ctx: CommandContext, request: RunDomains) -> AsyncGenerator[Event, None]:
    """Measure each kind of text, with one event each; what was measured is kept whatever happens later.

    A profile that does not run is started for it, and stopped again; the baseline after the instance, unless it was measured before.
    """

    if request.start is None and request.baseline is None:
        return record_bench(ctx, request, lambda own, emit: _measure_alone(own, emit, request))

    async def measure(emit: Emit) -> CommandEnded:  # each measurement has its own row in the history
        return await _measure_with_baseline(ctx, emit, request)

    return stream_events(ctx, measure, request.instance, on_interrupt=None)


async def _measure_alone(ctx: CommandContext, emit: Emit, request: RunDomains) -> CommandEnded:
    """Measure the instance, which runs."""
    began, store = ctx.clock.monotonic(), BenchStore()
    prompts = load_prompts(request.prompts).select(request.domains)
    async with AsyncExitStack() as stack:
        target = await ctx.interrupt.run_interruptible(find_target(stack, ctx, request, emit), NOTHING_MEASURED)
        setup = _describe_domain_setup(ctx, request, target, prompts)
        if request.resume is None:
            run = BenchRun(
                number=0, began=ctx.clock.unix_time(), instance=request.instance, nodes=(target.session.node.name,), setup=setup,
                wanted=(), wanted_domains=tuple(DomainKey(name, None) for name in prompts.domains),
                prompts=None if request.prompts is None else str(request.prompts.absolute()),
            )  # fmt: skip
        else:
            run = _continue_run(store.load(request.resume), request, target, setup)
        run = stack.enter_context(keep_run(ctx, emit, store, run))
        sweep = _DomainSweep(ctx=ctx, emit=emit, store=store, target=target, request=request, prompts=prompts)
        run = await sweep.measure_all(run)
    left, failed = len(run.missing_domains), next((one for one in run.domains if one.error is not None), None)
    return build_run_end(
        ctx, run, left, began, saved=describe_saving(store, run),
        kept=count_measured(store, run, left, len(run.wanted_domains), "kinds of text"),
        failure=None if failed is None else
        f"{failed.domain}: {failed.failed} of {failed.prompts} prompts gave no figure: {failed.error}",
    )  # fmt: skip


def _continue_run(run: BenchRun, request: RunDomains, target: BenchTarget, setup: BenchSetup) -> BenchRun:
    """Return the benchmark to continue. Raises `OperationRefused` where something has changed that changes its figures."""
    if run.instance != request.instance:
        raise InvalidInput(f"benchmark {run.number} is of {run.instance}", f"sparkctl bench {run.instance} --by-domain")
    refuse_changed_setup(run, setup, target, ("digest", "image_digest", "prompts", "answer_tokens"))
    return replace(run, why=None, ended=None)


async def _measure_with_baseline(ctx: CommandContext, emit: Emit, request: RunDomains) -> CommandEnded:
    """Measure the instance, then the baseline unless it was measured with these prompts; each is started where it does not run."""
    store, prompts = BenchStore(), load_prompts(request.prompts).select(request.domains)
    own = replace(request, baseline=None, start=None, baseline_start=None)
    pairs: list[tuple[MeasureInstance, StartInstance | None]] = [(own, request.start)]
    known = None if request.baseline is None else _find_baseline(store, request, prompts)
    numbers: dict[str, int | None] = {request.instance: request.resume}

    def keep_number(event: Event) -> None:
        if isinstance(event, BenchDomainMeasured) and event.benchmark is not None:
            numbers[event.instance] = event.benchmark
        emit(event)

    if request.baseline is not None and known is None:
        start = request.baseline_start
        if start is not None and not request.names_nodes and len(start.nodes) == 1:
            own_nodes = await ctx.interrupt.run_interruptible(_find_own_nodes(ctx, request), NOTHING_MEASURED)
            start = replace(start, nodes=own_nodes or start.nodes)
        pairs.append((replace(own, instance=request.baseline, resume=None), start))
    series = BenchSeries(
        ctx=ctx,
        emit=keep_number,
        pairs=pairs,
        nodes=request.nodes,
        everywhere=request.everywhere,
        are_started=request.are_started,
    )
    for bench, start in pairs[1:]:
        if start is not None and series.may_start:
            continue
        serves = series.is_served(bench.instance, bench.nodes)
        if not await ctx.interrupt.run_interruptible(serves, NOTHING_MEASURED):
            raise OperationRefused(
                f"the baseline {bench.instance} has no benchmark with these prompts, and is not running",
                "--start starts it for its measurement; what has to stop for it runs again at the end",
            )
    ended = await series.run()
    number, baseline = (
        numbers.get(request.instance),
        numbers.get(request.baseline or "") if known is None else known.number,
    )
    if number is not None and baseline is not None:
        with suppress(InvalidInput, OSError):
            store.save(replace(store.load(number), baseline=baseline))
    return (
        ended
        if number is None
        else replace(ended, hint=f"sparkctl bench show {number}" if not ended.exit_code else ended.hint)
    )


async def _find_own_nodes(ctx: CommandContext, request: RunDomains) -> tuple[Node, ...]:
    """Return the node of the measured instance: a baseline elsewhere would compare two Sparks, too."""
    served, _ = await list_endpoints(ctx, request.nodes)
    names = {one.node for one in served if one.ours and one.instance == request.instance}
    return tuple(node for node in request.nodes if node.name in names)[:1]


def _describe_domain_setup(
    ctx: CommandContext, request: RunDomains, target: BenchTarget, prompts: PromptSet
) -> BenchSetup:
    settings = target.engine.read_decoding_settings(target.run.command)
    return replace(
        describe_setup(ctx, request, target, None, None),
        prompts=prompts.digest,
        answer_tokens=request.tokens,
        draft_tokens=settings.draft_tokens or 0,
        temperature=_TEMPERATURE,
    )


def _find_baseline(store: BenchStore, request: RunDomains, prompts: PromptSet) -> BenchRun | None:
    """Return the newest benchmark of the baseline with these prompts, None without a whole one."""
    wanted = set(prompts.domains)
    return next(
        (
            one
            for one in store.list_runs()
            if request.baseline in (one.instance, one.setup.profile)
            and (one.setup.prompts, one.setup.answer_tokens) == (prompts.digest, request.tokens)
            and wanted <= {each.domain for each in one.domains if each.generation_rate is not None}
        ),
        None,
    )


@dataclass(slots=True, kw_only=True)
class _DomainSweep(BenchSweep):
    """All kinds of text of one instance, one prompt after the other: together they would share their steps."""

    request: RunDomains
    prompts: PromptSet
    has_setting: bool = True

    async def measure_all(self, run: BenchRun) -> BenchRun:
        """Measure without thinking, then with it where the model has it."""
        try:
            passes = await self.ctx.interrupt.run_interruptible(self._choose_passes(), INTERRUPTED)
        except CommandInterrupted:
            return self.save(replace(run, why=INTERRUPTED))
        except (ConnectionLost, ConnectionError) as lost:
            return self.save(replace(run, why=await self._tell_loss(lost)))
        keys = tuple(DomainKey(domain, thinking) for thinking in passes for domain in self.prompts.domains)
        run = self.save(replace(run, wanted_domains=keys))
        left, began = run.missing_domains, self.ctx.clock.monotonic()
        done = len(keys) - len(left)
        for number, key in enumerate(left, 1):
            try:
                result = await self.ctx.interrupt.run_interruptible(
                    self._measure_domain(key.domain, key.thinking), INTERRUPTED
                )
            except CommandInterrupted:
                return self.save(replace(run, why=INTERRUPTED))
            except (ConnectionLost, ConnectionError) as lost:
                return self.save(replace(run, why=await self._tell_loss(lost)))
            found = {**{one.key: one for one in run.domains}, key: result}
            run = self.save(replace(run, domains=tuple(found[one] for one in keys if one in found)))
            remaining = (self.ctx.clock.monotonic() - began) / number * (len(left) - number)
            self.emit(
                BenchDomainMeasured.from_result(
                    self.ctx.clock.unix_time(), self.target.session.node.name, run.instance, result, number=done + number,
                    total=len(keys), remaining=remaining, benchmark=run.number or None,
                )
            )  # fmt: skip
        return self.save(replace(run, ended=self.ctx.clock.unix_time(), why=None))

    async def _choose_passes(self) -> tuple[bool | None, ...]:
        """Return the passes, see `list_passes`. Its requests are also the warm-up, which is not counted."""
        warm_up = DomainPrompt("", "What is the capital of France?")
        try:
            with_thinking, without = [await self._ask(warm_up, wanted) for wanted in (True, False)]
        except RequestRefused as refused:
            if refused.status not in _REFUSED_SETTING:
                raise OperationRefused(
                    f"{self.request.instance} does not accept chat requests: {refused}", "sparkctl check"
                ) from refused
            self.has_setting = False
            return (None,)
        except (TimeoutError, InvalidHttpResponse) as error:
            raise OperationRefused(
                f"{self.request.instance} does not stream an answer: {error}", f"sparkctl check {self.request.instance}"
            ) from error
        return list_passes(
            thinks=with_thinking.has_thought,
            thinks_anyway=without.has_thought,
            has_parser=has_thought_parser(self.target),
        )

    async def _measure_domain(self, domain: str, thinking: bool | None) -> DomainResult:
        answers: list[StreamedAnswer] = []
        drafts, errors = _DraftCount(self.target.engine.acceptance_steps or 0), list[str]()
        prompts = [one for one in self.prompts.prompts if one.domain == domain]
        for prompt in prompts:
            before = await self._read_metrics()
            try:
                answer = await self._ask(prompt, thinking)
            except TimeoutError:
                errors.append(f"no complete answer within {self.request.timeout or _PROMPT_SECONDS:.0f} s")
                continue
            except InvalidHttpResponse as error:
                errors.append(str(error))
                continue
            drafts.add(answer, before, await self._read_counted(before, answer))
            if answer.rate is None:
                errors.append("the answer has less than two tokens, or the engine does not count them")
            answers.append(answer)
        rates = tuple(one.rate for one in answers if one.rate is not None)
        firsts = tuple(one.ttft for one in answers if one.ttft is not None)
        return DomainResult(
            domain=domain, thinking=thinking, prompts=len(prompts), failed=len(errors),
            tokens=sum(one.tokens or 0 for one in answers), generation_rate=Measurements(rates) if rates else None,
            ttft=Measurements(firsts) if firsts else None, accept_length=drafts.length, accept_rate=drafts.rate,
            steps=drafts.steps or None, disturbed=drafts.disturbed, error=next(iter(errors), None),
        )  # fmt: skip

    async def _ask(self, prompt: DomainPrompt, thinking: bool | None) -> StreamedAnswer:
        body: dict[str, Any] = {
            "model": self.target.model.name if self.target.model else "default",
            "temperature": _TEMPERATURE,
            "messages": [{"role": "user", "content": prompt.text}],
            "max_tokens": self.request.tokens,
        }
        if prompt.tools:
            body |= {"tools": prompt.tools, "tool_choice": "auto"}
        if thinking is not None or (self.has_setting and not prompt.domain):
            body["chat_template_kwargs"] = {"enable_thinking": bool(thinking)}
        return await stream_chat(
            self.target.session.link,
            self.target.port,
            body,
            self.target.auth_headers,
            clock=self.ctx.clock,
            timeout=self.request.timeout or _PROMPT_SECONDS,
        )

    async def _read_counted(self, before: EngineMetrics | None, answer: StreamedAnswer) -> EngineMetrics | None:
        """Read the counters until they have the answer's tokens: they may come after its end."""
        now = await self._read_metrics()
        for _ in range(_COUNTED_TRIES):
            made = (
                None
                if before is None or now is None
                else subtract_counters(before.generation_tokens, now.generation_tokens)
            )
            if made is None or answer.tokens is None or made >= answer.tokens - 1:
                break
            await asyncio.sleep(_COUNTED_PAUSE)
            now = await self._read_metrics()
        return now

    async def _read_metrics(self) -> EngineMetrics | None:
        path = self.target.engine.metrics_path
        if path is None:
            return None
        try:
            answer = await request_engine(
                self.target.session.link, self.target.port, "GET", path, headers=self.target.auth_headers,
                timeout=_METRICS_SECONDS, marker_support=QueryMarkerSupport(takes_queries=True),
            )  # fmt: skip
            return (
                self.target.engine.parse_metrics(answer.body.decode("utf-8", "replace")) if answer.is_success else None
            )
        except (TimeoutError, InvalidHttpResponse, MetricsUnreadable):
            return None

    async def _tell_loss(self, lost: ConnectionLost | ConnectionError) -> str:
        """Return why nothing more can be measured after a request that got no answer."""
        if isinstance(lost, ConnectionLost):
            return lost.message
        try:
            for wait in _END_SECONDS:
                await self.ctx.interrupt.run_interruptible(self.ctx.clock.sleep(wait), INTERRUPTED)
                ending = find_why_it_ended(self.ctx, self.emit, self.target)
                if (why := await self.ctx.interrupt.run_interruptible(ending, INTERRUPTED)) is not None:
                    return why
        except CommandInterrupted:
            return INTERRUPTED
        return "the engine no longer answers"


def list_passes(*, thinks: bool, thinks_anyway: bool, has_parser: bool) -> tuple[bool | None, ...]:
    """Return the passes of a model that ``thinks`` when asked to, and ``thinks_anyway`` when asked not to: without and with thinking,
    or one where it has no such choice.
    """
    if thinks_anyway:
        return (True,)
    return (False, True) if thinks or has_parser else (None,)


class _DraftCount:
    """Adds up what became of the drafts of several prompts: by the request's own figures, the counters, or the gauge."""

    def __init__(self, gauge_steps: int) -> None:
        self._gauge_steps = gauge_steps  # a gauge of an answer with fewer steps is another answer's
        self.steps = self._accepted = self._proposed = 0.0
        self._has_proposed = True
        self._gauges: list[tuple[float, float]] = []  # length and tokens
        self._gauge_rates: list[tuple[float, float]] = []
        self.disturbed: bool | None = None

    def add(self, answer: StreamedAnswer, before: EngineMetrics | None, after: EngineMetrics | None) -> None:
        is_known = before is not None and after is not None and not has_restarted(before, after)
        if before is not None and after is not None and is_known:
            made = subtract_counters(before.generation_tokens, after.generation_tokens)
            if made is not None and answer.tokens is not None:
                is_more = made > answer.tokens * _DISTURBED_SHARE + _DISTURBED_TOKENS
                self.disturbed = bool(self.disturbed) or is_more
        if answer.steps and answer.accepted is not None:
            self._add_steps(answer.steps, answer.accepted, answer.proposed)
        elif before is not None and after is not None and is_known:
            steps = subtract_counters(before.drafts, after.drafts)
            accepted = subtract_counters(before.accepted_tokens, after.accepted_tokens)
            if steps is not None and accepted is not None:
                self._add_steps(steps, accepted, subtract_counters(before.draft_tokens, after.draft_tokens))
            elif after.accept_length and (answer.tokens or 0) >= self._gauge_steps * after.accept_length:
                self._gauges.append((after.accept_length, float(answer.tokens or 0)))
                if after.accept_rate:
                    self._gauge_rates.append((after.accept_rate, float(answer.tokens or 0)))

    def _add_steps(self, steps: float, accepted: float, proposed: float | None) -> None:
        self.steps += steps
        self._accepted += accepted
        self._proposed += proposed or 0.0
        self._has_proposed = self._has_proposed and proposed is not None

    @property
    def length(self) -> float | None:
        """Tokens a step, None where no step drafted or none was told."""
        return 1 + self._accepted / self.steps if self.steps else compute_weighted_mean(self._gauges)

    @property
    def rate(self) -> float | None:
        """The share of the drafts that was accepted."""
        if self.steps:
            return self._accepted / self._proposed if self._has_proposed and self._proposed else None
        return compute_weighted_mean(self._gauge_rates)


_OWN = Path(__file__).parent / "prompts.jsonl"
_MAX_FILE_BYTES = 64 << 20
_MAX_DOMAIN_CHARS = 40
_FORM = 'each line is {"category": "coding", "turns": ["the prompt"]}'


@dataclass(frozen=True, slots=True)
class DomainPrompt:
    """A prompt of one kind of text. ``tools``: as a chat request names them. Of several turns it is the first."""

    domain: str
    text: str
    tools: tuple[Mapping[str, Any], ...] = ()


@dataclass(frozen=True, slots=True)
class PromptSet:
    """``digest``: SHA-256 of the file, whatever part of it is used."""

    prompts: tuple[DomainPrompt, ...]
    digest: str

    @property
    def domains(self) -> tuple[str, ...]:
        """The kinds of text, in the order of the file."""
        return tuple(dict.fromkeys(one.domain for one in self.prompts))

    def select(self, domains: tuple[str, ...]) -> PromptSet:
        """Return the prompts of these domains, all without any. Raises `InvalidInput` for a domain that the set has not."""
        for name in domains:
            if name not in self.domains:
                raise InvalidInput(
                    f"no prompt is of the domain {name!r}{format_did_you_mean(name, self.domains)}",
                    f"choose from: {', '.join(self.domains)}",
                )
        return replace(self, prompts=tuple(one for one in self.prompts if not domains or one.domain in domains))


def load_prompts(path: Path | None) -> PromptSet:
    """Return the prompts of a file, None: our own. Raises `InvalidInput` with file and line."""
    try:
        raw = read_regular_file(path or _OWN, _MAX_FILE_BYTES)
    except OSError as error:
        raise InvalidInput(f"{path}: {error.strerror or error}", "name a file of prompts: --prompts FILE") from error
    prompts = []
    for number, line in enumerate(raw.split(b"\n"), 1):
        if line.strip():
            try:
                prompts.append(_parse_prompt(load_json(line)))
            except json.JSONDecodeError as wrong:
                raise InvalidInput(f"{path}:{number}: this line is not JSON: {wrong.msg}", _FORM) from wrong
            except ValueError as wrong:
                raise InvalidInput(f"{path}:{number}: {wrong}", _FORM) from wrong
    if not prompts:
        raise InvalidInput(f"{path}: it contains no prompt", _FORM)
    return PromptSet(tuple(prompts), hashlib.sha256(raw).hexdigest())


def _parse_prompt(data: object) -> DomainPrompt:
    if not isinstance(data, dict):
        raise ValueError("it is not a JSON object")
    domain = data.get("category", data.get("domain"))
    if not isinstance(domain, str) or not (domain := sanitize_line(domain).strip()):
        raise ValueError("category: the kind of text is missing")
    if len(domain) > _MAX_DOMAIN_CHARS:
        raise ValueError(f"category: longer than {_MAX_DOMAIN_CHARS} characters")
    turns = next((data[name] for name in ("turns", "messages", "prompt") if name in data), None)
    first = next(iter(_list_texts(turns)), None)
    if first is None or not first.strip():
        raise ValueError("turns: the prompt is missing")
    tools = data.get("tools", [])
    if not isinstance(tools, list) or not all(isinstance(one, dict) for one in tools):
        raise ValueError("tools: not a list of objects")
    return DomainPrompt(domain, first, tuple(tools))


def _list_texts(turns: object) -> list[str]:
    """Return what the user says: of texts, or of messages with a role."""
    if isinstance(turns, str):
        return [turns]
    if not isinstance(turns, list):
        return []
    texts = [
        one.get("content") if isinstance(one, dict) and one.get("role", "user") == "user" else one for one in turns
    ]
    return [text for text in texts if isinstance(text, str)]
