"""A journal is read as it was written, and nothing else is taken for one."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas_wire.run_journal import BYTES_MAX, STEPS_MAX, NotAJournal, read_journal
from tests.support.journals import small_journal, text_of

TEXT = text_of(small_journal())
LINES = TEXT.decode().splitlines()


def refusal(*lines: str) -> str:
    with pytest.raises(NotAJournal) as refused:
        read_journal("\n".join(lines).encode())
    return str(refused.value)


def changed(line: str, **fields: object) -> str:
    return json.dumps(json.loads(line) | fields)


def test_a_journal_is_read_as_it_was_written() -> None:
    assert read_journal(TEXT) == small_journal()
    assert text_of(read_journal(TEXT)) == TEXT
    assert read_journal(TEXT.removesuffix(b"\n")) == small_journal()


def test_what_is_no_journal_says_how_to_make_one() -> None:
    for nothing in ("", "flights", "{}", "[1]", "[" * 100_000):
        assert "barnabas-server sim" in refusal(nothing)


def test_what_was_cut_off_is_refused() -> None:
    for end in range(0, len(TEXT) - 1, 7):
        with pytest.raises(NotAJournal):
            read_journal(TEXT[:end])


def test_another_version_is_named() -> None:
    assert "version 2" in refusal(changed(LINES[0], journal=2), *LINES[1:])


def test_a_step_that_is_none_is_named_by_its_line() -> None:
    assert refusal(LINES[0], LINES[1], changed(LINES[2], kind="weather"), *LINES[3:]).startswith("line 3: ")
    assert refusal(LINES[0], LINES[1], *LINES[3:]).startswith("line 3: step 2 is missing")
    assert "first line" in refusal(changed(LINES[0], nodes=[1, 2]), *LINES[1:])
    assert refusal(LINES[0], changed(LINES[1], at_ms="10"), *LINES[2:]).startswith("line 2: ")
    assert refusal(LINES[0], changed(LINES[1], what="x" * 2001), *LINES[2:]).startswith("line 2: ")
    assert refusal(LINES[0], changed(LINES[1], cut=[[1]]), *LINES[2:]).startswith("line 2: ")


def test_nothing_is_read_beyond_the_bounds() -> None:
    with pytest.raises(NotAJournal, match="bytes"):
        read_journal(bytes(BYTES_MAX + 1))
    with pytest.raises(NotAJournal, match="lines"):
        read_journal(b"\n" * (STEPS_MAX + 3))


@given(st.integers(0, len(TEXT) - 1), st.binary(max_size=4))
def test_damage_is_refused_or_read_never_anything_else(place: int, other: bytes) -> None:
    try:
        read_journal(TEXT[:place] + other + TEXT[place + len(other) :])
    except NotAJournal as refused:
        assert str(refused)
