"""Removals of retired segment files and deleted directories, once their delay is over.

May touch:  asyncio, the Disk it is given.             Must not touch: logs.
Invariants: a path is removed in the disk's threads, not before its delay is over by the loop's clock; the wall clock may be set
            meanwhile. A directory's new name is durable before anything in it goes. What is left at a stop, the next start
            removes.
Read next:  manager.py, which owns one of these.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Sequence
from typing import Final

from barnabas_log.descriptors import is_out_of_descriptors
from barnabas_log.disk import Disk

logger = logging.getLogger(__name__)

DELETE_SUFFIX: Final = "-delete"
"""The suffix of a directory that is being removed as a whole."""
_RETRY_MS: Final = 1000
"""The pause before a removal that found no descriptor is tried again."""


class Removals:
    """What waits to be removed. `run` is its task."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self._waiting: list[tuple[float, str]] = []
        """(when due by the loop's clock, path)"""
        self._added = asyncio.Event()

    def add(self, removals: Sequence[tuple[int, str]]) -> None:
        """Have files and deleted directories removed: (after how many ms, path)."""
        now_s = asyncio.get_running_loop().time()
        self._waiting += [(now_s + delay_ms / 1000, path) for delay_ms, path in removals]
        self._added.set()

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            now_s = asyncio.get_running_loop().time()
            due = [path for due_s, path in self._waiting if due_s <= now_s]
            self._waiting = [removal for removal in self._waiting if removal[0] > now_s]
            for path in due:
                try:
                    await self._disk.run(self._remove_tree if path.endswith(DELETE_SUFFIX) else self._disk.remove, path)
                except OSError as error:
                    if is_out_of_descriptors(error):
                        self.add([(_RETRY_MS, path)])
                    else:
                        logger.warning("%s could not be removed: %s; the next start will try again", path, error)
            self._added.clear()
            next_s = min((due_s for due_s, _ in self._waiting), default=None)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout_at(next_s):
                    await self._added.wait()

    def _remove_tree(self, path: str) -> None:
        """A power cut that undid its renaming after some of its files went would leave a log that begins later than it did."""
        self._disk.sync_directory(path.rpartition("/")[0])
        self._disk.remove_tree(path)
