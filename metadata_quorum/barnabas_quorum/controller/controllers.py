"""Controllers register with the active one, and unregister (KIP-919). Image in, records out.

May touch:  image, features.           Must not touch: the quorum's voters, everything that waits.
Invariants: a registration gives a controller's address and supported features; it says nothing about who votes.
Read next:  broker/metadata/controller_registration.py (in the broker room), which keeps each controller registered.
"""

from __future__ import annotations

from barnabas_quorum.controller.brokers import is_address
from barnabas_quorum.controller.decisions import DecisionContext, decides
from barnabas_quorum.controller.features import require_served
from barnabas_quorum.controller.requests_cluster import (
    RegisterController,
    RegisterControllerReply,
    UnregisterController,
    UnregisterControllerReply,
)
from barnabas_quorum.controller.result import ControllerResult
from barnabas_quorum.image.cluster import ControllerRegistration
from barnabas_quorum.image.metadata import MetadataImage
from barnabas_quorum.records import RegisterControllerRecord, UnregisterControllerRecord
from barnabas_wire.kafka.errors import ErrorCode, KafkaError

UNREGISTER_CONTROLLER_LEVEL = 2


@decides(RegisterController)
def register_controller(
    image: MetadataImage, request: RegisterController, context: DecisionContext
) -> ControllerResult[RegisterControllerReply]:
    """Register one process start of a controller; registering it again changes nothing.

    Raises INCONSISTENT_CLUSTER_ID, INVALID_REGISTRATION, UNSUPPORTED_VERSION.
    """
    if request.cluster_id != context.cluster_id:
        raise KafkaError.of(
            ErrorCode.INCONSISTENT_CLUSTER_ID,
            f"controller {request.controller_id} belongs to cluster {request.cluster_id} by its meta.properties, this is "
            f"{context.cluster_id}: correct its controller.quorum.bootstrap.servers, give it an empty metadata.log.dir, or restore "
            "meta.properties where it was damaged",
        )
    names = [endpoint.listener for endpoint in request.endpoints]
    if request.controller_id < 0 or not names or len(set(names)) != len(names):
        raise KafkaError.of(
            ErrorCode.INVALID_REGISTRATION,
            f"controller {request.controller_id} with listeners {names}: an id must be 0 or greater and listener "
            "names must be distinct; correct node.id and listeners",
        )
    for endpoint in request.endpoints:
        if not is_address(endpoint):
            raise KafkaError.of(
                ErrorCode.INVALID_REGISTRATION,
                f"controller {request.controller_id}: {endpoint.host!r}, port {endpoint.port}, is not an address; set "
                "advertised.listeners",
            )
    require_served(image, request.features, f"controller {request.controller_id}")
    wanted = ControllerRegistration(
        id=request.controller_id,
        incarnation_id=request.incarnation_id,
        endpoints=request.endpoints,
        features=request.features,
    )
    record = RegisterControllerRecord(
        controller_id=request.controller_id,
        incarnation_id=request.incarnation_id,
        endpoints=request.endpoints,
        features=request.features,
    )
    is_known = image.cluster.controllers.get(request.controller_id) == wanted
    return ControllerResult(records=[] if is_known else [record], response=RegisterControllerReply())


@decides(UnregisterController)
def unregister_controller(
    image: MetadataImage, request: UnregisterController, context: DecisionContext
) -> ControllerResult[UnregisterControllerReply]:
    """Forget a controller, so that feature levels no longer wait for it. Raises RESOURCE_NOT_FOUND, UNSUPPORTED_VERSION."""
    if request.controller_id not in image.cluster.controllers:
        raise KafkaError.of(
            ErrorCode.RESOURCE_NOT_FOUND,
            f"controller {request.controller_id} is not registered; `barnabas cluster info` shows which are",
        )
    if image.features.metadata_version < UNREGISTER_CONTROLLER_LEVEL:
        raise KafkaError.of(
            ErrorCode.UNSUPPORTED_VERSION,
            f"metadata.version={image.features.metadata_version} has no record to unregister a controller; upgrade it",
        )
    return ControllerResult(
        records=[UnregisterControllerRecord(controller_id=request.controller_id)], response=UnregisterControllerReply()
    )
