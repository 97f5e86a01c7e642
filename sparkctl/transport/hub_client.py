"""Reads from the Hugging Face Hub what a model is before a byte of its weights is fetched: its list of files, config.json,
and the headers of its safetensors files by range requests. From the operator's machine; nothing is stored.
"""

from __future__ import annotations

import asyncio
import re
import struct
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial
from types import SimpleNamespace
from typing import Any
from urllib.parse import quote

from sparkctl.concurrency import run_in_daemon_thread
from sparkctl.errors import ExitCode, InvalidInput, OperationRefused, SparkctlError
from sparkctl.model.lazy_dataclass import dataclass
from sparkctl.model.memory_fit import CheckpointFiles
from sparkctl.model.missing_part import HubSource
from sparkctl.model.text.sanitize import load_json, load_json_map, sanitize_line
from sparkctl.node.download import DownloadError, WantedFile, choose_files, classify_refusal

_DEFAULT_ENDPOINT = "https://huggingface.co"
_TIMEOUT_SECONDS = 15.0
_LIST_BYTES = 32 << 20
_CONFIG_BYTES = 1 << 20
_HEADER_BEGIN_BYTES = 256 << 10  # most headers are shorter: one request each
_MAX_HEADER_BYTES = 100 << 20
_REQUESTS_AT_ONCE = 8
_MAX_HEADERS = 200
_WEIGHTS = (".safetensors", ".gguf", ".bin", ".pt")
_DRAFT_LAYER = re.compile(r"mtp|nextn|eh_proj", re.IGNORECASE)


class HubUnreachable(SparkctlError):
    """The Hub does not answer, or gives an answer that is none."""

    exit_code = ExitCode.UNREACHABLE


def get_hub_endpoint(environ: Mapping[str, str]) -> str | None:
    """Return the operator's own Hub, None for the public one. Raises `InvalidInput` for an address with a password in it."""
    endpoint = (environ.get("HF_ENDPOINT") or "").rstrip("/")
    if "@" in endpoint.partition("://")[2].partition("/")[0]:
        raise InvalidInput(
            "HF_ENDPOINT has a password in it, which every user of the node could read", "set HF_TOKEN for it"
        )
    if endpoint and not endpoint.startswith(("https://", "http://")):
        raise InvalidInput(f"HF_ENDPOINT is not an address: {endpoint[:80]}", "write https://HOST")
    return endpoint or None


def find_hub_token(environ: Mapping[str, str]) -> str | None:
    """Return the operator's own token for the Hub."""
    return environ.get("HF_TOKEN") or environ.get("HUGGING_FACE_HUB_TOKEN") or None


@dataclass(frozen=True, slots=True, kw_only=True)
class HubModel:
    """What the Hub has of a model.

    ``files``: (name, bytes) of those that `pull` would fetch. ``number_types``: (type, bytes) of the tensors, the largest
    first; empty where headers were not read. ``has_draft_layers`` as in `CheckpointFiles`.
    """

    source: HubSource
    files: tuple[tuple[str, int], ...]
    config: str | None = None
    number_types: tuple[tuple[str, int], ...] = ()
    has_draft_layers: bool | None = None

    @property
    def size(self) -> int:
        """Bytes of everything that is to be fetched."""
        return sum(size for _, size in self.files)

    def build_checkpoint(self, place: str) -> CheckpointFiles:
        """Return it as what would lie at a place of the node, and does not yet."""
        total = sum(size for _, size in self.number_types)
        types = ", ".join(f"{name} {size / total:.0%}" for name, size in self.number_types[:4])
        return CheckpointFiles(
            place=place,
            is_there=False,
            origin=f"{self.source}" + (f" ({types})" if types else ""),
            config=self.config,
            files=tuple(one for one in self.files if one[0].endswith(_WEIGHTS)),
            has_draft_layers=self.has_draft_layers,
        )


class HubClient:
    """Asks the Hub, each model once. ``environ``: the operator's, for HF_ENDPOINT, HF_TOKEN and HF_HUB_OFFLINE."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._environ = environ
        self._models: dict[tuple[object, ...], HubModel | HubUnreachable] = {}
        self._lock, self._places = asyncio.Lock(), asyncio.Semaphore(_REQUESTS_AT_ONCE)

    async def read_model(self, source: HubSource, include: Sequence[str], exclude: Sequence[str]) -> HubModel:
        """Return a model. Raises `HubUnreachable`, `OperationRefused` for a gated or unknown one, `InvalidInput`."""
        key = (source, tuple(include), tuple(exclude))
        async with self._lock:  # two nodes ask for the same model
            if key not in self._models:
                try:
                    self._models[key] = await self._read_model(source, list(include), list(exclude))
                except HubUnreachable as error:
                    self._models[key] = error  # nobody waits for it twice
            known = self._models[key]
        if isinstance(known, HubUnreachable):
            raise known
        return known

    async def measure_model(self, source: HubSource, include: Sequence[str], exclude: Sequence[str]) -> HubModel:
        """Return a model by its list of files alone; a byte of one of them proves that they may be fetched. Raises as
        `read_model` does.
        """
        known = self._models.get((source, tuple(include), tuple(exclude)))
        if isinstance(known, HubUnreachable):
            raise known
        if known is not None and known.config is not None:  # a file of it came
            return known
        listed, _, files = await self._list_files(source, list(include), list(exclude))
        first = quote(min(files, key=lambda one: one.size or 0).name)
        await self._request(source, _build_file_path(source, listed) + first, 1, is_range=True)
        return HubModel(source=source, files=tuple((one.name, one.size or 0) for one in files))

    async def _list_files(
        self, source: HubSource, include: list[str], exclude: list[str]
    ) -> tuple[dict[str, Any], list[Any], list[WantedFile]]:
        """Return what the Hub says of a repository, its files, and those that are wanted, each with its size."""
        if self._environ.get("HF_HUB_OFFLINE", "").upper() in ("1", "ON", "YES", "TRUE"):
            raise HubUnreachable("the Hub is not asked: HF_HUB_OFFLINE is set")
        revision = source.revision or "main"
        path = f"/api/models/{source.repository}/revision/{quote(revision, safe='')}?blobs=true"
        listed = _parse_object(await self._request(source, path, _LIST_BYTES))
        entries = listed.get("siblings")
        siblings = [
            SimpleNamespace(
                rfilename=one["rfilename"], size=one.get("size"), lfs=one.get("lfs"), blob_id=one.get("blobId")
            )
            for one in (entries if isinstance(entries, list) else ())
            if isinstance(one, dict) and isinstance(one.get("rfilename"), str)
        ]
        try:
            files = choose_files(siblings, include, exclude)
        except DownloadError as error:
            raise OperationRefused(f"{source}: {sanitize_line(str(error))}", "set model.include") from error
        if unknown := [one.name for one in files if type(one.size) is not int or one.size < 0]:
            raise HubUnreachable(f"the Hub does not report the size of {sanitize_line(unknown[0])} of {source}")
        return listed, siblings, files

    async def _read_model(self, source: HubSource, include: list[str], exclude: list[str]) -> HubModel:
        listed, siblings, files = await self._list_files(source, include, exclude)
        base, config = _build_file_path(source, listed), None
        if any(one.rfilename == "config.json" for one in siblings):
            text = await self._request(source, base + "config.json", _CONFIG_BYTES)
            if len(text) < _CONFIG_BYTES:  # a cut one would be read as another model, or as none
                config = text.decode("utf-8", "replace").replace("\r", "").replace("\n", "")
        shards = [one.name for one in files if one.name.endswith(".safetensors")]
        tensors = await self._read_headers(source, base, shards) if len(shards) <= _MAX_HEADERS else []
        return HubModel(
            source=source,
            files=tuple((one.name, one.size or 0) for one in files),
            config=config,
            number_types=tuple(Counter(_sum_number_types(tensors)).most_common()),
            has_draft_layers=any(_DRAFT_LAYER.search(name) for name, _ in tensors) if tensors else None,
        )

    async def _read_headers(self, source: HubSource, base: str, names: Sequence[str]) -> list[tuple[str, Any]]:
        """Return the tensors of all files by name; nothing where a file has no header that can be read."""
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(self._read_header(source, base + quote(name))) for name in names]
        found = [task.result() for task in tasks]
        return [] if None in found else [pair for one in found if one is not None for pair in one.items()]

    async def _read_header(self, source: HubSource, path: str) -> dict[str, Any] | None:
        async with self._places:
            try:
                begin = await self._request(source, path, _HEADER_BEGIN_BYTES, is_range=True)
                length = struct.unpack("<Q", begin[:8])[0] if len(begin) >= 8 else _MAX_HEADER_BYTES + 1
                if length > _MAX_HEADER_BYTES:
                    return None
                if length + 8 > len(begin):
                    begin = await self._request(source, path, length + 8, is_range=True)
            except SparkctlError:  # the sizes of the files are known without it
                return None
        tensors = load_json_map(begin[8 : length + 8])
        return None if tensors is None else {name: one for name, one in tensors.items() if name != "__metadata__"}

    async def _request(self, source: HubSource, path: str, limit: int, *, is_range: bool = False) -> bytes:
        headers = {"User-Agent": "sparkctl"}
        if (token := find_hub_token(self._environ)) is not None:
            headers["Authorization"] = f"Bearer {token}"
        if is_range:
            headers["Range"] = f"bytes=0-{limit - 1}"
        address = (get_hub_endpoint(self._environ) or _DEFAULT_ENDPOINT) + path
        return await run_in_daemon_thread(partial(_fetch, address, headers, limit, source))


def _build_file_path(source: HubSource, listed: Mapping[str, Any]) -> str:
    """Return the path of its files, of the commit that was listed."""
    commit = quote(str(listed.get("sha") or source.revision or "main"), safe="")
    return f"/{source.repository}/resolve/{commit}/"


def _fetch(address: str, headers: Mapping[str, str], limit: int, source: HubSource) -> bytes:
    """Return the first bytes of an answer; runs in a thread."""
    import http.client
    import urllib.error
    import urllib.request
    from urllib.parse import urlsplit

    class Redirects(urllib.request.HTTPRedirectHandler):
        """Follows a redirect; the token stays with the Hub's own host."""

        def redirect_request(self, req: urllib.request.Request, *args: Any) -> urllib.request.Request | None:
            target = super().redirect_request(req, *args)
            if target is not None and urlsplit(target.full_url)[:2] != urlsplit(req.full_url)[:2]:
                target.remove_header("Authorization")
            return target

    try:
        request = urllib.request.Request(address, headers=dict(headers))  # noqa: S310 - its scheme was checked
        with urllib.request.build_opener(Redirects).open(request, timeout=_TIMEOUT_SECONDS) as answer:
            data: bytes = answer.read(limit)
            return data
    except urllib.error.HTTPError as error:
        code, message = (error.headers.get(name) or "" for name in ("X-Error-Code", "X-Error-Message"))
        raise _explain_status(error.code, code, sanitize_line(message)[:300], source) from error
    except (OSError, ValueError, http.client.HTTPException) as error:
        why = sanitize_line(str(getattr(error, "reason", None) or error))[:200]
        raise HubUnreachable(
            f"the Hub at {urlsplit(address).netloc} does not answer this computer: {why}",
            "see the network and HF_ENDPOINT",
        ) from error


REFUSED_LOGIN_HINT = "make a new one on https://huggingface.co/settings/tokens and set HF_TOKEN, or unset it"
TOO_MANY_HINT = "wait, or set HF_TOKEN: a known user may ask more often"


def _explain_status(status: int, code: str, message: str, source: HubSource) -> SparkctlError:
    page, words = f"{_DEFAULT_ENDPOINT}/{source.repository}", f" ({message})" if message else ""
    if code == "GatedRepo":
        return OperationRefused(
            f"{source} is gated: the Hub shows it only to who accepted its terms{words}",
            f"accept them on {page}, set HF_TOKEN; a fine-grained token needs the right to read gated repositories",
        )
    match classify_refusal(status, message):
        case "bad-token":
            return OperationRefused(f"the Hub refuses your token{words}", REFUSED_LOGIN_HINT)
        case "too-many":
            return HubUnreachable(f"the Hub has had too many requests{words}", TOO_MANY_HINT)
    if code == "RevisionNotFound":
        return OperationRefused(f"{source.repository} has no revision {source.revision}", "check the part after @")
    if status in (401, 403, 404):
        return OperationRefused(
            f"the Hub has no {source.repository}, or shows it only with a token",
            f"see {page}; for a private one set HF_TOKEN",
        )
    return HubUnreachable(f"the Hub answered {status} for {source}", "try again later")


def _parse_object(data: bytes) -> dict[str, Any]:
    try:
        found = load_json(data)
    except ValueError as error:
        raise HubUnreachable("the Hub's list of files cannot be read", "see HF_ENDPOINT") from error
    if not isinstance(found, dict):
        raise HubUnreachable("the Hub's list of files is not a list", "see HF_ENDPOINT")
    return found


def _sum_number_types(tensors: Sequence[tuple[str, Any]]) -> dict[str, int]:
    sizes: dict[str, int] = {}
    for _, one in tensors:
        try:
            first, last = one["data_offsets"]
            kind = sanitize_line(str(one["dtype"]))[:20]
            sizes[kind] = sizes.get(kind, 0) + max(0, int(last) - int(first))
        except (KeyError, TypeError, ValueError):
            return {}
    return sizes if sum(sizes.values()) else {}
