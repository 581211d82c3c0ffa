"""The operator's day as a test: every step comes out, and no acknowledged record is lost."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.ecosystem.java import IS_FULL
from tests.ecosystem.operators_day import FORMER, former_of, run

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.timeout(1800),
    pytest.mark.skipif(not IS_FULL, reason="a day takes five minutes: make ecosystem runs it"),
]


def test_an_operators_day_under_load_loses_nothing(tmp_path: Path) -> None:
    made = tmp_path / "former"
    made.mkdir()
    directory = tmp_path / "run"
    directory.mkdir()
    status, page = run(directory, former_of(FORMER, made))
    assert status == 0, page[-1]
    assert [text for text in page if text.startswith("## ")] == [
        "## Before anything",
        "## Add a broker",
        "## Balance",
        "## Drain a broker for work on its host",
        "## Roll to the new version",
        "## Replace a controller whose disk is gone",
        "## Lose a broker for good",
        "## Restore a topic from its backup",
        "## At the end of the day",
    ]
