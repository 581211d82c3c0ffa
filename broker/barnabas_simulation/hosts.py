"""Hosts of several nodes: what befalls all the nodes of one at once, and the laws of it.

May touch:  the nodes' power and the network, by way of faults.py.   Must not touch: the state of a node in any other way.
Invariants: one host is hit at a time, while every other node is up and known; the nodes that were put out come back whatever ends
            the trouble.
Read next:  faults.py; invariants.py, which asks `unspread` about every new partition.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from enum import Enum
from typing import Protocol

from barnabas_quorum.image.cluster import ClusterImage
from barnabas_quorum.image.partition import PartitionRegistration
from barnabas_simulation.node_parts import NodeParts
from barnabas_simulation.partition_model import LawBroken
from barnabas_simulation.run import Run
from barnabas_wire.kafka.ids import BrokerId

LED_S = 12.0
"""Virtual seconds within which everything is led without a lost host: another controller may have to be elected first, which gives
every broker a new session (3 s)."""
LOOK_S = 0.1


class HostLoss(Enum):
    """What befalls a host."""

    POWER = "power"
    CUT = "cut"
    """Nothing goes from it to the others, nor back."""
    RESTART = "restart"
    """All its nodes are asked to stop at once."""


class Power(Protocol):
    """What this needs of the faults."""

    def put_out(self, node: NodeParts) -> int:
        """Power off, and leave it so; the life after."""

    def bring_back(self, node: NodeParts, life: int) -> None:
        """Start it, if that is still its life."""

    def stop(self, node: NodeParts) -> None:
        """Ask for a clean stop."""

    def is_back(self, node: NodeParts) -> bool:
        """Whether it is in service, as everybody knows."""


def host_of(node_id: BrokerId, hosts: int) -> str:
    """The host of a node: voters, which have the first ids, are spread over the hosts."""
    return f"host-{(node_id - 1) % hosts + 1}"


def unspread(cluster: ClusterImage, partition: PartitionRegistration) -> str | None:
    """Why the replicas of a partition that was just made should not be where they are; None where they are well."""

    def host(broker_id: BrokerId) -> str | BrokerId:
        return cluster.domains_of(broker_id).host or broker_id

    there = len({host(broker_id) for broker_id in cluster.brokers})
    used = len({host(broker_id) for broker_id in partition.replicas})
    if used >= min(there, len(partition.replicas)):
        return None
    return f"its replicas {list(partition.replicas)} are on {used} of {there} hosts"


class HostLosses:
    """Hosts are hit, one after the other."""

    def __init__(self, cluster: Run, power: Power) -> None:
        self._cluster = cluster
        self._power = power
        self._out: list[tuple[NodeParts, int]] = []
        self.is_judging = False
        """A host is lost, and what could be led is not yet: the run continues until it is, or the law is broken."""

    async def strike_now_and_then(self) -> None:
        """Until it is cancelled; then what was put out is started."""
        cluster, swarm = self._cluster, self._cluster.swarm
        while True:
            await asyncio.sleep(cluster.random.expovariate(1 / swarm.lose_host_every_s))
            while not all(self._power.is_back(node) for node in cluster.nodes):
                await asyncio.sleep(LOOK_S)
            number = cluster.random.randrange(swarm.hosts)
            loss = cluster.random.choice(list(HostLoss))
            if cluster.strikes(f"host {loss.value}", number):
                await self._lose(host_of(BrokerId(number + 1), swarm.hosts), loss)

    async def _lose(self, host: str, loss: HostLoss) -> None:
        cluster = self._cluster
        cluster.figures.hosts_lost += 1
        cluster.note(f"{host}: {loss.value}", 0, 0)
        lost = [node for node in cluster.nodes if host_of(node.id, cluster.swarm.hosts) == host]
        others = [node for node in cluster.nodes if node not in lost]
        links = [link for one in lost for other in others for link in ((one.id, other.id), (other.id, one.id))]
        try:
            match loss:
                case HostLoss.POWER:
                    self._out = [(node, self._power.put_out(node)) for node in lost]
                case HostLoss.CUT:
                    cluster.network.cut(links)
                case HostLoss.RESTART:
                    for node in lost:
                        self._power.stop(node)
            self.is_judging = True
            await self._until_led_without({node.id for node in lost}, host, loss)
            self.is_judging = False
            await asyncio.sleep(cluster.swarm.restart_s)
        finally:
            cluster.network.mend(links)
            out, self._out = self._out, []
            for node, life in out:
                self._power.bring_back(node, life)

    async def _until_led_without(self, lost: set[BrokerId], host: str, loss: HostLoss) -> None:
        loop = self._cluster.loop
        deadline_s = loop.time() + LED_S
        while (found := next(self._not_led_without(lost, loss), None)) is not None:
            if loop.time() > deadline_s:
                broken = LawBroken(
                    "what is in sync on two hosts is led without one of them",
                    f"{LED_S:.0f} s after the loss of {host} ({loss.value}): leader {found.leader}, ISR {list(found.isr)}",
                )
                self._cluster.network.failures.append(broken)  # raised here it would end the trouble alone
                return
            await asyncio.sleep(LOOK_S)

    def _not_led_without(self, lost: set[BrokerId], loss: HostLoss) -> Iterator[PartitionRegistration]:
        """Partitions that somebody who is left could lead and does not. A host that restarts may be back and lead again."""
        for each in self._cluster.invariants.newest_registrations():
            if set(each.isr) <= lost:
                continue
            if not each.has_leader or (each.leader in lost and loss is not HostLoss.RESTART):
                yield each
