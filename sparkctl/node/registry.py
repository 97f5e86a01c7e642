"""Runs on a Spark: asks an image's registry how large the image is. It fetches no layer, only the last bytes of each.

It reads one JSON object from stdin and prints one line. Python 3.8 or newer, standard library alone.
"""

from __future__ import annotations

import base64
import contextlib
import json
import re
import ssl
import sys
import urllib.error
import urllib.parse
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

TYPE_CHECKING = False
if TYPE_CHECKING:  # importing typing would cost the node a megabyte
    from typing import Any

    Json = dict[str, Any]

ANSWER_MARK = "@@ registry "
_TIMEOUT_SECONDS = 8.0  # of one request
_REQUESTS_AT_ONCE = 8
_MAX_MANIFEST_BYTES = 4 << 20
_MAX_LAYERS = 200
_CERTIFICATES = "/etc/docker/certs.d"  # where Docker looks for a registry's own authority
_INDEX_TYPES = ("application/vnd.oci.image.index.v1+json", "application/vnd.docker.distribution.manifest.list.v2+json")
_MANIFEST_TYPES = ("application/vnd.oci.image.manifest.v1+json", "application/vnd.docker.distribution.manifest.v2+json")
_CHALLENGE = re.compile(r'(?<!\w)(\w{1,40})="([^"]*)"')
_TRAILER_BYTES = 4  # of gzip: the size of its content, modulo 2^32
_WRAPPED_BYTES = 1 << 30  # a layer of fewer bytes is not unpacked to more than 2^32


class RegistryError(Exception):
    """The registry does not tell. ``kind``: unauthorized, not-found, no-platform, unreachable or broken."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind


class Registry:
    """One repository of a registry.

    ``login``: username and password, or an identitytoken. ``is_insecure``: as Docker, without a check of its certificate, or
    without encryption.
    """

    def __init__(self, host: str, repository: str, login: Json | None, *, is_insecure: bool) -> None:
        self._host, self._repository, self._login, self._is_insecure = host, repository, login, is_insecure
        self._scheme, self._token = "https", ""
        self._schemes = ("https://", "http://") if is_insecure else ("https://",)
        context = ssl.create_default_context()
        if is_insecure:
            context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        for file in sorted(Path(_CERTIFICATES, host).glob("*.crt")):
            with contextlib.suppress(OSError, ssl.SSLError):
                context.load_verify_locations(file)
        self._opener = urllib.request.build_opener(urllib.request.HTTPSHandler(context=context))

    def get_json(self, path: str, accept: tuple[str, ...]) -> tuple[Json, Any]:
        data, headers, _ = self._get(path, {"Accept": ", ".join(accept)}, _MAX_MANIFEST_BYTES)
        return _parse_object(data), headers

    def read_end(self, digest: str, size: int) -> bytes | None:
        """Return the last four bytes of a blob; None where the registry gives no part of one."""
        span = f"bytes={size - _TRAILER_BYTES}-{size - 1}"
        data, _, status = self._get(f"blobs/{digest}", {"Range": span}, _TRAILER_BYTES)
        return data if status == 206 and len(data) == _TRAILER_BYTES else None

    def _get(self, path: str, headers: dict[str, str], limit: int) -> tuple[bytes, Any, int]:
        try:
            return self._request(path, headers, limit)
        except urllib.error.HTTPError as error:
            if error.code != 401 or self._token:
                raise
            self._token = self._authenticate(error.headers.get_all("WWW-Authenticate") or [])
            return self._request(path, headers, limit)
        except (urllib.error.URLError, OSError):
            if not self._is_insecure or self._scheme == "http":
                raise
            self._scheme = "http"
            return self._get(path, headers, limit)

    def _request(self, path: str, headers: dict[str, str], limit: int) -> tuple[bytes, Any, int]:
        address = f"{self._scheme}://{self._host}/v2/{urllib.parse.quote(self._repository)}/{path}"
        request = urllib.request.Request(address, headers=headers)  # noqa: S310 - http or https, above
        if self._token:  # not to where a redirect leads: that is another's server
            request.add_unredirected_header("Authorization", self._token)
        with self._opener.open(request, timeout=_TIMEOUT_SECONDS) as answer:
            return answer.read(limit), answer.headers, answer.status

    def _authenticate(self, challenges: list[str]) -> str:
        """Return the value of the header that answers a challenge."""
        login = self._login or {}
        basic = base64.b64encode(f"{login.get('username')}:{login.get('password')}".encode()).decode()
        for challenge in challenges:
            kind, _, rest = challenge.partition(" ")
            words = dict(_CHALLENGE.findall(rest))
            if kind.lower() == "basic" and login.get("password"):
                return f"Basic {basic}"
            realm = words.pop("realm", "")
            if kind.lower() != "bearer" or not realm.startswith(self._schemes):
                continue
            words.setdefault("scope", f"repository:{self._repository}:pull")
            words.pop("error", None)
            request = urllib.request.Request(f"{realm}?{urllib.parse.urlencode(words)}")  # noqa: S310 - compared above
            if login.get("identitytoken"):
                form = {
                    **words,
                    "grant_type": "refresh_token",
                    "refresh_token": login["identitytoken"],
                    "client_id": "sparkctl",
                }
                request = urllib.request.Request(realm, urllib.parse.urlencode(form).encode())  # noqa: S310
            elif login.get("password"):
                request.add_unredirected_header("Authorization", f"Basic {basic}")
            with self._opener.open(request, timeout=_TIMEOUT_SECONDS) as answer:
                reply = _parse_object(answer.read(_MAX_MANIFEST_BYTES))
            if token := reply.get("token") or reply.get("access_token"):
                return f"Bearer {token}"
        raise RegistryError("unauthorized", "it wants a login")


def _parse_object(data: bytes) -> Json:
    found = json.loads(data)
    if not isinstance(found, dict):
        raise ValueError("not an object")
    return found


def choose_manifest(index: Json, machine: str | None) -> str:
    """Return the digest of the image for a processor, in Go's word; None: the only one there is."""
    images = []
    for one in index["manifests"]:
        platform = one.get("platform") or {}
        if platform.get("os") == "linux":
            images.append((str(platform.get("architecture")), str(one["digest"])))
    fitting = [digest for architecture, digest in images if machine in (None, architecture)]
    if not fitting or (machine is None and len(fitting) > 1):
        raise RegistryError("no-platform", ", ".join(sorted({architecture for architecture, _ in images})))
    return fitting[0]


def calculate_unpacked(size: int, end: bytes | None) -> int | None:
    """Return the bytes of a layer's content from the end of its gzip file of ``size`` bytes; None: not known."""
    content = int.from_bytes(end or b"", "little")
    least = size - size // 100  # what cannot be packed grows by less
    if content >= least:
        return content
    if content == 0 or size < _WRAPPED_BYTES:  # made of several parts: of the others nothing is known
        return None
    return content + -(-(least - content) // 2**32) * 2**32


def read_image(request: Json) -> Json:
    """Return the image's digest, and the bytes that come and that they are unpacked; the latter None: not known."""
    registry = Registry(
        request["host"], request["repository"], request.get("login"), is_insecure=bool(request.get("is_insecure"))
    )
    path = "manifests/" + urllib.parse.quote(request["reference"], safe=":")
    manifest, headers = registry.get_json(path, (*_INDEX_TYPES, *_MANIFEST_TYPES))
    digest = headers.get("Docker-Content-Digest")
    if "manifests" in manifest:
        chosen = choose_manifest(manifest, request.get("machine"))
        manifest, _ = registry.get_json(f"manifests/{chosen}", _MANIFEST_TYPES)
    layers = {str(one["digest"]): (int(one["size"]), str(one.get("mediaType"))) for one in manifest["layers"]}

    def measure(one: tuple[str, tuple[int, str]]) -> int | None:
        layer, (size, kind) = one
        if not kind.endswith("gzip"):
            return size if kind.endswith("tar") else None
        try:
            return calculate_unpacked(size, registry.read_end(layer, size))
        except (OSError, ValueError):
            return None

    unpacked: list[int | None] = [None]
    if len(layers) <= _MAX_LAYERS:
        with ThreadPoolExecutor(_REQUESTS_AT_ONCE) as pool:
            unpacked = list(pool.map(measure, layers.items()))
    known = [size for size in unpacked if size is not None]
    return {
        "digest": digest,
        "size": sum(size for size, _ in layers.values()),
        "unpacked": sum(known) if len(known) == len(unpacked) else None,
    }


def answer_request(request: Json) -> Json:
    """Return what the registry has, or ``error`` with its kind and ``message``."""
    try:
        return read_image(request)
    except RegistryError as error:
        return {"error": error.kind, "message": str(error)}
    except urllib.error.HTTPError as error:
        kind = {401: "unauthorized", 403: "unauthorized", 404: "not-found"}.get(error.code, "broken")
        return {"error": kind, "message": f"HTTP {error.code}"}
    except OSError as error:
        return {"error": "unreachable", "message": str(getattr(error, "reason", error))}
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
        return {"error": "broken", "message": f"{type(error).__name__}: {error}"}


def main(words: list[str] | None = None) -> None:
    """Answer one request."""
    request = json.loads(sys.stdin.readline())
    sys.stdout.write(ANSWER_MARK + json.dumps(answer_request(request)) + "\n")
    sys.stdout.flush()
