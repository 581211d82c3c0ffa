"""The identity of this node, as its directories say together, and the first voters of the quorum.

May touch:  the node's directories, through the Disk interface.   Must not touch: sockets, clocks.
Invariants: a directory has one cluster id, one node id and its own directory id, for ever; a voter never formats
    itself (a wiped voter that did would forget its vote); every other case is an error that names the command. A broker
    starts while its metadata directory can be read: other directories that cannot, or were never formatted, are offline.
Read next:  node.py, which asks this before it builds anything; ../metadata/meta_properties.py, what one directory says.

Files
-----
meta.properties (each directory): ../metadata/meta_properties.py.
bootstrap.checkpoint is Kafka's `00000000000000000000-0000000000.checkpoint` in `__cluster_metadata-0`: control batches
    SnapshotHeader, KRaftVersion, Voters, SnapshotFooter (KIP-853). Written once by format, read at every start. A
    controller that was formatted without first voters has none, and asks the others who votes until it is added.
Both are written to a temporary name, synced and renamed, meta.properties last: a crash leaves either a formatted
directory or one that format may be run on again.

Differs from Kafka: a directory without meta.properties beside others that have one is not formatted at start. It is offline:
where a disk was not mounted, its mount point looks just so, and what is on the disk would be made again beside it.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Sequence
from typing import TypeVar

from barnabas_broker.metadata.meta_properties import META_PROPERTIES, MetaProperties, StorageError, read_meta
from barnabas_broker.node.properties import ServerConfig
from barnabas_log.disk import Disk
from barnabas_quorum.driver.snapshot_content import (
    DamagedSnapshot,
    bootstrap_records,
    bootstrap_snapshot,
    bootstrap_voters,
)
from barnabas_quorum.raft.voters import ReplicaKey, VoterSet
from barnabas_quorum.records_security import UserScramCredentialRecord
from barnabas_wire.kafka.ids import METADATA_TOPIC, BrokerId, Uuid
from barnabas_wire.lazy_dataclass import dataclass

Content = TypeVar("Content")

BOOTSTRAP_CHECKPOINT = "00000000000000000000-0000000000.checkpoint"


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeStorage:
    """The identity of a whole node: one cluster, one id, one directory id per directory."""

    cluster_id: str
    node_id: BrokerId
    directory_ids: dict[str, Uuid]
    """The ids of the directories that can be read, by path."""
    offline: dict[str, OSError]
    """Why the others cannot be used, by path."""
    metadata_directory: str
    voters: VoterSet | None
    first_records: tuple[UserScramCredentialRecord, ...] = ()
    """What a new cluster begins with."""

    @property
    def replica(self) -> ReplicaKey:
        """This node in the quorum: its id and the directory id of its metadata log."""
        return ReplicaKey(self.node_id, self.directory_ids[self.metadata_directory])

    def check_cluster(self, cluster_id: str) -> None:
        """Raise StorageError when the controllers are of another cluster than the directories."""
        if cluster_id != self.cluster_id:
            raise StorageError(
                f"{self.metadata_directory} belongs to cluster {self.cluster_id}, but the controllers are of {cluster_id}: "
                "correct controller.quorum.bootstrap.servers or log.dirs"
            )


def format_storage(
    disk: Disk,
    server: ServerConfig,
    *,
    cluster_id: str,
    make_voters: Callable[[Uuid], VoterSet | None],
    new_uuid: Callable[[], Uuid],
    is_formatted_ignored: bool = False,
    first_records: Sequence[UserScramCredentialRecord] = (),
) -> NodeStorage:
    """Write meta.properties into every directory of the node and, for a controller, the first voters.

    `make_voters` gets the directory id of the metadata directory and returns the voter set to write, or None for a
    pure broker. Raises StorageError when a directory is formatted already, unless `is_formatted_ignored`:
    then it is kept, and the same voters at new addresses have their addresses written again. `first_records`: of a new
    cluster; whichever of its controllers leads first writes its own.
    """
    formatted: dict[str, MetaProperties] = {}
    for path in server.all_directories:
        try:
            meta = read_meta(disk, path)
        except OSError as error:
            raise StorageError(f"{path} cannot be read ({error}): mend it, or take it out of log.dirs") from error
        if meta is not None:
            formatted[path] = meta
    if formatted and not is_formatted_ignored:
        raise StorageError(
            f"{', '.join(formatted)} is formatted already (cluster {next(iter(formatted.values())).cluster_id}); "
            "use --ignore-formatted to keep it, or remove the directory to start anew"
        )
    for path, meta in formatted.items():
        _must_match(path, meta, cluster_id=cluster_id, node_id=server.id)
    kept = formatted.get(server.metadata_directory)
    metadata_id = kept.directory_id if kept else new_uuid()
    voters = make_voters(metadata_id)
    if voters is not None:
        own = [key.directory_id for key in voters.keys if key.id == server.id]
        if kept is None and own:
            metadata_id = own[0]
        _write_voters(disk, server, voters, first_records, is_new=kept is None)
    for path in server.all_directories:
        if path in formatted:
            continue
        directory_id = metadata_id if path == server.metadata_directory else new_uuid()
        meta = MetaProperties(cluster_id=cluster_id, node_id=server.id, directory_id=directory_id)
        try:
            disk.make_directory(path)
            disk.write_file_atomically(os.path.join(path, META_PROPERTIES), meta.encode())
        except OSError as error:
            raise StorageError(f"{path} cannot be written ({error}): mend it, or correct log.dirs") from error
    return load_storage(disk, server)


def is_formatted(disk: Disk, server: ServerConfig) -> bool:
    """Whether any directory of the node has a meta.properties, or may have one that cannot be read."""
    for path in server.all_directories:
        try:
            disk.read_file(os.path.join(path, META_PROPERTIES))
        except FileNotFoundError:
            continue
        except OSError:
            return True
        return True
    return False


def load_storage(disk: Disk, server: ServerConfig) -> NodeStorage:
    """Read and check the identity of a formatted node; raises StorageError that names the file and the fix. Directories that
    cannot be read are reported as offline, unless it is that of the metadata log."""
    found: dict[str, MetaProperties] = {}
    offline: dict[str, OSError] = {}
    for path in server.all_directories:
        try:
            meta = read_meta(disk, path)
        except OSError as error:
            if path == server.metadata_directory:
                raise StorageError(
                    f"{path} cannot be read ({error}), and the metadata log is in it: mend it, or restore it from a copy"
                ) from error
            offline[path] = error
            continue
        if meta is not None:
            found[path] = meta
    if server.metadata_directory not in found:
        raise StorageError(_unformatted(server, found))
    first = found[server.metadata_directory]
    for path in server.all_directories:
        if path not in found and path not in offline:
            offline[path] = FileNotFoundError(
                errno.ENOENT,
                "it has no meta.properties: mount the disk; or, if it is a new one, run barnabas storage format "
                f"--ignore-formatted --cluster-id {first.cluster_id}",
                path,
            )
    for path, meta in found.items():
        _must_match(path, meta, cluster_id=first.cluster_id, node_id=server.id)
    return NodeStorage(
        cluster_id=first.cluster_id,
        node_id=server.id,
        directory_ids={path: meta.directory_id for path, meta in found.items()},
        offline=offline,
        metadata_directory=server.metadata_directory,
        voters=_read_voters(disk, server),
        first_records=_read_first_records(disk, server),
    )


def _unformatted(server: ServerConfig, found: dict[str, MetaProperties]) -> str:
    where = f"{server.metadata_directory} has no {META_PROPERTIES}"
    if found:
        return (
            f"{where}, while {', '.join(sorted(found))} belongs to node {server.node_id} of this cluster: the disk of the metadata log is "
            "not mounted, or it was emptied. Mount it or restore it. If it is lost for good and this is a controller, take its vote "
            "away first (barnabas quorum remove-voter), then barnabas storage format --ignore-formatted --no-initial-controllers"
        )
    return f"{where}: it is not formatted; or it was, and its disk is not mounted: look at that first. {format_command(server)}"


def format_command(server: ServerConfig) -> str:
    """The command that formats this node, for error messages."""
    kind = (
        "--standalone"
        if len(server.quorum_bootstrap_servers) == 1
        else "--initial-controllers ID@HOST:PORT:DIRECTORY_ID,… (or, to join a quorum that runs, --no-initial-controllers)"
    )
    return f"Run once: barnabas storage format -c FILE --cluster-id ID {kind}"


def initial_controllers(text: str) -> VoterSet:
    """Parse `--initial-controllers 1@host:port:DIRECTORY_ID,…` (KIP-853); raises StorageError on a bad entry."""
    try:
        return VoterSet.parse(text)
    except ValueError as error:
        raise StorageError(
            f"--initial-controllers {text}: {error}; write ID@HOST:PORT:DIRECTORY_ID, comma-separated"
        ) from error


def _write_voters(
    disk: Disk,
    server: ServerConfig,
    voters: VoterSet,
    first_records: Sequence[UserScramCredentialRecord],
    *,
    is_new: bool,
) -> None:
    """The first voters are written once; afterwards only their addresses may be written again."""
    directory = os.path.join(server.metadata_directory, f"{METADATA_TOPIC}-0")
    path = os.path.join(directory, BOOTSTRAP_CHECKPOINT)
    if not is_new and disk.exists(path) and bootstrap_voters(disk.read_file(path), name=path).keys != voters.keys:
        raise StorageError(
            f"{path} holds other voters than --initial-controllers: only their addresses may change on a formatted directory"
        )
    records = []
    if first_records:
        from barnabas_quorum.record_codec import encode  # loads protobuf, which a format without users does not need

        records = [encode(record) for record in first_records]
    if not is_new:
        if records:
            raise StorageError(
                f"{path} is written already: --add-scram is for a new cluster; give users a password with `barnabas user create`"
            )
        records = bootstrap_records(disk.read_file(path), name=path) if disk.exists(path) else []
    disk.make_directory(directory)
    disk.write_file_atomically(path, bootstrap_snapshot(voters, records))


def _read_voters(disk: Disk, server: ServerConfig) -> VoterSet | None:
    return _read_bootstrap(disk, server, bootstrap_voters)


def _read_bootstrap(disk: Disk, server: ServerConfig, read: Callable[[bytes], Content]) -> Content | None:
    """What the bootstrap checkpoint says; None where there is none. Raises StorageError naming the file."""
    path = os.path.join(server.metadata_directory, f"{METADATA_TOPIC}-0", BOOTSTRAP_CHECKPOINT)
    if not disk.exists(path):
        return None
    try:
        return read(disk.read_file(path))
    except DamagedSnapshot as error:
        raise StorageError(
            f"{path} is damaged ({error}); restore it from a copy, or copy the file of that name from the directory of another "
            "controller that was formatted with the same voters"
        ) from error


def _read_first_records(disk: Disk, server: ServerConfig) -> tuple[UserScramCredentialRecord, ...]:
    data = _read_bootstrap(disk, server, bootstrap_records)
    if not data:
        return ()
    from barnabas_quorum.record_codec import decode

    records = [decode(each) for each in data]
    for record in records:
        if not isinstance(record, UserScramCredentialRecord):
            raise StorageError(
                f"the bootstrap checkpoint in {server.metadata_directory} begins a cluster with a {type(record).__name__}, which "
                "this barnabas does not do"
            )
    return tuple(record for record in records if isinstance(record, UserScramCredentialRecord))


def _must_match(path: str, meta: MetaProperties, *, cluster_id: str, node_id: BrokerId) -> None:
    if meta.node_id != node_id:
        raise StorageError(f"{path} belongs to node {meta.node_id}, but node.id={node_id}: correct node.id or log.dirs")
    if meta.cluster_id != cluster_id:
        raise StorageError(
            f"{path} belongs to cluster {meta.cluster_id}, not {cluster_id}: correct log.dirs or --cluster-id"
        )
