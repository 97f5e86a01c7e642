"""vLLM on unified memory. ``--gpu-memory-utilization`` is a share of *all* memory: the start is refused where less than that
is available, and everything lies in it but, before 0.21, CUDA graphs. Read in 0.19.1, 0.32.0 and 0.33.0."""

from __future__ import annotations

from sparkctl.core.fit.claim import Claim, Room, Subject, Sum, context, rest
from sparkctl.core.fit.weights import part
from sparkctl.model.fit import Obtained, Part
from sparkctl.model.units import GIB, gib, parse_size

FIELD = "args.gpu-memory-utilization"
_GRAPHS = int(0.7 * GIB)
_DFLASH = 16 * GIB
_GRAPHS_WITHIN = (0, 21)


def claim(subject: Subject) -> Claim:
    """Return what it takes."""
    words = subject.words
    fixed = words.text("kv-cache-memory-bytes", "kv-cache-memory")
    if fixed is not None:
        return Claim(lambda room, at: _fixed(subject, fixed, "kv-cache-memory-bytes, whatever the share says"))
    if subject.cpu_cache not in (None, "", "0"):  # with 0 the version decides
        said = f"{subject.cpu_cache}g"
        return Claim(lambda room, at: _fixed(subject, said, "VLLM_CPU_KVCACHE_SPACE, as it runs without a GPU"))
    own = words.share("gpu-memory-utilization", "gpu-memory-util", "device-memory-utilization")
    share = own or (0.9 if subject.version and subject.version < (0, 32) else 0.92)
    return Claim(lambda room, at: _shared(subject, room, at), FIELD, share)


def _shared(subject: Subject, room: Room, at: float) -> Sum:
    share = int(at * room.total)
    inside = [*_models(subject), _within(context())]
    if (one := _one_request(subject)) is not None:
        inside.append(_within(one))
    is_known = all(each.size is not None for each in inside)
    held = sum(each.size or 0 for each in inside)
    if is_known:
        inside.append(rest("left for more KV cache", share - held, subject))
    whole = Part(
        "share of vLLM", share, Obtained.FLAGS,
        f"gpu-memory-utilization {at:g} × {gib(room.total)}, all of the memory; it does not start with less available",
    )  # fmt: skip
    lacking, why = 0, ""
    if is_known and held > share:
        lacking, why = held - share, f"weights and one request need {gib(held)}, the share is {gib(share)}"
    if share - room.available > lacking:
        lacking = share - room.available
        why = f"vLLM's own check: its share is {gib(share)}, available are {gib(room.available)}"
    return Sum((whole, *inside, *_beyond(subject)), lacking, why)


def _fixed(subject: Subject, text: str, words: str) -> Sum:
    try:
        size: int | None = parse_size(text)
    except ValueError:
        size = None
    pool = Part("KV cache", size, Obtained.FLAGS, words)
    models = [part("weights", subject.weights, subject.ranks)]
    if subject.draft is not None:
        models.append(part("draft model", subject.draft, subject.ranks))
    return Sum((context(), *models, pool, *_beyond(subject)))


def _models(subject: Subject) -> list[Part]:
    found = [part("weights", subject.weights, subject.ranks, within=True)]
    if subject.draft is not None:
        found.append(part("draft model", subject.draft, subject.ranks, within=True))
    return found


def _one_request(subject: Subject) -> Part | None:
    """Return the KV cache for the longest request: vLLM does not start where one does not fit."""
    said = subject.words.text("max-model-len")
    tokens = subject.words.count("max-model-len")
    if said is not None and tokens is None:
        return None  # auto, or -1: as long as there is room
    tokens = tokens or (subject.layout.longest if subject.layout else None)
    if tokens is None:
        return Part(
            "KV cache for one request", None, Obtained.CONFIG, "neither max-model-len nor its config.json is known"
        )
    return subject.cache(tokens)


def _beyond(subject: Subject) -> list[Part]:
    found = []
    if subject.version and subject.version < _GRAPHS_WITHIN and not subject.words.has("enforce-eager"):
        words = "beyond the share before vLLM 0.21; such a start told 0.62 GiB"
        found.append(Part("CUDA graphs", _GRAPHS, Obtained.ESTIMATE, words))
    if _method(subject) == "dflash":
        words = (
            "kept free: 0.85 was reported unsafe with DFlash, 0.80 is published as running; what it takes is not known"
        )
        found.append(Part("margin for DFlash", _DFLASH, Obtained.ESTIMATE, words))
    return found


def _method(subject: Subject) -> str:
    words = subject.words
    said = words.map("speculative-config", "sc").get("method") or words.text("spec-method", "speculative-config.method")
    return str(said or "").lower()


def _within(one: Part) -> Part:
    return Part(one.name, one.size, one.obtained, one.words, within=True)
