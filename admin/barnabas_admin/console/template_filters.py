"""Numbers, spans of time and errors as people read them: the filters of the templates.

May touch:  its arguments.            Must not touch: the cluster.
Invariants: what is not known is a dash; a number keeps its digits together and its groups apart.
Read next:  templates/.
"""

from __future__ import annotations

import json
import re
from datetime import UTC
from typing import Any

from barnabas_admin import client_view
from barnabas_admin.console.messages import hex_dump
from barnabas_admin.output import printable, size_text
from barnabas_wire.kafka.errors import KafkaError
from barnabas_wire.moments import iso_text

UNKNOWN = "–"
LINE_LETTERS = 100
LINE_TEXT_MAX = 400
"""Letters of a record on its line; the page cuts what does not fit."""
_SPANS = ((86_400_000, "d"), (3_600_000, "h"), (60_000, "min"), (1_000, "s"))


def number(value: int | None) -> str:
    """1234567 as 1 234 567, with narrow spaces that do not break."""
    return UNKNOWN if value is None else f"{value:,}".replace(",", "\u202f")


def decimal(value: float | None) -> str:
    """A measured number: with one decimal below ten where it has any, else whole."""
    if value is None:
        return UNKNOWN
    return f"{value:.1f}" if 0 < value < 10 and value != int(value) else number(round(value))


def sentence(text: str) -> str:
    """With a capital, where it begins with what is no name: a topic's is written as it is."""
    return text[:1].upper() + text[1:] if text.startswith(("controller ", "broker ")) else text


def size(value: int | None) -> str:
    """Bytes in the largest unit that fits."""
    text = None if value is None else size_text(value)
    return UNKNOWN if text is None else re.sub(r"(?<=\d)(?=[A-Z])", "\u202f", text)


def span(value_ms: int | None) -> str:
    """Milliseconds in their largest unit: 40 ms, 3 s, 5 min, 2 h, 9 d."""
    if value_ms is None:
        return UNKNOWN
    for unit_ms, name in _SPANS:
        if value_ms >= unit_ms:
            return f"{value_ms // unit_ms}\u202f{name}"
    return f"{value_ms}\u202fms"


def moment(timestamp_ms: int | None) -> str:
    """A time in UTC, to the millisecond."""
    if timestamp_ms is None or timestamp_ms < 0:
        return UNKNOWN
    return iso_text(timestamp_ms, UTC, sep=" ").removesuffix("+00:00")


def pretty(value: dict[str, Any]) -> str:
    """A record's key or value for its cell: JSON indented where it is longer than a line, everything else as it is."""
    text = str(value["text"])
    if value["kind"] == "json" and len(text) > LINE_LETTERS:
        text = json.dumps(json.loads(text), indent=2, ensure_ascii=False)
    return printable(text)


def one_line(value: dict[str, Any]) -> str:
    """The beginning of a key or value, on one line."""
    return printable(" ".join(str(value["text"])[:LINE_TEXT_MAX].split()))


def error_fields(error: Exception) -> dict[str, Any]:
    """An error as pages and JSON twins show it."""
    if isinstance(error, KafkaError):
        return {"message": str(error), "code": error.code.name, "hint": getattr(error, "hint", "") or None}
    if isinstance(error, TimeoutError):
        return {"message": "the cluster did not answer in time", "code": "REQUEST_TIMED_OUT", "hint": None}
    return {"message": f"the cluster cannot be reached: {error}", "code": "NETWORK_EXCEPTION", "hint": None}


def dict_with(fields: dict[str, Any], name: str, value: Any) -> dict[str, Any]:
    """The query of this page with one field changed: its links."""
    return fields | {name: value}


def counts(by_broker: dict[str, int]) -> str:
    """Broker 1 has 3, broker 2 has 4: `1: 3, 2: 4`."""
    return ", ".join(f"{broker}: {count}" for broker, count in by_broker.items())


FILTERS = {
    "dict_with": dict_with,
    "counts": counts,
    "number": number,
    "decimal": decimal,
    "sentence": sentence,
    "size": size,
    "span": span,
    "moment": moment,
    "pretty": pretty,
    "one_line": one_line,
    "hex_dump": hex_dump,
    "printable": printable,
    "client_figures": client_view.figures_text,
}
