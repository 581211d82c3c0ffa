"""Who leads, as each controller says of itself, looked at many times a second.

May touch:  the controllers' gRPC listeners.   Must not touch: processes, the workload.
Invariants: a leader is a controller that names itself, in the highest epoch seen; times are monotonic seconds.
Read next:  workload.py, which sends its writes there; scenarios.py, which measures elections with it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import grpc
import grpc.aio

from barnabas_wire.rpc import admin_pb2, admin_pb2_grpc
from barnabas_wire.rpc.options import CHANNEL_OPTIONS
from tests.chaos.nodes import CONTROLLER_PORT, ChaosCluster, ChaosNode

LOOK_EVERY_S = 0.05
LOOK_TIMEOUT_S = 0.4


class Reign(NamedTuple):
    """The first time a controller was said to lead an epoch."""

    since: float
    leader: int
    epoch: int


@dataclass(slots=True)
class View:
    """What one controller last said."""

    leader: int = -1
    epoch: int = -1
    high_watermark: int = -1
    ends: tuple[tuple[int, int], ...] = ()
    """(id, log end) of the voters, as the answering node sees them."""
    voters: tuple[int, ...] = ()
    seen: float = 0.0
    """0 = does not answer now."""


class Watch:
    """Looks at every controller of the cluster until stopped."""

    def __init__(self, cluster: ChaosCluster) -> None:
        self._cluster = cluster
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._channels: dict[int, grpc.aio.Channel] = {}
        self.views: dict[int, View] = {}
        self.reigns: list[Reign] = []
        self._epochs: set[int] = set()
        self.high_watermark = -1
        """The highest that any controller told: everything below is committed."""

    def start(self) -> None:
        """Begin to look, also at controllers that came since."""
        for node in self._cluster.controllers:
            if node.id not in self._tasks:
                self.views[node.id] = View()
                self._tasks[node.id] = asyncio.create_task(self._look(node))

    async def drop(self, node_id: int) -> None:
        """Look no more at a controller that is gone for good."""
        task = self._tasks.pop(node_id)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await self._channels.pop(node_id).close(grace=None)
        del self.views[node_id]

    async def stop(self) -> None:
        """Stop looking."""
        for task in self._tasks.values():
            task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)
        for channel in self._channels.values():
            await channel.close(grace=None)
        self._tasks.clear()
        self._channels.clear()

    def leader(self) -> int | None:
        """The controller that now says it leads, in the highest epoch if several do; None while nobody does."""
        claims = [(view.epoch, node_id) for node_id, view in self.views.items() if view.seen and view.leader == node_id]
        return max(claims)[1] if claims else None

    def elections_since(self, begin: float) -> list[Reign]:
        """Epochs that got a leader after that time."""
        return [reign for reign in self.reigns if reign.since > begin]

    def is_settled(self) -> bool:
        """Every running controller follows one leader, and every voter that runs has all of its log."""
        leader = self.leader()
        if leader is None:
            return False
        lead = self.views[leader]
        running = [node.id for node in self._cluster.controllers if node.is_running]
        ends = dict(lead.ends)
        return all(
            self.views[node_id].seen
            and (self.views[node_id].leader, self.views[node_id].epoch) == (leader, lead.epoch)
            and (node_id not in lead.voters or ends.get(node_id, -1) >= lead.high_watermark - SETTLED_LAG)
            for node_id in running
        )

    async def until(self, condition: Callable[[], bool], *, timeout_s: float, what: str) -> float:
        """Wait for a condition; the time at which it held. Raises TimeoutError naming `what`."""
        deadline = time.monotonic() + timeout_s
        while not condition():
            if time.monotonic() > deadline:
                raise TimeoutError(f"{what}: not within {timeout_s:.0f} s; {self.describe()}")
            await asyncio.sleep(0.01)
        return time.monotonic()

    async def until_new_leader(self, after: float, *, timeout_s: float) -> Reign:
        """The first leader of a new epoch since `after`."""
        await self.until(lambda: bool(self.elections_since(after)), timeout_s=timeout_s, what="a new leader")
        return self.elections_since(after)[0]

    async def look_again(self) -> None:
        """Wait until every running controller has answered a question that was put after this call."""
        asked = time.monotonic() + LOOK_TIMEOUT_S  # an answer that comes later was asked for later
        running = [node.id for node in self._cluster.controllers if node.is_running]
        await self.until(
            lambda: all(self.views[node_id].seen > asked for node_id in running),
            timeout_s=30.0,
            what="an answer of every controller",
        )

    def describe(self) -> str:
        """What every controller says, in one line."""
        return "; ".join(
            f"{node_id}: "
            + (f"leader {view.leader} epoch {view.epoch} hw {view.high_watermark}" if view.seen else "silent")
            for node_id, view in sorted(self.views.items())
        )

    async def _look(self, node: ChaosNode) -> None:
        channel = grpc.aio.insecure_channel(f"{node.address}:{CONTROLLER_PORT}", options=CHANNEL_OPTIONS)
        self._channels[node.id] = channel
        stub = admin_pb2_grpc.QuorumViewStub(channel)
        view = self.views[node.id]
        while True:
            try:
                answer = await stub.DescribeOwnQuorum(admin_pb2.DescribeQuorumRequest(), timeout=LOOK_TIMEOUT_S)
            except grpc.aio.AioRpcError:
                view.seen = 0.0
            else:
                self._take(node.id, view, answer)
            await asyncio.sleep(LOOK_EVERY_S)

    def _take(self, node_id: int, view: View, answer: admin_pb2.DescribeQuorumResponse) -> None:
        view.seen = time.monotonic()
        view.leader, view.epoch = answer.leader_id, answer.leader_epoch
        view.high_watermark = answer.high_watermark
        # a replica that was wiped is told of for a while as an observer of the same id
        voters = [replica for replica in answer.replicas if replica.role != "observer"]
        view.ends = tuple((replica.id, replica.log_end_offset) for replica in voters)
        view.voters = tuple(replica.id for replica in voters)
        self.high_watermark = max(self.high_watermark, view.high_watermark)
        # the first word of a reign may come from a follower; epochs come late when their leader was not reachable
        if view.leader >= 0 and view.epoch not in self._epochs:
            self._epochs.add(view.epoch)
            self.reigns.append(Reign(view.seen, view.leader, view.epoch))


SETTLED_LAG = 50
"""Records that a voter may lack of the leader's high watermark under load, and still count as caught up."""
