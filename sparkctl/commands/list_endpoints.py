"""``endpoints``: list the OpenAI-compatible servers on the nodes, sparkctl's and foreign ones, with the model names
that they serve.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field

from sparkctl.concurrency import gather_or_cancel
from sparkctl.context import CommandContext
from sparkctl.engines import load_engine
from sparkctl.errors import ConnectionLost, ContainerNotFound, DockerError, NodeError
from sparkctl.model.container import Container
from sparkctl.model.launch_plan import ContainerLabel, DockerRunSpec
from sparkctl.model.lazy_dataclass import dataclass
from sparkctl.model.node import Node, NodeName, format_endpoint_url
from sparkctl.model.phase import Phase
from sparkctl.model.text.sanitize import load_json, sanitize_line
from sparkctl.monitor.engine_probe import QueryMarkerSupport, request_engine
from sparkctl.monitor.node_status import build_instance_view, note_tokens, note_unproved_starts
from sparkctl.profiles.container_labels import (
    find_container_api_key,
    parse_port_label,
    parse_rank_nodes_label,
    parse_ready_rule_label,
    parse_started_for_label,
)
from sparkctl.profiles.env_references import escape_references
from sparkctl.profiles.importers import engine_command
from sparkctl.transport import http_client
from sparkctl.transport.node_session import NodeSession, isolate_node_failures

_REQUEST_TIMEOUT_SECONDS = 3.0  # seconds: a ready server answers at once
_SERVICES = ("speech", "embeddings", "rerank", "http")  # probes of what is no language model
_UNAUTHORIZED_STATUSES = (401, 403)
_MAX_MODELS = 256  # of one engine: a base model with its adapters
_MAX_MODEL_NAME_LENGTH = 1024  # characters of a name; a longer one is left out: cut, it could equal another name


@dataclass(frozen=True, slots=True)
class ServedModel:
    """``context``: tokens of one request, prompt and answer together; ``root``: where the engine read the model, in its container
    or by its name on the Hub; None where the engine does not say.
    """

    name: str
    context: int | None = None
    root: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedEndpoint:
    """An instance that answers requests now. ``url`` is the base URL for OpenAI clients; it ends with ``/v1``.

    ``models`` is empty where the server needs a key that sparkctl does not know; ``needs_key``: it refuses requests
    without a key; ``key``: the key that it was started with, where that is known.
    ``profile``: of a start by sparkctl; ``nodes``: those of all its ranks, where it has several;
    ``ready_seconds``: how long such a start usually takes. ``service``: what it is instead of a language model, as its probe
    is called: speech, embeddings, rerank or http. ``health``: the path of its ready rule; None where it has none.
    ``started_for``: the instance for which `up` started it, such as the voice that a model speaks through: clients are for that one.
    """

    node: NodeName
    instance: str
    url: str
    models: tuple[ServedModel, ...]
    needs_key: bool = False
    key: str | None = field(default=None, repr=False)
    ours: bool = True
    engine: str | None = None
    profile: str | None = None
    nodes: tuple[NodeName, ...] = ()
    ready_seconds: float | None = None
    service: str | None = None
    health: str | None = None
    started_for: str | None = None

    @property
    def is_model(self) -> bool:
        """Tell whether it is a language model for clients to use."""
        return self.service is None and self.started_for is None


@dataclass(frozen=True, slots=True)
class EndpointFailure:
    """A node that did not answer, or an instance of sparkctl that does not serve."""

    where: str
    message: str
    hint: str | None = None
    instance: str | None = None  # None: the whole node

    @property
    def is_node(self) -> bool:
        """Tell whether nothing is known of the node's instances."""
        return self.instance is None


async def list_endpoints(
    ctx: CommandContext, nodes: Sequence[Node]
) -> tuple[tuple[ServedEndpoint, ...], tuple[EndpointFailure, ...]]:
    """Return the endpoints, sparkctl's first and then by node, and the failures."""
    found = await gather_or_cancel(*(_list_node_endpoints(ctx, node) for node in nodes))
    everything = [one for here, _ in found for one in here]
    served = tuple(sorted(everything, key=lambda one: not one.ours))  # instances of sparkctl come first
    heads = {one.instance for one in served}  # other ranks of a model on several nodes serve nothing themselves
    return served, tuple(one for _, silent in found for one in silent if one.instance not in heads)


def choose_default_endpoint(
    served: Sequence[ServedEndpoint], silent: Sequence[EndpointFailure]
) -> ServedEndpoint | None:
    """Return the endpoint for a client without a choice of its own: the first that sparkctl started.

    A foreign engine is the default only if no instance of sparkctl can exist: a node that does not answer, or an
    instance that still loads, must not send a client's prompts to a foreign server.
    """
    first = next((one for one in served if one.is_model), None)
    return first if first is not None and (first.ours or not silent) else None


async def _list_node_endpoints(ctx: CommandContext, node: Node) -> tuple[list[ServedEndpoint], list[EndpointFailure]]:
    async with NodeSession(node, ctx.prompter, ctx.clock) as session:
        try:
            with isolate_node_failures(node):
                await session.link.connect()
                answers = await read_session_endpoints(ctx, session)
        except (NodeError, DockerError) as error:
            return [], [EndpointFailure(node.name, error.message, error.hint)]
    served = [answer for answer in answers if isinstance(answer, ServedEndpoint)]
    return served, [answer for answer in answers if isinstance(answer, EndpointFailure)]


async def read_session_endpoints(
    ctx: CommandContext, session: NodeSession
) -> Sequence[ServedEndpoint | EndpointFailure | None]:
    """Ask each running container of a node what it serves. Raises `NodeError`, `DockerError`."""
    alive = [one for one in await session.docker.list_containers() if one.is_alive]
    note_unproved_starts(ctx, session, alive)
    return await gather_or_cancel(*(_read_endpoint(ctx, session, one) for one in alive))


async def _read_endpoint(
    ctx: CommandContext, session: NodeSession, container: Container
) -> ServedEndpoint | EndpointFailure | None:
    """Ask one container which models it serves; None for a foreign one without models. Raises `ConnectionLost`,
    `DockerError`.
    """
    try:
        run = await session.docker.read_run_options(container.id)
    except ContainerNotFound:
        return None
    name = container.instance_name
    if container.id in session.doubted | session.awaited:
        view = await build_instance_view(session, container, None)
        note_tokens(ctx, session, (view,))
        if view is not None and view.phase in (Phase.UNPROVED, Phase.WARMING):
            words = f"{name} is up, and no answer of its model was seen yet"
            words = words if view.detail is None else f"{words}: {view.detail}"
            return EndpointFailure(session.node.name, words, "sparkctl status", name)
    rule = parse_ready_rule_label(container, needs_line=False) if container.is_managed else None
    service = rule.probe if rule is not None and rule.probe in _SERVICES else None
    ports = [parse_port_label(container)] if container.is_managed else _guess_ports(container, run)
    for port in dict.fromkeys(port for port in ports if port is not None):
        answer = await _request_models(session, port, None, may_have_none=service is not None)
        needs_key = answer is not None and answer.status in _UNAUTHORIZED_STATUSES
        key = find_container_api_key(run) if needs_key else None
        if key is not None:
            answer = await _request_models(session, port, key, may_have_none=service is not None)
        models = _parse_served_models(answer) if answer is not None and answer.is_success else ()
        url = format_endpoint_url(session.node, port)
        answers = service is not None and answer is not None  # a speech server may have no list of models
        if url is not None and (models or answers or (needs_key and container.is_managed)):
            engine, profile = container.get_label(ContainerLabel.ENGINE), container.get_label(ContainerLabel.PROFILE)
            digest = container.get_label(ContainerLabel.HASH) or ""
            usual = ctx.history.get_expected_durations(profile, digest, session.node.name) if profile else None
            return ServedEndpoint(
                node=session.node.name,
                instance=name,
                url=f"{url}/v1",
                models=models,
                needs_key=needs_key,
                key=key,
                ours=container.is_managed,
                engine=engine,
                profile=profile,
                nodes=parse_rank_nodes_label(container),
                ready_seconds=None if usual is None else usual.seconds,
                service=service,
                health=None if rule is None else rule.health,
                started_for=parse_started_for_label(container) if container.is_managed else None,
            )
    if container.is_managed and any(port is not None for port in ports):
        words = f"{name} does not report what it serves (it may not be ready)"
        return EndpointFailure(session.node.name, words, "sparkctl status", name)
    return None


def _guess_ports(container: Container, run: DockerRunSpec) -> list[int | None]:
    """Return the ports where a foreign container may answer: its published ports or, on the host's network, those in
    its command.
    """
    if container.ports or run.network != "host":
        return list(container.ports)
    words = [escape_references(word) for word in (*([run.entrypoint] if run.entrypoint else []), *run.command)]
    found = engine_command.parse_engine_command(words, run.image, None)
    return [found.port or load_engine(found.engine).defaults.port]


async def _request_models(
    session: NodeSession, port: int, key: str | None, *, may_have_none: bool
) -> http_client.HttpResponse | None:
    """Ask for the list of models. One that may have none is not asked again without our mark: any answer will do."""
    headers = [("authorization", f"Bearer {key}")] if key else []
    try:
        return await request_engine(
            session.link, port, "GET", "/v1/models", headers=headers, timeout=_REQUEST_TIMEOUT_SECONDS,
            marker_support=QueryMarkerSupport(takes_queries=may_have_none),
        )  # fmt: skip
    except ConnectionLost:
        raise
    except (OSError, http_client.InvalidHttpResponse):  # a time-out is an OSError: nothing is ready there
        return None


def _parse_served_models(answer: http_client.HttpResponse) -> tuple[ServedModel, ...]:
    try:
        entries = load_json(answer.body)["data"]
    except (ValueError, LookupError, TypeError):
        return ()
    found = [one for one in entries if isinstance(one, dict)] if isinstance(entries, list) else []
    return tuple(
        ServedModel(
            sanitize_line(one["id"]),
            _parse_context_length(one),
            root if isinstance(root := one.get("root"), str) else None,
        )
        for one in found[:_MAX_MODELS]
        if isinstance(one.get("id"), str) and 0 < len(one["id"]) <= _MAX_MODEL_NAME_LENGTH
    )


def _parse_context_length(model: dict[str, object]) -> int | None:
    """Return the context length by the key of vLLM and SGLang, or that of llama-server."""
    meta = model.get("meta")
    for length in (model.get("max_model_len"), meta.get("n_ctx") if isinstance(meta, dict) else None):
        if isinstance(length, int) and not isinstance(length, bool) and length > 0:
            return length
    return None
