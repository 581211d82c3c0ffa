"""Feature levels: those of a new cluster, raising and lowering them, and which node serves what. Image in, records out.

May touch:  image.                     Must not touch: everything that waits.
Invariants: every registered node, this controller too, serves each finalized level; all updates of a request are made, or
            none; only named features are raised.
Read next:  image/features.py, which names the features.

Differs from Kafka: metadata.version counts our own levels and never goes back. The log contains records of the higher level,
and a node of the lower level stops at the first record it does not know.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from barnabas_quorum.controller.configs import refuse_lost_to_some
from barnabas_quorum.controller.decisions import DecisionContext, decides
from barnabas_quorum.controller.requests_cluster import (
    FeatureUpdate,
    FeatureUpdateResult,
    FeatureUpgrade,
    UpdateFeatures,
    UpdateFeaturesReply,
)
from barnabas_quorum.controller.result import ControllerResult
from barnabas_quorum.image.features import (
    BOOTSTRAP_LEVELS,
    ELR_VERSION,
    HOST_VERSION,
    KRAFT_VERSION,
    METADATA_VERSION,
    SUPPORTED_FEATURES,
    TRANSACTION_VERSION,
    TWO_PHASE_VERSION,
)
from barnabas_quorum.image.metadata import MetadataImage
from barnabas_quorum.records import ConfigRecord, ConfigResourceType, FeatureLevelRecord, FeatureRange, Record
from barnabas_wire.kafka.errors import ErrorCode, KafkaError

MIN_INSYNC_REPLICAS = "min.insync.replicas"
NEEDED_METADATA_VERSION = {ELR_VERSION: 2}
"""Levels above 0 of these features write records of that metadata.version."""


def bootstrap_records(image: MetadataImage, *, min_insync_replicas: int) -> list[Record]:
    """The first records of a new cluster; none when it has its metadata.version. `min_insync_replicas` comes from the
    controller's properties (update_features says why)."""
    if image.features.metadata_version != 0:
        return []
    records: list[Record] = [
        FeatureLevelRecord(name=name, level=BOOTSTRAP_LEVELS[name]) for name in sorted(BOOTSTRAP_LEVELS)
    ]
    return records + elr_config_records(image, min_insync_replicas=min_insync_replicas)


def require_metadata_version(image: MetadataImage, level: int, what: str) -> None:
    """Raise UNSUPPORTED_VERSION while the cluster's metadata.version has no records for `what`."""
    present = image.features.metadata_version
    if present < level:
        raise KafkaError.of(
            ErrorCode.UNSUPPORTED_VERSION,
            f"metadata.version={present} has no records for {what}; once every node runs this version, "
            f"`barnabas cluster features upgrade --feature {METADATA_VERSION}={level}`",
        )


@decides(UpdateFeatures)
def update_features(
    image: MetadataImage, request: UpdateFeatures, context: DecisionContext
) -> ControllerResult[UpdateFeaturesReply]:
    """Apply all updates or none; INVALID_UPDATE_VERSION names the obstacle.

    When ELRs come into use, min.insync.replicas of the controller's properties becomes the cluster's (KIP-966): with a value
    per broker one ELR would mean different things.
    """
    times = Counter(update.name for update in request.updates)
    wanted = {update.name: update.level for update in request.updates}
    results: list[FeatureUpdateResult] = []
    for update in request.updates:
        error: KafkaError | None = None
        try:
            if times[update.name] > 1:
                raise KafkaError.of(ErrorCode.INVALID_REQUEST, f"{update.name} is named twice; name it once")
            _check_update(image, update, wanted.get(METADATA_VERSION, image.features.metadata_version))
            refuse_lost_to_some(image, update.name, update.level, context.validators)
        except KafkaError as refusal:
            error = refusal
        results.append(FeatureUpdateResult(name=update.name, error=error))
    is_refused = any(result.error is not None for result in results)
    records: list[Record] = [
        FeatureLevelRecord(name=update.name, level=update.level)
        for update in request.updates
        if image.features.levels.get(update.name, 0) != update.level
    ]
    if any(
        isinstance(record, FeatureLevelRecord) and record.name == ELR_VERSION and record.level for record in records
    ):
        records += elr_config_records(image, min_insync_replicas=context.config.min_insync_replicas)
    return ControllerResult(
        records=[] if is_refused or request.validate_only else records,
        response=UpdateFeaturesReply(results=tuple(results)),
    )


def elr_config_records(image: MetadataImage, *, min_insync_replicas: int) -> list[Record]:
    """Set one min.insync.replicas for all brokers, and remove those of single brokers."""
    records: list[Record] = []
    if MIN_INSYNC_REPLICAS not in image.configs.cluster_default:
        records.append(
            ConfigRecord(
                resource_type=ConfigResourceType.BROKER,
                resource_name="",
                key=MIN_INSYNC_REPLICAS,
                value=str(min_insync_replicas),
            )
        )
    for broker in image.cluster.sorted_brokers():
        if MIN_INSYNC_REPLICAS in image.configs.broker(broker.id):
            records.append(
                ConfigRecord(
                    resource_type=ConfigResourceType.BROKER,
                    resource_name=str(broker.id),
                    key=MIN_INSYNC_REPLICAS,
                    value=None,
                )
            )
    return records


def require_served(image: MetadataImage, ranges: Sequence[FeatureRange], node: str) -> None:
    """Raise UNSUPPORTED_VERSION if a node with these ranges cannot serve a finalized level. `node` names it in the message."""
    served = {feature.name: feature for feature in ranges}
    for name in sorted(image.features.levels):
        level = image.features.levels[name]
        reason = _reason(name, level, served.get(name))
        if reason is not None:
            raise KafkaError.of(
                ErrorCode.UNSUPPORTED_VERSION,
                f"the cluster runs {name}={level}, {node} {reason}; run a version that serves it",
            )


def _reason(name: str, level: int, served: FeatureRange | None) -> str | None:
    """Why a node cannot serve a level; None = it can."""
    if served is None:
        return None if level == 0 else f"does not know {name}"
    if not served.min_level <= level <= served.max_level:
        return f"serves {name} {served.min_level} to {served.max_level}"
    return None


def _check_update(image: MetadataImage, update: FeatureUpdate, metadata_version: int) -> None:
    name, level = update.name, update.level
    present = image.features.levels.get(name, 0)

    def refuse(reason: str) -> KafkaError:
        return KafkaError.of(ErrorCode.INVALID_UPDATE_VERSION, f"{name} cannot become {level}: {reason}")

    if level < 0:
        raise refuse("a level must be 0 or greater")
    if present == 0 and all(feature.name != name for feature in SUPPORTED_FEATURES):
        # level 0 too: the name is mistyped, so the reply must not be success
        raise refuse(f"this version does not know {name}; `barnabas cluster features` lists what it serves")
    _check_nodes(image, name, level)
    if level == present:
        return
    if level < present:
        if update.kind is FeatureUpgrade.UPGRADE:
            raise refuse(f"it is {present}, and a lower level needs the upgrade type safe or unsafe downgrade")
        _check_downgrade(name, level)
        return
    if update.kind is not FeatureUpgrade.UPGRADE:
        raise refuse(f"it is {present}, and a downgrade cannot raise it; upgrade instead")
    needed = NEEDED_METADATA_VERSION.get(name, 0)
    if metadata_version < needed:
        raise refuse(
            f"it needs {METADATA_VERSION} {needed}, which is {metadata_version}; raise that first, or in the same request"
        )


def _check_nodes(image: MetadataImage, name: str, level: int) -> None:
    """Raise INVALID_UPDATE_VERSION that names the first node that does not serve the level."""
    own = {feature.name: feature for feature in SUPPORTED_FEATURES}
    nodes = [("the active controller", own.get(name), "run a version that serves it")]
    for controller_id in sorted(image.cluster.controllers):
        ranges = {feature.name: feature for feature in image.cluster.controllers[controller_id].features}
        fix = "update it, or `barnabas cluster unregister-controller` it if it is gone for good"
        nodes.append((f"controller {controller_id}", ranges.get(name), fix))
    for broker in image.cluster.sorted_brokers():
        ranges = {feature.name: feature for feature in broker.features}
        state = " (fenced)" if broker.is_fenced else ""
        nodes.append(
            (f"broker {broker.id}{state}", ranges.get(name), "update it, or unregister it if it is gone for good")
        )
    for node, served, fix in nodes:
        reason = _reason(name, level, served)
        if reason is not None:
            raise KafkaError.of(
                ErrorCode.INVALID_UPDATE_VERSION, f"{name} cannot become {level}: {node} {reason}; {fix}"
            )


def _check_downgrade(name: str, level: int) -> None:
    """Raise INVALID_UPDATE_VERSION if a lower level would lose or misread existing data."""
    reason: str | None = None
    if name == METADATA_VERSION:
        reason = (
            "the metadata log contains records that lower levels do not know; format a new cluster at the lower level"
        )
    elif name == KRAFT_VERSION:
        reason = "the log contains voter sets of kraft.version 1, which nodes of kraft.version 0 do not know"
    elif name == ELR_VERSION:
        reason = (
            "this version always keeps eligible leader replicas, and a partition whose ISR is empty could never elect a "
            "leader without them"
        )
    elif name == TRANSACTION_VERSION and level == 0:
        reason = (
            "logs may contain transactions, which nodes of level 0 would show to every reader; go back to 1 at most"
        )
    elif name == HOST_VERSION:
        reason = (
            "registrations may name hosts, which nodes of level 0 skip: their metadata would differ from the others'; to do "
            "without hosts, take broker.host out of the properties and restart the brokers"
        )
    elif name == TWO_PHASE_VERSION:
        reason = (
            "__transaction_state may contain prepared transactions, which nodes of level 0 cannot read: they would not "
            "coordinate any transaction of that partition"
        )
    if reason is not None:
        raise KafkaError.of(ErrorCode.INVALID_UPDATE_VERSION, f"{name} cannot go back to {level}: {reason}")
