"""The audit log: what is in a line, what never is, and that nobody waits for it."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import threading
from pathlib import Path
from typing import Any

import pytest

from barnabas_broker.security import audit as audit_module
from barnabas_broker.security import audit_budget
from barnabas_broker.security.audit import AuditLog
from barnabas_broker.security.audit_config import AuditConfig
from barnabas_broker.security.audited_changes import HIDDEN, RECORDS_MAX, describe
from barnabas_broker.security.listener_security import has_secret
from barnabas_quorum.image.authorizer import NO_ACL
from barnabas_quorum.image.metadata import MetadataDelta, MetadataImage
from barnabas_quorum.image.rights import CLUSTER, DESCRIBE, Right
from barnabas_quorum.raft.messages import VoterChange, VoterChangeKind
from barnabas_quorum.raft.voters import VoterSet
from barnabas_quorum.records import ConfigRecord, ConfigResourceType, FeatureLevelRecord
from barnabas_quorum.records_security import (
    ClientQuotaRecord,
    QuotaEntityPart,
    ScramMechanism,
    UserScramCredentialRecord,
)
from barnabas_wire.kafka.errors import ErrorCode
from barnabas_wire.kafka.ids import Epoch, Offset
from barnabas_wire.kafka.messages import ApiKey
from barnabas_wire.kafka.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialUpsertion,
)
from barnabas_wire.kafka.messages.create_topics import CreatableTopic, CreateTopicsRequest
from barnabas_wire.kafka.messages.delete_groups import DeleteGroupsRequest
from barnabas_wire.kafka.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from barnabas_wire.kafka.messages.find_coordinator import FindCoordinatorRequest
from barnabas_wire.kafka.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from barnabas_wire.kafka.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from barnabas_wire.kafka.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from barnabas_wire.kafka.messages.sasl_authenticate import SaslAuthenticateRequest
from barnabas_wire.kafka.messages.sasl_handshake import SaslHandshakeRequest
from barnabas_wire.kafka.schema import message_classes
from tests.broker.security.secured_node import Client, secured_node
from tests.metadata_quorum import golden_values

SECRETS = ("geheim", "not-the-password")


def lines(path: Path, kind: str = "") -> list[dict[str, Any]]:
    """Of the file of changes, or of the kind's own."""
    own = path.with_name(f"{path.name}.{kind}") if kind else path
    return [json.loads(line) for line in own.read_text().splitlines()]


def files_of(path: Path) -> list[Path]:
    return sorted(path.parent.glob("audit.log*"))


def all_lines(path: Path) -> list[dict[str, Any]]:
    return [
        line
        for kind in ("", "denied", "login", "login-refused", "data-change", "offsets")
        for line in lines(path, kind)
    ]


def deny(log: AuditLog, *, host: str, name: str = "kafka-cluster") -> None:
    log.denied("User:ann", host, Right(DESCRIBE, CLUSTER), name, NO_ACL)


def change(log: AuditLog, value: str) -> None:
    record = ConfigRecord(
        resource_type=ConfigResourceType.BROKER, resource_name="", key="log.retention.ms", value=value
    )
    log.changed("User:root", "10.0.0.9", "IncrementalAlterConfigs", MetadataImage.EMPTY, [record], None)


def values(path: Path) -> list[str]:
    """What the changes in the file set."""
    return [line["changes"][0]["after"] for line in lines(path)]


def log_at(path: Path, **config: Any) -> AuditLog:
    return AuditLog(AuditConfig(audit_log_path=str(path), **config), node_id=7, clock_ms=lambda: 1_700_000_000_123)


async def test_denials_logins_and_changes_of_a_node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "audit.log"
    async with secured_node(tmp_path, monkeypatch, audit_log_path=str(path)) as node:
        root, wrong = await node.client("root"), await node.client("wrong")
        describe_acls = message_classes(ApiKey.DESCRIBE_ACLS)[0]()
        assert (await wrong.call(describe_acls, 3)).error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        for value in ("1", "2"):
            resource = AlterConfigsResource(
                resource_type=4,
                resource_name="",
                configs=[AlterableConfig(name="log.retention.ms", config_operation=0, value=value)],
            )
            answer = await root.call(IncrementalAlterConfigsRequest(resources=[resource]), 1)
            assert [each.error_code for each in answer.responses] == [0]
        upsertion = ScramCredentialUpsertion(
            name="ann", mechanism=2, iterations=4096, salt=b"salt", salted_password=SECRETS[0].encode()
        )
        await root.call(AlterUserScramCredentialsRequest(upsertions=[upsertion]), 0)
        with pytest.raises(asyncio.IncompleteReadError):
            await refused_login(node.sasl_port)
    found = all_lines(path)
    assert path.stat().st_mode & 0o077 == 0
    (denied,) = [line for line in found if line["kind"] == "denied"]
    assert (denied["principal"], denied["operation"], denied["resource_type"]) == ("User:wrong", "DESCRIBE", "CLUSTER")
    assert (denied["host"], denied["rule"], denied["node"]) == ("127.0.0.1", NO_ACL.rule, 1)
    logins = [(line["principal"], line["how"]) for line in found if line["kind"] == "login"]
    assert {("User:root", "PLAIN"), ("User:wrong", "PLAIN")} == set(logins)
    (refused,) = [line for line in found if line["kind"] == "login-refused"]
    assert (refused["how"], refused["listener"], refused["user"]) == ("PLAIN", "LOGIN", "root")
    changes = [
        (line["principal"], change)
        for line in found
        if line["kind"] == "change" and line["outcome"] == "committed"
        for change in line["changes"]
    ]
    configs = [(who, each["before"], each["after"]) for who, each in changes if each.get("key") == "log.retention.ms"]
    assert configs == [("User:root", None, "1"), ("User:root", "1", "2")]
    assert [(each["user"], each["before"], each["after"]) for _, each in changes if "user" in each] == [
        ("ann", None, HIDDEN)
    ]
    assert not [secret for secret in SECRETS if secret in json.dumps(found)]
    assert {each.stat().st_mode & 0o077 for each in files_of(path)} == {0}
    assert {line["kind"] for line in lines(path)} == {"change"}


async def refused_login(port: int) -> None:
    client = await Client.connect(port)
    await client.call(SaslHandshakeRequest(mechanism="PLAIN"), 1)
    answer = await client.call(SaslAuthenticateRequest(auth_bytes=f"\0root\0{SECRETS[1]}".encode()), 2)
    assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    await client.call(SaslHandshakeRequest(mechanism="PLAIN"), 1)


def test_every_record_can_be_told_and_no_secret_is() -> None:
    reported = describe(MetadataImage.EMPTY, golden_values.RECORDS[:RECORDS_MAX], has_secret=has_secret)
    text = json.dumps(reported)
    assert len(reported) == len(golden_values.RECORDS[:RECORDS_MAX])
    for record in golden_values.RECORDS:
        if isinstance(record, UserScramCredentialRecord):
            for secret in (record.salt, record.stored_key, record.server_key):
                assert str(secret) not in text and secret.hex() not in text


def test_a_secret_value_is_hidden_before_and_after() -> None:
    key = "listener.name.inside.ssl.key.password"
    first, second = (
        ConfigRecord(resource_type=ConfigResourceType.BROKER, resource_name="", key=key, value=value)
        for value in SECRETS
    )
    delta = MetadataDelta(MetadataImage.EMPTY)
    delta.replay(first)
    image = delta.apply(Offset(1), Epoch(1), 1)
    (reported,) = describe(image, [second], has_secret=has_secret)
    assert (reported["before"], reported["after"]) == (HIDDEN, HIDDEN)


def test_a_quota_and_a_credential_say_what_was_before() -> None:
    entity = (QuotaEntityPart("user", "ann"),)
    credential = UserScramCredentialRecord(
        name="ann",
        mechanism=ScramMechanism.SCRAM_SHA_512,
        salt=b"s",
        stored_key=b"k",
        server_key=b"v",
        iterations=4096,
    )
    delta = MetadataDelta(MetadataImage.EMPTY)
    delta.replay(ClientQuotaRecord(entity=entity, key="producer_byte_rate", value=10.0))
    delta.replay(credential)
    image = delta.apply(Offset(1), Epoch(1), 1)
    quota, again = describe(
        image,
        [ClientQuotaRecord(entity=entity, key="producer_byte_rate", value=None), credential],
        has_secret=has_secret,
    )
    assert (quota["before"], quota["after"]) == (10.0, None)
    assert (again["before"], again["after"]) == (HIDDEN, HIDDEN)


def test_a_change_of_voters_says_who_voted_before_and_who_votes_now(tmp_path: Path) -> None:
    path = tmp_path / "audit.log"
    log = log_at(path)
    log.start()
    before = VoterSet.parse("1@one:9093:AQEBAQEBAQEBAQEBAQEBAQ,2@two:9093:AgICAgICAgICAgICAgICAg")
    leaving = before.voters[1]
    now = before.without_voter(leaving.key)
    for unknown in ("", "not committed after 2000 ms"):
        change = VoterChange(VoterChangeKind.REMOVE, leaving, 0)
        log.voters_changed("User:ann", "10.0.0.9", change, before, now, unknown)
    log.close()
    committed, lost = lines(path)
    assert (committed["kind"], committed["request"], committed["principal"]) == ("change", "ChangeVoters", "User:ann")
    assert (committed["outcome"], lost["outcome"]) == ("committed", "unknown: not committed after 2000 ms")
    (change_,) = committed["changes"]
    assert (change_["change"], change_["before"], change_["after"]) == ("REMOVE", str(before), str(now))


def test_a_large_change_is_cut() -> None:
    records = [FeatureLevelRecord(name=str(number), level=1) for number in range(RECORDS_MAX + 5)]
    assert describe(MetadataImage.EMPTY, records, has_secret=has_secret)[-1] == {"more": 5}


def test_the_files_are_bounded(tmp_path: Path) -> None:
    path = tmp_path / "audit.log"
    log = log_at(path, audit_log_max_bytes=4096)
    log.start()
    for number in range(200):
        deny(log, host=str(number))
    log.close()
    denied, former = path.with_name("audit.log.denied"), path.with_name("audit.log.denied.1")
    assert log.stats.written == 200 and denied.stat().st_size <= 4096 and former.stat().st_size <= 4096
    assert lines(path, "denied")[-1]["host"] == "199"


def test_what_it_cannot_keep_up_with_is_counted_and_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audit_module, "WAITING_MAX", 0)
    path = tmp_path / "audit.log"
    log = log_at(path)
    log.start()
    deny(log, host="first")
    change(log, "1")
    assert log.stats.dropped == 1
    monkeypatch.setattr(audit_module, "WAITING_MAX", 10)
    deny(log, host="second")
    log.close()
    assert [(line["kind"], line.get("count")) for line in lines(path, "denied")] == [("denied", None), ("dropped", 1)]
    assert values(path) == ["1"]


def test_a_full_disk_costs_denials_and_no_change(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "audit.log"
    monkeypatch.setattr(audit_module, "RETRY_S", 0.0)
    log = log_at(path)
    log.start()

    def full(descriptor: int, data: bytes) -> int:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as without_room:
        without_room.setattr("os.write", full)
        change(log, "1")
        for _ in range(3):
            deny(log, host="lost")
        while log.stats.dropped < 3:
            pass
    change(log, "2")
    deny(log, host="kept")
    log.close()
    assert [line["kind"] for line in lines(path, "denied")] == ["denied", "dropped"]
    assert values(path) == ["1", "2"]
    said = [record.message for record in caplog.records if "cannot be written" in record.message]
    assert len(said) == 2, "once for each file, not for each line"


def test_a_line_of_which_a_part_was_written_is_written_again_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "audit.log"
    monkeypatch.setattr(audit_module, "RETRY_S", 0.0)
    log = log_at(path)
    log.start()
    write, parts = os.write, [10, 20]

    def short(descriptor: int, data: bytes) -> int:
        return write(descriptor, data[: parts.pop()] if parts else data)

    with monkeypatch.context() as nearly_full:
        nearly_full.setattr("os.write", short)
        for value in "123":
            change(log, value)
        log.close()
    assert values(path) == ["1", "2", "3"]


def test_changes_that_the_disk_never_takes_are_in_the_nodes_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(audit_module, "CHANGES_BYTES_MAX", 1000)
    log = log_at(tmp_path / "audit.log")
    log.start()

    def full(descriptor: int, data: bytes) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.write", full)
    for number in range(20):
        change(log, f"value-{number}")
    log.close()
    told = [record.message for record in caplog.records if "this change is here alone" in record.message]
    assert log.stats.changes_elsewhere == len(told) == 20
    assert [number for number in range(20) if not any(f'"value-{number}"' in each for each in told)] == []


@pytest.mark.attack("A4", "denials and logins push no change out of the audit trail")
def test_noise_of_strangers_pushes_no_change_out(tmp_path: Path) -> None:
    path = tmp_path / "audit.log"
    log = log_at(path, audit_log_max_bytes=8192)
    log.start()
    change(log, "1")
    for number in range(2_000):
        log.login_refused(f"10.0.{number >> 8}.{number & 255}", user="", listener="L", how="", reason="\x01" * 32_767)
        deny(log, host="10.0.0.1", name="\x01" * 32_767)
        log.logged_in("User:ann", f"10.1.{number >> 8}.{number & 255}", listener="L", how="PLAIN")
        log.deleted("User:ann", "10.0.0.1", request="DeleteRecords", changes=[{"topic": "\x01" * 249}] * 1_000)
        log.offsets_set("User:ann", "10.0.0.1", group="\x01" * 32_767, changes=[{"topic": "t", "after": number}])
    log.close()
    assert values(path) == ["1"]
    assert sum(each.stat().st_size for each in tmp_path.iterdir()) < 12 * 2 * 350_000


@pytest.mark.attack("A4", "8,000 denials in the queue do not drop the change behind them")
def test_a_queue_full_of_denials_drops_no_change(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "audit.log"
    log = log_at(path)
    log.start()
    release, write = threading.Event(), os.write

    def slow(descriptor: int, data: bytes) -> int:
        release.wait(10)
        return write(descriptor, data)

    monkeypatch.setattr("os.write", slow)
    for number in range(16_000):
        deny(log, host="10.0.0.1", name=f"group-{number}")
    change(log, "1")
    release.set()
    log.close()
    assert values(path) == ["1"]
    (more,) = [line["more"] for line in lines(path, "denied") if "more" in line]
    assert more + sum("resource" in line for line in lines(path, "denied")) == 16_000


@pytest.mark.attack("A4", "one source's denials are summed up, and others' still told")
def test_the_noise_of_one_source_is_summed_up(tmp_path: Path) -> None:
    path = tmp_path / "audit.log"
    log = log_at(path)
    log.start()
    for number in range(audit_budget.SOURCES_MAX + 500):
        for _ in range(3):
            log.denied(f"User:u{number}", "10.0.0.1", Right(DESCRIBE, CLUSTER), "kafka-cluster", NO_ACL)
    log.close()
    found = lines(path, "denied")
    told = [line for line in found if "resource" in line]
    assert len(told) <= audit_budget.LINES_MAX and len(found) <= audit_budget.LINES_MAX + audit_budget.SOURCES_MAX + 1
    assert len(told) + sum(line.get("more", 0) for line in found) == 3 * (audit_budget.SOURCES_MAX + 500)
    assert [line["more"] for line in found if line["principal"] == audit_budget.OTHERS and "more" in line]


@pytest.mark.attack("A4", "what clients say is cut and escaped in the audit files")
def test_text_of_clients_is_cut_and_escaped(tmp_path: Path) -> None:
    path = tmp_path / "audit.log"
    log = log_at(path)
    log.start()
    evil = "\x1b]0;PWNED\x07\n\x7f\x9b\u2028" * 3_000
    deny(log, host="10.0.0.1", name=evil)
    log.login_refused("10.0.0.1", user=evil, listener="L", how="", reason=evil)
    change(log, evil)
    log.close()
    for file in tmp_path.iterdir():
        content = file.read_bytes()
        assert len(content) < 32_000 and len(content.splitlines()) <= 1
        assert not [byte for byte in content if (byte < 0x20 and byte != 0x0A) or byte >= 0x7F]
    assert lines(path, "denied")[0]["resource"].startswith(evil[:100])


@pytest.mark.attack("A4", "handshakes of a stranger push nothing out of a node's audit trail and logs")
async def test_handshakes_of_a_stranger(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "audit.log"
    caplog.set_level(logging.INFO)
    async with secured_node(
        tmp_path, monkeypatch, audit_log_path=str(path), audit_log_max_bytes=str(256 * 1024)
    ) as node:
        root = await node.client("root")
        resource = AlterConfigsResource(
            resource_type=4, configs=[AlterableConfig(name="log.retention.ms", config_operation=0, value="77")]
        )
        await root.call(IncrementalAlterConfigsRequest(resources=[resource]), 1)
        before = len(caplog.text)
        for _ in range(80):
            stranger = await Client.connect(node.sasl_port)
            answer = await stranger.call(SaslHandshakeRequest(mechanism="\x01" * 32_767), 1)
            assert answer.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM
            await stranger.close()
        assert len(caplog.text) - before < 80 * 500
    assert [line["changes"][0]["after"] for line in lines(path) if line["request"] == "IncrementalAlterConfigs"] == [
        "77"
    ]
    refused = lines(path, "login-refused")
    assert sum(line.get("more", 1) for line in refused) == 80
    assert max(len(json.dumps(line)) for line in refused) < 1_000


@pytest.mark.attack("A4", "deleted records, groups and offsets, resets and log levels are audited")
async def test_what_no_metadata_tells_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "audit.log"
    async with secured_node(tmp_path, monkeypatch, audit_log_path=str(path)) as node:
        root = await node.client("root")
        await root.call(
            CreateTopicsRequest(topics=[CreatableTopic(name="t", num_partitions=1, replication_factor=1)]), 7
        )
        await root.call(FindCoordinatorRequest(key_type=0, coordinator_keys=["g"]), 4)

        async def commit(offset: int, group: str = "g") -> int:
            partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=offset)
            topic = OffsetCommitRequestTopic(name="t", partitions=[partition])
            request = OffsetCommitRequest(group_id=group, generation_id_or_member_epoch=-1, topics=[topic])
            answer = await root.call(request, 8)
            return int(answer.topics[0].partitions[0].error_code)

        async with asyncio.timeout(20):
            while await commit(5):
                await asyncio.sleep(0.1)
        assert await commit(2) == 0
        gone = DeleteRecordsTopic(name="t", partitions=[DeleteRecordsPartition(partition_index=0, offset=0)])
        await root.call(DeleteRecordsRequest(topics=[gone], timeout_ms=5000), 2)
        forgotten = OffsetDeleteRequestTopic(name="t", partitions=[OffsetDeleteRequestPartition(partition_index=0)])
        await root.call(OffsetDeleteRequest(group_id="g", topics=[forgotten]), 0)
        assert await commit(2) == 0
        await root.call(DeleteGroupsRequest(groups_names=["g", "never-was"]), 2)
        resource = AlterConfigsResource(
            resource_type=8,
            resource_name="1",
            configs=[AlterableConfig(name="barnabas_log", config_operation=0, value="FATAL")],
        )
        try:
            answer = await root.call(IncrementalAlterConfigsRequest(resources=[resource]), 1)
            assert answer.responses[0].error_code == 0
        finally:
            logging.getLogger("barnabas_log").setLevel(logging.NOTSET)
    done = [(line["request"], line["principal"], line["changes"]) for line in lines(path, "data-change")]
    assert done == [
        ("DeleteRecords", "User:root", [{"topic": "t", "partition": 0, "records_before": 0, "log_start": 0}]),
        ("OffsetDelete", "User:root", [{"group": "g", "topic": "t", "partition": 0}]),
        ("DeleteGroups", "User:root", [{"group": "g"}]),
    ]
    resets = [each for line in lines(path, "offsets") for each in line["changes"]]
    assert [(each["before"], each["after"]) for each in resets] == [(-1, 5), (5, 2), (-1, 2)]
    levels = [each for line in lines(path) for each in line["changes"] if "logger" in each]
    assert {"logger": "barnabas_log", "before": "INFO", "after": "FATAL"} in [
        {**each, "before": "INFO"} for each in levels
    ]


def test_a_file_that_cannot_be_made_stops_the_start(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="nowhere"):
        log_at(tmp_path / "nowhere" / "audit.log").start()
