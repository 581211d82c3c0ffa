"""The audit log: what is in a line, what never is, and that nobody waits for it."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from barnabas_broker.security import audit as audit_module
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
from barnabas_wire.kafka.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from barnabas_wire.kafka.messages.sasl_authenticate import SaslAuthenticateRequest
from barnabas_wire.kafka.messages.sasl_handshake import SaslHandshakeRequest
from barnabas_wire.kafka.schema import message_classes
from tests.broker.security.secured_node import Client, secured_node
from tests.metadata_quorum import golden_values

SECRETS = ("geheim", "not-the-password")


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


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
    found = lines(path)
    assert path.stat().st_mode & 0o077 == 0
    (denied,) = [line for line in found if line["kind"] == "denied"]
    assert (denied["principal"], denied["operation"], denied["resource_type"]) == ("User:wrong", "DESCRIBE", "CLUSTER")
    assert (denied["host"], denied["rule"], denied["node"]) == ("127.0.0.1", NO_ACL.rule, 1)
    logins = [(line["principal"], line["how"]) for line in found if line["kind"] == "login"]
    assert {("User:root", "PLAIN"), ("User:wrong", "PLAIN")} == set(logins)
    (refused,) = [line for line in found if line["kind"] == "login-refused"]
    assert (refused["how"], refused["listener"]) == ("PLAIN", "LOGIN")
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
    assert not [secret for secret in SECRETS if secret in path.read_text()]


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
        log.denied("User:ann", str(number), Right(DESCRIBE, CLUSTER), "kafka-cluster", NO_ACL)
    log.close()
    former = path.with_name("audit.log.1")
    assert log.written == 200 and path.stat().st_size <= 4096 and former.stat().st_size <= 4096
    assert lines(path)[-1]["host"] == "199"
    assert sorted(each.name for each in tmp_path.iterdir()) == ["audit.log", "audit.log.1"]


def test_what_it_cannot_keep_up_with_is_counted_and_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audit_module, "WAITING_MAX", 0)
    path = tmp_path / "audit.log"
    log = log_at(path)
    log.start()
    log.note("first")
    assert log.dropped == 1
    monkeypatch.setattr(audit_module, "WAITING_MAX", 10)
    log.note("second")
    log.close()
    assert [(line["kind"], line.get("count")) for line in lines(path)] == [("second", None), ("dropped", 1)]


def test_a_full_disk_costs_lines_and_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "audit.log"
    log = log_at(path)
    log.start()

    def full(descriptor: int, data: bytes) -> int:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as without_room:
        without_room.setattr("os.write", full)
        log.note("lost")
        while not log.dropped:
            pass
    log.note("kept")
    log.close()
    assert [line["kind"] for line in lines(path)] == ["kept", "dropped"]


def test_a_file_that_cannot_be_made_stops_the_start(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="nowhere"):
        log_at(tmp_path / "nowhere" / "audit.log").start()
