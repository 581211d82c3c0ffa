"""Kafka's DumpLogSegments reads segments that our cleaner wrote and finds nothing wrong: fewer records, tombstones with a delete
horizon, batches that are headers alone, markers; and their indexes, of aborted transactions too."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from barnabas_log.disk import RealDisk
from barnabas_log.tail.aborted_transactions import AbortedTransaction
from barnabas_wire.kafka.ids import Epoch
from barnabas_wire.records.batch import Record, build_batch
from barnabas_wire.records.compression import CompressionType
from barnabas_wire.records.control import ControlRecordType
from tests.log.cleaner.logs_to_clean import DAY_MS, DIRECTORY, CompactedLog, data, marker
from tests.oracle.test_dump_log_segments import BATCH, ENTRY, RECORD, dump, sections
from tests.oracle.test_transaction_files import ABORTED
from tests.support.logs import NOW_MS

HORIZON = re.compile(r"deleteHorizonMs: (?:OptionalLong\[)?(\d+)")


def written() -> list[bytes]:
    """Two segments in every codec: keys over and over, tombstones, an aborted and a committed transaction, a producer whose last
    batch is superseded; and a key that the second one has not, so that both stay."""
    batches = [data(0, (b"key of the first segment", b"kept"))]
    offset = 1
    for n in range(60):
        records = [
            Record(
                offset + i, NOW_MS + n, b"key %d" % ((n + i) % 11), None if (n + i) % 11 == 3 else b"value %d" % n * 8
            )
            for i in range(4)
        ]
        producer: dict[str, Any] = {"producer_id": 7, "producer_epoch": 0, "base_sequence": n * 4} if n < 20 else {}
        batches.append(build_batch(records, compression=CompressionType(n % 5), leader_epoch=Epoch(1), **producer))
        offset += 4
    batches.append(data(offset, (b"key 1", b"aborted"), producer_id=8))
    batches.append(marker(offset + 1, ControlRecordType.ABORT, producer_id=8))
    batches.append(data(offset + 2, (b"of a transaction", b"committed"), producer_id=9))
    batches.append(marker(offset + 3, ControlRecordType.COMMIT, producer_id=9))
    batches.append(marker(offset + 4, ControlRecordType.COMMIT, producer_id=10))
    return [b"".join(batches[:31]), b"".join(batches[31:])]


def test_kafka_reads_what_our_cleaner_wrote(jars: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    disk = RealDisk(wants_ring=False)
    log = CompactedLog(written(), disk=disk)
    log.aborted = (AbortedTransaction(8, 241, 242),)
    log.producers = ((7, 0, 80),)
    log.round(segment_bytes=1)
    segments = sorted((tmp_path / DIRECTORY).glob("*.log"))
    assert len(segments) == 2
    said = dump(*segments, flags=("--deep-iteration", "--print-data-log"))
    batches = BATCH.findall(said)
    headers = log.headers()
    assert {batch[8] for batch in batches} == {"true"}
    assert [(int(batch[0]), int(batch[1]), int(batch[2])) for batch in batches] == [
        (header.base_offset, header.last_offset, header.record_count) for header in headers
    ]
    assert sum(not header.record_count for header in headers) >= 2, "nothing is shown by a log without empty batches"
    wanted = [header.delete_horizon_ms for header in headers if header.delete_horizon_ms is not None]
    assert [int(found) for found in HORIZON.findall(said)] == wanted and set(wanted) == {NOW_MS + DAY_MS}
    values = {int(offset): value for offset, value in RECORD.findall(said)}
    for row in log.rows():
        if row.value is not None:
            assert values[row.offset] == row.value.decode()
    indexes = sorted((tmp_path / DIRECTORY).glob("*.index"))
    by_file = sections(*indexes, *sorted((tmp_path / DIRECTORY).glob("*.timeindex")), *segments)
    assert any(ENTRY.findall(by_file[index.name]) for index in indexes)
    dump(*indexes, flags=("--index-sanity-check",))
    said = dump(*sorted((tmp_path / DIRECTORY).glob("*.txnindex")))
    assert [tuple(map(int, found)) for found in ABORTED.findall(said)] == [tuple(log.aborted[0])], said
    disk.close()
