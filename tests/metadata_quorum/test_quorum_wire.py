"""The bytes of the quorum's messages: what a node of the former version reads and writes too, and what comes back of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from barnabas_quorum.driver.grpc_transport import GrpcTransport, QuorumServicer
from barnabas_quorum.errors import PeerUnreachable
from barnabas_quorum.raft.messages import (
    BeginQuorumEpochReply,
    BeginQuorumEpochRequest,
    EndQuorumEpochReply,
    EndQuorumEpochRequest,
    EpochStart,
    FetchReply,
    FetchRequest,
    FetchSnapshotReply,
    FetchSnapshotRequest,
    ReplyError,
    SnapshotId,
    VoteReply,
    VoteRequest,
)
from barnabas_quorum.raft.voters import ReplicaKey, Voter
from barnabas_wire.kafka.ids import NO_BROKER, BrokerId, Epoch, Offset, Uuid
from barnabas_wire.rpc import quorum_pb2

ONE = ReplicaKey(BrokerId(1), Uuid(bytes(range(16))))
TWO = ReplicaKey(BrokerId(2), Uuid(bytes(range(16, 32))))
VOTER = Voter(TWO, "two", 9093)
CLUSTER = "5L6g3nShTAeMCtK__X86sw"
ASKED: dict[str, Any] = {"correlation": 77, "source": ONE, "target": TWO, "epoch": Epoch(5)}
ANSWERED: dict[str, Any] = {"correlation": 77, "source": TWO, "target": ONE, "epoch": Epoch(6)}
LED: dict[str, Any] = {**ANSWERED, "leader_id": BrokerId(2), "error": ReplyError.NONE, "leader": VOTER}
REFUSED: dict[str, Any] = {
    **ANSWERED,
    "leader_id": NO_BROKER,
    "error": ReplyError.FENCED_LEADER_EPOCH,
    "leader": None,
}
FETCH = FetchRequest(
    **ASKED, fetch_offset=Offset(300), last_epoch=Epoch(4), high_watermark=Offset(290), wait_ms_max=500, clock_ms=9
)
OFFSETS: dict[str, Any] = {"base_offset": Offset(300), "end_offset": Offset(300)}
SLICE = FetchSnapshotRequest(**ASKED, snapshot_id=SnapshotId(Offset(9), Epoch(2)), position=4, bytes_max=64)
EXCHANGES: dict[str, tuple[Any, Any]] = {
    "vote": (
        VoteRequest(**ASKED, last_epoch=Epoch(3), end_offset=Offset(12), is_pre_vote=True, life=-1),
        VoteReply(**LED, is_granted=True, is_pre_vote=True, life=4),
    ),
    "vote refused": (
        VoteRequest(**ASKED, last_epoch=Epoch(0), end_offset=Offset(0), is_pre_vote=False),
        VoteReply(**REFUSED, is_granted=False, is_pre_vote=False),
    ),
    "begin": (BeginQuorumEpochRequest(**ASKED, leader=VOTER), BeginQuorumEpochReply(**LED)),
    "begin without address": (BeginQuorumEpochRequest(**ASKED), BeginQuorumEpochReply(**REFUSED)),
    "end": (EndQuorumEpochRequest(**ASKED, successors=(TWO, ONE)), EndQuorumEpochReply(**LED)),
    "fetch": (FETCH, FetchReply(**LED, **OFFSETS, high_watermark=Offset(301), payload=b"batches")),
    "fetch diverging": (
        FETCH,
        FetchReply(
            **LED,
            **OFFSETS,
            high_watermark=Offset(0),
            payload=b"",
            diverging=EpochStart(Epoch(3), Offset(280)),
            snapshot_id=SnapshotId(Offset(100), Epoch(2)),
        ),
    ),
    "slice": (
        SLICE,
        FetchSnapshotReply(**LED, snapshot_id=SnapshotId(Offset(9), Epoch(2)), size=70, position=4, payload=b"part"),
    ),
}
_LINES = Path(__file__).with_name("golden_quorum_wire.txt").read_text().splitlines()
GOLDEN = {name: (call.strip(), answer.strip()) for name, call, answer in zip(*[iter(_LINES)] * 3, strict=True)}
"""Call and answer of each exchange in hexadecimal, as the version before the table of RPCs wrote them."""


class _Context:
    async def abort(self, code: Any, details: str, trailing_metadata: Any = ()) -> None:
        raise AssertionError(f"{code.name} {details}")


class Wire:
    """A dialer and its channel: calls go as bytes to a servicer that gives `reply`. `bytes`: of the last call and its answer."""

    generation = 0
    demands_names = False

    def __init__(self) -> None:
        self.reply: Any = None
        self.heard: Any = None
        self.bytes = ("", "")
        self.spoilt: bytes | None = None
        self._servicer = QuorumServicer(cluster_id=CLUSTER, handle=self._handle)

    async def open(self, host: str, port: int, node_id: int) -> Any:
        return self

    async def _handle(self, request: Any) -> Any:
        self.heard = request
        return self.reply

    def unary_unary(self, path: str, request_serializer: Any, response_deserializer: Any, **_: Any) -> Any:
        name = path.rpartition("/")[2]

        async def call(message: Any, timeout: float) -> Any:
            sent = request_serializer(message)
            parsed = getattr(quorum_pb2, f"{name}Call").FromString(sent)
            answer = (await getattr(self._servicer, name)(parsed, _Context())).SerializeToString()
            self.bytes = (sent.hex(), answer.hex())
            return response_deserializer(answer if self.spoilt is None else self.spoilt)

        return call


async def exchanged(wire: Wire, name: str) -> Any:
    request, wire.reply = EXCHANGES[name]
    transport = GrpcTransport(cluster_id=CLUSTER, dialer=wire)  # type: ignore[arg-type]
    return await transport.call(request, VOTER, timeout_s=1.0)


@pytest.mark.parametrize("name", EXCHANGES)
async def test_a_message_has_its_bytes_and_comes_back_equal(name: str) -> None:
    wire = Wire()
    request, reply = EXCHANGES[name]
    assert await exchanged(wire, name) == reply
    wire.heard.correlation = request.correlation  # the receiver's own affair
    assert wire.heard == request
    assert wire.bytes == GOLDEN[name]


async def test_nonsense_of_a_peer_is_no_answer() -> None:
    wire = Wire()
    short = quorum_pb2.AnswerHeader(source=quorum_pb2.Replica(id=1, directory_id=b"short"))
    unknown = quorum_pb2.AnswerHeader(source=quorum_pb2.Replica(id=1, directory_id=bytes(16)), error=9999)
    for header in (short, unknown):
        wire.spoilt = quorum_pb2.VoteAnswer(header=header).SerializeToString()
        with pytest.raises(PeerUnreachable, match="nonsense"):
            await exchanged(wire, "vote")


def test_every_call_of_the_service_is_served() -> None:
    methods = quorum_pb2.DESCRIPTOR.services_by_name["Quorum"].methods
    assert all(hasattr(QuorumServicer, method.name) for method in methods)
