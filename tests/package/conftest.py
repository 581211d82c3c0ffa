"""Building and installing wheels takes minutes and a package index: only `-m package` (make wheel) collects these tests."""

from __future__ import annotations

from pathlib import Path

import pytest


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave this folder out unless its marker was asked for."""
    return True if config.option.markexpr != "package" else None
