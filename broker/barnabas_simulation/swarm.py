"""What one seed is like: how bad network, disks and power are, and how the logs are cut.

May touch:  the random generator it is given.   Must not touch: anything else.
Invariants: zero is a value of every fault; what is drawn stays inside what the design promises to survive.
Read next:  faults.py, which obeys.

Uniform faults find little: a rule about a lagging follower needs one that lags, for long, while others do not. So each seed
has much of some faults and nothing of others, and crashes go for moments at which the protocol has just decided something.
"""

from __future__ import annotations

from dataclasses import replace
from enum import Enum
from random import Random

from barnabas_simulation.disk import DiskFaults
from barnabas_simulation.network import LinkFaults
from barnabas_simulation.sockets import StreamFaults
from barnabas_wire.lazy_dataclass import dataclass

FOREVER_S = 1e9
WHOLE_LOG_BYTES = 1 << 30
BEGUN_ANEW_SHARE = 0.25
"""The share of seeds in which directories fail again and again while topics are deleted and made again, so that their
logs are begun again beside those of the same name that are out of reach."""
KEPT_LONGER_SHARE = 0.15
"""The share of seeds in which the topics keep for ever what the brokers' own settings would soon let go of, while
brokers start out of everybody's reach."""
RETIRING_SHARE = 0.4
"""The share of seeds in which records expire within moments, operators delete others, and a partition rests now and
then."""
SILENCE_SHARE = 0.3
"""The share of seeds in which a slow follower keeps its place for so long that only its silence can cost it that."""
COMPACTING_SHARE = 0.25
"""The share of seeds with a compacted topic."""
TRANSACTING_SHARE = 0.2
"""The share of seeds with transactions."""
COORDINATING_SHARE = 0.4
"""The share of seeds with transactions in which their coordinators are late and moved, and clients act on it."""
STARVING_SHARE = 0.25
"""The share of seeds in which brokers run out of file descriptors now and then."""
SETTING_SHARE = 0.15
"""The share of seeds in which operators change min.insync.replicas and segment sizes of topics, while metadata lags on
one node."""
LISTENING_EVERY = 5
"""The last of so many seeds has clients that come to the brokers' Kafka listeners."""
FORGETTING_MS = 100
"""How long tombstones stay where they go soon."""
HAUNT_EVERY_S = 0.3
"""Mean time between two haunting fetches, where there are any."""
ONE_BATCH_BYTES = 100
"""What a haunted follower fetches at once, so that it joins an ISR when it holds what is committed and no more."""


class Slant(Enum):
    """What every seed of a search has, whatever it draws: a bug that needs it is found some ten times as fast there."""

    NONE = "none"
    TRANSACTIONS = "transactions"
    COORDINATORS = "coordinators"
    """Transactions whose coordinators are late and moved, by clients of both versions that give up and abort."""
    ROT = "rot"
    HAUNTED = "haunted"
    """Fetches arrive in the next life of a follower."""
    DELETING = "deleting"
    """Only operators delete records, at any offset, and each crash may take a disk: the new log begins where the leader's log starts,
    which may be within a batch."""
    SMALL_FILES = "small_files"
    """Crashed nodes find small files damaged or gone, logs cut or gone, or a log directory as it was before."""
    TOPIC_IDS = "topic_ids"
    """As small_files, and it is always the topic ids."""
    OLDER_COPIES = "older_copies"
    """As small_files, and it is always a directory as it was before."""
    SETTINGS = "settings"
    """Operators change min.insync.replicas and segment sizes all the time, and metadata lags."""
    BEGUN_ANEW = "begun_anew"
    """Directories fail again and again while topics are deleted and made again."""
    LISTENERS = "listeners"
    """Clients come to the Kafka listeners."""
    MEMBERS = "members"
    """Members of a group of both protocols come to the Kafka listeners, while its coordinator moves and its log is compacted."""
    STREAMS = "streams"
    """As members, and they are of Streams' protocol."""
    HOSTS = "hosts"
    """Two nodes are on each of three hosts, which are lost whole, and nothing else goes wrong."""
    PIPELINING = "pipelining"
    """Producers have several batches in flight, segments hold few of them, and the power of all nodes goes."""
    FORGETTING = "forgetting"
    """Keys of a compacted topic are deleted for good, their tombstones go soon, and nodes stay down for longer than that."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CrashMoments:
    """Probability that a node loses power right after something telling happened."""

    acknowledged: float
    """A produce was acknowledged: its leader, or all nodes at once."""
    proposed: float
    """A leader asked the controller for another ISR, and its request is held up: the leader, or who it wants in."""
    doubled: float
    """A second copy of a follower's fetch is under way and late: the follower."""
    joined: float
    """The controllers agreed that a follower joins an ISR: the leader."""
    elected: float
    """A new leader was made: the new leader."""
    rolled: float
    """A replica began another segment: a replica that holds it, when records after the old one's end count."""
    made_again: float
    """A topic was made again and holds a record: one of its replicas, before it has written another checkpoint."""
    isolated: float
    """A node is cut off from all others: that node, which then starts while it hears from no other."""
    delay_s: float
    """Most time between the moment and the crash."""


NEVER = CrashMoments(
    acknowledged=0.0,
    proposed=0.0,
    doubled=0.0,
    joined=0.0,
    elected=0.0,
    rolled=0.0,
    made_again=0.0,
    isolated=0.0,
    delay_s=0.0,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class LogShape:
    """How the logs are cut and kept; small sizes make rolls and truncation across segments everyday."""

    segment_bytes: int
    index_interval_bytes: int
    retention_bytes: int
    """What the brokers' own settings say (log.retention.bytes); -1 keeps everything."""
    topic_retention_bytes: int | None
    """What the topics' settings say instead; None: nothing, so that the brokers' count."""
    topic_retention_ms: int | None
    """What the topics' settings say; None: nothing, and the brokers' own settings keep records of any age."""
    is_page_cache: bool
    """Records count when written, as in Kafka; then processes are killed, but the power stays on."""
    checkpoint_s: float
    """The time between two checkpoints of high watermarks and of recovery points, and between two looks of
    retention."""

    @property
    def kept_bytes(self) -> int:
        """What every topic keeps at least of each partition; -1: everything."""
        return self.retention_bytes if self.topic_retention_bytes is None else self.topic_retention_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class CoordinatorTrouble:
    """What befalls the coordinators of transactions, and what their clients do then."""

    slow: float = 0.0
    """Probability that a call between two brokers of which one coordinates, or its answer, is late,"""
    slow_s: float = 0.0
    """and by how much at most."""
    move_every_s: float = 0.0
    """Mean time between two leaders of coordinators' partitions that an operator moves; 0: none."""
    empty_aborts: float = 0.0
    """The share of commits that are followed at once by an abort of a transaction in which nothing was written."""
    eager: float = 0.0
    """The share of transactions that begin at once after the one before."""
    classic: float = 0.0
    """The share of transactions of a client that speaks version 1 and initializes its transactional id for each."""
    impatient: float = 0.0
    """The share of these that give up on their offsets soon, and abort."""
    copiers: int = 2
    """Clients with transactions: while the coordinator keeps one waiting, others continue."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberTrouble:
    """What members of a group do that they should not, by heartbeat, and how its topic changes."""

    classic: float
    """The share of members that use the classic protocol."""
    sleeps: float
    """Probability that a member is silent for about its session, and then continues as if nothing had been."""
    dies: float
    leaves: float
    slow: float
    """The share of revocations that a member acknowledges late, or after its time-out."""
    doubles: float
    """Probability that a heartbeat arrives twice, the second one whenever it may."""
    commits: float
    grow_every_s: float
    """Mean time between two partitions that are added; 0: none."""
    is_streams: bool = False
    """They are of Streams' protocol."""
    static: float = 0.0
    """The share of members that have an instance id."""
    find_every_s: float = 0.0
    """Mean time between two topics that come, or go, which members of the consumer protocol subscribe to by a regular expression; 0: they
    subscribe by names."""
    standbys: int = 0
    """Standbys of each task of a Streams group, whose members then run two in a process; 0: the tasks have no stores."""
    restarts: float = 0.1
    """Probability that such a member is started again: after it left for a while, or beside the process that still runs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Swarm:
    """The intensities of one run. What has a default is calm without: a scripted run names little, a search draws nearly all."""

    links: LinkFaults
    disks: DiskFaults
    crash_every_s: float = FOREVER_S
    """Mean virtual time between crashes that follow nothing."""
    moments: CrashMoments = NEVER
    restart_s: float = 1.0
    wipe: float = 0.0
    """Probability that a crashed node comes back without its logs, where the others can bear it."""
    partition_every_s: float = 0.0
    partition_s: float = 0.0
    is_one_way: bool = False
    lag_every_s: float = 0.0
    """Mean time between two followers that are held back from one leader alone, by the network or by their disk."""
    lag_s: float = 0.0
    think_s: float
    """Most time between an acknowledgement and the next batch of a producer."""
    in_flight: int = 1
    """Most batches that a producer sends before the first of them is acknowledged."""
    idle_factor: float = 1.0
    """How much longer the producers of one of the partitions think."""
    producers: int = 1
    """Producers per partition."""
    churn_s: float = 0.0
    """Most lifetime of a topic that is deleted and made again; 0: there is none."""
    churn_topics: int = 0
    """How many such topics there are."""
    churn_replicas: int = 0
    """Replicas of such a topic. Of two each is eligible with the other in its absence: whatever it comes back with is
    looked at."""
    replica_lag_ms: int
    replica_silence_ms: int
    replica_fetch_bytes: int
    logs: LogShape
    snapshot_after_bytes: int = WHOLE_LOG_BYTES
    """Bytes of metadata after which a snapshot is made. WHOLE_LOG_BYTES makes none: then a broker that starts knows
    nothing before it has heard of a leader."""
    hosts: int = 0
    """Hosts that the nodes are on; 0: each on its own, which has no name."""
    lose_host_every_s: float = 0.0
    """Mean time between two losses of a host, once all are back."""
    brokers_beside: int = 0
    """Nodes that do not vote in the beginning, so that there is somewhere to move partitions and votes to."""
    reassign_every_s: float = 0.0
    """Mean time between two changes of a partition's replicas, among them those that turn back; 0: there are none."""
    throttle_bytes: int = 0
    """Bytes/s at which moving is throttled, now and then; 0: never."""
    change_voters_every_s: float = 0.0
    directories: int = 1
    """Log directories of each node."""
    break_every_s: float = 0.0
    """Mean time between two directories that fail, or fill up, under a running broker; 0: none does."""
    full_share: float = 0.0
    """The share of these that are full; the others answer nothing but errors."""
    repair_s: float = FOREVER_S
    """Mean time until somebody stops the broker to mend its directory; FOREVER_S: not before everything heals."""
    works_again: float = 0.0
    """Probability that a directory which failed works again, with all that it held, when its broker starts for any other reason,
    as where a cable was loose. Then a log may be in it that was begun again in another directory meanwhile."""
    stop_every_s: float = 0.0
    """Mean time between two clean stops; 0: there are none."""
    haunt_every_s: float = 0.0
    """Mean time between two fetches that arrive in the next life of a follower which has lost its disk, while its leader's
    own flush is late all the while; 0: none does."""
    configure_every_s: float = 0.0
    """Mean time between two settings of a topic that an operator changes; 0: none does."""
    set_minimum_every_s: float = 0.0
    """Mean time between two changes of a topic's min.insync.replicas or segment size; 0: there are none."""
    replicas: int = 3
    """Replicas of the topic that is never deleted, when it is made."""
    metadata_lag_s: float = 0.0
    """Most time by which one node at a time hears later of the metadata than it could; 0: none does."""
    late_answer_s: float = 0.0
    """Most time by which the answer to an ISR proposal is late; 0: none is."""
    delete_records_every_s: float = 0.0
    """Mean time between two deletions of records from the beginning of a partition; 0: there are none."""
    rest_s: float = 0.0
    """How long a partition rests at most, again and again, in which no producer writes to it; 0: it does not."""
    starve_every_s: float = 0.0
    """Mean time between two spans in which one broker has no file descriptor left for its logs; 0: there are none."""
    starve_s: float = 0.0
    """Mean length of these."""
    is_compacting: bool = False
    """Whether there is a compacted topic, and a cleaner on every node."""
    cleaner_dies: float = 0.0
    """Probability that a cleaner is killed at a step of its work."""
    delete_retention_ms: int | None = None
    """delete.retention.ms of the compacted topic, whose keys are then deleted for good; None: tombstones outlive the run."""
    is_transacting: bool = False
    """Whether there are transactions: clients copy in transactions."""
    crossing_s: float = 0.0005
    """Most time from one lane of a node to the other: the thread there must be woken, and may be busy."""
    coordinators: CoordinatorTrouble = CoordinatorTrouble()
    streams: StreamFaults | None = None
    """How bad the connections of clients are; None: there are none, clients hand their requests to the parts behind the
    listeners."""
    members: MemberTrouble | None = None
    """Members of a group that come to the listeners, in place of all others; None: there are none."""

    @property
    def is_listening(self) -> bool:
        """Whether clients come to the brokers' Kafka listeners."""
        return self.streams is not None

    def with_listeners(self, random: Random) -> Swarm:
        """Draw how well clients connect. random: of that alone, so that all else is drawn as it is for clients that do not."""
        streams = StreamFaults(
            delay_s=random.choice([0.0002, 0.001, 0.005]),
            piece_bytes=random.choice([5, 40, 400]),
            cut=random.choice([0.0, 0.1, 0.5]),
            slow=random.choice([0.0, 0.02]),
            slow_s=random.choice([0.05, 0.5]),
            reset=random.choice([0.0, 0.002, 0.02]),
            window_bytes=random.choice([64, 1_000, 1 << 20]),
        )
        return replace(self, streams=streams, think_s=max(self.think_s, 0.05))

    def with_members(self, random: Random, *, is_streams: bool) -> Swarm:
        """Draw what members of a group are like. The steps are for them and for what befalls their coordinators."""
        members = MemberTrouble(
            classic=random.choice([0.0, 0.3, 0.8]),
            sleeps=random.choice([0.02, 0.05]),
            dies=random.choice([0.01, 0.03]),
            leaves=random.choice([0.0, 0.03]),
            slow=random.choice([0.0, 0.3]),
            doubles=random.choice([0.0, 0.1]),
            commits=random.choice([0.3, 0.7]),
            grow_every_s=random.choice([0.0, 3.0]),
        )
        if is_streams:
            members = replace(members, classic=0.0, is_streams=True)
        drawn = replace(
            self,
            members=members,
            links=replace(self.links, loss=min(self.links.loss, 0.01), slow=0.0),
            disks=replace(self.disks, slow=0.0),
            logs=replace(self.logs, segment_bytes=random.choice([1500, 6000])),
            crash_every_s=random.choice([2.0, 6.0]),
            moments=NEVER,
            partition_every_s=random.choice([0.0, 3.0]),
            lag_every_s=0.0,
            break_every_s=0.0,
            starve_every_s=0.0,
            wipe=0.0,
            haunt_every_s=0.0,
            reassign_every_s=0.0,
            change_voters_every_s=0.0,
            configure_every_s=0.0,
            delete_records_every_s=0.0,
            metadata_lag_s=random.choice([0.0, 0.3, 1.2]),
            coordinators=replace(self.coordinators, move_every_s=random.choice([0.0, 0.5])),
            is_compacting=True,
            is_transacting=False,
            cleaner_dies=random.choice([0.0, 0.2]),
            churn_s=1.0,
            churn_topics=1,
            producers=1,
            think_s=1.0,
        )
        # What came later is drawn last, and in many seeds is nothing: those are what they were before.
        if is_streams and (standbys := random.choice([0, 0, 1, 2])):
            members = replace(members, standbys=standbys, grow_every_s=0.0)  # a changelog does not grow
        members = replace(members, static=random.choice([0.0, 0.0, 0.5, 1.0]))
        if not is_streams:
            members = replace(members, find_every_s=random.choice([0.0, 0.0, 1.0]))
        if members.static or members.find_every_s or members.standbys:  # a batch has all of a group that migrates
            drawn = replace(drawn, logs=replace(drawn.logs, segment_bytes=max(drawn.logs.segment_bytes, 3000)))
        return replace(drawn, members=members)

    @classmethod
    def draw(cls, random: Random, slant: Slant = Slant.NONE) -> Swarm:
        """Draw each intensity; zero is one of its values, but for what the slant wants."""
        drawn = cls._draw(random, slant)
        if slant is Slant.HAUNTED:
            drawn = replace(drawn, haunt_every_s=HAUNT_EVERY_S, replica_fetch_bytes=ONE_BATCH_BYTES)
        elif slant is Slant.BEGUN_ANEW:
            drawn = replace(
                drawn,
                snapshot_after_bytes=WHOLE_LOG_BYTES,
                churn_topics=3,
                directories=3,
                full_share=0.0,
                repair_s=FOREVER_S,
                think_s=max(drawn.think_s, 0.1),
            )
        elif slant is Slant.DELETING:
            kept = replace(drawn.logs, retention_bytes=-1, topic_retention_bytes=-1)
            drawn = replace(drawn, logs=kept, delete_records_every_s=0.3, configure_every_s=0.0, wipe=1.0)
        elif slant in (Slant.SMALL_FILES, Slant.TOPIC_IDS, Slant.OLDER_COPIES):
            shape = replace(drawn.logs, checkpoint_s=min(drawn.logs.checkpoint_s, 0.5))
            drawn = replace(
                drawn, logs=shape, think_s=max(drawn.think_s, 0.1), restart_s=min(drawn.restart_s, 0.3), wipe=1.0
            )
        elif slant is Slant.ROT:
            # The steps are for what comes of it, not for clients that write without a pause or nodes that are down for long.
            drawn = replace(drawn, think_s=max(drawn.think_s, 0.1), restart_s=min(drawn.restart_s, 0.3))
        elif slant is Slant.PIPELINING:
            moments = replace(drawn.moments, acknowledged=max(drawn.moments.acknowledged, 0.02))
            logs = replace(drawn.logs, segment_bytes=400)
            drawn = replace(drawn, in_flight=3, logs=logs, moments=moments, think_s=max(drawn.think_s, 0.1))
        elif slant is Slant.FORGETTING:
            drawn = replace(drawn, restart_s=max(drawn.restart_s, 2.0), think_s=max(drawn.think_s, 0.1))
        if slant is Slant.HOSTS:
            return drawn._on_hosts(random)
        drawn = drawn._retiring(random)._starving(random)._patient(random)._compacting(random)._transacting(random)
        if slant is Slant.PIPELINING:
            # Batches in flight overtake each other here, and a leader whose log lost all batches of a producer takes any for its first.
            logs = replace(drawn.logs, retention_bytes=-1, topic_retention_bytes=-1, topic_retention_ms=None)
            return replace(drawn, logs=logs, delete_records_every_s=0.0)
        if slant is Slant.FORGETTING:
            logs = replace(drawn.logs, segment_bytes=400)
            return replace(
                drawn, is_compacting=True, is_transacting=False, logs=logs, delete_retention_ms=FORGETTING_MS
            )
        drawn = drawn._setting(random, slant)
        if slant in (Slant.TRANSACTIONS, Slant.COORDINATORS):
            drawn = drawn.with_transactions(random)
        return drawn._coordinating(random, is_sure=slant is Slant.COORDINATORS)

    @classmethod
    def _draw(cls, random: Random, slant: Slant) -> Swarm:
        choose = random.choice
        is_page_cache = random.random() < 0.15
        brokers_beside = choose([0, 0, 1])
        haunt_every_s = choose([0.0, HAUNT_EVERY_S])
        is_begun_anew = random.random() < BEGUN_ANEW_SHARE or slant is Slant.BEGUN_ANEW
        is_kept_longer = random.random() < KEPT_LONGER_SHARE
        return cls(
            links=LinkFaults(
                loss=choose([0.0, 0.0, 0.01, 0.05]),
                duplicate=choose([0.0, 0.02, 0.1]),
                delay_s=choose([0.0002, 0.001, 0.005]),
                slow=choose([0.0, 0.01, 0.1]),
                slow_s=choose([0.05, 0.3]),
                late_s=choose([0.05, 0.5, 2.0]),
            ),
            disks=DiskFaults(
                flush_s=choose([0.0002, 0.001, 0.005]), slow=choose([0.0, 0.01, 0.1]), slow_s=choose([0.05, 0.5])
            ),
            crash_every_s=0.7 if is_begun_anew else choose([0.7, 2.0, 6.0]),
            moments=CrashMoments(
                acknowledged=choose([0.0, 0.001, 0.02]),
                proposed=choose([0.0, 0.0, 0.3]),
                doubled=choose([0.0, 0.1]),
                joined=choose([0.0, 0.0, 0.4]),
                elected=choose([0.0, 0.0, 0.3]),
                rolled=choose([0.0, 0.0, 0.1]),
                made_again=choose([0.0, 0.7]),
                isolated=1.0 if is_kept_longer else choose([0.0, 0.0, 0.5]),
                delay_s=choose([0.0, 0.003, 0.02]),
            ),
            restart_s=choose([0.01, 0.3] if is_begun_anew else [0.01, 0.01, 0.3, 4.0]),
            wipe=choose([0.0, 0.0, 0.5, 1.0]),
            partition_every_s=choose([1.0, 3.0] if is_kept_longer else [0.0, 3.0, 10.0]),
            partition_s=choose([0.3, 2.0, 6.0]),
            is_one_way=random.random() < 0.5,
            lag_every_s=choose([0.0, 1.0, 4.0]),
            lag_s=choose([0.5, 2.0, 5.0]),
            think_s=choose([0.005, 0.02, 0.1, 0.3, 1.0]),
            idle_factor=choose([1.0, 30.0]),
            producers=choose([1, 2, 3]),
            churn_s=choose([0.3, 1.0] if is_begun_anew else [0.0, 0.0, 0.5, 3.0]),
            churn_topics=choose([1, 1, 3]),
            churn_replicas=2 if is_begun_anew else choose([2, 3]),
            replica_lag_ms=choose([600, 1500, 3000]),
            replica_silence_ms=5_000,
            replica_fetch_bytes=ONE_BATCH_BYTES if haunt_every_s else choose([150, 400, 1 << 20, 1 << 20]),
            logs=LogShape(
                segment_bytes=choose([400, 1500] if is_kept_longer else [400, 1500, 6000, WHOLE_LOG_BYTES]),
                index_interval_bytes=choose([0, 300, 4096]),
                retention_bytes=choose([0, 300] if is_kept_longer else [-1, -1, 3000, 300]),
                topic_retention_bytes=-1 if is_kept_longer else choose([None, None, 300, 3000]),
                topic_retention_ms=None,
                is_page_cache=is_page_cache,
                checkpoint_s=choose([0.3, 1.0] if is_kept_longer else [0.3, 1.0, 5.0]),
            ),
            snapshot_after_bytes=WHOLE_LOG_BYTES if is_kept_longer else choose([900, 900, 900, WHOLE_LOG_BYTES]),
            brokers_beside=brokers_beside,
            reassign_every_s=choose([0.4, 1.5]) if brokers_beside else choose([0.0, 0.0, 0.0, 1.5]),
            throttle_bytes=choose([0, 0, 300, 3000]),
            change_voters_every_s=choose([0.0, 1.0, 4.0]) if brokers_beside else choose([0.0, 0.0, 0.0, 2.0]),
            directories=choose([2, 3] if is_begun_anew else [1, 2, 2, 3]),
            break_every_s=choose([0.1, 0.4] if is_begun_anew else [0.0, 0.4, 1.5]),
            full_share=choose([0.0, 0.5, 1.0]),
            repair_s=choose([0.3, 2.0, FOREVER_S]),
            works_again=choose([0.5, 1.0] if is_begun_anew else [0.0, 0.5, 1.0]),
            stop_every_s=choose([0.0, 0.0, 1.0, 4.0]),
            haunt_every_s=haunt_every_s,
            configure_every_s=choose([0.0, 0.5, 2.0]),
            crossing_s=choose([0.0001, 0.0005, 0.01]),
        )

    def _on_hosts(self, random: Random) -> Swarm:
        """With hosts that are lost, in place of all other trouble but slow links and disks."""
        return replace(
            self,
            hosts=3,
            brokers_beside=3,
            lose_host_every_s=random.choice([0.3, 1.0]),
            crash_every_s=FOREVER_S,
            moments=NEVER,
            stop_every_s=0.0,
            restart_s=random.choice([0.3, 2.0]),
            wipe=0.0,
            partition_every_s=0.0,
            lag_every_s=0.0,
            break_every_s=0.0,
            haunt_every_s=0.0,
            reassign_every_s=0.0,
            change_voters_every_s=0.0,
            configure_every_s=0.0,
            links=replace(self.links, loss=min(self.links.loss, 0.01)),
            churn_s=1.0,
            churn_topics=2,
            think_s=max(self.think_s, 0.1),
        )

    def _retiring(self, random: Random) -> Swarm:
        """With records that go soon."""
        is_kept_for_ever = self.logs.topic_retention_bytes == -1
        if is_kept_for_ever or random.random() >= RETIRING_SHARE:
            return self
        return replace(
            self,
            logs=replace(self.logs, topic_retention_ms=random.choice([None, 300, 300, 1000])),
            delete_records_every_s=random.choice([0.0, 0.3, 1.5]),
            rest_s=random.choice([0.0, 1.0, 3.0]),
        )

    def _starving(self, random: Random) -> Swarm:
        """With brokers without descriptors in some seeds."""
        if random.random() >= STARVING_SHARE:
            return self
        return replace(self, starve_every_s=random.choice([0.3, 1.0, 3.0]), starve_s=random.choice([0.02, 0.3, 2.0]))

    def _patient(self, random: Random) -> Swarm:
        """With leaders that keep slow followers for long in some seeds."""
        if random.random() >= SILENCE_SHARE:
            return self
        return replace(self, replica_lag_ms=30_000, replica_silence_ms=1_500)

    def _setting(self, random: Random, slant: Slant) -> Swarm:
        """With settings that change in some seeds. With a minimum of 1 what was acknowledged may be on one disk alone: none is lost."""
        is_set = random.random() < SETTING_SHARE and not self.is_transacting
        if slant is not Slant.SETTINGS and (not is_set or slant is not Slant.NONE):
            return self
        return replace(
            self,
            set_minimum_every_s=random.choice([0.2, 0.5]),
            brokers_beside=max(
                self.brokers_beside, 1
            ),  # no commit waits for one that does not vote, however late it hears
            replicas=random.choice([2, 2, 3]),
            metadata_lag_s=random.choice([0.0, 0.3, 1.2, 1.2]),
            late_answer_s=random.choice([0.0, 0.3, 1.5]),
            wipe=0.0,
            break_every_s=0.0,
            haunt_every_s=0.0,
            restart_s=random.choice([0.3, 4.0]),
        )

    def _compacting(self, random: Random) -> Swarm:
        """With a compacted topic in some seeds."""
        if random.random() >= COMPACTING_SHARE:
            return self
        logs = self.logs
        if logs.segment_bytes > 1500:
            logs = replace(logs, segment_bytes=random.choice([400, 1500]))
        return replace(self, logs=logs, is_compacting=True, cleaner_dies=random.choice([0.0, 0.02, 0.2]))

    def _transacting(self, random: Random) -> Swarm:
        """With transactions in some seeds."""
        if random.random() >= TRANSACTING_SHARE:
            return self
        return self.with_transactions(random)

    def with_transactions(self, random: Random) -> Swarm:
        """With transactions for sure; their outputs are compacted in half of these seeds. Others write little: the steps are for them."""
        logs = replace(self.logs, segment_bytes=random.choice([400, 1500]))
        is_compacting = random.random() < 0.5
        return replace(
            self,
            logs=logs,
            is_compacting=is_compacting,
            cleaner_dies=random.choice([0.0, 0.02, 0.2]),
            is_transacting=True,
            think_s=random.choice([0.3, 1.0]),
            producers=1,
            churn_s=0.0,
            delete_records_every_s=0.0,
        )

    def _coordinating(self, random: Random, *, is_sure: bool) -> Swarm:
        """With trouble for the coordinators of transactions in some seeds."""
        if not self.is_transacting or (random.random() >= COORDINATING_SHARE and not is_sure):
            return self
        trouble = CoordinatorTrouble(
            slow=random.choice([0.0, 0.05, 0.2]),
            slow_s=random.choice([0.3, 1.0, 2.5]),
            move_every_s=random.choice([0.0, 1.0, 3.0]),
            empty_aborts=random.choice([0.0, 0.5]),
            eager=0.7,
            classic=random.choice([0.3, 0.7]),
            impatient=random.choice([0.3, 0.7]),
            copiers=random.choice([2, 3]),
        )
        links = replace(self.links, coordinators_slow=trouble.slow, coordinators_slow_s=trouble.slow_s)
        if not is_sure:
            return replace(self, coordinators=trouble, links=links)
        # The steps are for late coordinators, not for those that are down, nor for clients without transactions.
        return replace(
            self,
            coordinators=trouble,
            links=replace(links, loss=min(links.loss, 0.01), slow=0.0),
            disks=replace(self.disks, slow=0.0),
            crash_every_s=6.0,
            moments=NEVER,
            partition_every_s=0.0,
            lag_every_s=0.0,
            break_every_s=0.0,
            stop_every_s=0.0,
            starve_every_s=0.0,
            think_s=1.0,
        )
