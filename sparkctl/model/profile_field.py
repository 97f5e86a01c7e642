"""How a field of a profile file is declared: once, at the field of its frozen type.

Reading, the JSON Schema, writing, an export's metadata, the profile hash and the table in the documentation come from
the declaration (`profiles.schema`). It stands in an annotation, which nothing evaluates before a profile is read.
What does not follow from it, such as what the field does and where it is shown: CONTRIBUTING.md, "A profile field".
"""

from __future__ import annotations

from dataclasses import KW_ONLY
from enum import StrEnum

from sparkctl.model.lazy_dataclass import dataclass


class FieldKind(StrEnum):
    """What a field's value is; `profiles.field_types` knows how each kind is read, written and described."""

    TEXT = "text"
    WORD = "word"  # of a command line: text that may be empty, numbers as they are spelled
    BOOLEAN = "boolean"
    INTEGER = "integer"  # within `ProfileField.limits`
    CHOICE = "choice"  # one of `ProfileField.choices`
    NAME = "name"
    NEED = "need"  # a profile, and the node where it runs if that is another
    IMAGE = "image"
    ENGINE = "engine"
    ENGINE_VERSION = "engine-version"
    FLAG_NAME = "flag-name"
    SIZE = "size"
    GUARD_FLOOR = "guard-floor"
    MODEL_SIZE = "model-size"
    MODEL_SOURCE = "model-source"
    BUILD_SOURCE = "build-source"
    NONZERO_SIZE = "nonzero-size"
    SHM_SIZE = "shm-size"
    POSITIVE_COUNT = "positive-count"
    PARAMETER_COUNT = "parameter-count"
    DURATION = "duration"
    TIME_LIMIT = "time-limit"
    MOUNT = "mount"
    DEVICE = "device"
    GPUS = "gpus"
    HTTP_PATH = "http-path"
    REGEX = "regex"
    FIGURE = "figure"  # a measured figure, or the lowest and the highest
    SHARE = "share"  # the same in per cent
    ARGS = "args"
    ENV = "env"
    ULIMITS = "ulimits"
    DOCKER_OPTIONS = "docker-options"
    EXTRA = "extra"
    SECTION = "section"


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileField:
    """A field's declaration; its type and default are those of the attribute. A tuple is a list of values of ``kind``.

    ``help``: what it means, for the documentation; of a section its description in the JSON Schema. ``key``: its name in
    the file where the attribute has another one (``memory.expected``). ``follows``: the attribute behind which it stands
    in a file, where the class, and with it the profile hash, has another order. ``is_hashed``: whether it changes what
    runs. ``is_in_launch``: a `docker run` tells it, so an export need not add it. ``shows_default``: whether the JSON
    Schema has the attribute's default, or null.
    """

    kind: FieldKind
    help: str
    _: KW_ONLY
    key: str | None = None
    choices: tuple[str, ...] = ()
    limits: tuple[int, int] | None = None
    follows: str | None = None
    is_hashed: bool = True
    is_in_launch: bool = False
    shows_default: bool = True
