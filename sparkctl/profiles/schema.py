"""The shape of a profile file, ``schema: 1``. Imported only when a profile is read, because pydantic is slow to import.

Numbers are parsed only where a field is a number; everywhere else the text stays as written.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Annotated, Any, Literal, get_args

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    GetJsonSchemaHandler,
    ValidationInfo,
    WithJsonSchema,
    field_validator,
)
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import PydanticCustomError

from sparkctl.engines import engine_names as engine_names
from sparkctl.model.profile import ArgValue, JsonValue
from sparkctl.model.text.suggestions import format_did_you_mean
from sparkctl.profiles import field_types as kinds
from sparkctl.profiles.docker_options import DOCKER_OPTIONS, DockerOptionKind
from sparkctl.profiles.file_issues import quote_source

TextPairs = tuple[tuple[str, str], ...]


class ConflictingFieldError(ValueError):
    """A field conflicts with ``other``, an earlier field of its section."""

    def __init__(self, message: str, other: str) -> None:
        super().__init__(message)
        self.other = other


def _json_schema(kind: str | list[str], **more: Any) -> WithJsonSchema:
    return WithJsonSchema({"type": kind, **more})


def _require_nonempty_text(value: object) -> str:
    if not isinstance(value, str):
        raise PydanticCustomError("string_type", "must be text")
    if not value.strip():
        raise PydanticCustomError("empty", "must not be empty")
    return value


def _require_text(value: object) -> str:
    if not isinstance(value, str):
        raise PydanticCustomError("string_type", "must be text")
    return value


def _text_validator(rule: Callable[[str], Any]) -> Callable[[object], Any]:
    """Return a validator that first requires text and then applies ``rule``."""

    def validate_text(value: object) -> Any:
        return rule(_require_nonempty_text(value))

    return validate_text


def _check_engine_name(text: str) -> str:
    if text not in engine_names():
        raise ValueError(
            f"there is no engine `{text[:60]}` (there are {', '.join(engine_names())})"
            f"{format_did_you_mean(text, engine_names())}"
        )
    return text


_SIZE_DESCRIPTION = "Bytes, as in 96GiB or 16g; 1GB is 2^30 here, as Docker has it."
_MODEL_SIZE_DESCRIPTION = "Bytes, as in 27GB (10^9, as model pages have it) or 25GiB (2^30)."
_DURATION_DESCRIPTION = "A duration, as in 90s, 20m or 1h30m."
NonEmptyText = Annotated[str, BeforeValidator(_require_nonempty_text), _json_schema("string")]
ScalarText = Annotated[str, BeforeValidator(_require_text), _json_schema(["string", "number"])]
Name = Annotated[
    str,
    BeforeValidator(_text_validator(kinds.check_name)),
    _json_schema("string", pattern=f"^{kinds.CONTAINER_NAME.pattern}$"),
]
Image = Annotated[str, BeforeValidator(_text_validator(kinds.check_image)), _json_schema("string")]
EngineSize = Annotated[
    int,
    BeforeValidator(_text_validator(kinds.parse_engine_size)),
    _json_schema(["string", "integer"], description=_SIZE_DESCRIPTION),
]
FloorSize = Annotated[
    int,
    BeforeValidator(_text_validator(kinds.parse_guard_floor)),
    _json_schema(["string", "integer"], description=_SIZE_DESCRIPTION),
]
ModelSize = Annotated[
    int,
    BeforeValidator(_text_validator(kinds.parse_weights_size)),
    _json_schema(["string", "integer"], description=_MODEL_SIZE_DESCRIPTION),
]
NonzeroSize = Annotated[
    int,
    BeforeValidator(_text_validator(kinds.parse_nonzero_size)),
    _json_schema(["string", "integer"], description="Bytes, as in 64KiB."),
]
PositiveCount = Annotated[
    int, BeforeValidator(_text_validator(kinds.parse_positive_count)), _json_schema("integer", minimum=1)
]
ShmSize = Annotated[
    str,
    BeforeValidator(_text_validator(kinds.check_shm_size)),
    _json_schema(["string", "integer"], description=_SIZE_DESCRIPTION),
]
Seconds = Annotated[
    float,
    BeforeValidator(_text_validator(kinds.parse_duration_field)),
    _json_schema(["string", "number"], description=_DURATION_DESCRIPTION),
]
TimeLimit = Annotated[
    float,
    BeforeValidator(_text_validator(kinds.parse_time_limit)),
    _json_schema("string", description="A duration with its unit, as in 20m."),
]
ParameterCount = Annotated[
    int,
    BeforeValidator(_text_validator(kinds.parse_parameter_count)),
    _json_schema(["string", "integer"], examples=["27B", "350M"]),
]
MountText = Annotated[
    str, BeforeValidator(_text_validator(kinds.check_mount)), _json_schema("string", examples=["~/models:/models:ro"])
]
EngineVersionText = Annotated[
    str,
    BeforeValidator(_text_validator(kinds.normalize_version)),
    _json_schema(["string", "number"], examples=["0.5.12"]),
]
FlagName = Annotated[
    str,
    BeforeValidator(_text_validator(kinds.check_arg_key)),
    _json_schema("string", description="A flag that this image's engine takes and no published version does."),
]
RegexText = Annotated[
    str, BeforeValidator(_text_validator(kinds.check_ready_regex)), _json_schema("string", format="regex")
]
Gpus = Annotated[
    str,
    BeforeValidator(_text_validator(kinds.check_gpus)),
    _json_schema(["string", "integer"], examples=["all", "none"]),
]
HttpPath = Annotated[
    str, BeforeValidator(_text_validator(kinds.check_http_path)), _json_schema("string", examples=["/health", "none"])
]
Device = Annotated[
    str, BeforeValidator(_text_validator(kinds.check_device)), _json_schema("string", examples=["/dev/infiniband"])
]
EngineName = Annotated[
    str, AfterValidator(_check_engine_name), WithJsonSchema({"type": "string", "enum": list(engine_names())})
]

# Maps whose values `profiles.validation` has already checked and converted to pairs.
_SCALAR_SCHEMA: dict[str, Any] = {"type": ["string", "number", "boolean"]}
Args = Annotated[
    tuple[tuple[str, ArgValue], ...],
    _json_schema(
        "object",
        description="Engine flags without dashes: true is a bare flag, false leaves it out, a list repeats it, "
        "a map becomes JSON, a list in a list is several values behind one flag.",
        additionalProperties={"type": ["string", "number", "boolean", "array", "object"]},
    ),
]
Env = Annotated[
    TextPairs, _json_schema("object", additionalProperties=_SCALAR_SCHEMA, description="${NAME} is the operator's own.")
]
Extra = Annotated[
    tuple[tuple[str, JsonValue], ...],
    _json_schema("object", description="What an import found but sparkctl does not use; it is only kept."),
]
Ulimits = Annotated[TextPairs, _json_schema("object", additionalProperties={"type": ["string", "integer"]})]
Options = Annotated[
    TextPairs,
    _json_schema(
        "object",
        description="Further docker run flags.",
        additionalProperties=False,
        properties={
            key: {"type": "boolean"} if kind is DockerOptionKind.FLAG else {"type": ["string", "number", "array"]}
            for key, kind in DOCKER_OPTIONS.items()
        },
    ),
]


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class ExpertsSection(_Section):
    """The routed experts of a mixture of experts: bytes of all of them, their number, and how many each token uses."""

    weights: ModelSize
    count: PositiveCount
    per_token: PositiveCount

    @field_validator("per_token")
    @classmethod
    def _check_experts_per_token(cls, per_token: int, info: ValidationInfo) -> int:
        count = info.data.get("count")
        if count is not None and per_token > count:
            raise ConflictingFieldError(f"a token uses {per_token} experts, but there are only {count}", "count")
        return per_token


class ModelSection(_Section):
    """The model: a path in the container or a hub id, and the figures from which `top` estimates bandwidth."""

    path: NonEmptyText | None = None
    served_name: NonEmptyText | None = None
    weights: ModelSize | None = None
    parameters: ParameterCount | None = None
    active_parameters: ParameterCount | None = None
    experts: ExpertsSection | None = None
    draft_weights: ModelSize | None = None
    kv_per_token: NonzeroSize | None = None

    @field_validator("active_parameters")
    @classmethod
    def _check_active_parameters(cls, active: int | None, info: ValidationInfo) -> int | None:
        total = info.data.get("parameters")
        if active is not None and total is not None and active > total:
            raise ConflictingFieldError(f"{active} parameters are active, but the model has only {total}", "parameters")
        return active

    @field_validator("experts")
    @classmethod
    def _check_experts_weights(cls, experts: ExpertsSection | None, info: ValidationInfo) -> ExpertsSection | None:
        total = info.data.get("weights")
        if experts is not None and total is not None and experts.weights > total:
            raise ConflictingFieldError(
                f"the experts' weights ({experts.weights}) are larger than the model's ({total}); `weights` is the whole model",
                "weights",
            )
        return experts


class ContainerSection(_Section):
    """How Docker runs it."""

    name: Name | None = None
    gpus: Gpus | None = None
    shm_size: ShmSize | None = None
    ipc: NonEmptyText | None = None
    network: NonEmptyText | None = None
    entrypoint: NonEmptyText | None = None
    ulimits: Ulimits = ()
    devices: list[Device] = Field(default_factory=list)
    options: Options = ()


class MemorySection(_Section):
    """The memory the model needs, and how much must stay free."""

    expected: EngineSize | None = None
    floor: EngineSize | None = None
    draft_workspace: Literal["before-weights"] | None = None


class TimeoutsSection(_Section):
    """How long each phase may take."""

    creating: Seconds | None = None
    starting: Seconds | None = None
    loading: Seconds | None = None
    warming: Seconds | None = None


class GuardSection(_Section):
    """When the guard on the node acts; `off` instead of the map turns it off."""

    floor: FloorSize | None = None
    cache_below: EngineSize | None = None
    limit: TimeLimit | None = None

    @classmethod
    def __get_pydantic_json_schema__(cls, core: Any, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        own = handler.resolve_ref_schema(handler(core))
        return {"anyOf": [own, {"enum": ["off", False]}], "description": own.get("description")}


class GuardDisabled(GuardSection):
    """``guard: off``."""


def _parse_guard(value: object) -> object:
    if value is False or value == "off":
        return GuardDisabled()
    if not isinstance(value, dict | GuardSection):
        raise ValueError(
            f"must be a map (floor, cache_below, limit) or off, not {quote_source(_format_yaml_type(value))}"
        )
    return value


def _format_yaml_type(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else "a list" if isinstance(value, list) else str(value)


class StartSection(_Section):
    """What happens before the start, and when it counts as ready."""

    drop_caches: bool = True
    ready_line: RegexText | None = None
    health: HttpPath | None = None
    probe: Literal["completions", "chat", "none"] | None = None
    prompt: NonEmptyText | None = None
    timeouts: TimeoutsSection = Field(default_factory=TimeoutsSection)
    expected: Seconds | None = None
    guard: Annotated[GuardSection, BeforeValidator(_parse_guard)] = Field(default_factory=GuardSection)


class StopSection(_Section):
    """How long a stop may take before Docker kills the container."""

    grace: Seconds = 30.0


class ProfileFile(_Section):
    """A sparkctl profile: everything a start of one model needs."""

    schema_version: Literal[1] = Field(alias="schema")
    name: Name
    title: NonEmptyText | None = None
    extends: Name | None = None
    engine: EngineName
    engine_version: EngineVersionText | None = None
    patched_flags: list[FlagName] = Field(default_factory=list)
    image: Image
    model: ModelSection = Field(default_factory=ModelSection)
    nodes: int = Field(default=1, ge=1, le=8)
    port: int | None = Field(default=None, ge=1, le=65535)
    command: list[ScalarText] | None = None
    args: Args = ()
    env: Env = ()
    env_file: NonEmptyText | None = None
    mounts: list[MountText] = Field(default_factory=list)
    container: ContainerSection = Field(default_factory=ContainerSection)
    memory: MemorySection = Field(default_factory=MemorySection)
    start: StartSection = Field(default_factory=StartSection)
    stop: StopSection = Field(default_factory=StopSection)
    liveness: Literal["none"] | None = None
    group: Name | None = None
    notes: NonEmptyText | None = None
    source: NonEmptyText | None = None
    extra: Extra = ()


def list_valid_keys(path: Iterable[str | int]) -> tuple[str, ...]:
    """Return the valid keys of the map at ``path``."""
    model: type[BaseModel] = ProfileFile
    for step in path:
        field = model.model_fields.get(str(step))
        kinds_of = () if field is None else (get_args(field.annotation) or (field.annotation,))  # `Section | None`
        sections = [kind for kind in kinds_of if isinstance(kind, type) and issubclass(kind, BaseModel)]
        if not sections:
            return ()
        model = sections[0]
    return tuple(field.alias or key for key, field in model.model_fields.items())


def build_json_schema() -> dict[str, Any]:
    """Return the JSON Schema with which an editor checks profiles."""
    schema = ProfileFile.model_json_schema()
    variant = {"required": ["extends"]}
    schema["anyOf"] = [variant, {"required": ["engine", "image"]}]
    schema["required"] = ["schema", "name"]
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "sparkctl profile", **schema}
