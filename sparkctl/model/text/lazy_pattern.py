"""Regular expressions that are compiled when they are first used.

Compiling the hundreds of patterns at import took longer than most commands need for the rest.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

_ATTRIBUTES = (
    *("search", "match", "fullmatch", "finditer", "findall", "split", "sub", "subn"),
    *("pattern", "flags", "groups", "groupindex"),
)

if TYPE_CHECKING:
    from re import compile as compile
else:

    class LazyPattern:
        """Takes the methods and attributes of the compiled pattern at the first use of one of them."""

        def __init__(self, pattern: str | bytes, flags: int = 0) -> None:
            self._source, self._source_flags = pattern, flags

        def __getattr__(self, name: str) -> Any:  # called only before the first use
            if name not in _ATTRIBUTES:
                raise AttributeError(name)
            compiled = re.compile(self._source, self._source_flags)
            for one in _ATTRIBUTES:
                setattr(self, one, getattr(compiled, one))
            return getattr(compiled, name)

    compile = LazyPattern  # the name of what it replaces
