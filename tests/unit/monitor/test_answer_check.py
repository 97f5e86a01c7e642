"""What an engine answers is judged without asking anybody."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace

import pytest

from sparkctl.clock import SystemClock
from sparkctl.engines import load_engine
from sparkctl.model.engine_metrics import EngineMetrics
from sparkctl.model.finding import Severity
from sparkctl.model.launch_plan import LaunchPlan, ReadinessTarget
from sparkctl.model.node import Node, NodeName
from sparkctl.monitor.answer_check import (
    AnswerCheck,
    ChatReply,
    CheckTarget,
    build_answer_finding,
    check_answers,
    find_garbage,
    judge_context,
    judge_drafts,
    judge_json,
    judge_question,
    judge_schema,
    judge_stop,
    judge_stream,
    judge_tool_call,
    measure_requests,
    parse_reply,
)
from sparkctl.transport.node_session import open_connection

ESSAY = (
    "A stone bridge begins with its foundations. Masons set piers into the river bed, often behind a dam of timber and clay. "
    "Between two piers carpenters raise a wooden frame, the centring, which carries the stones until the arch is closed.\n\n"
    "| part | material |\n| ---- | -------- |\n| pier | granite |\n\nThen the keystone is driven in, and the frame is taken away."
)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("!" * 24, "repeats"),
        ("Paris" * 12, "repeats"),
        (ESSAY + " and then the bridge is built," * 4, "repeats"),
        ("Paris<|im_end|>\n<|im_start|>user", "<|im_end|>"),
        ("[/INST] Paris", "[/INST]"),
        ("\ufffd\ufffd\ufffd ab", "broken"),
        ("capital 首都 столица عاصمة เมือง", "scripts"),
    ],
)
def test_garbage_is_named(text: str, words: str) -> None:
    assert words in str(find_garbage(text))


@pytest.mark.parametrize(
    "text",
    [
        "", "Paris", "Paris.", "**Paris**", ESSAY, "フランスの首都はパリ（Paris）です。", "| a |\n| ------------------------------",
        "1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13", "It is 100000000 tonnes.", "Париж (Paris)", "Zitat …\ufffd",
    ],
)  # fmt: skip
def test_sense_is_no_garbage(text: str) -> None:
    assert find_garbage(text) is None


@pytest.mark.parametrize(
    ("reply", "severity"),
    [
        (ChatReply(status=200, text="Paris", finish="stop"), Severity.GOOD),
        (ChatReply(status=200, text="法国的首都是巴黎", finish="stop"), Severity.GOOD),
        (ChatReply(status=200, text="Lyon", finish="stop"), Severity.WARNING),
        (ChatReply(status=200, text="", finish="stop"), Severity.WARNING),
        (ChatReply(status=200, text="", reasoning="The user asks", finish="length"), Severity.UNKNOWN),
        (ChatReply(status=200, text="", reasoning="!" * 24, finish="length"), Severity.WARNING),
        (ChatReply(status=500, raw="boom"), Severity.WARNING),
    ],
)
def test_the_fixed_question(reply: ChatReply, severity: Severity) -> None:
    assert judge_question(reply).severity is severity


def test_an_answer_is_read_from_json_and_from_a_stream() -> None:
    message = {"content": "<think>hm</think>Paris", "tool_calls": None}
    plain = {"choices": [{"message": message, "finish_reason": "stop"}], "usage": {"completion_tokens": 5}}
    found = parse_reply(200, json.dumps(plain).encode())
    assert (found.text, found.reasoning, found.finish, found.tokens) == ("Paris", "<think>hm", "stop", 5)
    parts = [{"content": "Pa"}, {"content": "ris"}, {"tool_calls": [{"index": 0, "function": {"name": "f"}}]}]
    lines = [f"data: {json.dumps({'choices': [{'delta': one}]})}\n\n" for one in parts]
    streamed = parse_reply(200, "".join([*lines, "data: [DONE]\n\n"]).encode())
    assert (streamed.text, streamed.pieces, streamed.ended, streamed.calls) == ("Paris", 2, True, (("f", ""),))
    assert parse_reply(502, b"<html>").shown == "<html>"
    assert parse_reply(200, b'{"choices": [[]], "usage": 3}').text == ""


@pytest.mark.parametrize(
    ("reply", "severity"),
    [
        (ChatReply(status=200, text='{"city": "Quito"}', finish="stop"), Severity.GOOD),
        (ChatReply(status=200, text='{"city": "Paris"}', finish="stop"), Severity.WARNING),
        (ChatReply(status=200, text="Quito", finish="stop"), Severity.WARNING),
        (ChatReply(status=200, text='{"city": "Qu', finish="length"), Severity.UNKNOWN),
        (ChatReply(status=400), Severity.NOTE),
        (ChatReply(status=500), Severity.UNKNOWN),
    ],
)
def test_a_schema_that_is_accepted_has_to_be_enforced(reply: ChatReply, severity: Severity) -> None:
    assert judge_schema(reply, "q").severity is severity


def test_what_else_is_asked_is_judged() -> None:
    call = ChatReply(status=200, calls=(("get_weather", '{"city": "Paris"}'),))
    assert judge_tool_call(call, "q", "hermes").severity is Severity.GOOD
    left = judge_tool_call(ChatReply(status=200, text='<tool_call>{"name": "get_weather"}'), "q", "hermes")
    assert "the parser does not read it" in left.summary
    assert judge_json(ChatReply(status=200, text='{"a": 1}', finish="stop"), "q").severity is Severity.GOOD
    assert judge_json(ChatReply(status=200, text="Paris", finish="stop"), "q").severity is Severity.WARNING
    assert judge_json(ChatReply(status=400), "q").severity is Severity.NOTE
    assert judge_stop(ChatReply(status=200, text="1 2", tokens=9, finish="stop"), 8).severity is Severity.WARNING
    assert judge_stop(ChatReply(status=200, text="1 2", tokens=8, finish="length"), 8).severity is Severity.GOOD
    assert judge_stream(ChatReply(status=200, text=ESSAY, pieces=40, ended=True), "q").severity is Severity.GOOD
    assert judge_stream(ChatReply(status=200, text=ESSAY, pieces=40), "q").severity is Severity.WARNING


def test_the_context_is_compared_where_both_are_known() -> None:
    body = json.dumps({"data": [{"id": "m", "max_model_len": 8192}]}).encode()
    less, same = judge_context(body, 32768), judge_context(body, 8192)
    assert less is not None
    assert less.severity is Severity.WARNING
    assert same is not None
    assert same.severity is Severity.GOOD
    assert judge_context(body, None) is None
    assert judge_context(b"[]", 8192) is None


def read_counters(drafts: float, accepted: float, *positions: float) -> EngineMetrics:
    return EngineMetrics(drafts=drafts, accepted_tokens=accepted, accepted_per_position=positions or None)


@pytest.mark.parametrize(
    ("before", "after", "severity"),
    [
        (read_counters(100, 60), read_counters(140, 60), Severity.WARNING),
        (read_counters(100, 60), read_counters(139, 60), Severity.UNKNOWN),
        (read_counters(100, 60), read_counters(160, 70), Severity.GOOD),
        (read_counters(0, 0, 0, 0), read_counters(50, 70, 50, 20), Severity.WARNING),
        (read_counters(0, 0, 0, 0), read_counters(50, 69, 49, 20), Severity.GOOD),
        (read_counters(100, 60), read_counters(5, 1), Severity.UNKNOWN),  # it restarted
        (EngineMetrics(accept_length=2.0), EngineMetrics(accept_length=1.0), Severity.WARNING),
        (EngineMetrics(accept_length=2.0), EngineMetrics(accept_length=0.0), Severity.UNKNOWN),
        (None, EngineMetrics(), Severity.UNKNOWN),
    ],
)
def test_drafts(before: EngineMetrics | None, after: EngineMetrics | None, severity: Severity) -> None:
    assert judge_drafts(before, after, 240, needs_model=True).severity is severity


def test_what_came_is_shown_without_secrets() -> None:
    one = AnswerCheck(
        name="question", severity=Severity.WARNING, summary="wrong", asked="a", came="b sesame-0123456789\n"
    )
    found = build_answer_finding(one, NodeName("spark1"), "m", {"sesame-0123456789"})
    assert "sesame" not in str(found.evidence)
    assert found.evidence[1].value.startswith("b ")


def test_an_answer_without_a_count_and_a_reason_decides_nothing_about_max_tokens() -> None:
    assert judge_stop(ChatReply(status=200, text="1 2 3"), 8).severity is Severity.UNKNOWN
    assert judge_stop(ChatReply(status=200, text="1 2 3", tokens=8), 8).severity is Severity.GOOD
    assert judge_stop(ChatReply(status=200, text="1 2 3", finish="length"), 8).severity is Severity.GOOD


async def test_a_check_that_gets_no_answer_is_named_and_what_was_found_before_stays(plan: LaunchPlan) -> None:
    """The engine breaks off in JSON mode: that is no fault of the fixed question, which it answered."""
    whole = {
        "choices": [{"message": {"content": "Paris"}, "finish_reason": "length"}],
        "usage": {"completion_tokens": 8},
    }

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        size = next((int(line[15:]) for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")), 0)
        if b"response_format" not in await reader.readexactly(size):
            body = json.dumps(whole).encode()
            writer.write(f"HTTP/1.1 200 OK\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n".encode() + body)
        writer.close()

    link = open_connection(Node(name=NodeName("here"), host="local"))
    await link.connect()
    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    async with server:
        service = ReadinessTarget(server.sockets[0].getsockname()[1], replace(plan.ready, probe="chat"))
        target = CheckTarget(service=service, engine=load_engine("vllm"), command=())
        found = await check_answers(link, target, is_full=True)
    assert [(one.name, one.severity) for one in found] == [
        ("question", Severity.GOOD), ("max-tokens", Severity.GOOD), ("json", Severity.WARNING),
    ]  # fmt: skip
    assert "broke off" in found[-1].summary


class _HandClock(SystemClock):
    """Time passes where the engine says so."""

    now = 0.0

    def monotonic(self) -> float:
        return self.now


@pytest.mark.parametrize(("tokens", "refuses_chat"), [(16, False), (16, True), (2, False), (None, False)])
async def test_the_first_answer_of_a_start_is_timed_and_once_more(
    plan: LaunchPlan, tokens: int | None, refuses_chat: bool
) -> None:
    """The first answer takes four times as long as the second; an answer too short, or without a count, tells no rate."""
    asked: list[int] = []
    clock = _HandClock()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        size = next((int(line[15:]) for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")), 0)
        question = json.loads(await reader.readexactly(size))
        is_refused = refuses_chat and "messages" in question and question["max_tokens"] > 1
        if not is_refused:
            asked.append(question["max_tokens"])
            clock.now += 4.0 if len(asked) == 1 else 0.5 if question["max_tokens"] == 1 else 1.0
        usage = {} if tokens is None else {"usage": {"completion_tokens": min(tokens, question["max_tokens"])}}
        body = json.dumps({"choices": [{"message": {"content": "1 2 3"}}], **usage}).encode()
        status = "404 Not Found" if is_refused else "200 OK"
        writer.write(f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n".encode() + body)
        writer.close()

    link = open_connection(Node(name=NodeName("here"), host="local"))
    await link.connect()
    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    async with server:
        service = replace(
            ReadinessTarget(server.sockets[0].getsockname()[1], replace(plan.ready, probe="chat")), served_model="m"
        )
        cold, warm = await measure_requests(
            link, CheckTarget(service=service, engine=load_engine("vllm"), command=()), clock
        )
    assert asked == ([16, 16, 1] if tokens == 16 else [16, 1])
    assert (cold.rate, warm.rate, warm.ttft) == ((4.0, 16.0, 0.5) if tokens == 16 else (None, None, 0.5))
