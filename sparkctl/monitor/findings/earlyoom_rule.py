"""What earlyoom will really do, by the arguments it runs with: its rule is an AND that is easy to get wrong."""

from __future__ import annotations

import getopt
import re
from collections.abc import Sequence
from dataclasses import dataclass

from sparkctl.model.text.units import KIB

_SHORT_OPTIONS = "m:s:M:S:kingN:dvr:ph"
_LONG_OPTIONS = ["prefer=", "avoid=", "ignore=", "dryrun", "ignore-root-user", "sort-by-rss", "syslog", "help"]
_DEFAULT_MEMORY_SHARE = 0.1
_ANONYMOUS_SHARE_VERSION = (1, 8)  # since this version a per cent is of available + anonymous memory, not of all


@dataclass(frozen=True, slots=True, kw_only=True)
class EarlyoomRule:
    """It ends the largest process when available memory AND free swap are at or under their limits.

    ``memory`` and ``swap`` are per cents, ``memory_size`` is bytes (-M, a share of all memory); of both the lower counts.
    """

    memory: float | None = None
    swap: float = 100 * _DEFAULT_MEMORY_SHARE
    memory_size: int | None = None
    prefer: str | None = None
    avoid: str | None = None
    dry: bool = False

    def compute_kill_threshold(self, version: str | None, total: int, anonymous: int | None) -> int | None:
        """Return the bytes of available memory at which it may act, None where that is not known.

        Up to 1.7: per cent of MemTotal. Since 1.8: of MemAvailable + AnonPages, and CUDA memory is in neither; so the
        limit holds for as much anonymous memory as there is now.
        """
        shares = [] if self.memory is None else [self.memory / 100]
        shares += [] if self.memory_size is None else [self.memory_size / total]
        share = min(shares, default=_DEFAULT_MEMORY_SHARE)
        if version is None or not (found := re.match(r"(\d+)\.(\d+)", version)):
            return None
        if (int(found[1]), int(found[2])) < _ANONYMOUS_SHARE_VERSION:
            return int(share * total)
        return None if anonymous is None else int(share / (1 - share) * anonymous)


def parse_earlyoom_args(argv: Sequence[str]) -> EarlyoomRule | None:
    """Return the rule of a command line (its first word is the program); None where it is not understood."""
    try:
        options, rest = getopt.gnu_getopt(list(argv[1:]), _SHORT_OPTIONS, _LONG_OPTIONS)
        values = dict(options)
        if rest:
            return None
        return EarlyoomRule(
            memory=_parse_first_limit(values["-m"]) if "-m" in values else None,
            swap=_parse_first_limit(values.get("-s", "10")),
            memory_size=int(_parse_first_limit(values["-M"]) * KIB) if "-M" in values else None,
            prefer=values.get("--prefer"),
            avoid=values.get("--avoid"),
            dry="--dryrun" in values,
        )
    except (getopt.GetoptError, ValueError):
        return None


def _parse_first_limit(limits: str) -> float:
    """Return the first of ``TERM,KILL``."""
    return float(limits.partition(",")[0])
