"""``say``: let a speech server on a node speak a text, and return the sound."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sparkctl.concurrency import gather_or_cancel
from sparkctl.context import CommandContext
from sparkctl.errors import DockerError, InvalidInput, NodeError, OperationRefused, ServiceUnproved, SparkctlError
from sparkctl.model.audio import AudioClip
from sparkctl.model.container import Container
from sparkctl.model.launch_plan import ReadinessRule, ReadinessTarget
from sparkctl.model.node import Node, NodeName
from sparkctl.monitor.engine_probe import resolve_served_model
from sparkctl.monitor.service_proof import request_speech
from sparkctl.profiles.container_labels import find_container_api_key, parse_port_label, parse_ready_rule_label
from sparkctl.transport.node_session import NodeSession, isolate_node_failures

_SPEECH_TIMEOUT_SECONDS = 600.0  # a page of text takes minutes
MAX_TEXT_LENGTH = 20000  # characters: what comes back is held in memory


@dataclass(frozen=True, slots=True, kw_only=True)
class SpokenText:
    """The sound of a text, with where it was made and in how many seconds."""

    node: NodeName
    instance: str
    clip: AudioClip
    body: bytes
    took: float


async def speak_text(
    ctx: CommandContext, nodes: Sequence[Node], text: str, *, instance: str | None = None, voice: str | None = None
) -> SpokenText:
    """Speak a text on the one speech server of these nodes, or on ``instance``. Raises `SparkctlError`."""
    if not text.strip():
        raise InvalidInput("there is nothing to say: the text is empty")
    if len(text) > MAX_TEXT_LENGTH:
        raise InvalidInput(f"the text has {len(text)} characters; {MAX_TEXT_LENGTH} at most: split it")
    found = await gather_or_cancel(*(_find_servers(ctx, node, instance) for node in nodes))
    failures = [one for one in found if isinstance(one, SparkctlError)]
    servers = [(node, one) for node, here in zip(nodes, found, strict=True) if isinstance(here, list) for one in here]
    if failures and not servers:
        raise failures[0]
    if not servers:
        where = " or ".join(node.name for node in nodes)
        what = "no speech server started by sparkctl is running" if instance is None else f"{instance} does not run"
        raise OperationRefused(f"{what} on {where}", f"sparkctl up orpheus-tts --node {nodes[-1].name}")
    if len(servers) > 1:
        names = ", ".join(f"{one.instance_name} on {node.name}" for node, one in servers)
        raise InvalidInput(f"several speech servers run: {names}", "choose one: --instance NAME or --node NODE")
    node, container = servers[0]
    async with NodeSession(node, ctx.asker, ctx.clock) as session:
        with isolate_node_failures(node):
            await session.link.connect()
            return await _request_speech(ctx, session, container, text, voice)


async def _find_servers(ctx: CommandContext, node: Node, instance: str | None) -> list[Container] | SparkctlError:
    """Return the running speech servers of a node: the one that is named, else those that say so in their labels."""
    try:
        async with NodeSession(node, ctx.asker, ctx.clock) as session:
            with isolate_node_failures(node):
                await session.link.connect()
                there = [one for one in await session.docker.list_containers() if one.is_managed and one.is_alive]
    except (NodeError, DockerError) as error:
        return error
    if instance is not None:
        return [one for one in there if one.instance_name == instance]
    rules = [(one, parse_ready_rule_label(one, needs_line=False)) for one in there]
    return [one for one, rule in rules if rule is not None and rule.probe == "speech"]


async def _request_speech(
    ctx: CommandContext, session: NodeSession, container: Container, text: str, voice: str | None
) -> SpokenText:
    name, node = container.instance_name, session.node.name
    port = parse_port_label(container)
    if port is None:
        raise OperationRefused(f"{name} on {node} has no port that can be asked", f"sparkctl status --node {node}")
    key = find_container_api_key(await session.docker.read_run_options(container.id))
    target = ReadinessTarget(port, ReadinessRule(None, None, "speech"), api_key=key)
    target = await resolve_served_model(session.link, target)
    began = ctx.clock.monotonic()
    answer = await request_speech(session.link, target, text, voice=voice, timeout=_SPEECH_TIMEOUT_SECONDS)
    took = ctx.clock.monotonic() - began
    hint = f"see why: sparkctl logs {name} --node {node} --tail 30"
    if answer.clip is None:
        secrets = await session.docker.read_secret_values(container.id) if answer.result.said else ()
        raise ServiceUnproved(f"{name} on {node} gave no sound: {answer.result.format_masked(secrets)}", hint)
    if not answer.clip.seconds or answer.clip.is_silent:
        raise ServiceUnproved(f"{name} on {node} gave {answer.clip.seconds:.1f} s of silence", hint)
    return SpokenText(node=node, instance=name, clip=answer.clip, body=answer.body, took=took)
