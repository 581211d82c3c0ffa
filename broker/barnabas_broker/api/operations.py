"""What a principal may do, as the bit sets of Kafka's AclOperation: without an authorizer, everything.

May touch:  nothing.                  Must not touch: everything.
Invariants: bit n stands for the operation whose code is n; a client that did not ask gets OPERATIONS_UNKNOWN.
Read next:  metadata.py, groups.py and cluster.py, which report them.
"""

from __future__ import annotations

from typing import Final

_READ, _WRITE, _CREATE, _DELETE, _ALTER, _DESCRIBE = 1 << 3, 1 << 4, 1 << 5, 1 << 6, 1 << 7, 1 << 8
_CLUSTER_ACTION, _DESCRIBE_CONFIGS, _ALTER_CONFIGS, _IDEMPOTENT_WRITE = 1 << 9, 1 << 10, 1 << 11, 1 << 12

OPERATIONS_UNKNOWN: Final = -(2**31)
TOPIC_OPERATIONS: Final = _READ | _WRITE | _CREATE | _DELETE | _ALTER | _DESCRIBE | _DESCRIBE_CONFIGS | _ALTER_CONFIGS
GROUP_OPERATIONS: Final = _READ | _DELETE | _DESCRIBE | _DESCRIBE_CONFIGS | _ALTER_CONFIGS
CLUSTER_OPERATIONS: Final = (
    _CREATE | _ALTER | _DESCRIBE | _CLUSTER_ACTION | _DESCRIBE_CONFIGS | _ALTER_CONFIGS | _IDEMPOTENT_WRITE
)
