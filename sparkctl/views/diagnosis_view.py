"""A diagnosis of a log as text, and as the document of ``diagnose --json`` (schema 1)."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace

from sparkctl.engines.base import FailureWeight
from sparkctl.logs.analyzer import FailureCandidate, LogDiagnosis, LogReading
from sparkctl.model.engine_metrics import NO_GPU_PATH, EngineFact, EngineFactName
from sparkctl.model.phase import PhaseDuration, Step
from sparkctl.model.text.sanitize import sanitize_line, truncate_text
from sparkctl.model.text.units import format_duration
from sparkctl.model.verdict import CAUSE_MEANINGS, Verdict
from sparkctl.views.event_text import format_phase_name, format_step_name, format_verdict

SCHEMA = 1
_FEW_ACCEPTED = 0.15  # of the drafts
_FACT_REMEDIES = {
    EngineFactName.NETWORK: "between two Sparks sockets are several times slower than RDMA: give the container /dev/infiniband "
    "(container.devices) and container.ulimits: memlock: -1, and leave env.NCCL_IB_DISABLE, NCCL_NET and NCCL_IB_HCA to sparkctl; "
    "on one Spark nothing",
    EngineFactName.GPU_CODE: "take an image, or make a build, for 12.1 (CMAKE_CUDA_ARCHITECTURES=121): the driver translates older "
    "code at the first start, and the native FP4 kernels are missing",
    EngineFactName.TRAINED_CONTEXT: "beyond that length answers get worse or make no sense, without an error: lower the context "
    "(args.ctx-size), unless the model's page names the longer one with its rope scaling",
    EngineFactName.CHAT_TEMPLATE: "take one that was made for this engine: mount the file and name it (chat-template, "
    "llama.cpp: chat-template-file); without the model's own, tool calls are lost. A base model has none: take the instruct model",
    EngineFactName.PREFIX_CACHE: "each turn of a long conversation reads all of it again: models with recurrent layers or sliding "
    "windows do that in this version; a newer image may keep their state",
    EngineFactName.WAITING_REQUESTS: "if it stays so, the request asks for more KV cache than there is, and is never admitted: lower "
    "what it asks for or the context length, or give the cache more memory",
}
_NOT_FOUND_REMEDY = (
    "a client asks for a model of another name, or for a path that this server does not have: `model` has to be the served name, "
    "which GET /v1/models tells"
)
_REFUSED_REMEDY = (
    "the server is in order: the request has to be another, or the model's chat template one that takes it"
)
_LABEL_COLUMNS = 10  # width of the label column
_MIN_PART_SECONDS = 0.05  # seconds; shorter parts are not listed
_COUNT_FACTS = (EngineFactName.KV_CACHE_TOKENS, EngineFactName.CONTEXT_LENGTH, EngineFactName.MAX_CONCURRENCY)
# A value, not the words of a sentence that goes on after the colon; one typed as a bare flag is true in a profile.
_ARGUMENT_PATTERN = re.compile(
    r"\bargs\.(?P<name>[A-Za-z][\w-]*)(?:: (?:true|(?P<value>\d[\d.]*(?<!\.)|[A-Z]{2,}|mp|on|off|none|chatml|[a-z]\w*_\w+))\b)?"
)


def format_diagnosis(found: LogDiagnosis, title: Callable[[str], str], instance: str | None) -> list[str]:
    """Return a diagnosis as lines: engine, progress, times, facts and the reason of the failure.

    ``title`` returns the name of an engine; ``instance`` is set if there is one to start again.
    """
    lines = [_format_headline(found, title)]
    if found.runs > 1:
        proof = None if found.verdict is None else next((one.line for one in found.verdict.evidence if one.line), None)
        is_before = proof is not None and proof < found.run_began
        told = (
            f"the last one, from line {found.run_began} on, breaks off: this is how the one before it ended"
            if is_before
            else f"this is the last one, from line {found.run_began} on"
        )
        lines.append(f"{'runs':{_LABEL_COLUMNS}}{found.runs} in this log; {told}")
    lines += (
        [f"{'took':{_LABEL_COLUMNS}}{_format_durations(found.parts)}"]
        if sum(one.seconds for one in found.parts) >= _MIN_PART_SECONDS
        else []
    )
    lines += [
        f"{'' if at else 'it says':{_LABEL_COLUMNS}}{sanitize_line(one.what)}: {_format_seconds(one.seconds)} (line {one.line})"
        for at, one in enumerate(found.took)
    ]
    for at, fact in enumerate(found.facts):
        slow = "   (no GPU was found)" if fact.is_fallback and fact.value == NO_GPU_PATH else _describe_fallback(fact)
        lines.append(
            f"{'' if at else 'facts':{_LABEL_COLUMNS}}{fact.name.replace('_', ' ')}: {_format_fact_value(fact)}{slow}"
        )
        if remedy := _suggest_for_fact(fact):
            lines.append(f"{'':{_LABEL_COLUMNS}}  to do: {remedy}")
    lines.append("")
    if found.verdict is not None:
        return [*lines, *format_verdict(_adapt_verdict(found.verdict, instance))]
    if found.before is not None:
        before = _adapt_verdict(found.before, instance)
        lines += ["The run before it ended with:", *(f"  {line}" for line in format_verdict(before)), ""]
    return [*lines, _describe_no_failure(found)]


def _describe_fallback(fact: EngineFact) -> str:
    """Return what a slow path means, blank where the value says it itself: layers on the CPU, no flash attention."""
    is_format = fact.name is EngineFactName.QUANTIZATION_PATH and "layers on the GPU" not in fact.value
    return "   (not with the GPU's own arithmetic for it)" if fact.is_fallback and is_format else ""


def _suggest_for_fact(fact: EngineFact) -> str | None:
    """Return what to do about a fact, None for one in order."""
    if fact.is_fallback and fact.name is EngineFactName.QUANTIZATION_PATH:
        from sparkctl.monitor.findings.node_detectors import suggest_for_slow_path

        return suggest_for_slow_path(fact)
    if fact.name is EngineFactName.REFUSED_REQUEST:
        return _NOT_FOUND_REMEDY if fact.value.endswith(": 404") else _REFUSED_REMEDY
    if fact.name in _FACT_REMEDIES:
        return _FACT_REMEDIES[fact.name]
    if fact.name is EngineFactName.DRAFT_ACCEPTANCE and fact.share is not None and fact.share <= _FEW_ACCEPTED:
        from sparkctl.monitor.findings.engine_detectors import REJECTED_DRAFTS_REMEDY

        return f"if it stays so low, drafts cost more than they give: {REJECTED_DRAFTS_REMEDY}"
    return None


def build_diagnosis_json(found: LogDiagnosis, source: str, instance: str | None, node: str | None) -> dict[str, object]:
    """Return the JSON document. Keys may be added, never renamed. Lines count from 1, times are seconds."""
    verdict = found.verdict
    return {
        "schema": SCHEMA,
        "engine": found.engine,
        "version": found.version,
        "phase": str(found.phase),
        "step": found.step,
        "ready": found.ready,
        "unproved": None if found.unproved is None else sanitize_line(found.unproved),
        "verdict": None if verdict is None else _build_verdict_json(_adapt_verdict(verdict, instance)),
        "contributing": [_build_verdict_json(_adapt_verdict(one, instance)) for one in verdict.contributing]
        if verdict
        else [],
        "facts": {str(one.name): sanitize_line(one.value) for one in found.facts},
        "fallbacks": [str(one.name) for one in found.facts if one.is_fallback],
        "seconds": [{"phase": str(one.phase), "step": one.step, "seconds": one.seconds} for one in found.parts],
        "took": [{"what": sanitize_line(one.what), "seconds": one.seconds, "line": one.line} for one in found.took],
        "lines": found.lines,
        "runs": found.runs,
        "run_began": found.run_began,
        "before": None if found.before is None else _build_verdict_json(_adapt_verdict(found.before, instance)),
        "source": sanitize_line(source),
        "instance": instance,
        "node": node,
    }


_WEIGHT_WORDS = {
    FailureWeight.AFTERMATH: "it only reports that something failed before",
    FailureWeight.DYING: "it announces a shutdown",
    FailureWeight.LOST: "it reports a lost process",
    FailureWeight.EXCEPTION: "it is an error that sparkctl does not know",
    FailureWeight.DEATH: "it reports that a process ended",
    FailureWeight.LIKELY: "it names the kind of fault",
    FailureWeight.CONCRETE: "it names the cause",
}
_MAX_LISTED = 12  # tracebacks and candidates at most, each
_EXPLAINED_CHARS = 60  # characters of a quoted line
_CHAIN_LINES = 5  # lines from one traceback's end to the next one's beginning, where Python chains them


def format_reading(found: LogDiagnosis) -> list[str]:
    """Return how a log was read: what told the engine and its version, the tracebacks, the candidates, and the choice."""
    reading = found.reading
    if reading is None:
        return []
    lines = [
        "",
        "how it was read" + (", from its last line to its first: the newest stands first" if reading.is_turned else ""),
    ]
    by = reading.engine_line
    unseen = "no line names one" if found.engine is None else "not by a line, but by its container or --engine"
    whose = unseen if by is None else f"by line {by[0]}: {_quote(by[1])}"
    lines.append(f"{'engine':{_LABEL_COLUMNS}}{found.engine or 'unknown'}, {whose}")
    if found.version and reading.version_line:
        lines.append(f"{'version':{_LABEL_COLUMNS}}{sanitize_line(found.version)}, by line {reading.version_line}")
    for at, block in enumerate(reading.tracebacks[:_MAX_LISTED]):
        before = reading.tracebacks[at - 1] if at else None
        goes_on = before is not None and 0 < block.first - before.last <= _CHAIN_LINES
        words = f"lines {block.first}-{block.last}{', which follow from the error before' if goes_on else ''}: {_quote(block.exception)}"
        lines.append(f"{'' if at else 'errors':{_LABEL_COLUMNS}}{words}")
    lines += _format_rest(len(reading.tracebacks))
    for at, one in enumerate(reading.candidates[:_MAX_LISTED]):
        lines.append(f"{'' if at else 'found':{_LABEL_COLUMNS}}{_format_candidate(one)}")
    lines += _format_rest(len(reading.candidates))
    return [*lines, f"{'choice':{_LABEL_COLUMNS}}{_explain_choice(found, reading)}"]


def build_reading_json(reading: LogReading) -> dict[str, object]:
    """Return how a log was read, for ``--explain --json``."""
    return {
        "engine_line": None if reading.engine_line is None else reading.engine_line[0],
        "version_line": reading.version_line,
        "tracebacks": [
            {"first": one.first, "last": one.last, "exception": one.exception} for one in reading.tracebacks
        ],
        "candidates": [
            {
                "line": one.line,
                "cause": str(one.cause),
                "weight": one.weight,
                "rule": one.rule,
                "survived": one.survived,
            }
            for one in reading.candidates
        ],
        "chosen": reading.root,
    }


def _quote(text: str) -> str:
    return truncate_text(sanitize_line(text), _EXPLAINED_CHARS)


def _format_rest(count: int) -> list[str]:
    return [f"{'':{_LABEL_COLUMNS}}and {count - _MAX_LISTED} more"] if count > _MAX_LISTED else []


def _format_candidate(one: FailureCandidate) -> str:
    rule = f' ("{_quote(one.rule)}")' if one.rule else ""
    end = "; the engine went on after it" if one.survived else ""
    # One told of another weighs between.
    words = next(words for weight, words in reversed(_WEIGHT_WORDS.items()) if weight <= one.weight)
    if one.is_handled:
        words = "another error came up while it was handled"
    return f"line {one.line}, {one.cause}: {words}{rule}{end}"


def _explain_choice(found: LogDiagnosis, reading: LogReading) -> str:
    verdict = found.verdict
    if verdict is None:
        return "no failure: " + ("the engine went on after each of them" if reading.candidates else "no line shows one")
    root = next((one for one in reading.candidates if one.line == reading.root), None)
    if root is None or not any(one.line == root.line for one in verdict.evidence):
        return f"no line shows the cause, so it is how the log ends that decides; {verdict.confidence}"
    rivals = [one for one in reading.candidates if one.line != root.line and not one.survived]
    is_first = any(one.weight == root.weight for one in rivals)
    why = (
        "the first of the lines that tell the most"
        if is_first
        else "it tells more than the others"
        if rivals
        else "no other line shows a failure"
    )
    return f"line {root.line}, {why}; {verdict.confidence}"


def format_causes() -> list[str]:
    """Return the closed set of causes with the meaning of each."""
    wide = max(map(len, CAUSE_MEANINGS))
    return [f"{cause:{wide}}  {meaning}" for cause, meaning in CAUSE_MEANINGS.items()]


def format_remedy_as_flags(remedy: str) -> str:
    """Return a remedy for a log without a profile, as flags; the first also with its profile field."""
    first = True

    def format_flag(found: re.Match[str]) -> str:
        nonlocal first
        dashes = "-" if len(found["name"]) == 1 else "--"
        flag = f"{dashes}{found['name']}" + (f" {found['value']}" if found["value"] else "")
        note, first = (f" (in a profile: {found[0]})" if first else ""), False
        return flag + note

    return _ARGUMENT_PATTERN.sub(format_flag, remedy).replace(") (", "; ")  # one note in brackets, not two


def _adapt_verdict(verdict: Verdict, instance: str | None) -> Verdict:
    return verdict if instance else replace(verdict, remedy=format_remedy_as_flags(verdict.remedy))


def _format_fact_value(fact: EngineFact) -> str:
    if fact.name is EngineFactName.AVAILABLE_AT_LOAD:
        return f"{sanitize_line(fact.value)} GiB"
    return f"{int(fact.value):,}" if fact.name in _COUNT_FACTS and fact.value.isdecimal() else sanitize_line(fact.value)


def _format_seconds(seconds: float) -> str:
    return "under 1 s" if seconds < 1 else format_duration(seconds)


def _format_headline(found: LogDiagnosis, title: Callable[[str], str]) -> str:
    if found.engine is None:
        return f"no known engine's log   {_format_line_count(found.lines)}"
    whose = f"{title(found.engine)} {sanitize_line(found.version)}" if found.version else title(found.engine)
    step = f" ({format_step_name(Step(found.step))})" if found.step else ""
    far = "it was ready" if found.ready else f"not ready, it reached: {format_phase_name(found.phase)}{step}"
    return f"{whose}   {far}   {_format_line_count(found.lines)}"


def _format_line_count(lines: int) -> str:
    return "1 line" if lines == 1 else f"{lines:,} lines"


def _format_durations(parts: tuple[PhaseDuration, ...]) -> str:
    lines = [
        f"{format_step_name(Step(one.step)) if one.step else format_phase_name(one.phase)} {_format_seconds(one.seconds)}"
        for one in parts
    ]
    return f"{_format_seconds(sum(one.seconds for one in parts))}: {', '.join(lines)}"


def _describe_no_failure(found: LogDiagnosis) -> str:
    if found.unproved is not None:
        return f"Nothing has failed so far, but its start is not proved: {sanitize_line(found.unproved)}."
    if not found.lines:
        return "The log holds no text: it is empty, or contains only zeros, as after a full disk or a crash."
    if found.ready and found.stopped_at is not None:
        return "No failure found. The log ends with an orderly shutdown."
    if found.ready:
        return "No failure found. The log ends while it was serving."
    if found.stopped_at is not None:
        return f"No failure found. It was asked to stop before it was ready (line {found.stopped_at})."
    if not found.sounds_like_an_engine:
        return "This does not look like an engine's log."
    return "No failure found, and it was not ready: the log breaks off, or it was still starting."


def _build_verdict_json(verdict: Verdict) -> dict[str, object]:
    edit = verdict.edit
    return {
        "cause": str(verdict.cause),
        "confidence": str(verdict.confidence),
        "summary": sanitize_line(verdict.summary),
        "evidence": [
            {"line": one.line, "text": sanitize_line(one.text), "origin": one.origin} for one in verdict.evidence
        ],
        "remedy": [sanitize_line(one) for one in (verdict.remedy, verdict.again) if one],
        "again": None if verdict.again is None else sanitize_line(verdict.again),
        "field": verdict.field,
        "edit": None if edit is None else {
            "field": edit.field, "value": sanitize_line(edit.value), "was": edit.was, "is_first_try": edit.is_first_try
        },
    }  # fmt: skip
