"""One address, as a client comes to it: its name, its port, its TLS, its login, and what it tells of the cluster.

May touch:  barnabas_wire.client, sockets.    Must not touch: printing.
Invariants: an address takes no longer than `timeout_s` and a probe of what listens there; of one address at most one thing is said, the
            first that stops a client.
Read next:  ../port_probe.py; finding.py.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from barnabas_admin.discovery import BROKER, LOOPBACKS
from barnabas_admin.doctor.finding import Cause, Finding
from barnabas_admin.port_probe import GRPC, HTTP, KAFKA, TLS, recognise
from barnabas_wire.client.aio import AioConnection
from barnabas_wire.client.metadata import Broker
from barnabas_wire.client.security import ClientSecurity
from barnabas_wire.kafka.errors import ErrorCode, KafkaError
from barnabas_wire.kafka.ids import BrokerId
from barnabas_wire.kafka.messages import ApiKey
from barnabas_wire.kafka.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from barnabas_wire.kafka.messages.metadata import MetadataRequest, MetadataResponse
from barnabas_wire.kafka.messages.sasl_handshake import SaslHandshakeRequest
from barnabas_wire.rpc.options import address_of

CLIENT_ID = "barnabas-doctor"
LOOK_S = 1.5
"""How long an address has to answer. What drops packets never does."""
PROBE_S = 0.4
"""For each of the questions by which a stranger at an address is recognised."""
_HOST_WRONG, _EXPIRED = 62, 10
"""What OpenSSL calls a certificate of another name, and one whose time is over."""


class Seen(NamedTuple):
    """What came of one address."""

    address: tuple[str, int]
    finding: Finding | None
    cluster_id: str | None = None
    brokers: tuple[Broker, ...] = ()
    other_broker: bool = False
    """Whether it says that it is not the broker that was asked for."""


async def look(
    host: str, port: int, security: ClientSecurity, *, broker_id: int | None = None, timeout_s: float = LOOK_S
) -> Seen:
    """Come to that address as a client with this security would. broker_id: the node that is said to listen there."""
    where = address_of(host, port)
    loop = asyncio.get_running_loop()
    try:
        await asyncio.wait_for(loop.getaddrinfo(host, port, type=socket.SOCK_STREAM), timeout_s)
    except (OSError, UnicodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        return _wrong(
            (host, port),
            Cause.NAME_UNKNOWN,
            f"{host} resolves to no address here ({reason})",
            "name a host that this machine resolves, or give it that name (DNS, /etc/hosts)",
        )
    try:
        connection = await AioConnection.connect(
            host, port, client_id=CLIENT_ID, timeout_s=timeout_s, security=security
        )
    except (OSError, KafkaError) as error:
        return await _refused((host, port), error, security)
    try:
        answer: MetadataResponse = await connection.call(MetadataRequest(topics=[]), timeout_s=timeout_s)
        is_other = broker_id is not None and await _is_other(connection, broker_id, timeout_s)
    except (OSError, KafkaError) as error:
        mechanisms = await _mechanisms(host, port, security, timeout_s) if security.login is None else ()
        if mechanisms:
            return _wrong(
                (host, port),
                Cause.LOGIN_WANTED,
                "takes nobody without a login, and closes the connection of a client that has none",
                f"sasl.mechanism={mechanisms[0]}, a user and a password in the client's configuration, and "
                f"security.protocol={'SASL_PLAINTEXT' if security.tls is None else 'SASL_SSL'}; it takes {', '.join(mechanisms)}",
            )
        return _wrong(
            (host, port),
            Cause.NO_ANSWER,
            f"does not answer a Metadata request ({_reason(error)})",
            f"look at the log of the node at {where}; `barnabas explain leader` says whether it reaches its controllers",
        )
    finally:
        await connection.close()
    brokers = tuple(Broker(BrokerId(each.node_id), each.host, each.port, each.rack) for each in answer.brokers)
    return Seen((host, port), None, answer.cluster_id, brokers, is_other)


async def look_around(servers: Sequence[tuple[str, int]], security: ClientSecurity) -> tuple[list[Seen], list[Finding]]:
    """Each address that a client is given, then each that it is told: what came of the first, and all that is wrong."""
    seen = await asyncio.gather(*(look(host, port, security) for host, port in servers))
    found = [each.finding for each in seen if each.finding is not None]
    told = {broker.id: broker for each in seen for broker in each.brokers}
    reached = await asyncio.gather(*(look(each.host, each.port, security, broker_id=each.id) for each in told.values()))
    for broker, each in zip(told.values(), reached, strict=True):
        if each.finding is not None:
            found.append(_unreachable(broker, each.finding, servers))
        elif each.other_broker:
            found.append(
                Finding(
                    Cause.OTHER_BROKER,
                    address_of(*each.address),
                    f"the cluster says that broker {broker.id} is there, and the broker that answers has another id",
                    f"advertised.listeners of broker {broker.id} names another broker's address: each needs its own (port mappings of "
                    "containers, a load balancer before several brokers)",
                )
            )
    return list(seen), [*found, *_other_clusters([*seen, *reached])]


def _unreachable(broker: Broker, finding: Finding, servers: Iterable[tuple[str, int]]) -> Finding:
    fix = f"set advertised.listeners of broker {broker.id} to an address that this host reaches"
    if broker.host in LOOPBACKS and any(host not in LOOPBACKS for host, _ in servers):
        fix = (
            f"broker {broker.id} advertises the loopback of its own host: set its advertised.listeners to the host that clients use, or "
            "listeners=PLAINTEXT://0.0.0.0:PORT with advertised.listeners=auto"
        )
    elif finding.cause is Cause.NAME_UNKNOWN:
        fix += ", or make this machine resolve that name (a container's own name is known in its network only)"
    if finding.cause not in (Cause.NAME_UNKNOWN, Cause.NOTHING_LISTENS, Cause.NO_ANSWER):
        return finding  # it is there, and refuses this client for a reason of its own
    return Finding(
        Cause.ADVERTISED_UNREACHABLE,
        finding.where,
        f"the cluster says that broker {broker.id} is there, and {finding.what}",
        fix,
    )


def _other_clusters(seen: Iterable[Seen]) -> list[Finding]:
    first: Seen | None = None
    found = []
    for each in {one.address: one for one in seen}.values():
        if each.cluster_id is None:
            continue
        first = first or each
        if each.cluster_id != first.cluster_id:
            found.append(
                Finding(
                    Cause.OTHER_CLUSTER,
                    address_of(*each.address),
                    f"it is of cluster {each.cluster_id}, and {address_of(*first.address)} of cluster {first.cluster_id}",
                    "name the brokers of one cluster only; where the cluster itself told that address, another cluster has taken it: "
                    "`barnabas cluster info` at either says whose it should be",
                )
            )
    return found


# ---- why a connection did not come about


async def _refused(address: tuple[str, int], error: Exception, security: ClientSecurity) -> Seen:
    where = address_of(*address)
    if isinstance(error, ConnectionRefusedError):
        return _wrong(
            address,
            Cause.NOTHING_LISTENS,
            "nothing listens there: the connection is refused",
            "start the node, or name the port of its Kafka listener (`listeners` in its properties)",
        )
    if isinstance(error, ssl.SSLCertVerificationError):
        return _certificate(address, error)
    if isinstance(error, KafkaError) and error.code not in (ErrorCode.NETWORK_EXCEPTION, ErrorCode.REQUEST_TIMED_OUT):
        if error.code == ErrorCode.ILLEGAL_SASL_STATE:
            return _wrong(
                address,
                Cause.LOGIN_REFUSED,
                "knows no login, and the client brings one",
                "take the SASL_ away from security.protocol, or name the port of the listener that has SASL",
            )
        return _wrong(
            address,
            Cause.LOGIN_REFUSED,
            f"refuses the login: {error.message}",
            "compare user, password and sasl.mechanism of the client's configuration; `barnabas user list` shows who is known, `barnabas "
            "user create NAME` sets a new password",
        )
    listens = await asyncio.to_thread(recognise, where, timeout_s=PROBE_S)
    if listens in (GRPC, HTTP):
        return _wrong(
            address,
            Cause.OTHER_LISTENER,
            f"is {listens}, no Kafka listener",
            "name the port of `listeners` in the node's properties; `barnabas broker list` shows it",
        )
    if listens == TLS and security.tls is None:
        return _wrong(
            address,
            Cause.TLS_WANTED,
            "speaks TLS, and the client does not: brokers see garbage, clients see a closed connection",
            "security.protocol=SSL, or SASL_SSL where there is a login, and ssl.ca.location (ssl.truststore.location) in the client's "
            "configuration",
        )
    if listens == KAFKA and security.tls is not None:
        return _wrong(
            address,
            Cause.TLS_UNWANTED,
            "speaks plain text, and the client TLS",
            "security.protocol=PLAINTEXT, or SASL_PLAINTEXT where there is a login; or name the port of the listener with TLS",
        )
    if isinstance(error, ssl.SSLError) or listens == TLS:
        return _wrong(
            address,
            Cause.CERTIFICATE_REFUSED,
            f"ends the TLS handshake ({_reason(error)}): it may want a certificate of the client",
            "ssl.certificate.location and ssl.key.location (ssl.keystore.location) of a certificate that the brokers' ssl.truststore "
            "vouches for: `barnabas pki issue NAME` makes one",
        )
    return _wrong(
        address,
        Cause.NO_ANSWER,
        f"does not answer ({_reason(error)})",
        "a firewall drops the packets, the host is down, or the port is another program's: try from the broker's own host",
    )


def _certificate(address: tuple[str, int], error: ssl.SSLCertVerificationError) -> Seen:
    if error.verify_code == _HOST_WRONG:
        fix = (
            f"`barnabas pki issue NAME --host {address[0]}`: a broker's certificate names every address that clients use; or use one that "
            "it names"
        )
    elif error.verify_code == _EXPIRED:
        fix = "renew the broker's certificate (`barnabas pki renew NAME`): a node takes new files while it runs"
    else:
        fix = "ssl.ca.location (ssl.truststore.location) of the authority that issued the broker's certificate"
    return _wrong(address, Cause.CERTIFICATE_REFUSED, f"its certificate is not believed: {error.verify_message}", fix)


async def _mechanisms(host: str, port: int, security: ClientSecurity, timeout_s: float) -> tuple[str, ...]:
    """The mechanisms of a listener that has a login; empty where it has none."""
    try:
        connection = await AioConnection.connect(
            host, port, client_id=CLIENT_ID, timeout_s=timeout_s, security=security
        )
    except (OSError, KafkaError):
        return ()
    try:
        answer = await connection.call(SaslHandshakeRequest(mechanism=""), timeout_s=timeout_s)
    except (OSError, KafkaError):
        return ()
    finally:
        await connection.close()
    return tuple(answer.mechanisms)


async def _is_other(connection: AioConnection, broker_id: int, timeout_s: float) -> bool:
    """Whether the broker at the other end has another id: of another one's keys it knows nothing."""
    request = DescribeConfigsRequest(resources=[DescribeConfigsResource(BROKER, str(broker_id), ["node.id"])])
    version = min(connection.version_for(ApiKey.DESCRIBE_CONFIGS), 4)
    answer = await connection.call(request, version=version, timeout_s=timeout_s)
    return any(result.error_code == ErrorCode.INVALID_REQUEST for result in answer.results)


def _reason(error: BaseException) -> str:
    if isinstance(error, TimeoutError):
        return "no answer in time"
    return (error.message if isinstance(error, KafkaError) else str(error)) or type(error).__name__


def _wrong(address: tuple[str, int], cause: Cause, what: str, fix: str) -> Seen:
    return Seen(address, Finding(cause, address_of(*address), what, fix))
