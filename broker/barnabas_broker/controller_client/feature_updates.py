"""Carries out changes of feature levels: the controller's, and kraft.version, which is the quorum's own.

May touch:  the controller client, the quorum's leader, by what it is given.    Must not touch: levels, voter sets.
Invariants: kraft.version rises only when it is named; the voter set is upgraded before the level says so, and not at all
            where the controller refuses the request.
Read next:  metadata_quorum/controller/features.py; metadata_quorum/driver/membership.py, who looks at the voters.

Not obvious: the level in the metadata and the form of the voter set in the log are two things. If only the first of the two
changes is made (its asker hears an error), the same request again makes the other.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from barnabas_quorum.controller.requests_cluster import FeatureUpgrade, UpdateFeatures, UpdateFeaturesReply
from barnabas_quorum.image.features import KRAFT_VERSION
from barnabas_quorum.raft.messages import VoterChange, VoterChangeKind
from barnabas_quorum.raft.voters import ReplicaKey, Voter
from barnabas_wire.kafka.ids import NO_BROKER, ZERO_UUID

NO_VOTER = Voter(ReplicaKey(NO_BROKER, ZERO_UUID), "", 0)
"""An upgrade is of the set as a whole."""


async def carry_out(
    request: UpdateFeatures,
    *,
    ask: Callable[[UpdateFeatures], Awaitable[UpdateFeaturesReply]],
    change_voters: Callable[[VoterChange], Awaitable[None]],
) -> UpdateFeaturesReply:
    """What the controller answers. Raises the KafkaError with which the quorum's leader refuses kraft.version."""
    upgrades_voters = any(
        update.name == KRAFT_VERSION and update.kind is FeatureUpgrade.UPGRADE and update.level == 1
        for update in request.updates
    )
    if upgrades_voters and not request.validate_only:
        found = await ask(UpdateFeatures(updates=request.updates, validate_only=True))
        if any(result.error is not None for result in found.results):
            return found
        await change_voters(VoterChange(VoterChangeKind.UPGRADE, NO_VOTER, 0))
    return await ask(request)
