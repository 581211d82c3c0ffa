"""Transactions in the simulated cluster: copiers, their zombies, readers of committed data, and what must be true of all in the end.

May touch:  coordinators and partition leaders, through client_calls.py.   Must not touch: the laws of others.
Invariants: a value is written once; a reader never sees one whose commit was not asked for; a copier that holds its
            transactional id and is within its time-out is refused nothing for good; what its coordinator holds for over
            is open nowhere; in the end no transaction is open and the model of transaction_model.py explains what was
            read.
Read next:  transaction_calls.py, what they ask for; transaction_model.py, which judges; broker/barnabas_coordination/transaction/.

A copier reads the numbers from its group's offset on, writes one value for each, and commits values and offsets
together. No producer writes the numbers: the offset is the number. So a lost or doubled commit of offsets shows as a
number that is copied never or twice. Now and then a copier is taken for dead: another takes its transactional id while
it continues, as a zombie. Some transactions are prepared first, as those of Spark's sink, and wait for their decision
longer than their time-out.

Clients speak transaction.version 2: under version 1 a late copy of a request may end the next transaction (see the model), and this
network makes such copies. Some speak version 1 all the same, where the coordinators are troubled (swarm.py): they send no copies, and take
their transactional id again for each transaction. Now and then such a one gives up on its offsets and aborts, as
clients do whose request takes too long; what it has asked for is still under way then. All come through the Kafka
listeners where their seed's other clients do.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import field
from typing import Any, NamedTuple

from barnabas_coordination.group.service import OFFSETS_TOPIC
from barnabas_coordination.transaction.service import TRANSACTION_TOPIC
from barnabas_coordination.transaction.state import AT_REST, Producer
from barnabas_log.tail.producer_state import ProducerState
from barnabas_log.unified_log import UnifiedLog
from barnabas_quorum.controller.requests import CreatableTopic, CreateTopics
from barnabas_simulation.client_calls import CALL_TIMEOUT_S
from barnabas_simulation.network import Cut, Network
from barnabas_simulation.node_parts import NodeParts
from barnabas_simulation.partition_model import LawBroken
from barnabas_simulation.run import Ask, Run
from barnabas_simulation.transaction_calls import (
    TV1,
    TransactionalClient,
    add_offsets,
    add_partition,
    commit_offset,
    end,
    find_coordinators,
    initialize,
    prepare,
    stable_position,
    write,
)
from barnabas_simulation.transaction_model import Outcome, Transaction, TransactionHistory, Write, judge
from barnabas_simulation.workload import READ_PAUSE_S, RETRY_S, ChurningClient, Client
from barnabas_wire.kafka.errors import ErrorCode, KafkaError
from barnabas_wire.kafka.ids import NO_EPOCH, BrokerId, Epoch, TopicPartition
from barnabas_wire.lazy_dataclass import dataclass
from barnabas_wire.records.batch import Record, build_batch, crc_is_valid, iterate_batches, iterate_records
from barnabas_wire.records.control import ControlRecordType, decode_control_key

TAKEN_SHARE = 0.5
"""The share of prepared ones whose transactional id another producer tries to take."""
OUTPUT_TOPIC = "copied"
OUTPUTS = 2
"""Partitions that copiers write to."""
COORDINATOR = TopicPartition(TRANSACTION_TOPIC, 0)
"""Whose leader coordinates all transactions."""
OFFSETS = TopicPartition(OFFSETS_TOPIC, 0)
"""Whose leader coordinates the group."""
INPUT_TOPIC = "numbers"
GROUP = "copiers"
TRIES_MAX = 60
"""A copier that is refused so often in a row starts over, under a new epoch."""
COMMIT_SHARE = 0.8
PREPARE_SHARE = 0.3
"""The share of transactions prepared first, and decided on some time later, perhaps beyond their time-out."""
ZOMBIE_SHARE = 0.1
"""The share of transactions after which another takes the transactional id while the former owner continues."""
NOT_TAKEN = (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.COORDINATOR_NOT_AVAILABLE)
"""After these nothing was decided. Any other answer but the right one may be that of a decision which was committed later."""
PATIENCE_S = 0.05
"""Most time that an impatient client waits for its offsets to be committed."""
HELD_SHARE = 0.5
"""The share of those that give up for which no answer of a coordinator arrives for a while."""
LATE_S = 0.2
"""The most time after the abort was answered until one arrives."""
TIMEOUT_MS = 2_000
"""The time-out of a transaction, in ms; within SETTLE_S none may be open any more."""


class SimulatedBrokers:
    """Other brokers, as a coordinator speaks to them. Meets Brokers."""

    def __init__(self, network: Network, node: NodeParts) -> None:
        self.serve: Callable[[Any], Awaitable[Any]] | None = None
        """Answers a request to this broker."""
        self._network = network
        self._node = node

    async def call(self, broker_id: BrokerId, request: Any) -> Any:
        """See barnabas_coordination.brokers.Brokers."""
        if broker_id == self._node.id:
            assert self.serve is not None, "the assembly sets it"
            return await self.serve(request)
        try:
            async with asyncio.timeout(CALL_TIMEOUT_S + self._network.faults.coordinators_slow_s):
                return await self._network.exchange(
                    type(request).__name__, self._node, broker_id, lambda node: node.serve_own_call(request)
                )
        except Cut as error:
            raise ConnectionError(str(error)) from None

    async def close(self) -> None:
        """See OwnBrokers. Nothing is kept open."""


class Claim(NamedTuple):
    """A transactional id, as who has taken it sees it."""

    producer: Producer
    number: int
    """Which initialization of the transactional id this was; -1 where another was under way, and may have come later."""


@dataclass(slots=True, eq=False)
class Attempt:
    """A transaction as its copier sees it."""

    owner: int
    first: int
    """The number that it begins with."""
    writes: list[tuple[int, int]] = field(default_factory=list)
    """Output partition and value, in their order."""
    end: int = 0
    """The number that its group continues with."""
    outcome: Outcome = Outcome.ABORTED
    """Unknown from when its commit is asked for until that is acknowledged."""
    ended_at: float = float("inf")
    claim: int = -1
    """The number of the claim that it is made under."""
    began_at: float = 0.0


class Refused(Exception):
    """The copier cannot continue as it is."""


class _Caller(ChurningClient):
    """A client that asks brokers and hears their errors."""

    def __init__(self, cluster: Run, workload: TransactionWorkload) -> None:
        super().__init__(cluster, 0)
        self.topic = OUTPUT_TOPIC
        self._workload = workload
        self._epochs: dict[TopicPartition, Epoch] = {}

    def start(self) -> None:
        """Begin."""
        self._cluster.network.spawn(self._run())

    async def _run(self) -> None:
        raise NotImplementedError

    def _leader_of(self, key: TopicPartition, *, is_newest: bool = False) -> BrokerId | None:
        """As some node says, but never one of an older leader epoch than is known here; is_newest: as the newest image says."""
        up = [node for node in self._cluster.nodes if node.is_up]
        if not up:
            return None
        if is_newest:
            image = max((node.loader.image for node in self._cluster.nodes), key=lambda each: each.offset)
        else:
            image = self._cluster.random.choice(up).loader.image
        partition = image.topics.partition(key)
        if partition is None or not partition.has_leader or partition.leader_epoch < self._epochs.get(key, NO_EPOCH):
            return None
        self._epochs[key] = partition.leader_epoch
        return partition.leader

    async def _asked(
        self, ask: Ask, key: TopicPartition, *, is_newest: bool = False, patience_s: float | None = None
    ) -> Any:
        """One attempt: the answer, or the error, or None where no broker has answered."""
        leader = self._leader_of(key, is_newest=is_newest)
        return None if leader is None else await self._calls.ask(leader, ask, patience_s=patience_s)

    async def _insist(
        self, ask: Ask, key: TopicPartition, *, is_newest: bool = False, attempt: Attempt | None = None
    ) -> Any:
        """Ask until it is answered. attempt: what it is part of, if it may not be refused for good. Raises Refused."""
        random = self._cluster.random
        for _ in range(TRIES_MAX):
            answer = await self._asked(ask, key, is_newest=is_newest)
            if answer is not None and not isinstance(answer, KafkaError):
                return answer
            if isinstance(answer, KafkaError) and not answer.is_retriable:
                if attempt is not None:
                    self._judge_refusal(attempt, f"{ask.kind}: {answer!r}")
                raise Refused(repr(answer))
            await asyncio.sleep(RETRY_S * (0.5 + random.random()) * 2)
        raise Refused(f"{ask.kind}: nobody answers")

    def _judge_refusal(self, attempt: Attempt, what: str) -> None:
        """Part of a transaction was refused for good. Raises LawBroken where that may not be."""


class Copier(_Caller):
    """Copies the numbers of one input partition, in transactions."""

    def __init__(self, cluster: Run, workload: TransactionWorkload, number: int) -> None:
        super().__init__(cluster, workload)
        self.name = f"copier-{number}"
        self.input = TopicPartition(INPUT_TOPIC, number)
        self.attempts: list[Attempt] = []
        self.taken_at: dict[tuple[str, int], float] = {}
        self._number = number
        self._owner = 0
        self._claims = 0
        """How often the initialization of its transactional id has begun, by whomever and however late."""
        self._claims_under_way = 0
        self._think_s = cluster.swarm.think_s / 10

    async def _run(self) -> None:
        self._busy += 1
        if not self._number:
            if self._cluster.swarm.is_listening:
                await self._ask_controller(CreateTopics(topics=(self._input_topic(),), validate_only=False))
            await self._ask_controller(CreateTopics(topics=(self._topic(),), validate_only=False))
        while not self._is_stopping:
            try:
                await self._insist(find_coordinators(self.name, GROUP), TopicPartition(OUTPUT_TOPIC, 0))
                self._owner += 1
                await self._own(self._owner)
            except Refused as refusal:
                self._cluster.note(f"{self.name}.{self._owner} begins anew: {refusal}", 0, 0)
            await asyncio.sleep(RETRY_S * self._cluster.random.random())
        self._busy -= 1

    def _topic(self) -> CreatableTopic:
        policy = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0", "delete.retention.ms": "300"}
        configs = policy if self._cluster.swarm.is_compacting else {"retention.bytes": "-1", "retention.ms": "-1"}
        return CreatableTopic(name=OUTPUT_TOPIC, partition_count=OUTPUTS, replication_factor=3, configs=configs)

    def _input_topic(self) -> CreatableTopic:
        """No producer writes to it; TxnOffsetCommit takes no offsets of topics that are not there."""
        copiers = self._cluster.swarm.coordinators.copiers
        return CreatableTopic(name=INPUT_TOPIC, partition_count=copiers, replication_factor=3)

    async def _own(self, owner: int) -> None:
        """Take the transactional id and copy until that is over. Raises Refused."""
        random, now_s = self._cluster.random, self._cluster.loop.time
        trouble = self._cluster.swarm.coordinators
        claim = Claim(*await self._insist(self._initialize(), COORDINATOR))
        self.taken_at[self.name, owner] = now_s()
        position = await self._position()
        if trouble.classic and random.random() < trouble.classic:
            await self._copy_as_version_1(owner, claim, position)
            return
        while not self._is_stopping:
            before = position
            producer, position = await self._copy(owner, claim, position)
            if trouble.empty_aborts and position != before and random.random() < trouble.empty_aborts:
                producer = await self._abort_nothing(owner, claim._replace(producer=producer), position)
            claim = claim._replace(producer=producer)
            if not trouble.eager or random.random() >= trouble.eager:
                await asyncio.sleep(random.random() * self._think_s)
            if trouble.classic and random.random() < trouble.classic:
                return  # so that one of version 1 may follow
            if random.random() < ZOMBIE_SHARE:
                self._busy += 1
                self._cluster.network.spawn(self._go_on_as_zombie(owner, claim, position))
                await asyncio.sleep(random.random() * self._think_s)
                return

    def _initialize(self) -> Ask:
        return initialize(self.name, timeout_ms=TIMEOUT_MS, counted=self._claiming)

    @contextmanager
    def _claiming(self) -> Iterator[int]:
        """An initialization is under way: the number of the claim. One whose answer is lost may arrive however late."""
        self._claims += 1
        is_over = True
        self._claims_under_way += 1
        try:
            yield self._claims if self._claims_under_way == 1 else -1
        except Cut:
            is_over = False
            raise
        finally:
            self._claims_under_way -= is_over

    def _attempt(self, owner: int, claim: Claim, first: int) -> Attempt:
        return Attempt(owner, first, end=first, claim=claim.number, began_at=self._cluster.loop.time())

    def _judge_refusal(self, attempt: Attempt, what: str) -> None:
        """The transactional id is its own, and the transaction younger than its time-out: only the copier itself may
        have ended it."""
        is_own = attempt.claim == self._claims
        is_young = self._cluster.loop.time() - attempt.began_at < TIMEOUT_MS / 1000
        if is_own and is_young and not self._cluster.has_rot:
            raise LawBroken("who did nothing wrong is not refused for good", f"{self.name}, {attempt}: {what}")

    async def _go_on_as_zombie(self, owner: int, claim: Claim, position: int) -> None:
        try:
            await self._copy(owner, claim, position)
        except Refused:
            self._cluster.figures.zombies_fenced += 1
        finally:
            self._busy -= 1

    async def _position(self) -> int:
        """Asked of the newest coordinator: a deposed one may answer from before, as Kafka's does (E14s of tests/checker). Raises
        Refused."""
        (found,) = await self._insist(stable_position(GROUP, self.input), OFFSETS, is_newest=True)
        return int(found)

    async def _copy(self, owner: int, claim: Claim, first: int) -> tuple[Producer, int]:
        """One transaction; the producer to continue as, and with which number. Raises Refused."""
        random, loop = self._cluster.random, self._cluster.loop
        client, attempt = TransactionalClient(self.name, claim.producer), self._attempt(owner, claim, first)
        self.attempts.append(attempt)
        sequences = dict.fromkeys(range(OUTPUTS), 0)
        for _ in range(random.randint(1, 3)):
            number = attempt.end
            attempt.end += 1
            partition = random.randrange(OUTPUTS)
            value = self._workload.new_value(attempt)
            attempt.writes.append((partition, value))
            await self._write_value(client, partition, number, value, sequence=sequences[partition], attempt=attempt)
            sequences[partition] += 1
        await self._insist(commit_offset(client, GROUP, self.input, attempt.end), OFFSETS, attempt=attempt)
        is_commit = random.random() < COMMIT_SHARE
        if random.random() < PREPARE_SHARE:
            return await self._end_in_two_phases(client, attempt, first, is_commit=is_commit)
        attempt.ended_at = loop.time()
        if is_commit:
            attempt.outcome = Outcome.UNKNOWN
        goes_on = await self._insist(end(client, is_commit=is_commit), COORDINATOR, attempt=attempt)
        if is_commit:
            attempt.outcome = Outcome.COMMITTED
            self._cluster.figures.transactions += 1
        return goes_on, attempt.end if is_commit else first

    async def _abort_nothing(self, owner: int, claim: Claim, position: int) -> Producer:
        """Right after a commit, whose markers are perhaps not written: the producer to continue as. Raises Refused."""
        ask = end(TransactionalClient(self.name, claim.producer), is_commit=False)
        goes_on: Producer = await self._insist(ask, COORDINATOR, attempt=self._attempt(owner, claim, position))
        self._cluster.figures.empty_aborts += 1
        return goes_on

    async def _copy_as_version_1(self, owner: int, claim: Claim, first: int) -> None:
        """One transaction of a client that adds its partitions itself, and perhaps gives up on its offsets. Raises Refused."""
        random, figures = self._cluster.random, self._cluster.figures
        client, attempt = TransactionalClient(self.name, claim.producer, TV1), self._attempt(owner, claim, first)
        self.attempts.append(attempt)
        partition, number = random.randrange(OUTPUTS), attempt.end
        attempt.end += 1
        value = self._workload.new_value(attempt)
        attempt.writes.append((partition, value))
        await self._insist(add_partition(client, TopicPartition(OUTPUT_TOPIC, partition)), COORDINATOR, attempt=attempt)
        await self._write_value(client, partition, number, value, sequence=0, attempt=attempt)
        await self._insist(add_offsets(client, GROUP, OFFSETS), COORDINATOR, attempt=attempt)
        commit = commit_offset(client, GROUP, self.input, attempt.end)
        if random.random() < self._cluster.swarm.coordinators.impatient:
            await self._give_up(attempt, client, commit)
            return
        await self._insist(commit, OFFSETS, attempt=attempt)
        is_commit = random.random() < COMMIT_SHARE
        attempt.ended_at = self._cluster.loop.time()
        if is_commit:
            attempt.outcome = Outcome.UNKNOWN
        await self._insist(end(client, is_commit=is_commit), COORDINATOR, attempt=attempt)
        if is_commit:
            attempt.outcome = Outcome.COMMITTED
            figures.transactions += 1
            figures.classic_transactions += 1

    async def _give_up(self, attempt: Attempt, client: TransactionalClient, commit: Ask) -> None:
        """On its offsets, whose coordinator has said yes perhaps, and abort. Now and then that word arrives when all is over."""
        random, network = self._cluster.random, self._cluster.network
        patience_s, late_s = random.random() * PATIENCE_S, random.random() * LATE_S
        is_held = random.random() < HELD_SHARE and self._cluster.strikes("verdicts held", self._number)
        with network.holding_verdicts() if is_held else nullcontext():
            await self._asked(commit, OFFSETS, patience_s=patience_s)
            attempt.ended_at = self._cluster.loop.time()
            await self._insist(end(client, is_commit=False), COORDINATOR, attempt=attempt)
            await asyncio.sleep(late_s)
        self._cluster.figures.offsets_given_up += 1

    async def _end_in_two_phases(
        self, client: TransactionalClient, attempt: Attempt, first: int, *, is_commit: bool
    ) -> tuple[Producer, int]:
        """Prepare, wait, decide: what is prepared ends in no other way, however long that takes and whoever asks. Raises Refused."""
        loop = self._cluster.loop
        try:
            await self._insist(prepare(client), COORDINATOR)
        except Refused:
            # Whether it is prepared is not known, and no other would ever end it.
            await self._decide(client, is_commit=False, is_prepared=False)
            raise
        await asyncio.sleep(
            self._cluster.random.random() ** 3 * 2 * TIMEOUT_MS / 1000
        )  # one in five beyond its time-out
        if self._cluster.random.random() < TAKEN_SHARE:
            taken = await self._asked(self._initialize(), COORDINATOR)
            if taken is not None and not isinstance(taken, KafkaError):
                raise LawBroken("what is prepared keeps its transactional id", f"{client}: {taken} took it")
        attempt.ended_at = loop.time()
        if is_commit:
            attempt.outcome = Outcome.UNKNOWN
        goes_on = await self._decide(client, is_commit=is_commit, is_prepared=True)
        assert goes_on is not None
        self._cluster.figures.prepared_transactions += 1
        if is_commit:
            attempt.outcome = Outcome.COMMITTED
            self._cluster.figures.transactions += 1
        return goes_on, attempt.end if is_commit else first

    async def _decide(self, client: TransactionalClient, *, is_commit: bool, is_prepared: bool) -> Producer | None:
        """EndTxn until it is answered; None where it was not prepared, and another has ended it.

        Raises Refused where an attempt whose answer was lost may have decided, and another owner has taken the id since.
        """
        may_be_decided = False
        while True:
            answer = await self._asked(end(client, is_commit=is_commit), COORDINATOR)
            if isinstance(answer, Producer):
                return answer
            if isinstance(answer, KafkaError) and not answer.is_retriable:
                if is_prepared and may_be_decided:
                    raise Refused(repr(answer))
                if is_prepared:
                    raise LawBroken("what is prepared ends by its decision alone", f"{client}: {answer!r}")
                return None
            if not (isinstance(answer, KafkaError) and answer.code in NOT_TAKEN):
                may_be_decided = True
            await asyncio.sleep(RETRY_S * (0.5 + self._cluster.random.random()) * 2)

    async def _write_value(
        self, client: TransactionalClient, partition: int, number: int, value: int, *, sequence: int, attempt: Attempt
    ) -> None:
        """One value, until it is acknowledged. Raises Refused."""
        batch = build_batch(
            [Record(0, self._cluster.wall_ms(), b"%s %d" % (self.name.encode(), number), b"%d" % value)],
            is_transactional=True,
            producer_id=client.producer.producer_id,
            producer_epoch=client.producer.epoch,
            base_sequence=sequence,
        )
        key = TopicPartition(OUTPUT_TOPIC, partition)
        await self._insist(write(client, key, batch), key, attempt=attempt)


class CommittedReader(_Caller):
    """Reads one output partition, committed data alone."""

    def __init__(self, cluster: Run, workload: TransactionWorkload, partition: int) -> None:
        super().__init__(cluster, workload)
        self.partition = partition

    async def _run(self) -> None:
        key = TopicPartition(OUTPUT_TOPIC, self.partition)
        at = 0
        while not self._is_stopping:
            await asyncio.sleep(READ_PAUSE_S)
            self._workload.look()
            leader = self._leader_of(key)
            if leader is None:
                continue
            answer = await self._calls.read(leader, key, at, self._epochs[key], is_read_committed=True)
            if answer is None or answer.error is not None:
                continue
            if not all(crc_is_valid(answer.data, *each) for each in iterate_batches(answer.data)):
                continue
            for offset, value in visible(answer.data, answer.aborted):
                if offset >= at:
                    self.take(offset, value)
            at = max([at, *(header.next_offset for _, header in iterate_batches(answer.data))])
            leader = self._leader_of(key)
            if leader is None:
                continue
            latest = await self._calls.list_latest(leader, key, self._epochs[key], is_read_committed=True)
            if latest is not None:
                self._remember_latest(latest, at)

    def take(self, offset: int, value: int) -> None:
        """A value was read."""
        known = self.seen.setdefault(offset, value)
        if known != value:
            raise LawBroken("what was read never changes (P7)", f"{self} at {offset}: {known}, now {value}")
        attempt = self._workload.attempts.get(value)
        if attempt is None or attempt.outcome is Outcome.ABORTED:
            raise LawBroken(
                "nobody reads what nobody has asked to commit (E4, E5)", f"{self} at {offset}: {value} of {attempt}"
            )


class TransactionWorkload:
    """All of it, for one run."""

    def __init__(self, cluster: Run) -> None:
        self.attempts: dict[int, Attempt] = {}
        """By value."""
        self.copiers = [Copier(cluster, self, number) for number in range(cluster.swarm.coordinators.copiers)]
        self.readers = [CommittedReader(cluster, self, partition) for partition in range(OUTPUTS)]
        self._cluster = cluster

    @property
    def clients(self) -> list[Client]:
        """Those who write and read."""
        return [*self.copiers, *self.readers]

    def new_value(self, attempt: Attempt) -> int:
        """A value that was not written yet."""
        value = 1 + len(self.attempts)
        self.attempts[value] = attempt
        return value

    def look(self) -> None:
        """Whether what its coordinator holds for over is open nowhere: it would never end. Raises LawBroken."""
        coordinator = self._leader(COORDINATOR)
        if coordinator is None or self._cluster.has_rot:
            return
        over = {state.producer_id for state in coordinator.transactions.states() if state.status in AT_REST}
        for key in (OFFSETS, *(TopicPartition(OUTPUT_TOPIC, each) for each in range(OUTPUTS))):
            leader = self._leader(key)
            if leader is not None and (left := over.intersection(_producers_in(leader, key).open_transactions)):
                raise LawBroken(
                    "what is over is open in no partition", f"producers {sorted(left)} in {key} of node {leader.id}"
                )

    def _leader(self, key: TopicPartition) -> NodeParts | None:
        """The leader of a partition by the newest image, once it knows of it."""
        nodes = self._cluster.nodes
        registration = max((node.loader.image for node in nodes), key=lambda each: each.offset).topics.partition(key)
        if registration is None:
            return None
        for node in nodes:
            if node.id == registration.leader and node.is_up:
                led = node.replicas.partition(key)
                if led is not None and led.is_leader and led.leader_epoch == registration.leader_epoch:
                    return node
        return None

    def not_begun(self) -> str | None:
        """Which copier has no transaction yet: before the topics of the coordinators are made there is nothing to break."""
        return next((f"{each.name} has not begun" for each in self.copiers if not each.attempts), None)

    def unsettled(self) -> str | None:
        """Which transaction is open though no copier works on one."""
        for node in self._cluster.nodes:
            for name, log in node.logs.logs.items():
                if name.topic in (OUTPUT_TOPIC, OFFSETS_TOPIC) and log.last_stable_offset < log.high_watermark:
                    return f"node {node.id}: a transaction is open in {name} at {log.last_stable_offset}"
        return None

    def judge(self) -> None:
        """In the end, on every replica. Raises LawBroken."""
        read: dict[str, list[str]] = {}
        for reader in self.readers:
            key = TopicPartition(OUTPUT_TOPIC, reader.partition)
            views = {
                node.id: view(log)
                for node in self._cluster.nodes
                if (log := node.logs.logs.get(key)) is not None and node.replicas.partition(key) is not None
            }
            if not views:
                return
            first = next(iter(views.values()))
            if any(each != first for each in views.values()):
                raise LawBroken("committed data is the same on every replica (E16)", f"{key}: {views}"[:2000])
            changed = [offset for offset, value in reader.seen.items() if first.get(offset) != value]
            if changed:
                raise LawBroken("what was read never changes (P7)", f"offsets {changed[:10]} of {key}")
            read[str(reader.partition)] = [str(value) for value in first.values()]
        self._cluster.figures.compactions += sum(node.logs.cleaner.stats.runs for node in self._cluster.nodes)
        violations = judge(self._history(read))
        if violations:
            raise LawBroken(f"{violations[0].law}, of transactions", f"{violations}"[:2000])

    def _history(self, read: dict[str, list[str]]) -> TransactionHistory:
        return TransactionHistory(
            transactions=[
                Transaction(
                    transactional_id=copier.name,
                    owner=attempt.owner,
                    writes=tuple(Write(str(partition), str(value)) for partition, value in attempt.writes),
                    offsets={str(copier.input): attempt.end},
                    outcome=attempt.outcome,
                    ended_at=attempt.ended_at,
                )
                for copier in self.copiers
                for attempt in copier.attempts
            ],
            taken_at={key: at for copier in self.copiers for key, at in copier.taken_at.items()},
            read=read,
            offsets=self._offsets(),
        )

    def _offsets(self) -> dict[str, int]:
        """The group's committed offsets by input partition, as its coordinator says."""
        inputs = [copier.input for copier in self.copiers]
        for node in self._cluster.nodes:
            led = node.replicas.partition(OFFSETS)
            if led is not None and led.is_leader:
                found = node.groups.fetch_offsets(GROUP, inputs)
                return {str(each): max(0, at.offset) for each, at in zip(inputs, found, strict=True)}
        return {}


def _producers_in(node: NodeParts, key: TopicPartition) -> ProducerState:
    led = node.replicas.partition(key)
    assert led is not None, "it leads it"
    return led.log.producers


def view(log: UnifiedLog) -> dict[int, int]:
    """Offset -> value of what a reader of committed data finds in a log."""
    start, end = log.log_start_offset, log.last_stable_offset
    data = b"".join(segment.file.read(0, segment.file.size_bytes) for segment in log.segments)
    aborted = [each[:2] for each in log.aborted.within(start, end)]
    return {offset: value for offset, value in visible(data, aborted) if start <= offset < end}


def visible(data: bytes, aborted: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """(offset, value) of what a client with isolation.level=read_committed keeps of an answer, as Java's does."""
    coming = sorted(aborted, key=lambda each: each[1])
    dropped: set[int] = set()
    found = []
    for position, header in iterate_batches(data):
        while coming and coming[0][1] <= header.last_offset:
            dropped.add(coming.pop(0)[0])
        batch = memoryview(data)[position : position + header.size_bytes]
        if header.is_control:
            marker = next(iter(iterate_records(batch)), None)
            if marker is not None and decode_control_key(marker.key or b"") == ControlRecordType.ABORT:
                dropped.discard(header.producer_id)
        elif not (header.is_transactional and header.producer_id in dropped):
            found += [(record.offset, int(record.value or b"-1")) for record in iterate_records(batch)]
    return found
