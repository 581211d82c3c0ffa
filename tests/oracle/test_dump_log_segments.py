"""Kafka's DumpLogSegments reads our files: segments, indexes, producer snapshots, committed offsets, the metadata log.

The cluster has done what a cluster does (conftest.py: `written`): batches of every compression from an idempotent producer,
small segments, a consumer group, a clean stop. What the tool says must be what was written.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from barnabas_coordination.group.records import encode
from barnabas_log.tail.producer_state import BATCHES_PER_PRODUCER_MAX
from barnabas_quorum.driver.snapshot_content import bootstrap_voters, snapshot_batches
from barnabas_quorum.raft.voters import ReplicaKey, Voter
from barnabas_wire.kafka.ids import BrokerId, Epoch, Uuid
from barnabas_wire.records.batch import Record, build_batch
from tests.broker.coordinator.test_share_group_records import GOLDEN as SHARE_RECORDS
from tests.oracle.apache import ToolOutput, run_tool
from tests.oracle.conftest import GROUP, RECORDS, TOPIC, Written

BATCH = re.compile(
    r"^baseOffset: (\d+) lastOffset: (\d+) count: (\d+) baseSequence: (-?\d+) .*?producerId: (-?\d+) .*?"
    r"position: (\d+) .*?size: (\d+) magic: 2 compresscodec: (\w+) .*isvalid: (\w+)$",
    re.MULTILINE,
)
RECORD = re.compile(r"^\| offset: (\d+) .*? payload: (.*)$", re.MULTILINE)
ENTRY = re.compile(r"^offset: (\d+) position: (\d+)", re.MULTILINE)
TIMED_ENTRY = re.compile(r"^timestamp: (\d+) offset: (\d+)", re.MULTILINE)


def dump(*files: Path, flags: tuple[str, ...] = ()) -> str:
    """What the tool prints; it must not complain."""
    output: ToolOutput = run_tool(
        "org.apache.kafka.tools.DumpLogSegments", "--files", ",".join(str(file) for file in files), *flags
    )
    assert output.exit_code == 0 and "Exception" not in output.stderr, output
    for complaint in ("Mismatch", "mismatch", "Found invalid", "not pass", "Corrupt", "can't"):
        assert complaint not in output.stdout, output.stdout[-2000:]
    return output.stdout


def sections(*files: Path) -> dict[str, str]:
    """What the tool prints, by file name."""
    parts = re.split(r"^Dumping (.*)\n", dump(*files), flags=re.MULTILINE)
    return {Path(name).name: text for name, text in zip(parts[1::2], parts[2::2], strict=True)}


def partition(written: Written, name: str, suffix: str = "log") -> list[Path]:
    """The files of that kind of one partition, in order."""
    return sorted((written.data / name).glob(f"*.{suffix}"))


def test_every_record_is_in_the_segments_as_it_was_sent(written: Written) -> None:
    segments = partition(written, f"{TOPIC}-0")
    assert len(segments) > 2, "the records should have filled several segments"
    said = dump(*segments, flags=("--deep-iteration", "--print-data-log"))
    records = RECORD.findall(said)
    assert [int(offset) for offset, _ in records] == list(range(RECORDS))
    assert [value for _, value in records] == written.values
    batches = BATCH.findall(said)
    assert {batch[8] for batch in batches} == {"true"}
    assert {batch[7] for batch in batches} == {"none", "gzip", "snappy", "lz4", "zstd"}
    assert {batch[4] for batch in batches} == {str(written.producer_id)}
    assert [int(batch[3]) for batch in batches] == [int(batch[0]) for batch in batches], "sequences follow the offsets"
    assert sum(int(batch[6]) for batch in batches) == sum(segment.stat().st_size for segment in segments)


def test_the_indexes_point_to_batches(written: Written) -> None:
    indexes, time_indexes = partition(written, f"{TOPIC}-0", "index"), partition(written, f"{TOPIC}-0", "timeindex")
    # Unlike --verify-index-only, the plain dump opens the segment at every entry and complains about what is not there.
    said = sections(*indexes, *time_indexes, *partition(written, f"{TOPIC}-0"))
    for index, time_index in zip(indexes, time_indexes, strict=True):
        batches = BATCH.findall(said[index.with_suffix(".log").name])
        entries = [(int(offset), int(position)) for offset, position in ENTRY.findall(said[index.name])]
        assert set(entries) <= {(int(batch[index_at]), int(batch[5])) for batch in batches for index_at in (0, 1)}
        timed = [(int(timestamp), int(offset)) for timestamp, offset in TIMED_ENTRY.findall(said[time_index.name])]
        assert timed == sorted(timed)
    assert len(ENTRY.findall(said[indexes[0].name])) > 10, "an index without entries shows nothing"
    checked = dump(*indexes, flags=("--index-sanity-check",))
    assert checked.count("passed sanity check") + checked.count("is empty") == len(indexes)
    dump(*indexes, *time_indexes, flags=("--verify-index-only",))


def test_the_producer_is_in_the_snapshots(written: Written) -> None:
    snapshots = partition(written, f"{TOPIC}-0", "snapshot")
    assert len(snapshots) > 1
    for snapshot in snapshots:
        found = re.findall(
            r"^producerId: (\d+) producerEpoch: 0 .*lastSequence: (\d+) lastOffset: (\d+)", dump(snapshot), re.MULTILINE
        )
        assert len(found) == BATCHES_PER_PRODUCER_MAX
        assert {int(producer_id) for producer_id, _, _ in found} == {written.producer_id}
        assert all(sequence == offset for _, sequence, offset in found)
        assert int(found[-1][2]) == int(snapshot.stem) - 1, "whoever keeps one entry keeps the last"


def test_committed_offsets_are_in_kafkas_own_layout(written: Written) -> None:
    logs = [log for log in written.data.glob("__consumer_offsets-*/*.log") if log.stat().st_size]
    said = dump(*logs, flags=("--offsets-decoder",))
    records = re.findall(r"key: (\{.*?\}) payload: (.*)$", said, re.MULTILINE)
    decoded = [(json.loads(key), None if value == "<DELETE>" else json.loads(value)) for key, value in records]
    commits = {
        (key["data"]["group"], key["data"]["topic"], key["data"]["partition"]): value["data"]["offset"]
        for key, value in decoded
        if key["type"] == "1" and value is not None
    }
    assert commits == {(GROUP, TOPIC, 0): RECORDS}
    generations = [value["data"] for key, value in decoded if key["type"] == "2" and value is not None]
    (member,) = next(generation["members"] for generation in generations if generation["members"])
    assert member["subscription"]["topics"] == [TOPIC]
    assert member["assignment"]["assignedPartitions"] == [{"topic": TOPIC, "partitions": [0]}]


def test_the_metadata_log_has_kafkas_batches_and_control_records(written: Written) -> None:
    (log,) = partition(written, "__cluster_metadata-0")
    said = dump(log, flags=("--deep-iteration",))
    batches = BATCH.findall(said)
    assert {batch[8] for batch in batches} == {"true"}
    position = 0
    for batch in batches:
        assert int(batch[5]) == position
        position += int(batch[6])
    assert position == log.stat().st_size
    leaders = re.findall(r"LeaderChange: (\{.*\})$", said, re.MULTILINE)
    assert [json.loads(leader)["leaderId"] for leader in leaders] == [1]
    (checkpoint,) = partition(written, "__cluster_metadata-0", "checkpoint")
    said = dump(checkpoint, flags=("--cluster-metadata-decoder",))
    assert 'KRaftVersion {"version":0,"kRaftVersion":1}' in said
    assert re.search(r'KRaftVoters \{"version":0,"voters":\[\{"voterId":1,', said)


def test_the_text_files_are_kafkas(written: Written) -> None:
    said = run_tool("kafka.tools.StorageTool", "info", "-c", str(written.properties_file))
    assert f"Found metadata: {{cluster.id={written.cluster_id}" in said.stdout, said
    assert "version=1" in said.stdout and "node.id=1" in said.stdout
    epochs = (written.data / f"{TOPIC}-0" / "leader-epoch-checkpoint").read_text()
    assert epochs == "0\n1\n0 0\n"
    for name in ("recovery-point-offset-checkpoint", "replication-offset-checkpoint"):
        version, count, *lines = (written.data / name).read_text().splitlines()
        assert (version, int(count)) == ("0", len(lines))
        assert f"{TOPIC} 0 {RECORDS}" in lines


@pytest.mark.parametrize("damage", ["record", "index"])
def test_the_tool_would_notice(written: Written, tmp_path: Path, damage: str) -> None:
    """Breaks a copy, so that the silence above means something."""
    segment = partition(written, f"{TOPIC}-0")[0]
    copy = tmp_path / segment.name
    copy.write_bytes(segment.read_bytes())
    index = copy.with_suffix(".index")
    index.write_bytes(segment.with_suffix(".index").read_bytes())
    broken = copy if damage == "record" else index
    content = bytearray(broken.read_bytes())
    content[100 if damage == "record" else 7] ^= 1
    broken.write_bytes(content)
    said = run_tool("org.apache.kafka.tools.DumpLogSegments", "--files", str(broken), "--deep-iteration")
    assert "isvalid: false" in said.stdout or said.exit_code != 0 or "Mismatch" in said.stdout, said


def test_snapshots_of_the_metadata_log_are_kafkas(written: Written, tmp_path: Path) -> None:
    """The voters that format wrote, and a snapshot with voters, a removed one and data."""
    bootstrap = written.data / "__cluster_metadata-0" / "00000000000000000000-0000000000.checkpoint"
    said = dump(bootstrap, flags=("--print-data-log",))
    for kind in ("SnapshotHeader", "KRaftVersion", "KRaftVoters", "SnapshotFooter"):
        assert said.count(f" {kind} ") == 1
    voters = bootstrap_voters(bootstrap.read_bytes())
    changed = voters.with_voter(Voter(ReplicaKey(BrokerId(99), Uuid(b"another one here")), "host", 9)).without_voter(
        voters.keys[0]
    )
    snapshot = tmp_path / "00000000000000000007-0000000003.checkpoint"
    batches = snapshot_batches([(b"a", b"b"), (b"c",)], epoch=Epoch(3), timestamp_ms=5, voters=changed)
    snapshot.write_bytes(b"".join(batches))
    said = dump(snapshot, flags=("--print-data-log",))
    assert "Snapshot end offset: 7, epoch: 3" in said
    assert '"voterId":99' in said and f'"voterId":{voters.keys[0].id},' not in said
    assert [int(offset) for offset, _ in RECORD.findall(said)] == [3, 4, 5]


def test_records_of_share_groups_are_in_kafkas_own_layout(jars: None, tmp_path: Path) -> None:
    """Our tagged field, where a share state begins, is skipped."""
    records = [Record(index, 0, *encode(record)) for index, (record, *_) in enumerate(SHARE_RECORDS)]
    log = tmp_path / "__consumer_offsets-0" / "00000000000000000000.log"
    log.parent.mkdir()
    log.write_bytes(build_batch(records))
    said = dump(log, flags=("--offsets-decoder",))
    decoded = [
        (json.loads(key), json.loads(value))
        for key, value in re.findall(r"key: (\{.*?\}) payload: (.*)$", said, re.MULTILINE)
    ]
    assert [key["type"] for key, _ in decoded] == ["10", "10", "11", "12", "13", "14", "15", "15"]
    values = [value["data"] for _, value in decoded]
    assert values[0]["subscribedTopicNames"] == ["flights", "weather"] and values[0]["rackId"] == "r"
    assert values[2] == {"epoch": 5, "metadataHash": -77}
    assert values[3] == {"assignmentEpoch": 5, "assignmentTimestamp": 1_700_000_000_000}
    assert [topic["partitions"] for topic in values[4]["topicPartitions"]] == [[0, 1, 7]]
    assert (values[5]["memberEpoch"], values[5]["previousMemberEpoch"], values[5]["state"]) == (6, 5, 0)
    (beginning,), (begun,), (ending,) = (
        values[6][f"{word}Topics"] for word in ("initializing", "initialized", "deleting")
    )
    assert (beginning["topicName"], beginning["partitions"]) == ("flights", [2, 3])
    assert (begun["partitions"], ending["topicName"]) == ([0, 1], "weather")
    assert values[7]["initializingTopics"][0]["partitions"] == [2, 3]
