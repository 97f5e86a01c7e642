"""The draft of a profile that the readers of all formats fill in, and its report: what happened to every key of the source."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import field
from enum import StrEnum

from sparkctl.model.lazy_dataclass import dataclass
from sparkctl.model.profile import Profile


class KeyOutcome(StrEnum):
    """What happened to a key of the source."""

    MAPPED = "mapped"  # it is in the profile
    KEPT = "kept"  # under `extra:`, where it is not used
    UNSUPPORTED = "unsupported"  # left out; `why` gives the reason
    WITHHELD = "withheld"  # left out until the operator allows it


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyRecord:
    """One key as the source names it (``defaults.port``, ``--gpus``). ``to``: the profile's field, if there is one.

    ``value``: which of the field's values it is, if there are several; ``allow``: its name for `--allow` if it is
    withheld.
    """

    key: str
    fate: KeyOutcome
    to: str | None
    why: str | None = None
    value: str | None = None
    allow: str | None = None


@dataclass(frozen=True, slots=True)
class ImportNote:
    """A note for the operator, and the field of the profile it belongs to (a dotted path, None: no field)."""

    text: str
    path: str | None


class ImportReport:
    """Collects key records, kept values, and notes, in the order of the source."""

    def __init__(self, *, allow: bool | Collection[str] = False) -> None:
        """``allow``: names that are accepted although they are not known to be harmless, True for all."""
        self.locate: Callable[[str], str] = lambda key: key  # file and line of a key
        self._allow = frozenset(("all",) if allow is True else allow or ())
        self._used: set[str] = set()  # for each name, the values that are allowed
        self.accounts: list[KeyRecord] = []
        self._noted: set[KeyRecord] = set()
        self._places: dict[tuple[str, str | None], list[int]] = {}  # (field, value): indexes of its mapped records
        self.remarks: list[ImportNote] = []
        self.extra: dict[str, object] = {}

    def add_mapped(self, key: str, to: str, value: str | None = None) -> None:
        """Record that a key is in the profile, as this value of its field."""
        self._add_record(KeyRecord(key=key, fate=KeyOutcome.MAPPED, to=to, value=value))

    def has_mapped_field(self, to: str, value: str | None) -> bool:
        """Tell whether a key is recorded for this field, as this value if the field has several."""
        return (to, value) in self._places or (to, None) in self._places

    def keep_extra(self, key: str, value: object, why: str | None = None, name: str | None = None) -> None:
        """Keep a value under ``extra:``, by the last part of its key unless ``name`` is given."""
        name = name or key
        while name in self.extra and self.extra[name] != value:
            name += "_"
        self.extra[name] = value
        self._add_record(KeyRecord(key=key, fate=KeyOutcome.KEPT, to=f"extra.{name}", why=why))

    def add_unsupported(self, key: str, why: str) -> None:
        """Record that a key is left out."""
        self._add_record(KeyRecord(key=key, fate=KeyOutcome.UNSUPPORTED, to=None, why=why))

    def add_malformed(self, key: str, why: str) -> None:
        """Record that a key is left out because its value has the wrong type, with its position."""
        self.add_unsupported(key, f"{self.locate(key)}: {why}")

    def is_allowed(self, name: str, value: str = "") -> bool:
        """Tell whether the operator allows this name, or this value of it."""
        found = self._allow & {"all", name, f"{name}={value}", f"{name}={value.partition(':')[0]}"}
        self._used |= found
        return bool(found)

    def list_unused_allow_values(self) -> list[str]:
        """Return each ``NAME=VALUE`` that the operator allows but the source does not have."""
        return sorted(text for text in self._allow - self._used if "=" in text)

    def format_allow_argument(self, account: KeyRecord) -> str | None:
        """Return `--allow`'s argument for this record: with its value if others are withheld under the same name."""
        alike = [one for one in self.list_keys_by_outcome(KeyOutcome.WITHHELD) if one.allow == account.allow]
        return account.allow if len(alike) == 1 or not account.value else f"{account.allow}={account.value}"

    def check_permission(self, key: str, name: str, why: str) -> bool:
        """Tell whether something dangerous without a profile field may be kept; if not, it is recorded as withheld."""
        if not self.is_allowed(name):
            self._add_record(KeyRecord(key=key, fate=KeyOutcome.WITHHELD, to=None, why=why, allow=name))
            return False
        return True

    def withhold_value(self, to: str, value: str, name: str, why: str) -> None:
        """Record that a value is taken out of a field again."""
        places = [at for key in {(to, value), (to, None)} for at in self._places.pop(key, ())]
        for at in places:
            self.accounts[at] = KeyRecord(
                key=self.accounts[at].key, fate=KeyOutcome.WITHHELD, to=None, why=why, value=value, allow=name
            )
        if not places:
            self._add_record(
                KeyRecord(
                    key=f"{to} {value}".strip(), fate=KeyOutcome.WITHHELD, to=None, why=why, value=value, allow=name
                )
            )

    def add_remark(self, text: str, path: str | None = None) -> None:
        """Add a note for the operator."""
        remark = ImportNote(text, path)
        if remark not in self.remarks:
            self.remarks.append(remark)

    def list_keys_by_outcome(self, fate: KeyOutcome) -> tuple[KeyRecord, ...]:
        return tuple(account for account in self.accounts if account.fate is fate)

    def _add_record(self, account: KeyRecord) -> None:
        if account in self._noted:
            return
        self._noted.add(account)
        if account.fate is KeyOutcome.MAPPED and account.to is not None:
            self._places.setdefault((account.to, account.value), []).append(len(self.accounts))
        self.accounts.append(account)


MAX_NODES = 8  # Sparks that a profile may be for
METADATA_COMMENT = "# sparkctl: "  # the comment in which an export writes what has no docker flag


class SourceFormat(StrEnum):
    """The format of the source."""

    DOCKER = "docker"
    COMPOSE = "compose"
    SYSTEMD = "systemd"
    QUADLET = "quadlet"
    SPARKRUN = "sparkrun"
    EUGR = "eugr"
    SERVICES = "services"
    CONTAINER = "container"
    COMMAND = "command"


@dataclass(slots=True, kw_only=True)
class ProfileDraft:
    """Texts are in a profile's notation (see `env_references`).

    ``entrypoint`` and ``words`` are the command as Docker takes it; ``words`` None: the image's own. ``engine_hint``:
    the engine's name in the source.
    """

    kind: SourceFormat
    ledger: ImportReport
    name: str | None = None
    title: str | None = None
    image: str | None = None
    engine_hint: str | None = None
    model: str | None = None
    parameters: str | None = None
    nodes: int = 1
    by_ranks: bool = False  # each rank is a node, because a Spark has one GPU
    port: int | None = None
    entrypoint: str | None = None
    words: list[str] | None = None
    env: dict[str, str] = field(default_factory=dict)
    env_file: str | None = None
    mounts: list[str] = field(default_factory=list)
    gpus: str | None = None
    shm_size: str | None = None
    ipc: str | None = None
    network: str | None = None
    container_name: str | None = None
    ulimits: dict[str, str] = field(default_factory=dict)
    devices: list[str] = field(default_factory=list)
    options: list[tuple[str, str]] = field(default_factory=list)
    health: str | None = None
    probe: str | None = None
    prompt: str | None = None
    timeouts: dict[str, float] = field(default_factory=dict)
    stop_grace: float | None = None
    notes: list[str] = field(default_factory=list)
    source: str | None = None
    engine: str | None = None  # known for certain
    beside: str | None = None  # what an export of sparkctl added to the form, as JSON
    beside_key: str = "# sparkctl"  # the form's key that holds it


@dataclass(frozen=True, slots=True)
class ImportResult:
    """A profile, and what happened to its source. ``comments``: field (dotted) to its comment."""

    kind: SourceFormat
    profile: Profile
    ledger: ImportReport
    comments: tuple[tuple[str, str], ...]
