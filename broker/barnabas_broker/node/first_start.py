"""A controller that is not formatted, and is told at its start how it may be: as one of a new quorum's first voters, or as an observer.

May touch:  the node's directories through storage.py, the other controllers over gRPC.   Must not touch: the quorum, a voter set.
Invariants: nothing is formatted but a node that has nothing formatted; an id is a first voter's only while no other first voter that
            answers has ever had a log: afterwards it has voted, and an empty directory of it has forgotten that; an observer has a
            directory id too, and no vote.
Read next:  storage.py; bootstrap.py, which finds the quorum.

Not obvious: the words that format the first voters may come again at any start (a file that is applied once more, a variable that was
forgotten). A quorum forms when every first voter has shown that it is blank, so one log is proof that this id has
voted. Where none answers nothing is proved: the node is formatted as it was told, and is then a blank voter, which
votes for no candidate before all the others have shown to be blank, too (raft/inquiry.py).
"""

from __future__ import annotations

import asyncio
import logging
import os

import grpc.aio

from barnabas_broker.controller_client.facts import ask_replica
from barnabas_broker.metadata.meta_properties import StorageError, read_meta
from barnabas_broker.node.bootstrap import QuorumIdentity, discover_quorum
from barnabas_broker.node.properties import NodeConfig, split_address
from barnabas_broker.node.storage import BOOTSTRAP_CHECKPOINT, format_storage, initial_controllers, is_formatted
from barnabas_log.disk import Disk
from barnabas_quorum.driver.incarnation import FIRST
from barnabas_quorum.explain.leaders import ControllerReport
from barnabas_quorum.raft.voters import VoterSet
from barnabas_wire.kafka.ids import METADATA_TOPIC, Uuid
from barnabas_wire.rpc.dialing import Dialer, UnknownPeer

logger = logging.getLogger(__name__)


def format_first(disk: Disk, config: NodeConfig, identity: str) -> None:
    """Format a node as a first voter, by CLUSTER_ID/ID@HOST:PORT:DIRECTORY_ID,…; as an observer where that quorum has lived already.

    What is formatted is kept, so that whoever starts nodes may say it at every start. Raises StorageError.
    """
    server = config.server
    cluster_id, separator, words = identity.partition("/")
    if not separator or not server.is_controller:
        raise StorageError(
            "--format-for: write CLUSTER_ID/ID@HOST:PORT:DIRECTORY_ID,… for a controller; a broker formats itself"
        )
    try:
        cluster = str(Uuid.parse(cluster_id))
    except ValueError as error:
        raise StorageError(
            f"--format-for: {cluster_id}: {error}; make an id with `barnabas storage random-uuid`"
        ) from error
    voters = initial_controllers(words)
    if server.id not in {key.id for key in voters.keys}:
        raise StorageError(f"--format-for does not name node {server.node_id}: add it")
    if is_formatted(disk, server) and not _was_broken_off(disk, config):
        if read_meta(disk, server.metadata_directory) is not None:
            _format(disk, config, cluster, voters)  # its voters may have other addresses now
        return
    if not asyncio.run(_has_lived(config, voters)):
        _format(disk, config, cluster, voters)
        return
    logger.warning(
        "node %d was one of the first voters of cluster %s, which has a log: this empty directory is formatted for an observer. "
        "`barnabas quorum replace-voter %d` gives it the vote of the one that is lost",
        server.node_id,
        cluster,
        server.node_id,
    )
    _join(disk, config, cluster_id=cluster)


def format_to_join(disk: Disk, config: NodeConfig) -> None:
    """Format a controller as an observer of the quorum that answers, for which it waits. What is formatted is kept."""
    if config.server.is_controller and not is_formatted(disk, config.server):
        logger.info(
            "node %d is not formatted: it waits for its quorum, and joins it without a vote. Is this the first start of a new "
            "cluster, begin it with --format-for (BARNABAS_FORMAT_FOR)",
            config.server.node_id,
        )
        _join(disk, config, cluster_id="")


def _join(disk: Disk, config: NodeConfig, *, cluster_id: str) -> None:
    """As an observer. `cluster_id`: which cluster it must be; empty: whichever answers."""
    found = asyncio.run(_discover(config))
    if cluster_id not in ("", found.cluster_id):
        raise StorageError(
            f"--format-for names cluster {cluster_id}, and the controllers that answer are of {found.cluster_id}: correct "
            "controller.quorum.bootstrap.servers, or leave it out"
        )
    _format(disk, config, found.cluster_id, None)


def _format(disk: Disk, config: NodeConfig, cluster_id: str, voters: VoterSet | None) -> None:
    format_storage(
        disk,
        config.server,
        cluster_id=cluster_id,
        make_voters=lambda directory_id: voters,
        new_uuid=lambda: Uuid(os.urandom(16)),
        is_formatted_ignored=True,
    )


def _was_broken_off(disk: Disk, config: NodeConfig) -> bool:
    """Whether a crash ended the formatting of first voters: they are written before the metadata directory's meta.properties."""
    directory = config.server.metadata_directory
    return read_meta(disk, directory) is None and disk.exists(
        os.path.join(directory, f"{METADATA_TOPIC}-0", BOOTSTRAP_CHECKPOINT)
    )


async def _has_lived(config: NodeConfig, voters: VoterSet) -> bool:
    """Whether another first voter that answers has a log."""
    dialer = _dialer(config)
    others = [voter for voter in voters if voter.key.id != config.server.id]
    answers = await asyncio.gather(
        *(ask_replica((voter.host, voter.port), dialer=dialer) for voter in others), return_exceptions=True
    )
    for answer in answers:
        if isinstance(answer, BaseException) and not isinstance(
            answer, grpc.aio.AioRpcError | ValueError | UnknownPeer
        ):
            raise answer
    return any(isinstance(answer, ControllerReport) and answer.log_end_offset > 0 for answer in answers)


async def _discover(config: NodeConfig) -> QuorumIdentity:
    key = "controller.quorum.bootstrap.servers"
    addresses = [split_address(address, key) for address in config.server.quorum_bootstrap_servers]
    return await discover_quorum(addresses, known=FIRST, dialer=_dialer(config))


def _dialer(config: NodeConfig) -> Dialer:
    security = config.grpc_security.controller
    return security.dialer("" if security.own is None else security.own.cluster_of(config.server.node_id))
