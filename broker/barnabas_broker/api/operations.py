"""The operations that an answer says a principal may do, by type of resource, and the mark for who did not ask.

May touch:  ACL operations.           Must not touch: everything else.
Invariants: in Kafka's bit sets bit n stands for the operation whose code is n; a client that did not ask gets OPERATIONS_UNKNOWN.
Read next:  metadata.py, groups.py and cluster.py, which report them; ../security/access.py, which makes the bit sets.
"""

from __future__ import annotations

from typing import Final

from barnabas_quorum.records_security import AclOperation

OPERATIONS_UNKNOWN: Final = -(2**31)
TOPIC_OPERATIONS: Final = (
    AclOperation.READ,
    AclOperation.WRITE,
    AclOperation.CREATE,
    AclOperation.DELETE,
    AclOperation.ALTER,
    AclOperation.DESCRIBE,
    AclOperation.DESCRIBE_CONFIGS,
    AclOperation.ALTER_CONFIGS,
)
GROUP_OPERATIONS: Final = (
    AclOperation.READ,
    AclOperation.DELETE,
    AclOperation.DESCRIBE,
    AclOperation.DESCRIBE_CONFIGS,
    AclOperation.ALTER_CONFIGS,
)
CLUSTER_OPERATIONS: Final = (
    AclOperation.CREATE,
    AclOperation.ALTER,
    AclOperation.DESCRIBE,
    AclOperation.CLUSTER_ACTION,
    AclOperation.DESCRIBE_CONFIGS,
    AclOperation.ALTER_CONFIGS,
    AclOperation.IDEMPOTENT_WRITE,
)
