"""What is remembered of text that never comes again stays little, however long the panel is open."""

from __future__ import annotations

from rich.cells import cell_len

from sparkctl.tui.terminal_driver import MAX_CACHE_ENTRIES, RENDER_CACHES, trim_render_caches

TEXTS = next(one for one in RENDER_CACHES if one.__name__ == "cached_cell_len")


def test_a_large_cache_is_trimmed() -> None:
    for number in range(MAX_CACHE_ENTRIES + 1):
        cell_len(f"a text that comes once, {number}")
    trim_render_caches()
    assert TEXTS.cache_info().currsize == 0


def test_little_is_kept_for_the_next_picture() -> None:
    TEXTS.cache_clear()
    cell_len("a text that comes again")
    trim_render_caches()
    cell_len("a text that comes again")
    assert TEXTS.cache_info().hits == 1


def test_each_render_cache_can_be_trimmed() -> None:
    for one in RENDER_CACHES:
        assert one.cache_info().maxsize is None or one.cache_info().maxsize > MAX_CACHE_ENTRIES, "else it bounds itself"
