"""Which node of which cluster is at the other end of a connection: the name in its certificate.

May touch:  grpc.aio's context of a call.    Must not touch: files, sockets, images.
Invariants: a node is known by the DNS name `node-<id>.<cluster id in hex>` of its certificate and by nothing else; who has no
            such name is no node, whatever authority has signed its certificate.
Read next:  dialing.py (what clients demand), and the guard below (what servers check).
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

import grpc
import grpc.aio

from barnabas_wire.kafka.ids import BrokerId, Uuid

_NAME = re.compile(r"node-(0|[1-9][0-9]{0,9})\.([0-9a-f]{32})")
_DNS_NAMES = "peer_dns"
"""gRPC's property of a connection that has the DNS names alone; another has URIs and e-mail addresses among them."""


def peer_name(node_id: int, cluster_id: str) -> str:
    """The DNS name of a node. Raises ValueError for a cluster id that is none.

    In hex because DNS names do not distinguish upper case from lower, and the text of a cluster id does.
    """
    return f"node-{node_id}.{Uuid.parse(cluster_id).hex()}"


def nodes_named(names: Iterable[str]) -> list[tuple[BrokerId, str]]:
    """Node id and cluster id of every name of a certificate that is a node's."""
    found = (_NAME.fullmatch(name) for name in names)
    return [(BrokerId(int(each[1])), str(Uuid(bytes.fromhex(each[2])))) for each in found if each is not None]


ClaimOf = Callable[[Any], int | None]
"""The id that a request says its sender has; None for a request that says nothing of it."""


class PeerGuard(grpc.aio.ServerInterceptor):
    """Lets nodes of the cluster call, each in its own name, and nobody else. Checks every method of a listener.

    The connection must be one that demanded a certificate of the cluster's authority (mutual TLS).
    """

    def __init__(self, cluster_id: str, claim_of: ClaimOf) -> None:
        self._cluster_id = cluster_id
        self._claim_of = claim_of

    def caller(self, context: Any) -> BrokerId | None:
        """The node at the other end; None: somebody else."""
        names = (name.decode("utf-8", "replace") for name in context.auth_context().get(_DNS_NAMES, ()))
        return next((node for node, cluster in nodes_named(names) if cluster == self._cluster_id), None)

    async def intercept_service(self, continuation: Callable[[Any], Awaitable[Any]], handler_call_details: Any) -> Any:
        """See grpc.aio."""
        handler = await continuation(handler_call_details)
        if handler is None:
            return None
        if handler.stream_stream is not None:
            return grpc.stream_stream_rpc_method_handler(
                self._guard(handler.stream_stream, is_stream=True),
                handler.request_deserializer,
                handler.response_serializer,
            )
        assert handler.unary_unary is not None, (
            f"{handler_call_details.method}: this listener knows no such kind of method"
        )
        return grpc.unary_unary_rpc_method_handler(
            self._guard(handler.unary_unary, is_stream=False), handler.request_deserializer, handler.response_serializer
        )

    def _guard(self, behaviour: Any, *, is_stream: bool) -> Any:
        async def guarded(request: Any, context: Any) -> Any:
            caller = self.caller(context)
            if caller is None:
                await context.abort(
                    grpc.StatusCode.UNAUTHENTICATED,
                    f"only nodes of cluster {self._cluster_id} may call this listener: show a certificate with the name "
                    f"{peer_name(0, self._cluster_id).replace('node-0', 'node-ID')} (barnabas pki issue --node ID --cluster-id …)",
                )
            claimed = None if is_stream else self._claim_of(request)
            if claimed is not None and claimed != caller:
                await context.abort(
                    grpc.StatusCode.PERMISSION_DENIED,
                    f"this is the certificate of node {caller}, and the call is node {claimed}'s",
                )
            return await behaviour(request, context)

        return guarded
