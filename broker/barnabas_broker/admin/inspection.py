"""The inspection service of every node: its image's hashes, the record that blocks it, its log, what changed when,
and which of its logs cannot be compacted.

May touch:  this node's loader and metadata log (reading), the active controller for what is written.   Must not touch: rules,
            the data lane.
Invariants: nothing here changes but by the active controller; nothing at or above the high watermark is shown; no secret is;
            long reads rest between short steps; generated types stop here.
Read next:  barnabas_quorum/image/hashing.py, image/bad_records.py; driver/image_history.py.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol, TypeVar

import grpc.aio

from barnabas_broker.admin.edge import AdminEdge
from barnabas_broker.version import VERSION
from barnabas_quorum.controller.request import ActiveController
from barnabas_quorum.controller.requests_integrity import (
    SignOffRecord,
    WriteImageHash,
)
from barnabas_quorum.driver.committed_history import find_start_of_last, read_slice
from barnabas_quorum.driver.image_history import ImageChange, difference_between
from barnabas_quorum.driver.log_entries import NO_OP, LogEntry
from barnabas_quorum.driver.quorum_description import QuorumDescription
from barnabas_quorum.image.bad_records import BadRecord
from barnabas_quorum.image.entities import entities, recompute
from barnabas_quorum.image.hashing import FORMAT, PARTS, ImageHash, digest_of
from barnabas_quorum.image.loader import MetadataLoader
from barnabas_quorum.raft.journal import RaftLog
from barnabas_quorum.record_view import fields_of
from barnabas_quorum.records_integrity import PartHash
from barnabas_wire.kafka.errors import ErrorCode, KafkaError
from barnabas_wire.kafka.ids import BrokerId, Offset, TopicPartition
from barnabas_wire.rpc import inspection_pb2 as pb
from barnabas_wire.rpc import inspection_pb2_grpc

WRITE_TIMEOUT_MS = 5_000
PAGE_ENTITIES = 1000
TAIL_POLL_S = 0.1
"""How often a followed log is looked at for more."""
LAST_MAX = 10_000
UNCLEANABLE_MAX = 20
"""So many logs that the cleaner has set aside are named."""
ENTITY_HASH_BYTES = 8

R = TypeVar("R")


class QuorumReader(Protocol):
    """What this needs of the node's QuorumNode."""

    @property
    def high_watermark(self) -> Offset:
        """One past the last committed record known here."""
        ...

    def describe(self) -> QuorumDescription:
        """The quorum as this node sees it."""
        ...


class InspectionService(inspection_pb2_grpc.InspectionServicer):
    """Answers for one node. Belongs to the control lane."""

    def __init__(
        self,
        *,
        node_id: BrokerId,
        roles: Sequence[str],
        cluster_id: str,
        loader: MetadataLoader,
        log: RaftLog,
        quorum: QuorumReader,
        controller: ActiveController,
        edge: AdminEdge,
    ) -> None:
        self._node_id = node_id
        self._roles = tuple(roles)
        self._cluster_id = cluster_id
        self._loader = loader
        self._log = log
        self._quorum = quorum
        self._controller = controller
        self._edge = edge
        self.cleaner_faults: Callable[[], Mapping[TopicPartition, str]] = dict
        """Logs of this node that its cleaner has set aside, and why; set by who knows the data lane, which is only looked at."""

    def add_to(self, server: grpc.aio.Server) -> None:
        """Register on an admin server that is not started yet."""
        inspection_pb2_grpc.add_InspectionServicer_to_server(self, server)

    # The methods below have gRPC's names.

    async def DescribeImage(self, request: pb.DescribeImageRequest, context: Any) -> pb.DescribeImageResponse:
        return await self._edge.answer("DescribeImage", context, self._describe_image(request.recompute))

    async def CompareImages(self, request: pb.CompareImagesRequest, context: Any) -> pb.CompareImagesResponse:
        return await self._edge.answer("CompareImages", context, self._compare_images())

    async def DiffImages(self, request: pb.DiffImagesRequest, context: Any) -> pb.DiffImagesResponse:
        return await self._edge.answer("DiffImages", context, self._diff_images(request))

    async def SignOff(self, request: pb.SignOffRequest, context: Any) -> pb.SignOffResponse:
        return await self._edge.answer("SignOff", context, self._sign_off(request))

    async def ListEntities(self, request: pb.ListEntitiesRequest, context: Any) -> None:  # type: ignore[override]  # writes to its context
        await self._edge.answer("ListEntities", context, _send_all(context, self._list_entities(request)))

    async def ReadLog(self, request: pb.ReadLogRequest, context: Any) -> None:  # type: ignore[override]  # writes to its context
        await self._edge.answer("ReadLog", context, _send_all(context, self._read_log(request)))

    # -- the image -------------------------------------------------------------------------------------------------

    async def _describe_image(self, is_recomputed: bool) -> pb.DescribeImageResponse:
        image = self._loader.image
        recomputed: Iterable[PartHash] = ()
        if is_recomputed:
            sums = [0] * len(PARTS)
            for step, _ in enumerate(recompute(image, sums)):
                if step % 20 == 0:
                    await asyncio.sleep(0)
            recomputed = ImageHash(tuple(sums)).parts()
        loader = self._loader
        blocked = loader.blocked
        uncleanable = list(self.cleaner_faults().items())
        return pb.DescribeImageResponse(
            node_id=self._node_id,
            roles=self._roles,
            cluster_id=self._cluster_id,
            applied_offset=image.offset,
            applied_epoch=image.epoch,
            high_watermark=self._quorum.high_watermark,
            leader_id=self._quorum.describe().leader_id,
            hash_format=FORMAT,
            parts=_parts(image.hash.parts()),
            recomputed=_parts(recomputed),
            comparisons=[
                pb.Comparison(
                    offset=each.offset,
                    at_ms=each.timestamp_ms,
                    matches=not each.differing,
                    own=_parts(each.own),
                    agreed=_parts(each.agreed),
                )
                for each in loader.agreement.comparisons
            ],
            compared=loader.stats.hashes_compared,
            mismatched=loader.stats.hash_mismatches,
            blocked=None
            if blocked is None
            else pb.Blocked(
                record=_bad(blocked.record),
                following=[_bad(each) for each in loader.blocking_records if each.offset != blocked.record.offset],
                since_ms=blocked.record.append_timestamp_ms,
                read_offset=blocked.read_offset,
            ),
            passed_over=[
                pb.PassedOver(
                    offset=each.record.offset,
                    digest=each.record.digest,
                    principal=each.sign_off.principal,
                    reason=each.sign_off.reason,
                )
                for each in loader.passed_over
            ],
            log_start_offset=self._log.log_start_offset,
            version=VERSION,
            uncleanable=[
                pb.Uncleanable(topic=each.topic, partition=each.partition, fault=fault)
                for each, fault in uncleanable[:UNCLEANABLE_MAX]
            ],
            uncleanable_count=len(uncleanable),
        )

    async def _compare_images(self) -> pb.CompareImagesResponse:
        reply = await self._controller.ask(WriteImageHash(), timeout_ms=WRITE_TIMEOUT_MS)
        return pb.CompareImagesResponse(offset=reply.offset)

    async def _sign_off(self, request: pb.SignOffRequest) -> pb.SignOffResponse:
        reply = await self._controller.ask(
            SignOffRecord(offset=Offset(request.offset), digest=request.digest, reason=request.reason),
            timeout_ms=WRITE_TIMEOUT_MS,
        )
        return pb.SignOffResponse(signed_at_offset=reply.offset)

    async def _list_entities(self, request: pb.ListEntitiesRequest) -> AsyncIterator[pb.EntityPage]:
        if request.part not in PARTS:
            raise KafkaError.of(
                ErrorCode.INVALID_REQUEST, f"the image has no part {request.part!r}; it has {', '.join(PARTS)}"
            )
        image = self._loader.image
        if request.comparison_offset:
            found = self._loader.agreement.compared_image(Offset(request.comparison_offset))
            if found is None:
                raise KafkaError.of(
                    ErrorCode.OFFSET_OUT_OF_RANGE,
                    f"node {self._node_id} keeps no image of the comparison at offset {request.comparison_offset} any more",
                )
            image = found
        page = pb.EntityPage(applied_offset=image.offset)
        for entity in entities(image, request.part):
            page.entities.append(
                pb.Entity(name=entity.name, hash=digest_of(request.part, entity.record)[:ENTITY_HASH_BYTES])
            )
            if len(page.entities) == PAGE_ENTITIES:
                yield page
                await asyncio.sleep(0)
                page = pb.EntityPage(applied_offset=image.offset)
        yield page

    # -- the log ---------------------------------------------------------------------------------------------------

    async def _read_log(self, request: pb.ReadLogRequest) -> AsyncIterator[pb.LogPage]:
        start = Offset(getattr(request, "from"))
        if start < 0:
            start = await find_start_of_last(
                self._log,
                min(request.last, LAST_MAX),
                high_watermark=self._quorum.high_watermark,
                with_noops=request.with_noops,
            )
        if start < self._log.log_start_offset:
            raise self._gone(start)
        if start > self._quorum.high_watermark and not request.follow:
            raise KafkaError.of(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"the metadata is committed up to offset {self._quorum.high_watermark - 1}, and {start} is beyond that; "
                "--follow waits for it",
            )
        yield self._page([])
        while True:
            while start < self._quorum.high_watermark:
                read = read_slice(self._log, start, high_watermark=self._quorum.high_watermark)
                if read.is_cut:
                    raise self._gone(start)
                shown = [
                    each for each in read.entries if each.offset >= start and (request.with_noops or each.kind != NO_OP)
                ]
                start = read.end_offset
                if shown:
                    yield self._page(shown)
                await asyncio.sleep(0)
            if not request.follow:
                return
            await asyncio.sleep(TAIL_POLL_S)

    def _gone(self, start: Offset) -> KafkaError:
        return KafkaError.of(
            ErrorCode.OFFSET_OUT_OF_RANGE,
            f"offset {start} is gone: the metadata log of node {self._node_id} begins at offset {self._log.log_start_offset}. "
            "Read from there, or see what a snapshot holds with `barnabas log dump`",
        )

    def _page(self, entries: Iterable[LogEntry]) -> pb.LogPage:
        return pb.LogPage(
            entries=[
                pb.LogEntry(
                    offset=each.offset,
                    epoch=each.epoch,
                    timestamp_ms=each.timestamp_ms,
                    batch_offset=each.batch_offset,
                    kind=each.kind,
                    json=json.dumps(each.fields, ensure_ascii=False),
                )
                for each in entries
            ],
            high_watermark=self._quorum.high_watermark,
            node_id=self._node_id,
            leader_id=self._quorum.describe().leader_id,
        )

    async def _diff_images(self, request: pb.DiffImagesRequest) -> pb.DiffImagesResponse:
        high_watermark = self._quorum.high_watermark
        last = Offset(high_watermark - 1) if request.to < 0 else Offset(request.to)
        found = await difference_between(
            self._log, first=Offset(getattr(request, "from")), last=last, high_watermark=high_watermark
        )
        return pb.DiffImagesResponse(
            **{"from": found.before.offset},
            to=found.after.offset,
            from_ms=found.before.timestamp_ms,
            to_ms=found.after.timestamp_ms,
            records=found.records,
            changes=[_change(each) for each in found.changes],
            answered_by=self._node_id,
        )


async def _send_all(context: Any, pages: AsyncIterator[Any]) -> None:
    async for page in pages:
        await context.write(page)


def _parts(parts: Iterable[PartHash]) -> list[pb.PartHash]:
    return [pb.PartHash(part=part, hash=value) for part, value in parts]


def _bad(record: BadRecord) -> pb.BadRecord:
    return pb.BadRecord(
        offset=record.offset,
        epoch=record.epoch,
        batch_offset=record.batch_offset,
        batch_end_offset=record.batch_end_offset,
        digest=record.digest,
        size=record.size,
        head=record.head,
        reason=record.fault.value,
        error=record.error,
        entity=record.entity,
        is_in_snapshot=record.is_in_snapshot,
    )


def _change(change: ImageChange) -> pb.EntityChange:
    either = change.after or change.before
    assert either is not None, "a change has at least one side"
    before = {} if change.before is None else fields_of(change.before.record)
    after = {} if change.after is None else fields_of(change.after.record)
    fields = [
        pb.FieldChange(field=name, before=_json(before, name), after=_json(after, name))
        for name in {**before, **after}
        if before.get(name) != after.get(name) or (name in before) != (name in after)
    ]
    if not fields and change.before is not None and change.after is not None:
        fields = [pb.FieldChange(field="(hidden)", before='"(hidden)"', after='"(hidden)"')]
    word = "added" if change.before is None else "removed" if change.after is None else "changed"
    return pb.EntityChange(part=change.part, name=either.name, change=word, fields=fields)


def _json(fields: dict[str, Any], name: str) -> str:
    return json.dumps(fields[name], ensure_ascii=False) if name in fields else ""
