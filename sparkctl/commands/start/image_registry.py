"""An image's registry: the login for it, that of the node's user or the operator's own, and how large the image is there."""

from __future__ import annotations

import asyncio
import base64
import json
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from sparkctl.errors import NodeError, NodeStarved, OperationRefused, UnreadableAnswer
from sparkctl.model.missing_part import MissingPart, PartKind
from sparkctl.model.text.sanitize import load_json_map, sanitize_line
from sparkctl.node.bootstrap import build_program
from sparkctl.node.registry import ANSWER_MARK
from sparkctl.transport.docker.docker_responses import DockerInfo
from sparkctl.transport.node_session import NodeSession

_DOCKER_HUB = "docker.io"
_REGISTRY_HOSTS = {_DOCKER_HUB: "registry-1.docker.io"}
_DOCKER_HUB_LOGIN = "https://index.docker.io/v1/"  # under which name `docker login` keeps that of Docker Hub
_LOGIN_TIMEOUT_SECONDS = 20.0
_OWN_LOGIN_TIMEOUT_SECONDS = 60.0  # here a helper may ask its user for a passphrase
_KILL_SECONDS = 1.0
_HELPER_NAME = re.compile(r"[\w.-]+")
_READ_CONFIG = 'cat -- "${DOCKER_CONFIG:-$HOME/.docker}/config.json" 2>/dev/null || echo "{}"'
_SIZE_TIMEOUT_SECONDS = 30.0
_MAX_IMAGE_BYTES = 1 << 50


async def measure_images(
    session: NodeSession, parts: Sequence[MissingPart], engine: DockerInfo, own_login: Mapping[str, str] | None = None
) -> tuple[tuple[MissingPart, ...], tuple[str, ...]]:
    """Return the parts, images with their sizes as their registry tells them to the node, and sentences on what it did not
    tell. ``own_login``: the operator's, in place of that of the node's user.
    """
    found, cautions = [], []
    for part in parts:
        is_asked_for = not part.is_built and part.made_by is None and part.copied_from is None and part.size is None
        if part.kind is PartKind.IMAGE and is_asked_for:
            part, why = await _measure_image(session, part, engine, own_login)
            cautions += [] if why is None else [f"the size of {part.name} is not known: {why}"]
        found.append(part)
    return tuple(found), tuple(cautions)


async def _measure_image(
    session: NodeSession, part: MissingPart, engine: DockerInfo, own_login: Mapping[str, str] | None
) -> tuple[MissingPart, str | None]:
    """Return the image with its sizes, or as it is with why the registry does not tell them."""
    registry = get_registry(part.name)
    repository, reference = split_image_name(part.name)
    try:
        login = own_login or await read_registry_login(session, registry)
        request = {
            "host": get_registry_host(registry),
            "repository": repository,
            "reference": reference,
            "machine": engine.machine,
            "login": login,
            "is_insecure": engine.is_insecure_registry(registry),
        }
        program = build_program("sparkctl-registry", ["registry"], stdin=json.dumps(request).encode() + b"\n")
        done = await session.run(program.argv, stdin=program.stdin, timeout=_SIZE_TIMEOUT_SECONDS)
    except NodeError as error:
        return part, error.message
    answer = load_json_map(done.stdout.decode("utf-8", "replace").partition(ANSWER_MARK)[2])
    if answer is None:
        return part, f"python3 on {session.node.name} did not ask the registry (exit {done.status})"
    size, unpacked = (_as_bytes(answer.get(name)) for name in ("size", "unpacked"))
    if size is not None:
        return replace(part, size=size, unpacked=unpacked), None
    words = sanitize_line(str(answer.get("message") or ""))
    why = {
        "unauthorized": f"the registry {registry} refuses it to {session.node.name}",
        "not-found": f"the registry {registry} has no {part.name}",
        "no-platform": f"it has no image for {engine.machine or 'this processor'}, only for {words}",
        "unreachable": f"{session.node.name} does not reach the registry {registry} ({words})",
    }
    return part, why.get(str(answer.get("error")), f"the registry {registry} gives an answer that is none ({words})")


def _as_bytes(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < _MAX_IMAGE_BYTES else None


def split_image_name(name: str) -> tuple[str, str]:
    """Return an image's repository, as its registry names it, and its digest or tag."""
    registry = get_registry(name)
    path = name.removeprefix(f"{registry}/")
    rest, _, digest = path.partition("@")
    head, slash, last = rest.rpartition("/")
    last, _, tag = last.partition(":")
    repository = head + slash + last
    if registry == _DOCKER_HUB and "/" not in repository:
        repository = f"library/{repository}"
    return repository, digest or tag or "latest"


def get_registry_host(registry: str) -> str:
    """Return the host that serves a registry."""
    return _REGISTRY_HOSTS.get(registry, registry)


def get_registry(name: str) -> str:
    """Return the host of an image's registry; without one in the name it is Docker Hub."""
    first, slash, _ = name.partition("/")
    return first if slash and ("." in first or ":" in first or first == "localhost") else _DOCKER_HUB


async def read_registry_login(session: NodeSession, registry: str) -> dict[str, str] | None:
    """Return the login that the node's user has for a registry (`docker login`), None without one.

    It is held in memory for the one call. A credential helper that does not answer counts as none.
    """
    done = await session.run(["sh", "-c", _READ_CONFIG, "sparkctl-login"], timeout=_LOGIN_TIMEOUT_SECONDS)

    async def ask_helper(helper: str, key: str) -> bytes | None:
        try:
            answer = await session.run(
                [f"docker-credential-{helper}", "get"], stdin=key.encode(), timeout=_LOGIN_TIMEOUT_SECONDS
            )
        except (NodeStarved, UnreadableAnswer):
            return None
        return answer.stdout if answer.status == 0 else None

    return await find_login(done.stdout, registry, ask_helper)


async def read_own_login(environ: Mapping[str, str], registry: str) -> dict[str, str]:
    """Return the login that the operator has for a registry on this computer. Raises `OperationRefused` without one."""
    directory = Path(environ.get("DOCKER_CONFIG") or Path(environ.get("HOME", "~"), ".docker"))
    try:
        text = await asyncio.to_thread((directory / "config.json").read_bytes)
    except OSError:
        text = b"{}"

    async def ask_helper(helper: str, key: str) -> bytes | None:
        pipe = asyncio.subprocess.PIPE
        try:
            process = await asyncio.create_subprocess_exec(
                f"docker-credential-{helper}", "get", stdin=pipe, stdout=pipe, stderr=asyncio.subprocess.DEVNULL
            )
        except OSError:
            return None
        try:
            async with asyncio.timeout(_OWN_LOGIN_TIMEOUT_SECONDS):
                answer, _ = await process.communicate(key.encode())
        except TimeoutError:
            return None
        finally:
            if process.returncode is None:
                process.kill()
                with suppress(TimeoutError):  # a child of it may keep its pipes open
                    async with asyncio.timeout(_KILL_SECONDS):
                        await process.wait()
        return answer if process.returncode == 0 else None

    found = await find_login(text, registry, ask_helper)
    if found is None:
        raise OperationRefused(
            f"this computer has no login for the registry {registry} ({directory / 'config.json'})",
            f"here: docker login {registry}",
        )
    return found


async def find_login(
    text: bytes, registry: str, ask_helper: Callable[[str, str], Awaitable[bytes | None]]
) -> dict[str, str] | None:
    """Return the login for a registry that a config.json of Docker has, itself or by its credential helper."""
    if (config := load_json_map(text)) is None:
        return None
    keys = [_DOCKER_HUB_LOGIN, _DOCKER_HUB] if registry == _DOCKER_HUB else [registry, f"https://{registry}"]
    helpers = config.get("credHelpers")
    helpers = helpers if isinstance(helpers, dict) else {}
    for key in keys:
        helper = str(helpers.get(key) or config.get("credsStore") or "")
        if (
            _HELPER_NAME.fullmatch(helper)
            and (found := _decode_helper_answer(await ask_helper(helper, key))) is not None
        ):
            return found
    logins = config.get("auths")
    logins = logins if isinstance(logins, dict) else {}
    return next((found for key in keys if (found := _decode_login(logins.get(key))) is not None), None)


def _decode_helper_answer(text: bytes | None) -> dict[str, str] | None:
    answer = load_json_map(text) or {}
    if not answer.get("Secret"):
        return None
    if answer.get("Username") == "<token>":
        return {"identitytoken": str(answer["Secret"])}
    return {"username": str(answer.get("Username", "")), "password": str(answer["Secret"])}


def _decode_login(entry: object) -> dict[str, str] | None:
    if not isinstance(entry, dict):
        return None
    if entry.get("identitytoken"):
        return {"identitytoken": str(entry["identitytoken"])}
    try:
        user, colon, password = base64.b64decode(str(entry.get("auth") or "")).decode().partition(":")
    except ValueError:
        return None
    return {"username": user, "password": password} if colon else None
