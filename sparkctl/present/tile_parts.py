"""The rows of a tile, each part with how much it matters: where there is no room the least important go first."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from sparkctl import engines
from sparkctl.core.bandwidth import of_instance, of_node, why_blank
from sparkctl.core.parts import parts_of
from sparkctl.model.engine_facts import FactName
from sparkctl.model.finding import Severity
from sparkctl.model.instance import InstanceView
from sparkctl.model.metrics import Activity, Numbers
from sparkctl.model.sample import Gpu
from sparkctl.model.units import GIB
from sparkctl.present import numbers as words
from sparkctl.present.bars import Values, bridged, curve, scale_of
from sparkctl.present.fold import fold
from sparkctl.present.glance import COMING, Glance, instance_badge, old
from sparkctl.present.spans import Row, Span, Tone, cells, cut, cut_text, ends, row, said, width
from sparkctl.present.symbols import symbol

LABEL = 8  # columns of the names of figures
_WINDOWS = (1, 2, 5, 15)  # minutes that curves show, the fewest that hold what is known
_BRIDGED = 10.0  # seconds without a reading that are no gap
_WIDEST_BAR = 88
_BESIDE = 19  # columns of what stands beside a bar: 102.8 of 121.7 GiB
_CURVE = 24  # cells of a curve within a row
_ROOMY = 64  # columns from which on badges have words of their own
_VERSION_TAG = re.compile(r"v?\d+\.\d")  # a bare number may be a build counter
_LEAST_LENGTHS = 0.4  # tokens a step: accept lengths that are nearer to each other are alike


@dataclass(frozen=True, slots=True)
class Part:
    """Rows that stay together. The higher ``spare``, the earlier they are left out. Of a curve ``grow`` returns it in so many
    rows, up to ``tallest``, where there is room to spare; nothing is left out for that. ``slot`` is which curve: those of
    several Sparks are equally tall."""

    spare: int
    rows: tuple[Row, ...]
    grow: Callable[[int], tuple[Row, ...]] | None = None
    slot: str = ""
    tallest: int = 1


@dataclass(frozen=True, slots=True)
class Space:
    """Room within the frame, in columns, and how it may be painted."""

    columns: int
    ascii_only: bool = False

    @property
    def is_wide(self) -> bool:
        """Tell whether two groups of figures stand beside each other."""
        return self.columns >= 72

    @property
    def bar(self) -> int:
        """Columns of every bar, so that all of them begin and end alike."""
        return max(4, min(_WIDEST_BAR, self.columns - LABEL - _BESIDE - 1))


def window(seen: Glance) -> int:
    """Return how many minutes the curves show."""
    span = 0.0 if seen.rings is None else seen.rings.span
    return next((minutes for minutes in _WINDOWS if minutes * 60 >= span), _WINDOWS[-1])


def smooth(values: Values, seconds: float) -> list[float | None]:
    """Return the values of equal stretches of so many seconds, those between two readings filled in."""
    return bridged(values, max(1, int(_BRIDGED * len(values) / seconds)))


def label(name: str) -> Span:
    """Return the name of a figure, as wide as all of them."""
    return Span(f"{name:<{LABEL}}", Tone.LABEL)


# --- what runs --------------------------------------------------------------------------------------------------------


def instance_row(one: InstanceView, space: Space, *, marked: bool, badge: bool, ready_for: float | None = None) -> Row:
    """Return name, engine with version, port; with its state where that stands nowhere else."""
    mark = (">" if space.ascii_only else "▸") if marked else " "
    left: list[Span] = [Span(f"{mark} ", Tone.ACCENT), said(one.name, Tone.TITLE)]
    if kind := engine_words(one):
        left.append(said(f"   {kind}", Tone.LABEL))
    if one.port is not None:
        left.append(Span(f"   :{one.port}", Tone.LABEL))
    if rank := rank_of(one):
        left.append(Span(f"   {rank}", Tone.LABEL))
    if not badge:
        return tuple(left)
    state = instance_badge(one, space.ascii_only, ready_for)
    held = f"{one.memory / GIB:6.1f} GiB" if one.memory is not None else ""
    return ends(tuple(left), row(Span(f"{state.sign} {state.word}", state.tone), Span(held, Tone.UNIT)), space.columns)


def engine_words(one: InstanceView) -> str:
    """Return ``SGLang 0.5.12``, of a foreign container its image. The version is what its log says, else its image's tag where
    that looks like one."""
    if one.engine is None:
        return one.image.rpartition("/")[2]
    name = engines.title(one.engine)
    version = next((fact.value for fact in one.facts if fact.name is FactName.ENGINE_VERSION), None)
    if version is not None and " " not in version:  # of SGLang's log it is only `0.5.12 or like it`
        return f"{name} {version}"
    tag = one.image.rpartition(":")[2] if ":" in one.image.rpartition("/")[2] else ""
    return f"{name} {tag.removeprefix('v')}" if _VERSION_TAG.match(tag) else name


def failure_rows(one: InstanceView, seen: Glance, space: Space) -> list[Row]:
    """Return what happened and the line that proves it."""
    end = seen.ends.get(one.name)
    verdict = None if end is None else end.verdict
    sentence = verdict.summary if verdict else one.detail or (one.status or "it ended")
    rows = folded("why", sentence, space, Tone.BAD, 2)
    if verdict is not None and verdict.evidence:
        proof = verdict.evidence[0]
        where = f"line {proof.line}  " if proof.line is not None else f"{proof.origin}  "
        rows += folded("proof", where + proof.text, space, Tone.VALUE, 1)
    if verdict is not None:
        rows += folded("try", verdict.remedy, space, Tone.VALUE, 2)
    return rows


def folded(name: str, sentence: str, space: Space, tone: Tone, most: int) -> list[Row]:
    """Return a sentence under its name, in ``most`` rows at most; what is left out is marked."""
    room = max(8, space.columns - LABEL)
    whole = [line.strip() for line in fold(said(sentence).text, room, 0)]
    lines = whole[:most]
    if len(whole) > most:
        lines[-1] = cut_text(lines[-1], room - 2) + " …"
    return [row(label(name if not at else ""), *cut((Span(line, tone),), room)) for at, line in enumerate(lines)]


# --- the engine's figures ---------------------------------------------------------------------------------------------


def decode_row(numbers: Numbers | None, space: Space) -> Row:
    """Return throughput, requests and KV cache; ``idle`` where no step happened."""
    if numbers is None:
        return row(label("decode"), Span(words.UNKNOWN, Tone.STALE))
    if numbers.activity is Activity.IDLE:
        return row(label("decode"), Span(words.IDLE, Tone.VALUE))
    speed = words.throughput(numbers)
    spans = [label("decode"), Span(f"{speed:<12}", Tone.STRONG)]
    if numbers.running is not None:
        spans += [Span(f"{numbers.running:3.0f}", Tone.VALUE), Span(" running", Tone.UNIT)]
    if numbers.waiting is not None and (numbers.waiting or space.columns >= 54):
        tone = Tone.ATTENTION if numbers.waiting else Tone.VALUE
        spans += [Span(f"{numbers.waiting:3.0f}", tone), Span(" waiting", Tone.UNIT)]
    if numbers.kv_usage is not None:
        spans += [Span("   KV", Tone.LABEL), Span(f" {words.percent(numbers.kv_usage):>5}", Tone.VALUE)]
    if width(spans) > space.columns:
        spans = [Span(" run", Tone.UNIT) if span.text == " running" else span for span in spans]
    return tuple(spans)


def rank_of(one: InstanceView) -> str:
    """Return ``rank 0 of 2 · head``; empty for one Spark alone."""
    if one.place is None:
        return ""
    index, count = one.place
    return f"rank {index} of {count}{' · head' if not index else ''}"


def head_words(one: InstanceView, head: InstanceView) -> Row:
    """Return where the model of an instance answers that serves nothing here, and how fast: the head's figures are the
    model's. Of two ranks it is the second; of more it is known only where a label says so."""
    if one.place is not None:
        told = row(Span("its head answers, on ", Tone.LABEL), said(head.node, Tone.VALUE))
    else:
        which = "rank 1" if parts_of(one) == 2 else "a worker"
        told = row(Span(f"{which} of the engine on ", Tone.LABEL), said(head.node, Tone.VALUE))
    if head.numbers is None:
        return told
    is_idle = head.numbers.activity is Activity.IDLE
    return row(*told, Span(f" · {words.IDLE if is_idle else words.throughput(head.numbers)}", Tone.VALUE))


def accept_row(one: InstanceView, seen: Glance, space: Space) -> Row | None:
    """Return draft acceptance with its trend; None where there are no drafts to judge."""
    numbers = one.numbers
    if numbers is None or (numbers.acceptance is None and numbers.activity is not Activity.DECODING):
        return None
    accepted = numbers.acceptance
    if accepted is None or (accepted.length is None and accepted.rate is None):
        return None if accepted is None else row(label("accept"), Span(words.acceptance(numbers), Tone.VALUE))
    spans = [label("accept")]
    if accepted.length is not None:
        spans += [Span(f"{accepted.length:.2f}", Tone.STRONG), Span(" per step", Tone.UNIT)]
    if accepted.rate is not None:
        spans += [Span(f"{words.percent(accepted.rate):>8}", Tone.VALUE), Span(" of drafts", Tone.UNIT)]
    return (*spans, *_curve(one, seen, space, space.columns - width(spans) - 2))


def uses_row(one: InstanceView, space: Space) -> Row | None:
    """Return by what it computes, as its log has told: the path of its numbers, attention, KV cache, requests at once; as
    much as there is room for, None where nothing of it is known."""
    told = {fact.name: fact for fact in one.facts}
    badges: list[Span] = []
    is_roomy = space.columns >= _ROOMY
    if (path := told.get(FactName.QUANTIZATION_PATH)) is not None:
        sign = f"{symbol(Severity.WARNING, space.ascii_only)} " if path.is_fallback else ""
        short = path.value.partition(" (")[0]
        badges.append(said(f"{sign}{short}", Tone.ATTENTION if path.is_fallback else Tone.GOOD))
    elif (kind := told.get(FactName.QUANTIZATION)) is not None:
        badges.append(said(kind.value, Tone.VALUE))
    if (attention := told.get(FactName.ATTENTION_BACKEND)) is not None:
        badges.append(said(f"{'attention ' if is_roomy else ''}{attention.value.lower()}", Tone.VALUE))
    if (kv := told.get(FactName.KV_CACHE_TOKENS)) is not None:
        badges.append(said(f"KV {_count(kv.value, short=not is_roomy)} tokens", Tone.VALUE))
    if (most := told.get(FactName.MAX_CONCURRENCY)) is not None:
        badges.append(said(f"{most.value} at once", Tone.VALUE))
    if (method := told.get(FactName.SPECULATIVE_METHOD)) is not None:
        badges.append(said(method.value, Tone.VALUE))
    shown = row(label("uses"))
    for at, badge in enumerate(badges):
        longer = row(*shown, *([Span(" · ", Tone.LABEL)] if at else []), badge)
        if width(longer) > space.columns:
            break
        shown = longer
    return shown if len(shown) > 1 else None


def _count(told: str, *, short: bool) -> str:
    """Return a count of tokens with its thousands apart, however the log spells it; ``short``: in millions, where it has any."""
    digits = told.replace(",", "")
    if not digits.isdecimal() or len(digits) > 15:
        return told
    return f"{int(digits) / 1e6:.2f} M" if short and len(digits) > 6 else f"{int(digits):,}"


def reads_row(one: InstanceView, seen: Glance, space: Space) -> Row | None:
    """Return the bandwidth that decoding takes: the GPU's own figure, or an estimate that says so; where an engine decodes
    and it cannot be told, a word why. None where nothing is decoded."""
    found = of_node(seen.view) or of_instance(one, seen.view)
    if found is None:
        if one.numbers is None or one.numbers.activity is not Activity.DECODING:
            return None
        why = "model.weights is not in the profile" if _lacks_weights(one) else why_blank(one.numbers, one.per_step)
        return cut(row(label("reads"), Span(words.UNKNOWN, Tone.STALE), Span(f"  {why}", Tone.LABEL)), space.columns)
    amount, _, shares = words.bandwidth(found).partition(" · ")
    room = space.columns - LABEL - cells(amount) - 2
    if cells(shares) > room:
        shares = shares.partition(", ")[0]
    rest = Span(f"  {shares}", Tone.LABEL) if shares and cells(shares) <= room else Span("")
    return row(label("reads"), Span(amount, Tone.VALUE), rest)


def short_row(one: InstanceView, seen: Glance, space: Space) -> Row | None:
    """Return throughput and acceptance in one row, None where there is no acceptance to tell."""
    numbers = one.numbers
    accepted = None if numbers is None else numbers.acceptance
    if numbers is None or accepted is None or accepted.length is None or numbers.activity is not Activity.DECODING:
        return None
    spans = [label("decode"), Span(f"{words.throughput(numbers):<12}", Tone.STRONG)]
    if numbers.running is not None:
        spans += [Span(f"{numbers.running:2.0f}", Tone.VALUE), Span(" run", Tone.UNIT)]
    if numbers.kv_usage is not None:
        spans += [Span("  KV", Tone.LABEL), Span(f" {words.percent(numbers.kv_usage):>5}", Tone.VALUE)]
    spans += [Span("   accept ", Tone.LABEL), Span(f"{accepted.length:.2f}", Tone.STRONG), Span("/step", Tone.UNIT)]
    if accepted.rate is not None:
        spans.append(Span(f" {words.percent(accepted.rate):>5}", Tone.VALUE))
    return (*spans, *_curve(one, seen, space, space.columns - width(spans) - 2))


def _lacks_weights(one: InstanceView) -> bool:
    return one.per_step is None or one.per_step.weights is None


def _curve(one: InstanceView, seen: Glance, space: Space, room: int) -> Row:
    """Return the trend of the accept length with its scale, nothing where there is no room or no reading for one."""
    drafting = seen.drafting.get(one.container_id or "")
    if drafting is None or room < 13:
        return ()
    wide = min(room - 9, _CURVE)
    seconds = window(seen) * 60.0
    lengths = smooth(drafting.cells(seen.now, seconds, wide * 2), seconds)
    scale = scale_of(lengths, _LEAST_LENGTHS, 1.0)
    if scale is None:
        return ()
    dash = "-" if space.ascii_only else "–"
    bounds = f"{scale.least:.1f}{dash}{scale.most:.1f}"
    return row("  ", *curve(lengths, scale, space.ascii_only), Span(f" {bounds}", Tone.UNIT))


def gpu_rows(seen: Glance, space: Space) -> list[Row]:
    """Return utilisation, clock, power and temperature of each GPU."""
    sample = seen.view.sample
    if sample is None:
        return [row(label("GPU"), Span(words.UNKNOWN, Tone.STALE))]
    if sample.gpu_silent_for is not None:
        return [row(label("GPU"), Span(f"no answer for {sample.gpu_silent_for:.0f} s", Tone.ATTENTION))]
    if not sample.gpus:
        return [row(label("GPU"), said(sample.gpu_trouble or words.UNKNOWN, Tone.ATTENTION))]
    return [_gpu_row(gpu, space) for gpu in sample.gpus]


def _gpu_row(gpu: Gpu, space: Space) -> Row:
    degrees = "C" if space.ascii_only else "°C"
    hot = Tone.ATTENTION if gpu.celsius is not None and gpu.celsius >= 85 else Tone.VALUE
    return row(
        label("GPU"), *_figure(None if gpu.busy is None else gpu.busy * 100, 3, "%"), *_figure(gpu.sm_clock, 7, "MHz"),
        *_figure(gpu.power, 6, "W"), *_figure(gpu.celsius, 5, degrees, hot),
    )  # fmt: skip


def _figure(value: float | None, wide: int, unit: str, tone: Tone = Tone.VALUE) -> Row:
    return row(Span(f"{words.UNKNOWN if value is None else f'{value:.0f}':>{wide}}", tone), Span(f" {unit}", Tone.UNIT))


# --- a node that does not answer --------------------------------------------------------------------------------------


def away_rows(seen: Glance, space: Space) -> list[Row]:
    """Return what was tried, when the next try is, and what to do."""
    told, rows = seen.told, []
    if told.detail:
        rows += folded("tried", told.detail, space, Tone.VALUE, 3)
    elif seen.address:
        rows.append(row(label(""), said(seen.address, Tone.STALE)))
    if told.next_try is not None:
        left = max(0.0, told.next_try - max(0.0, seen.now - told.ts))
        when = "now" if left < 1 else f"in {left:.0f} s"
        spans = [label("next"), Span(f"try {when}", Tone.VALUE)]
        if told.attempt is not None:
            spans.append(Span(f"   attempt {told.attempt} failed", Tone.UNIT))
        rows.append(tuple(spans))
    if told.hint:
        rows += folded("do", told.hint, space, Tone.VALUE, 2)
    if seen.view.sampled is not None:
        rows.append(row(label(""), Span(f"what follows is {old(seen.age)}", Tone.STALE)))
    return rows


def is_coming(one: InstanceView) -> bool:
    """Tell whether a start or a stop is under way."""
    return one.phase in COMING
