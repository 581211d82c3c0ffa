"""An address of -b where no Kafka listener answered: the cause, and what to name instead.

May touch:  sockets, through port_probe.   Must not touch: gRPC, the Kafka client, the command line.
Invariants: only after a failure; the cause comes first.
Read next:  port_probe.py; kafka.py and invocation.py, which ask it.
"""

from __future__ import annotations

import re
import socket

from barnabas_admin.errors import AdminError
from barnabas_admin.port_probe import GRPC, KAFKA, TLS, TLS_HINT, recognise
from barnabas_wire.kafka.errors import ErrorCode, KafkaError

BROKERS_HINT = (
    "see `barnabas cluster health`; `barnabas broker list` shows where brokers listen, -b HOST:PORT names others"
)


def refuse_other_listeners(servers: str, error: Exception, *, is_tls: bool) -> None:
    """Raise AdminError when the first of the addresses is no Kafka listener for us; an error that a broker sent says that it is one."""
    if isinstance(error, KafkaError) and error.code not in (ErrorCode.NETWORK_EXCEPTION, ErrorCode.REQUEST_TIMED_OUT):
        return
    address = servers.split(",")[0].strip()
    listens = recognise(address)
    if listens == TLS:
        if not is_tls:
            message = f"{address} speaks TLS, and this client does not"
            raise AdminError(message, code=ErrorCode.INVALID_REQUEST, hint=TLS_HINT) from error
    elif listens not in (None, KAFKA):
        raise AdminError(
            f"{address} is {listens}, not a Kafka listener",
            code=ErrorCode.INVALID_REQUEST,
            hint="name it with --admin: brokers are found from there" if listens == GRPC else BROKERS_HINT,
        ) from error


def unreachable(error: OSError, servers: str) -> AdminError:
    """The error of a connection to one of `servers`, in words for who types commands."""
    if isinstance(error, socket.gaierror):
        message = f"no address is known for {servers}: {error.strerror}"
    else:
        found = re.search(r"\('([^']+)', (\d+)", str(error))  # asyncio gives the address in words alone
        where = f"{found[1]}:{found[2]}" if found else servers
        refused = isinstance(error, ConnectionRefusedError)
        message = f"no broker answers at {where}: {'connection refused' if refused else error}"
    return AdminError(message, code=ErrorCode.NETWORK_EXCEPTION, hint=BROKERS_HINT)
