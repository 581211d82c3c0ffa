"""Incremental config changes, and producer id blocks."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from barnabas_quorum.controller.configs import refuse_lost_to_some
from barnabas_quorum.controller.requests import (
    AllocateProducerIds,
    ConfigAlteration,
    ConfigChange,
    ConfigOperation,
    IncrementalAlterConfigs,
)
from barnabas_quorum.controller.result import ControllerResult
from barnabas_quorum.image.configs import ConfigResource
from barnabas_quorum.image.features import (
    METADATA_VERSION,
    METADATA_VERSION_CLIENT_METRICS,
    METADATA_VERSION_PROOF,
    SHARE_VERSION,
)
from barnabas_quorum.records import ConfigResourceType, FeatureLevelRecord
from barnabas_wire.kafka.errors import ErrorCode, KafkaError
from barnabas_wire.kafka.ids import BrokerId
from tests.support.decided_cluster import VALIDATORS, DecidedCluster

SET, DELETE, APPEND, SUBTRACT = ConfigOperation
DELETES = (ConfigChange(key="new.key", operation=DELETE, value=None),)
TOPIC, BROKER, CLIENT_METRICS, GROUP = ConfigResourceType


def one() -> DecidedCluster:
    cluster = DecidedCluster().start_brokers(1, 2)
    cluster.create("t", [1, 2], configs={"k": "1", "list": "a,b"})
    return cluster


def alteration(
    kind: ConfigResourceType, name: str, *changes: tuple[str, ConfigOperation, str | None]
) -> ConfigAlteration:
    return ConfigAlteration(
        resource_type=kind,
        resource_name=name,
        changes=tuple(ConfigChange(key=key, operation=operation, value=value) for key, operation, value in changes),
    )


def alter(cluster: DecidedCluster, *resources: ConfigAlteration, **more: Any) -> list[ErrorCode | None]:
    reply = cluster.do(IncrementalAlterConfigs(resources=resources, **more))
    assert all(resource.error is None or resource.error.message for resource in reply.resources)
    return [None if resource.error is None else resource.error.code for resource in reply.resources]


def test_set_delete_append_and_subtract() -> None:
    cluster = one()
    assert alter(
        cluster,
        alteration(TOPIC, "t", ("new", SET, "x"), ("k", DELETE, None), ("list", APPEND, "b,c"), ("none", APPEND, "z")),
    ) == [None]
    assert cluster.image.configs.topic("t") == {"new": "x", "list": "a,b,c", "none": "z"}
    assert alter(cluster, alteration(TOPIC, "t", ("list", SUBTRACT, "a, c"), ("none", SUBTRACT, "z"))) == [None]
    assert cluster.image.configs.topic("t") == {"new": "x", "list": "b", "none": ""}


def test_subtract_takes_one_of_equal_parts_as_kafka_does() -> None:
    cluster = one()
    assert alter(cluster, alteration(TOPIC, "t", ("list", SET, "a,b,a,a"))) == [None]
    assert alter(cluster, alteration(TOPIC, "t", ("list", SUBTRACT, "a"))) == [None]
    assert cluster.image.configs.topic("t")["list"] == "b,a,a"
    assert alter(cluster, alteration(TOPIC, "t", ("list", SUBTRACT, "a,a,c"))) == [None]
    assert cluster.image.configs.topic("t")["list"] == "b"


def test_what_is_recorded_is_what_the_keys_owner_makes_of_it() -> None:
    cluster = one()
    assert alter(cluster, alteration(TOPIC, "t", ("k", SET, "LOUD"))) == [None]
    assert cluster.image.configs.topic("t")["k"] == "loud"
    start = len(cluster.log)
    assert alter(cluster, alteration(TOPIC, "t", ("k", SET, "Loud"))) == [None]
    assert len(cluster.log) == start
    cluster.create("t3", [1], configs={"k": "LOUD"})
    assert cluster.image.configs.topic("t3") == {"k": "loud"}


def test_append_and_subtract_without_an_override_begin_with_what_is_inherited() -> None:
    cluster = one()
    assert alter(cluster, alteration(BROKER, "", ("list", SET, "p,q"))) == [None]
    assert alter(cluster, alteration(TOPIC, "t2", ("list", APPEND, "r"))) == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    cluster.create("t2", [1])
    assert alter(cluster, alteration(TOPIC, "t2", ("list", APPEND, "r"))) == [None]
    assert cluster.image.configs.topic("t2") == {"list": "p,q,r"}
    assert alter(cluster, alteration(BROKER, "1", ("list", SUBTRACT, "p"))) == [None]
    assert cluster.image.configs.broker(BrokerId(1)) == {"list": "q"}


def test_what_is_already_so_writes_nothing() -> None:
    cluster = one()
    start = len(cluster.log)
    assert alter(cluster, alteration(TOPIC, "t", ("k", SET, "1"), ("absent", DELETE, None))) == [None]
    assert len(cluster.log) == start


def test_validate_only_writes_nothing() -> None:
    cluster = one()
    start = len(cluster.log)
    resources = [alteration(TOPIC, "t", ("k", SET, "2")), alteration(TOPIC, "t2", ("k", SET, "2"))]
    assert alter(cluster, *resources, validate_only=True) == [None, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert len(cluster.log) == start


def test_a_resource_changes_as_a_whole_or_not_at_all() -> None:
    cluster = one()
    assert alter(
        cluster,
        alteration(TOPIC, "t", ("new", SET, "x"), ("k", SET, "bad")),
        alteration(BROKER, "", ("k", SET, "good")),
    ) == [ErrorCode.INVALID_CONFIG, None]
    assert cluster.image.configs.topic("t") == {"k": "1", "list": "a,b"}
    assert cluster.image.configs.cluster_default == {"k": "good", "min.insync.replicas": "1"}


@pytest.mark.parametrize(
    ("resource", "code"),
    [
        (alteration(TOPIC, "x", ("k", SET, "1")), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (alteration(BROKER, "x", ("k", SET, "1")), ErrorCode.INVALID_REQUEST),
        (alteration(BROKER, "9", ("k", SET, "1")), ErrorCode.BROKER_ID_NOT_REGISTERED),
        (alteration(BROKER, "01", ("k", SET, "1")), ErrorCode.BROKER_ID_NOT_REGISTERED),
        (alteration(BROKER, "9" * 5000, ("k", SET, "1")), ErrorCode.BROKER_ID_NOT_REGISTERED),
        (alteration(BROKER, "1", ("k", SET, "bad")), ErrorCode.INVALID_CONFIG),
        (alteration(TOPIC, "t", ("k", SET, None)), ErrorCode.INVALID_REQUEST),
        (alteration(TOPIC, "t", ("k", SET, "2"), ("k", DELETE, None)), ErrorCode.INVALID_REQUEST),
    ],
)
def test_changes_that_cannot_be_are_refused(resource: ConfigAlteration, code: ErrorCode) -> None:
    cluster = one()
    start = len(cluster.log)
    assert alter(cluster, resource) == [code]
    assert len(cluster.log) == start


def test_a_resource_may_come_once_per_request() -> None:
    change = alteration(BROKER, "1", ("k", SET, "1"))
    assert alter(one(), change, change) == [ErrorCode.INVALID_REQUEST] * 2


def test_one_brokers_configs_are_its_own() -> None:
    cluster = one()
    assert alter(cluster, alteration(BROKER, "1", ("k", SET, "v"))) == [None]
    assert cluster.image.configs.broker(BrokerId(1)) == {"k": "v"}
    assert cluster.image.configs.broker(BrokerId(2)) == {}
    assert cluster.image.configs.cluster_default == {"min.insync.replicas": "1"}


@pytest.mark.parametrize("resource", [(TOPIC, "t"), (BROKER, "")])
def test_allowing_unclean_elections_elects_at_once(resource: tuple[ConfigResourceType, str]) -> None:
    cluster = one()
    cluster.fence(2)
    cluster.heartbeat(2)
    cluster.fence(1)
    assert cluster.partition("t").leader == -1
    assert alter(cluster, alteration(*resource, ("unclean.leader.election.enable", SET, "true"))) == [None]
    assert (cluster.partition("t").leader, cluster.partition("t").isr) == (2, (2,))


def test_producer_id_blocks_never_overlap() -> None:
    cluster = one()
    taken: set[int] = set()
    for broker_id in (1, 2, 1):
        epoch = cluster.image.cluster.brokers[BrokerId(broker_id)].epoch
        block = cluster.do(AllocateProducerIds(broker_id=BrokerId(broker_id), broker_epoch=epoch))
        assert block.count == 1000
        ids = set(range(block.first, block.first + block.count))
        assert not ids & taken
        taken |= ids
    assert taken == set(range(3000))


def test_producer_ids_are_for_registered_brokers_only() -> None:
    with pytest.raises(KafkaError) as caught:
        one().do(AllocateProducerIds(broker_id=BrokerId(1), broker_epoch=-1))
    assert caught.value.code is ErrorCode.STALE_BROKER_EPOCH


def test_a_key_that_a_former_node_does_not_know_waits_for_the_upgrade() -> None:
    """To such a node the topic would be invalid as a whole."""
    cluster = one()
    resources = [alteration(kind, name, ("new.key", SET, "x")) for kind, name in ((TOPIC, "t"), (BROKER, ""))]
    assert alter(cluster, *resources) == [None, None]
    assert alter(cluster, *(replace(each, changes=DELETES) for each in resources)) == [None, None]
    level = FeatureLevelRecord(name=METADATA_VERSION, level=METADATA_VERSION_PROOF - 1)
    cluster.commit(ControllerResult(records=[level], response=None))
    reply = cluster.do(IncrementalAlterConfigs(resources=tuple(resources)))
    assert [resource.error.code for resource in reply.resources] == [ErrorCode.INVALID_CONFIG] * 2
    assert "features upgrade" in reply.resources[0].error.message
    assert alter(cluster, *(replace(each, changes=DELETES) for each in resources)) == [None, None]
    with pytest.raises(AssertionError, match=r"new\.key needs metadata\.version 7"):
        cluster.create("u", [1, 2], configs={"new.key": "x"})


def test_a_level_stays_while_somebody_has_a_key_of_it() -> None:
    cluster = one()
    given = alteration(TOPIC, "t", ("share.key", SET, "x"))
    for level, code in ((1, ErrorCode.INVALID_CONFIG), (2, None)):
        raised = FeatureLevelRecord(name=SHARE_VERSION, level=level)
        cluster.commit(ControllerResult(records=[raised], response=None))
        assert alter(cluster, given) == [code]
    for name, lower in ((SHARE_VERSION, 2), (METADATA_VERSION, 1)):
        refuse_lost_to_some(cluster.image, name, lower, VALIDATORS)
    for lower in (0, 1):
        with pytest.raises(KafkaError, match=r"topic 't' has share\.key.*; remove it") as caught:
            refuse_lost_to_some(cluster.image, SHARE_VERSION, lower, VALIDATORS)
        assert caught.value.code is ErrorCode.INVALID_UPDATE_VERSION


def test_subscriptions_of_client_metrics_wait_until_every_node_reads_them() -> None:
    cluster = one()
    wanted = alteration(CLIENT_METRICS, "all", ("metrics", SET, "*"))
    assert alter(cluster, wanted, alteration(CLIENT_METRICS, "", ("metrics", SET, "*"))) == [
        None,
        ErrorCode.INVALID_REQUEST,
    ]
    assert cluster.image.configs.get(ConfigResource(CLIENT_METRICS, "all")) == {"metrics": "*"}
    assert alter(cluster, alteration(CLIENT_METRICS, "all", ("metrics", DELETE, None))) == [None]
    assert ConfigResource(CLIENT_METRICS, "all") not in cluster.image.configs.resources
    level = FeatureLevelRecord(name=METADATA_VERSION, level=METADATA_VERSION_CLIENT_METRICS - 1)
    cluster.commit(ControllerResult(records=[level], response=None))
    assert alter(cluster, wanted) == [ErrorCode.UNSUPPORTED_VERSION]
