"""The scraped page is this machine's own: a web page that has its name resolved to 127.0.0.1 reads nothing."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator

import pytest
from prometheus_client import CollectorRegistry, Gauge

from sparkctl.cli.verbs.metrics import create_metrics_server


@pytest.fixture
def port() -> Iterator[int]:
    registry = CollectorRegistry()
    Gauge("canary", "What must not be read.", registry=registry).set(1)
    server = create_metrics_server(0, "127.0.0.1", registry)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    yield server.server_port
    server.shutdown()
    server.server_close()
    thread.join()


def send_http_request(port: int, *lines: str) -> tuple[int, str]:
    with socket.create_connection(("127.0.0.1", port), timeout=30) as connection:
        connection.sendall("\r\n".join([*lines, "Connection: close", "", ""]).encode("latin-1"))
        answer = b"".join(iter(lambda: connection.recv(65536), b"")).decode()
    return int(answer.split()[1]), answer


@pytest.mark.parametrize(
    "host", ["127.0.0.1:{}", "127.0.0.1", "localhost:{}", "LocalHost", "localhost.:{}", "[::1]:{}", "127.1.2.3:{}"]
)
def test_this_machine_s_own_names_are_answered(port: int, host: str) -> None:
    status, answer = send_http_request(port, "GET /metrics HTTP/1.1", f"Host: {host.format(port)}")
    assert status == 200
    assert "canary 1.0" in answer


@pytest.mark.parametrize(
    "lines",
    [
        ["GET /metrics HTTP/1.1", "Host: rebind.evil.example"],
        ["GET /metrics HTTP/1.1", "Host: rebind.evil.example:9768"],
        ["GET /metrics HTTP/1.1", "Host: localhost.evil.example"],
        ["GET /metrics HTTP/1.1", "Host: 127.0.0.1.evil.example"],
        ["GET /metrics HTTP/1.1", "Host: evil.example@127.0.0.1"],
        ["GET /metrics HTTP/1.1", "Host: 127.0.0.1@evil.example"],
        ["GET /metrics HTTP/1.1", "Host: 192.168.1.4:9768"],
        ["GET /metrics HTTP/1.1", "Host: 0.0.0.0:9768"],
        ["GET /metrics HTTP/1.1", "Host: localhost", "Host: rebind.evil.example"],
        ["GET /metrics HTTP/1.1", "Host:"],
        ["GET /metrics HTTP/1.1", "Host: []"],
        ["GET /metrics HTTP/1.1"],
        ["GET /metrics HTTP/1.0"],
        ["GET http://rebind.evil.example/metrics HTTP/1.1", "Host: rebind.evil.example"],
        ["GET http://rebind.evil.example/metrics HTTP/1.1", "Host: 127.0.0.1"],
        ["GET //rebind.evil.example/metrics HTTP/1.1", "Host: 127.0.0.1"],
    ],
)
def test_other_names_are_refused(port: int, lines: list[str]) -> None:
    status, answer = send_http_request(port, *lines)
    assert status in (400, 403, 404)
    assert "canary" not in answer
