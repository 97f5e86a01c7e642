"""Checks whether a ready engine's answers make sense: one token proves life, not sense.

A fixed question with a known answer; for the full check also JSON mode, a tool call, a stream, the end at max_tokens and what
becomes of drafts. Each ``judge_`` function is pure; `check_answers` asks.
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import replace
from typing import Any

from sparkctl.clock import Clock
from sparkctl.engines.base import Engine
from sparkctl.errors import MetricsUnreadable
from sparkctl.model.engine_metrics import EngineMetrics
from sparkctl.model.finding import Finding, FindingEvidence, FindingKind, Severity
from sparkctl.model.launch_plan import ReadinessTarget, find_flag_value
from sparkctl.model.lazy_dataclass import dataclass
from sparkctl.model.node import NodeName
from sparkctl.model.text.sanitize import load_json, sanitize_line, truncate_text
from sparkctl.model.text.secrets import redact
from sparkctl.monitor import engine_probe
from sparkctl.monitor.engine_probe import QueryMarkerSupport, request_engine
from sparkctl.monitor.meters.metrics_window import has_restarted, subtract_counters
from sparkctl.transport import http_client
from sparkctl.transport.node_connection import NodeConnection

QUESTION = "What is the capital of France? Answer with one word."
_PROMPT = "The capital of France is"  # for a server without chat
_COUNT = "Count from 1 to 500, one number after the other."
_NUMBERS = "1, 2, 3, 4, 5, 6, 7,"  # the same for a server without chat
_ANSWERS = ("paris", "巴黎", "パリ", "париж", "باريس", "파리")
_BASIC_TOKENS, _FULL_TOKENS, _STOP_TOKENS, _STREAM_TOKENS = 24, 512, 8, 240
_BASIC_SECONDS, _FULL_SECONDS = 30.0, 180.0
_RATE_TOKENS = 16  # few: it is asked at each start
_CHAT_REFUSED = (400, 404, 405, 422, 501)
_TOOL_PARSER_FLAGS = ("tool-call-parser", "tool-parser")
_MIN_DRAFTED_STEPS = 40
_MIN_GAUGE_TOKENS = 80  # SGLang reports acceptance every 40 steps: after so many tokens at least once
_MAX_SHOWN_CHARS = 200
_LONGEST_PERIOD, _MIN_COPIES = 240, 4
_SHORT_PERIOD, _MIN_SHORT_REPEAT, _MIN_REPEAT = 2, 12, 32  # characters
_RULE_MARKS = frozenset("-=_*#.~─ \n")  # a table or a heading repeats them
_TEMPLATE_TOKEN = re.compile(r"<\|[A-Za-z_]{2,30}\|>|\[/?INST\]|<(?:start|end)_of_turn>|</s>")
_SCRIPTS = ("LATIN", "CYRILLIC", "GREEK", "ARABIC", "HEBREW", "THAI", "DEVANAGARI", "BENGALI", "TAMIL", "HANGUL", "CJK")
_MAX_SCRIPTS = 3
_TOOL: dict[str, Any] = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Tell the weather in a city.",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    },
}

_SCHEMA_CITY = "Quito"  # not the right answer: a model says it only where the schema is enforced
_CITY_SCHEMA = _TOOL["function"]["parameters"] | {
    "properties": {"city": {"type": "string", "enum": [_SCHEMA_CITY]}},
    "additionalProperties": False,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerCheck:
    """One check and its result: good, a warning, a note (not offered) or unknown (not decided).

    ``asked`` and ``came`` are the evidence; they may repeat secrets, so show them with `build_answer_finding` only.
    """

    name: str
    severity: Severity
    summary: str
    asked: str | None = None
    came: str | None = None
    remedy: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckTarget:
    """A ready instance: how it is asked, its engine, and the command that it was started with."""

    service: ReadinessTarget
    engine: Engine
    command: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatReply:
    """What an engine answered. ``text`` is without reasoning; ``calls`` are names and arguments of tool calls.

    ``tokens``: generated, as the engine counts; ``pieces``: of a stream; ``ended``: its end mark came.
    """

    status: int
    text: str = ""
    reasoning: str = ""
    calls: tuple[tuple[str, str], ...] = ()
    finish: str | None = None
    tokens: int | None = None
    pieces: int = 0
    ended: bool = False
    raw: str = ""

    @property
    def shown(self) -> str:
        """What came, for evidence."""
        called = " ".join(f"{name}({arguments})" for name, arguments in self.calls)
        words = self.text.strip() or called or (f"(reasoning) {self.reasoning.strip()}" if self.reasoning else "")
        return words or (self.raw if self.status != 200 else "an empty answer")


def parse_reply(status: int, body: bytes) -> ChatReply:
    """Return an OpenAI-style answer, plain or a stream; of anything else only its raw text."""
    raw = body.decode("utf-8", "replace")
    is_stream = raw.lstrip().startswith("data:")
    lines = [line[5:].strip() for line in raw.splitlines() if line.startswith("data:")] if is_stream else [raw]
    text, reasoning, finish, tokens, pieces = "", "", None, None, 0
    names: dict[int, str] = {}
    arguments: dict[int, str] = {}
    for line in lines:
        try:
            data = load_json(line)
            for choice in data.get("choices") or ():
                part = choice.get("message") or choice.get("delta") or choice
                content, thought = part.get("content") or choice.get("text"), part.get("reasoning_content")
                text += content if isinstance(content, str) else ""
                thought = thought or part.get("reasoning")
                reasoning += thought if isinstance(thought, str) else ""
                pieces += bool(content or thought)
                finish = choice.get("finish_reason") or finish
                for at, call in enumerate(part.get("tool_calls") or ()):
                    number, made = call.get("index", at), call.get("function") or {}
                    names[number] = names.get(number, "") + str(made.get("name") or "")
                    arguments[number] = arguments.get(number, "") + str(made.get("arguments") or "")
            count = (data.get("usage") or {}).get("completion_tokens")
            tokens = count if isinstance(count, int) else tokens
        except (ValueError, AttributeError, TypeError):
            continue
    thought, mark, answer = text.rpartition("</think>")
    if mark:
        text, reasoning = answer, reasoning + thought
    elif text.lstrip().startswith("<think>"):
        text, reasoning = "", reasoning + text
    return ChatReply(
        status=status, text=text, reasoning=reasoning, calls=tuple((names[at], arguments[at]) for at in names),
        finish=finish if isinstance(finish, str) else None, tokens=tokens, pieces=pieces if is_stream else 0,
        ended=is_stream and "[DONE]" in lines, raw=raw,
    )  # fmt: skip


def find_garbage(text: str) -> str | None:
    """Return in words why a text is no sensible answer, None where nothing speaks against it."""
    stripped = text.strip()
    if (piece := _find_repeated_end(stripped)) is not None:
        return f"it repeats {truncate_text(sanitize_line(piece).strip() or piece, 40)!r} endlessly"
    if (leaked := _TEMPLATE_TOKEN.search(stripped)) is not None:
        return f"it holds {leaked[0]}, a token of a chat template"
    broken = stripped.count("\ufffd")
    if broken > 2 and broken * 20 > len(stripped):
        return f"{broken} of its {len(stripped)} characters are broken"
    if len(found := _list_scripts(stripped)) > _MAX_SCRIPTS:
        return f"it mixes {len(found)} scripts ({', '.join(found).lower()})"
    return None


def _find_repeated_end(text: str) -> str | None:
    """Return what a text repeats up to its end, at least four times."""
    for period in range(1, min(_LONGEST_PERIOD, len(text) // _MIN_COPIES) + 1):
        at = len(text) - 1
        while at >= period and text[at] == text[at - period]:
            at -= 1
        run, piece = len(text) - 1 - at + period, text[-period:]
        least = _MIN_SHORT_REPEAT if period <= _SHORT_PERIOD else _MIN_REPEAT
        if run >= max(_MIN_COPIES * period, least) and (run == len(text) or not _RULE_MARKS.issuperset(piece)):
            return piece
    return None


def _list_scripts(text: str) -> list[str]:
    """Return the scripts of a text's letters; kana counts as Chinese, as in any Japanese text."""
    found = set()
    for letter in {one for one in text if one.isalpha()}:
        word = unicodedata.name(letter, "").split(" ")[0]
        found.add("CJK" if word in ("HIRAGANA", "KATAKANA") else word)
    return [script for script in _SCRIPTS if script in found]


def judge_question(reply: ChatReply, asked: str = QUESTION) -> AnswerCheck:
    """Judge the answer to the fixed question."""
    name, came = "question", reply.shown
    if reply.status != 200:
        return _fail(name, f"a plain question is refused ({reply.status})", asked, came)
    if (garbage := find_garbage(reply.text) or find_garbage(reply.reasoning)) is not None:
        remedy = "check that checkpoint, quantization and chat template belong together; try it without drafts and with another attention backend"
        return _fail(name, f"its answer makes no sense: {garbage}", asked, came, remedy)
    if any(word in reply.text.casefold() for word in _ANSWERS):
        return _pass(name, "a question with one answer is answered correctly")
    if reply.finish == "length" and not reply.text.strip():
        return _leave_open(name, "it was still thinking when it reached its token limit", asked, came)
    if any(word in reply.reasoning.casefold() for word in _ANSWERS):
        return _pass(name, "a question with one answer is answered correctly, in its reasoning")
    if not reply.text.strip():
        return _fail(name, "its answer to a plain question is empty", asked, came)
    remedy = "check that checkpoint, quantization and chat template belong together"
    return _fail(name, "its answer to a question that any model knows is wrong", asked, came, remedy)


def judge_stop(reply: ChatReply, limit: int) -> AnswerCheck:
    """Judge whether a long answer ended at max_tokens."""
    name, asked = "max-tokens", f"to count to 500, with max_tokens {limit}"
    if reply.status != 200:
        return _fail(name, f"a question with max_tokens is refused ({reply.status})", asked, reply.shown)
    if reply.tokens is not None and reply.tokens > limit:
        return _fail(name, f"it made {reply.tokens} tokens where max_tokens was {limit}", asked, reply.shown)
    if reply.finish not in (None, "length"):
        return _leave_open(name, f"it ended by itself ({reply.finish}) before max_tokens", asked, reply.shown)
    if reply.tokens is None and reply.finish is None:
        return _leave_open(name, "it tells neither how many tokens it made nor why it ended", asked, reply.shown)
    return _pass(name, "it stops at max_tokens")


def judge_json(reply: ChatReply, asked: str) -> AnswerCheck:
    name = "json"
    if reply.status in _CHAT_REFUSED:
        return _note(name, "JSON mode is not offered", asked, reply.shown)
    if reply.status != 200:
        return _fail(name, f"a question in JSON mode is refused ({reply.status})", asked, reply.shown)
    if reply.finish == "length":
        return _leave_open(name, "it reached its token limit before the JSON was complete", asked, reply.shown)
    if not isinstance(_read_json(reply.text.strip()), dict):
        remedy = "check its grammar backend (xgrammar, llguidance), and that its reasoning parser belongs to the model"
        return _fail(name, "JSON mode gives no JSON object", asked, reply.shown, remedy)
    return _pass(name, "JSON mode gives JSON")


def judge_schema(reply: ChatReply, asked: str) -> AnswerCheck:
    """Judge an answer under a schema that only an enforced one makes the model keep to: it allows a wrong answer alone."""
    name, asked = "json-schema", f"{asked} (a schema allows only {_SCHEMA_CITY})"
    if reply.status in _CHAT_REFUSED:
        return _note(name, "a JSON schema is refused", asked, reply.shown)
    if reply.status != 200 or reply.finish == "length":
        return _leave_open(name, "it gave no whole answer under a JSON schema", asked, reply.shown)
    if _read_json(reply.text.strip()) != {"city": _SCHEMA_CITY}:
        remedy = "check its grammar backend (xgrammar, llguidance); until then let clients check what they get"
        return _fail(name, "a JSON schema is accepted and not enforced", asked, reply.shown, remedy)
    return _pass(name, "a JSON schema is enforced")


def judge_tool_call(reply: ChatReply, asked: str, parser: str) -> AnswerCheck:
    name = "tool-call"
    remedy = f"check that its tool parser ({parser}) and its chat template belong to the model"
    if reply.status != 200:
        return _fail(name, f"a question with a tool is refused ({reply.status})", asked, reply.shown, remedy)
    for called, arguments in reply.calls:
        given = _read_json(arguments)
        if called == "get_weather" and isinstance(given, dict) and given.get("city"):
            return _pass(name, "it calls a tool, with arguments")
        return _fail(name, "its tool call has a wrong name or no valid arguments", asked, reply.shown, remedy)
    if "get_weather" in reply.text or "get_weather" in reply.reasoning:
        return _fail(name, "its tool call stays in the text: the parser does not read it", asked, reply.shown, remedy)
    if reply.finish == "length":
        return _leave_open(name, "it reached its token limit before it called the tool", asked, reply.shown)
    return _fail(name, "it was offered a tool and did not call it", asked, reply.shown, remedy)


def judge_stream(reply: ChatReply, asked: str) -> AnswerCheck:
    """Judge a longer answer that came as a stream."""
    name = "stream"
    if reply.status != 200 or not reply.pieces:
        return _fail(name, f"it does not stream ({reply.status})", asked, reply.shown)
    if (garbage := find_garbage(reply.text) or find_garbage(reply.reasoning)) is not None:
        return _fail(name, f"a longer answer makes no sense: {garbage}", asked, reply.shown)
    if not reply.ended:
        return _fail(name, "its stream has no end mark ([DONE]): some clients wait for it", asked, reply.shown)
    if reply.pieces < 2 and len(reply.shown) > 80:
        return _fail(name, "its stream comes in one piece", asked, reply.shown)
    return _pass(name, "it streams")


def judge_context(body: bytes, promised: int | None) -> AnswerCheck | None:
    """Compare the context that /v1/models tells with that of the command; None where either is not known."""
    try:
        length = load_json(body)["data"][0]["max_model_len"]
    except (ValueError, LookupError, TypeError):
        return None
    if promised is None or not isinstance(length, int) or isinstance(length, bool):
        return None
    if length < promised:
        summary = f"it takes {length} tokens where its command says {promised}"
        return _fail("context", summary, "/v1/models", f"max_model_len {length}", "see its log for why it took less")
    return _pass("context", f"it takes {length} tokens, as its command says")


def judge_drafts(
    before: EngineMetrics | None, after: EngineMetrics | None, made: int, *, needs_model: bool
) -> AnswerCheck:
    """Judge what became of the drafts between two readings of an engine that drafts; ``made``: tokens of the answer between
    them. An engine without counters tells the length of its last steps alone.
    """
    name, asked = "drafts", "its counters, around a longer answer"
    if before is None or after is None or has_restarted(before, after):
        return _leave_open(name, "its metrics do not show whether its drafts are accepted")
    steps = subtract_counters(before.drafts, after.drafts)
    accepted = subtract_counters(before.accepted_tokens, after.accepted_tokens)
    remedy = "check that the draft model belongs to this checkpoint and its revision; try it without drafts"
    if steps is None or accepted is None:
        if not after.accept_length or made < _MIN_GAUGE_TOKENS:
            return _leave_open(name, "it reports its acceptance every 40 steps, and reported none")
        if after.accept_length <= 1.0:
            came = f"accept length {after.accept_length:.2f} over {made} tokens"
            return _fail(
                name, "every draft is rejected: each step pays for them and yields one token", asked, came, remedy
            )
        return _pass(name, f"its drafts are accepted, {after.accept_length:.2f} tokens a step")
    if steps < _MIN_DRAFTED_STEPS:
        return _leave_open(name, f"only {steps:.0f} steps drafted; at least {_MIN_DRAFTED_STEPS} are needed")
    if accepted <= 0:
        came = f"accept length 1.00 over {steps:.0f} steps"
        return _fail(name, "every draft is rejected: each step pays for them and yields one token", asked, came, remedy)
    pairs = zip(before.accepted_per_position or (), after.accepted_per_position or (), strict=False)
    pinned = [at for at, (old, new) in enumerate(pairs, 1) if new - old >= steps]
    if pinned and needs_model:
        came = f"draft position {pinned[-1]} accepted in all of {steps:.0f} steps"
        return _fail(name, "a draft position is always accepted: its drafts are not verified", asked, came, remedy)
    return _pass(name, f"its drafts are accepted, {1 + accepted / steps:.2f} tokens a step")


def build_answer_finding(one: AnswerCheck, node: NodeName, instance: str, secrets: Collection[str]) -> Finding:
    """Return a check's result as a finding; what was asked and what came are masked."""

    def show(text: str) -> str:
        return truncate_text(redact(sanitize_line(text.replace("\n", " ")), secrets), _MAX_SHOWN_CHARS)

    return Finding(
        FindingKind.ANSWERS,
        one.severity,
        node,
        f"{instance}: {one.summary}",
        remedy=one.remedy,
        instance=instance,
        evidence=tuple(
            FindingEvidence(name, show(text), None, one.name)
            for name, text in (("asked", one.asked), ("came", one.came))
            if text is not None
        ),
    )


QUESTION_PROBES = ("completions", "chat")


async def check_answers(
    link: NodeConnection,
    target: CheckTarget,
    *,
    is_full: bool,
    report: Callable[[AnswerCheck], None] = lambda _: None,
) -> tuple[AnswerCheck, ...]:
    """Ask an engine that is ready, and judge what comes: two small requests, about ten for the full check.

    ``report`` gets each result as soon as it is known: the full check may take minutes. Raises `ConnectionLost`; every fault of
    the engine is a result.
    """
    if target.service.ready.probe not in QUESTION_PROBES or target.service.port is None:
        report(none := _leave_open("question", "its profile has no `probe` that takes a question, so none was asked"))
        return (none,)
    marker_support = QueryMarkerSupport()
    service = await engine_probe.resolve_served_model(link, target.service, marker_support)
    return await _AnswerChecker(link, replace(target, service=service), marker_support).run(
        is_full=is_full, report=report
    )


@dataclass(frozen=True, slots=True)
class RequestSpeed:
    """What one request gave: ``ttft``, seconds to a single token; ``rate``, tok/s of a longer answer, over its whole time."""

    ttft: float | None = None
    rate: float | None = None


async def measure_requests(
    link: NodeConnection, target: CheckTarget, clock: Clock
) -> tuple[RequestSpeed, RequestSpeed]:
    """Return what the first longer answer of a start gave, and the same request once more, with the time to one token then.

    The first of the two meets an engine that has not decoded before. Raises `ConnectionLost`; where the engine fails, nothing is known.
    """
    marker_support = QueryMarkerSupport()
    service = await engine_probe.resolve_served_model(link, target.service, marker_support)
    asker = _AnswerChecker(link, replace(target, service=service), marker_support, _FULL_SECONDS)
    first: float | None = None
    try:
        first = await asker.measure_rate(clock)
        again = None if first is None else await asker.measure_rate(clock)
        began = clock.monotonic()
        token = await engine_probe.request_token(link, service, marker_support)
        ttft = clock.monotonic() - began if token.good else None
    except (OSError, http_client.InvalidHttpResponse):
        return RequestSpeed(rate=first), RequestSpeed()
    return RequestSpeed(rate=first), RequestSpeed(ttft, again)


_RunCheck = Callable[[], Awaitable[list[AnswerCheck]]]


class _AnswerChecker:
    """One check of one instance."""

    def __init__(
        self,
        link: NodeConnection,
        target: CheckTarget,
        marker_support: QueryMarkerSupport,
        seconds: float = _BASIC_SECONDS,
    ) -> None:
        self._link, self._target, self._marker_support = link, target, marker_support
        self._thinking: Mapping[str, Any] = {"chat_template_kwargs": {"enable_thinking": False}}
        self._seconds = seconds

    async def run(self, *, is_full: bool, report: Callable[[AnswerCheck], None]) -> tuple[AnswerCheck, ...]:
        """Run the checks in their order; the first that gets no answer is the last, and what was found before it stays."""
        self._seconds = _FULL_SECONDS if is_full else _BASIC_SECONDS
        tokens = _FULL_TOKENS if is_full else _BASIC_TOKENS
        checks: dict[str, _RunCheck] = {"question": lambda: self._ask_question(tokens), "context": self._check_context}
        more: dict[str, _RunCheck] = {
            "max-tokens": self._check_stop,
            "json": self._check_json,
            "tool-call": self._check_tool_call,
            "stream": self._check_stream,
        }
        found: list[AnswerCheck] = []
        for name, check in (checks | more if is_full else checks).items():
            if name in more and found[0].severity is Severity.WARNING:
                break
            asked, is_broken = QUESTION if name == "question" else None, True
            try:
                results, is_broken = await check(), False
            except TimeoutError:
                results = [_fail(name, f"it did not answer within {self._seconds:.0f} s", asked)]
            except (OSError, http_client.InvalidHttpResponse) as broken:
                results = [_fail(name, "it broke off its answer", asked, str(broken) or "connection closed")]
            for one in results:
                found.append(one)
                report(one)
            if is_broken:
                break
        return tuple(found)

    async def measure_rate(self, clock: Clock) -> float | None:
        """Return tok/s of one answer, over its whole time; None where it was refused, or too short to tell."""
        began = clock.monotonic()
        reply = await self._chat(_COUNT, _RATE_TOKENS)
        if reply.status == 400:
            self._thinking, began = {}, clock.monotonic()
            reply = await self._chat(_COUNT, _RATE_TOKENS)
        if reply.status in _CHAT_REFUSED:
            began = clock.monotonic()
            reply = await self._post("/v1/completions", {"prompt": _NUMBERS, "max_tokens": _RATE_TOKENS})
        seconds = clock.monotonic() - began
        is_measured = reply.status == 200 and reply.tokens is not None and reply.tokens >= _RATE_TOKENS // 2
        return reply.tokens / seconds if is_measured and reply.tokens and seconds > 0 else None

    async def _ask_question(self, tokens: int) -> list[AnswerCheck]:
        reply = await self._chat(QUESTION, tokens)
        if reply.status == 400:  # a server that does not know the setting, or no chat template
            self._thinking = {}
            reply = await self._chat(QUESTION, tokens)
        if reply.status not in _CHAT_REFUSED:
            return [judge_question(reply)]
        body = {"prompt": _PROMPT, "max_tokens": _BASIC_TOKENS}
        return [judge_question(await self._post("/v1/completions", body), _PROMPT)]

    async def _check_context(self) -> list[AnswerCheck]:
        own = [find_flag_value(self._target.command, name) for name in self._target.engine.context_flags]
        promised = next((int(text) for text in own if text is not None and re.fullmatch(r"[1-9]\d{0,14}", text)), None)
        if promised is None:
            return []
        answer = await self._get("/v1/models")
        found = judge_context(answer.body, promised) if answer.is_success else None
        return [] if found is None else [found]

    async def _check_stop(self) -> list[AnswerCheck]:
        return [judge_stop(await self._chat(_COUNT, _STOP_TOKENS), _STOP_TOKENS)]

    async def _check_json(self) -> list[AnswerCheck]:
        asked = 'Answer in JSON: the capital of France, in the key "city".'
        more: dict[str, Any] = {"response_format": {"type": "json_object"}}
        found = [judge_json(await self._chat(asked, _FULL_TOKENS, more), asked)]
        if found[0].severity is Severity.GOOD:
            more = {"response_format": {"type": "json_schema", "json_schema": {"name": "city", "schema": _CITY_SCHEMA}}}
            found.append(judge_schema(await self._chat(asked, _FULL_TOKENS, more), asked))
        return found

    async def _check_tool_call(self) -> list[AnswerCheck]:
        own = [find_flag_value(self._target.command, name) for name in _TOOL_PARSER_FLAGS]
        parser = next((name for name in own if name is not None), None)
        if parser is None:
            return []
        asked = "What is the weather in Paris? Use the tool."
        reply = await self._chat(asked, _FULL_TOKENS, {"tools": [_TOOL], "tool_choice": "auto"})
        return [judge_tool_call(reply, asked, parser)]

    async def _check_stream(self) -> list[AnswerCheck]:
        asked = "Tell in about 200 words how a stone bridge is built."
        before = await self._read_metrics()
        more = {"stream": True, "stream_options": {"include_usage": True}}
        reply = await self._chat(asked, _STREAM_TOKENS, more)
        found = [judge_stream(reply, asked)]
        settings = self._target.engine.read_decoding_settings(self._target.command)
        if settings.draft_tokens:
            needs_model = settings.draft_passes != 0
            made = max(reply.tokens or 0, reply.pieces)
            found.append(judge_drafts(before, await self._read_metrics(), made, needs_model=needs_model))
        return found

    async def _read_metrics(self) -> EngineMetrics | None:
        path = self._target.engine.metrics_path
        if path is None:
            return None
        answer = await self._get(path)
        try:
            return self._target.engine.parse_metrics(answer.body.decode("utf-8", "replace"))
        except MetricsUnreadable:
            return None

    async def _chat(self, asked: str, tokens: int, more: Mapping[str, Any] | None = None) -> ChatReply:
        body = {
            "messages": [{"role": "user", "content": asked}],
            "max_tokens": tokens,
            **self._thinking,
            **(more or {}),
        }
        return await self._post("/v1/chat/completions", body)

    async def _post(self, path: str, body: Mapping[str, Any]) -> ChatReply:
        service = self._target.service
        question = json.dumps({"model": service.served_model or "default", "temperature": 0, **body}).encode()
        headers = [("Content-Type", "application/json"), *service.auth_headers]
        assert service.port is not None
        answer = await request_engine(
            self._link, service.port, "POST", path, body=question, headers=headers, timeout=self._seconds,
            marker_support=self._marker_support,
        )  # fmt: skip
        return parse_reply(answer.status, answer.body)

    async def _get(self, path: str) -> http_client.HttpResponse:
        service = self._target.service
        assert service.port is not None
        return await request_engine(
            self._link, service.port, "GET", path, headers=service.auth_headers, timeout=self._seconds,
            marker_support=self._marker_support,
        )  # fmt: skip


def _read_json(text: str) -> Any:
    """Return what a model's text holds as JSON, None where it is none."""
    try:
        return load_json(text)
    except ValueError:
        return None


def _note(name: str, summary: str, asked: str, came: str) -> AnswerCheck:
    return AnswerCheck(name=name, severity=Severity.NOTE, summary=summary, asked=asked, came=came)


def _pass(name: str, summary: str) -> AnswerCheck:
    return AnswerCheck(name=name, severity=Severity.GOOD, summary=summary)


def _leave_open(name: str, summary: str, asked: str | None = None, came: str | None = None) -> AnswerCheck:
    return AnswerCheck(name=name, severity=Severity.UNKNOWN, summary=summary, asked=asked, came=came)


def _fail(
    name: str, summary: str, asked: str | None, came: str | None = None, remedy: str | None = None
) -> AnswerCheck:
    return AnswerCheck(name=name, severity=Severity.WARNING, summary=summary, asked=asked, came=came, remedy=remedy)
