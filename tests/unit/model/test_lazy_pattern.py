"""A pattern that is compiled at its first use does what a compiled one does."""

from __future__ import annotations

import re

import pytest

from sparkctl.model.text import lazy_pattern


def test_it_finds_what_a_compiled_pattern_finds() -> None:
    late, compiled = (make(r"(?P<name>\w+)=(\d+)", re.IGNORECASE) for make in (lazy_pattern.compile, re.compile))
    for text in ("a=1 b=22", "nothing"):
        assert [one.span() for one in late.finditer(text)] == [one.span() for one in compiled.finditer(text)]
        assert late.findall(text) == compiled.findall(text)
        assert late.sub("x", text) == compiled.sub("x", text)
        assert late.subn("x", text) == compiled.subn("x", text)
        assert late.split(text) == compiled.split(text)
        for method in ("search", "match", "fullmatch"):
            assert bool(getattr(late, method)(text)) == bool(getattr(compiled, method)(text))
    assert (late.pattern, late.flags, late.groups) == (compiled.pattern, compiled.flags, compiled.groups)
    assert late.groupindex == compiled.groupindex


def test_nothing_is_compiled_before_the_first_use(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled: list[object] = []
    real = re.compile

    def compile_and_count(pattern: str, flags: int = 0) -> re.Pattern[str]:
        compiled.append(pattern)
        return real(pattern, flags)

    monkeypatch.setattr(re, "compile", compile_and_count)
    late = lazy_pattern.compile(r"a+")
    assert not compiled
    assert late.search("baa")
    assert late.search("b") is None
    assert compiled == [r"a+"]


def test_a_wrong_name_is_an_error() -> None:
    with pytest.raises(AttributeError, match="serach"):
        lazy_pattern.compile("a").serach("a")  # type: ignore[attr-defined]
