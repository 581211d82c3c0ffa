"""The directory of a local cluster, as `barnabas dev`, the pytest fixtures and a broker in a test's process find it: whose it is.

May touch:  the files named below.    Must not touch: processes, what the nodes keep in their own directories.
Invariants: one user at a time (a lock); the identity (cluster id, directory ids) of a directory never changes once written.
Read next:  local_cluster.py; ../barnabas/in_process.py.

Layout: `cluster.json` (identity, a JSON object), `voters` (what the controllers were formatted with, as `storage format` takes it),
`lock` (empty; flock by who uses the directory, and by the nodes it starts), and per node `node-<id>/` with `data/` (its log.dirs). The
first two are written to a name with .tmp, synced and renamed: a crash leaves none or all. `cluster.json` missing: a new cluster;
unreadable or wrong: nothing starts. `voters` missing: nobody has voted yet, or a crash came between; it is written after the format.
"""

from __future__ import annotations

import fcntl
import json
import os
import secrets
from pathlib import Path
from typing import IO, Literal

from barnabas_admin.errors import LocalClusterError
from barnabas_wire.kafka.ids import Uuid
from barnabas_wire.lazy_dataclass import dataclass

Roles = Literal["combined", "separate"]

NODES_MAX = 10
"""A cluster has this many nodes of a kind at most: its ports are blocks of this size."""
NOT_FOREIGN = ("cluster.json.tmp", "lock", "lost+found", "voters")
"""What may stand in a directory whose cluster.json is not there: a first start that crashed, and what a file system makes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterIdentity:
    """Which cluster it is."""

    cluster_id: str
    nodes: int
    """How many nodes of each kind the cluster has."""
    roles: Roles
    directory_ids: tuple[Uuid, ...]
    """The ids of the controllers' metadata directories, in the order of their nodes."""
    is_secured: bool = False


def new_identity(*, nodes: int, roles: Roles = "combined", is_secured: bool = False) -> ClusterIdentity:
    """A cluster that was never there. Raises LocalClusterError for a number of nodes that one host does not hold."""
    if not 1 <= nodes <= NODES_MAX:
        raise LocalClusterError(f"{nodes} nodes cannot be started on one host", f"use 1 to {NODES_MAX}")
    return ClusterIdentity(
        cluster_id=str(random_uuid()),
        nodes=nodes,
        roles=roles,
        directory_ids=tuple(random_uuid() for _ in range(nodes)),
        is_secured=is_secured,
    )


def read_identity(directory: Path) -> ClusterIdentity | None:
    """The cluster that the directory belongs to; None where it belongs to none yet. Raises LocalClusterError, also where the directory
    holds what no cluster left there."""
    file = directory / "cluster.json"
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
        return ClusterIdentity(
            cluster_id=found["cluster_id"],
            nodes=found["nodes"],
            roles=found["roles"],
            directory_ids=tuple(Uuid.parse(text) for text in found["directory_ids"]),
            is_secured=found.get("secured", False),
        )
    except FileNotFoundError:
        _refuse_foreign_files(directory)
        return None
    except (ValueError, KeyError, TypeError) as error:
        raise LocalClusterError(
            f"{file} does not describe a cluster: {error!r}",
            "restore the file, or choose another directory",
        ) from error


def _refuse_foreign_files(directory: Path) -> None:
    if not directory.is_dir():
        return
    names = sorted(entry.name for entry in directory.iterdir())
    foreign = [name for name in names if not name.startswith((".", "node-")) and name not in NOT_FOREIGN]
    if foreign:
        raise LocalClusterError(
            f"{directory} is no directory of a cluster: it holds {foreign[0]}"
            + (f" and {len(foreign) - 1} more" if foreign[1:] else ""),
            "name an empty directory, one that does not exist yet, or one that a cluster has used",
        )


def write_identity(directory: Path, identity: ClusterIdentity) -> None:
    """Write it down, unless it is there."""
    file = directory / "cluster.json"
    if file.exists():
        return
    content = {
        "cluster_id": identity.cluster_id,
        "nodes": identity.nodes,
        "roles": identity.roles,
        "directory_ids": [str(directory_id) for directory_id in identity.directory_ids],
        "secured": identity.is_secured,
    }
    write_durably(file, json.dumps(content, indent=2))


def node_directory(directory: Path, node_id: int) -> Path:
    """The directory of one node within the cluster's."""
    return directory / f"node-{node_id}"


def voters_file(directory: Path) -> Path:
    """The voters that every controller was formatted with."""
    return directory / "voters"


def refuse_wiped_voter(directory: Path, node_id: int, metadata_directory: Path) -> None:
    """A voter that lost its directory must not come back under its old identity: it would have forgotten its vote. Raises
    LocalClusterError."""
    if voters_file(directory).exists() and not (metadata_directory / "meta.properties").exists():
        raise LocalClusterError(
            f"node {node_id} has voted before, but {metadata_directory} is empty now",
            f"restore it; or remove {directory} to start a new cluster",
        )


def lock_directory(directory: Path) -> IO[bytes]:
    """Keep everybody else out until the file that is returned is closed, here and in each process that inherits it. Raises
    LocalClusterError."""
    lock = (directory / "lock").open("ab")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        lock.close()
        raise LocalClusterError(
            f"{directory} is in use by another cluster, or a node of an earlier one still runs",
            f"stop it first (`fuser {directory / 'lock'}` shows its processes), or choose another directory",
        ) from None
    return lock


def random_uuid() -> Uuid:
    """A random id whose text does not start with a dash, so that it can follow an option on a command line."""
    while True:
        found = Uuid(secrets.token_bytes(16))
        if not str(found).startswith("-"):
            return found


def write_durably(path: Path, text: str) -> None:
    """Replace a file; a crash leaves the old or the new one."""
    temporary = path.with_name(path.name + ".tmp")
    with temporary.open("w", encoding="utf-8") as stream:
        stream.write(text)
        stream.flush()
        os.fsync(stream.fileno())
    temporary.rename(path)
