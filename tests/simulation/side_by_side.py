"""Simulations side by side, one for each core: a seed knows of no other, so what comes of them is what comes of them in turn.

May touch:  processes of its own.             Must not touch: what they run.
Invariants: results come in the order of what was asked; the CPU time of a search is that of its own process.
Read next:  test_raft.py, test_nodes.py, which have more to run than one core should.
"""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Iterable, Iterator
from concurrent.futures import Executor, ProcessPoolExecutor
from contextlib import contextmanager
from typing import Any

import pytest

from tests.simulation.watchdog import watched

CORES = len(os.sched_getaffinity(0))


def processes() -> ProcessPoolExecutor:
    """A process for each core; nothing of this process but its path of modules is in them."""
    return ProcessPoolExecutor(CORES, mp_context=multiprocessing.get_context("spawn"))


@contextmanager
def telling(seed: int) -> Iterator[None]:
    """What a seed breaks, in words: not every exception finds its way out of a process; that it does not end, too.
    Raises AssertionError."""
    try:
        with watched(seed):
            yield
    except Exception as broken:
        raise AssertionError(f"seed {seed}: {type(broken).__name__}: {broken}") from broken


def chosen(request: pytest.FixtureRequest, parameter: str) -> Iterable[tuple[str, Any]]:
    """(test, argument) of all tests of this file that will run and have that parameter."""
    for item in request.session.items:
        if isinstance(item, pytest.Function) and item.path == request.path:
            given = item.callspec.params if hasattr(item, "callspec") else {}
            if parameter in given:
                yield item.originalname, given[parameter]


def drop(pool: Executor) -> None:
    """End a pool; what has not begun never does."""
    pool.shutdown(cancel_futures=True)
