"""What is fuzzed: each target takes bytes, and may raise what its protocol says and nothing else.

May touch:  decoders.                 Must not touch: sockets, clock.
Invariants: an input is one byte for the target, then what the target takes; every target has seeds, which are frames of our encoders, and,
            of what travels, frames of real clients and nodes.
Read next:  __main__.py, which drives them; capture.py, which makes captured.txt; test_corpus.py.
"""

from __future__ import annotations

import base64
import contextlib
import json
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from google.protobuf.message import DecodeError

from barnabas_broker.api import registry
from barnabas_broker.network.framing import FRAME_BYTES_MIN
from barnabas_broker.security.jwks import parse_jwks
from barnabas_broker.security.sasl.oauthbearer import OAuthBearer, TokenRules
from barnabas_broker.security.sasl.plain import Plain
from barnabas_broker.security.sasl.scram import Scram, TokenVerifier, Verifier
from barnabas_broker.security.sasl.session import SaslSession
from barnabas_broker.security.unknown_users import Likeness
from barnabas_log.tail.validator import check_is_one_batch
from barnabas_quorum.driver.caller_ids import claimed_node_id
from barnabas_quorum.driver.grpc_transport import QuorumServicer
from barnabas_quorum.driver.transport import ReplicaIdentity, VoterChangeAnswer
from barnabas_quorum.driver.verbs import VERBS, read_call, read_heartbeat
from barnabas_quorum.errors import PeerUnreachable
from barnabas_quorum.raft.messages import Reply, ReplyError, Request, VoterChange
from barnabas_quorum.raft.voters import ReplicaKey
from barnabas_wire.client import jaas
from barnabas_wire.kafka.errors import KafkaError
from barnabas_wire.kafka.ids import BrokerId, Offset, Uuid
from barnabas_wire.kafka.messages import ApiKey
from barnabas_wire.kafka.messages.produce import parse_produce_request
from barnabas_wire.kafka.schema import encode_request, message_classes
from barnabas_wire.records.batch import Record, build_batch, iterate_batches, iterate_records
from barnabas_wire.records.compression import CompressionType
from barnabas_wire.rpc import controller_pb2, quorum_pb2

CORPUS = Path(__file__).parent / "corpus"
CAPTURED = Path(__file__).parent / "captured.txt"
"""What real clients and nodes have said; capture.py writes it anew."""
CLUSTER_ID = str(Uuid(bytes(range(16))))
"""Of the nodes that were captured, and of the one that is asked."""
_IDENTITY = ReplicaIdentity(ReplicaKey(BrokerId(1), Uuid(bytes(16))), 0, 1)
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "OAUTHBEARER")
DECOMPRESSED_BYTES_MAX = 32 * 1024
"""What a batch of these inputs may open to: it counts as allocated."""
_QUORUM_CALLS = tuple(
    getattr(quorum_pb2, f"{name}Call")
    for name in (
        "Vote",
        "BeginQuorumEpoch",
        "EndQuorumEpoch",
        "Fetch",
        "FetchSnapshot",
        "DescribeReplica",
        "ChangeVoters",
    )
)
CALL_TYPES: tuple[Any, ...] = (*(verb.call_type for verb in VERBS), *_QUORUM_CALLS, controller_pb2.HeartbeatMessage)


class Target(NamedTuple):
    """One way in."""

    name: str
    run: Callable[[bytes], None]
    seeds: Callable[[], Iterator[bytes]]


# -- Kafka's requests, every API and version ---------------------------------------------------------------------------


def _request(data: bytes) -> None:
    """A frame without its size, as network/connection.py takes it."""
    if len(data) < FRAME_BYTES_MIN:
        return
    frame = memoryview(data)
    (kind,) = struct.unpack_from(">i", frame)
    api = registry.by_kind().get(kind)
    if api is None:
        return
    version = kind & 0xFFFF
    with contextlib.suppress(KafkaError):
        position = request_body(frame, api)
        if api.key is ApiKey.PRODUCE:
            parse_produce_request(frame, position, version)
        else:
            registry.decode_request(api, version, frame, position)


def request_body(frame: memoryview, api: registry.Api) -> int:
    """Where the body begins. Raises MalformedMessage."""
    version, _, client_id_bytes = struct.unpack_from(">hih", frame, 2)
    position = FRAME_BYTES_MIN + max(0, client_id_bytes)
    return registry.skip_tagged_fields(frame, position) if version >= api.flexible_from else position


def _request_seeds() -> Iterator[bytes]:
    registry.load_handlers()
    for kind, api in sorted(registry.by_kind().items()):
        version = kind & 0xFFFF
        with contextlib.suppress(Exception):  # an API without an empty request has its seeds among the captured ones
            out = bytearray(
                struct.pack(">iih", kind, 7, 4) + b"fuzz" + (b"\0" if version >= api.flexible_from else b"")
            )
            encode_request(message_classes(api.key)[0](), version, out)
            yield bytes(out)


# -- logins ------------------------------------------------------------------------------------------------------------


def _verifier(user: str) -> Verifier | None:
    return Verifier(b"salt" * 4, b"k" * 32, b"s" * 32, 4096) if user == "alice" else None


def _mechanisms() -> SaslSession:
    rules = TokenRules(algorithms=("ES256",), issuer="i", audiences=("a",))
    token = TokenVerifier("alice", "p", 1)
    return SaslSession(
        {
            "PLAIN": lambda: Plain({"alice": "hers"}),
            "SCRAM-SHA-256": lambda: Scram(
                "SCRAM-SHA-256",
                _verifier,
                unknown=lambda: Likeness(b"k"),
                find_token=lambda name: token if name == "t" else None,
            ),
            "OAUTHBEARER": lambda: OAuthBearer(rules, lambda kid: None),
        },
        lifetime_ms=1000,
    )


def _sasl(data: bytes) -> None:
    """Steps of 2 bytes of length and what is sent; an empty one chooses the next mechanism."""
    session = _mechanisms()
    names = session.mechanisms
    chosen = data[0] if data else 0
    position = 1
    with contextlib.suppress(KafkaError):
        session.choose(names[chosen % len(names)], 1)
        while position + 2 <= len(data):
            (size,) = struct.unpack_from(">H", data, position)
            token = data[position + 2 : position + 2 + size]
            position += 2 + size
            if size:
                session.authenticate(token, 0)
            else:
                chosen += 1
                session.choose(names[chosen % len(names)], 1)


def _sasl_seeds() -> Iterator[bytes]:
    for index, steps in enumerate(
        (
            [b"\0alice\0hers", b"", b"n,,n=alice,r=abc"],
            [b"n,,n=alice,r=abc", b"c=biws,r=abcdef,p=AAAA"],
            [b"n,,\x01auth=Bearer eyJhbGciOiJFUzI1NiJ9.e30.AAAA\x01\x01"],
            [b"n,,n=t,r=abc,tokenauth=true", b"c=biws,r=abc,p=AAAA"],
        )
    ):
        yield bytes([min(index, 2) if index < 3 else 1]) + b"".join(
            struct.pack(">H", len(step)) + step for step in steps
        )


# -- record batches ----------------------------------------------------------------------------------------------------


def _batch(data: bytes) -> None:
    with contextlib.suppress(KafkaError):
        check_is_one_batch(data)
    with contextlib.suppress(KafkaError):
        for position, header in iterate_batches(data):
            batch = data[position : position + header.size_bytes]
            for _ in iterate_records(batch, decompressed_bytes_max=DECOMPRESSED_BYTES_MAX):
                continue


def _batch_seeds() -> Iterator[bytes]:
    records = [
        Record(Offset(0), 1, b"key", b"value" * 3),
        Record(Offset(1), 2, None, b"v"),
        Record(Offset(2), 3, b"k", None, (("h", b"1"),)),
    ]
    for kind in CompressionType:
        yield build_batch(records, compression=kind)
    yield build_batch(records, producer_id=7, producer_epoch=0, base_sequence=0, is_transactional=True)


# -- gRPC --------------------------------------------------------------------------------------------------------------


def _rpc(data: bytes) -> None:
    """A byte for the call, then its message: what the guard and the service read of it."""
    if not data:
        return
    type_ = CALL_TYPES[data[0] % len(CALL_TYPES)]
    try:
        message = type_.FromString(data[1:])
    except DecodeError:
        return
    claimed_node_id(message)
    verb = next((verb for verb in VERBS if verb.call_type is type_), None)
    with contextlib.suppress(KafkaError, _Aborted):
        if verb is not None:
            read_call(verb, message)
        elif isinstance(message, controller_pb2.HeartbeatMessage):
            read_heartbeat(message)
        else:
            _serve_quorum(message)


class _Aborted(Exception):
    """gRPC's answer where a call is refused."""


class _Context:
    async def abort(self, *status: Any) -> None:
        raise _Aborted


def _serve_quorum(message: Any) -> None:
    """By the service of a replica of which nobody is home."""

    async def handle(request: Request) -> Reply:
        raise PeerUnreachable("nobody is home")

    async def change_voters(change: VoterChange, *, principal: str, client_host: str) -> VoterChangeAnswer:
        return VoterChangeAnswer(ReplyError.NONE, "", change.voter)

    service = QuorumServicer(cluster_id=CLUSTER_ID, handle=handle, identity=_IDENTITY, change_voters=change_voters)
    method = getattr(service, type(message).DESCRIPTOR.name.removesuffix("Call"))
    with contextlib.suppress(StopIteration):
        method(message, _Context()).send(None)  # nothing in it waits


def _rpc_seeds() -> Iterator[bytes]:
    for index in range(len(CALL_TYPES)):
        yield bytes([index])
        if CALL_TYPES[index] is quorum_pb2.ChangeVotersCall:
            replica = quorum_pb2.Replica(id=4, directory_id=bytes(16))
            call = quorum_pb2.ChangeVotersCall(
                cluster_id=CLUSTER_ID,
                voter=quorum_pb2.Voter(replica=replica, host="h", port=1),
                joiner=replica,
                asker=quorum_pb2.Asker(principal="User:a", host="h"),
            )
            yield bytes([index]) + call.SerializeToString()
        yield bytes([index]) + b"\x0a\x06\x0a\x04User" + b"\x10\x01"


# -- words of files and of strangers -----------------------------------------------------------------------------------


def _words(data: bytes) -> None:
    with contextlib.suppress(ValueError):
        parse_jwks(data)
    with contextlib.suppress(ValueError):
        jaas.parse("key", data.decode("utf-8", "replace"))


def _words_seeds() -> Iterator[bytes]:
    yield json.dumps({"keys": [{"kty": "EC", "crv": "P-256", "x": "AA", "y": "AA", "kid": "k"}]}).encode()
    yield b'x.PlainLoginModule required username="a" password="b" user_a="b";'


TARGETS = (
    Target("request", _request, _request_seeds),
    Target("sasl", _sasl, _sasl_seeds),
    Target("batch", _batch, _batch_seeds),
    Target("rpc", _rpc, _rpc_seeds),
    Target("words", _words, _words_seeds),
)


def run(data: bytes) -> None:
    """One input. Raises what a target may not."""
    if data:
        TARGETS[data[0] % len(TARGETS)].run(data[1:])


def captured(target: str) -> Iterator[tuple[str, bytes]]:
    """Who said it and what, and the target's input."""
    for line in CAPTURED.read_text().splitlines():
        name, what, data = line.split()
        if name == target:
            yield what, base64.b64decode(data)


def seeds() -> Iterator[bytes]:
    """Every target's seeds, what was captured, and the corpus, as inputs of `run`."""
    for index, target in enumerate(TARGETS):
        for seed in target.seeds():
            yield bytes([index]) + seed
        for _, seed in captured(target.name):
            yield bytes([index]) + seed
    for file in sorted(CORPUS.glob("*.bin")):
        yield file.read_bytes()
