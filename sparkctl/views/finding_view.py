"""Findings as text: what is wrong, why it matters, since when, and what to do."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence

from sparkctl.model.events import CommandEnded, FindingReported, GuardActed
from sparkctl.model.finding import Finding, Severity
from sparkctl.model.finding import FindingKind as Kind
from sparkctl.model.lazy_dataclass import dataclass
from sparkctl.model.node import NodeState
from sparkctl.model.phase import Phase
from sparkctl.model.text.sanitize import sanitize_line, sanitize_lines
from sparkctl.model.text.units import format_duration, format_time_of_day
from sparkctl.monitor.event_log import EventLogEntry
from sparkctl.monitor.node_views import NodeTelemetryView
from sparkctl.views.event_log_view import describe_log_entry
from sparkctl.views.event_text import format_verdict
from sparkctl.views.text.line_wrap import wrap_line, wrap_row, wrap_text
from sparkctl.views.text.styled_text import (
    Span,
    TextRow,
    TextStyle,
    get_severity_style,
    get_state_symbol,
    join_text,
    make_row,
    sanitize_span,
)

_INDENT_COLUMNS, _HANG_COLUMNS = 4, 6
_CHECK_COLUMNS = max(map(len, Kind))  # no name breaks the column
LABEL_COLUMNS = 7  # width of the label column of a finding's details
_JUST_NOW_SECONDS = 1.0  # seconds; a younger finding began with the newest sample


def format_finding(found: FindingReported) -> list[str]:
    """Return one line for a finding, and its remedy in a second line if it has one."""
    lines = [f"  {get_state_symbol(found.severity)} {found.check:{_CHECK_COLUMNS}}  {sanitize_line(found.message)}"]
    if found.remedy:
        lines.append(f"    {'':{_CHECK_COLUMNS}}  try: {sanitize_line(found.remedy)}")
    return lines


def format_answer_check(found: FindingReported) -> list[str]:
    """Return the lines of one check of an engine's answers: its result, the evidence, what to do."""
    lines = [f"{get_state_symbol(found.severity)} {sanitize_line(found.message)}"]
    lines += [f"  {one.name:6} {sanitize_line(one.value)}" for one in found.evidence]
    return [*lines, f"  try    {sanitize_line(found.remedy)}"] if found.remedy else lines


def format_node_findings(
    findings: Sequence[Finding], now: float, width: int | None, wanted: Collection[str] | None
) -> list[str]:
    """Return the findings of a node as lines of at most ``width`` columns; see `_render_node_findings`."""
    rows = _render_node_findings(findings, now, wanted)
    return [line for row in rows for line in wrap_line(join_text(row), width, _HANG_COLUMNS)]


def _render_node_findings(
    findings: Sequence[Finding], now: float, wanted: Collection[str] | None = None
) -> Iterator[TextRow]:
    """Yield the findings of a node as rows: the sentence, since when, its evidence, the remedy.

    ``now`` is Unix time in seconds by the node's own clock, like ``since``. ``wanted`` names the optional rows that
    have room, such as ``proof 0`` and ``try 0`` for the first finding; None: all.
    """
    for index, one in enumerate(findings):
        proven = wanted is None or f"proof {index}" in wanted
        since = format_since(one.since, now)
        words = sanitize_line(one.summary) + ("" if proven else f" · {since}")
        yield _render_problem_head(get_state_symbol(one.severity), get_severity_style(one.severity), words)
        if proven:
            yield _render_problem_detail(" · ".join([*map(str, one.evidence), since]), TextStyle.LABEL)
        if one.remedy and (wanted is None or f"try {index}" in wanted):
            yield _render_problem_detail(f"try: {one.remedy}", TextStyle.PLAIN)


def _render_problem_head(sign: str, tone: TextStyle, words: str) -> TextRow:
    return make_row(Span(" " * _INDENT_COLUMNS), Span(f"{sign} ", tone), sanitize_span(words, TextStyle.STRONG))


def _render_problem_detail(words: str, tone: TextStyle) -> TextRow:
    return make_row(Span(" " * _HANG_COLUMNS), sanitize_span(words, tone))


def format_since(since: float | None, now: float) -> str:
    """Return since when a finding holds; both times are Unix time in seconds by the node's clock."""
    if since is None:
        return "since before the first reading"
    return "since just now" if now - since < _JUST_NOW_SECONDS else f"for {format_duration(now - since)}"


FINDING_EXPLANATIONS: dict[Kind, str] = {
    Kind.STUCK_CLOCK: "At this clock the GPU decodes at a fraction of its speed, whatever the engine's settings are.",
    Kind.SLOW_PATH: "The GPU's own arithmetic for the format is not used: that costs time while prompts are read, not always while it decodes.",
    Kind.BELOW_REFERENCE: "Another Spark was faster with much the same settings: something here differs from its set-up.",
    Kind.THERMAL: "A GPU that is too hot slows down, and the engine with it.",
    Kind.BUSY_WAIT: "It uses power and cooling that the GPU could use, and serves no request.",
    Kind.SWAP: "An engine in swap takes minutes to answer, and the node may freeze without an out-of-memory message.",
    Kind.PAGE_CACHE: "Engines look at free memory, which excludes page cache: a start can fail although there is enough memory.",
    Kind.IDLE_FUNCTION: "The link has two functions that share its speed: with one idle, half of it is left unused.",
    Kind.FABRIC_ROUTE: "Sparks that run one model together would use the slow network.",
    Kind.GID: "With another GID than its partner's, RDMA fails or falls back to TCP.",
    Kind.RDMA_OFF: "Without RDMA, traffic between Sparks goes through the CPU.",
    Kind.DISK: "A full disk stops Docker, logs and the download of models.",
    Kind.ORPHAN: "It holds memory that the next start needs.",
    Kind.RESTART_LOOP: "Each of its restarts takes memory and disk throughput from everything else.",
    Kind.NOT_GENERATING: "It accepts requests but answers none: its clients wait in vain.",
    Kind.ANSWERS: "It is ready and gives tokens, but clients cannot use what it answers.",
    Kind.STALLED: "Its clients wait in vain, and its health check does not see it.",
    Kind.DRAFTS_REJECTED: "Drafting and verifying take time in every step; without accepted drafts the engine is slower than without drafts.",
    Kind.PREFIX_CACHE: "Without it each turn of a session reads the whole session again: tens of seconds on a Spark.",
    Kind.PREFILL_STARVES: "Users see the answer stop, and clients may give up.",
    Kind.KV_FULL: "A preempted request has its whole context computed again, and then displaces another one.",
    Kind.PARTNER: "A model on several Sparks needs all of them; a rank that is left alone only wastes memory.",
    Kind.MIN_FREE: "Engines cannot use memory that the kernel keeps for itself.",
    Kind.SWAPPINESS: "Page cache is read again in seconds; an engine that was swapped out crawls.",
    Kind.EARLYOOM: "It must act before the kernel does, but not while engines run normally.",
    Kind.DIFFERENCE: "Engines that span two Sparks fail on unlike drivers, and figures do not compare.",
    Kind.SETTINGS: "The active and the saved setting should be equal, or a restart changes it.",
    Kind.KERNEL: "The kernel sees what no engine's log can show: kills, GPU faults, failing devices.",
    Kind.LAST_BOOT: "What ended the machine may end it again; the last lines before it are the only evidence.",
    Kind.KNOWN_BAD: "Other owners met this fault with this version; the source is in the evidence.",
    Kind.KHO: "No engine can use that memory until the node boots without it.",
    Kind.VERSIONS: "What an engine supports depends on these versions; every bug report needs them.",
    Kind.CONNECTION: "sparkctl does everything on a node through this SSH connection.",
    Kind.CLOCK: "Logs of two nodes are merged by their clocks, and `--since` uses the node's clock.",
    Kind.MEMORY: "The GPU has no memory of its own: it shares this memory.",
    Kind.DROP_CACHES: "sparkctl drops the page cache before a start, because otherwise engines find too little free memory.",
    Kind.KERNEL_LOG: "Without it nobody can say why a container was killed.",
    Kind.PYTHON: "The live figures come from a small program on the node that needs it.",
    Kind.DOCKER: "Engines run in its containers.",
    Kind.GPU: "Without it a container starts but finds no GPU.",
    Kind.OPEN_SERVER: "Anyone on that network can use the model and slow down your own requests.",
    Kind.NVIDIA_SMI: "It shows how much GPU memory each process holds.",
    Kind.MODELS: "Profiles mount models from there.",
    Kind.FABRIC: "A model over several Sparks is as fast as the slowest lane between them.",
    Kind.RDMA: "With RDMA, traffic between Sparks bypasses the CPU; NCCL must use the right GID index.",
}


def explain_finding(check: str) -> str | None:
    """Return why a check matters; None for a check that this version does not know."""
    return FINDING_EXPLANATIONS[Kind(check)] if check in set(Kind) else None


def render_finding(found: FindingReported, seen: str, columns: int, *, is_read: bool = False) -> list[TextRow]:
    """Return what is wrong (unless ``is_read`` in a list), when it was ``seen``, its figures, why it matters, what to do."""
    parts = [
        ("what", "" if is_read else found.message, TextStyle.VALUE),
        ("seen", " · ".join([seen, *map(str, found.evidence)]), TextStyle.LABEL),
        ("why", "" if found.severity is Severity.GOOD else explain_finding(found.check), TextStyle.LABEL),
        ("do", found.remedy, TextStyle.KEY),
    ]
    return [
        row
        for name, words, tone in parts
        for row in wrap_text(words or "", columns, tone, head=(Span(f"{name:<{LABEL_COLUMNS}}", TextStyle.UNIT),))
    ]


_BAD_STYLES = (TextStyle.BAD, TextStyle.ATTENTION)
_MAX_GUARD_ACTIONS = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeProblems:
    """Everything wrong with a node at ``now`` (Unix time in seconds by its own clock). ``view`` is None if nothing is
    known.

    ``ends``: how starts ended, by instance. ``notices``: results of the last actions there. ``fault`` and ``hint``:
    an error of the config.
    """

    view: NodeTelemetryView | None
    now: float
    ends: Mapping[str, CommandEnded]
    happened: Sequence[EventLogEntry] = ()
    notices: Sequence[tuple[str, TextStyle]] = ()
    fault: str | None = None
    hint: str | None = None

    @property
    def has_other_problems(self) -> bool:
        """Tell whether there are problems that are not findings."""
        return bool(
            self.fault or self.is_unreachable or self.failed_instances or self.guard_actions or self.bad_notices
        )

    @property
    def is_unreachable(self) -> bool:
        """Tell whether the node does not answer for a known reason."""
        return self.view is not None and self.view.state is not NodeState.OK and bool(self.view.detail)

    @property
    def failed_instances(self) -> tuple[tuple[str, CommandEnded | None, str | None], ...]:
        """The instances that failed: name, cause if known, and the text of the last phase."""
        there = {one.name: one for one in (self.view.instances if self.view else ())}
        listed = {name: one for name, one in there.items() if one.ours and one.phase is Phase.FAILED}
        gone = [name for name, end in self.ends.items() if end.verdict is not None and name not in there]
        return (
            *((name, self.ends.get(name), one.detail) for name, one in listed.items()),
            *((name, self.ends[name], None) for name in gone),
        )

    @property
    def guard_actions(self) -> tuple[EventLogEntry, ...]:
        """What the guard warned of or did recently, the latest last."""
        mine = [one for one in self.happened if self.view is not None and one.node == self.view.name]
        return tuple(one for one in mine if isinstance(one.event, GuardActed))[-_MAX_GUARD_ACTIONS:]

    @property
    def bad_notices(self) -> tuple[tuple[str, TextStyle], ...]:
        """Notices of failures with their styles, without those whose details are shown here anyway."""
        failed = [name for name, end, _ in self.failed_instances if end is not None]
        return tuple(
            (words, tone)
            for words, tone in self.notices
            if tone in _BAD_STYLES and "guard: " not in words and not any(f" {name} failed" in words for name in failed)
        )


def render_problems(wrong: NodeProblems, columns: int) -> list[TextRow]:
    """Return all problems as rows: the symbol and the sentence of each stand out, its evidence is faint, what to do is not."""
    rows: list[TextRow] = []

    def add_problem(
        words: str, details: Sequence[str] = (), hint: str | None = None, tone: TextStyle = TextStyle.BAD
    ) -> None:
        sign = get_state_symbol(Phase.FAILED if tone is TextStyle.BAD else Severity.WARNING)
        rows.extend(wrap_row(_render_problem_head(sign, tone, words), columns, _HANG_COLUMNS))
        for line in details:
            rows.extend(_render_detail(line.strip(), columns))
        if hint:
            rows.extend(wrap_row(_render_problem_detail(f"try: {hint}", TextStyle.PLAIN), columns, _HANG_COLUMNS))

    if wrong.fault:
        add_problem("the config is invalid; the previous one stays in use", sanitize_lines(wrong.fault), wrong.hint)
    view = wrong.view
    if wrong.is_unreachable and view is not None:
        add_problem(f"{view.state}: {view.detail}", hint=view.hint)
    for name, end, detail in wrong.failed_instances:
        if end is not None and end.verdict is not None:
            add_problem(f"{name} failed", format_verdict(end.verdict))
        else:
            add_problem(f"{name} failed" + (f": {detail}" if detail else "; enter on it says why"))
    for one in wrong.guard_actions:
        text, tone = describe_log_entry(one)
        add_problem(f"guard, {format_time_of_day(one.when, has_seconds=True)}: {text}", tone=tone)
    for words, tone in wrong.bad_notices:
        rows += wrap_row(make_row(" " * _INDENT_COLUMNS, sanitize_span(words, tone)), columns, _HANG_COLUMNS)
    return rows + _render_findings_of(view, wrong.now, columns)


def _render_findings_of(view: NodeTelemetryView | None, now: float, columns: int) -> list[TextRow]:
    found = () if view is None else view.findings
    return [part for row in _render_node_findings(found, now) for part in wrap_row(row, columns, _HANG_COLUMNS)]


def render_findings_elsewhere(views: Sequence[NodeTelemetryView], columns: int) -> list[TextRow]:
    """Return the findings of other Sparks, which have some, below the name of each."""
    rows: list[TextRow] = []
    for view in views:
        now = view.sample.time if view.sample is not None else view.findings[0].since or 0.0
        rows += [(), make_row(sanitize_span(view.name, TextStyle.TITLE)), *_render_findings_of(view, now, columns)]
    return rows


def _render_detail(line: str, columns: int) -> list[TextRow]:
    """Return a line of a proof, wrapped; what follows a label and a gap stays beside it."""
    label = re.match(r"[a-z]+ {2,}", line)
    head = make_row(" " * _HANG_COLUMNS, Span("" if label is None else label[0], TextStyle.LABEL))
    return wrap_text(line if label is None else line[label.end() :], columns, TextStyle.LABEL, head=head)
