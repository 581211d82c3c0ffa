"""Voters by (id, directory id), and their text form; the quorum's configuration."""

from __future__ import annotations

import pytest

from barnabas_quorum.config import QuorumConfig
from barnabas_quorum.raft.voters import ReplicaKey, Voter, VoterSet
from barnabas_wire.kafka.ids import BrokerId, Uuid

ONE = "1@localhost:9093:AQEBAQEBAQEBAQEBAQEBAQ"
TWO = "2@[::1]:9093:AgICAgICAgICAgICAgICAg"


def test_text_form_is_read_and_written() -> None:
    voters = VoterSet.parse(f" {TWO}, {ONE}")
    assert str(voters) == f"{ONE},{TWO}"
    assert voters == VoterSet.parse(str(voters))
    assert voters.by_id(BrokerId(2)) == Voter(ReplicaKey(BrokerId(2), Uuid(b"\2" * 16)), "::1", 9093)
    assert voters.by_id(BrokerId(3)) is None


@pytest.mark.parametrize(
    "text",
    ["", "1@localhost:9093", "1@localhost:AQEBAQEBAQEBAQEBAQEBAQ", "x@h:1:AQEBAQEBAQEBAQEBAQEBAQ", f"{ONE},{ONE}"],
)
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        VoterSet.parse(text)


def test_same_id_on_another_disk_is_no_voter() -> None:
    voters = VoterSet.parse(f"{ONE},{TWO}")
    assert ReplicaKey(BrokerId(1), Uuid(b"\1" * 16)) in voters
    assert ReplicaKey(BrokerId(1), Uuid(b"\2" * 16)) not in voters


@pytest.mark.parametrize(("count", "majority"), [(1, 1), (2, 2), (3, 2), (4, 3), (5, 3)])
def test_majority(count: int, majority: int) -> None:
    keys = [ReplicaKey(BrokerId(i), Uuid(bytes([i]) * 16)) for i in range(count)]
    voters = VoterSet([Voter(key, "localhost", 1) for key in keys])
    assert voters.majority == majority
    assert voters.others(keys[0]) == tuple(keys[1:])


def test_fetch_time_out_that_a_long_poll_could_break_is_refused() -> None:
    with pytest.raises(ValueError, match=r"controller\.quorum\.fetch\.timeout\.ms"):
        QuorumConfig(fetch_timeout_ms=900)
    with pytest.raises(ValueError, match="retry_backoff_ms"):
        QuorumConfig(retry_backoff_ms=0)
    assert QuorumConfig().check_quorum_timeout_ms == 3000
