"""What a start needs and a node does not have: an image or a model, and where `pull` can get it."""

from __future__ import annotations

import re
from enum import StrEnum

from sparkctl.model.lazy_dataclass import dataclass
from sparkctl.model.node import NodeName
from sparkctl.model.text.units import GIB, format_duration, format_size

KEPT_FREE_BYTES = 5 * GIB  # that a download leaves on the disk

_HUB_SOURCE = re.compile(r"hf:(?P<repository>[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*)(?:@(?P<revision>[\w][\w./-]*))?")


_GIT_ADDRESS = re.compile(r"(?:(?:https?|git|ssh)://|git@[\w.-]+:)[\w.~:/@+%-]+")
_GIT_REF = re.compile(r"[\w][\w./+-]*")
_DOCKERFILE = re.compile(r"Dockerfile(?:\.[\w.-]+)?|[\w.-]+\.Dockerfile")
_COMMIT = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
# no user, no password and no signature in an address: it is shown, and in a label of the download
_URL_SOURCE = re.compile(r"(?P<url>https://[\w.-]+(?::\d+)?/[^\s#@?]*[^\s#@?/])(?:#sha256:(?P<sha256>[0-9a-f]{64}))?")
_FILE_SOURCE = re.compile(r"file:(?P<path>/[^\s:]*[^\s:/])")
_MAX_SOURCE_CHARS = 600


class PartKind(StrEnum):
    """What is missing."""

    IMAGE = "image"
    MODEL = "model"
    DRAFT_MODEL = "draft-model"
    TOKENIZER = "tokenizer"  # where a flag names one that is not the model's own


MODEL_KINDS = (PartKind.MODEL, PartKind.DRAFT_MODEL, PartKind.TOKENIZER)
SOURCE_FIELDS = {
    PartKind.MODEL: "model.source",
    PartKind.DRAFT_MODEL: "model.draft_source",
    PartKind.TOKENIZER: "model.tokenizer_source",
}


@dataclass(frozen=True, slots=True)
class HubSource:
    """A repository of the Hugging Face Hub; ``revision`` None: its main branch."""

    repository: str
    revision: str | None = None

    def __str__(self) -> str:
        return f"hf:{self.repository}" + (f"@{self.revision}" if self.revision else "")


@dataclass(frozen=True, slots=True)
class UrlSource:
    """One file of a web server; ``sha256`` None: its checksum is not known."""

    url: str
    sha256: str | None = None

    def __str__(self) -> str:
        return self.url + (f"#sha256:{self.sha256}" if self.sha256 else "")


@dataclass(frozen=True, slots=True)
class DirectorySource:
    """A directory of the node itself, for example on a mounted NAS: a model, or one that holds models by their names.

    ``repository``: the Hub's name of the model, where that is known, too, and ``revision`` the one that is wanted of it.
    """

    path: str
    repository: str | None = None
    revision: str | None = None

    def __str__(self) -> str:
        return f"file:{self.path}"


ModelSource = HubSource | UrlSource | DirectorySource


def parse_model_source(text: str) -> ModelSource:
    """Return the source that a text names. Raises ValueError for anything else."""
    if (
        text.lower().startswith(("https://", "http://")) and "?" in text
    ):  # of a signed address it is the secret, so not in the error
        raise ValueError(
            "an address with `?` may hold a signature, which every user of the node could read; write the plain address "
            "of the file, or download it yourself and write file:/DIRECTORY"
        )
    if len(text) <= _MAX_SOURCE_CHARS and text.isprintable():
        if (match := _HUB_SOURCE.fullmatch(text)) is not None:
            return HubSource(match["repository"], match["revision"])
        if (match := _URL_SOURCE.fullmatch(text)) is not None:
            return UrlSource(match["url"], match["sha256"])
        if (match := _FILE_SOURCE.fullmatch(text)) is not None and ".." not in match["path"].split("/"):
            return DirectorySource(match["path"])
    raise ValueError(
        f"`{text[:80]}` is not a source; write for example hf:Qwen/Qwen3.6-27B-FP8, https://HOST/FILE.gguf#sha256:HEX, or "
        "file:/mnt/nas/models/NAME (a directory of the node)"
    )


@dataclass(frozen=True, slots=True)
class GitContext:
    """A Dockerfile in a git repository: ``ADDRESS#REF:FOLDER``; without a ref its default branch, without a folder its root.

    ``dockerfile``: its name in the folder, behind which it is written; None: Dockerfile.
    """

    address: str
    ref: str | None = None
    folder: str | None = None
    dockerfile: str | None = None

    @property
    def is_pinned(self) -> bool:
        """Tell whether the ref is a commit."""
        return self.ref is not None and _COMMIT.fullmatch(self.ref) is not None

    def __str__(self) -> str:
        place = "/".join(part for part in (self.folder, self.dockerfile) if part)
        return self.address + (f"#{self.ref or ''}:{place}" if place else f"#{self.ref}" if self.ref else "")


def parse_build_source(text: str) -> GitContext | None:
    """Return the git context of `build:`, None for a directory of the operator's machine. Raises ValueError for anything else."""
    if len(text) > 300 or not text.isprintable():
        raise ValueError("it is too long or has control characters")
    address, _, place = text.partition("#")
    if not _GIT_ADDRESS.match(text):
        if text.startswith(("./", "../", "/", "~/")) or text in (".", ".."):
            return None
        raise ValueError(
            f"`{text[:80]}` is neither a directory (./images/mine) nor a git repository (https://HOST/NAME.git#REF:FOLDER)"
        )
    ref, _, folder = place.partition(":")
    login, at, _ = address.partition("://")[2].partition("/")[0].rpartition("@")
    if at and (not address.startswith("ssh://") or ":" in login):
        raise ValueError("the address has a login in it, which every user of the node could read")
    parts = folder.split("/")
    if not _GIT_ADDRESS.fullmatch(address) or (ref and not _GIT_REF.fullmatch(ref)) or ".." in parts:
        raise ValueError(f"`{text[:80]}` is not a git context; write for example https://HOST/NAME.git#v1.2:docker")
    if not re.fullmatch(r"[\w./+-]*", folder):
        raise ValueError(f"`{folder[:80]}` is not a folder of a repository")
    folder = folder.strip("/")
    above, _, name = folder.rpartition("/")
    if _DOCKERFILE.fullmatch(name):
        return GitContext(address, ref or None, above or None, name)
    return GitContext(address, ref or None, folder or None)


@dataclass(frozen=True, slots=True, kw_only=True)
class MissingPart:
    """One thing that a node does not have whole.

    Attributes:
        name: the image, or the model's path on the node.
        reason: why it counts as missing, to go after the name: "is not there".
        source: where `pull` gets it; None: nothing says so.
        made_by: what makes it on the node, where nobody publishes it (`made_by` of the profile).
        copied_from: another Spark of the same start that has the image: every rank needs the same, so `pull` copies it.
        is_built: an image that `docker build` makes of ``source``.
        size: bytes of it whole, of an image as its registry keeps it, packed; None: not known.
        unpacked: bytes of an image on the disk; None: not known.
        is_estimate: ``size`` is that of the weights in the profile: its source does not tell it.
        seconds: how long it takes at the rate of earlier pulls on that node; None: there were none.
        is_required: `up` refuses without it; False: the engine gets it itself.
        free: bytes free on the disk where it goes; None: not known.
        beside: bytes of the other missing parts that go onto that disk, as far as they are known.
    """

    kind: PartKind
    node: NodeName
    name: str
    reason: str
    source: str | None
    is_required: bool = True
    is_built: bool = False
    made_by: str | None = None
    copied_from: NodeName | None = None
    size: int | None = None
    unpacked: int | None = None
    seconds: float | None = None
    free: int | None = None
    beside: int = 0
    is_estimate: bool = False

    @property
    def room(self) -> int | None:
        """Bytes that it takes on the disk while it comes: an image packed and unpacked; None: not known."""
        if self.size is None or self.kind is not PartKind.IMAGE:
            return self.size
        return self.size + (self.size if self.unpacked is None else self.unpacked)  # it is packed: at least as much

    @property
    def is_too_large(self) -> bool:
        """Tell whether the disk cannot hold it, with the other parts and what `pull` keeps free. Of an image layers may
        be there already, which its size does not tell.
        """
        if self.room is None or self.free is None:
            return False
        return self.room + self.beside + KEPT_FREE_BYTES > self.free

    @property
    def _what(self) -> str:
        return f"the {self.kind.value.replace('-', ' ')} {self.name}"

    @property
    def can_come(self) -> bool:
        """Tell whether `pull` knows where to get it."""
        return self.source is not None or self.copied_from is not None

    @property
    def origin_words(self) -> str:
        """What it is, and where it comes from."""
        if self.copied_from is not None:
            return f"{self._what} from {self.copied_from}"
        if self.is_built:
            return f"{self._what}, built from {self.source}"
        return self._what if self.source in (None, self.name) else f"{self._what} from {self.source}"

    @property
    def state_words(self) -> str:
        """What it is, and why it counts as missing."""
        return f"{self._what} {self.reason}"

    @property
    def sentence(self) -> str:
        origin = (
            ""
            if self.source == self.name
            else f"; to build from {self.source}"
            if self.is_built
            else f"; from {self.source}"
        )
        if self.source is None:
            origin = f"; the profile does not say where it comes from ({SOURCE_FIELDS.get(self.kind, 'image')})"
        if self.made_by is not None:
            origin = f"; nobody publishes it: {self.made_by}"
        if self.copied_from is not None:
            origin = f"; {self.copied_from} has it, and it is copied from there"
        size = "" if self.size is None else f", {'about ' if self.is_estimate else ''}{format_size(self.size)}"
        if self.kind is PartKind.IMAGE and self.source == self.name and self.copied_from is None:
            # None: `up` asks neither disk nor registry
            size = f"{size} packed" if size else ", size not known" if self.free is not None else ""
            size += "" if self.unpacked is None else f" and {format_size(self.unpacked)} unpacked"
        size += "" if self.seconds is None else f", about {format_duration(self.seconds)} at the speed of earlier pulls"
        only = "only " if self.is_too_large else ""
        room = "" if self.free is None else f"; {only}{format_size(self.free)} free there"
        return f"{self.state_words} on {self.node}{origin}{size}{room}"
