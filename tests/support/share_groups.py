"""Whether a broker has share groups: until ours has them, what proves them is expected to fail, and begins to count by itself.

May touch:  a connection to a broker.     Must not touch: clusters, files.
Invariants: a broker that lists all of NEEDED, and has share.version on, is held to everything; nothing is skipped then.
Read next:  tests/oracle/cases/share.py.
"""

from __future__ import annotations

from contextlib import closing

import pytest

from barnabas_wire.client.blocking import BlockingConnection
from barnabas_wire.kafka.messages import ApiKey

NEEDED = {
    ApiKey.SHARE_GROUP_HEARTBEAT,
    ApiKey.SHARE_GROUP_DESCRIBE,
    ApiKey.SHARE_FETCH,
    ApiKey.SHARE_ACKNOWLEDGE,
    ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS,
    ApiKey.ALTER_SHARE_GROUP_OFFSETS,
    ApiKey.DELETE_SHARE_GROUP_OFFSETS,
}


def are_served(bootstrap: str) -> bool:
    """Whether the first of these brokers has them."""
    host, _, port = bootstrap.split(",")[0].rpartition(":")
    with closing(BlockingConnection(host, int(port), client_id="share-groups")) as connection:
        return connection.ranges.keys() >= NEEDED and connection.features.get("share.version", 0) > 0


def expect(bootstrap: str) -> None:
    """End the test as an expected failure where they are not served."""
    if not are_served(bootstrap):
        pytest.xfail("Barnabas does not serve share groups yet")
