"""The admin service's verbs on feature levels and controllers.

May touch:  the controller client, an image.    Must not touch: grpc, logs, the data lane.
Invariants: what is decided is the controller's; what nodes can serve is as they registered.
Read next:  service.py, which serves these; metadata_quorum/controller/features.py for the rules.
"""

from __future__ import annotations

from barnabas_broker.admin.voters import make_callers_change
from barnabas_broker.controller_client.feature_updates import carry_out
from barnabas_broker.controller_client.quorum_view import LeaderView
from barnabas_quorum.controller.request import ActiveController
from barnabas_quorum.controller.requests_cluster import (
    FeatureUpdate,
    FeatureUpgrade,
    UnregisterController,
    UpdateFeatures,
)
from barnabas_quorum.image.features import KRAFT_VERSION, SUPPORTED_FEATURES
from barnabas_quorum.image.metadata import MetadataImage
from barnabas_quorum.raft.voters import VoterSet
from barnabas_wire.kafka.errors import ErrorCode, KafkaError
from barnabas_wire.kafka.ids import BrokerId
from barnabas_wire.rpc import admin_pb2
from barnabas_wire.rpc.error_details import detail_of


async def describe_features(image: MetadataImage, voters: VoterSet) -> admin_pb2.DescribeFeaturesResponse:
    """Every feature that this code or a registered node knows, with its level and who serves what. kraft.version is as the
    voter set in the log has it."""
    levels = {**image.features.levels, KRAFT_VERSION: voters.kraft_version}
    nodes = [
        (f"controller {controller_id}", image.cluster.controllers[controller_id].features)
        for controller_id in sorted(image.cluster.controllers)
    ]
    nodes += [(f"broker {broker.id}", broker.features) for broker in image.cluster.sorted_brokers()]
    own = {feature.name: feature for feature in SUPPORTED_FEATURES}
    names = own.keys() | levels.keys() | {f.name for _, features in nodes for f in features}
    views = []
    for name in sorted(names):
        served = [
            admin_pb2.FeatureSupport(node=node, min_level=feature.min_level, max_level=feature.max_level)
            for node, features in nodes
            for feature in features
            if feature.name == name
        ]
        lacks = len(served) < len(nodes)
        views.append(
            admin_pb2.FeatureView(
                name=name,
                finalized=levels.get(name, 0),
                min_level=max((item.min_level for item in served), default=0),
                max_level=0 if lacks else min((item.max_level for item in served), default=0),
                nodes=served,
            )
        )
    return admin_pb2.DescribeFeaturesResponse(features=views, metadata_offset=image.offset)


async def update_features(
    controller: ActiveController,
    quorum: LeaderView,
    request: admin_pb2.UpdateFeaturesRequest,
    image: MetadataImage,
    voters: VoterSet,
    *,
    timeout_ms: int,
) -> admin_pb2.UpdateFeaturesResponse:
    """All or none; each refusal is given with its feature."""
    before = {**image.features.levels, KRAFT_VERSION: voters.kraft_version}
    try:
        updates = tuple(
            FeatureUpdate(name=change.name, level=change.level, kind=FeatureUpgrade(change.kind))
            for change in request.changes
        )
    except ValueError as error:
        raise KafkaError.of(ErrorCode.INVALID_REQUEST, f"an upgrade type is 1, 2 or 3: {error}") from None
    if not updates:
        raise KafkaError.of(ErrorCode.INVALID_REQUEST, "no feature is named; name one as --feature NAME=LEVEL")
    reply = await carry_out(
        UpdateFeatures(updates=updates, validate_only=request.validate_only),
        ask=lambda wanted: controller.ask(wanted, timeout_ms=timeout_ms),
        change_voters=lambda change: make_callers_change(quorum, change),
    )
    return admin_pb2.UpdateFeaturesResponse(
        features=[
            admin_pb2.FeatureOutcome(
                name=update.name,
                before=before.get(update.name, 0),
                level=update.level,
                error=detail_of(result.error),
            )
            for update, result in zip(updates, reply.results, strict=True)
        ]
    )


async def unregister_controller(
    controller: ActiveController, request: admin_pb2.UnregisterControllerRequest, *, timeout_ms: int
) -> admin_pb2.UnregisterControllerResponse:
    """Forget a controller that is gone for good."""
    wanted = UnregisterController(controller_id=BrokerId(request.controller_id))
    await controller.ask(wanted, timeout_ms=timeout_ms)
    return admin_pb2.UnregisterControllerResponse()


def controllers_of(image: MetadataImage, voters: VoterSet) -> list[admin_pb2.Controller]:
    """Voters and registered controllers by id, each with where it is as far as the cluster knows."""
    addresses = {voter.key.id: (voter.host, voter.port) for voter in voters}
    found = []
    for controller_id in sorted(addresses.keys() | image.cluster.controllers.keys()):
        registration = image.cluster.controllers.get(controller_id)
        if registration is not None:
            listeners = [
                admin_pb2.Listener(name=point.listener, host=point.host, port=point.port)
                for point in registration.endpoints
            ]
        else:
            host, port = addresses[controller_id]
            listeners = [admin_pb2.Listener(name="CONTROLLER", host=host, port=port)]
        found.append(
            admin_pb2.Controller(
                id=controller_id,
                listeners=listeners,
                registered=registration is not None,
                incarnation_id="" if registration is None else str(registration.incarnation_id),
                voter=controller_id in addresses,
            )
        )
    return found
