"""The hash of the metadata, which all nodes compare with their own. Image in, record out.

May touch:  image.                    Must not touch: everything else.
Invariants: the hash is of the image right before its record.
Read next:  ../image/hashing.py; driver/controller_driver.py, which requests it periodically.
"""

from __future__ import annotations

from barnabas_quorum.controller.decisions import DecisionContext, decides
from barnabas_quorum.controller.requests_integrity import WriteImageHash, WriteImageHashReply
from barnabas_quorum.controller.result import ControllerResult
from barnabas_quorum.image.metadata import MetadataImage
from barnabas_wire.kafka.errors import ErrorCode, KafkaError


@decides(WriteImageHash)
def write_image_hash(
    image: MetadataImage, request: WriteImageHash, context: DecisionContext
) -> ControllerResult[WriteImageHashReply]:
    """A record with the hash of the pending image. Raises UNSUPPORTED_VERSION."""
    if not image.features.has_integrity_records:
        raise KafkaError.of(
            ErrorCode.UNSUPPORTED_VERSION,
            "metadata.version 1 has no record for image hashes: once all nodes run this version, "
            "`barnabas cluster features upgrade metadata.version=2`",
        )
    reply = WriteImageHashReply(offset=context.next_offset)
    return ControllerResult(records=[image.hash.to_record()], response=reply)
