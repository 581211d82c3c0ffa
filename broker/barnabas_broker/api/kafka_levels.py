"""The levels of metadata.version as Kafka's clients and tools know them.

May touch:  its arguments.            Must not touch: everything else.
Invariants: each level of ours stands for one of Kafka's, and a higher one for a higher one; only the Kafka protocol speaks these
            numbers, the metadata log, gRPC and the `barnabas` CLI speak ours.
Read next:  api_versions.py and features.py, which translate; barnabas_quorum/image/features.py for what our levels mean.

Kafka's tools print the name of a level (22 is 4.0-IV0) and UNKNOWN for a number that they do not know, such as our 1 to 4. The
numbers say which came first and no more: what a cluster serves is in ApiVersions' table and in the other features.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from barnabas_quorum.image.features import METADATA_VERSION
from barnabas_wire.kafka.errors import ErrorCode, KafkaError

KAFKA_METADATA_VERSIONS: Final[Mapping[int, tuple[int, str]]] = {
    1: (22, "4.0-IV0"),
    2: (23, "4.0-IV1"),
    3: (24, "4.0-IV2"),
    4: (25, "4.0-IV3"),
    5: (26, "4.1-IV0"),
    6: (27, "4.1-IV1"),
    7: (28, "4.2-IV0"),
    8: (29, "4.2-IV1"),
}
"""Ours -> Kafka's level and its name, as MetadataVersion of Kafka 4.4.0 has them."""
_OURS: Final = {kafka: ours for ours, (kafka, _) in KAFKA_METADATA_VERSIONS.items()}


def to_kafka(feature: str, level: int) -> int:
    """The level that a Kafka client sees; 0 stays 0."""
    return KAFKA_METADATA_VERSIONS[level][0] if feature == METADATA_VERSION and level else level


def from_kafka(feature: str, level: int) -> int:
    """The level that a Kafka client means. Raises INVALID_UPDATE_VERSION for a metadata.version that stands for none of ours."""
    if feature != METADATA_VERSION or not level:
        return level
    ours = _OURS.get(level)
    if ours is None:
        known = ", ".join(f"{kafka} ({name})" for kafka, name in KAFKA_METADATA_VERSIONS.values())
        raise KafkaError.of(
            ErrorCode.INVALID_UPDATE_VERSION,
            f"metadata.version {level} is none that Barnabas has; use one of {known}, or `barnabas cluster features upgrade`",
        )
    return ours
