"""The identity of a node, as one of its directories says: meta.properties.

May touch:  a directory, through the Disk interface.   Must not touch: sockets, clocks, the node's other directories.
Invariants: a directory has one cluster id, one node id and its own directory id, for ever; a file that cannot be read is an
            error that names what mends it, never a new identity.
Read next:  ../node/storage.py, which writes it, and judges all directories of a node together.

Kafka's version 1, a line for each: version=1, cluster.id=<22 chars>, node.id=<int>, directory.id=<22 chars>.
"""

from __future__ import annotations

import os

from barnabas_log.disk import Disk
from barnabas_wire.kafka.errors import ErrorCode, KafkaError
from barnabas_wire.kafka.ids import BrokerId, Uuid
from barnabas_wire.lazy_dataclass import dataclass

META_PROPERTIES = "meta.properties"


class StorageError(KafkaError):
    """The directories do not say who this node is; the message names the command that mends it."""

    code = ErrorCode.INVALID_REQUEST


@dataclass(frozen=True, slots=True, kw_only=True)
class MetaProperties:
    """The identity of one directory."""

    cluster_id: str
    node_id: BrokerId
    directory_id: Uuid

    def encode(self) -> bytes:
        """The file's text."""
        return (
            f"version=1\ncluster.id={self.cluster_id}\nnode.id={self.node_id}\ndirectory.id={self.directory_id}\n"
        ).encode()

    @classmethod
    def decode(cls, data: bytes, path: str) -> MetaProperties:
        """Read the file's text; raises StorageError naming the file."""
        try:
            values = dict(line.split("=", 1) for line in data.decode().splitlines() if "=" in line and line[0] != "#")
            if values["version"] != "1":
                raise StorageError(f"{path} has version {values['version']}; this barnabas reads version 1")
            return cls(
                cluster_id=values["cluster.id"],
                node_id=BrokerId(int(values["node.id"])),
                directory_id=Uuid.parse(values["directory.id"]),
            )
        except (KeyError, ValueError) as error:
            raise StorageError(
                f"{path} is damaged ({error}): restore it from a copy of this node's directory. Without one, move the directory away "
                "and run barnabas storage format --ignore-formatted --cluster-id ID: its replicas are fetched from the others"
            ) from error


def read_meta(disk: Disk, directory: str) -> MetaProperties | None:
    """The meta.properties of one directory, or None where there is none. Raises StorageError for a damaged one, OSError for
    a directory that cannot be read."""
    path = os.path.join(directory, META_PROPERTIES)
    try:
        data = disk.read_file(path)
    except FileNotFoundError:
        return None
    return MetaProperties.decode(data, path)
