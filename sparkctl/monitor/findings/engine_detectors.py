"""Detects what an engine's own figures show: drafts for nothing, a lost prefix cache, starved and standing requests, a full KV cache.

Each is fed with the figures of the last ten seconds at every sample; an engine whose figures are not known proves nothing.
"""

from __future__ import annotations

import shlex
from dataclasses import dataclass

from sparkctl.model.engine_metrics import EngineActivity, EngineMeter
from sparkctl.model.finding import Finding, FindingEvidence, FindingKind, Severity
from sparkctl.model.instance import InstanceView
from sparkctl.model.phase import Phase
from sparkctl.monitor.findings import (
    MAX_SAMPLE_GAP,
    ConditionTimer,
    Detector,
    NodeSnapshot,
    PersistentCondition,
    get_container_key,
)


def list_engine_meters(snapshot: NodeSnapshot) -> list[tuple[InstanceView, EngineMeter]]:
    """Return our ready instances with known figures. A worker has none: it answers nobody."""
    shown = snapshot.instances or ()
    return [(one, one.numbers) for one in shown if one.ours and one.phase is Phase.READY and one.numbers is not None]


def _get_since(*standing: PersistentCondition | None) -> float | None:
    return next((one.since for one in standing if one is not None), None)


def _build_evidence(*figures: tuple[str, float | None, str, str | None]) -> tuple[FindingEvidence, ...]:
    """Return the known figures: name, value, format, unit."""
    return tuple(
        FindingEvidence(name, format(value, form), unit, "metrics")
        for name, value, form, unit in figures
        if value is not None
    )


REJECTED_DRAFTS_REMEDY = (
    "check that the draft model belongs to this checkpoint and its revision, and that its layers are not quantized "
    "in a way that the engine cannot read; try it without drafts (take the speculative flags out of args)"
)


class RejectedDraftsDetector(Detector):
    """Drafts are verified and thrown away.

    None accepted (length at most 1.02) in at least 40 drafted steps of a window, for 10 s: with an acceptance of only 20 % that
    happens by chance once in ten thousand times. Or for three minutes under 15 % and under half a token a step: a draft model costs
    more than it gives. Drafts without a model (n-gram) cost little, so they are only a note.
    """

    NONE, STEPS, SECONDS = 1.02, 40, 10.0
    RATE, LENGTH, FEW_SECONDS = 0.15, 1.5, 180.0

    def __init__(self) -> None:
        self._none, self._few = ConditionTimer(self.SECONDS), ConditionTimer(self.FEW_SECONDS)

    def detect(self, snapshot: NodeSnapshot) -> list[Finding]:
        """Return one finding for each instance whose drafts are in vain."""
        found = []
        for one, meter in list_engine_meters(snapshot):
            length, rate = (meter.acceptance.length, meter.acceptance.rate) if meter.acceptance else (None, None)
            steps = (meter.steps or 0.0) * (meter.seconds or 0.0) * (meter.batch or 1.0)
            is_known = meter.activity is EngineActivity.DECODING and length is not None
            none = is_known and length is not None and length <= self.NONE and steps >= self.STEPS
            few = is_known and length is not None and length < self.LENGTH and rate is not None and rate < self.RATE
            key = get_container_key(one)
            all_rejected = self._none.update_condition(key, none if is_known else None, snapshot.sample)
            standing = self._few.update_condition(key, few if is_known else None, snapshot.sample)
            if all_rejected is not None or standing is not None:
                words = "accepts none of its drafts" if all_rejected else "rejects nearly all of its drafts"
                is_free = one.per_step is not None and one.per_step.draft_passes == 0
                evidence = _build_evidence(
                    ("accept length", length, ".2f", "tokens a step"),
                    ("accepted", None if rate is None else rate * 100, ".0f", "% of drafts"),
                )
                found.append(
                    Finding(
                        FindingKind.DRAFTS_REJECTED,
                        Severity.NOTE if is_free else Severity.WARNING,
                        snapshot.node,
                        f"{one.name} {words}: each step pays for them and yields one token",
                        remedy=REJECTED_DRAFTS_REMEDY,
                        instance=one.name,
                        evidence=evidence,
                        since=_get_since(all_rejected, standing),
                    )
                )
        return found


@dataclass(slots=True, kw_only=True)
class PrefixUse:
    """Prompt tokens of one engine: ``kept`` were found in its prefix cache, ``anew`` computed since it last helped."""

    last: float
    kept: float = 0.0
    anew: float = 0.0
    began: float | None = None
    last_poor: float | None = None  # uptime of the last window with long prompts of which little was found


class LostPrefixDetector(Detector):
    """The prefix cache served long prompts before and does so no more, as when an agent's session has outgrown it.

    It had found 50,000 tokens in windows with at least half of the tokens found; since then 100,000 tokens were computed in windows
    with under a tenth found and 4,000 tokens a request. On a Spark that is a minute of prompts. A window with 30 % ends it, and so do
    ten minutes without such prompts.
    """

    KEPT, ANEW, PROMPT = 50_000, 100_000, 4_000
    GOOD, SOME, POOR, FORGET = 0.5, 0.3, 0.1, 600.0

    def __init__(self) -> None:
        self._uses: dict[str, PrefixUse] = {}

    def detect(self, snapshot: NodeSnapshot) -> list[Finding]:
        """Return one finding for each instance that reads its prompts anew."""
        found, now = [], snapshot.sample.uptime
        meters = list_engine_meters(snapshot)
        if snapshot.instances is not None:
            here = {get_container_key(one) for one in snapshot.instances}
            self._uses = {key: use for key, use in self._uses.items() if key in here}
        for one, meter in meters:
            use = self._uses.setdefault(get_container_key(one), PrefixUse(last=now))
            self._count_tokens(use, meter, snapshot)
            if use.kept >= self.KEPT and use.anew >= self.ANEW:
                found.append(self._build_finding(snapshot, one, meter, use))
        return found

    def _count_tokens(self, use: PrefixUse, meter: EngineMeter, snapshot: NodeSnapshot) -> None:
        elapsed, use.last = snapshot.sample.uptime - use.last, snapshot.sample.uptime
        if use.last_poor is not None and snapshot.sample.uptime - use.last_poor > self.FORGET:
            use.anew, use.began, use.last_poor = 0.0, None, None
        if not 0 < elapsed <= MAX_SAMPLE_GAP or meter.prefix_hit_rate is None or not meter.prompt_rate:
            return
        share, computed = meter.prefix_hit_rate, meter.prompt_rate * elapsed
        if share >= self.GOOD:
            use.kept += computed * share / max(1 - share, 0.01)
        if share >= self.SOME:
            use.anew, use.began = 0.0, None
        elif share < self.POOR and self._has_long_prompts(meter):
            use.anew, use.last_poor = use.anew + computed, snapshot.sample.uptime
            use.began = snapshot.sample.time if use.began is None else use.began

    def _has_long_prompts(self, meter: EngineMeter) -> bool:
        """Tell whether a request's prompt is long; one that has no first token yet is."""
        begun = meter.ttft.observations if meter.ttft is not None else 0.0
        return (meter.prompt_rate or 0.0) * (meter.seconds or 0.0) >= self.PROMPT * max(1.0, begun)

    def _build_finding(self, snapshot: NodeSnapshot, one: InstanceView, meter: EngineMeter, use: PrefixUse) -> Finding:
        is_full = meter.kv_usage is not None and meter.kv_usage >= 0.9
        evidence = _build_evidence(
            ("prompt tokens computed again", use.anew, ".0f", None),
            ("found before", use.kept, ".0f", "tokens"),
            ("KV cache", None if meter.kv_usage is None else meter.kv_usage * 100, ".0f", "%"),
        )
        return Finding(
            FindingKind.PREFIX_CACHE,
            Severity.WARNING if is_full else Severity.NOTE,
            snapshot.node,
            f"{one.name} recomputes long prompts that its prefix cache served before: it is full, or the prompts now begin differently",
            remedy="fewer sessions at once or more KV cache (a larger mem-fraction-static / gpu-memory-utilization, kv-cache-dtype: fp8); check "
            "that the client does not change the beginning of its prompt (time, order of tools)",
            instance=one.name,
            evidence=evidence,
            since=use.began,
        )


class StarvedDecodeDetector(Detector):
    """Requests that were generating stand because a prompt is being read.

    Either no token at all for 10 s of figures and 10 s more, straight after decoding, while the engine says that requests with a first
    token run, or more requests run than before. Or the slowest twentieth of tokens came 3 s and more after the one before, for 30 s,
    with 300 prompt tokens a step and more.
    """

    STANDS, SLOW, GAP, PROMPT_TOKENS = 10.0, 30.0, 3.0, 300.0

    def __init__(self) -> None:
        self._stands, self._slow = ConditionTimer(self.STANDS), ConditionTimer(self.SLOW)
        self._decoding: dict[str, tuple[float, float]] = {}  # uptime and running requests when it last generated
        self._usage: dict[str, float] = {}  # of the KV cache: it grows while a prompt is read

    def detect(self, snapshot: NodeSnapshot) -> list[Finding]:
        found = []
        for one, meter in list_engine_meters(snapshot):
            key = get_container_key(one)
            stands = self._stands.update_condition(key, self._is_standing(key, meter, snapshot), snapshot.sample)
            slow = self._slow.update_condition(key, self._is_slowed(meter), snapshot.sample)
            if stands is None and slow is None:
                continue
            gap = meter.inter_token.p95 if meter.inter_token is not None else None
            evidence = _build_evidence(
                ("running", meter.running, ".0f", "requests"),
                ("prompts", meter.prompt_rate, ".0f", "tok/s"),
                ("between tokens, 95 %", gap, ".1f", "s"),
            )
            found.append(
                Finding(
                    FindingKind.PREFILL_STARVES,
                    Severity.WARNING,
                    snapshot.node,
                    f"a long prompt holds up the other requests of {one.name}: they get no token while it is read",
                    remedy="read prompts in smaller pieces: a smaller max-num-batched-tokens (vLLM), or chunked-prefill-size with "
                    "enable-mixed-chunk (SGLang)",
                    instance=one.name,
                    evidence=evidence,
                    since=_get_since(stands, slow),
                )
            )
        return found

    def _is_standing(self, key: str, meter: EngineMeter, snapshot: NodeSnapshot) -> bool | None:
        if meter.activity is None or meter.running is None:
            return None
        before, self._usage[key] = self._usage.get(key, meter.kv_usage or 0.0), meter.kv_usage or 0.0
        if meter.activity is EngineActivity.DECODING:
            # The gauge may count the request already whose prompt holds up the others; the steps of the window do not.
            served = min(meter.running, meter.batch or meter.running)
            self._decoding[key] = (snapshot.sample.uptime, served)
            return False
        if meter.activity is EngineActivity.IDLE:
            self._decoding.pop(key, None)
            return False
        last, ran = self._decoding.get(key, (snapshot.sample.uptime, 0.0))
        is_reading = bool(meter.prompt_rate) or self._usage[key] > before
        is_without_token = meter.generation_rate == 0 and meter.ttft is None and is_reading
        others = meter.running > ran if meter.decoding is None else meter.decoding >= 1
        return is_without_token and ran >= 1 and others and 0 <= snapshot.sample.uptime - last <= 10 * MAX_SAMPLE_GAP

    def _is_slowed(self, meter: EngineMeter) -> bool | None:
        if meter.activity is None:
            return None
        prompts = meter.step_load.prompt_tokens if meter.step_load is not None else None
        is_reading = prompts is not None and prompts >= self.PROMPT_TOKENS
        if meter.activity is EngineActivity.PREFILL:  # prompts took nearly all of each step
            is_reading = bool(meter.prompt_rate)
        return is_reading and meter.inter_token is not None and meter.inter_token.p95 >= self.GAP


class StalledRequestsDetector(Detector):
    """Requests run or wait, the metrics answer, and for three minutes nothing moves: no token, no prompt, no byte of KV cache.

    One step that reads a whole prompt of 100,000 tokens takes less on a Spark; prompts in pieces fill the KV cache meanwhile. An
    engine that counts tokens only when a request ends is never judged.
    """

    SECONDS = 180.0

    def __init__(self) -> None:
        super().__init__()
        self._usage: dict[str, float | None] = {}

    def detect(self, snapshot: NodeSnapshot) -> list[Finding]:
        """Return one finding for each instance whose requests stand still."""
        found = []
        meters = list_engine_meters(snapshot)
        before, self._usage = self._usage, {get_container_key(one): meter.kv_usage for one, meter in meters}
        for one, meter in meters:
            key = get_container_key(one)
            claim = self._is_still(meter) and before.get(key, meter.kv_usage) == meter.kv_usage
            standing = self._lasting.update_condition(
                key, None if meter.generation_rate is None else claim, snapshot.sample
            )
            if standing is None:
                continue
            name = shlex.quote(one.name)
            evidence = _build_evidence(
                ("running", meter.running, ".0f", None),
                ("waiting", meter.waiting, ".0f", None),
                ("generated", meter.generation_rate, ".0f", "tok/s"),
            )
            found.append(
                Finding(
                    FindingKind.STALLED,
                    Severity.PROBLEM,
                    snapshot.node,
                    f"the requests of {one.name} make no progress although it answers: no token and no prompt for minutes",
                    remedy=f"see its log (sparkctl logs {name} --tail 50) on all its Sparks; then: sparkctl down {name}, and up again",
                    instance=one.name,
                    evidence=evidence,
                    since=standing.since,
                )
            )
        return found

    def _is_still(self, meter: EngineMeter) -> bool:
        has_work = bool(meter.running) or bool(meter.waiting)
        return has_work and meter.generation_rate == 0 and not meter.prompt_rate


class FullCacheDetector(Detector):
    """The KV cache is full and running requests are thrown out of it, for 30 s: their context is computed again.

    The engine counts these. A full cache alone is no fault: prefixes are kept in it until their room is needed.
    """

    FULL, SECONDS = 0.9, 30.0

    def detect(self, snapshot: NodeSnapshot) -> list[Finding]:
        """Return one finding for each instance that throws requests out."""
        found = []
        for one, meter in list_engine_meters(snapshot):
            known = meter.preemptions is not None and meter.kv_usage is not None
            claim = (meter.preemptions or 0) > 0 and (meter.kv_usage or 0.0) >= self.FULL
            standing = self._lasting.update_condition(get_container_key(one), claim if known else None, snapshot.sample)
            if standing is None:
                continue
            evidence = _build_evidence(
                ("KV cache", (meter.kv_usage or 0.0) * 100, ".0f", "%"),
                ("thrown out", meter.preemptions, ".0f", f"requests in {meter.seconds or 0:.0f} s"),
                ("running", meter.running, ".0f", None),
                ("waiting", meter.waiting, ".0f", None),
            )
            found.append(
                Finding(
                    FindingKind.KV_FULL,
                    Severity.WARNING,
                    snapshot.node,
                    f"the KV cache of {one.name} is full: requests are preempted and computed again",
                    remedy="fewer requests at once (max-num-seqs, or max-running-requests), a shorter context, kv-cache-dtype: fp8, or a larger "
                    "gpu-memory-utilization / mem-fraction-static",
                    instance=one.name,
                    evidence=evidence,
                    since=standing.since,
                )
            )
        return found
