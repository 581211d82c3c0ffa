"""Kafka's DumpLogSegments reads what a log keeps of transactions: markers, .txnindex and the snapshots of producer state."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from barnabas_log.disk import RealDisk
from tests.log.test_transactions_in_a_log import end, write
from tests.oracle.test_dump_log_segments import dump
from tests.support.logs import DIRECTORY, append, make_config, open_log

ABORTED = re.compile(r"producerId: (\d+),? firstOffset: (\d+),? lastOffset: (\d+),? lastStableOffset: (\d+)")
PRODUCER = re.compile(r"producerId: (\d+) producerEpoch: (\d+) coordinatorEpoch: (-?\d+) currentTxnFirstOffset: (\S+) ")
MARKER = re.compile(r"endTxnMarker: (COMMIT|ABORT) coordinatorEpoch: (\d+)")


def test_kafka_reads_the_transactions_of_a_log(jars: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    disk = RealDisk(wants_ring=False)
    log = open_log(disk, config=make_config(segment_bytes=1 << 20))
    append(log)
    write(log, 7)
    write(log, 8)
    end(log, 7, is_commit=False, coordinator_epoch=3)
    end(log, 8, epoch=1, is_commit=True, coordinator_epoch=4)
    write(log, 9)
    end(log, 9, is_commit=False, coordinator_epoch=4)
    still_open = write(log, 10)
    wanted = list(log.aborted)
    log.close()
    disk.close()
    directory = tmp_path / DIRECTORY
    said = dump(*directory.glob("*.txnindex"))
    assert [tuple(map(int, found)) for found in ABORTED.findall(said)] == [tuple(entry) for entry in wanted], said
    said = dump(*directory.glob("*.log"), flags=("--deep-iteration", "--print-data-log"))
    assert MARKER.findall(said) == [("ABORT", "3"), ("COMMIT", "4"), ("ABORT", "4")], said
    (newest,) = directory.glob("*.snapshot")
    said = dump(newest)
    found = {int(entry[0]): entry[1:] for entry in PRODUCER.findall(said)}
    assert found.keys() == {7, 8, 9, 10}, said
    assert found[8][:2] == ("1", "4") and str(still_open) in found[10][2], said
