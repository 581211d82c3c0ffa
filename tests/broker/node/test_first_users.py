"""`format --add-scram`: what it takes, what it writes, what it never shows."""

from __future__ import annotations

import base64
import hashlib
from pathlib import Path

import pytest

from barnabas_broker.metadata.meta_properties import StorageError
from barnabas_broker.node.first_users import parse_users
from barnabas_broker.node.storage import load_storage
from barnabas_log.disk import RealDisk
from barnabas_quorum.controller.scram import derive_keys
from barnabas_quorum.driver.snapshot_content import bootstrap_records, bootstrap_snapshot, bootstrap_voters
from barnabas_quorum.record_codec import encode
from barnabas_quorum.records import FeatureLevelRecord
from barnabas_quorum.records_security import ScramMechanism, UserScramCredentialRecord
from tests.broker.node.test_storage import format_node, server, voters

SALT = base64.b64encode(b"a salt of some bytes").decode()


def test_a_password_is_kept_as_keys_alone() -> None:
    (record,) = parse_users([f'SCRAM-SHA-256=[name=alice,password="a,b",iterations=4096,salt="{SALT}"]'])
    salted = hashlib.pbkdf2_hmac("sha256", b"a,b", base64.b64decode(SALT), 4096)
    keys = derive_keys(ScramMechanism.SCRAM_SHA_256, salted)
    assert (record.name, record.iterations, record.salt) == ("alice", 4096, base64.b64decode(SALT))
    assert (record.stored_key, record.server_key) == (keys.stored_key, keys.server_key)
    (same,) = parse_users(
        [
            f'SCRAM-SHA-256=[name=alice,saltedpassword="{base64.b64encode(salted).decode()}",iterations=4096,salt="{SALT}"]'
        ]
    )
    assert same == record


@pytest.mark.parametrize(
    ("argument", "reported"),
    [
        ("alice", "MECHANISM="),
        ("SCRAM-MD5=[name=alice,password=geheim]", "MECHANISM="),
        ("SCRAM-SHA-512=[password=geheim]", "no user"),
        ("SCRAM-SHA-512=[name=alice]", "either password"),
        ("SCRAM-SHA-512=[name=alice,password=]", "empty"),
        ("SCRAM-SHA-512=[name=alice,password=geheim,iterations=10]", "4096"),
        ("SCRAM-SHA-512=[name=alice,password=geheim,salt=%]", "base64"),
        ("SCRAM-SHA-512=[name=alice,saltedpassword=Z2VoZWlt]", "its salt"),
        ("SCRAM-SHA-512=[name=alice,password=geheim,colour=red]", "cannot be read"),
    ],
)
def test_what_cannot_be_read_is_refused_without_a_word_of_the_password(argument: str, reported: str) -> None:
    with pytest.raises(StorageError, match=reported) as refused:
        parse_users([argument])
    assert "geheim" not in refused.value.message and "Z2VoZWlt" not in refused.value.message


def test_a_user_is_named_once() -> None:
    user = "SCRAM-SHA-512=[name=alice,password=geheim]"
    with pytest.raises(StorageError, match="twice"):
        parse_users([user, user])
    assert len(parse_users([user, user.replace("512", "256")])) == 2


def test_the_bootstrap_checkpoint_holds_them_beside_the_voters(tmp_path: Path) -> None:
    records = parse_users(["SCRAM-SHA-512=[name=alice,password=geheim]"])
    data = bootstrap_snapshot(voters(), [encode(record) for record in records])
    assert bootstrap_voters(data) == voters()
    assert len(bootstrap_records(data)) == 1 and bootstrap_records(bootstrap_snapshot(voters())) == []
    assert b"geheim" not in data


def test_formatting_again_keeps_them_and_takes_no_others(tmp_path: Path) -> None:
    disk = RealDisk()
    records = parse_users(["SCRAM-SHA-512=[name=alice,password=geheim]"])
    format_node(disk, server(tmp_path), given=voters(), first_records=records)
    again = format_node(disk, server(tmp_path), given=voters(), again=True)
    assert [record.name for record in again.first_records] == ["alice"]
    with pytest.raises(StorageError, match="barnabas user create"):
        format_node(disk, server(tmp_path), given=voters(), again=True, first_records=records)
    (checkpoint,) = tmp_path.rglob("*.checkpoint")
    checkpoint.write_bytes(bootstrap_snapshot(voters(), [encode(FeatureLevelRecord(name="x", level=1))]))
    with pytest.raises(StorageError, match="FeatureLevelRecord"):
        load_storage(disk, server(tmp_path))
    disk.close()


def test_a_new_cluster_begins_with_them_and_an_old_one_does_not() -> None:
    from barnabas_quorum.image.metadata import MetadataImage
    from tests.support.decided_cluster import make_controller

    records = parse_users(["SCRAM-SHA-512=[name=alice,password=geheim]"])
    controller = make_controller(first_records=records)
    written = controller.bootstrap().records
    assert [each for each in written if isinstance(each, UserScramCredentialRecord)] == records
    controller.pending = controller.replayed(written, timestamp_ms=0)
    assert controller.pending != MetadataImage.EMPTY and controller.bootstrap().records == []
