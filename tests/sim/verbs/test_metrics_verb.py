"""``sparkctl metrics`` on the simulated Sparks: printed once, and served to a scraper on loopback alone."""

from __future__ import annotations

import http.client
import signal
import socket
import subprocess
import sys
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator

import psutil
import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.support.run_command import QUICK, run_demo


def parse_series(page: str) -> dict[str, list[tuple[dict[str, str], float]]]:
    found: dict[str, list[tuple[dict[str, str], float]]] = {}
    for family in text_string_to_metric_families(page):
        for point in family.samples:
            found.setdefault(point.name, []).append((point.labels, point.value))
    return found


def test_one_page_of_both_nodes_and_both_engines() -> None:
    ran = run_demo("metrics", scenario="two-stacks")
    assert ran.returncode == 0, ran.stderr
    found = parse_series(ran.stdout)
    assert [(labels["node"], value) for labels, value in found["sparkctl_node_up"]] == [("spark1", 1), ("spark2", 1)]
    engines = {labels["engine"]: value for labels, value in found["sparkctl_instance_generation_tokens_per_second"]}
    assert engines.keys() == {"sglang", "vllm"}
    assert all(value > 1 for value in engines.values())
    parts = ("gpu_processes", "other_used", "page_cache", "free")
    total = sum(found[f"sparkctl_node_memory_{part}_bytes"][0][1] for part in parts)
    assert total == found["sparkctl_node_memory_total_bytes"][0][1]


@pytest.fixture
def served() -> Iterator[tuple[subprocess.Popen[str], str]]:
    words = ["demo", "--scenario", "two-stacks", "--speed", QUICK, "metrics", "--serve", "0"]
    running = subprocess.Popen(
        [sys.executable, "-m", "sparkctl", *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        stdin=subprocess.DEVNULL,
    )  # fmt: skip
    assert running.stdout is not None
    try:
        yield running, running.stdout.readline().strip()
    finally:
        running.kill()
        running.communicate()


def test_a_scraper_sees_what_is_known_then(served: tuple[subprocess.Popen[str], str]) -> None:
    running, url = served
    assert url.startswith("http://127.0.0.1:")
    for _ in range(200):
        time.sleep(0.1)  # the scraper's own pace
        with urllib.request.urlopen(url, timeout=10) as answer:
            page = answer.read().decode()
        if "sparkctl_instance_generation_tokens_per_second{" in page:
            break
        assert running.poll() is None
    found = parse_series(page)
    assert {value for _, value in found["sparkctl_node_up"]} == {1}
    listening = [each.laddr for each in psutil.Process(running.pid).net_connections() if each.status == "LISTEN"]
    assert all(one.ip.startswith("127.") for one in listening)  # those of the demo's Sparks, too
    assert [one.ip for one in listening if url.startswith(f"http://127.0.0.1:{one.port}/")] == ["127.0.0.1"]
    for wanted, method, status in (("/nonsense", "GET", 404), ("/metrics", "HEAD", 405), ("/", "GET", 200)):
        connection = http.client.HTTPConnection("127.0.0.1", urllib.parse.urlsplit(url).port or 0, timeout=10)
        connection.request(method, wanted)
        assert connection.getresponse().status == status, wanted
        connection.close()
    running.send_signal(signal.SIGINT)
    assert running.wait(20) == 0


def test_a_port_that_is_taken_is_told() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        ran = run_demo("metrics", "--serve", str(port))
    assert ran.returncode == 2
    assert f"cannot serve on 127.0.0.1:{port}: Address already in use" in ran.stderr
    assert ran.stdout == ""


def test_who_asks_for_another_host_reads_nothing(served: tuple[subprocess.Popen[str], str]) -> None:
    port = urllib.parse.urlsplit(served[1]).port or 0
    for host, status in (("rebind.evil.example", 403), (f"localhost:{port}", 200)):
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
        connection.request("GET", "/metrics", headers={"Host": host})
        assert connection.getresponse().status == status, host
        connection.close()
