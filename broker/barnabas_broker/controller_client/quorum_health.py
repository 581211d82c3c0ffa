"""What the leader's view says of the quorum's health: silent and missing replicas, whether it survives another loss.

May touch:  its arguments.            Must not touch: asyncio, clock, network.
Invariants: a replica that is not expected is no illness: an observer that fell silent counts only while it is a
            registered broker.
Read next:  admin/service.py and metrics/quorum.py, which report it.

Why: the leader remembers an observer for minutes after its last fetch. One whose broker was unregistered, whose vote was taken
before it was stopped, or whose disk was replaced (it has another directory id now) will not fetch again, and nothing is wrong.
"""

from __future__ import annotations

from barnabas_quorum.driver.quorum_description import QuorumDescription, ReplicaDescription
from barnabas_quorum.image.metadata import MetadataImage

SILENCE_MS_MAX = 5_000
"""A replica whose last fetch is longer ago than this is down or gone; it fetches every half second at least."""
VOTERS_WITHOUT_TOLERANCE = 2
"""With so many voters both are needed: the loss of either leaves no controller."""


def is_silent(replica: ReplicaDescription, *, now_ms: int) -> bool:
    """Whether the replica has not fetched of late. `now_ms` is wall time."""
    return now_ms - replica.last_fetch_ms > SILENCE_MS_MAX


def voters_down(quorum: QuorumDescription, *, now_ms: int) -> list[int]:
    """Voters that the leader has not heard of for SILENCE_MS_MAX; those whose last fetch is unknown are not listed
    apart from voters that a fresh leader has not heard of yet, so they count only when some other voter is known."""
    is_leaders_view = any(voter.last_fetch_ms >= 0 for voter in quorum.voters if voter.key.id != quorum.leader_id)
    if not is_leaders_view:
        return []
    return [
        voter.key.id for voter in quorum.voters if voter.key.id != quorum.leader_id and is_silent(voter, now_ms=now_ms)
    ]


def present_observers(
    quorum: QuorumDescription, image: MetadataImage, *, now_ms: int
) -> tuple[ReplicaDescription, ...]:
    """Observers that fetch, and those that should: of registered brokers, each with the directory it fetched with last."""
    newest: dict[int, int] = {}
    for observer in quorum.observers:
        newest[observer.key.id] = max(newest.get(observer.key.id, -1), observer.last_fetch_ms)
    voters = {voter.key.id for voter in quorum.voters}

    def is_expected(observer: ReplicaDescription) -> bool:
        node_id = observer.key.id
        is_former_directory = observer.last_fetch_ms < newest[node_id] or node_id in voters
        return image.cluster.broker(node_id) is not None and not is_former_directory

    return tuple(each for each in quorum.observers if not is_silent(each, now_ms=now_ms) or is_expected(each))


def bears_no_loss(quorum: QuorumDescription, image: MetadataImage) -> bool:
    """Whether the loss of one more voter leaves no controller though others could vote. A single voter with no other controller
    registered is a choice; two never are: they bear no more than one does, and fail twice as often."""
    voters = {voter.key.id for voter in quorum.voters}
    if len(voters) == 1:
        return bool(image.cluster.controllers.keys() - voters)
    return len(voters) == VOTERS_WITHOUT_TOLERANCE
