"""The spans of a produce request: what of its time was the append, what the followers, what the answer.

May touch:  the handler of Produce by wrapping it, the replica manager by standing before it.    Must not touch: batches, sockets.
Invariants: a request that is not traced runs the handler itself; each span that begins ends, also when the handler fails; a span's
            attributes are bounded, however many partitions a request has.
Read next:  export.py; ../api/produce.py, whose handler is wrapped.

produce     from the request's turn until its answer has been given to the socket (or queued behind earlier answers)
  append      checked and appended to the logs in memory; of a transactional request, handed to its transaction's coordinator first
  replicated  acks=all: until the high watermark has passed it, so each in-sync replica has it
  flushed     acks=1: until the own log counts it; a request that waits for nothing has neither
  answered    the answer is made and leaves in this turn of the loop

All have barnabas.topics, .partitions and .bytes, lists of one length in the request's order, of the first PARTITIONS_MAX.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from opentelemetry.trace import Span, SpanKind, Status, StatusCode, Tracer, set_span_in_context

from barnabas_wire.kafka.messages import ApiKey

if TYPE_CHECKING:
    from barnabas_broker.api.registry import Api
    from barnabas_broker.api.services import BrokerServices
    from barnabas_broker.api.slot import ResponseSlot
    from barnabas_replication.requests import AppendEntry, AppendOutcome

PARTITIONS_MAX = 32
ACKS_ALL = -1


class ProduceTracer:
    """Traces a share of the produce requests of one node. Belongs to the data lane."""

    def __init__(self, tracer: Tracer, *, ratio: float, draw: Callable[[], float]) -> None:
        """ratio: share of the requests, 0 to 1. draw: a number in [0, 1), drawn for each request."""
        self._tracer = tracer
        self._ratio = ratio
        self._draw = draw

    def traced(self, api: Api) -> Api:
        """The same API; of Produce, with a handler that is traced."""
        if api.key is not ApiKey.PRODUCE:
            return api
        handler, draw, ratio = api.handler, self._draw, self._ratio

        def handle(
            services: BrokerServices, slot: ResponseSlot, version: int, frame: memoryview, position: int
        ) -> None:
            if draw() >= ratio:
                handler(services, slot, version, frame, position)
                return
            trace = _ProduceTrace(self._tracer, services, slot, version)
            try:
                handler(trace.services, slot, version, frame, position)
            except BaseException as error:
                trace.fail(error)
                raise
            trace.handled()

        return replace(api, handler=handle)


class _ProduceTrace:
    """One traced request."""

    def __init__(self, tracer: Tracer, services: BrokerServices, slot: ResponseSlot, version: int) -> None:
        self._tracer = tracer
        self._root = tracer.start_span("produce", kind=SpanKind.SERVER)
        self._root.set_attributes(
            {
                "rpc.system": "kafka",
                "rpc.method": "Produce",
                "barnabas.node_id": int(services.node_id),
                "barnabas.api_version": version,
                "barnabas.listener": slot.listener_name,
            }
        )
        self._context = set_span_in_context(self._root)
        self._about: dict[str, Any] = {}
        self._open: Span | None = None
        self._is_appending = self._is_handed_on = self._is_over = False
        self.services: BrokerServices = replace(
            services,
            replica_manager=_Watched(services.replica_manager, self),  # type: ignore[arg-type]  # stands for it here
            transactional=_Watched(services.transactional, self),  # type: ignore[arg-type]
        )

    def append(self, append: Callable[..., None], words: tuple[Any, ...], options: dict[str, Any]) -> None:
        """Call append_records; its entries are the last word."""
        self._is_handed_on = True
        entries: Sequence[AppendEntry] = words[-1]
        shown = [(entry[0], entry[1], len(entry[2])) for entry in entries[:PARTITIONS_MAX]]
        topics, partitions, sizes = zip(*shown, strict=True)
        self._about = {"barnabas.topics": topics, "barnabas.partitions": partitions, "barnabas.bytes": sizes}
        acks = options["required_acks"]
        self._root.set_attributes(
            {
                **self._about,
                "barnabas.acks": acks,
                "barnabas.partition_count": len(entries),
                "barnabas.is_transactional": len(words) > 1,
            }
        )
        respond = options.pop("respond")
        self._begin("append")
        self._is_appending = True
        append(*words, **options, respond=lambda outcomes: self._answer(respond, outcomes))
        self._is_appending = False
        if not self._is_over:
            self._end()
            self._begin("replicated" if acks == ACKS_ALL else "flushed")

    def handled(self) -> None:
        """The handler returned; one that refused every partition handed nothing on."""
        if not self._is_handed_on:
            asyncio.get_running_loop().call_soon(self._finish)

    def fail(self, error: BaseException) -> None:
        """The handler failed."""
        self._root.record_exception(error)
        self._root.set_status(Status(StatusCode.ERROR, type(error).__name__))
        self._finish()

    def _answer(self, respond: Callable[[list[AppendOutcome]], None], outcomes: list[AppendOutcome]) -> None:
        self._is_over = True
        self._end()
        self._begin("answered")
        shown = outcomes[:PARTITIONS_MAX]
        self._root.set_attribute("barnabas.base_offsets", [int(outcome.base_offset) for outcome in shown])
        errors = sorted({outcome.error.code.name for outcome in outcomes if outcome.error is not None})
        if errors:
            self._root.set_attribute("barnabas.errors", errors)
            self._root.set_status(Status(StatusCode.ERROR, ", ".join(errors)))
        respond(outcomes)
        # Behind the flush of this turn, which the answer has just scheduled.
        asyncio.get_running_loop().call_soon(self._finish)

    def _finish(self) -> None:
        self._end()
        self._root.end()

    def _begin(self, name: str) -> None:
        self._open = self._tracer.start_span(name, context=self._context, attributes=self._about)

    def _end(self) -> None:
        if self._open is not None:
            self._open.end()
            self._open = None


class _Watched:
    """The replica manager, or the transactional writes, for the handler of one request."""

    def __init__(self, watched: Any, trace: _ProduceTrace) -> None:
        self._watched = watched
        self._trace = trace

    @property
    def appends(self) -> _Watched:
        """The appends of a replica manager: the one part of it that the handler of a produce request asks."""
        return _Watched(self._watched.appends, self._trace)

    def append_records(self, *words: Any, **options: Any) -> None:
        """See those watched."""
        self._trace.append(self._watched.append_records, words, options)
