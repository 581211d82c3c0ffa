"""Every question of `cases/`, to Apache Kafka 4.4 and to Barnabas: the answers are equal, field by field, or differ as told here.

How it is compared: both brokers are single nodes with the same settings and get the same requests in the same order, in
every version that they offer; whole responses are compared, fetched records byte for byte, frames that no decoder takes by
what the connection does. Left out are texts meant for people, ports, paths and cluster ids. On the way every response of
Apache Kafka is encoded again by our codec and must come out as it came in.

What differs, and why. A difference that is gone, or a new one, fails the test; so does a name here that no case uses.

    opaque-batch         A batch is one range of bytes: with validate.batches=all its records are walked over as one, so a refused
                         timestamp does not say which records it was.
    strict-records       Offset deltas that do not rise and lengths below -1 are refused; Kafka keeps the first in a batch that is not
                         compressed, and takes the others for null. A time beyond 64 bits is INVALID_RECORD, not INVALID_TIMESTAMP.
    named-record         A refused record is named by its index; Kafka's INVALID_RECORD names none.
    strict-batch         Bytes after the batch, a batch that claims log append time and a producer id without an epoch are
                         refused; Kafka cuts the first off and overlooks the others. No client sends them.
    repeated-batch       A repeated batch is acknowledged with log append time -1, as it was at first; Kafka tells its
                         CreateTime there.
    longer-memory        After a restart that was not clean we know a producer's last five batches from the log, Kafka the last
                         one, from its snapshot.
    old-produce          Produce v0-2 is advertised by both for old librdkafka. We answer UNSUPPORTED_VERSION, Kafka hangs up.
    kafka-stumbles       Kafka answers UNKNOWN_SERVER_ERROR, or nothing at all. We say what is wrong, or that nothing is.
    whole-batches        A fetch ends with a whole batch; Kafka may cut the last one off, which readers have to drop.
    start-told           Beside OFFSET_OUT_OF_RANGE we tell the log start: our followers begin again there.
    leader-told          The leader is reported beside UNKNOWN_LEADER_EPOCH too, and from Fetch v12 instead of v16 on.
    greatest-there       The greatest time of a log (ListOffsets -3) is that of a record which is there, or none; Kafka may name
                         one that was deleted, or the first of those that have no time.
    unknown-last-epoch   A last fetched epoch that the leader has not seen gets UNKNOWN_LEADER_EPOCH, which is retried, and
                         not OFFSET_OUT_OF_RANGE, which would reset the reader.
    no-sessions          A fetch that opens a session gets session id 0, "full fetches, please" (KIP-227).
    named-twice          What a request names twice is answered as often as it was asked (Fetch, ListOffsets) or once
                         (coordinators, groups, configs); Kafka has it the other way round.
    named-never          A topic that is named without partitions is answered without partitions; Kafka leaves it out.
    waits-for-topic      Metadata that makes a topic waits and tells it, or why not; Kafka says UNKNOWN_TOPIC_OR_PARTITION first.
    strict-lengths       An array of length -7 closes the connection; Kafka takes every negative length for null.
    any-client           Kafka refuses a client software name that is not letters, digits, dashes and dots. We do not mind.
    any-broker           Every broker takes changes for every broker and refuses ids that are not registered; Kafka's takes
                         those for itself.
    strict-broker-keys   A broker key that is unknown is INVALID_CONFIG, Kafka keeps it; one that cannot be changed or has a
                         bad value is INVALID_CONFIG too, where Kafka says INVALID_REQUEST.
    less-dynamic         listeners, max.connections, producer.id.expiration.ms and unclean.leader.election.enable need a
                         restart here.
    one-unit             Times have one key, in ms, with its default; Kafka has log.retention.hours, log.roll.hours, too, and
                         the default there. Both are read from server.properties.
    own-defaults         socket.listen.backlog.size, max.connections, replica.fetch.max.bytes, replica.fetch.response.max.bytes,
                         replica.fetch.wait.max.ms, broker.heartbeat.interval.ms, broker.session.timeout.ms: what was measured to
                         be good here.
                         inter.broker.listener.name is reported where Kafka derives it in silence.
    own-keys             log.flush.on.acks is ours: acknowledged means flushed; and validate.batches: who is opened.
    own-features         metadata.version's levels stand for our own; features of what is not built are served as level 0.
    no-quorum-told       DescribeQuorum of what is no quorum: numbers are -1 (Kafka 0), the one quorum asked for beside it is
                         described (Kafka fails all), and the voters' addresses are reported even then.
    unserved-keys        Keys of tiered storage, throttles, bounds after decompression, flush intervals, preallocation, unclean
                         election per topic, and of everything below.
    two-phase            PrepareTxn is ours: Kafka keeps no prepared state (KIP-939).
    told-again           A member of a share group that comes with its former epoch is told its partitions: it has missed an answer.
    own-fields           A described share group names the partitions that have no state yet, in a tagged field, which others skip.
    no-such-group        DescribeShareGroupOffsets of what is no share group is GROUP_ID_NOT_FOUND; Kafka tells of no offsets.
    known-ids            The id of a topic that is there is told beside its error.
    unknown-leader       A share answer that has no leader to tell names -1, not broker 0.
    only-what-is-there   The first answer of a share session, too, leaves out partitions without records, acknowledgements and errors.
    gone-is-gone         What DeleteRecords took is acquired by nobody; Kafka acquires from its last fetch on.
    settled-is-settled   What the start offset has passed is acknowledged no more; Kafka says yes, whoever settled it.
    either-case          by_duration may be written in capitals.
    strict-names         A dead letter topic's name must be a topic's; Kafka finds out when it writes.
    no-moves             Moving replicas between directories: not served yet.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Iterator
from typing import Any

import pytest

from tests.oracle.answers import Side, differences
from tests.oracle.cases import (
    CASES,
    Case,
    cluster,
    configs,
    fetch,
    groups,
    offsets,
    produce,
    restart,
    share,
    streams,
    topics,
    transactions,
)
from tests.oracle.conftest import Pair

FAMILIES = (cluster, configs, fetch, groups, offsets, produce, restart, share, streams, topics, transactions)
"""Importing them has filled CASES."""
REASONS = frozenset(re.findall(r"^    ([a-z-]+) {2,}\S", __doc__ or "", re.MULTILINE))


def _asked(side: Side, case: Case) -> dict[str, Any]:
    answers: dict[str, Any] = {}
    for label, answer in case.ask(side):
        assert label not in answers, f"{case.name}: {label!r} is asked twice"
        answers[label] = side.show(answer)
    return answers


def _unexplained(case: Case, theirs: dict[str, Any], ours: dict[str, Any]) -> Iterator[str]:
    idle = dict(case.differs)
    for path, their_value, our_value in differences(theirs, ours):
        matching = [pattern for pattern in case.differs if fnmatch.fnmatchcase(path, pattern)]
        for pattern in matching:
            idle.pop(pattern, None)
        if not matching:
            yield f"{path}\n    Apache Kafka {their_value!r:.500}\n    Barnabas     {our_value!r:.500}"
    for pattern, reason in idle.items():
        yield f"nothing differs any more at {pattern!r} ({reason})"


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_answers_are_those_of_apache_kafka(case: Case, pair: Pair) -> None:
    theirs, ours = _asked(pair.apache, case), _asked(pair.ours, case)
    assert theirs, "nothing was asked"
    found = list(_unexplained(case, theirs, ours))
    assert not found, f"{len(found)} of {len(theirs)} answers:\n" + "\n".join(found)


def test_every_reason_is_reported_and_used() -> None:
    used = {reason for case in CASES for reason in case.differs.values()}
    assert used == REASONS
