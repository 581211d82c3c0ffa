"""What a connection remembers of its rights."""

from __future__ import annotations

import tracemalloc

import pytest

from barnabas_broker.security.access import AccessControl
from barnabas_quorum.image.acls import EMPTY_ACLS
from barnabas_quorum.image.authorizer import Authorizer
from barnabas_quorum.records_security import AclOperation, AclResourceType


@pytest.mark.attack("A5", "names of 32 KB that a client without rights asks about are not remembered")
def test_a_client_without_rights_fills_no_memory_with_the_names_it_asks_about() -> None:
    access = AccessControl(Authorizer(), acls=lambda: EMPTY_ACLS).of("User:nobody", "127.0.0.1")
    tracemalloc.start()
    try:
        for number in range(2000):
            assert not access.may(AclOperation.DESCRIBE, AclResourceType.GROUP, f"{number:032768d}")
        assert tracemalloc.get_traced_memory()[0] < 1024 * 1024
    finally:
        tracemalloc.stop()
