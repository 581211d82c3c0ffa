"""The blocking client of the gRPC admin service.

May touch:  gRPC.                     Must not touch: Kafka connections, files.
Invariants: every call has a deadline; a call moves on to the next address only when the node cannot be reached, so
            a change is never sent twice after a node may have seen it.
Read next:  invocation.py, which gives one to each command.
"""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any, TypeVar

import grpc
from google.protobuf.message_factory import GetMessageClass

from barnabas_admin.errors import AdminError, NotAsked, WrongUsage
from barnabas_wire.client.properties import AdminSecurity
from barnabas_wire.client.security import SaslLogin, scram_steps
from barnabas_wire.kafka.errors import ErrorCode, KafkaError
from barnabas_wire.kafka.schema import Message, decode_response, encode_request, message_classes
from barnabas_wire.rpc import (
    admin_pb2,
    controller_pb2,
    explain_pb2,
    inspection_pb2,
    login_pb2,
    login_pb2_grpc,
)
from barnabas_wire.rpc import admin_verbs as verbs
from barnabas_wire.rpc.error_details import HINTS
from barnabas_wire.rpc.options import VISITOR_OPTIONS, address_of

Asked = TypeVar("Asked")
Answer = TypeVar("Answer")

ERROR_METADATA_KEY = "barnabas-error-bin"
ANSWER_MARGIN_MS = 200
"""A controller is waited for so much shorter than the node that asks it."""
TOKEN_USE_SHARE = 0.9
"""A login is repeated after this share of the time its token is valid."""
CONNECT_TIMEOUT_S = 3.0
"""How long one address is tried before the next one."""
CONNECT_TIMEOUT_S_MIN = 0.25
"""The last address gets this much, however little time is left: a channel that is closed while it connects makes grpc print a
traceback, and may hang the process at its end."""


class AdminClient:
    """One cluster's admin service behind a list of addresses (`host:port,…`). For one thread; use as a context manager.

    Every method raises AdminError. `timeout_s` bounds each call, connecting included.
    """

    def __init__(
        self,
        addresses: str,
        *,
        timeout_s: float,
        security: AdminSecurity | None = None,
        ask_brokers: Callable[[Message], Any] | None = None,
        absent: NotAsked | None = None,
    ) -> None:
        """
        Args:
            security: None: the listeners are plain text.
            ask_brokers: has a Kafka listener answer a request, for what the admin listeners do not let in.
            absent: why there are no addresses; raised by what only an admin listener answers.
        """
        self._ask_brokers = ask_brokers
        self._absent = absent
        self._security = security
        self._metadata: tuple[tuple[str, str], ...] = ()
        self._logged_in_until = math.inf
        self._addresses = [] if absent is not None else parse_addresses(addresses)
        self._timeout_s = timeout_s
        self._channel: grpc.Channel | None = None

    def __enter__(self) -> AdminClient:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the channel; a later call opens a new one."""
        if self._channel is not None:
            self._channel.close()
        self._channel = None

    def describe_cluster(self) -> admin_pb2.DescribeClusterResponse:
        """Brokers, controllers and the answering node's view of the metadata."""
        return self._call(admin_pb2.DescribeClusterRequest(), admin_pb2.DescribeClusterResponse)

    def kafka_addresses(self) -> str:
        """host:port,… of a Kafka listener of each broker in service."""
        found = [
            address_of(listener.host, listener.port)
            for broker in self.describe_cluster().brokers
            if not broker.fenced
            for listener in broker.listeners[:1]
        ]
        if not found:
            raise AdminError(
                "no broker is in service", code=ErrorCode.BROKER_NOT_AVAILABLE, hint="see `barnabas cluster health`"
            )
        return ",".join(found)

    def describe_health(self) -> admin_pb2.DescribeHealthResponse:
        """Healthy or not, and why."""
        return self._call(admin_pb2.DescribeHealthRequest(), admin_pb2.DescribeHealthResponse)

    def describe_quorum(self) -> admin_pb2.DescribeQuorumResponse:
        """Voters and observers as the quorum's leader sees them."""
        return self._call(admin_pb2.DescribeQuorumRequest(), admin_pb2.DescribeQuorumResponse)

    def add_voter(
        self, node_id: int, *, host: str, port: int, directory_id: str = ""
    ) -> admin_pb2.ChangeVotersResponse:
        """Let a controller vote in the quorum; without a directory id the one it fetches with. Waits for the commit."""
        request = admin_pb2.ChangeVotersRequest(
            kind=admin_pb2.ChangeVotersRequest.ADD, id=node_id, directory_id=directory_id, host=host, port=port
        )
        return self._call(request, admin_pb2.ChangeVotersResponse)

    def remove_voter(self, node_id: int, *, directory_id: str = "") -> admin_pb2.ChangeVotersResponse:
        """Take a controller's vote. Waits for the commit."""
        request = admin_pb2.ChangeVotersRequest(
            kind=admin_pb2.ChangeVotersRequest.REMOVE, id=node_id, directory_id=directory_id
        )
        return self._call(request, admin_pb2.ChangeVotersResponse)

    def list_brokers(self) -> admin_pb2.DescribeClusterResponse:
        """Every registered broker."""
        return self.describe_cluster()

    def list_topics(self, *, include_internal: bool = False) -> Sequence[admin_pb2.TopicSummary]:
        """Topics by name."""
        request = admin_pb2.ListTopicsRequest(include_internal=include_internal)
        return self._ask_by_right(verbs.list_topics, request).topics

    def describe_topics(self, names: Iterable[str]) -> Sequence[admin_pb2.Topic]:
        """One entry per name, in order; an unknown one carries its error."""
        request = admin_pb2.DescribeTopicsRequest(names=names)
        return self._ask_by_right(verbs.describe_topics, request).topics

    def create_topics(
        self,
        names: Iterable[str],
        *,
        partitions: int = -1,
        replication_factor: int = -1,
        configs: Mapping[str, str] | None = None,
        validate_only: bool = False,
    ) -> Sequence[admin_pb2.TopicOutcome]:
        """Create topics of one shape; -1 takes the cluster's default. One outcome per name."""
        topics = [
            admin_pb2.NewTopic(
                name=name, partitions=partitions, replication_factor=replication_factor, configs=configs or {}
            )
            for name in names
        ]
        request = admin_pb2.CreateTopicsRequest(topics=topics, validate_only=validate_only)
        return self._carry(verbs.create_topics, request).topics

    def delete_topics(self, names: Iterable[str]) -> Sequence[admin_pb2.TopicOutcome]:
        """Delete topics and their data. One outcome per name."""
        return self._carry(verbs.delete_topics, admin_pb2.DeleteTopicsRequest(names=names)).topics

    def add_partitions(self, name: str, *, total: int, validate_only: bool = False) -> admin_pb2.TopicOutcome:
        """Grow a topic to `total` partitions."""
        request = admin_pb2.AddPartitionsRequest(name=name, total=total, validate_only=validate_only)
        return self._carry(verbs.add_partitions, request).topic

    def describe_configs(
        self, resource_type: admin_pb2.ResourceType, name: str, *, only_overrides: bool = False
    ) -> Sequence[admin_pb2.ConfigEntry]:
        """Configs of a topic or broker (admin_pb2.RESOURCE_TYPE_*)."""
        request = admin_pb2.DescribeConfigsRequest(type=resource_type, name=name, only_overrides=only_overrides)
        return self._carry(verbs.describe_configs, request).entries

    def alter_configs(
        self,
        resource_type: admin_pb2.ResourceType,
        name: str,
        changes: Mapping[str, str | None],
        *,
        validate_only: bool = False,
    ) -> None:
        """Set (text) or remove (None) overrides, all or none of them."""
        entries = [admin_pb2.ConfigChange(key=key, value=value) for key, value in changes.items()]
        request = admin_pb2.AlterConfigsRequest(
            type=resource_type, name=name, changes=entries, validate_only=validate_only
        )
        self._carry(verbs.alter_configs, request)

    def elect_leaders(
        self, partitions: Iterable[tuple[str, int]] | None, *, unclean: bool = False
    ) -> Sequence[admin_pb2.PartitionOutcome]:
        """Elect preferred leaders, or any live replica; None = every partition that needs it."""
        names = [admin_pb2.TopicPartition(topic=topic, partition=index) for topic, index in partitions or ()]
        request = admin_pb2.ElectLeadersRequest(unclean=unclean, all=partitions is None, partitions=names)
        return self._carry(verbs.elect_leaders, request).partitions

    def alter_reassignments(
        self, wanted: Mapping[tuple[str, int], Sequence[int]], *, validate_only: bool = False
    ) -> Sequence[admin_pb2.PartitionOutcome]:
        """Move partitions to these brokers; no brokers = cancel. One outcome per partition."""
        items = [
            admin_pb2.Reassignment(topic=topic, partition=index, replicas=replicas)
            for (topic, index), replicas in wanted.items()
        ]
        request = admin_pb2.AlterReassignmentsRequest(reassignments=items, validate_only=validate_only)
        return self._carry(verbs.alter_reassignments, request).partitions

    def list_reassignments(self, topics: Iterable[str] = ()) -> Sequence[admin_pb2.OngoingReassignment]:
        """What is under way; no topics = all."""
        return self._carry(verbs.list_reassignments, admin_pb2.ListReassignmentsRequest(topics=topics)).reassignments

    def ask_controller(self, call: Any, answer_type: type[Answer]) -> Answer:
        """Have the active controller answer one of its own calls (controller.proto), a node in between forwards it."""
        answer: Answer = self._ask(_CONTROLLER.methods_by_name[type(call).__name__.removesuffix("Call")], call)
        return answer

    def call_former(self, method: str, request: Any) -> Any:
        """A call of the former version, for a node that raised FormerNode."""
        return self._ask(_ADMIN.methods_by_name[method], request)

    def unregister_broker(self, broker_id: int) -> None:
        """Forget a broker that is out of service."""
        self._carry(verbs.unregister_broker, admin_pb2.UnregisterBrokerRequest(broker_id=broker_id))

    def describe_features(self) -> Sequence[admin_pb2.FeatureView]:
        """Feature levels, and what each registered node serves."""
        return self._call(admin_pb2.DescribeFeaturesRequest(), admin_pb2.DescribeFeaturesResponse).features

    def update_features(
        self, levels: Mapping[str, int], *, kind: int, validate_only: bool = False
    ) -> Sequence[admin_pb2.FeatureOutcome]:
        """Set levels, all or none; `kind` 1 upgrade, 2 safe downgrade, 3 unsafe downgrade. One outcome per feature."""
        changes = [admin_pb2.FeatureChange(name=name, level=level, kind=kind) for name, level in levels.items()]
        request = admin_pb2.UpdateFeaturesRequest(changes=changes, validate_only=validate_only)
        return self._call(request, admin_pb2.UpdateFeaturesResponse).features

    def unregister_controller(self, controller_id: int) -> None:
        """Forget a controller that is gone for good."""
        self._call(
            admin_pb2.UnregisterControllerRequest(controller_id=controller_id), admin_pb2.UnregisterControllerResponse
        )

    def explain_leader(self) -> explain_pb2.ExplainResponse:
        """Who leads the quorum, or why it has no leader; each controller is asked directly."""
        return self._explain(explain_pb2.ExplainRequest(subject=explain_pb2.ExplainRequest.LEADER))

    def explain_broker(self, broker_id: int) -> explain_pb2.ExplainResponse:
        """Why a broker is fenced, or what else it is."""
        request = explain_pb2.ExplainRequest(subject=explain_pb2.ExplainRequest.BROKER, broker_id=broker_id)
        return self._explain(request)

    def explain_partition(self, topic: str, partition: int) -> explain_pb2.ExplainResponse:
        """Why a partition has no leader, or lacks replicas."""
        request = explain_pb2.ExplainRequest(
            subject=explain_pb2.ExplainRequest.PARTITION, topic=topic, partition=partition
        )
        return self._explain(request)

    def explain_reassignment(
        self, topic: str, partition: int, *, replicas: Iterable[int] = ()
    ) -> explain_pb2.ExplainResponse:
        """What the reassignment under way waits for, or why one to `replicas` is refused."""
        request = explain_pb2.ExplainRequest(
            subject=explain_pb2.ExplainRequest.REASSIGNMENT, topic=topic, partition=partition, replicas=replicas
        )
        return self._explain(request)

    def _explain(self, request: explain_pb2.ExplainRequest) -> explain_pb2.ExplainResponse:
        answer: explain_pb2.ExplainResponse = self._ask(_EXPLAINER.methods_by_name["Explain"], request)
        return answer

    def inspect(self, method: str, request: Any) -> Any:
        """One call of the inspection service (inspection.proto)."""
        return self._ask(_INSPECTION.methods_by_name[method], request)

    def inspect_stream(self, method: str, request: Any, *, is_endless: bool = False) -> Iterator[Any]:
        """One call of the inspection service that answers in pages; an endless one has no deadline."""
        deadline = time.monotonic() + self._timeout_s
        channel = self._ready_channel(deadline)
        timeout_s = None if is_endless else max(0.001, deadline - time.monotonic())
        try:
            described = _INSPECTION.methods_by_name[method]
            yield from channel.unary_stream(*_wire_of(described))(request, timeout=timeout_s, metadata=self._metadata)
        except grpc.RpcError as error:
            raise self._translate(error) from error

    def _carry(self, verb: Callable[[Asked], verbs.Asking[Answer]], request: Asked) -> Answer:
        """Have a verb's Kafka requests answered at the admin listener, or where that lets nobody in, at a Kafka listener. A node of
        the former version gets the request itself, in its own form."""
        try:
            return self._drive(verb, request, self._carry_one)
        except FormerNode:
            answer: Answer = self.call_former(_verb_of(request), request)
            return answer
        except NotAsked as refused:
            return self._by_kafka(verb, request, refused)

    def _ask_by_right(self, verb: Callable[[Asked], verbs.Asking[Answer]], request: Asked) -> Answer:
        """Ask for the cluster's own view; whoever has no right to that gets what the own rights show, by Kafka's requests."""
        try:
            seen: Answer = self.call_former(_verb_of(request), request)
            return seen
        except NotAsked as refused:
            return self._by_kafka(verb, request, refused)
        except AdminError as refused:
            if refused.code is not ErrorCode.CLUSTER_AUTHORIZATION_FAILED:
                raise
            if self._ask_brokers is not None:
                return self._by_kafka(verb, request, refused)
            with contextlib.suppress(FormerNode):
                answer = self._drive(verb, request, self._carry_one)
                if answer.ByteSize():  # type: ignore[attr-defined]  # of every message
                    return answer
            raise  # nothing is to be seen, and this says why

    def _by_kafka(self, verb: Callable[[Asked], verbs.Asking[Answer]], request: Asked, refused: AdminError) -> Answer:
        """Ask brokers at their Kafka listeners. Raises `refused` where none is known or none answers."""
        ask = self._ask_brokers
        if ask is None:
            raise refused

        def ask_one(message: Message, is_dry: bool) -> Any:
            if is_dry:
                raise refused  # what Kafka's message cannot say
            try:
                return ask(message)
            except (OSError, AdminError) as error:
                raise refused from error

        return self._drive(verb, request, ask_one)

    def _drive(
        self,
        verb: Callable[[Asked], verbs.Asking[Answer]],
        request: Asked,
        ask: Callable[[Message, bool], Any],
    ) -> Answer:
        """Run a verb. `ask`: (Kafka request, whether nothing may be changed) -> response."""
        asking = verb(request)
        try:
            message = next(asking)
            while True:
                if hasattr(message, "timeout_ms"):
                    message.timeout_ms = max(1, int(self._timeout_s * 1000) - ANSWER_MARGIN_MS)
                message = asking.send(ask(message, verbs.is_dry(request, message)))
        except StopIteration as done:
            answer: Answer = done.value
            return answer
        except AdminError:
            raise
        except KafkaError as error:
            raise AdminError(error.message, code=error.code, hint=HINTS.get(error.code, "")) from None

    def _carry_one(self, message: Message, is_dry: bool) -> Any:
        version, body = verbs.VERSIONS[message.API_KEY], bytearray()
        encode_request(message, version, body)
        call = admin_pb2.KafkaCall(api_key=message.API_KEY, api_version=version, body=bytes(body), validate_only=is_dry)
        answer = self._ask(_ADMIN.methods_by_name["CallKafka"], call)
        return decode_response(message_classes(message.API_KEY)[1], version, answer.body)

    def _call(self, request: Any, answer_type: type[Answer]) -> Answer:
        """The call of the admin service that takes such a request."""
        answer: Answer = self._ask(_ADMIN.methods_by_name[_verb_of(request)], request)
        return answer

    def _ask(self, method: Any, request: Any) -> Any:
        """method: as protobuf describes it."""
        deadline = time.monotonic() + self._timeout_s
        channel = self._ready_channel(deadline)
        try:
            return channel.unary_unary(*_wire_of(method))(
                request, timeout=max(0.001, deadline - time.monotonic()), metadata=self._metadata
            )
        except grpc.RpcError as error:
            raise self._translate(error) from error

    def _ready_channel(self, deadline: float) -> grpc.Channel:
        """One on which calls are let in."""
        channel = self._channel or self._connect(deadline)
        login = None if self._security is None else self._security.login
        if login is not None and (not self._metadata or time.monotonic() >= self._logged_in_until):
            self._log_in(channel, login, deadline)
        return channel

    def _log_in(self, channel: grpc.Channel, login: SaslLogin, deadline: float) -> None:
        """SCRAM in two calls; the token of the answer goes with every other call."""
        stub = login_pb2_grpc.LoginStub(channel)
        steps = scram_steps(login)
        try:
            begun = stub.BeginLogin(
                login_pb2.BeginLoginRequest(mechanism=login.mechanism, client_first=next(steps)),
                timeout=max(0.001, deadline - time.monotonic()),
            )
            finished = stub.FinishLogin(
                login_pb2.FinishLoginRequest(exchange=begun.exchange, client_final=steps.send(begun.server_first)),
                timeout=max(0.001, deadline - time.monotonic()),
            )
            with contextlib.suppress(StopIteration):
                steps.send(finished.server_final)
        except grpc.RpcError as error:
            if error.code() is grpc.StatusCode.UNIMPLEMENTED:
                raise AdminError(
                    f"{self._addresses[0]} has no logins",
                    code=ErrorCode.UNSUPPORTED_SASL_MECHANISM,
                    hint="its admin listener takes certificates: admin.security.protocol=SSL in the client config",
                ) from error
            raise self._translate(error) from error
        self._metadata = (("authorization", f"Bearer {finished.token}"),)
        self._logged_in_until = time.monotonic() + finished.lifetime_ms / 1000 * TOKEN_USE_SHARE

    def _open(self, address: str) -> grpc.Channel:
        security = self._security
        if security is None:
            return grpc.insecure_channel(address, options=VISITOR_OPTIONS)
        credentials = grpc.ssl_channel_credentials(security.roots, security.own, security.own)
        return grpc.secure_channel(address, credentials, options=VISITOR_OPTIONS)

    def _connect(self, deadline: float) -> grpc.Channel:
        """Open a channel to the first address that answers, and put it first for the next time."""
        self._metadata = ()
        if self._absent is not None:
            raise self._absent
        for index, address in enumerate(self._addresses):
            channel = self._open(address)
            left_s = max(CONNECT_TIMEOUT_S_MIN, min(CONNECT_TIMEOUT_S, deadline - time.monotonic()))
            if _is_reachable(channel, left_s):
                self._channel = channel
                self._addresses.insert(0, self._addresses.pop(index))
                return channel
            channel.close()
        if self._security is not None:
            raise NotAsked(
                f"no node answers at {', '.join(self._addresses)} over TLS",
                code=ErrorCode.NETWORK_EXCEPTION,
                hint="check the addresses, ssl.truststore.location, and ssl.keystore.location where certificates are demanded",
            )
        from barnabas_admin.port_probe import KAFKA, TLS, TLS_HINT, recognise

        listens = recognise(self._addresses[0])
        if listens == TLS:
            message = f"{self._addresses[0]} speaks TLS, and this client does not"
            raise AdminError(message, code=ErrorCode.INVALID_REQUEST, hint=TLS_HINT)
        if listens is not None:
            fix = (
                "name it with -b: its cluster's admin listeners are found from there"
                if listens == KAFKA
                else ("the admin listener is the port of admin.listeners in the node's properties")
            )
            raise AdminError(
                f"{self._addresses[0]} is {listens}, not an admin listener", code=ErrorCode.INVALID_REQUEST, hint=fix
            )
        raise NotAsked(
            f"no node answers at {', '.join(self._addresses)}",
            code=ErrorCode.NETWORK_EXCEPTION,
            hint="start a cluster with `barnabas dev`, or name its admin listeners with --admin HOST:PORT",
        )

    def _translate(self, error: grpc.RpcError) -> AdminError:
        for metadatum in error.trailing_metadata() or ():
            if metadatum.key == ERROR_METADATA_KEY:
                return error_from_detail(admin_pb2.ErrorDetail.FromString(metadatum.value))
        where = self._addresses[0]
        if error.code() is grpc.StatusCode.DEADLINE_EXCEEDED:
            return AdminError(
                f"{where} did not answer within {self._timeout_s:g} s",
                code=ErrorCode.REQUEST_TIMED_OUT,
                hint="try again, or give it longer with --timeout SECONDS",
            )
        if error.code() is grpc.StatusCode.UNAUTHENTICATED:
            self._metadata = ()
            return NotAsked(
                f"{where} lets nobody in without authentication: {error.details()}",
                code=ErrorCode.SASL_AUTHENTICATION_FAILED,
                hint="--client-config FILE with admin.security.protocol=SSL and ssl.keystore.location, or SASL_SSL and a login",
            )
        self.close()
        if error.code() is grpc.StatusCode.UNIMPLEMENTED:
            return FormerNode(
                f"{where} is a gRPC listener without this service: a controller's, or a node of another version",
                code=ErrorCode.UNSUPPORTED_VERSION,
                hint="the admin listener is the port of admin.listeners in the node's properties; a node of another version takes "
                "the command line of its version",
            )
        if error.code() is grpc.StatusCode.UNAVAILABLE:
            return AdminError(f"lost the connection to {where}", code=ErrorCode.NETWORK_EXCEPTION, hint="try again")
        return AdminError(f"{where} failed: {error.details()}", code=ErrorCode.UNKNOWN_SERVER_ERROR)


_ADMIN, _CONTROLLER, _EXPLAINER, _INSPECTION = (
    module.DESCRIPTOR.services_by_name[name]
    for module, name in (
        (admin_pb2, "Admin"),
        (controller_pb2, "Controller"),
        (explain_pb2, "Explainer"),
        (inspection_pb2, "Inspection"),
    )
)
"""The services of an admin listener, but for the login."""


def _verb_of(request: Any) -> str:
    return type(request).__name__.removesuffix("Request")


def _wire_of(method: Any) -> tuple[str, Callable[[Any], bytes], Callable[[bytes], Any]]:
    """Path of a method, what writes its request and what reads its answer."""
    path = f"/{method.containing_service.full_name}/{method.name}"
    return path, GetMessageClass(method.input_type).SerializeToString, GetMessageClass(method.output_type).FromString


class FormerNode(NotAsked):
    """The node that answers does not know the call."""


def error_from_detail(detail: admin_pb2.ErrorDetail) -> AdminError:
    """The exception that a message from the service stands for."""
    return AdminError(detail.message, code=ErrorCode(detail.code), hint=detail.hint, is_retriable=detail.retriable)


def parse_addresses(text: str) -> list[str]:
    """The admin listeners in `host:port,…`; raises AdminError when there is none, or one that is something else."""
    addresses = [address.strip() for address in text.split(",") if address.strip()]
    for address in addresses or [text]:
        host, separator, port = address.rpartition(":")
        if not (host and separator and port.isdecimal()):
            raise WrongUsage(
                f"{address!r} is no admin address",
                code=ErrorCode.INVALID_REQUEST,
                hint="name admin listeners as HOST:PORT,HOST:PORT with --admin or BARNABAS_ADMIN",
            )
    return addresses


def _is_reachable(channel: grpc.Channel, timeout_s: float) -> bool:
    """Whether a gRPC server answers; a refused connection ends the wait at once.

    Any answer will do, also that there is no such method. Watching the state of the channel would do as well, but then its
    close takes gRPC 0.2 s, which every command would pay.
    """
    try:
        ask: grpc.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary("/barnabas.Reachable/Ask")
        ask(b"", timeout=timeout_s)
    except grpc.RpcError as error:
        return error.code() is grpc.StatusCode.UNIMPLEMENTED
    return True
