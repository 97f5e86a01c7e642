"""Check combinations of flags of any engine: repeated, ignored, more GPUs than Sparks, a draft of another family."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from sparkctl.engines.engine_flags import FlagArity
from sparkctl.engines.lint import FieldPath, LintMessage, LintRule, LintSeverity
from sparkctl.engines.lint.profile_flags import (
    FlagMatch,
    FlagSetting,
    FlagSettings,
    LintContext,
    ProfileFlag,
    has_env_reference,
    parse_size_number,
    quote_value,
)
from sparkctl.model.lazy_dataclass import dataclass
from sparkctl.model.profile import Profile
from sparkctl.model.text.units import format_gib

LONG_CONTEXT_TOKENS = 262144  # tokens: what a Qwen3.5 supports, and few need
MAX_MEMORY_SHARE = 0.85  # of all memory: the rest is for the system, CUDA and the page cache


def check_repeated_flags(
    readings: Sequence[tuple[ProfileFlag, FlagMatch]], context: LintContext
) -> Iterator[LintMessage]:
    """Yield a warning for each flag that was given before: its last value counts."""
    seen: dict[tuple[str, str | None], str] = {}
    for one, reading in readings:
        if reading.flag is None or reading.flag.appends or one.left_out:
            continue
        identity = (reading.flag.name, reading.key)
        if identity in seen:
            first = seen[identity]
            again = "" if first == reading.name else f" (as {first})"
            several = "; several values for one flag are a list in a list, [[1, 2]]"
            hint = (
                several
                if one.in_args and reading.flag.takes in (FlagArity.MANY, FlagArity.ANY) and len(one.where) > 2
                else ""
            )
            message = f"{reading.name} is given twice{again}, and {context} takes the last one{hint}"
            on_key = one.in_args and len(one.where) == 2
            yield LintMessage(
                kind=LintRule.REPEATED_FLAG, level=LintSeverity.WARNING, where=one.where, message=message, on_key=on_key
            )
        seen.setdefault(identity, reading.name)


def build_ignored_args_message(profile: Profile) -> LintMessage:
    """Return the warning for flags after a shell script as command."""
    message = "command is a shell with its script: these flags stand behind it, and no engine reads them; put them into the script"
    return LintMessage(kind=LintRule.LOST_FLAGS, level=LintSeverity.WARNING, where=("args",), message=message)


def check_rank_count(profile: Profile, ranks: int, where: FieldPath) -> Iterator[LintMessage]:
    """Yield a warning if a model needs more GPUs than its Sparks have: one each."""
    if ranks > profile.nodes:
        message = f"{ranks} ranks need {ranks} GPUs; each Spark has one, and nodes is {profile.nodes}"
        yield LintMessage(
            kind=LintRule.BAD_COMBINATION, level=LintSeverity.WARNING, where=where, message=message, on_key=False
        )


def check_port_and_name(profile: Profile, settings: FlagSettings, port: int | None) -> Iterator[LintMessage]:
    """Yield a warning if the engine uses another port or name than sparkctl; ``port`` is the engine's default."""
    wanted = profile.port or port
    own = settings.get_setting("--port")
    if own is not None and own.value and not has_env_reference(own.value) and own.value != str(wanted):
        message = f"the engine listens on {quote_value(own.value)}, and sparkctl asks it on {wanted}: set port: instead"
        yield own.report_value(LintRule.BAD_COMBINATION, LintSeverity.WARNING, message)
    named, name = (
        settings.get_setting("--served-model-name") or settings.get_setting("--alias"),
        profile.model.served_name or profile.model.path,
    )
    if (
        named is not None
        and named.values
        and not any(map(has_env_reference, named.values))
        and name not in named.values
    ):
        asks = f"sparkctl asks for {quote_value(name)}" if name else "sparkctl does not know it"
        message = (
            f"the engine calls the model {quote_value(named.values[0])}, and {asks}: set model.served_name instead"
        )
        yield named.report_value(LintRule.BAD_COMBINATION, LintSeverity.WARNING, message)


def check_long_context(profile: Profile, setting: FlagSetting | None, flag: str, cost: str) -> Iterator[LintMessage]:
    """Yield what a very long context costs; ``cost`` is the sentence for this engine."""
    length = parse_size_number(setting.value) if setting is not None else None
    if setting is None or length is None or length < LONG_CONTEXT_TOKENS:
        return
    per_token = profile.model.kv_per_token
    fills = f" ({format_gib(per_token * int(length))} at {per_token} bytes a token)" if per_token else ""
    message = f"{flag} {quote_value(setting.value or '')}: {cost}{fills}; for 150k tokens of use, 163840 or 196608 leave room for others"
    yield setting.report_value(LintRule.LONG_CONTEXT, LintSeverity.INFO, message)


def check_cpu_offload(settings: FlagSettings) -> Iterator[LintMessage]:
    """Yield that weights on the CPU's side are in the same memory here."""
    setting = settings.get_setting("--cpu-offload-gb")
    if setting is None or not parse_size_number(setting.value):
        return
    message = "--cpu-offload-gb: a Spark has one memory for CPU and GPU; offloading to the CPU frees none of it, and costs time: leave it out"
    change = "args.cpu-offload-gb=null" if setting.in_args else None
    yield setting.report_flag(LintRule.BAD_COMBINATION, LintSeverity.WARNING, message, change)


_FAMILY_PATTERN = re.compile(
    r"(?<![a-z])(?:(?P<qwq>qwq)|(?P<name>qwen|llama|gemma|glm|minimax-m|mistral|nemotron|deepseek-[vr]|kimi-k|gpt-oss|phi|mimo)"
    r"(?:[-_]?(?P<version>\d++(?:\.\d++|_\d{1,2}(?![\d.]*+b))?+)(?![\d.]*+b(?![a-z])))?)",  # Llama3_2_1B is Llama 3.2 with 1B
    re.IGNORECASE,
)
_SIZE_PATTERN = re.compile(
    r"(?<![a-z0-9.])(?P<all>\d+(?:\.\d+)?)b(?:-a(?P<active>\d+(?:\.\d+)?)b)?(?![a-z])", re.IGNORECASE
)


@dataclass(frozen=True, slots=True)
class ModelName:
    """``family`` such as ``Qwen3.5``, ``size`` with active parameters (``35B-A3B``); None: the name does not tell."""

    family: str | None
    size: str | None

    @classmethod
    def from_path(cls, path: str) -> ModelName:
        """Return what the last part of a path or hub id tells."""
        name = path.rstrip("/").rpartition("/")[2]
        found, size = _FAMILY_PATTERN.search(name), _SIZE_PATTERN.search(name)
        return cls(None if found is None else found[0], None if size is None else size[0].upper())

    def is_of_family(self, other: ModelName) -> bool:
        """Tell whether both may be of one family: a name without a version says nothing of it."""
        ours, its = (_FAMILY_PATTERN.fullmatch(one.family or "") for one in (self, other))
        if ours is None or its is None:
            return True
        if not ours["version"] or not its["version"]:
            return (ours["qwq"] or ours["name"]).casefold() == (its["qwq"] or its["name"]).casefold()
        return _normalize_family(ours[0]) == _normalize_family(its[0])

    def is_of_size(self, other: ModelName) -> bool:
        """Tell whether both may have one size: a name without active parameters says nothing of them."""
        ours, its = (_SIZE_PATTERN.fullmatch(one.size or "") for one in (self, other))
        if ours is None or its is None:
            return True
        has_both = ours["active"] is not None and its["active"] is not None
        return ours["all"] == its["all"] and (not has_both or ours["active"] == its["active"])

    @property
    def is_mixture_of_experts(self) -> bool:
        """Tell whether the name has a number of active parameters."""
        return self.size is not None and "-A" in self.size


def find_draft_mismatch(target: str, draft: str, *, by_hidden_states: bool) -> str | None:
    """Return why a draft model does not match this target, None if nothing shows a mismatch.

    ``by_hidden_states``: EAGLE and DFlash heads read the target's layers, so the size must match, too.
    """
    ours, its = ModelName.from_path(target), ModelName.from_path(draft)
    if ours.family is None or its.family is None:
        return None
    if not ours.is_of_family(its):
        kind = ", a mixture of experts" if ours.is_mixture_of_experts and not its.is_mixture_of_experts else ""
        return f"it is of the family {its.family}, the target of {ours.family}{kind}"
    if by_hidden_states and not ours.is_of_size(its):
        return f"it was made for {its.size}, the target is {ours.size}"
    return None


def _normalize_family(family: str) -> str:
    name = re.sub(r"(?<=\d)_(?=\d)", ".", family.casefold())
    return name.replace("-", "").replace("_", "")
