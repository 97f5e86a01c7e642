"""Gets an image from its registry onto a node, through Docker's API there, with the node's own login."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Mapping

from sparkctl.commands.transfer.transfer_files import TransferReporter
from sparkctl.errors import DockerError, NodeStarved, UnreadableAnswer
from sparkctl.transport.node_session import NodeSession

_DOCKER_HUB = "docker.io"
_REGISTRY_HOSTS = {_DOCKER_HUB: "registry-1.docker.io"}
_DOCKER_HUB_LOGIN = "https://index.docker.io/v1/"  # under which name `docker login` keeps that of Docker Hub
_LOGIN_TIMEOUT_SECONDS = 20.0
_READ_CONFIG = 'cat -- "${DOCKER_CONFIG:-$HOME/.docker}/config.json" 2>/dev/null || echo "{}"'


class LayerProgress:
    """The bytes of an image that have arrived, from Docker's messages on its layers.

    Docker tells the size of a layer only when it begins with it: the total grows until all layers have begun.
    """

    def __init__(self) -> None:
        self._layers: dict[str, tuple[int, int]] = {}  # bytes here, bytes in all
        self.waiting = 0
        self._states: dict[str, str] = {}

    def update(self, message: Mapping[str, object]) -> None:
        """Take one message of Docker's."""
        layer, status = str(message.get("id") or ""), str(message.get("status") or "")
        detail = message.get("progressDetail")
        total = detail.get("total") if isinstance(detail, dict) else None
        done = detail.get("current") if isinstance(detail, dict) else None
        if not layer or status.startswith("Pulling from"):
            return
        self._states[layer] = status
        if status == "Downloading" and isinstance(total, int) and isinstance(done, int):
            self._layers[layer] = min(done, total), total
        elif layer in self._layers:  # checked, unpacked or there: all of it has arrived
            self._layers[layer] = (self._layers[layer][1],) * 2
        states = self._states.values()
        self.waiting = sum(one in ("Pulling fs layer", "Waiting") for one in states)

    @property
    def done(self) -> int:
        """Bytes that have arrived."""
        return sum(done for done, _ in self._layers.values())

    @property
    def total(self) -> int | None:
        """Bytes in all; None while some layers have not begun."""
        return None if self.waiting or not self._layers else sum(total for _, total in self._layers.values())


async def pull_image(session: NodeSession, name: str, machine: str | None, progress: TransferReporter) -> str:
    """Download an image, and prove that it is there; return that as a sentence. Raises `DockerError`.

    ``machine``: the node's processor in Docker's word; None: not known, Docker chooses.
    """
    node = session.node.name
    layers = LayerProgress()
    what = f"image {name}"
    progress.begin_item(what, None)

    def report(message: dict[str, object]) -> None:
        layers.update(message)
        progress.set_total(layers.total)
        progress.report_progress(layers.done)

    login = await read_registry_login(session, get_registry(name))
    try:
        await session.docker.pull_image(name, f"linux/{machine}" if machine else "", login, report)
    except DockerError as error:
        raise explain_pull_error(error, name, node, machine) from error
    image = await session.docker.inspect_image(name)
    if image is None:
        raise DockerError(
            node, f"Docker on {node} downloaded {name}, and does not have it", f"on {node}: docker images"
        )
    if machine and image.architecture not in (machine, None):  # older Dockers only warn of it
        raise explain_pull_error(
            DockerError(node, f"what came is for {image.architecture}; no matching manifest"), name, node, machine
        )
    progress.report_progress(layers.done, is_last=True)
    return f"the image {name} is there ({image.id[:19]})"


def get_registry(name: str) -> str:
    """Return the host of an image's registry; without one in the name it is Docker Hub."""
    first, slash, _ = name.partition("/")
    return first if slash and ("." in first or ":" in first or first == "localhost") else _DOCKER_HUB


async def read_registry_login(session: NodeSession, registry: str) -> dict[str, str] | None:
    """Return the login that the node's user has for a registry (`docker login`), None without one.

    It is held in memory for the one call. A credential helper that does not answer counts as none.
    """
    done = await session.run(["sh", "-c", _READ_CONFIG, "sparkctl-login"], timeout=_LOGIN_TIMEOUT_SECONDS)
    try:
        config = json.loads(done.stdout)
    except ValueError:
        return None
    if not isinstance(config, dict):
        return None
    keys = [_DOCKER_HUB_LOGIN, _DOCKER_HUB] if registry == _DOCKER_HUB else [registry, f"https://{registry}"]
    helpers = config.get("credHelpers")
    helpers = helpers if isinstance(helpers, dict) else {}
    for key in keys:
        helper = helpers.get(key) or config.get("credsStore")
        if helper and (found := await _ask_credential_helper(session, str(helper), key)) is not None:
            return found
    logins = config.get("auths")
    logins = logins if isinstance(logins, dict) else {}
    return next((found for key in keys if (found := _decode_login(logins.get(key))) is not None), None)


async def _ask_credential_helper(session: NodeSession, helper: str, key: str) -> dict[str, str] | None:
    try:
        done = await session.run(
            [f"docker-credential-{helper}", "get"], stdin=key.encode(), timeout=_LOGIN_TIMEOUT_SECONDS
        )
        answer = json.loads(done.stdout) if done.status == 0 else {}
    except (ValueError, NodeStarved, UnreadableAnswer):
        return None
    if not isinstance(answer, dict) or not answer.get("Secret"):
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


_Explanation = tuple[tuple[str, ...], Callable[[str, str, str, str], tuple[str, str]]]
_EXPLANATIONS: tuple[_Explanation, ...] = (
    (
        ("no matching manifest", "does not match the specified platform"),
        lambda name, node, machine, _: (
            f"{name} has no image for {machine or 'this processor'}",
            "a Spark needs linux/arm64: use an image that is built for it (image: in the profile)",
        ),
    ),
    (
        ("unauthorized", "authentication required", "access denied", "denied:", "no basic auth"),
        lambda name, node, _, registry: (
            f"the registry {registry} refuses {name} to {node}",
            f"on {node}: docker login {registry}; or the name is wrong",
        ),
    ),
    (
        ("manifest unknown", "not found", "name unknown", "repository does not exist"),
        lambda name, node, _, registry: (f"the registry {registry} has no {name}", "check image: in the profile"),
    ),
    (
        ("no such host", "connection refused", "i/o timeout", "network is unreachable", "tls handshake timeout"),
        lambda name, node, _, registry: (
            f"Docker on {node} does not reach the registry {registry}",
            f"on {node}: curl -sSI https://{_REGISTRY_HOSTS.get(registry, registry)}/v2/; the same command continues",
        ),
    ),
)


def explain_pull_error(error: DockerError, name: str, node: str, machine: str | None) -> DockerError:
    """Return the error of a download with what to do; of another kind than those known, as it is."""
    low = error.message.lower()
    for marks, explain in _EXPLANATIONS:
        if any(mark in low for mark in marks):
            message, hint = explain(name, node, machine or "", get_registry(name))
            return DockerError(node, f"{message}: {error.message}", hint)
    return error
