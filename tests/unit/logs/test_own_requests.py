"""Which lines of an engine's log are the access lines of our own questions."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparkctl.logs.line_patterns import drop_own_requests, is_own_request
from sparkctl.model.launch_plan import REQUEST_MARK
from sparkctl.model.text.log_line import LogLine
from sparkctl.monitor.engine_probe import mark_request_path
from sparkctl.node.guard import kill_requests

OURS = [
    f'INFO:     127.0.0.1:48384 - "GET /metrics?{REQUEST_MARK} HTTP/1.1" 200 OK',
    f'(APIServer pid=16250) INFO:     127.0.0.1:52464 - "GET /health?{REQUEST_MARK} HTTP/1.1" 503 Service Unavailable',
    f'[2026-05-01 10:00:00] INFO:     127.0.0.1:38174 - "GET /v1/models?{REQUEST_MARK} HTTP/1.1" 200 OK',
    f'INFO:     172.17.0.1:48416 - "POST /v1/completions?{REQUEST_MARK} HTTP/1.1" 200 OK',
    f'\x1b[0;36m(APIServer pid=9)\x1b[0;0m \x1b[32mINFO\x1b[0m:     [::1]:4 - "\x1b[1mGET /metrics?{REQUEST_MARK} HTTP/1.1\x1b[0m" 200',
    f'INFO:     127.0.0.1:4 - "GET /ready?deep=1&{REQUEST_MARK} HTTP/1.1" 200 OK\r',
    f'127.0.0.1 - - [21/Nov/2026 10:00:00] "GET /health?{REQUEST_MARK} HTTP/1.1" 200 -',
    f'[GIN] 2026/11/21 - 10:00:00 | 200 |      21.417µs |       127.0.0.1 | GET      "/api/version?{REQUEST_MARK}"',
]
THEIRS = [
    'INFO:     127.0.0.1:48384 - "GET /metrics HTTP/1.1" 200 OK',
    '(APIServer pid=16250) INFO:     192.168.1.7:52464 - "GET /health HTTP/1.1" 200 OK',
    'INFO:     127.0.0.1:48416 - "POST /v1/completions HTTP/1.1" 200 OK',
    f'INFO:     127.0.0.1:4 - "GET /metrics?{REQUEST_MARK}x HTTP/1.1" 200 OK',
    f'INFO:     127.0.0.1:4 - "GET /metrics?stand{REQUEST_MARK} HTTP/1.1" 200 OK',
    f'(APIServer pid=9) INFO 11-22 01:50:33 [logger.py:40] Received request: prompt: "GET /metrics?{REQUEST_MARK} HTTP/1.1" 200',
    f'ValueError: 127.0.0.1:4 - "GET /metrics?{REQUEST_MARK} HTTP/1.1" 200 OK',
    f"what it is about: {REQUEST_MARK}",
    "",
]


@pytest.mark.parametrize("line", OURS)
def test_own_requests_are_recognized(line: str) -> None:
    assert is_own_request(line)


@pytest.mark.parametrize("line", THEIRS)
def test_requests_of_others_are_kept(line: str) -> None:
    assert not is_own_request(line)


def test_dropping_requests_keeps_line_numbers() -> None:
    lines = [LogLine(when="", text=text, number=number) for number, text in enumerate([THEIRS[0], *OURS, THEIRS[1]], 1)]
    assert [line.number for line in drop_own_requests(lines)] == [1, len(OURS) + 2]
    assert [*drop_own_requests(lines[:1])] == lines[:1]


def test_a_path_that_asks_for_something_keeps_it() -> None:
    assert mark_request_path("/health") == f"/health?{REQUEST_MARK}"
    assert mark_request_path("/health?deep=1") == f"/health?deep=1&{REQUEST_MARK}"


def test_the_guard_on_the_node_asks_in_the_same_way() -> None:
    assert kill_requests.QUERY_MARK == REQUEST_MARK


@given(st.text(), st.text())
def test_any_text_is_looked_at_without_an_exception(before: str, after: str) -> None:
    assert not is_own_request(f"x {before}{REQUEST_MARK}{after}")
    assert is_own_request(
        f'INFO:     127.0.0.1:4 - "GET {mark_request_path("/v1/models")} HTTP/1.1" 200{after and " "}{after}'
    )
