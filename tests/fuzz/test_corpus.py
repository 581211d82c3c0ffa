"""The short form of `make fuzz`: every seed, every input that once broke a rule, and two seconds of mutations of them."""

from __future__ import annotations

import struct
from collections import defaultdict

import pytest

from barnabas_broker.api import registry
from barnabas_wire.kafka.messages import ApiKey
from barnabas_wire.kafka.messages.produce import parse_produce_request
from barnabas_wire.records.batch import iterate_records
from tests.fuzz.__main__ import check_memory, fuzz_by_ourselves
from tests.fuzz.targets import (
    CALL_TYPES,
    CAPTURED,
    CORPUS,
    DECOMPRESSED_BYTES_MAX,
    TARGETS,
    captured,
    request_body,
    seeds,
)

BUDGET_S = 2.0
CAPTURED_BYTES_MAX = 200 * 1024


def test_every_target_has_seeds() -> None:
    counts = [sum(1 for _ in target.seeds()) for target in TARGETS]
    assert counts[0] > 150 and min(counts) >= 2


def test_what_was_captured_is_whole_of_many_apis_and_of_every_client() -> None:
    registry.load_handlers()
    said: dict[str, set[int]] = defaultdict(set)
    for what, frame in captured("request"):
        (kind,) = struct.unpack_from(">i", frame)
        api, view = registry.by_kind()[kind], memoryview(frame)
        assert what.rpartition("/")[2] == f"{ApiKey(kind >> 16).name}-{kind & 0xFFFF}"
        body = request_body(view, api)
        if api.key is ApiKey.PRODUCE:
            assert parse_produce_request(view, body, kind & 0xFFFF)
        else:
            registry.decode_request(api, kind & 0xFFFF, view, body)
        said[what.partition("/")[0]].add(kind)
    assert set(said) == {"aiokafka", "broker", "kafka_python", "librdkafka"}
    kinds = set[int]().union(*said.values())
    assert len(kinds) > 120 and len({kind >> 16 for kind in kinds}) > 45
    for _, batch in captured("batch"):
        assert sum(1 for _ in iterate_records(batch, decompressed_bytes_max=DECOMPRESSED_BYTES_MAX))
    calls = {what for what, call in captured("rpc") if CALL_TYPES[call[0]].FromString(call[1:]).ByteSize()}
    assert {"Vote", "BeginQuorumEpoch", "Fetch", "Heartbeats", "RegisterBroker", "CreateTopics"} <= calls
    assert {what.rpartition("-")[0] for what, _ in captured("sasl")} == {"PLAIN", "SCRAM-SHA-256"}
    assert CAPTURED.stat().st_size < CAPTURED_BYTES_MAX


def test_the_seeds_and_the_corpus_break_no_rule() -> None:
    for data in seeds():
        check_memory(data)


@pytest.mark.parametrize("seed", [1, 2])
def test_mutations_break_no_rule(seed: int) -> None:
    kept = set(CORPUS.glob("*.bin"))
    assert fuzz_by_ourselves(BUDGET_S, seed) > 100
    assert set(CORPUS.glob("*.bin")) == kept
