"""One node as a process: the two lanes, the signals, the exit status.

May touch:  signals, threads through the control lane.   Must not touch: the parts of the node (node.py).
Invariants: the first SIGTERM or SIGINT stops in order; one a second later or more does not wait; a failure is logged and exits
            with 1.
Read next:  node.py; real_world.py.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import signal
from collections.abc import Callable

from barnabas_broker.metadata.meta_properties import StorageError
from barnabas_broker.node.control_lane import ControlLane
from barnabas_broker.node.descriptor_budget import DescriptorBudget, claim_descriptors
from barnabas_broker.node.node import Node
from barnabas_broker.node.properties import NodeConfig
from barnabas_broker.node.real_world import RealWorld
from barnabas_broker.node.service_manager import ServiceManager
from barnabas_log.disk import RealDisk
from barnabas_wire.error_groups import first_error
from barnabas_wire.kafka.errors import ErrorCode, KafkaError

logger = logging.getLogger(__name__)

EXIT_FAILED = 1
STATUS_MAX = 500
"""Characters of a status: whoever reads it finds the rest in the log."""
SAME_REQUEST_S = 1.0
"""`timeout` and others signal the process and then its whole group: that is one request to stop, not two."""


def run_node(
    config: NodeConfig,
    *,
    open_disk: Callable[[], RealDisk] = RealDisk,
    service_manager: ServiceManager | None = None,
) -> int:
    """Run until stopped; returns the exit status. Raises KafkaError for what the operator must mend before a start.

    service_manager: hears when the node is ready and when it stops.
    open_disk: makes each Disk that the node uses; a proof of power loss brings one that remembers what was not flushed.
    """
    descriptors = claim_descriptors(
        connections_wanted=config.network.max_connections,
        reserve_wanted=config.network.inter_broker_connections_reserved,
    )
    return asyncio.run(_run(config, descriptors, open_disk, service_manager or ServiceManager()))


async def _run(
    config: NodeConfig,
    descriptors: DescriptorBudget,
    open_disk: Callable[[], RealDisk],
    service_manager: ServiceManager,
) -> int:
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    asked_s = 0.0

    def on_signal() -> None:
        nonlocal asked_s
        if not stop.is_set():
            asked_s = loop.time()
            service_manager.notify("STOPPING=1", "STATUS=handing over")
            stop.set()
        elif loop.time() - asked_s >= SAME_REQUEST_S:
            logger.warning("stopping at once: asked a second time")
            os._exit(EXIT_FAILED)

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, on_signal)
    # What start-up made stays: the collector need not look at it again and again.
    gc.freeze()
    gc.enable()
    control = ControlLane()
    try:
        world = RealWorld(
            control=control, descriptors=descriptors, open_disk=open_disk, service_manager=service_manager
        )
        await Node(config, world).run(stop)
    except Exception as error:
        refusal = refusal_of(error)
        if refusal is not None:
            raise refusal from None
        logger.exception("node %d stops because of an error", config.server.node_id)
        service_manager.notify(f"STATUS=stops because of an error: {first_error(error)!r}"[:STATUS_MAX])
        return EXIT_FAILED
    finally:
        control.close()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.remove_signal_handler(number)
            signal.signal(number, signal.SIG_IGN)  # by default the last moments would end as a death by signal
    return 0


def refusal_of(error: BaseException) -> KafkaError | None:
    """What is said in one line of the error that ended a node; None for one that is logged with its traceback."""
    if isinstance(error, KafkaError):
        return error
    refused = error.subgroup(_is_refusal) if isinstance(error, BaseExceptionGroup) else None
    if refused is None:
        return None
    first = first_error(refused)
    assert isinstance(first, KafkaError), "nothing else is a refusal"
    return first


_REFUSED_FOR_GOOD = {
    ErrorCode.UNSUPPORTED_VERSION,
    ErrorCode.INCONSISTENT_CLUSTER_ID,
    ErrorCode.DUPLICATE_BROKER_REGISTRATION,
    ErrorCode.INVALID_REGISTRATION,
}
"""A cluster refuses to register a node: it runs a level that this version does not serve, it is another cluster, the id is taken,
the properties do not fit."""


def _is_refusal(failure: BaseException) -> bool:
    """Whether an operator must act, and a traceback would only hide what to do."""
    return isinstance(failure, StorageError) or (isinstance(failure, KafkaError) and failure.code in _REFUSED_FOR_GOOD)
