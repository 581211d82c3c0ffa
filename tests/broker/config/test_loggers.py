"""Loggers keep their former names for a version."""

from __future__ import annotations

import importlib
import logging

import pytest

from barnabas_broker.config.loggers import FORMER, change_levels, levels


@pytest.mark.parametrize(("former", "now"), FORMER.items())
def test_a_former_name_sets_the_level_of_the_logger_that_has_another_now(former: str, now: str) -> None:
    assert importlib.import_module(now).logger.name == now
    before = logging.getLogger(now).level
    try:
        change_levels({former: "TRACE"}, validate_only=False)
        assert levels()[now] == "TRACE"
        assert former not in levels()
    finally:
        logging.getLogger(now).setLevel(before)
