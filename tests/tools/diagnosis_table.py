"""How often `diagnose` is right, by cause, engine and source: ``python -m tests.tools.diagnosis_table [DIRECTORY ...]``.

Without a directory it reads the logs that owners posted and that the tests keep (tests/unit/logs/posted_logs.json). A directory
holds NAME.log files and labels.json: for each NAME ``right``, the causes that are right (``none``: no failure), ``vague``, those that are
acceptable but weak, and ``source``. ``--wrong`` lists each log that was not read right.
"""

from __future__ import annotations

import argparse
import io
import json
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from sparkctl.commands.diagnose_file import diagnose_bytes

POSTED_LOGS = Path(__file__).parents[1] / "unit" / "logs" / "posted_logs.json"
NO_FAILURE = "none"


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelledLog:
    """A log, and what is right to say of it."""

    name: str
    log: bytes
    right: tuple[str, ...]
    vague: tuple[str, ...]
    source: str
    proof: str = ""  # what the line has to say that is shown as the proof


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgedLog:
    """What was said of a log. ``judgement``: right, vague, wrong, missed, false alarm."""

    labelled: LabelledLog
    cause: str
    engine: str
    confidence: str
    judgement: str


def load_posted_logs() -> Iterator[LabelledLog]:
    """Yield the posted logs that the tests keep."""
    for name, one in json.loads(POSTED_LOGS.read_text("utf-8")).items():
        log = "".join(f"{line}\n" for line in one["log"]).encode()
        yield LabelledLog(
            name=name,
            log=log,
            right=tuple(one["right"]),
            vague=tuple(one["vague"]),
            source=one["source"],
            proof=one.get("proof", ""),
        )


def load_directory(directory: Path) -> Iterator[LabelledLog]:
    """Yield the logs of a directory with labels.json."""
    for name, one in json.loads((directory / "labels.json").read_text("utf-8")).items():
        file = directory / f"{name.removesuffix('.log')}.log"
        right, vague = (_split_causes(one.get(key)) for key in ("right", "vague"))
        if file.exists():
            yield LabelledLog(
                name=name, log=file.read_bytes(), right=right, vague=vague, source=str(one.get("source", directory))
            )


def judge_log(labelled: LabelledLog) -> JudgedLog:
    """Diagnose a log and compare the verdict with its label."""
    found = diagnose_bytes(io.BytesIO(labelled.log), labelled.name, None).diagnosis
    cause = NO_FAILURE if found.verdict is None else str(found.verdict.cause)
    evidence = () if found.verdict is None else found.verdict.evidence
    if cause in labelled.right and labelled.proof and not any(labelled.proof in one.text for one in evidence[:1]):
        judgement = "vague"
    elif cause in labelled.right:
        judgement = "right"
    elif labelled.right == (NO_FAILURE,):
        judgement = "false alarm"
    elif cause in labelled.vague:
        judgement = "vague"
    else:
        judgement = "missed" if cause == NO_FAILURE else "wrong"
    confidence = "" if found.verdict is None else str(found.verdict.confidence)
    return JudgedLog(
        labelled=labelled, cause=cause, engine=found.engine or "unknown", confidence=confidence, judgement=judgement
    )


def format_table(judged: Iterable[JudgedLog]) -> list[str]:
    """Return the tables: all logs, by cause with precision and recall, by engine, by source."""
    every = list(judged)
    lines = [
        f"{len(every)} logs: {_format_counts(every)}",
        "",
        f"{'cause':30}{'logs':>5}{'said':>6}{'precision':>11}{'recall':>8}",
    ]
    for cause in sorted({one.labelled.right[0] for one in every} | {one.cause for one in every}):
        meant = [one for one in every if one.labelled.right[0] == cause]
        said = [one for one in every if one.cause == cause]
        precise = _format_share(sum(one.judgement == "right" for one in said), len(said))
        recalled = _format_share(sum(one.judgement == "right" for one in meant), len(meant))
        lines.append(f"{cause:30}{len(meant):5}{len(said):6}{precise:>11}{recalled:>8}")
    for title, key in _GROUPS:
        groups: defaultdict[str, list[JudgedLog]] = defaultdict(list)
        for one in every:
            groups[key(one)].append(one)
        lines += ["", title, *(f"  {name:40} {_format_counts(group)}" for name, group in sorted(groups.items()))]
    return lines


def _get_source_site(one: JudgedLog) -> str:
    parts = urlsplit(one.labelled.source)
    return "/".join(parts.path.split("/")[1:3]) or one.labelled.source


_GROUPS: tuple[tuple[str, Callable[[JudgedLog], str]], ...] = (
    ("by engine, as recognised", lambda one: one.engine),
    ("by confidence", lambda one: one.confidence or "no verdict"),
    ("by source", _get_source_site),
)


def _split_causes(result: object) -> tuple[str, ...]:
    words = result.split(",") if isinstance(result, str) else result if isinstance(result, list) else []
    return tuple(str(word) for word in words if word)


def _format_counts(group: list[JudgedLog]) -> str:
    counts = Counter(one.judgement for one in group)
    return ", ".join(f"{count} {name}" for name, count in counts.most_common())


def _format_share(part: int, whole: int) -> str:
    return f"{part / whole:.2f}" if whole else "-"


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory", nargs="*", type=Path)
    parser.add_argument("--wrong", action="store_true", help="list each log that was not read right")
    options = parser.parse_args()
    labelled = (one for directory in options.directory for one in load_directory(directory))
    judged = [judge_log(one) for one in (labelled if options.directory else load_posted_logs())]
    print("\n".join(format_table(judged)))
    for one in judged if options.wrong else ():
        if one.judgement != "right":
            print(
                f"{one.labelled.name}: {one.judgement}, said {one.cause}, right {', '.join(one.labelled.right)}: {one.labelled.source}"
            )


if __name__ == "__main__":
    main()
