"""What one share fetch looks at, however much waits in the window."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from barnabas_coordination.share.acquiring import AcquireRequest, BatchSpan
from barnabas_coordination.share.window import Run
from barnabas_wire.kafka.ids import Offset
from tests.broker.coordinator.share_partitions import Driven


class CountedRuns(list[Run]):
    """Runs that count how often one is looked at."""

    looks = 0

    def __getitem__(self, key: Any) -> Any:
        self.looks += 1
        return super().__getitem__(key)


def test_a_fetch_looks_once_at_what_waits_and_at_no_batch_behind_the_last_it_can_have() -> None:
    """With ten thousand that wait, each batch that looked through them all again stopped the loop for a second."""
    waiting = 2_000
    one = Driven([(first, first + 9) for first in range(0, waiting, 10)], deliver_at_header="at")
    due = [(Offset(each), one.now_ms + (5 if each in (0, waiting // 2) else 10_000)) for each in range(waiting)]
    one.core.delay(Offset(0), Offset(waiting - 1), due, now_ms=one.now_ms)
    one.fetch()
    one.wait(5)
    runs = one.core.window.runs = CountedRuns(one.core.window.runs)
    asked: list[int] = []

    def spans() -> Iterator[BatchSpan]:
        for base, last in one.batches:
            asked.append(base)
            yield BatchSpan(base, last)

    request = AcquireRequest("a", 500, 500, False)
    found = one.core.acquire(spans(), request, from_offset=Offset(0), now_ms=one.now_ms)
    assert [tuple(each) for each in found] == [(0, 0, 1), (waiting // 2, waiting // 2, 1)]
    assert asked[-1] == waiting // 2
    assert runs.looks < 2 * waiting
    assert one.core.fetch_offset() == waiting
