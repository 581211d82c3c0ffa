"""The measurement of the console: every route has an address, and a p99 is what the words say."""

from __future__ import annotations

import pytest

from barnabas_admin.console.application import PAGES
from tests.bench.console import quantile, routes


def test_every_route_of_the_console_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    assert len(routes("orders", "readers")) == len(set(routes("orders", "readers")))
    monkeypatch.setitem(PAGES, "/weather", PAGES["/quorum"])
    with pytest.raises(LookupError, match="/weather"):
        routes("orders", "readers")


def test_a_quantile_is_the_smallest_value_that_so_much_is_at_most() -> None:
    hundred = list(range(1, 101))
    assert (quantile(hundred, 0.5), quantile(hundred, 0.99), quantile(hundred, 1.0)) == (50, 99, 100)
    assert quantile([7.0], 0.99) == 7.0
    assert quantile([1.0, 2.0, 3.0], 0.99) == 3.0
