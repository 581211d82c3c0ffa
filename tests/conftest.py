"""What every test run shares: under CI a test that skips because a tool is missing counts as failed; no example has a time limit."""

from __future__ import annotations

import gc
import os
from collections.abc import Generator
from typing import Any

import pytest
from hypothesis import settings

settings.register_profile("untimed", settings(), deadline=None)  # how long one takes is the machine's affair
settings.load_profile("untimed")

IS_CI = os.environ.get("CI") == "true"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Generator[None, Any, Any]:
    report = yield
    if IS_CI and report.skipped and item.get_closest_marker("tools") and not item.get_closest_marker("full"):
        report.outcome = "failed"
        report.longrepr = f"under CI a missing tool is a failure: {report.longrepr}"
    return report


@pytest.fixture(autouse=True)
def collector_that_stays_on() -> Generator[None]:
    """One test that left it off cost the run 7 GB: whole simulated clusters, in cycles, that nobody freed."""
    yield
    is_on = gc.isenabled()
    gc.enable()
    assert is_on, "the test leaves Python's collector off for all that follow"
