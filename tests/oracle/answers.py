"""One request, two brokers: what each answers, as trees that can be compared.

May touch:  sockets to the two brokers.       Must not touch: their files, Java.
Invariants: both sides get the same bytes, save for what only the side knows (topic, member and producer ids); every answer
            is encoded again by our codec and must come out byte for byte as it came in.
Read next:  cases/ (what is asked), test_answers.py (what may differ).
"""

from __future__ import annotations

import dataclasses
import re
import socket
import struct
import time
from collections.abc import Iterator
from typing import Any

from barnabas_wire.client.blocking import BlockingConnection
from barnabas_wire.kafka.frame import close_frame, decode_response_header, request_head
from barnabas_wire.kafka.ids import ZERO_UUID, Uuid
from barnabas_wire.kafka.messages import ApiKey
from barnabas_wire.kafka.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from barnabas_wire.kafka.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from barnabas_wire.kafka.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from barnabas_wire.kafka.schema import decode_response, encode_request, message_classes
from tests.compat.samples import DEADLINE_S

CLIENT_ID = "oracle"
SILENCE_S = 2.0
"""So long may a broker that should say nothing be listened to."""
CLOSED = "connection closed"
SILENT = "no answer"
MASKS = frozenset(
    ("error_message", "batch_index_error_message", "cluster_id", "port", "documentation", "throttle_time_ms", "log_dir")
)
"""Fields whose content is each broker's own: wording, place, pace."""
KEY_FIELDS = (
    *("api_key", "name", "topic", "topic_id", "partition_index", "index", "partition"),
    *("group_id", "member_id", "key", "resource_name", "topic_name", "log_dir"),
)
"""A list whose elements have one of these is compared by it and not by order."""
_MEMBER = re.compile(r"-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


UNKNOWN_ID = Uuid(b"unknown topic id")


class Side:
    """One of the two brokers, and what this test run knows of it."""

    def __init__(self, name: str, host: str, port: int) -> None:
        self.name = name
        self.host = host
        self.port = port
        self.topic_ids: dict[str, Uuid] = {}
        """Of the topics made by `topic`."""
        self._connections: dict[str, BlockingConnection] = {}

    def close(self) -> None:
        """Drop every connection; the next call makes a new one."""
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()

    def call(self, request: Any, *, version: int | None = None, on: str = "", timeout_s: float = DEADLINE_S) -> Any:
        """The decoded answer to `request`; connections are kept by their name `on`, as one holds one request at a time."""
        api_key = request.API_KEY
        connection = self._connection(on)
        version = connection.version_for(api_key) if version is None else version
        out = bytearray()
        encode_request(request, version, out)
        try:
            body = connection.call_raw(api_key, version, out, timeout_s=timeout_s)
        except OSError as error:
            self._connections.pop(on).close()
            if isinstance(error, TimeoutError):
                return SILENT
            if isinstance(error, ConnectionError):
                return CLOSED
            raise
        response = decode_response(message_classes(api_key)[1], version, body)
        again = bytearray()
        encode_request(response, version, again)
        assert again == body, f"{self.name}: our codec does not give back {ApiKey(api_key).name} v{version}"
        return response

    def raw(self, frame: bytes, *, silence_s: float = SILENCE_S) -> bytes | str:
        """What comes back for these bytes on a fresh connection: a frame, CLOSED, or SILENT."""
        with socket.create_connection((self.host, self.port), timeout=silence_s) as connection:
            try:
                connection.sendall(frame)
                head = _read(connection, 4)
                return CLOSED if head is None else _read(connection, struct.unpack(">i", head)[0]) or CLOSED
            except TimeoutError:
                return SILENT
            except ConnectionError:
                return CLOSED

    def body(self, api_key: int, version: int, body: bytes) -> bytes | str:
        """What comes back for this request body, without the response header."""
        answer = self.raw(frame(api_key, version, body))
        if isinstance(answer, str):
            return answer
        return answer[decode_response_header(answer, api_key, version)[1] :]

    def hang_up(self, on: str) -> None:
        """Close one connection; the next call on it makes a new one."""
        self._connections.pop(on).close()

    def topic(self, name: str, partitions: int = 1, /, **configs: str) -> str:
        """Make a topic; keyword `max_message_bytes` means the config max.message.bytes. Returns once it has leaders."""
        topic = CreatableTopic(
            name=name,
            num_partitions=partitions,
            replication_factor=1,
            configs=[CreatableTopicConfig(key.replace("_", "."), value) for key, value in configs.items()],
        )
        created: CreateTopicsResponse = self.call(CreateTopicsRequest(topics=[topic]))
        assert created.topics[0].error_code == 0, (self.name, created)
        self.topic_ids[name] = created.topics[0].topic_id
        self.wait_for_topic(name, partitions)
        return name

    def find_topic(self, name: str, partitions: int = 1) -> None:
        """Learn the id of a topic from before a restart, and wait until it is served."""
        self.wait_for_topic(name, partitions)
        answer: MetadataResponse = self.call(MetadataRequest(topics=[MetadataRequestTopic(name=name)]))
        self.topic_ids[name] = answer.topics[0].topic_id

    def wait_for_topic(self, name: str, partitions: int = 1) -> None:
        """Until every partition is served: Kafka tells of a leader in Metadata before its replica manager has heard of it."""
        latest = [ListOffsetsPartition(partition_index=index, timestamp=-1) for index in range(partitions)]
        asked = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name, latest)])
        deadline = time.monotonic() + DEADLINE_S
        while True:
            answer: ListOffsetsResponse = self.call(asked)
            if all(found.error_code == 0 for found in answer.topics[0].partitions):
                return
            assert time.monotonic() < deadline, (self.name, answer)
            time.sleep(0.01)

    def wait_for_deletion(self, name: str) -> None:
        """Until Metadata tells of the topic no more: Kafka answers a deletion before its broker has heard of it."""
        deadline = time.monotonic() + DEADLINE_S
        while True:
            asked = MetadataRequest(topics=[MetadataRequestTopic(name=name)], allow_auto_topic_creation=False)
            answer: MetadataResponse = self.call(asked)
            if answer.topics[0].error_code != 0:
                return
            assert time.monotonic() < deadline, (self.name, answer)
            time.sleep(0.01)

    def show(self, value: Any) -> Any:
        """A response as a tree of dicts, lists and plain values, in which equal answers are equal."""
        if dataclasses.is_dataclass(value):
            return {
                field.name: ("…" if field.name in MASKS else self.show(getattr(value, field.name)))
                for field in dataclasses.fields(value)
            }
        if isinstance(value, list | tuple):
            return [self.show(element) for element in value]
        if isinstance(value, Uuid):
            names = {topic_id: name for name, topic_id in self.topic_ids.items()}
            return "zero" if value == ZERO_UUID else names.get(value, "some id")
        if isinstance(value, str):
            return _MEMBER.sub("-<uuid>", value)
        return bytes(value) if isinstance(value, memoryview | bytearray) else value

    def _connection(self, name: str) -> BlockingConnection:
        if name not in self._connections:
            self._connections[name] = BlockingConnection(self.host, self.port, client_id=CLIENT_ID)
        return self._connections[name]


def frame(api_key: int, version: int, body: bytes) -> bytes:
    """A whole request frame, for versions that nobody offers too."""
    try:
        return bytes(close_frame(request_head(api_key, version, 1, CLIENT_ID) + body))
    except Exception:  # no such API here: header v1 will do
        client = CLIENT_ID.encode()
        head = struct.pack(">hhih", api_key, version, 1, len(client)) + client
        return struct.pack(">i", len(head) + len(body)) + head + body


def differences(theirs: Any, ours: Any, path: str = "") -> Iterator[tuple[str, Any, Any]]:
    """(path, Kafka's value, our value) wherever two trees differ."""
    if isinstance(theirs, dict) and isinstance(ours, dict):
        for key in [*theirs, *(key for key in ours if key not in theirs)]:
            place = f"{path}.{key}" if path else str(key)
            if key in theirs and key in ours:
                yield from differences(theirs[key], ours[key], place)
            else:
                yield place, theirs.get(key, "nothing"), ours.get(key, "nothing")
    elif isinstance(theirs, list) and isinstance(ours, list):
        key_field = _key_field(theirs + ours)
        if key_field is not None:
            yield from differences(_by_key(theirs, key_field), _by_key(ours, key_field), path)
        elif len(theirs) != len(ours):
            yield path, theirs, ours
        else:
            for index, pair in enumerate(zip(theirs, ours, strict=True)):
                yield from differences(*pair, f"{path}[{index}]")
    elif theirs != ours:
        yield path, theirs, ours


def _key_field(elements: list[Any]) -> str | None:
    if not elements or not all(isinstance(element, dict) for element in elements):
        return None
    for field in KEY_FIELDS:
        values = [element.get(field) for element in elements]
        if None not in values and not set(values) <= {"", "zero", "…"}:
            return field
    return None


def _by_key(elements: list[Any], field: str) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for element in elements:
        key = f"<{element[field]}>"
        while key in found:
            key += "'"
        found[key] = element
    return found


def _read(connection: socket.socket, size: int) -> bytes | None:
    received = b""
    while len(received) < size:
        chunk = connection.recv(size - len(received))
        if not chunk:
            return None
        received += chunk
    return received
