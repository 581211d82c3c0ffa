"""Kafka's DumpLogSegments reads the records of __share_group_state that we write, also those with a field of ours."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from barnabas_coordination.share_state.records import encode
from barnabas_coordination.share_state.state import ShareSnapshot
from barnabas_log.disk import RealDisk
from barnabas_wire.records.batch import Record, build_batch
from tests.broker.coordinator.test_share_records import GOLDEN, KEY
from tests.oracle.test_dump_log_segments import dump
from tests.support.logs import DIRECTORY, append, make_config, open_log

SHOWN = re.compile(r"key: (\{.*?\}\}) payload: (.*)$", re.MULTILINE)


def test_kafka_reads_what_is_kept_of_share_partitions(
    jars: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    disk = RealDisk(wants_ring=False)
    log = open_log(disk, config=make_config(segment_bytes=1 << 20))
    written = [record for record, _ in GOLDEN.values()]
    for record in (*written, ShareSnapshot(KEY, None)):
        append(log, batch=build_batch([Record(0, 1_700_000_000_000, *encode(record))]))
    log.close()
    disk.close()
    said = dump(*(tmp_path / DIRECTORY).glob("*.log"), flags=("--share-group-state-decoder",))
    shown = [(json.loads(key), value) for key, value in SHOWN.findall(said)]
    assert [key["type"] for key, _ in shown] == ["0", "0", "1", "1", "0"], said
    assert all(key["data"] == {"groupId": "grp", "topicId": str(KEY.topic_id), "partition": 3} for key, _ in shown), (
        said
    )
    assert shown[-1][1] == "<DELETE>"
    begun, whole, update, leader = (json.loads(value)["data"] for _, value in shown[:-1])
    assert (begun["stateEpoch"], begun["startOffset"], begun["stateBatches"]) == (2, -1, [])
    assert (whole["snapshotEpoch"], whole["leaderEpoch"], whole["startOffset"]) == (5, 6, 7)
    assert whole["deliveryCompleteCount"] == update["deliveryCompleteCount"] == 3
    done = {"firstOffset": 7, "lastOffset": 9, "deliveryState": 2, "deliveryCount": 1}
    waiting = {"firstOffset": 10, "lastOffset": 10, "deliveryState": 0, "deliveryCount": 2}
    assert (whole["stateBatches"], update["stateBatches"]) == ([done, waiting], [done])
    assert (leader["leaderEpoch"], leader["startOffset"], leader["stateBatches"]) == (6, -1, [])
