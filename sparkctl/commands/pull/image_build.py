"""Builds an image on a node with `docker build` there: BuildKit's features (`RUN --mount`) need Docker's own client.

The image carries from what it was made in a label; it is built again only when that has changed.
"""

from __future__ import annotations

import asyncio
import re
import shlex
from collections import deque
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

from sparkctl.commands.transfer.transfer_files import TransferReporter
from sparkctl.concurrency import run_in_background
from sparkctl.errors import NodeError, OperationRefused
from sparkctl.model.launch_plan import ContainerLabel
from sparkctl.model.missing_part import GitContext, parse_build_source
from sparkctl.model.phase import Step
from sparkctl.model.profile import Profile
from sparkctl.model.text.sanitize import sanitize_line
from sparkctl.transport.docker.build_context import BuildContext, pack_build_context
from sparkctl.transport.node_connection import RemoteProcess
from sparkctl.transport.node_session import NodeSession

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

    def close(self) -> None:
        """Remove the archive of a directory."""
        if isinstance(self.source, BuildContext):
            self.source.archive.close()

    def list_words(self) -> list[str]:
        """Return the arguments of `docker build`."""
        context = str(self.source) if isinstance(self.source, GitContext) else "-"
        return ["--tag", self.image, "--label", f"{ContainerLabel.BUILD}={self.origin}", context]


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
    build = ImageBuild(profile.image, packed, packed.digest)
    stack.callback(build.close)
    return build


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
    why = sanitize_line(done.stderr.decode("utf-8", "replace").strip().rpartition("\n")[2])
    raise OperationRefused(
        f"{node} cannot read {context.address}: {why or f'git ended with {done.status}'}",
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
    held = await session.link.start_process(words)
    last: deque[str] = deque(maxlen=6)
    ended: str | None = None
    count = 0
    try:
        async with run_in_background(*([_send_context(held, packed, progress)] if packed is not None else [])):
            while data := await held.readline():
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
        await held.release()
    if ended is None:
        raise NodeError(node, f"the build of {build.image} on {node} broke off", "repeat the command to build it again")
    image = await session.docker.inspect_image(build.image) if ended == "0" else None
    if image is None or image.built_from != build.origin:
        what = "docker is not in the PATH there" if ended == "127" else "; ".join(last) or f"exit code {ended}"
        raise OperationRefused(f"the build of {build.image} on {node} failed: {what}", "see its log above")
    return f"the image {build.image} was built on {node} ({image.id[:19]}) from {build.origin[:100]}"


async def _send_context(held: RemoteProcess, packed: BuildContext, progress: TransferReporter) -> None:
    progress.begin_item("build context", packed.size)
    sent = 0
    while part := packed.archive.read(_CHUNK_BYTES):
        await held.write(part)
        sent += len(part)
        progress.report_progress(sent, is_last=sent >= packed.size)
