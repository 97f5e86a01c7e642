"""A profile: validated, frozen, with everything a start of one model needs. Package ``profiles`` makes it from YAML."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import field
from typing import Annotated

from sparkctl.model.decode_step import RoutedExperts
from sparkctl.model.launch_plan import PROBE_KINDS, GuardRule, PhaseTimeouts
from sparkctl.model.lazy_dataclass import dataclass
from sparkctl.model.profile_field import FieldKind, ProfileField
from sparkctl.model.reference import Reference, find_ready_seconds


@dataclass(frozen=True, slots=True)
class JsonValue:
    """A map in ``args:``, already written as compact JSON."""

    text: str


@dataclass(frozen=True, slots=True)
class FlagValues:
    """Several values of one flag: ``--cuda-graph-bs 1 2 4``. In a file a list in a list, ``[[1, 2, 4]]``."""

    words: tuple[str, ...]


# An argument's value: True is a bare flag, False omits it, a tuple repeats the flag, a JsonValue is one JSON word,
# FlagValues are several words after one flag.
ArgValue = str | bool | JsonValue | FlagValues | tuple[str, ...]


def list_arg_texts(value: ArgValue) -> tuple[str, ...]:
    """Return the texts of an argument in which references to the operator's environment count; none of a JSON."""
    if isinstance(value, FlagValues):
        return value.words
    if isinstance(value, tuple):
        return value
    return (value,) if isinstance(value, str) else ()


def map_arg_texts(value: ArgValue, change: Callable[[str], str]) -> ArgValue:
    """Return an argument with each of `list_arg_texts` changed."""
    if isinstance(value, FlagValues):
        return FlagValues(tuple(map(change, value.words)))
    if isinstance(value, tuple):
        return tuple(map(change, value))
    return change(value) if isinstance(value, str) else value


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSpec:
    """``path`` is a path in the container or a hub id. Sizes in bytes, of the whole model; parameters are plain counts.

    ``draft_weights``: the draft model or head, without ``weights``. ``kv_per_token``: bytes of KV cache for one token.
    """

    path: Annotated[str | None, ProfileField(kind=FieldKind.TEXT, help="path in the container, or a hub id")] = None
    served_name: Annotated[str | None, ProfileField(kind=FieldKind.TEXT, help="the model's name for clients")] = None
    source: Annotated[
        str | None,
        ProfileField(
            kind=FieldKind.MODEL_SOURCE,
            help="where `pull` gets it: `hf:ORG/NAME` (`@REVISION`), `https://…/FILE` (`#sha256:HEX`) or `file:/DIRECTORY` of the node; "
            "a hub id in `path` needs none",
            is_hashed=False,
        ),
    ] = None
    include: Annotated[
        tuple[str, ...],
        ProfileField(
            kind=FieldKind.WORD,
            help="names of the files that `pull` gets, with `*`; without it the weights, tokenizer and templates in the root",
            is_hashed=False,
        ),
    ] = ()
    exclude: Annotated[
        tuple[str, ...],
        ProfileField(kind=FieldKind.WORD, help="names of files that `pull` leaves out", is_hashed=False),
    ] = ()
    draft_source: Annotated[
        str | None, ProfileField(kind=FieldKind.MODEL_SOURCE, help="where `pull` gets the draft model", is_hashed=False)
    ] = None
    tokenizer_source: Annotated[
        str | None,
        ProfileField(
            kind=FieldKind.MODEL_SOURCE,
            help="where `pull` gets the tokenizer that a flag names (`--tokenizer`, `--tokenizer-path`)",
            is_hashed=False,
        ),
    ] = None
    weights: Annotated[
        int | None,
        ProfileField(
            kind=FieldKind.MODEL_SIZE,
            help="the checkpoint, where its files cannot be read; `27GB` is 27 × 10⁹ bytes, `25GiB` is binary",
        ),
    ] = None
    active_parameters: Annotated[
        int | None,
        ProfileField(
            kind=FieldKind.PARAMETER_COUNT, help="number of parameters that one token uses", follows="parameters"
        ),
    ] = None
    parameters: Annotated[int | None, ProfileField(kind=FieldKind.PARAMETER_COUNT, help="number of parameters")] = None
    experts: Annotated[
        RoutedExperts | None,
        ProfileField(
            kind=FieldKind.SECTION,
            help="The routed experts of a mixture of experts: bytes of all of them, their number, and how many each token uses.",
        ),
    ] = None
    draft_weights: Annotated[
        int | None,
        ProfileField(kind=FieldKind.MODEL_SIZE, help="size of a draft model or head, in addition to `weights`"),
    ] = None
    kv_per_token: Annotated[
        int | None, ProfileField(kind=FieldKind.NONZERO_SIZE, help="KV cache per token, such as `64KiB`")
    ] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerOptions:
    """``docker run`` options. ``options`` are further flags (name without dashes, value; "true" = bare flag)."""

    name: Annotated[str | None, ProfileField(kind=FieldKind.NAME, help="name of the container")] = None
    gpus: Annotated[str | None, ProfileField(kind=FieldKind.GPUS, help="GPUs that the container gets")] = None
    shm_size: Annotated[
        str | None, ProfileField(kind=FieldKind.SHM_SIZE, help="size of `/dev/shm`", is_in_launch=True)
    ] = None
    ipc: Annotated[
        str | None, ProfileField(kind=FieldKind.TEXT, help="IPC mode, such as `host`", is_in_launch=True)
    ] = None
    network: Annotated[str | None, ProfileField(kind=FieldKind.TEXT, help="network mode, such as `host`")] = None
    entrypoint: Annotated[
        str | None, ProfileField(kind=FieldKind.TEXT, help="entry point in place of the image's", is_in_launch=True)
    ] = None
    ulimits: Annotated[
        tuple[tuple[str, str], ...],
        ProfileField(kind=FieldKind.ULIMITS, help="limits, such as `memlock: -1`", is_in_launch=True),
    ] = ()
    devices: Annotated[
        tuple[str, ...], ProfileField(kind=FieldKind.DEVICE, help="devices of the node", is_in_launch=True)
    ] = ()
    options: Annotated[
        tuple[tuple[str, str], ...],
        ProfileField(kind=FieldKind.DOCKER_OPTIONS, help="further `docker run` flags", is_in_launch=True),
    ] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class StartOptions:
    """``ready_line``/``health``: None = the engine's own, "none" = not used. ``probe``: None = the engine's own.

    ``guard``: None = off. ``expected``: usual seconds until ready, used until the history has a figure.
    """

    drop_caches: Annotated[
        bool,
        ProfileField(
            kind=FieldKind.BOOLEAN,
            help="drop the page cache before the start; `false` also keeps the guard from dropping it",
        ),
    ] = True
    ready_line: Annotated[
        str | None,
        ProfileField(
            kind=FieldKind.REGEX,
            help="regular expression of the log line that means ready (no repetition inside a repetition), or `none`",
        ),
    ] = None
    health: Annotated[str | None, ProfileField(kind=FieldKind.HTTP_PATH, help="path that must answer, or `none`")] = (
        None
    )
    probe: Annotated[
        str | None,
        ProfileField(
            kind=FieldKind.CHOICE,
            choices=PROBE_KINDS,
            help="what proves it ready: a token, or for other services [sound, a vector, scores, an answer](speech.md#proof)",
        ),
    ] = None
    prompt: Annotated[str | None, ProfileField(kind=FieldKind.TEXT, help="text of the test request")] = None
    check: Annotated[
        str,
        ProfileField(
            kind=FieldKind.CHOICE,
            choices=("basic", "full", "off"),
            help="what is asked once it is ready, to see whether its answers make sense; see [Does it make sense?]"
            "(findings.md#how-answers-is-found)",
            is_hashed=False,
        ),
    ] = "basic"
    timeouts: Annotated[PhaseTimeouts, ProfileField(kind=FieldKind.SECTION, help="How long each phase may take.")] = (
        field(default_factory=PhaseTimeouts)
    )
    expected: Annotated[
        float | None,
        ProfileField(kind=FieldKind.DURATION, help="usual length of a start, before sparkctl has measured one"),
    ] = None
    guard: Annotated[
        GuardRule | None,
        ProfileField(
            kind=FieldKind.SECTION,
            help="When the guard on the node acts; `off` instead of the map turns it off.",
        ),
    ] = field(default_factory=GuardRule)


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """The fields of a profile file in their order, then ``origin``, the file it came from, whether that file is part of
    sparkctl (``shipped``), and ``digest``, the profile hash of labels: sha256 of the content, first 12 hex digits.

    ``args`` keep the order of the file. ``env`` values have ``${VAR}`` replaced only in the plan, never here.
    """

    name: Annotated[str, ProfileField(kind=FieldKind.NAME, help="name of the profile; the file is `NAME.yaml`")]
    title: Annotated[str | None, ProfileField(kind=FieldKind.TEXT, help="one line for lists", is_hashed=False)] = None
    engine: Annotated[
        str,
        ProfileField(
            kind=FieldKind.ENGINE, help="`container` is any other image; it needs a rule for when it is ready"
        ),
    ]
    engine_version: Annotated[
        str | None,
        ProfileField(
            kind=FieldKind.ENGINE_VERSION,
            help="set it if the image's tag does not show it (`latest`, your own build); flags are checked against it",
            is_hashed=False,
        ),
    ] = None
    patched_flags: Annotated[
        tuple[str, ...],
        ProfileField(
            kind=FieldKind.FLAG_NAME,
            help="flags that your image's patched engine takes and no published version has; they are not checked",
            is_hashed=False,
        ),
    ] = ()
    image: Annotated[str, ProfileField(kind=FieldKind.IMAGE, help="Docker image", is_in_launch=True)]
    build: Annotated[
        str | None,
        ProfileField(
            kind=FieldKind.BUILD_SOURCE,
            help="from what `pull` builds `image` on the node: a directory of your machine with a Dockerfile (relative to the "
            "profile), or a git repository `URL#REF:FOLDER`; FOLDER may end in the name of its Dockerfile",
            is_hashed=False,
        ),
    ] = None
    made_by: Annotated[
        str | None,
        ProfileField(
            kind=FieldKind.TEXT,
            help="what makes `image`, and a model without `source`, on the node: nobody publishes it, and `pull` says this instead of "
            "asking a registry",
            is_hashed=False,
        ),
    ] = None
    needs: Annotated[
        tuple[str, ...],
        ProfileField(
            kind=FieldKind.NEED,
            help="profiles that [start before it and stop after it](speech.md), on the same Spark or on another (`NAME@NODE`)",
            is_hashed=False,
        ),
    ] = ()
    model: Annotated[
        ModelSpec,
        ProfileField(
            kind=FieldKind.SECTION,
            help="The model: a path in the container or a hub id, and the figures from which `top` estimates bandwidth.",
        ),
    ] = field(default_factory=ModelSpec)
    nodes: Annotated[
        int, ProfileField(kind=FieldKind.INTEGER, limits=(1, 8), help="number of Sparks that it runs on")
    ] = 1
    port: Annotated[int | None, ProfileField(kind=FieldKind.INTEGER, limits=(1, 65535), help="port on the node")] = None
    command: Annotated[
        tuple[str, ...] | None,
        ProfileField(kind=FieldKind.WORD, help="launch command in place of the engine's own", is_in_launch=True),
    ] = None
    args: Annotated[
        tuple[tuple[str, ArgValue], ...],
        ProfileField(
            kind=FieldKind.ARGS,
            help="engine flags without dashes: `true` is a bare flag, `false` leaves it out, a list repeats the flag, a map "
            "becomes JSON, a list in a list is several values for one flag (`[[1, 2, 4]]`)",
            is_in_launch=True,
        ),
    ] = ()
    env: Annotated[
        tuple[tuple[str, str], ...],
        ProfileField(
            kind=FieldKind.ENV,
            help="environment of the container; `${VAR}` and `${VAR:-default}` come from your environment (in `args` too)",
            is_in_launch=True,
        ),
    ] = ()
    env_file: Annotated[
        str | None,
        ProfileField(
            kind=FieldKind.TEXT,
            help="file with variables on your machine; a relative path starts at the profile; values are taken as they "
            "are, quotes too; `env` wins over it",
            is_in_launch=True,
        ),
    ] = None
    api_key: Annotated[
        str | None,
        ProfileField(
            kind=FieldKind.CHOICE,
            choices=("generate",),
            help="sparkctl makes a key that clients need; see [Keys](security.md#keys-of-your-own-models)",
        ),
    ] = None
    mounts: Annotated[
        tuple[str, ...],
        ProfileField(
            kind=FieldKind.MOUNT,
            help="`source:target[:ro]`; `~` is the node user's home; no part of a path may be `..`, `.` or empty (devices too)",
            is_in_launch=True,
        ),
    ] = ()
    container: Annotated[ContainerOptions, ProfileField(kind=FieldKind.SECTION, help="How Docker runs it.")] = field(
        default_factory=ContainerOptions
    )
    expected_memory: Annotated[
        int | None,
        ProfileField(kind=FieldKind.SIZE, key="memory.expected", help="memory it is expected to hold"),
    ] = None
    floor_memory: Annotated[
        int | None,
        ProfileField(
            kind=FieldKind.SIZE,
            key="memory.floor",
            help="memory that must stay available; `1GB`, `1g` and `1GiB` are all 2³⁰ bytes, as in Docker (only the figures "
            "of `model` tell GB from GiB)",
        ),
    ] = None
    draft_workspace: Annotated[
        str | None,
        ProfileField(
            kind=FieldKind.CHOICE,
            key="memory.draft_workspace",
            choices=("before-weights",),
            help="the image allocates the draft workspace first; see [Will it fit?](memory-fit.md)",
            is_hashed=False,
        ),
    ] = None
    start: Annotated[
        StartOptions,
        ProfileField(kind=FieldKind.SECTION, help="What happens before the start, and when it counts as ready."),
    ] = field(default_factory=StartOptions)
    stop_grace: Annotated[
        float, ProfileField(kind=FieldKind.DURATION, key="stop.grace", help="time between SIGTERM and SIGKILL")
    ] = 30.0
    liveness: Annotated[
        str | None,
        ProfileField(
            kind=FieldKind.CHOICE,
            choices=("none",),
            help="do not ask it for a token while it is idle; see *not-generating* in [Findings](findings.md)",
        ),
    ] = None
    group: Annotated[
        str | None,
        ProfileField(
            kind=FieldKind.NAME, help="a Spark carries one model at a time of each group; `switch` stops the other one"
        ),
    ] = None
    notes: Annotated[
        str | None,
        ProfileField(kind=FieldKind.TEXT, help="what an owner should know before starting it", is_hashed=False),
    ] = None
    source: Annotated[
        str | None, ProfileField(kind=FieldKind.TEXT, help="where the settings come from", is_hashed=False)
    ] = None
    reference: Annotated[
        tuple[Reference, ...],
        ProfileField(kind=FieldKind.SECTION, help="What others measured with these settings.", is_hashed=False),
    ] = ()
    extra: Annotated[
        tuple[tuple[str, JsonValue], ...],
        ProfileField(
            kind=FieldKind.EXTRA,
            help="what an import found and sparkctl does not use; kept as it is",
            is_hashed=False,
        ),
    ] = ()
    origin: str
    shipped: bool
    digest: str = ""

    @property
    def image_made_by(self) -> str | None:
        """What makes the image, where no registry has it and `pull` does not build it; else None."""
        return self.made_by if self.build is None else None

    @property
    def expected_start_seconds(self) -> float | None:
        """How long a start takes by the profile, else by its reference; None if neither says it."""
        return self.start.expected or find_ready_seconds(self.reference)


# Sections of the file whose fields are attributes of `Profile`, with their descriptions in the JSON Schema.
SECTIONS_OF_PROFILE = {
    "memory": "The memory the model needs, and how much must stay free.",
    "stop": "How long a stop may take before Docker kills the container.",
}
# Fields of the file alone: its version, and the profile that it extends.
FIELDS_OF_FILE = {
    "schema": ProfileField(kind=FieldKind.INTEGER, limits=(1, 1), help="version of the format"),
    "extends": ProfileField(
        kind=FieldKind.NAME,
        help="another profile as the base: maps merge, lists and scalars replace, null deletes",
        follows="title",
    ),
}
