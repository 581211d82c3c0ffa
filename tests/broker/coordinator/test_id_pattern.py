"""Patterns of transactional ids: RE2's syntax, the id as a whole, linear time, bounded memory."""

from __future__ import annotations

import sys
import time

import pytest

from barnabas_broker.config.keys import ConfigError
from barnabas_broker.security.principal_mapping import parse_rules
from barnabas_coordination.transaction.id_pattern import compile_id_pattern
from barnabas_wire.kafka.errors import ErrorCode, KafkaError


@pytest.mark.parametrize(
    ("pattern", "matching", "other"),
    [
        ("orders-.*", "orders-1", "my-orders-1"),
        ("orders", "orders", "orders-1"),
        ("a|ab", "ab", "abc"),
        (r"\pL+-\d{2}", "éß-12", "éß-1"),
        ("(?i)COPY", "copy", "copies"),
        ("a.c", "a\0c", "a\nc"),
    ],
)
def test_a_pattern_matches_an_id_as_a_whole(pattern: str, matching: str, other: str) -> None:
    matches = compile_id_pattern(pattern)
    assert (matches(matching), matches(other)) == (True, False)


@pytest.mark.parametrize(
    "pattern", ["(", "[a", "*", "a{1001}", r"(a)\1", "(?=a)", "(?<=a)b", "x" * 200_000, r"\pL{1000}"]
)
def test_what_re2_refuses_is_an_error_with_its_words(pattern: str) -> None:
    with pytest.raises(KafkaError, match=r"pattern of transactional ids .* is refused: \w+") as raised:
        compile_id_pattern(pattern)
    assert raised.value.code == ErrorCode.INVALID_REGULAR_EXPRESSION
    assert len(str(raised.value)) < 300


@pytest.mark.parametrize("pattern", ["(a*)*b", "(a|aa)+b", "(.*)*(.*)*x"])
def test_a_pattern_that_backtracks_for_ever_elsewhere_takes_linear_time(pattern: str) -> None:
    matches = compile_id_pattern(pattern)
    since = time.process_time()
    assert not matches("a" * 32_000)
    assert time.process_time() - since < 1.0


def test_without_a_linear_matcher_every_pattern_is_refused_in_words(monkeypatch: pytest.MonkeyPatch) -> None:
    """Python's own matcher never sees one: it backtracks."""
    monkeypatch.setitem(sys.modules, "re2", None)
    with pytest.raises(KafkaError, match=r"no matcher whose time is linear.*barnabas\[patterns\]") as raised:
        compile_id_pattern("a")
    assert raised.value.code == ErrorCode.INVALID_REGULAR_EXPRESSION
    with pytest.raises(ConfigError, match=r"ssl\.principal\.mapping\.rules.*barnabas\[patterns\]"):
        parse_rules("RULE:^CN=(.*)$/$1/,DEFAULT")
    assert parse_rules("DEFAULT")
