"""Interprets scripts about one partition, `orders-0`, on brokers 1 to 3: real replicas, logs and fetchers on virtual time.

Commands (B names a broker; every line is followed by 20 ms, in which what can happen happens):
  topic [replicas=1,2,3] [min=N] [lag=MS] [silence=MS] [bytes=N] [page-cache]
                            the topic is made, led by the first replica; bytes: most that a follower's fetch brings
  produce B N [acks=all|1] [timeout=MS]   N records; the answer is printed when it leaves
  consume B OFFSET [wait=MS]            a consumer's fetch; the same
  hold B / flush B                      flushes of B take until / end now, and so do all that follow
  cut A B / heal A B                    fetches between them fail / work again
  fence B / unfence B                   the controller takes B for dead / alive, and elects
  elect B [isr=…]                       the controller makes B lead in a new epoch, clean or not
  deaf / hears                          the controller cannot be reached by brokers / can
  delay B / tell B                      B does not learn what the controller decides / does, of all at once
  crash B / start B                     a power cut: what is not flushed is gone / it starts and registers again
  trace / quiet                         fetches of followers are printed / not any more
  delete B OFFSET                       DeleteRecords below the offset
  wait MS                               time passes
  fetcher B                             who fetches the partition for B
  show                                  all replicas; else those are printed whose state has changed
Printed as it happens: decisions of the controller, answers, fetches. A replica's and a fetcher's line is its `repr`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from pathlib import PurePosixPath
from random import Random
from typing import Any

from barnabas_log.config import FlushOnAcks, LogConfig
from barnabas_log.memory_disk import MemoryDisk
from barnabas_quorum.controller.elections import elect_leaderless
from barnabas_quorum.controller.partition_change import build_change
from barnabas_quorum.controller.partition_rules import PartitionRules, acceptable
from barnabas_quorum.controller.partitions import leave_partitions
from barnabas_quorum.image.features import METADATA_VERSION
from barnabas_quorum.image.metadata import MetadataDelta, MetadataImage
from barnabas_quorum.records import (
    BrokerRegistrationChangeRecord,
    FeatureLevelRecord,
    PartitionChangeRecord,
    Record,
)
from barnabas_replication.config import ReplicationConfig
from barnabas_replication.controller import AlterPartitionItem, AlterPartitionOutcome
from barnabas_replication.follower.peer import FetchAnswer
from barnabas_replication.requests import AppendEntry, AppendOutcome, FetchOutcome, FetchPartitionSpec, FetchSpec
from barnabas_simulation.loop import VirtualLoop
from barnabas_wire.kafka.errors import KafkaError
from barnabas_wire.kafka.ids import BrokerId, Offset, TopicPartition
from tests.scenarios.runner import Scenario
from tests.support.replicas import MemoryController, MemoryPeer, MiniCluster, batch, place_now, topic_id_of

TOPIC = "orders"
ORDERS = TopicPartition(TOPIC, 0)
SETTLE_MS = 20


class _LosesMost(Random):
    """A power cut that takes all it may."""

    def randint(self, low: int, high: int) -> int:
        return low

    def choice(self, seq: Any) -> Any:
        return seq[0]


class _Controller(MemoryController):
    """Decides as the real one does: leaders, ISR and eligible replicas."""

    def __init__(self, scenario: ReplicaScenario) -> None:
        super().__init__()
        self.min_isr = 1
        self.untold: dict[int, list[tuple[MetadataDelta, MetadataImage]]] = {}
        """What brokers have not heard yet, by broker."""
        self._scenario = scenario

    @property
    def rules(self) -> PartitionRules:
        """Of the one topic."""
        return PartitionRules(
            allows_unclean=lambda topic: False,
            min_insync_replicas=lambda topic: self.min_isr,
            is_durable=lambda topic: True,
        )

    def commit(self, *records: Record) -> None:
        """Commit, and say what becomes of the partition."""
        for record in records:
            if isinstance(record, BrokerRegistrationChangeRecord):
                self._scenario.printed.append(
                    f"controller: broker {record.broker_id} is {'' if record.is_fenced else 'un'}fenced"
                )
        super().commit(*records)
        if any(isinstance(record, PartitionChangeRecord) for record in records):
            now = self.registration(TOPIC)
            elr = f", ELR {_names(now.elr)}" if now.elr else ""
            leader = f"{now.leader} leads" if now.leader >= 0 else "nobody leads"
            self._scenario.printed.append(
                f"controller: {leader} epoch {now.leader_epoch}, ISR {_names(now.isr)}{elr} (partition epoch {now.partition_epoch})"
            )

    def tell_all(self) -> None:
        """Publish to those that hear."""
        news, self.unreported = self.unreported, []
        for number in self.brokers:
            if number in self.untold:
                self.untold[number] += news
            else:
                self._tell(number, news)

    def tell(self, number: int) -> None:
        """Publish what was held back from a broker, which hears again."""
        self._tell(number, self.untold.pop(number))

    def _tell(self, number: int, news: list[tuple[MetadataDelta, MetadataImage]]) -> None:
        manager = self.brokers[number].manager
        for delta, image in news:
            if manager is not None:
                manager.apply_delta(delta.topics, image)
                place_now(manager)

    async def alter_partition(self, requests: Sequence[AlterPartitionItem]) -> list[AlterPartitionOutcome]:
        outcomes = await super().alter_partition(requests)
        for item, outcome in zip(requests, outcomes, strict=True):
            if outcome.error is not None:
                members = _names(member.broker_id for member in item.new_isr)
                self._scenario.printed.append(f"controller: refuses ISR {members}: {outcome.error.code.name}")
        return outcomes

    def isr_change(self, item: AlterPartitionItem) -> Record:
        registration = self.registration(TOPIC)
        change = build_change(
            registration,
            topic_id=item.topic_id,
            partition_id=item.partition,
            is_acceptable=acceptable(self.image, registration),
            min_insync_replicas=self.min_isr,
            target_isr=tuple(member.broker_id for member in item.new_isr),
        )
        assert change is not None, "a proposal changes something"
        return change


class _Peer(MemoryPeer):
    """Says what is asked and answered, while fetches are traced."""

    def __init__(self, scenario: ReplicaScenario, cluster: MiniCluster, *, follower: int, leader: int) -> None:
        super().__init__(cluster, follower=follower, leader=leader)
        self._scenario = scenario
        self._way = f"{follower}>{leader}"
        self._way_back = f"{leader}>{follower}"

    async def fetch(self, request: FetchSpec, partitions: Sequence[FetchPartitionSpec]) -> FetchAnswer:
        say = self._scenario.trace
        for spec in partitions:
            flushed = "" if spec.flushed_offset < 0 else f", flushed {spec.flushed_offset}"
            say(f"{self._way} fetch {spec.fetch_offset} after epoch {spec.last_fetched_epoch}{flushed}")
        try:
            answer = await super().fetch(request, partitions)
        except OSError:
            say(f"{self._way_back} lost")
            raise
        for topic, _, code, high_watermark, log_start, diverging, records, _ in answer.partitions:
            assert topic == TOPIC
            if code:
                say(f"{self._way_back} {code.name}")
            elif diverging is not None:
                say(f"{self._way_back} diverging: epoch {diverging.epoch} ends at {diverging.end_offset}")
            else:
                start = f", starts at {log_start}" if log_start else ""
                say(f"{self._way_back} {len(records)} bytes, HW {high_watermark}{start}")
        return answer


class ReplicaScenario(Scenario):
    """Three brokers and a controller in one loop, of which a command runs a while."""

    def __init__(self) -> None:
        self.printed: list[str] = []
        self.is_traced = False
        self.loop = VirtualLoop()
        self.controller = _Controller(self)
        self.disks = {number: MemoryDisk() for number in (1, 2, 3)}
        self.shown: dict[int, str] = {}
        self.cluster = cluster = MiniCluster(PurePosixPath("data"))  # type: ignore[arg-type]  # a name, on disks in memory
        cluster.make_disk = self.disks.__getitem__
        cluster.make_peer = lambda follower, leader: _Peer(self, cluster, follower=follower, leader=leader)
        cluster.controller, self.controller.brokers = self.controller, cluster.brokers
        for number, disk in self.disks.items():
            disk.make_directory(f"data/broker{number}")

    def run(self, command: str) -> list[str]:
        """One line."""
        self.printed = []
        verb, *words = command.split()
        options = dict(word.split("=", 1) for word in words if "=" in word)
        method = getattr(self, f"_do_{verb}")
        self._run(self._then_settle(method, [word for word in words if "=" not in word], options))
        for number, broker in self.cluster.brokers.items():
            partition = None if broker.manager is None else broker.manager.partition(ORDERS)
            line = f"{number}: {'nothing' if partition is None else repr(partition)[1:-1].removeprefix('orders-0 ')}"
            if verb == "show" or line != self.shown.get(number, f"{number}: nothing"):
                self.printed.append(line)
            self.shown[number] = line
        return self.printed

    def trace(self, line: str) -> None:
        """Print what a fetch says, where that is wanted."""
        if self.is_traced:
            self.printed.append(line)

    def close(self) -> None:
        """The script has ended."""
        self.loop.end()

    def _run(self, work: Coroutine[Any, Any, None]) -> None:
        asyncio.set_event_loop(self.loop)
        try:
            self.loop.run_until_complete(work)
        finally:
            asyncio.set_event_loop(None)

    async def _then_settle(self, method: Callable[..., Any], words: list[str], options: dict[str, str]) -> None:
        waited = method(*words, **options)
        if waited is not None:
            await waited
        await asyncio.sleep(SETTLE_MS / 1000)

    # ---- the world

    async def _do_topic(
        self,
        mode: str = "",
        *,
        replicas: str = "1,2,3",
        min: str = "1",
        lag: str = "30000",
        silence: str = "5000",
        bytes: str = "1000000",
    ) -> None:
        self.controller.min_isr = int(min)
        self.cluster.log_config = LogConfig(
            flush_on_acks=FlushOnAcks.PAGE_CACHE if mode == "page-cache" else FlushOnAcks.FSYNC,
            min_insync_replicas=int(min),
        )
        self.cluster.config = ReplicationConfig(
            replica_fetch_wait_ms_max=500,
            replica_lag_time_ms_max=int(lag),
            replica_fetch_silence_ms_max=int(silence),
            replica_fetch_backoff_ms=200,
            replica_fetch_bytes_max=int(bytes),
            replica_fetch_response_bytes_max=int(bytes),
        )
        MemoryController.commit(self.controller, FeatureLevelRecord(name=METADATA_VERSION, level=3))
        for broker in self.cluster.brokers.values():
            await broker.start()
        self.controller.create(TOPIC, replicas=_brokers(replicas), leader=_brokers(replicas)[0])

    async def _do_wait(self, delay_ms: str) -> None:
        await asyncio.sleep(int(delay_ms) / 1000)

    def _do_show(self) -> None:
        """All replicas are printed."""

    def _do_fetcher(self, broker: str) -> None:
        self.printed.append(f"{broker}: {self._manager(broker).fetchers.fetcher_of(ORDERS)!r}")

    def _do_trace(self) -> None:
        self.is_traced = True

    def _do_quiet(self) -> None:
        self.is_traced = False

    def _do_hold(self, broker: str) -> None:
        self.disks[int(broker)].hold_flushes()

    def _do_flush(self, broker: str) -> None:
        self.disks[int(broker)].let_go()

    def _do_cut(self, one: str, other: str) -> None:
        self.cluster.cut_links.add(frozenset((int(one), int(other))))

    def _do_heal(self, one: str, other: str) -> None:
        self.cluster.cut_links.discard(frozenset((int(one), int(other))))

    async def _do_crash(self, broker: str) -> None:
        number = int(broker)
        await self.cluster[number].kill()
        self.disks[number] = self.disks[number].crash(_LosesMost())

    async def _do_start(self, broker: str) -> None:
        await self.cluster[int(broker)].start()

    # ---- the controller

    def _do_fence(self, broker: str) -> None:
        number = BrokerId(int(broker))
        self.controller.commit(
            *leave_partitions(self.controller.image, [number], rules=self.controller.rules),
            self._registration_change(number, is_fenced=True),
        )

    def _do_unfence(self, broker: str) -> None:
        number = BrokerId(int(broker))
        elected = elect_leaderless(self.controller.image, rules=self.controller.rules, records_max=10, joining=number)
        self.controller.commit(self._registration_change(number, is_fenced=False), *elected)

    def _registration_change(self, broker_id: BrokerId, *, is_fenced: bool) -> Record:
        registered = self.controller.image.cluster.brokers[broker_id]
        return BrokerRegistrationChangeRecord(broker_id=broker_id, broker_epoch=registered.epoch, is_fenced=is_fenced)

    def _do_elect(self, broker: str, *, isr: str = "") -> None:
        self.controller.change(TOPIC, leader=int(broker), isr=_brokers(isr) if isr else None)

    def _do_deaf(self) -> None:
        self.controller.is_reachable = False

    def _do_hears(self) -> None:
        self.controller.is_reachable = True

    def _do_delay(self, broker: str) -> None:
        self.controller.untold[int(broker)] = []

    def _do_tell(self, broker: str) -> None:
        self.controller.tell(int(broker))

    # ---- clients

    def _do_produce(self, broker: str, count: str, *, acks: str = "all", timeout: str = "5000") -> None:
        def respond(outcomes: list[AppendOutcome]) -> None:
            outcome = outcomes[0]
            place = f" at {outcome.base_offset}" if outcome.base_offset >= 0 else ""
            self._answered(f"produce {broker} {count}", outcome.error, place)

        self._manager(broker).appends.append_records(
            [AppendEntry(TOPIC, 0, memoryview(batch(int(count))))],
            required_acks=-1 if acks == "all" else int(acks),
            timeout_ms=int(timeout),
            respond=respond,
        )

    def _do_consume(self, broker: str, offset: str, *, wait: str = "0") -> None:
        def respond(outcomes: list[FetchOutcome]) -> None:
            outcome = outcomes[0]
            for part in outcome.parts:
                part.file.release()
            self._answered(
                f"consume {broker} {offset}", outcome.error, f" {outcome.size_bytes} bytes, HW {outcome.high_watermark}"
            )

        self._manager(broker).fetches.fetch_one(
            FetchSpec(max_wait_ms=int(wait)),
            FetchPartitionSpec(TOPIC, topic_id_of(TOPIC), 0, fetch_offset=Offset(int(offset))),
            respond,
        )

    async def _do_delete(self, broker: str, offset: str) -> None:
        found = await self._manager(broker).delete_records([(ORDERS, Offset(int(offset)))], timeout_ms=1_000)
        error = found[0] if isinstance(found[0], KafkaError) else None
        self._answered(f"delete {broker} {offset}", error, "" if error else f" from {found[0]} on")

    def _answered(self, request: str, error: KafkaError | None, told: str) -> None:
        self.printed.append(f"{request}:{f' {error.code.name}' if error is not None else ' ok'}{told}")

    def _manager(self, broker: str) -> Any:
        manager = self.cluster[int(broker)].manager
        assert manager is not None, f"broker {broker} is down"
        return manager


def _brokers(text: str) -> tuple[int, ...]:
    return tuple(map(int, text.split(",")))


def _names(brokers: Any) -> str:
    return " ".join(map(str, brokers)) or "nobody"
