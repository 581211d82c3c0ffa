"""What is kept of what clients pushed: the latest readings of each, within bounds.

May touch:  its arguments.            Must not touch: clock, sockets, protobuf.
Invariants: at most CLIENTS_MAX clients, SERIES_PER_CLIENT_MAX series of each and SERIES_MAX in all; the host with the most clients loses
            the one of them that was silent for longest; what another thread reads is never changed in place.
Read next:  receiver.py.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from itertools import islice
from typing import Final, NamedTuple

from barnabas_broker.telemetry.otlp import Push, Series
from barnabas_broker.telemetry.subscriptions import Client
from barnabas_wire.kafka.ids import Uuid
from barnabas_wire.lazy_dataclass import dataclass

CLIENTS_MAX: Final = 1_000
SERIES_PER_CLIENT_MAX: Final = 200
SERIES_MAX: Final = 20_000


@dataclass(slots=True)
class PushStats:
    """What came of pushes. Counts."""

    asked: int = 0
    taken: int = 0
    throttled: int = 0
    unknown_subscription: int = 0
    refused: int = 0
    """Pushes refused for any other reason."""
    busy: int = 0
    """Refused because too many others waited."""
    clients_put_out: int = 0
    """Clients that made room for others."""
    series_left_out: int = 0
    """Series that were beyond the bound of their client."""


class PushedClient(NamedTuple):
    """A client with its latest readings."""

    client: Client
    group_id: str
    member_id: str
    pushed_ms: int
    kept_until_ms: int
    gauges: Mapping[Series, float]
    totals: Mapping[Series, float]

    @property
    def series(self) -> int:
        """How many it has."""
        return len(self.gauges) + len(self.totals)


class PushedClients:
    """All of one broker. Changed on the data lane alone."""

    def __init__(self, stats: PushStats) -> None:
        self._stats = stats
        self.known: dict[Uuid, PushedClient] = {}
        """The one that was silent for longest first."""
        self._series = 0

    def add(self, client: Client, push: Push, *, now_ms: int, kept_ms: int) -> None:
        """Keep the readings of a push, which are current for `kept_ms`."""
        before = self._remove(client.instance_id)
        totals = dict(before.totals) if before is not None and before.kept_until_ms >= now_ms else {}
        for series, value in push.growth.items():
            totals[series] = totals.get(series, 0.0) + value
        totals.update(push.totals)
        gauges = dict(islice(push.gauges.items(), SERIES_PER_CLIENT_MAX))
        kept = dict(islice(totals.items(), SERIES_PER_CLIENT_MAX - len(gauges)))
        self._stats.series_left_out += len(push.gauges) - len(gauges) + len(totals) - len(kept)
        added = PushedClient(client, push.group_id, push.member_id, now_ms, now_ms + kept_ms, gauges, kept)
        self._make_room(added.series, now_ms)
        self.known[client.instance_id] = added
        self._series += added.series

    def current(self, now_ms: int) -> list[PushedClient]:
        """Those whose readings are current. Any thread may ask."""
        return [each for each in list(self.known.values()) if each.kept_until_ms >= now_ms]

    def _make_room(self, series: int, now_ms: int) -> None:
        if len(self.known) < CLIENTS_MAX and self._series + series <= SERIES_MAX:
            return
        for instance_id in [key for key, each in self.known.items() if each.kept_until_ms < now_ms]:
            self._remove(instance_id)
        hosts = Counter(each.client.host for each in self.known.values())
        while self.known and (len(self.known) >= CLIENTS_MAX or self._series + series > SERIES_MAX):
            (most, _), *_ = hosts.most_common(1)
            out = next(key for key, each in self.known.items() if each.client.host == most)
            hosts[most] -= 1
            self._remove(out)
            self._stats.clients_put_out += 1

    def _remove(self, instance_id: Uuid) -> PushedClient | None:
        found = self.known.pop(instance_id, None)
        if found is not None:
            self._series -= found.series
        return found
