"""What one request may cost, for every API: the greediest that a generator makes of its declaration keeps to the handler table."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from barnabas_broker.api import registry
from barnabas_wire.kafka.messages import ApiKey
from barnabas_wire.kafka.primitives import TooManyElements
from barnabas_wire.kafka.schema import decode_request, message_classes
from tests.broker.api.greedy import SIZES, greedy_client
from tests.broker.api.greedy_requests import shapes

registry.load_handlers()


@pytest.mark.parametrize("key", sorted(registry.APIS), ids=lambda key: ApiKey(key).name)
def test_a_greedy_request_is_well_formed_and_as_large_as_its_bounds(key: int) -> None:
    """Else it would measure how a request is refused."""
    cls = message_classes(key)[0]
    for version in served_extremes(key):
        for alike in shapes(cls, version, name="1", topic_id=bytes(16), fixed={}):
            for shape in alike[:: len(alike) - 1]:
                body = shape.body(4096, 300)
                assert len(body) <= 4096
                decode_request(key, version, body, elements_max=300)
                if len(body) > 2 * len(shape.body(0, 300)) and len(body) < 2000:  # the elements end it, not the bytes
                    with pytest.raises(TooManyElements):
                        decode_request(key, version, body, elements_max=299)


def served_extremes(key: int) -> set[int]:
    """The lowest and the highest version that is served and declared."""
    api = registry.APIS[key]
    return {max(api.min_version, message_classes(key)[0].MIN_VERSION), api.max_version}


@pytest.mark.attack("A5", "the greediest request of each API keeps to its bounds")
async def test_the_greediest_request_of_each_api_keeps_to_the_handler_table(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Work is counted, so that a busy machine changes nothing."""
    caplog.set_level(logging.ERROR)
    beyond = []
    async with greedy_client(tmp_path) as client:
        for key in sorted(registry.APIS):
            rows = await client.search(key)
            assert {row.shape.version for row in rows} == served_extremes(key)
            row = max(rows, key=lambda row: row.calls_of_probe)
            api, shape = row.api, row.shape
            cost = await client.send(api, shape, SIZES[-1])  # has all that one of 64 KiB has
            if max(cost.calls, cost.control_calls) > api.calls_max:
                beyond.append(
                    f"{api.key.name} v{shape.version}: {cost.size:,} bytes are {cost.calls:,} calls on the data lane and "
                    f"{cost.control_calls:,} on the control lane in one turn, {api.calls_max:,} are allowed ({shape})"
                )
            # Tracing makes a request ten times as slow: the memory of the smaller one is carried over to the larger.
            small = await client.send(api, shape, SIZES[0], is_traced=True)
            memory_bytes = small.memory_bytes * cost.size // small.size
            if memory_bytes > api.memory_bytes_max:
                beyond.append(f"{api.key.name}: {memory_bytes:,} bytes of memory, {api.memory_bytes_max:,} are allowed")
    assert not beyond, "\n".join(beyond)
    assert not [record.getMessage() for record in caplog.records], "a greedy request found a bug"
