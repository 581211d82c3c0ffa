"""What the parts of a simulated run see of the run and of each other.

May touch:  nothing, it is an interface, but for the figures.   Must not touch: anything.
Invariants: none.
Read next:  cluster.py, which meets Run; faults.py (Trouble), invariants.py (Judge), operators.py (Asked).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from random import Random
from typing import Any, NamedTuple, Protocol

from barnabas_quorum.image.partition import PartitionRegistration
from barnabas_quorum.records_security import AclOperation, AclResourceType
from barnabas_replication.requests import AppendOutcome
from barnabas_simulation.loop import VirtualLoop
from barnabas_simulation.network import Network
from barnabas_simulation.node_parts import NodeParts
from barnabas_simulation.partition_model import PartitionModel
from barnabas_simulation.swarm import Slant, Swarm
from barnabas_wire.kafka.errors import KafkaError
from barnabas_wire.kafka.ids import BrokerId, Epoch, TopicPartition, Uuid
from barnabas_wire.lazy_dataclass import dataclass

Assignment = tuple[BrokerId, ...]


class Read(NamedTuple):
    """What a reader got."""

    error: KafkaError | None
    log_start_offset: int
    data: bytes
    aborted: Sequence[tuple[int, int]] = ()
    """(producer id, first offset) of transactions in there that were aborted, for readers of committed data."""


Send = Callable[[Any, int], Awaitable[Any]]
"""Sends a request, in a version up to the one given, and returns the answer. Raises Cut: lost, or late."""


class Ask(NamedTuple):
    """One thing that a client asks a broker for, in the words of both ways. Either raises KafkaError where that is refused."""

    kind: str
    handle: Callable[[NodeParts], Awaitable[Any]]
    """Past the listener: carried out by the parts behind it."""
    send: Callable[[Send], Awaitable[Any]]
    """Through the listener: sent, and what came back read."""
    rights: Sequence[tuple[AclResourceType, AclOperation]]
    """What its user needs for it."""
    is_copied: bool = True
    """Whether it may arrive twice, past the listener."""


class Calls(Protocol):
    """One client's calls. None: lost, late, or refused for a reason that passes."""

    async def produce(self, leader: BrokerId, to: TopicPartition, batch: bytes) -> AppendOutcome | None:
        """Append one batch to all in-sync replicas."""

    async def read(
        self, leader: BrokerId, of: TopicPartition, offset: int, epoch: Epoch, *, is_read_committed: bool = False
    ) -> Read | None:
        """Read on from an offset."""

    async def list_latest(
        self, leader: BrokerId, of: TopicPartition, epoch: Epoch, *, is_read_committed: bool = False
    ) -> int | None:
        """The end of what is committed."""

    async def ask(self, broker: BrokerId, ask: Ask, *, patience_s: float | None = None) -> Any:
        """The answer, or the error of one that was refused; None: lost, late, or a right that the broker has not heard of yet.

        patience_s: seconds to wait for it at most; None: as long as for any other call.
        """


class Judge(Protocol):
    """The laws, as those see them who are judged."""

    models: dict[tuple[Uuid, int], PartitionModel]

    def newest_registrations(self) -> list[PartitionRegistration]:
        """The registrations of all partitions that are not deleted as far as any node knows."""

    def kept_topics(self) -> set[str]:
        """Names of the topics that are there by now and stay."""

    def model(self, topic: str, topic_id: Uuid, number: int) -> PartitionModel:
        """The model of a partition, made when it is first heard of."""

    def on_acknowledged(self, topic: str, number: int, offset: int, record_id: int) -> None:
        """A client got the acknowledgement of its record."""

    def on_read(self, topic: str, number: int, offset: int, record_id: int) -> None:
        """A client has read a record."""

    def led_since(self, topic: str, number: int, epoch: Epoch) -> float:
        """When the leader of that epoch began, as far as is known (virtual seconds); infinite: it has not."""

    def on_deleted(self, model: PartitionModel, log_start: int) -> None:
        """An operator got the answer that what comes before is deleted."""

    def on_fence(self, node: NodeParts, broker_id: BrokerId) -> None:
        """This controller is about to fence the broker because nothing was heard of it."""


class Trouble(Protocol):
    """What breaks nodes, as those see it whose deeds are telling moments."""

    wiped: NodeParts | None
    """Without its logs, and somebody may not know it yet."""

    def after_acknowledgement(self, leader: NodeParts) -> None:
        """What was just promised must survive this."""

    def after_made_again(self) -> None:
        """A topic was made again and holds a record."""

    def after_registration(self, before: PartitionRegistration, after: PartitionRegistration) -> None:
        """A partition changed."""

    def after_roll(self, node: NodeParts) -> None:
        """A replica began another segment."""

    def after_stop(self, node: NodeParts) -> None:
        """A node has ended by itself."""


class Asked(Protocol):
    """What operators have asked for."""

    owed: dict[tuple[Uuid, int], set[Assignment]]
    owed_settings: dict[Uuid, set[int]]
    is_asking: bool


class Run(Protocol):
    """One run of a whole cluster."""

    seed: int
    random: Random
    rot: Random
    has_rot: bool
    slant: Slant
    sessionless_size: int
    loop: VirtualLoop
    swarm: Swarm
    network: Network
    figures: Figures

    @property
    def nodes(self) -> Sequence[NodeParts]:
        """All of them, up or not."""

    @property
    def invariants(self) -> Judge:
        """The laws."""

    @property
    def faults(self) -> Trouble:
        """What breaks nodes, disks and links."""

    @property
    def operators(self) -> Asked:
        """The operators, who move partitions and change settings."""

    def calls(self) -> Calls:
        """How one more client reaches the brokers."""

    def strikes(self, kind: str, source: int, target: int = -1) -> bool:
        """A fault is about to happen; False when this one is left out."""

    def wall_ms(self) -> int:
        """The clock that all brokers and clients have."""

    def note(self, kind: str, source: int, target: int) -> None:
        """One line of the trace, and of its hash."""


@dataclass(slots=True)
class Figures:
    """What a run was worth."""

    steps: int = 0
    messages: int = 0
    virtual_s: float = 0.0
    crashes: int = 0
    partitions: int = 0
    wipes: int = 0
    hosts_lost: int = 0
    stops: int = 0
    """Clean ones."""
    reassignments: int = 0
    throttles: int = 0
    settings: int = 0
    """Settings of topics that were changed."""
    deletions: int = 0
    """Deletions of records from the beginning of a partition that were answered."""
    voter_changes: int = 0
    stalls: int = 0
    """Stalls of the whole machine."""
    directories_broken: int = 0
    directories_full: int = 0
    directories_offline: int = 0
    directories_filled: int = 0
    """Full ones that their broker has met, and waited for room in."""
    """Those of them that the broker has met: then it gave up what was in them."""
    descriptor_shortages: int = 0
    bits_flipped: int = 0
    """In logs of nodes that were stopped, and of leaders."""
    small_files_struck: int = 0
    """Crashed nodes that found small files, logs or a directory other than they were."""
    compactions: int = 0
    """Runs of cleaners that were swapped in, of the processes that were up in the end."""
    transactions: int = 0
    """That were committed."""
    zombies_fenced: int = 0
    prepared_transactions: int = 0
    empty_aborts: int = 0
    """Right after a commit."""
    classic_transactions: int = 0
    """Transactions of version 1 that were committed."""
    offsets_given_up: int = 0
    """By clients of version 1, which then aborted."""
    coordinators_moved: int = 0
    """By an operator."""
    hashes_compared: int = 0
    acknowledged: int = 0
    elections: int = 0
    trace_hash: str = ""

    def add(self, other: Figures) -> None:
        """Add the figures of another run; trace hashes are not added."""
        for name in self.__slots__:
            if name != "trace_hash":
                setattr(self, name, getattr(self, name) + getattr(other, name))

    @property
    def is_void(self) -> bool:
        """Nothing was put to the test."""
        return self.acknowledged == 0 or self.crashes == 0
