"""The files of a partition, byte for byte, and each broker on the other's.

Both have taken the same batches and were stopped cleanly: segments, offset and time indexes, producer snapshots and the leader
epoch checkpoint must be the same, name by name; but our snapshots have the earlier batches of a producer, too. Then one topic's files
were exchanged, another's torn as by a power cut, and both started again; what they answer since is compared by cases/restart.py.
"""

from __future__ import annotations

import pytest

from barnabas_log.tail.producer_snapshots import decode_snapshot, encode_snapshot
from barnabas_wire.kafka.ids import Offset
from tests.oracle import history
from tests.oracle.answers import Side
from tests.oracle.cases.fetch import at, fetch, topic_entry
from tests.oracle.conftest import Pair


@pytest.mark.parametrize("topic", history.TOPICS)
def test_files_are_those_of_apache_kafka(pair: Pair, topic: str) -> None:
    theirs, ours = pair.apache_files[topic], pair.our_files[topic]
    assert sorted(theirs) == sorted(ours)
    suffixes = [name.rpartition(".")[2] for name in theirs]
    assert [suffixes.count(kind) for kind in ("log", "index", "timeindex", "snapshot")] == [4, 4, 4, 4]
    assert "leader-epoch-checkpoint" in theirs
    for name, content in theirs.items():
        found = newest_batches(ours[name]) if name.endswith(".snapshot") else ours[name]
        assert found == content, f"{name} differs"


def newest_batches(content: bytes) -> bytes:
    """A producer snapshot as Kafka has it: ours has an entry for each batch that a producer may send again."""
    state = decode_snapshot(content, Offset(0))
    for producer in state:
        while len(producer.batches) > 1:
            producer.batches.popleft()
    return encode_snapshot(state)


@pytest.mark.parametrize("side", ["apache", "ours"])
def test_each_reads_what_the_other_wrote(pair: Pair, side: str) -> None:
    reader: Side = getattr(pair, side)
    written = pair.our_files if side == "apache" else pair.apache_files
    log = b"".join(content for name, content in written[history.EXCHANGED].items() if name.endswith(".log"))
    position, offset = 0, 0
    while offset < history.RECORDS:
        answer = fetch(reader, topic_entry(reader, history.EXCHANGED, at(offset, max_bytes=1)))
        records = bytes(answer.responses[0].partitions[0].records or b"")
        assert records and records == log[position : position + len(records)]
        position, offset = position + len(records), offset + history.BATCH_RECORDS
    assert position == len(log)
