"""Who may have how many descriptors: something is left for everybody at every limit, and too few are refused in words."""

from __future__ import annotations

import subprocess
import sys

import pytest

from barnabas_broker.node.descriptor_budget import (
    CONNECTION_DESCRIPTORS,
    FILES_MIN,
    FILES_SHARE,
    LIMIT_MIN,
    RESERVED_DESCRIPTORS,
    split_descriptors,
)
from barnabas_wire.kafka.errors import KafkaError


@pytest.mark.parametrize("wanted", [1, 100, 10_000, 1_000_000])
def test_files_and_connections_leave_what_the_rest_needs(wanted: int) -> None:
    for limit in [*range(LIMIT_MIN, 3000), 20_000, 524_288]:
        budget = split_descriptors(limit, connections_wanted=wanted, reserve_wanted=32)
        assert 0 < budget.connections_max <= wanted and budget.files_max >= FILES_MIN
        assert 0 < budget.connections_reserved <= 32
        spent = budget.files_max + CONNECTION_DESCRIPTORS * (budget.connections_max + budget.connections_reserved)
        assert spent + RESERVED_DESCRIPTORS == limit
        assert budget.files_max >= (limit - RESERVED_DESCRIPTORS) // FILES_SHARE


def test_a_limit_that_is_too_low_names_what_to_raise() -> None:
    with pytest.raises(KafkaError, match=r"ulimit -n.*LimitNOFILE"):
        split_descriptors(LIMIT_MIN - 1, connections_wanted=10, reserve_wanted=32)


def test_the_soft_limit_is_raised_to_the_hard_one() -> None:
    program = (
        "import resource; from barnabas_broker.node.descriptor_budget import raise_descriptor_limit\n"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (256, 900))\n"
        "print(raise_descriptor_limit(), *resource.getrlimit(resource.RLIMIT_NOFILE))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["900", "900", "900"]
