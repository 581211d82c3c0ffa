"""A broker of a few lines for the client's tests: answers from a script, on a loop of its own thread."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Any

from barnabas_wire.kafka.errors import ErrorCode
from barnabas_wire.kafka.frame import FrameDecoder
from barnabas_wire.kafka.messages import ApiKey
from barnabas_wire.kafka.messages.api_versions import ApiVersion, ApiVersionsResponse
from barnabas_wire.kafka.messages.fetch_request import parse_fetch_request
from barnabas_wire.kafka.messages.fetch_response import FetchResponsePartition, encode_fetch_response
from barnabas_wire.kafka.messages.find_coordinator import Coordinator, FindCoordinatorResponse
from barnabas_wire.kafka.messages.heartbeat import HeartbeatResponse
from barnabas_wire.kafka.messages.init_producer_id import InitProducerIdResponse
from barnabas_wire.kafka.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from barnabas_wire.kafka.messages.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from barnabas_wire.kafka.messages.produce import (
    ProducedPartition,
    encode_produce_response_frame,
    parse_produce_request,
)
from barnabas_wire.kafka.schema import decode_request, message_classes
from barnabas_wire.records.batch import HEADER_BYTES, read_header
from tests.support.frames import decode_request_header, encode_response_frame

SERVED = (
    ApiKey.PRODUCE,
    ApiKey.FETCH,
    ApiKey.LIST_OFFSETS,
    ApiKey.METADATA,
    ApiKey.API_VERSIONS,
    ApiKey.FIND_COORDINATOR,
    ApiKey.HEARTBEAT,
    ApiKey.INIT_PRODUCER_ID,
)


class FakeCluster:
    """State that all its brokers share: who leads what, and the records of every partition."""

    def __init__(self) -> None:
        self.leaders: dict[tuple[str, int], int] = {}
        self.records: dict[tuple[str, int], bytes] = {}
        self.brokers: dict[int, FakeBroker] = {}
        self.seen: list[tuple[int, int, int]] = []
        """(broker id, api key, version) of every request."""
        self.errors: list[tuple[int, int]] = []
        """(api key, error code) to give once, in order, instead of success."""
        self.ranges: dict[int, tuple[int, int]] = {}
        self.sequences: dict[tuple[str, int, int], int] = {}
        """The sequence that is due, by topic, partition and producer id; judged as a broker judges it."""
        self.batch_bytes_max = 1 << 30
        self.is_old = False
        """Refuses ApiVersions above version 0, as brokers before 2.4 do."""
        self.before_answer: Callable[[int, bytes], bytes | None] = lambda api_key, frame: frame

    def error_for(self, api_key: int) -> int:
        if self.errors and self.errors[0][0] == api_key:
            return self.errors.pop(0)[1]
        return 0


class FakeBroker:
    """One listener on loopback; as a context manager it runs on a thread of its own."""

    def __init__(self, cluster: FakeCluster, broker_id: int) -> None:
        self.cluster = cluster
        self.id = broker_id
        self.port = 0
        self.produced: list[tuple[str, int, bytes, int]] = []
        self._loop = asyncio.new_event_loop()
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._writers: set[asyncio.StreamWriter] = set()
        cluster.brokers[broker_id] = self

    def __enter__(self) -> FakeBroker:
        self._thread.start()
        assert self._ready.wait(10)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def stop(self) -> None:
        """Close the listener and every connection; harmless the second time."""
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._stopped.set)
            self._thread.join(10)

    def drop_connections(self) -> None:
        """Close every connection and go on listening."""
        done = threading.Event()

        def drop() -> None:
            for writer in self._writers:
                writer.transport.abort()
            done.set()

        self._loop.call_soon_threadsafe(drop)
        assert done.wait(10)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_until_complete(self._serve())
        self._loop.close()

    async def _serve(self) -> None:
        self._stopped = asyncio.Event()
        server = await asyncio.start_server(self._connection, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        self._ready.set()
        await self._stopped.wait()
        server.close()
        for writer in self._writers:
            writer.transport.abort()
        await asyncio.sleep(0.01)

    async def _connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        decoder = FrameDecoder(frame_bytes_max=1 << 24)
        try:
            while data := await reader.read(65536):
                for frame in decoder.feed(data):
                    answer = self._answer(frame)
                    if answer is not None:
                        writer.write(answer)
                        await writer.drain()
        except OSError:
            pass
        finally:
            self._writers.discard(writer)
            writer.close()

    def _answer(self, frame: memoryview) -> bytes | None:
        header, position = decode_request_header(frame)
        key, version = header.api_key, header.api_version
        self.cluster.seen.append((self.id, key, version))
        if key == ApiKey.PRODUCE:
            answer = self._produce(header.correlation_id, version, frame, position)
        elif key == ApiKey.FETCH:
            answer = self._fetch(header.correlation_id, version, frame, position)
        elif key == ApiKey.API_VERSIONS and self.cluster.is_old and version > 0:
            answer = bytes(encode_response_frame(ApiVersionsResponse(error_code=35), 0, header.correlation_id))
        else:
            request = decode_request(key, version, frame, position)
            response = getattr(self, f"_{ApiKey(key).name.lower()}")(request)
            answer = bytes(encode_response_frame(response, version, header.correlation_id))
        return None if answer is None else self.cluster.before_answer(key, answer)

    def _leads(self, topic: Any, partition: int, key: int) -> int:
        error = self.cluster.error_for(key)
        if error:
            return error
        leader = self.cluster.leaders.get((topic, partition))
        if leader is None:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return 0 if leader == self.id else ErrorCode.NOT_LEADER_OR_FOLLOWER

    def _api_versions(self, _: Any) -> ApiVersionsResponse:
        ranges: dict[int, tuple[int, int]] = {
            key: (message_classes(key)[0].MIN_VERSION, message_classes(key)[0].MAX_VERSION) for key in SERVED
        }
        ranges |= self.cluster.ranges
        return ApiVersionsResponse(api_keys=[ApiVersion(key, *span) for key, span in ranges.items()])

    def _metadata(self, request: Any) -> MetadataResponse:
        names = {topic for topic, _ in self.cluster.leaders}
        wanted = names if request.topics is None else {topic.name for topic in request.topics}
        topics = []
        for name in sorted(wanted):
            partitions = [
                MetadataResponsePartition(0, index, leader, 3, [leader], [leader])
                for (topic, index), leader in self.cluster.leaders.items()
                if topic == name
            ]
            code = 0 if partitions else int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            topics.append(MetadataResponseTopic(error_code=code, name=name, partitions=partitions))
        brokers = [
            MetadataResponseBroker(broker.id, "127.0.0.1", broker.port) for broker in self.cluster.brokers.values()
        ]
        return MetadataResponse(brokers=brokers, cluster_id="fake", controller_id=self.id, topics=topics)

    def _list_offsets(self, request: Any) -> ListOffsetsResponse:
        topics = []
        for topic in request.topics:
            entries = []
            for entry in topic.partitions:
                code = self._leads(topic.name, entry.partition_index, ApiKey.LIST_OFFSETS)
                offset = -1 if code else {-1: 100, -2: 5}.get(entry.timestamp, 42)
                entries.append(
                    ListOffsetsPartitionResponse(entry.partition_index, code, timestamp=entry.timestamp, offset=offset)
                )
            topics.append(ListOffsetsTopicResponse(topic.name, entries))
        return ListOffsetsResponse(topics=topics)

    def _find_coordinator(self, request: Any) -> FindCoordinatorResponse:
        port = self.cluster.brokers[2].port if 2 in self.cluster.brokers else self.port
        found = [Coordinator(key=key, node_id=2, host="127.0.0.1", port=port) for key in request.coordinator_keys]
        return FindCoordinatorResponse(node_id=2, host="127.0.0.1", port=port, coordinators=found)

    def _heartbeat(self, request: Any) -> HeartbeatResponse:
        return HeartbeatResponse(error_code=self.id)

    def _produce(self, correlation_id: int, version: int, frame: memoryview, position: int) -> bytes | None:
        _, acks, _, entries = parse_produce_request(frame, position, version)
        done = []
        for topic, partition, records in entries:
            code = self._leads(topic, partition, ApiKey.PRODUCE) or self._judge(str(topic), partition, records)
            if not code:
                self.produced.append((str(topic), partition, bytes(records), acks))
            done.append(ProducedPartition(topic, partition, code, -1 if code else 1000))
        return None if acks == 0 else encode_produce_response_frame(correlation_id, version, done)

    def _judge(self, topic: str, partition: int, records: memoryview) -> int:
        if len(records) > self.cluster.batch_bytes_max:
            return ErrorCode.MESSAGE_TOO_LARGE
        if len(records) < HEADER_BYTES:  # bytes that a test sends for a batch
            return 0
        header = read_header(records)
        if header.producer_id < 0:
            return 0
        place = (topic, partition, header.producer_id)
        due = self.cluster.sequences.get(place, 0)
        if header.base_sequence != due:
            is_known = header.base_sequence < due
            return ErrorCode.DUPLICATE_SEQUENCE_NUMBER if is_known else ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        self.cluster.sequences[place] = due + header.record_count
        return 0

    def _init_producer_id(self, request: Any) -> InitProducerIdResponse:
        return InitProducerIdResponse(
            error_code=self.cluster.error_for(ApiKey.INIT_PRODUCER_ID), producer_id=7, producer_epoch=0
        )

    def _fetch(self, correlation_id: int, version: int, frame: memoryview, position: int) -> bytes:
        answers = []
        for topic, partition, *_ in parse_fetch_request(frame, position, version).partitions:
            code = self._leads(topic, partition, ApiKey.FETCH)
            records = b"" if code else self.cluster.records.get((str(topic), partition), b"")
            answers.append(
                FetchResponsePartition(topic, partition, code, 100, 100, 5, parts=[records], size_bytes=len(records))
            )
        return b"".join(encode_fetch_response(correlation_id, version, answers)[0])
