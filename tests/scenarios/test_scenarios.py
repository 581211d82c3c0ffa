"""Every script prints what it says it prints; `python -m tests.scenarios.runner --rewrite` takes a new output over."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.scenarios.runner import Scenario, play, scripts


@pytest.mark.parametrize(("path", "interpreter"), scripts(), ids=lambda value: getattr(value, "stem", ""))
def test_script_prints_what_is_expected(path: Path, interpreter: Callable[[], Scenario]) -> None:
    assert play(path, interpreter) == path.read_text()
