"""What clients ask for and this version does not serve: one text for the client, one line in the log.

May touch:  its arguments, the logger.        Must not touch: everything else.
Invariants: one log line per kind and NOTICE_INTERVAL_MS, however many clients ask, with the count of those in between.
Read next:  groups.py, consumer_groups.py, share_groups.py, streams_groups.py and init_producer_id.py, whose refusals these are.

The codes are those that clients take as final and show with their text; a code that is retried shows as a time-out without a reason.
"""

from __future__ import annotations

import logging
from collections.abc import Collection
from typing import Final

from barnabas_broker.api.context import RequestContext
from barnabas_wire.kafka.errors import ErrorCode, KafkaError
from barnabas_wire.lazy_dataclass import dataclass

logger = logging.getLogger(__name__)

NOTICE_INTERVAL_MS: Final = 60_000


@dataclass(frozen=True, slots=True)
class Unserved:
    """One thing that is not served."""

    code: ErrorCode
    message: str
    """What is wrong, then what to do."""


TRANSACTIONS: Final = Unserved(
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    "this cluster does not serve transactions yet: its transaction.version is 0; once every node runs a version that does, "
    "`barnabas cluster features upgrade --feature transaction.version=2`",
)
FEATURE_OF: Final = {"consumer": "group.version", "streams": "streams.version"}
"""By the protocol of a group, the feature that it needs."""
PROTOCOL_WITHOUT_FEATURE: Final[dict[str, Unserved]] = {
    protocol: Unserved(
        ErrorCode.UNSUPPORTED_VERSION,
        f"this cluster does not serve group.protocol={protocol}: its {feature} is 0; set group.protocol=classic, or, once every node "
        f"runs a version that does, `barnabas cluster features upgrade --feature {feature}=1`",
    )
    for protocol, feature in FEATURE_OF.items()
}
PROTOCOL_WITHOUT_FEATURE["share"] = Unserved(
    ErrorCode.UNSUPPORTED_VERSION,
    "this cluster does not serve share groups: its share.version is 0; once every node runs a version that does, "
    "`barnabas cluster features upgrade --feature share.version=2`",
)
PROTOCOL_OFF: Final = {
    protocol: Unserved(
        ErrorCode.UNSUPPORTED_VERSION,
        f"this broker does not serve group.protocol={protocol}: its group.coordinator.rebalance.protocols does not name {protocol}; set "
        "group.protocol=classic, or add it there on every broker",
    )
    for protocol in FEATURE_OF
}


class UnservedNotices:
    """Refuses, and writes the line. One per broker."""

    def __init__(self) -> None:
        self._noted: dict[Unserved, tuple[int, int]] = {}
        """When the last line was written (ms), and how many clients asked since."""

    def refuse(self, what: Unserved, context: RequestContext, subject: str = "") -> KafkaError:
        """The error to answer with; `subject`: what was asked for, such as a group, for the log."""
        noted_ms, unsaid = self._noted.get(what, (None, 0))
        if noted_ms is None or context.now_ms - noted_ms >= NOTICE_INTERVAL_MS:
            more = f" ({unsaid} more since the last such line)" if unsaid else ""
            about = f" ({subject[:100]})" if subject else ""
            logger.warning("client %r on %s%s: %s%s", context.client_id, context.client_host, about, what.message, more)
            self._noted[what] = (context.now_ms, 0)
        else:
            self._noted[what] = (noted_ms, unsaid + 1)
        return KafkaError.of(what.code, what.message)

    def require_protocol(
        self, protocol: str, context: RequestContext, group_id: str, *, has_feature: bool, served: Collection[str]
    ) -> None:
        """Raise the refusal of a group protocol whose feature is off, or that is not among those `served` by this broker."""
        if not has_feature:
            raise self.refuse(PROTOCOL_WITHOUT_FEATURE[protocol], context, f"group {group_id}" if group_id else "")
        if protocol not in served:
            raise self.refuse(PROTOCOL_OFF[protocol], context, f"group {group_id}" if group_id else "")
