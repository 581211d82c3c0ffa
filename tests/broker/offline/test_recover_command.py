"""`barnabas-server quorum recover` on real directories: reports of other hosts, crashes between its steps, a second recovery."""

from __future__ import annotations

import asyncio
import json
import shlex
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from barnabas_broker.main import main
from barnabas_broker.metadata import incarnation_file
from barnabas_broker.metadata.incarnation_file import own_incarnation
from barnabas_broker.metadata.meta_properties import MetaProperties, StorageError
from barnabas_broker.metadata.metadata_log import MetadataLog
from barnabas_broker.offline import quorum_recovery
from barnabas_broker.offline.quorum_recovery import SurvivorReport, inspect
from barnabas_log.disk import RealDisk
from barnabas_quorum.driver.committed import data_batch, open_batch
from barnabas_quorum.driver.incarnation import Incarnation
from barnabas_quorum.driver.snapshot_content import bootstrap_snapshot
from barnabas_quorum.raft.epoch_history import RECOVERY_EPOCH_GAP
from barnabas_quorum.raft.messages import HardState
from barnabas_quorum.raft.voters import VoterSet
from barnabas_quorum.record_codec import decode
from barnabas_quorum.records import QuorumRecoveryRecord, Record
from barnabas_wire.kafka.ids import NO_BROKER, BrokerId, Epoch, Offset, Uuid
from barnabas_wire.records.batch import HEADER_BYTES, iterate_batches

IDS = {node: Uuid(bytes([node]) * 16) for node in (1, 2, 3)}
VOTERS = VoterSet.parse(",".join(f"{node}@h{node}:9093:{directory}" for node, directory in IDS.items()))
CLUSTER = str(Uuid(b"c" * 16))
Ask = Callable[..., tuple[int, Any]]


def survivor(path: Path, node: int, *, records: int, epoch: int = 4) -> Path:
    """The metadata directory of a stopped voter of three, with so many records of one epoch in its log."""
    path.mkdir(parents=True)
    meta = MetaProperties(cluster_id=CLUSTER, node_id=BrokerId(node), directory_id=IDS[node])
    (path / "meta.properties").write_bytes(meta.encode())
    log_directory = path / "__cluster_metadata-0"
    log_directory.mkdir()
    (log_directory / f"{0:020}-{0:010}.checkpoint").write_bytes(bootstrap_snapshot(VOTERS))

    async def fill() -> None:
        log = await MetadataLog.open(disk=RealDisk(), metadata_directory=str(path), now_ms=0)
        await log.save_hard_state(HardState(Epoch(epoch), NO_BROKER, None, True))
        await log.note_regained()
        for offset in range(records):
            log.append([data_batch([b"x"], base_offset=Offset(offset), epoch=Epoch(epoch), timestamp_ms=5)])
        await log.flush()
        await log.close()

    asyncio.run(fill())
    return path


@pytest.fixture
def ask(capsys: pytest.CaptureFixture[str]) -> Ask:
    """`barnabas-server quorum …`: its exit status, and its JSON, or its complaint."""

    def asked(*words: object) -> tuple[int, Any]:
        capsys.readouterr()
        status = main(["quorum", *map(str, words), "-o", "json"])
        reported = capsys.readouterr()
        return status, json.loads(reported.out) if status == 0 else json.loads(reported.err)["error"]["message"]

    return asked


def recover(ask: Ask, directory: Path, *more: object, node: int = 1) -> Any:
    status, done = ask("recover", directory, *more, "--from", directory, f"--yes={IDS[node]}")
    assert status == 0, done
    assert not done["is_dry_run"]
    return done


def looked_at(directory: Path) -> SurvivorReport:
    return asyncio.run(inspect(str(directory)))


async def last_record(directory: Path) -> Record:
    log = await MetadataLog.open(disk=RealDisk(), metadata_directory=str(directory), now_ms=0)
    try:
        (batch,) = log.read(Offset(log.end_offset - 1), end_offset=log.end_offset, bytes_max=1)
        opened = open_batch(batch)
        assert opened is not None
        return decode(opened.records[-1])
    finally:
        await log.close()


def test_a_broker_that_has_read_as_much_as_the_voter_does_not_stand_before_it(tmp_path: Path, ask: Ask) -> None:
    voter = survivor(tmp_path / "voter", 1, records=3)
    broker = survivor(tmp_path / "broker", 2, records=3)
    meta = MetaProperties(cluster_id=CLUSTER, node_id=BrokerId(0), directory_id=Uuid(b"b" * 16))
    (broker / "meta.properties").write_bytes(meta.encode())
    report = tmp_path / "broker.json"
    report.write_text(json.dumps(ask("recover", broker, "--inspect")[1]))
    for given in ((voter, broker), (voter, "--report", report)):
        status, plan = ask("recover", *given)
        assert status == 0, plan
        assert (plan["chosen"], plan["missing_records"]) == (str(voter), 0)


def damage(directory: Path, offset: int) -> None:
    """Flip a bit of the record at this offset."""
    path = directory / "__cluster_metadata-0" / f"{0:020}.log"
    data = bytearray(path.read_bytes())
    position = next(at for at, header in iterate_batches(bytes(data)) if header.base_offset == offset)
    data[position + HEADER_BYTES] ^= 1
    path.write_bytes(data)


def test_a_majority_that_can_elect_nobody_for_damage_is_recovered_from(tmp_path: Path, ask: Ask) -> None:
    """Who has lost what it had flushed votes as if it had it still and is not elected: all three are there, and nobody leads."""
    first, second, third = (
        survivor(tmp_path / f"m{node}", node, records=records) for node, records in ((1, 5), (2, 5), (3, 2))
    )
    status, why = ask("recover", first, second, third)
    assert status != 0 and "nothing needs to be given up" in why
    damage(first, 3)
    status, why = ask("recover", first, second, third)
    assert status != 0 and "nothing needs to be given up" in why, "the second is whole and gets the vote of the first"
    damage(second, 2)
    status, plan = ask("recover", first, second, third)
    assert status == 0, plan
    assert (plan["chosen"], plan["damaged_records"], plan["missing_records"]) == (str(first), 2, 0)
    damaged = plan["survivors"][0]
    assert (damaged["log_end_offset"], damaged["lost_epoch"], damaged["lost_end_offset"]) == (3, 4, 5)
    recover(ask, first, second, third)
    after = looked_at(first)
    assert (after.lost_end_offset, after.log_end_offset) == (-1, 6), "nobody misses what was given up"


class Crash(Exception):
    """The process ends here."""


CRASHES = ("before the incarnation", "before the epoch", "before the voters", "in the voters", "before the end")


def crash_at(step: str, directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run a recovery of `directory` that ends at the step, and leave what a crash there leaves."""
    save, stored = incarnation_file.save_incarnation, []

    def save_incarnation(*arguments: Any) -> None:
        stored.append(arguments)
        if (step, len(stored)) in ((CRASHES[0], 1), (CRASHES[4], 2)):
            raise Crash
        save(*arguments)

    async def save_hard_state(log: MetadataLog, state: HardState) -> None:
        raise Crash

    def append(log: MetadataLog, batches: object) -> None:
        raise Crash

    with monkeypatch.context() as patched:
        patched.setattr(quorum_recovery, "save_incarnation", save_incarnation)
        if step == CRASHES[1]:
            patched.setattr(MetadataLog, "save_hard_state", save_hard_state)
        if step == CRASHES[2]:
            patched.setattr(MetadataLog, "append", append)
        if step == CRASHES[3]:
            write = MetadataLog.append

            def cut_append(log: MetadataLog, batches: Any) -> None:
                write(log, batches)
                raise Crash

            patched.setattr(MetadataLog, "append", cut_append)
        with pytest.raises(Crash):
            main(["quorum", "recover", str(directory), f"--yes={IDS[1]}"])
    if step == CRASHES[3]:
        segment = max((directory / "__cluster_metadata-0").glob("*.log"))
        segment.write_bytes(segment.read_bytes()[:-7])


@pytest.mark.parametrize("step", CRASHES)
def test_a_recovery_that_crashed_can_be_given_again(
    step: str, tmp_path: Path, ask: Ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = survivor(tmp_path / "m", 1, records=10)
    crash_at(step, directory, monkeypatch)
    disk = RealDisk()
    if step == CRASHES[0]:
        assert own_incarnation(disk, str(directory)).number == 0, "nothing was begun"
    else:
        with pytest.raises(StorageError, match="finish it with `barnabas-server quorum recover"):
            own_incarnation(disk, str(directory))
        status, why = ask("rejoin", directory)
        assert (status, "did not end" in why) == (2, True)
    done = recover(ask, directory)
    assert done["missing_records"] == 0
    after = looked_at(directory)
    assert own_incarnation(disk, str(directory)) == Incarnation.parse(done["incarnation"])
    assert [voter.key.id for voter in VoterSet.parse(after.voters)] == [1]
    assert after.last_epoch == done["epoch"] >= 4 + RECOVERY_EPOCH_GAP
    assert not after.is_unfinished
    # The ten records are there, whatever voter sets and gaps stand behind them; the gap of this recovery is the last.
    assert after.log_end_offset - 10 in (3, 5, 6)
    last = asyncio.run(last_record(directory))
    assert isinstance(last, QuorumRecoveryRecord)
    assert (last.incarnation, last.epoch_gap) == (done["incarnation"], done["leader_epoch_gap"])
    status, why = ask("recover", directory)
    assert (status, "nothing needs to be given up" in why) == (2, True)


def test_reports_of_other_hosts_count_though_the_hosts_use_the_same_path(tmp_path: Path, ask: Ask) -> None:
    """The directories stand in turn where those of two hosts would."""
    path = tmp_path / "m"
    survivor(path, 2, records=12)
    status, found = ask("recover", "--inspect", path)
    assert status == 0
    report = tmp_path / "report-of-2.json"
    report.write_text(json.dumps(found))
    shutil.move(path, tmp_path / "host-2")
    survivor(path, 1, records=10)
    report_of_1 = tmp_path / "report-of-1.json"
    report_of_1.write_text(json.dumps(ask("recover", "--inspect", path)[1]))
    # Two of three are a majority: no recovery.
    status, why = ask("recover", path, "--report", report, "--from", path)
    assert (status, "nothing needs to be given up" in why) == (2, True)
    # A report of a broker that has read further does not make one, but shows what is missing.
    ahead = found["survivors"][0] | {"node_id": 9, "directory_id": str(Uuid(b"9" * 16)), "is_voter": False}
    report.write_text(json.dumps(found | {"survivors": [ahead]}))
    status, why = ask("recover", path, "--report", report)
    assert (status, "the best survivor is node 9" in why, "it does not vote" in why) == (2, True, True)
    status, plan = ask("recover", path, "--report", report, "--from", path)
    assert (status, plan["missing_records"], plan["chosen_directory_id"]) == (0, 2, str(IDS[1]))
    assert looked_at(path).incarnation == "", "a dry run writes nothing"
    status, why = ask("recover", path, "--report", report_of_1)
    assert (status, "is there twice" in why) == (2, True)


@pytest.mark.parametrize(
    "text",
    ["", "[]", "{}", '{"survivors": [1]}', '{"survivors": [{}]}', '{"survivors": [{"directory": "/m"}]}', "\xff"],
)
def test_a_file_that_is_no_report_is_named(text: str, tmp_path: Path, ask: Ask) -> None:
    directory = survivor(tmp_path / "m", 1, records=1)
    report = tmp_path / "report.json"
    report.write_text(text, encoding="latin-1")
    for path in (report, tmp_path / "none.json"):
        status, why = ask("recover", directory, "--report", path)
        assert (status, str(path) in why) == (2, True), why


@pytest.mark.parametrize(
    ("field", "value"), [("epoch", "5"), ("incarnation", "x"), ("voters", 7), ("log_end_offset", True)]
)
def test_a_report_that_was_tampered_with_is_refused(field: str, value: object, tmp_path: Path, ask: Ask) -> None:
    directory = survivor(tmp_path / "m", 1, records=1)
    content = ask("recover", "--inspect", survivor(tmp_path / "m2", 2, records=1))[1]
    content["survivors"][0][field] = value
    report = tmp_path / "report.json"
    report.write_text(json.dumps(content))
    status, why = ask("recover", directory, "--report", report)
    assert (status, str(report) in why) == (2, True), why


def test_two_operators_recover_two_survivors_and_one_of_them_stays(
    tmp_path: Path, ask: Ask, capsys: pytest.CaptureFixture[str]
) -> None:
    first, second = survivor(tmp_path / "m1", 1, records=10), survivor(tmp_path / "m2", 2, records=10)
    recover(ask, first)
    recover(ask, second, node=2)
    report = tmp_path / "report.json"
    report.write_text(json.dumps(ask("recover", "--inspect", second)[1]))
    status, why = ask("rejoin", second)
    assert (status, "has not heard of a recovery" in why) == (2, True)
    capsys.readouterr()
    assert main(["quorum", "recover", str(first), "--report", str(report), "--from", str(first)]) == 0
    reported = capsys.readouterr().out
    assert "ALL that the quorum of node 2 took since its own recovery" in reported
    assert "nothing more" not in reported and "other voters (2) are refused" in reported
    done = recover(ask, first, "--report", report)
    assert (done["given_up"], done["incarnation"][:2]) == ([str(second)], "2:")
    assert done["epoch"] > looked_at(second).epoch


def test_the_command_that_a_dry_run_prints_is_the_one_that_does_it(
    tmp_path: Path, ask: Ask, capsys: pytest.CaptureFixture[str]
) -> None:
    directory = survivor(tmp_path / "a directory", 1, records=10)
    assert main(["quorum", "recover", str(directory)]) == 0
    (line,) = [line for line in capsys.readouterr().out.splitlines() if f"--yes={IDS[1]}" in line]
    program, *words = shlex.split(line)
    assert program == "barnabas-server"
    assert main(words) == 0
    assert looked_at(directory).incarnation.startswith("1:")
