"""The interface of an engine: its pure knowledge about command line, log, metrics and imports. No I/O; no engine knows another.

Engines read lines that `engines.line_preparer` has prepared: one printable line, process prefixes removed, each state
of a progress bar on a line of its own.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import field, replace
from enum import IntEnum, StrEnum
from typing import TYPE_CHECKING, Protocol

from sparkctl.model.engine_metrics import EngineFact, EngineFactName, EngineMetrics, StatsLine
from sparkctl.model.lazy_dataclass import dataclass
from sparkctl.model.node import LEAST_TOTAL_BYTES
from sparkctl.model.phase import STEP_NAMES, Phase, Step
from sparkctl.model.text import lazy_pattern
from sparkctl.model.text.sanitize import truncate_text
from sparkctl.model.text.units import GIB, parse_size
from sparkctl.model.verdict import DROP_CACHES_REMEDY, ChangeDirection, Confidence, FailureCause

if TYPE_CHECKING:
    from sparkctl.model.profile import Profile

HUB_CACHE = "~/.cache/huggingface"
HUB_CACHE_TARGET = "/root/.cache/huggingface"
HUB_ID_PATTERN = lazy_pattern.compile(r"[\w.-]+/[\w.-]+(?::[\w.-]+)?")
# Keys of a recipe's defaults and their flags, for the engines whose flags have the same names.
COMMON_RECIPE_FLAGS = {
    "host": "--host",
    "port": "--port",
    "served_model_name": "--served-model-name",
    "dtype": "--dtype",
    "quantization": "--quantization",
    "trust_remote_code": "--trust-remote-code",
    "kv_cache_dtype": "--kv-cache-dtype",
    "api_key": "--api-key",
}


class ModelWord(StrEnum):
    """Whether a command line has the model as a plain word."""

    NEVER = "never"  # by a flag alone
    FIRST = "first"  # right after the launch words, or by a flag
    ANYWHERE = "anywhere"  # only so, in any place


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportRules:
    """``program``: the word that starts it, with ``subcommand`` after it; ``module``: of Python, which starts it, too,
    and then the subcommand is required. ``model_flags``: without dashes; True: for a hub id, False: for a file, None:
    for both. ``name_flags``: those that name the model to clients. ``short_flags``: to their long names.

    ``image``: regex of images that start it themselves. ``has_ranks``: its flags say over how many GPUs it is spread.

    For recipes: ``recipe_name`` is its name there, ``recipe_words`` show it in a name, command or image,
    ``recipe_image`` is the one that sparkrun uses if a recipe names none (a guess for today's recipes),
    ``recipe_command`` its launch words with ``{model}``, ``recipe_model_flags`` those for a file and for a hub id if the
    launch words have no model; ``recipe_flags`` the keys of a recipe's defaults with their flags, ``recipe_switches``
    those keys that are switches (sparkrun's own tables). ``is_recipe_default``: it is meant where a recipe names none.
    ``built_image``: regex of an image that eugr's tool builds on the node, ``nightly_image`` the one built every night and
    close to it (also with -tf5 and -b12x). ``placeholders``: the names that an export gives to what people
    change at a start, by flag; empty: it cannot be exported so.

    ``variables``: beginnings of its environment variables; ``key_variables``: those that hold an API key.
    ``directory_words``: words in names of directories that belong to it, ``hidden_directories``: those that begin with
    a dot.
    ``other_servers``: programs that have no engine here, with the path that answers when they are ready;
    ``other_images``: the same by a part of the image's name.
    """

    program: str = ""
    subcommand: str | None = None
    module: str | None = None
    model_word: ModelWord = ModelWord.NEVER
    model_flags: Mapping[str, bool | None] = field(default_factory=dict)
    name_flags: tuple[str, ...] = ("served-model-name",)
    short_flags: Mapping[str, str] = field(default_factory=dict)
    image: str | None = None
    has_ranks: bool = False
    is_recipe_default: bool = False
    built_image: str | None = None
    nightly_image: str | None = None
    recipe_name: str
    recipe_words: tuple[str, ...]
    recipe_image: str | None
    recipe_command: tuple[str, ...] = ()
    recipe_model_flags: tuple[str, str] | None = None
    recipe_flags: Mapping[str, str] = field(default_factory=dict)
    recipe_switches: tuple[str, ...] = ()
    placeholders: Mapping[str, str] = field(default_factory=dict)
    variables: tuple[str, ...]
    key_variables: tuple[str, ...] = ()
    directory_words: tuple[str, ...]
    hidden_directories: tuple[str, ...] = ()
    other_servers: Mapping[str, str] = field(default_factory=dict)
    other_images: Mapping[str, str] = field(default_factory=dict)

    @property
    def is_python_server(self) -> bool:
        """Tell whether a Python module starts it, too: then its flags are parsed alike, whatever starts it."""
        return self.module is not None


class FailureWeight(IntEnum):
    """How close a line is to the root of a failure."""

    AFTERMATH = 1  # "see above": another error came before
    DYING = 2  # a part of the engine says that it ends, without a reason
    LOST = 3  # a process reports that it or another one ended: a reason that follows has more weight
    EXCEPTION = 4  # the last line of a traceback that no rule knows; a client's bad request can cause one too
    DEATH = 6  # a part of the engine was killed: no line is closer, the reason is outside of the log
    LIKELY = 8  # names the fault in general terms: a flag, a status; a more specific line has more weight
    CONCRETE = 10  # names the cause


FailureRefinement = Callable[["Failure", Mapping[EngineFactName, str]], "Failure"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """A log line that explains a failure. ``fatal``: the engine cannot start any more, even if its process still runs.

    ``weight`` ranks candidates: a concrete cause beats a generic consequence; among equals the first line wins.
    ``field``: the profile field to change, ``change``: in which direction, ``value``: the value that the line gives.

    The same words may mean something else elsewhere: ``needs`` is a fact that the engine must have reported (if it
    reported any), ``during`` the step of the start. Otherwise `refine_failure` makes it a general failure.

    ``refine``: returns the failure refined by what the engine reported before.
    ``is_warning``: the program may go on after it, so alone it is no proof that it ended.
    ``is_told_at_any_level``: it counts although the program logs it below the error level.
    ``rule``: the words by which a rule knew the line; ``is_inferred``: the cause follows from the line's place in the log.
    ``versions``: of the engine, where the words mean this (`traps`), None: in all; ``otherwise``: what they mean in others.
    """

    cause: FailureCause
    summary: str
    remedy: str
    field: str | None = None
    fatal: bool = True
    weight: int = FailureWeight.CONCRETE
    value: str | None = None
    change: ChangeDirection | None = None
    needs: EngineFactName | None = None
    during: str | None = None
    refine: FailureRefinement | None = None
    rule: str | None = None
    is_inferred: bool = False
    is_told_at_any_level: bool = False
    is_warning: bool = False
    versions: str | None = None
    otherwise: Failure | None = None

    @property
    def confidence(self) -> Confidence:
        """Whether the line itself names the cause."""
        is_named = self.weight >= FailureWeight.LIKELY and self.cause is not FailureCause.CRASHED
        return Confidence.CERTAIN if is_named and not self.is_inferred else Confidence.LIKELY


@dataclass(frozen=True, slots=True)
class LineSignal:
    """What one line says: a phase, a step with progress, a failure, facts, in any combination.

    If a fact is reported twice the first counts, but a fallback replaces a fact that is none.
    """

    phase: Phase | None = None
    step: Step | None = None
    failure: Failure | None = None
    facts: tuple[EngineFact, ...] = ()


_DRAFT_MODEL_METHODS = (
    "EAGLE",
    "NEXTN",
    "STANDALONE",
    "MTP",
    "DFLASH",
    "DRAFT",
    "DSPARK",
)  # methods with a draft model
# What CUDA itself says; torch's own allocator tells how much it tried to allocate.
_DRIVER_OUT_OF_MEMORY = "AcceleratorError: CUDA error: out of memory"
# Speculative decoding is known for these: github.com/vllm-project/vllm/issues/44734, Blackwellboy/model-serving-minefield 28, 120.
_DRAFT_SUSPECTS = (FailureCause.WEDGED, FailureCause.GPU_FAULT)
_TOTAL_CAPACITY = lazy_pattern.compile(r"total capacity of (?P<gib>\d{1,6}(?:\.\d+)?) GiB")
_ASKED_AND_FREE = lazy_pattern.compile(
    r"Tried to allocate (?P<asked>\d+(?:\.\d+)? [KMG]iB)\b.{0,200}? of which (?P<free>\d+(?:\.\d+)? [KMG]iB) is free"
    r"(?:\. (?P<allowed>\d+(?:\.\d+)? [KMG]iB) allowed;)?"
)
# Before the KV cache is made, its share of the memory takes nothing, and to lower it does not help.
_LOWER_SHARE = lazy_pattern.compile(r"Lower args\.[\w-]+ \(it is a share [^()]+\)(?:[^.]|\.(?=\w))*\.")
_REMEDIES_BY_STEP = {
    "weights": (
        "Take a smaller model or quantization of it, or spread it over more GPUs: the weights alone did not fit.",
        None,
    ),
    "profiling": (
        "Lower args.max-num-batched-tokens, args.max-num-seqs or args.max-model-len, or the pictures a prompt may have "
        "(args.limit-mm-per-prompt), or take a smaller model: what a full batch needs did not fit beside the weights. A lower "
        "args.gpu-memory-utilization does not help: there is no KV cache yet.",
        "args.max-num-batched-tokens",
    ),
    "warm-up": (
        "Lower args.max-num-seqs or args.max-num-batched-tokens, whose largest batch the warm-up runs; or args.gpu-memory-utilization, where the "
        "KV cache can spare it.",
        "args.max-num-seqs",
    ),
}
_PLENTY = 2  # times what was asked for, and 1 GiB more: torch asks the driver for more than a small tensor needs
_TWO_SIZES = lazy_pattern.compile(r"size of tensor a \((\d{1,9})\) must match the size of tensor b \((\d{1,9})\)")
_MAX_RANKS = 16  # that share a tensor: a larger quotient of the two sizes has another reason
_MAX_LINE_CHARS = 400  # characters of a line that fit into a sentence


UNNAMED_REMEDY = (
    "What stands right above this line, of a traceback its last frames, names the part that failed. Leave out the setting that asks for that "
    "part, or take a newer or an older image."
)


def build_unnamed_failure(text: str) -> Failure:
    """Return the failure of an error line that no rule names."""
    return Failure(
        cause=FailureCause.CRASHED,
        summary=f"The engine stopped on an error: {truncate_text(text, _MAX_LINE_CHARS)}",
        remedy=UNNAMED_REMEDY,
        fatal=False,
        weight=FailureWeight.EXCEPTION,
    )


def suspect_drafts(failure: Failure, facts: Mapping[EngineFactName, str]) -> Failure:
    """Return a failure with the advice to try without drafts first, if the engine drafts."""
    drafting = facts.get(EngineFactName.SPECULATIVE_METHOD)
    if not drafting:
        return failure
    remedy = f"It drafts ({drafting}), and that is the first suspect: start it without drafts. If it fails again: {failure.remedy}"
    return replace(failure, remedy=remedy, field=None, change=None, value=None)


def _find_draft_model(facts: Mapping[EngineFactName, str]) -> str:
    """Return the method by which a model makes the drafts; empty if none does."""
    method = facts.get(EngineFactName.SPECULATIVE_METHOD, "")
    return method if any(name in method.upper() for name in _DRAFT_MODEL_METHODS) else ""


def name_refused_settings(failure: Failure) -> Failure:
    """Return the failure of an exception that the code which checks the settings raised: where no rule names its cause, it is a value."""
    if failure.cause is not FailureCause.CRASHED or failure.weight != FailureWeight.EXCEPTION:
        return failure
    return replace(
        failure,
        cause=FailureCause.BAD_VALUE,
        summary=failure.summary.replace("stopped on an error", "refused its settings"),
        remedy="Correct the setting that the message or the last line of code above it names.",
        is_inferred=True,
    )


def name_stage_fault(failure: Failure, text: str) -> Failure:
    """Return the failure of a later stage of a pipeline that has no place for a weight: where the first one has, it was not its own."""
    if failure.cause is not FailureCause.MODEL_FILES or not text.startswith("KeyError: "):
        return failure
    return replace(
        failure,
        cause=FailureCause.ENGINE_BUG,
        summary=f"A later stage of the pipeline was given a weight that it has no place for: {text.removeprefix('KeyError: ')}.",
        remedy="Take another image, or split the model without pipeline parallelism (by tensor parallelism alone).",
        weight=FailureWeight.LIKELY,
        is_inferred=True,
        field=None,
    )


def name_split_fault(failure: Failure, text: str) -> Failure:
    """Return the failure of a rank that could not store a weight: where one size is a few times the other, the weight was not split."""
    found = _TWO_SIZES.search(text) if failure.cause is FailureCause.MODEL_FILES else None
    small, large = sorted((int(found[1]), int(found[2]))) if found else (1, 1)
    if not small or large % small or not 1 < large // small <= _MAX_RANKS:
        return failure
    return replace(
        failure,
        cause=FailureCause.ENGINE_BUG,
        summary=f"A rank holds one part of {large // small} of a weight, and was given the whole: {truncate_text(text, _MAX_LINE_CHARS)}",
        remedy="The engine does not split this model over several ranks: start it on one, or take another image.",
        is_inferred=True,
        field=None,
    )


def refine_failure(
    failure: Failure, text: str, step: str | None, facts: Mapping[EngineFactName, str], *, is_serving: bool
) -> Failure:
    """Return the failure refined by its place in the log: whether CUDA memory ran out at the start or while serving,
    whether the draft model did not fit, and whether the words mean this failure here.

    ``text``: the line it was read from; ``step``: the step of the start; ``is_serving``: the engine was ready before.
    """
    is_meant = failure.needs is None or failure.needs in facts or not facts
    if (failure.needs and is_serving) or not is_meant or failure.during not in (None, step):
        unnamed = build_unnamed_failure(text)
        # Drafts reach past the context, for which buffers were measured without them.
        return suspect_drafts(unnamed, facts) if is_serving and _TWO_SIZES.search(text) else unnamed
    if failure.refine is not None:
        return failure.refine(failure, facts)
    if is_serving and failure.cause is FailureCause.BAD_VALUE and failure.weight <= FailureWeight.EXCEPTION:
        return replace(build_unnamed_failure(text), remedy=failure.remedy)  # settings were accepted at the start
    if failure.cause in _DRAFT_SUSPECTS:
        return suspect_drafts(failure, facts)
    if failure.cause is FailureCause.KV_CACHE_TOO_SMALL and (drafting := _find_draft_model(facts)):
        rest = f"The drafts ({drafting}) take a part of the memory, too: without them more is left for the cache."
        return replace(failure, remedy=f"{failure.remedy} {rest}")
    if failure.cause is FailureCause.DISK_FULL and failure.weight == FailureWeight.DEATH and step == "weights":
        return replace(
            failure,
            cause=FailureCause.CRASHED,
            summary="The program died of a bus error (SIGBUS) while it read the weights.",
            remedy="A weight file is shorter than it should be, or the disk or the share fails: compare the sizes with the hub's, and see dmesg "
            f"on the node. If they are whole: {failure.remedy}",
            field=None,
        )
    if failure.cause is not FailureCause.CUDA_OUT_OF_MEMORY:
        return failure
    refused = _find_refused_allocation(failure, text)
    failure = refused or failure
    if is_serving:
        return replace(failure, summary=f"While serving: {failure.summary}")
    method = facts.get(EngineFactName.SPECULATIVE_METHOD, "")
    drafts = bool(_find_draft_model(facts))
    left = facts.get(EngineFactName.AVAILABLE_AT_LOAD)
    is_first = step == "join" or (step is None and bool(facts))  # of an excerpt nothing tells what was before it
    if is_first and _DRIVER_OUT_OF_MEMORY in text and EngineFactName.KV_CACHE_TOKENS not in facts:
        return replace(
            failure,
            cause=FailureCause.STARTUP_MEMORY_CHECK,
            summary="CUDA had no memory left before the engine asked for any: what ran before has not given its memory back.",
            remedy="Wait until it is free (sparkctl status), and look for a process that was left (sparkctl doctor). "
            f"{DROP_CACHES_REMEDY}",
            field=None,
            change=None,
            value=None,
        )
    total = _TOTAL_CAPACITY.search(text)
    half = (float(total["gib"]) if total else LEAST_TOTAL_BYTES / GIB) / 2
    # Weights begin to load into an empty node: if half of it is gone by then, the draft workspace took it.
    is_second_load = step == "weights" and EngineFactName.KV_CACHE_TOKENS in facts
    has_gone = step == "weights" and left is not None and float(left) < half
    if drafts and refused is None and (step in (None, "join", "draft") or is_second_load or has_gone):
        rest = f", and {left} GB were left for the weights" if has_gone and not is_second_load else ""
        return replace(
            failure,
            cause=FailureCause.DRAFT_WORKSPACE,
            is_inferred=True,
            summary=f"The draft workspace of {method} did not fit{rest}. {failure.summary}",
            remedy=f"{failure.remedy} Or speculate without a draft model (NGRAM).",
        )
    if step is None and not facts:
        return failure  # the log shows neither a start nor a request
    return replace(
        failure, summary=f"At the start{f' ({STEP_NAMES.get(step, step)})' if step else ''}: {failure.summary}"
    )


def name_what_helps(failure: Failure, step: str | None) -> Failure:
    """Return a failure of CUDA memory with what can be made smaller in the step of the start in which it was raised."""
    remedy, field = _REMEDIES_BY_STEP.get(step or "", ("", None))
    # an engine that does not measure first may have its KV cache by then
    is_without_cache = step == "weights" or failure.field == "args.gpu-memory-utilization"
    if (
        not remedy
        or not is_without_cache
        or failure.is_inferred
        or failure.cause is not FailureCause.CUDA_OUT_OF_MEMORY
    ):
        return failure
    advice, count = _LOWER_SHARE.subn(remedy, failure.remedy)
    if not count:
        return failure
    return replace(failure, remedy=advice, field=field, change=failure.change if field else None)


def _find_refused_allocation(failure: Failure, text: str) -> Failure | None:
    """Return the failure of a line in which the driver refused memory although far more was free, None of any other line."""
    found = _ASKED_AND_FREE.search(text)
    if found is None:
        return None
    asked, free = (parse_size(found[name].replace(" ", "")) for name in ("asked", "free"))
    if free < _PLENTY * asked + GIB:
        return None
    summary = f"CUDA refused {found['asked']} although {found['free']} was free: the GPU's memory was not what ran out."
    if found["allowed"]:
        remedy = f"The program may hold {found['allowed']} only, by its own setting (set_per_process_memory_fraction): raise that."
    else:
        remedy = (
            "The driver refuses memory by itself on a machine where CPU and GPU share it: page cache fills it, and "
            f"the kernel's log has NV_ERR_NO_MEMORY then (sparkctl doctor shows it). {DROP_CACHES_REMEDY} "
            "Else look for a memory limit of the container, and for PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True, "
            "which fragments: remove it."
        )
    return replace(failure, summary=summary, remedy=remedy, field=None, change=None, value=None, is_inferred=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineDefaults:
    """The values that apply if the profile sets none. ``ready_line`` is a regex for a prepared line."""

    command: tuple[str, ...]
    port: int | None
    ready_line: str | None
    health: str | None
    probe: str  # completions | chat | none
    gpus: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class LogSignature:
    """How to recognise an engine's log and its progress. ``marks``: regex, searched in a line with its header, that
    matches no other program's log; ``hints``: words that make the engine likely.

    Beginnings of prepared lines: ``begins`` of a line that every start prints once, early; ``serving`` of lines that
    only a serving engine prints and that `classify_line` ignores; ``standstill`` of lines that it repeats while its
    processes wait for each other; ``served`` of lines that show that an engine was ready before; ``loads`` of a line that, after it
    was ready, only a new start prints. ``own_checks``: in a line by which it checks itself at work; ``reported_steps``: by the name of a
    duration that it logs, the step that took it.
    """

    marks: str | None = None
    hints: tuple[str, ...] = ()
    begins: tuple[str, ...] = ()
    serving: tuple[str, ...] = ()
    standstill: tuple[str, ...] = ()
    served: tuple[str, ...] = ()
    loads: tuple[str, ...] = ()
    own_checks: tuple[str, ...] = ()
    reported_steps: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class DecodingSettings:
    """How a launch decodes. ``draft_tokens``: drafted per step and request, without the bonus token; ``draft_passes``:
    how often a step runs the draft model.

    None: no drafts, or not known. ``ranks``: how many GPUs share the model.
    """

    draft_tokens: int | None = None
    draft_passes: int | None = None
    ranks: int = 1


@dataclass(frozen=True, slots=True)
class EngineRank:
    """One Spark's part of a model. ``addresses``: of all ranks in order; the first is the head's, which answers clients."""

    index: int
    addresses: tuple[str, ...]

    @property
    def is_head(self) -> bool:
        """Tell whether it is the head, which answers clients."""
        return self.index == 0

    @property
    def head_address(self) -> str:
        """The head's address."""
        return self.addresses[0]

    @property
    def own_address(self) -> str:
        """Its own address."""
        return self.addresses[self.index]

    @property
    def count(self) -> int:
        return len(self.addresses)


class LineRules(Protocol):
    """What reads an engine's prepared log lines."""

    def classify_line(self, line: str) -> LineSignal | None:
        """Return what a prepared line says, None for nothing."""

    def classify_cut_line(self, line: str) -> Failure | None:
        """Return the failure that a line whose end is cut may have told, None for none."""

    def depends_on_digits(self, line: str, shape: str) -> bool:
        """Tell whether some lines of this shape (a prepared line with each digit as 0) may say something, and others not."""


class Engine:
    """What is known of one engine. Its folder has one instance, named ``ENGINE``, and is found by its name
    (``engine: sglang`` is engines/sglang/); in the same folder are, each with the same name for each engine: ``memory``,
    ``lint``, ``simulated_engine`` (loaded by `engines.load_engine_part`), ``flags-VERSION.json``, and ``health_paths.json`` (see
    `engines.find_health_paths`).

    What a subclass leaves out is what an unknown program has: no metrics, no drafts, one rank.
    """

    name: str
    title: str
    defaults: EngineDefaults
    log_rules: LineRules  # `engines.log_rules.LogRules`
    signs = LogSignature()
    import_rules: ImportRules | None = None  # None: no importer looks for it
    memory_setting: str | None = None  # the profile field that sets its share of memory, None if there is none
    share_flags: tuple[str, ...] = ()  # the names of the flag that sets this share, without dashes
    context_flags: tuple[str, ...] = ()  # the names of the flag that sets the longest context
    context_pattern = re.compile(r"\d{1,15}")  # what this flag accepts
    config_flags: tuple[str, ...] = ()  # the names of those that replace what config.json says
    prefix_cache_flags: tuple[tuple[str, ...], tuple[str, ...]] = ((), ())  # names of those that turn it on, and off
    version_source: tuple[str, str] | None = None  # a path that tells its version, and the field of its JSON
    temperature_flags: tuple[
        str, ...
    ] = ()  # names of that with the temperature of requests that have none: a number, or in JSON
    metrics_setting: str | None = None  # what turns /metrics on in a profile, None if it is on or not known
    metrics_path: str | None = None  # the path of its metrics in Prometheus' format, None if not known
    stats_words: tuple[str, ...] = ()  # of which every line for `parse_stats_line` contains one
    acceptance_steps: int | None = None  # it tells its acceptance as a gauge, once in so many steps; None: it counts
    api_key_variables: tuple[str, ...] = ()  # environment variables by which it requires a key from its clients
    api_key_obstacle = "no environment variable for one is known"  # why it has no such variable here
    flag_variable_prefix = ""  # it reads its flags from environment variables, too: their names begin so
    address_variables: tuple[str, ...] = ()  # environment variables that give a rank its own address
    process_titles: tuple[str, ...] = ()  # how the titles of its processes begin; nothing that a person types
    shm_names: tuple[str, ...] = ()  # how its files in /dev/shm begin
    proposed_settings: str | None = (
        None  # YAML of a profile for a model without one; its image is that of `proposed_like`
    )
    proposed_like: str | None = None  # a shipped profile
    is_any_program: bool = (
        False  # it stands for programs that are not known: its title says nothing, and it tells no figures
    )
    reads_gguf: bool = False  # its checkpoints are GGUF files
    bench_fields: tuple[tuple[str, str], ...] = ()  # fields of a request without which the load generator's are refused

    def build_command(self, profile: Profile) -> tuple[str, ...]:
        """Return the container's command: launch words, then model, host, port, served name, then ``args``."""
        raise NotImplementedError

    def build_rank_command(self, words: tuple[str, ...], rank: EngineRank) -> tuple[str, ...]:
        """Return the command of one rank of several, based on `build_command`, for the engine's own distributed
        runtime.

        Raises `InvalidInput` for an engine without one here, and for flags that only sparkctl can set for each rank.
        """
        raise NotImplementedError

    def list_ssh_key_mounts(self, rank: EngineRank) -> tuple[str, ...]:
        """Return the mounts, as a profile writes them, of the SSH keys with which the ranks log in to each other; mostly none."""
        return ()

    def must_start_head_first(self, words: tuple[str, ...]) -> bool:
        """Tell whether the head starts before the workers; otherwise it starts last."""
        return False

    def classify_line(self, line: str) -> LineSignal | None:
        """Return what a prepared line says, None for nothing. Called for every line, so a cheap check comes first."""
        return self.log_rules.classify_line(line)

    def depends_on_digits(self, line: str, shape: str) -> bool:
        """Tell whether `classify_line` may tell ``line`` from another one of the same shape (see ``logs.line_effects``)."""
        return self.log_rules.depends_on_digits(line, shape)

    def find_api_key(self, profile: Profile) -> str | None:
        """Return the key that its HTTP API requires: the value of ``--api-key``, the first one if there are several."""
        from sparkctl.model.profile import FlagValues  # reading a log needs no profile

        for key, value in profile.args:
            if key.lstrip("-").replace("_", "-") == "api-key":
                if isinstance(value, str):
                    return value
                several = value.words if isinstance(value, FlagValues) else value
                if isinstance(several, tuple) and several:
                    return several[0]
        return None

    def read_decoding_settings(self, words: tuple[str, ...]) -> DecodingSettings:
        """Return how a command line (from `build_command`) decodes, by this engine's flags."""
        return DecodingSettings()

    def parse_metrics(self, page: str) -> EngineMetrics:
        """Return one reading of /metrics (Prometheus text). Raises MetricsUnreadable for anything else."""
        return EngineMetrics()

    def parse_stats_line(self, line: str) -> StatsLine | None:
        """Return the engine's figures in a prepared line, None for any other line. Cheap: checks the beginning first."""
        return None
