"""Feature levels: what a new cluster begins with, raising and lowering them, and who serves what. Image in, records out.

May touch:  image.                     Must not touch: everything that waits.
Invariants: a finalized level is one that every registered node serves, this controller too; all updates of a request are
            made or none; nothing is raised that was not named.
Read next:  image/features.py, which names the features.

Differs from Kafka: metadata.version counts our own levels, and never goes back: records of the higher level stand in the
log, and a node of the lower level stops at the first it does not know.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

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
    KRAFT_VERSION,
    METADATA_VERSION,
    SUPPORTED_FEATURES,
)
from barnabas_quorum.image.metadata import MetadataImage
from barnabas_quorum.records import ConfigRecord, ConfigResourceType, FeatureLevelRecord, FeatureRange, Record
from barnabas_wire.kafka.errors import ErrorCode, KafkaError

MIN_INSYNC_REPLICAS = "min.insync.replicas"
NEEDED_METADATA_VERSION = {ELR_VERSION: 2}
"""Levels above 0 of these features write records of that metadata.version."""


def bootstrap_records(image: MetadataImage, *, min_insync_replicas: int) -> list[Record]:
    """The first records of a new cluster; none when it has its metadata.version. `min_insync_replicas` is of the controller's
    properties (update_features tells why)."""
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
    """All or none: INVALID_UPDATE_VERSION names who or what stands against it.

    Where ELRs begin, min.insync.replicas of the controller's properties becomes the cluster's (KIP-966): what brokers say
    each for themselves would make one ELR mean different things.
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
    """One min.insync.replicas for all brokers, and none of a single broker's own."""
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
    """Raise UNSUPPORTED_VERSION where a node with these ranges cannot serve a finalized level. `node` names it."""
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
        raise refuse("a level is 0 or greater")
    if present == 0 and all(feature.name != name for feature in SUPPORTED_FEATURES):
        # level 0 too: who asks has mistyped a name, and must not hear that it is done
        raise refuse(f"this version does not know {name}; `barnabas cluster features` lists what it serves")
    _check_nodes(image, name, level)
    if level == present:
        return
    if level < present:
        if update.kind is FeatureUpgrade.UPGRADE:
            raise refuse(f"it is {present}, and lower levels need the upgrade type safe or unsafe downgrade")
        _check_downgrade(name, level)
        return
    if update.kind is not FeatureUpgrade.UPGRADE:
        raise refuse(f"it is {present}: a downgrade cannot lead to a higher level, upgrade instead")
    needed = NEEDED_METADATA_VERSION.get(name, 0)
    if metadata_version < needed:
        raise refuse(
            f"it needs {METADATA_VERSION} {needed}, which is {metadata_version}; raise that first, or in the same request"
        )


def _check_nodes(image: MetadataImage, name: str, level: int) -> None:
    """Raise INVALID_UPDATE_VERSION that names the first node which does not serve the level."""
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
    """Raise INVALID_UPDATE_VERSION where a lower level would lose or misread what is there: of every feature that is built."""
    reason: str | None = None
    if name == METADATA_VERSION:
        reason = "the metadata log holds records that lower levels do not know; format a new cluster at the lower level"
    elif name == KRAFT_VERSION:
        reason = "voter sets of kraft.version 1 stand in the log, and nodes of kraft.version 0 do not know them"
    elif name == ELR_VERSION:
        reason = (
            "partitions of this version always keep eligible leader replicas, and one whose ISR is empty could never be "
            "led again without them"
        )
    if reason is not None:
        raise KafkaError.of(ErrorCode.INVALID_UPDATE_VERSION, f"{name} cannot go back to {level}: {reason}")
