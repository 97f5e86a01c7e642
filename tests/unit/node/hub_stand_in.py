"""A stand-in of the Hugging Face Hub: the part of its HTTP API that its client uses to list and download a model."""

from __future__ import annotations

import functools
import hashlib
import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote, urlsplit

COMMIT = "a" * 40


class HubStandIn:
    """Repositories by name, each with files.

    ``gated``, ``private``: names of repositories that want a token. ``cut_after``: bytes after which the next download
    breaks off, once. ``damaged``: names of files that arrive with a flipped bit. ``sizeless``: names of files whose size the
    Hub does not tell in its list. ``rate``: bytes/s of the line to it, which all connections share; None: without a limit.
    ``old_tokens``: that count no more. ``is_busy``: it had too many requests. ``log``: (method, path, range) of each request,
    ``tokens``: the tokens that came.
    """

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Forget everything: for the next test, at the same address."""
        self.files: dict[str, dict[str, bytes]] = {}
        self.gated: set[str] = set()
        self.private: set[str] = set()
        self.damaged: set[str] = set()
        self.old_tokens: set[str] = set()
        self.is_busy = False
        self.sizeless: set[str] = set()
        self.cut_after: int | None = None
        self.log: list[tuple[str, str, str | None]] = []
        self.tokens: set[str] = set()
        self.pace = threading.Event()
        self.pace.set()  # cleared: large files stand still
        self.rate: float | None = None
        self._line, self._is_free_at = threading.Lock(), 0.0

    def wait_for_line(self, size: int) -> None:
        """Wait until so many bytes have had their turn on the line."""
        if self.rate is None:
            return
        with self._line:
            began = max(self._is_free_at, time.monotonic())
            self._is_free_at = began + size / self.rate
        time.sleep(max(0.0, began - time.monotonic()))

    def is_refused(self, repository: str, token: str | None) -> bool:
        """Tell whether somebody with this token may not have it."""
        return repository in self.gated | self.private and token != "hf_right"


@functools.lru_cache(maxsize=32)
def compute_checksum(data: bytes) -> str:
    """Return a file's SHA-256; the Hub knows it before anybody asks."""
    return hashlib.sha256(data).hexdigest()


def is_large(name: str) -> bool:
    """Tell whether the Hub keeps a file of this name in its large file storage."""
    return name.endswith((".safetensors", ".gguf", ".bin"))


@contextmanager
def run_hub(hub: HubStandIn, host: str = "127.0.0.1") -> Iterator[str]:
    """Serve it on this address; yields its URL."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_: object) -> None:
            """Print nothing."""

        def do_HEAD(self) -> None:
            """Answer without a body."""
            self._answer(has_body=False)

        def do_GET(self) -> None:
            """Answer."""
            self._answer(has_body=True)

        def _answer(self, *, has_body: bool) -> None:
            url = urlsplit(self.path)
            path = unquote(url.path)
            hub.log.append((self.command, path, self.headers.get("Range")))
            token = (self.headers.get("Authorization") or "").removeprefix("Bearer ") or None
            if token:
                hub.tokens.add(token)
            parts = path.strip("/").split("/")
            if parts[:2] == ["api", "models"]:
                repository, rest = "/".join(parts[2:4]), parts[4:]
                if rest[:1] == ["tree"]:
                    return self._send_tree(repository, rest[1], token, has_body)
                return self._send_info(repository, rest[1] if rest[:1] == ["revision"] else "main", token, has_body)
            if parts[0] == "api":  # what the client asks beside
                return self._send_json(404, {"error": "not here"}, has_body)
            if parts[0] == "cdn":
                data = hub.files["/".join(parts[1:3])]["/".join(parts[3:])]
                checksum = compute_checksum(data)
                # the Hub's own is on another host, which the client does not ask for these
                headers = {"X-Repo-Commit": COMMIT, "ETag": f'"{checksum}"', "X-Linked-Size": str(len(data))}
                return self._send_file(data, parts[-1], has_body, headers)
            return self._resolve("/".join(parts[:2]), parts[3], "/".join(parts[4:]), token, has_body)

        def _refuse(self, repository: str, revision: str, token: str | None, has_body: bool) -> bool:
            code, said = None, None
            if hub.is_busy:
                code, said = (429, ""), "We had to rate limit your IP (192.0.2.1)."
            elif token in hub.old_tokens:
                code, said = (401, ""), "Invalid credentials in Authorization header"
            elif repository not in hub.files or (repository in hub.private and hub.is_refused(repository, token)):
                code = (401, "RepoNotFound")
            elif hub.is_refused(repository, token):
                code, said = (403 if token else 401, "GatedRepo"), f"Access to model {repository} is restricted."
            elif revision not in ("main", COMMIT):
                code = (404, "RevisionNotFound")
            if code is not None:
                headers = {"X-Error-Code": code[1], "X-Error-Message": said or "Invalid username or password."}
                self._send_json(
                    code[0], {"error": code[1]}, has_body, {name: text for name, text in headers.items() if text}
                )
            return code is not None

        def _send_info(self, repository: str, revision: str, token: str | None, has_body: bool) -> None:
            is_listed = repository in hub.gated and revision in ("main", COMMIT) and token not in hub.old_tokens
            if is_listed and not hub.is_busy:
                pass  # the Hub lists a gated repository for everybody
            elif self._refuse(repository, revision, token, has_body):
                return
            siblings = []
            for name, data in hub.files[repository].items():
                one: dict[str, object] = {"rfilename": name, "size": len(data), "blobId": compute_blob_id(data)}
                if is_large(name):
                    one["lfs"] = {"sha256": compute_checksum(data), "size": len(data), "pointerSize": 134}
                if name in hub.sizeless:
                    one = {"rfilename": name}
                siblings.append(one)
            self._send_json(200, {"id": repository, "sha": COMMIT, "siblings": siblings, "gated": False}, has_body)

        def _send_tree(self, repository: str, revision: str, token: str | None, has_body: bool) -> None:
            if self._refuse(repository, revision, token, has_body):
                return
            entries = []
            for name, data in hub.files[repository].items():
                one: dict[str, object] = {"type": "file", "path": name, "size": len(data), "oid": compute_blob_id(data)}
                if is_large(name):
                    one["lfs"] = {"oid": compute_checksum(data), "size": len(data), "pointerSize": 134}
                entries.append(one)
            self._send_json(200, entries, has_body)

        def _resolve(self, repository: str, revision: str, name: str, token: str | None, has_body: bool) -> None:
            if self._refuse(repository, revision, token, has_body):
                return None
            data = hub.files[repository].get(name)
            if data is None:
                return self._send_json(404, {"error": "Entry not found"}, has_body, {"X-Error-Code": "EntryNotFound"})
            headers = {"X-Repo-Commit": COMMIT}
            if is_large(name):
                headers |= {
                    "X-Linked-Etag": f'"{compute_checksum(data)}"', "X-Linked-Size": str(len(data)),
                    "Location": f"http://{self.headers['Host']}/cdn/{repository}/{name}",
                }  # fmt: skip
                return self._send(302, b"", headers, has_body)
            return self._send_file(data, name, has_body, {**headers, "ETag": f'"{compute_blob_id(data)}"'})

        def _send_file(self, data: bytes, name: str, has_body: bool, headers: dict[str, str] | None = None) -> None:
            if name in hub.damaged:
                data = bytes([data[0] ^ 1]) + data[1:]
            begin, status = 0, 200
            headers = {**(headers or {}), "Accept-Ranges": "bytes"}
            if (wanted := self.headers.get("Range")) is not None:
                first, _, last = wanted.removeprefix("bytes=").partition("-")
                begin, status = int(first), 206
                if begin >= len(data):
                    self._send(416, b"", {"Content-Range": f"bytes */{len(data)}"}, has_body)
                    return
                end = min(len(data), int(last) + 1) if last else len(data)
                headers["Content-Range"] = f"bytes {begin}-{end - 1}/{len(data)}"
                data = data[:end]
            self._send(status, data[begin:], headers, has_body, is_cuttable=is_large(name))

        def _send_json(self, status: int, data: object, has_body: bool, headers: dict[str, str] | None = None) -> None:
            self._send(
                status, json.dumps(data).encode(), {"Content-Type": "application/json", **(headers or {})}, has_body
            )

        def _send(
            self, status: int, body: bytes, headers: dict[str, str], has_body: bool, *, is_cuttable: bool = False
        ) -> None:
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            if not has_body:
                return
            if is_cuttable and hub.cut_after is not None:
                body, hub.cut_after = body[: hub.cut_after], None
                self.close_connection = True
            for at in range(0, len(body), 65536):
                hub.wait_for_line(min(65536, len(body) - at))
                self.wfile.write(body[at : at + 65536])
                if is_cuttable and at:
                    self.wfile.flush()
                    hub.pace.wait(20)

    server = ThreadingHTTPServer((host, 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://{host}:{server.server_port}"
    finally:
        hub.pace.set()
        server.shutdown()
        server.server_close()
        thread.join()


@functools.lru_cache(maxsize=32)
def compute_blob_id(data: bytes) -> str:
    """Return git's checksum of a file; the Hub knows it, too, before anybody asks."""
    total = hashlib.sha1(b"blob %d\0" % len(data))
    total.update(data)
    return total.hexdigest()
