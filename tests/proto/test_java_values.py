"""Numbers and booleans as Java's parsers take them (Long.parseLong, Double.parseDouble, ConfigDef)."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from barnabas_wire.java_values import java_boolean, java_float, java_int


@pytest.mark.parametrize(
    ("parse", "text", "value"),
    [
        (java_boolean, "TRUE", True),
        (java_boolean, " False ", False),
        (java_int, "+5", 5),
        (java_int, " -1 ", -1),
        (java_int, "007", 7),
        (java_float, "1.0f", 1.0),
        (java_float, "5D", 5.0),
        (java_float, ".5", 0.5),
        (java_float, "5.", 5.0),
        (java_float, " 1e-3 ", 0.001),
        (java_float, "-Infinity", float("-inf")),
    ],
)
def test_what_java_takes(parse: Callable[[str], object], text: str, value: object) -> None:
    assert parse(text) == value


@pytest.mark.parametrize(
    ("parse", "text"),
    [
        *((java_boolean, text) for text in ("yes", "1", "")),
        *((java_int, text) for text in ("1_000", "1.0", "1e3", "0x10", "5L", "")),
        *((java_float, text) for text in ("1_0.5", "inf", "nan", "infinity", "1e", "f", "1ff", "")),
    ],
)
def test_what_java_refuses(parse: Callable[[str], object], text: str) -> None:
    with pytest.raises(ValueError):
        parse(text)
