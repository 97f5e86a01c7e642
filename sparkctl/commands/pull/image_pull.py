"""Gets an image onto a node: from its registry through Docker's API there, with the node's own login; or built there.

A build runs `docker build` on the node, because BuildKit's features (`RUN --mount`) need Docker's own client. The image carries
from what it was made in a label; it is built again only when that has changed.
"""

from __future__ import annotations

import asyncio
import re
import shlex
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

from sparkctl.commands.start.image_registry import get_registry, get_registry_host, read_registry_login
from sparkctl.commands.transfer.transfer_files import TransferReporter
from sparkctl.concurrency import run_in_background
from sparkctl.errors import DockerError, ImageNotFound, NodeError, OperationRefused
from sparkctl.model.container import shorten_id
from sparkctl.model.events import TransferPart
from sparkctl.model.launch_plan import ContainerLabel
from sparkctl.model.lazy_dataclass import dataclass
from sparkctl.model.missing_part import GitContext, parse_build_source
from sparkctl.model.phase import Step
from sparkctl.model.profile import Profile
from sparkctl.model.text.sanitize import sanitize_line
from sparkctl.model.text.units import format_size
from sparkctl.transport.docker.docker_client import BuildContext, pack_build_context
from sparkctl.transport.node_connection import RemoteProcess
from sparkctl.transport.node_session import NodeSession

_WAITING_STATES = ("Pulling fs layer", "Waiting")
_PRESENT_STATE = "Already exists"
_FINISHED_STATES = ("Pull complete", _PRESENT_STATE)
_DIGEST_WORDS = "Digest: "


class LayerProgress:
    """The bytes of an image that have arrived, from Docker's messages on its layers.

    Docker tells the size of a layer only when it begins with it. ``size``: of all layers as the registry tells it, None: not
    known.
    """

    def __init__(self, size: int | None) -> None:
        self._layers: dict[str, TransferPart] = {}
        self._size = size
        self.digest: str | None = None  # of the image, at the end

    def update(self, message: Mapping[str, object]) -> None:
        """Take one message of Docker's."""
        name, state = str(message.get("id") or ""), str(message.get("status") or "")
        detail = message.get("progressDetail")
        total = detail.get("total") if isinstance(detail, dict) else None
        done = detail.get("current") if isinstance(detail, dict) else None
        if state.startswith(_DIGEST_WORDS):
            self.digest = state.removeprefix(_DIGEST_WORDS).strip()
        if not name or state.startswith("Pulling from"):
            return
        before = self._layers.get(name)
        if state == "Downloading" and isinstance(total, int) and isinstance(done, int) and total > 0:
            # after a retry it counts what was left
            whole = max(total, (before.total or 0) if before is not None else 0)
            self._layers[name] = TransferPart(name, state, whole - total + min(done, total), whole)
        elif before is not None and state.startswith("Retrying"):  # it broke off, and goes on where it was
            self._layers[name] = replace(before, state=state)
        elif before is not None and before.total is not None:  # checked, unpacked or there: all of it has arrived
            self._layers[name] = TransferPart(name, state, before.total, before.total)
        else:
            self._layers[name] = TransferPart(name, state)

    @property
    def done(self) -> int:
        """Bytes that have arrived."""
        return sum(one.done or 0 for one in self._layers.values())

    @property
    def total(self) -> int | None:
        """Bytes in all; None: not known, while some layers have not begun and others were there before."""
        states = {one.state for one in self._layers.values()}
        if not states or states.intersection(_WAITING_STATES):
            return None if _PRESENT_STATE in states else self._size
        return sum(one.total or 0 for one in self._layers.values()) or None

    def describe_missing(self) -> str:
        """Return what is missing where a download broke off, as the end of a sentence; empty before any layer is known."""
        left = [one for one in self._layers.values() if one.state not in _FINISHED_STATES]
        if not left:
            return ""
        came = f", {format_size(self.done)} of {format_size(self.total)} had come" if self.total else ""
        return f"; {len(left)} of {len(self._layers)} layers are missing{came}"

    @property
    def unfinished(self) -> tuple[TransferPart, ...]:
        """The layers that come or are unpacked now."""
        return tuple(
            one
            for one in self._layers.values()
            if one.state not in _FINISHED_STATES and one.state not in _WAITING_STATES
        )


async def pull_image(
    session: NodeSession,
    name: str,
    machine: str | None,
    progress: TransferReporter,
    own_login: Mapping[str, str] | None = None,
    size: int | None = None,
) -> tuple[str, str]:
    """Download an image, and prove that it is there; return that as a sentence, and its digest, the registry's. Raises
    `DockerError`, and `NodeError` where the node cannot reach the registry.

    ``machine``: the node's processor in Docker's word; None: not known, Docker chooses. ``own_login``: the operator's, in
    place of that of the node's user. ``size``: bytes of all its layers, None: not known.
    """
    node = session.node.name
    layers = LayerProgress(size)
    what = f"image {name}"
    progress.begin_item(what, size)

    def report(message: dict[str, object]) -> None:
        layers.update(message)
        progress.set_total(layers.total)
        progress.report_progress(layers.done, parts=layers.unfinished)

    login = own_login or await read_registry_login(session, get_registry(name))
    try:
        await session.docker.pull_image(name, f"linux/{machine}" if machine else "", login, report)
    except NodeError as lost:
        raise type(lost)(node, f"{lost.message}{layers.describe_missing()}", lost.hint) from lost
    except DockerError as error:
        explained = explain_pull_error(error, name, node, machine)
        raise type(explained)(node, f"{explained.message}{layers.describe_missing()}", explained.hint) from error
    image = await session.docker.inspect_image(name)
    if image is None:
        raise DockerError(
            node, f"Docker on {node} downloaded {name}, but does not have it", f"on {node}: docker images"
        )
    if machine and image.architecture not in (machine, None):  # older Dockers only warn of it
        raise explain_pull_error(
            DockerError(node, f"what came is for {image.architecture}; no matching manifest"), name, node, machine
        )
    progress.report_progress(layers.done, is_last=True)
    return f"the image {name} is there ({shorten_id(image.id)})", layers.digest or image.id


_Explanation = tuple[tuple[str, ...], type[DockerError] | type[NodeError], str, str]
_LOGIN_HINT = "on {node}: docker login {registry}; or use your own: sparkctl pull PROFILE --login"
# The words of Docker, of its containerd and of registries; the first that matches counts.
_EXPLANATIONS: tuple[_Explanation, ...] = (
    (
        ("no matching manifest", "no match for platform", "does not match the specified platform"),
        ImageNotFound,
        "{name} has no image for {machine}",
        "a Spark needs linux/arm64: use an image that is built for it (image: in the profile)",
    ),
    (
        ("toomanyrequests", "too many requests", "http 429", "pull rate limit"),
        NodeError,
        "the registry {registry} gives {node} no more images for now, it has had too many",
        f"wait and repeat the command; a login has a higher limit, {_LOGIN_HINT}",
    ),
    (
        ("dial unix",),
        NodeError,
        "Docker on {node} does not reach its own containerd",
        "on {node}: systemctl status containerd docker",
    ),
    (
        ("unauthorized", "authentication required", "access denied", "denied:", ": denied", "no basic auth", "403 forbidden"),
        ImageNotFound,
        "the registry {registry} refuses {name} to {node}",
        f"{_LOGIN_HINT}; or the name is wrong",
    ),
    (
        ("x509:", "failed to verify certificate"),
        NodeError,
        "Docker on {node} does not trust the certificate of the registry {registry}",
        "its own authority belongs on {node} into /etc/docker/certs.d/{registry}/ca.crt; or one of the clocks is wrong (date)",
    ),
    (
        ("server gave http response to https client",),
        NodeError,
        "the registry {registry} speaks without encryption, which Docker on {node} does not allow",
        'on {node}: add "insecure-registries": ["{registry}"] to /etc/docker/daemon.json, then sudo systemctl restart docker',
    ),
    (
        ("proxyconnect",),
        NodeError,
        "Docker on {node} cannot reach the registry {registry} through its proxy",
        "on {node}: systemctl show docker --property Environment",
    ),
    (
        (
            "no such host", "server misbehaving", "temporary failure in name resolution", "connection refused", "i/o timeout",
            "network is unreachable", "no route to host", "tls handshake timeout", "request canceled", "deadline exceeded",
            "client.timeout",
        ),
        NodeError,
        "Docker on {node} cannot reach the registry {registry}",
        "on {node}: curl -sSI https://{host}/v2/; repeat the command to continue",
    ),
    (
        ("verification failed", "unexpected commit digest", "digest mismatch", "invalid checksum"),
        NodeError,
        "a layer of {name} arrived damaged on {node}",
        "repeat the command; twice in a row: see the disk and memory of {node}",
    ),
    (
        ("manifest unknown", "not found", "name unknown", "repository does not exist", "invalid reference format"),
        ImageNotFound,
        "the registry {registry} has no {name}",
        "check image: in the profile",
    ),
    (
        ("mediatype", "media type", "unsupported manifest", "schema version"),
        ImageNotFound,
        "{name} is in a format that Docker on {node} does not take",
        "use a newer image (image: in the profile), or a newer Docker on {node}",
    ),
    (("",), NodeError, "Docker on {node} did not get {name} whole", "repeat the command to continue"),
)  # fmt: skip


def explain_pull_error(error: DockerError, name: str, node: str, machine: str | None) -> DockerError | NodeError:
    """Return the error of a download with what to do. One that Docker itself explains, as a full disk, stays as it is."""
    low, registry = error.message.lower(), get_registry(name)
    words = {
        "name": name,
        "node": node,
        "machine": machine or "this processor",
        "registry": registry,
        "host": get_registry_host(registry),
    }
    for marks, kind, message, hint in _EXPLANATIONS:
        if any(mark in low for mark in marks) and (marks != ("",) or type(error) is DockerError):
            return kind(node, f"{message.format_map(words)}: {error.message}", hint.format_map(words))
    return error


_LOOKUP_TIMEOUT_SECONDS = 60.0
_CHUNK_BYTES = 256 * 1024
_ENDED = "@@ ended "
_BUILD = f"""exec 2>&1
size=$1; shift
export BUILDKIT_PROGRESS=plain GIT_TERMINAL_PROMPT=0
if [ "$size" = 0 ]; then docker build "$@" </dev/null; else head -c "$size" | docker build "$@"; fi
echo "{_ENDED}$?"
"""
_LOOK_UP_REF = 'GIT_TERMINAL_PROMPT=0 exec git ls-remote -- "$@"'
_STEP = re.compile(r"(?:#\d+ \[(?:[\w.-]+ )? *|Step )(\d+)/(\d+)(?:\]| :)")


@dataclass(frozen=True, slots=True)
class ImageBuild:
    """From what an image is built, resolved. ``origin`` changes when the source does; it is the image's label."""

    image: str
    source: GitContext | BuildContext
    origin: str

    def list_words(self) -> list[str]:
        """Return the arguments of `docker build`."""
        words = ["--tag", self.image, "--label", f"{ContainerLabel.BUILD}={self.origin}"]
        if not isinstance(self.source, GitContext):
            return [*words, "-"]
        file = ["--file", self.source.dockerfile] if self.source.dockerfile else []
        return [*words, *file, str(replace(self.source, dockerfile=None))]


async def resolve_build(session: NodeSession, profile: Profile, stack: ExitStack) -> ImageBuild:
    """Read what an image would be built from now: the directory, or the commit that a git ref means.

    ``stack`` closes it. Raises `InvalidInput` for a directory without a Dockerfile, `OperationRefused`.
    """
    assert profile.build is not None
    context = parse_build_source(profile.build)
    if context is not None:
        found = await _resolve_ref(session, context)
        return ImageBuild(profile.image, found, str(found))
    packed = await asyncio.to_thread(pack_build_context, Path(profile.origin).parent, profile.build)
    stack.callback(packed.archive.close)
    return ImageBuild(profile.image, packed, packed.digest)


async def _resolve_ref(session: NodeSession, context: GitContext) -> GitContext:
    """Return a context with the commit that its ref means now."""
    if context.is_pinned:
        return context
    ref = context.ref or "HEAD"
    done = await session.run(
        ["sh", "-c", _LOOK_UP_REF, "sparkctl-ref", context.address, ref, f"{ref}^{{}}"], timeout=_LOOKUP_TIMEOUT_SECONDS
    )
    rows = [line.split("\t") for line in done.stdout.decode("utf-8", "replace").splitlines() if "\t" in line]
    names = {name: commit for commit, name in (row for row in rows if len(row) == 2)}
    wanted = (f"refs/tags/{ref}^{{}}", f"refs/tags/{ref}", f"refs/heads/{ref}", ref)  # a tag's commit, not the tag
    commit = next((names[name] for name in wanted if name in names), None)
    if commit is not None and re.fullmatch(r"[0-9a-f]{40,64}", commit):
        return replace(context, ref=commit)
    node = session.node.name
    if done.status == 0:
        raise OperationRefused(f"{context.address} has no branch or tag {ref}", "check build: in the profile")
    raise OperationRefused(
        f"{node} cannot read {context.address}: {done.last_error or f'git ended with {done.status}'}",
        f"on {node}: git ls-remote {shlex.quote(context.address)}",
    )


async def build_image(
    session: NodeSession,
    build: ImageBuild,
    progress: TransferReporter,
    report: Callable[[int, str, Step | None], None],
) -> str:
    """Build an image, and prove that it is there; return that as a sentence. ``report`` gets each line of its log
    with its number, and the step that it begins.

    Raises `OperationRefused` if the build fails.
    """
    node, packed = session.node.name, build.source if isinstance(build.source, BuildContext) else None
    size = packed.size if packed is not None else 0
    words = ["sh", "-c", _BUILD, "sparkctl-build", str(size), *build.list_words()]
    process = await session.link.start_process(words)
    last: deque[str] = deque(maxlen=6)
    ended: str | None = None
    count = 0
    try:
        async with run_in_background(*([_send_context(process, packed, progress)] if packed is not None else [])):
            while data := await process.readline():
                line = sanitize_line(data.decode("utf-8", "replace").rstrip())
                if line.startswith(_ENDED):
                    ended = line.removeprefix(_ENDED)
                    break
                if not line:
                    continue
                last.append(line)
                match, count = _STEP.match(line), count + 1
                report(count, line, None if match is None else Step("build", done=int(match[1]), total=int(match[2])))
    finally:
        await process.release()
    if ended is None:
        raise NodeError(node, f"the build of {build.image} on {node} broke off", "repeat the command to build it again")
    image = await session.docker.inspect_image(build.image) if ended == "0" else None
    if image is None or image.built_from != build.origin:
        what = "docker is not in the PATH there" if ended == "127" else "; ".join(last) or f"exit code {ended}"
        raise OperationRefused(f"the build of {build.image} on {node} failed: {what}", "see its log above")
    return f"the image {build.image} was built on {node} ({shorten_id(image.id)}) from {build.origin[:100]}"


async def _send_context(process: RemoteProcess, packed: BuildContext, progress: TransferReporter) -> None:
    progress.begin_item("build context", packed.size)
    sent = 0
    while part := packed.archive.read(_CHUNK_BYTES):
        await process.write(part)
        sent += len(part)
        progress.report_progress(sent, is_last=sent >= packed.size)
