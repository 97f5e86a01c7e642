"""What a registry says of an image: its sizes by the lists and the layers' ends, with a login where it wants one."""

from __future__ import annotations

import base64
import gzip
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from sparkctl.node.registry import answer_request, calculate_unpacked, choose_manifest

CONTENTS = (b"layer one " * 5000, bytes(range(256)) * 300)
LAYERS = {f"sha256:{at}{'0' * 63}": gzip.compress(content) for at, content in enumerate(CONTENTS)}
MANIFEST = {
    "schemaVersion": 2, "layers": [
        {"digest": digest, "size": len(data), "mediaType": "application/vnd.oci.image.layer.v1.tar+gzip"}
        for digest, data in LAYERS.items()
    ],
}  # fmt: skip
INDEX = {
    "manifests": [
        {"digest": "sha256:other", "platform": {"os": "linux", "architecture": "amd64"}},
        {"digest": "sha256:right", "platform": {"os": "linux", "architecture": "arm64"}},
        {"digest": "sha256:proof", "platform": {"os": "unknown", "architecture": "unknown"}},
    ]
}  # fmt: skip
BASIC = "Basic " + base64.b64encode(b"milo:secret").decode()


class Stand(BaseHTTPRequestHandler):
    """A registry with a token service; blobs are on another server, by a redirect."""

    def do_GET(self) -> None:
        site: Site = self.server.site  # type: ignore[attr-defined]
        site.seen.append((self.path, self.headers.get("Authorization")))
        if self.path.startswith("/token"):
            is_right = self.headers.get("Authorization") == BASIC
            return self.reply(200 if is_right else 401, json.dumps({"token": "abc"}).encode())
        if self.path.startswith("/cdn/"):
            data = LAYERS[self.path.removeprefix("/cdn/")]
            first, _, last = self.headers["Range"].removeprefix("bytes=").partition("-")
            return self.reply(206, data[int(first) : int(last) + 1])
        if site.wants_token and self.headers.get("Authorization") != "Bearer abc":
            challenge = (
                f'Bearer realm="{site.realm or site.url + "/token"}",service="lab",scope="repository:acme/tiny:pull"'
            )
            return self.reply(401, b"{}", {"WWW-Authenticate": challenge})
        name = self.path.removeprefix("/v2/acme/tiny/")
        if name == "manifests/1":
            return self.reply(200, json.dumps(INDEX).encode(), {"Docker-Content-Digest": "sha256:index"})
        if name == "manifests/sha256:right":
            return self.reply(200, json.dumps(MANIFEST).encode())
        if name.startswith("blobs/"):
            return self.reply(307, b"", {"Location": f"{site.url}/cdn/{name.removeprefix('blobs/')}"})
        return self.reply(404, b"{}")

    def reply(self, status: int, body: bytes, headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        for name, value in {"Content-Length": str(len(body)), **(headers or {})}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing."""


class Site:
    """What the registry is asked, and how it answers."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, str | None]] = []
        self.wants_token = False
        self.realm: str | None = None
        self.url = ""

    def ask(self, **changes: Any) -> dict[str, Any]:
        host = self.url.removeprefix("http://")
        request = {"host": host, "repository": "acme/tiny", "reference": "1", "machine": "arm64", "is_insecure": True}
        return answer_request({**request, **changes})


@pytest.fixture
def site() -> Iterator[Site]:
    one = Site()
    with ThreadingHTTPServer(("127.0.0.1", 0), Stand) as server:
        server.site = one  # type: ignore[attr-defined]
        one.url = f"http://127.0.0.1:{server.server_port}"
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield one
        server.shutdown()


def test_the_sizes_are_those_of_the_nodes_processor_packed_and_unpacked(site: Site) -> None:
    assert site.ask() == {
        "digest": "sha256:index", "size": sum(map(len, LAYERS.values())), "unpacked": sum(map(len, CONTENTS)),
    }  # fmt: skip


def test_a_login_gets_a_token_that_goes_to_the_registry_alone(site: Site) -> None:
    site.wants_token = True
    login = {"username": "milo", "password": "secret"}
    assert site.ask(login=login)["unpacked"] == sum(map(len, CONTENTS))
    assert {word for path, word in site.seen if path.startswith("/cdn/")} == {None}
    assert {word for path, word in site.seen if path.startswith("/v2/")} == {None, "Bearer abc"}
    assert site.ask(login={**login, "password": "wrong"})["error"] == "unauthorized"
    assert site.ask()["error"] == "unauthorized"


def test_a_login_is_sent_to_no_service_without_encryption_unless_docker_would(site: Site) -> None:
    site.wants_token = True
    site.realm = "ftp://127.0.0.1/token"
    assert site.ask(login={"username": "milo", "password": "secret"})["error"] == "unauthorized"
    assert not [path for path, word in site.seen if word == BASIC]
    site.seen.clear()
    assert site.ask(is_insecure=False, login={"username": "milo", "password": "secret"})["error"] == "unreachable"
    assert not site.seen


@pytest.mark.parametrize(("changes", "kind", "words"), [
    ({"machine": "riscv64"}, "no-platform", "amd64, arm64"), ({"machine": None}, "no-platform", "amd64, arm64"),
    ({"reference": "9"}, "not-found", "HTTP 404"), ({"host": "127.0.0.1:1"}, "unreachable", "refused"),
    ({"reference": "sha256:right", "repository": "acme/none"}, "not-found", "404"),
])  # fmt: skip
def test_what_it_does_not_have_is_told(site: Site, changes: dict[str, Any], kind: str, words: str) -> None:
    said = site.ask(**changes)
    assert said["error"] == kind
    assert words in said["message"]


def test_the_end_of_a_gzip_file_tells_its_content_or_nothing() -> None:
    def end(size: int) -> bytes:
        return (size % 2**32).to_bytes(4, "little")

    assert calculate_unpacked(100, end(250)) == 250
    assert calculate_unpacked(3 << 30, end(6 << 30)) == 6 << 30
    assert calculate_unpacked(3 << 30, end(3 << 30)) == 3 << 30, "what cannot be packed"
    assert calculate_unpacked(100_000, end(90_000)) is None, "of several parts the last"
    assert calculate_unpacked(2 << 30, end(0)) is None
    assert calculate_unpacked(100, None) is None


def test_one_image_for_an_unknown_processor_is_taken() -> None:
    assert choose_manifest({"manifests": INDEX["manifests"][1:]}, None) == "sha256:right"


@pytest.mark.parametrize("answer", [b"[]", b"{}", b"\xff", b'{"layers": [{"digest": 1}]}', b'{"manifests": 3}'])
def test_a_broken_answer_is_no_size(site: Site, monkeypatch: pytest.MonkeyPatch, answer: bytes) -> None:
    monkeypatch.setattr(Stand, "do_GET", lambda self: self.reply(200, answer))
    assert site.ask()["error"] == "broken"
