"""Messages of Streams groups that kio does not have: the bytes of Kafka 4.4.0's generated classes."""

from __future__ import annotations

from typing import Any

import pytest

from barnabas_wire.kafka import schema
from barnabas_wire.kafka.messages import streams_group_describe as describe
from barnabas_wire.kafka.messages import streams_group_heartbeat as heartbeat
from barnabas_wire.kafka.messages import streams_group_topology_description_update as update

TOPOLOGY = heartbeat.Topology(
    epoch=0,
    subtopologies=[
        heartbeat.Subtopology(
            subtopology_id="0",
            source_topics=["in"],
            state_changelog_topics=[
                heartbeat.TopicInfo(
                    name="c",
                    replication_factor=3,
                    topic_configs=[heartbeat.KeyValue(key="cleanup.policy", value="compact")],
                )
            ],
            repartition_sink_topics=["rep"],
            repartition_source_topics=[heartbeat.TopicInfo(name="rep2", partitions=4)],
            copartition_groups=[heartbeat.CopartitionGroup(source_topics=[0], repartition_source_topics=[0])],
        )
    ],
)
NODE = update.TopologyDescriptionNode(
    name="n", node_type=1, source_topics=["in"], sink_topic="out", stores=["s"], successors=["z"]
)
HELD = describe.Assignment(active_tasks=[heartbeat.TaskIds(subtopology_id="0", partitions=[0, 1])])
GOLDEN: list[tuple[Any, int, str]] = [
    (
        heartbeat.StreamsGroupHeartbeatRequest(
            group_id="g",
            member_id="m",
            endpoint_information_epoch=-1,
            instance_id="i",
            rack_id="r",
            rebalance_timeout_ms=300_000,
            topology=TOPOLOGY,
            active_tasks=[heartbeat.TaskIds(subtopology_id="0", partitions=[0, 2])],
            standby_tasks=[],
            warmup_tasks=[],
            process_id="p",
            user_endpoint=heartbeat.Endpoint(host="h", port=65_535),
            client_tags=[heartbeat.KeyValue(key="zone", value="a")],
            task_offsets=[heartbeat.TaskOffset(subtopology_id="0", partition=1, offset=77)],
            task_end_offsets=[],
            shutdown_application=True,
        ),
        1,
        "0267026d00000000ffffffff02690272000493e001000000000202300203696e01020263000000000003020f636c65616e75"
        "702e706f6c69637908636f6d7061637400000204726570020572657032000000040000010002020000010200000000000202"
        "300300000000000000020001010270010268ffff0002057a6f6e6502610002023000000001000000000000004d00010100",
    ),
    (
        heartbeat.StreamsGroupHeartbeatResponse(
            member_id="m",
            member_epoch=3,
            heartbeat_interval_ms=5_000,
            task_offset_interval_ms=60_000,
            acceptable_recovery_lag=10_000,
            status=[heartbeat.Status(status_code=3, status_detail="x")],
            active_tasks=[heartbeat.TaskIds(subtopology_id="0", partitions=[0])],
            standby_tasks=[],
            warmup_tasks=[],
            topology_description_required=True,
            endpoint_information_epoch=2,
            partitions_by_user_endpoint=[
                heartbeat.EndpointToPartitions(
                    user_endpoint=heartbeat.Endpoint(host="h", port=80),
                    active_partitions=[heartbeat.TopicPartition(topic="in", partitions=[0])],
                )
            ],
        ),
        1,
        "00000000000000026d00000003000013880000ea600000000000002710020302780002023002000000000001010100000002"
        "0202680050000203696e020000000000010000",
    ),
    (
        heartbeat.StreamsGroupHeartbeatResponse(),
        1,
        "0000000000000001000000000000000000000000ffffffffffffffff0100000000000000000000",
    ),
    (
        describe.StreamsGroupDescribeRequest(group_ids=["g"], include_topology_description=True),
        1,
        "020267000100",
    ),
    (
        describe.StreamsGroupDescribeResponse(
            groups=[
                describe.DescribedGroup(
                    group_id="g",
                    group_state="Stable",
                    group_epoch=3,
                    assignment_epoch=3,
                    topology=describe.Topology(
                        subtopologies=[
                            describe.Subtopology(
                                subtopology_id="0",
                                source_topics=["in"],
                                repartition_sink_topics=["rep"],
                                state_changelog_topics=[
                                    heartbeat.TopicInfo(
                                        name="c",
                                        partitions=4,
                                        replication_factor=3,
                                        topic_configs=[heartbeat.KeyValue(key="a", value="b")],
                                    )
                                ],
                            )
                        ]
                    ),
                    members=[
                        describe.Member(
                            member_id="m",
                            member_epoch=3,
                            instance_id="i",
                            client_id="c",
                            client_host="/h",
                            process_id="p",
                            user_endpoint=heartbeat.Endpoint(host="h", port=80),
                            client_tags=[heartbeat.KeyValue(key="zone", value="a")],
                            task_offsets=[heartbeat.TaskOffset(subtopology_id="0", partition=1, offset=7)],
                            assignment=HELD,
                            target_assignment=HELD,
                        )
                    ],
                    topology_description_status=1,
                    assignor_name="sticky",
                )
            ]
        ),
        1,
        "0000000002000000026707537461626c65000000030000000301000000000202300203696e02047265700202630000000400"
        "030202610262000001000002026d000000030269000263032f6800000000027001026800500002057a6f6e65026100020230"
        "0000000100000000000000070001020230030000000000000001000101000202300300000000000000010001010000008000"
        "0000ff0107737469636b790000",
    ),
    (
        update.StreamsGroupTopologyDescriptionUpdateRequest(
            group_id="g",
            member_id="m",
            topology_epoch=4,
            topology_description=update.TopologyDescription(
                subtopologies=[update.TopologyDescriptionSubtopology(subtopology_id="0", nodes=[NODE])],
                global_stores=[update.TopologyDescriptionGlobalStore(source=NODE, processor=NODE)],
            ),
        ),
        0,
        "0267026d0000000402023002026e010203696e046f757402027302027a000002026e010203696e046f757402027302027a00"
        "026e010203696e046f757402027302027a00000000",
    ),
    (
        update.StreamsGroupTopologyDescriptionUpdateResponse(error_code=35, error_message="no"),
        0,
        "000000000023036e6f00",
    ),
]


@pytest.mark.parametrize(("message", "version", "data"), GOLDEN)
def test_a_message_has_kafkas_bytes(message: Any, version: int, data: str) -> None:
    out = bytearray()
    schema.encode_request(message, version, out)
    assert out.hex() == data
    assert schema.decode(type(message), version, memoryview(bytes(out))) == message
