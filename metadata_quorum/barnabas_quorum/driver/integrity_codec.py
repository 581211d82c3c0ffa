"""Requests about the soundness of the metadata to protobuf and back; controller_codec.py composes this table into its own.

May touch:  controller.requests_integrity, the protobuf of them.   Must not touch: asyncio, gRPC.
Invariants: those of controller_codec.py.
Read next:  controller_codec.py.
"""

from __future__ import annotations

from barnabas_quorum.controller.requests_integrity import (
    SignOffRecord,
    SignOffRecordReply,
    WriteImageHash,
    WriteImageHashReply,
)
from barnabas_quorum.driver.controller_verb import Verb
from barnabas_wire.kafka.ids import Offset
from barnabas_wire.rpc import controller_pb2 as pb

INTEGRITY_VERBS: tuple[Verb, ...] = (
    Verb(
        "WriteImageHash",
        WriteImageHash,
        pb.WriteImageHashCall,
        pb.WriteImageHashAnswer,
        lambda request: {},
        lambda message: WriteImageHash(),
        lambda reply: {"offset": reply.offset},
        lambda message: WriteImageHashReply(offset=Offset(message.offset)),
    ),
    Verb(
        "SignOffRecord",
        SignOffRecord,
        pb.SignOffRecordCall,
        pb.SignOffRecordAnswer,
        lambda request: {"offset": request.offset, "digest": request.digest, "reason": request.reason},
        lambda message: SignOffRecord(offset=Offset(message.offset), digest=message.digest, reason=message.reason),
        lambda reply: {"offset": reply.offset},
        lambda message: SignOffRecordReply(offset=Offset(message.offset)),
    ),
)
