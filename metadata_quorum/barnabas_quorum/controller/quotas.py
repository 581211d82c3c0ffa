"""Client quotas: set and remove (KIP-546). Image in, records out.

May touch:  image, features.           Must not touch: throttling, everything that waits.
Invariants: all changes of one entity are made, or none; every record changes something.
Read next:  image/quotas.py.
"""

from __future__ import annotations

import ipaddress
import math
from collections import Counter
from collections.abc import Mapping

from barnabas_quorum.controller.decisions import RECORDS_PER_BATCH_MAX, DecisionContext, decides
from barnabas_quorum.controller.features import require_metadata_version
from barnabas_quorum.controller.requests_security import AlterClientQuotas, AlterClientQuotasReply, QuotaAlteration
from barnabas_quorum.controller.result import ControllerResult
from barnabas_quorum.image.features import METADATA_VERSION_SECURITY
from barnabas_quorum.image.metadata import MetadataImage
from barnabas_quorum.records import Record
from barnabas_quorum.records_security import ClientQuotaRecord, QuotaEntity
from barnabas_wire.kafka.errors import ErrorCode, KafkaError

USER, CLIENT_ID, IP = "user", "client-id", "ip"
CLIENT_KEYS: Mapping[str, bool] = {
    "producer_byte_rate": True,
    "consumer_byte_rate": True,
    "request_percentage": False,
    "controller_mutation_rate": False,
}
"""Keys of users and clients; True = whole numbers."""
IP_KEYS: Mapping[str, bool] = {"connection_creation_rate": True}
WHOLE_MAX = 2**63 - 1


@decides(AlterClientQuotas)
def alter_client_quotas(
    image: MetadataImage, request: AlterClientQuotas, context: DecisionContext
) -> ControllerResult[AlterClientQuotasReply]:
    """Each entity succeeds or fails as a whole: INVALID_REQUEST, POLICY_VIOLATION. Raises UNSUPPORTED_VERSION."""
    require_metadata_version(image, METADATA_VERSION_SECURITY, "client quotas")
    times = Counter(alteration.entity for alteration in request.alterations)
    records: list[Record] = []
    errors: list[KafkaError | None] = []
    for alteration in request.alterations:
        try:
            if times[alteration.entity] > 1:
                raise _refuse(alteration.entity, "appears twice in one request; name it once")
            changes = _alter_one(image, alteration)
            if len(records) + len(changes) > RECORDS_PER_BATCH_MAX:
                raise KafkaError.of(
                    ErrorCode.POLICY_VIOLATION,
                    f"one request may change at most {RECORDS_PER_BATCH_MAX} quotas; send the rest in another",
                )
        except KafkaError as refusal:
            errors.append(refusal)
            continue
        errors.append(None)
        records += changes
    return ControllerResult(
        records=[] if request.validate_only else records, response=AlterClientQuotasReply(errors=tuple(errors))
    )


def entity_text(entity: QuotaEntity) -> str:
    """An entity as people write it, such as user=alice,client-id=<default>."""
    return ",".join(f"{part.type}={'<default>' if part.name is None else part.name}" for part in entity) or "nobody"


def _refuse(entity: QuotaEntity, reason: str) -> KafkaError:
    return KafkaError.of(ErrorCode.INVALID_REQUEST, f"the quota of {entity_text(entity)} {reason}")


def _alter_one(image: MetadataImage, alteration: QuotaAlteration) -> list[Record]:
    entity = alteration.entity
    keys = _keys_of(entity)
    present = image.quotas.get(entity)
    times = Counter(key for key, _ in alteration.changes)
    records: list[Record] = []
    for key, value in alteration.changes:
        if times[key] > 1:
            raise _refuse(entity, f"changes {key} twice; change it once")
        if key not in keys:
            raise _refuse(entity, f"has no key {key!r}; the keys are {', '.join(sorted(keys))}")
        if value is not None:
            _check_value(entity, key, value, is_whole=keys[key])
        if value != present.get(key):
            records.append(ClientQuotaRecord(entity=entity, key=key, value=value))
    return records


def _keys_of(entity: QuotaEntity) -> Mapping[str, bool]:
    types = [part.type for part in entity]
    unknown = [kind for kind in types if kind not in (USER, CLIENT_ID, IP)]
    if not types or unknown:
        raise _refuse(entity, f"is for {unknown or 'nobody'}; a quota is for user, client-id, both, or ip")
    if types != sorted(set(types)):
        raise _refuse(entity, "names a type twice; name it once")
    if IP in types and len(types) > 1:
        raise _refuse(entity, "is for an ip and something else; an ip quota names only the ip")
    for part in entity:
        if part.name == "":
            raise _refuse(entity, f"has an empty {part.type}; null means the default for all without a quota")
        if part.type == IP and part.name is not None:
            try:
                ipaddress.ip_address(part.name)
            except ValueError:
                raise _refuse(entity, f"is for {part.name!r}, which is not an IP address") from None
    return IP_KEYS if types == [IP] else CLIENT_KEYS


def _check_value(entity: QuotaEntity, key: str, value: float, *, is_whole: bool) -> None:
    if not math.isfinite(value) or value <= 0:
        raise _refuse(entity, f"sets {key}={value:g}; it must be greater than 0, or be removed")
    if is_whole and (value != math.floor(value) or value > WHOLE_MAX):
        raise _refuse(entity, f"sets {key}={value:g}; it must be a whole number below 2^63")
