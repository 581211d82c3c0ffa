"""Manifests for Kubernetes: controllers and brokers as StatefulSets, with what keeps them apart and in service.

May touch:  its arguments.            Must not touch: files, randomness (identities are given).
Invariants: probes judge one node, never the cluster; at most one pod of a kind is taken away at a time; a node's id is its ordinal; the
            controllers', the admin listeners and the console are reached from pods of the cluster alone (NetworkPolicy); what is applied
            again and again holds nothing that formats a voter.
Read next:  templates/barnabas.yaml; ../commands/generate.py.

Needs Kubernetes 1.31: StatefulSets whose ordinals begin where we say, and their number as a label. `broker.rack` is the zone that a pod
has as a label: Kubernetes puts it there from 1.35 on; before, a broker has no rack.

Not obvious: the first voters' identities are in a Secret of a file of its own (first-start.once: `kubectl apply -f DIRECTORY` takes
files by their endings, and not this one), which is created once and deleted once the cluster runs. A controller without it, and
without a formatted volume, waits for its quorum and joins it as an observer; and should the Secret come back, a voter that lost its
volume is an observer, too (broker/node/first_start.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from barnabas_admin.generating.container import (
    ADMIN_PORT,
    CONTROLLER_PORT,
    DATA,
    EXTERNAL_PORT,
    INTERNAL_PORT,
    KAFKA_PORT,
    METRICS_PORT,
    PORTS,
    USER_ID,
    replication_of,
    variables,
)
from barnabas_admin.generating.templates import filled_in
from barnabas_admin.local_security import BROKER_LISTENER, CLIENT_LISTENER, secured_properties
from barnabas_wire.lazy_dataclass import dataclass

FIRST_CONTROLLER = 101
FIRST_BROKER = 1
FIRST_START = "barnabas-first-start"
FIRST_START_FILE = "first-start.once"
NODE_PORT_BASE = 31000
"""The NodePort of broker 0; each broker's is this and its id."""
TLS_DIRECTORY = "/etc/barnabas/tls"
EXTERNAL = "EXTERNAL"
NODE_PORT, LOAD_BALANCER = "nodeport", "loadbalancer"


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What the manifests are for."""

    namespace: str
    image: str
    controllers: int
    brokers: int
    storage: str
    """Size of a broker's volume, as Kubernetes writes it."""
    external: str = ""
    """The way in from outside: nodeport, loadbalancer; empty: none."""
    external_host: str = ""
    """Host that clients outside reach a broker at, {id} stands for its id; empty: the address of the machine that its pod runs on."""
    has_console: bool = False
    is_monitored: bool = False
    """A PodMonitor of the Prometheus operator."""
    tls_secret: str = ""
    """Secret with ca.pem and POD.pem for each pod: listeners are closed and speak TLS; empty: plain text."""

    @property
    def nodes(self) -> dict[str, range]:
        """Node ids, which are their ordinals, by role."""
        return {
            "controller": range(FIRST_CONTROLLER, FIRST_CONTROLLER + self.controllers),
            "broker": range(FIRST_BROKER, FIRST_BROKER + self.brokers),
        }

    def host(self, role: str, node: object) -> str:
        """A pod's own name in the cluster; `node` may be a variable."""
        return f"barnabas-{role}-{node}.barnabas-{role}s.{self.namespace}.svc.cluster.local"

    @property
    def bootstrap(self) -> str:
        """controller.quorum.bootstrap.servers."""
        return ",".join(f"{self.host('controller', node)}:{CONTROLLER_PORT}" for node in self.nodes["controller"])


def kubernetes_files(wanted: Wanted, *, cluster_id: str, directory_ids: Sequence[str]) -> dict[str, str]:
    """barnabas.yaml, which may be applied at any time; first-start.once, which is created once; certificates.sh where TLS is wanted.
    `directory_ids`: one for each controller."""
    voters = ",".join(
        f"{node}@{wanted.host('controller', node)}:{CONTROLLER_PORT}:{directory_id}"
        for node, directory_id in zip(wanted.nodes["controller"], directory_ids, strict=True)
    )
    shared = {
        **PORTS,
        "namespace": wanted.namespace,
        "first_start": FIRST_START,
        "first_start_file": FIRST_START_FILE,
        "tls_secret": wanted.tls_secret,
        "has_console": wanted.has_console,
        "cluster_id": cluster_id,
    }
    counts_port = wanted.external == NODE_PORT
    facts = shared | {
        "security": f"TLS, SCRAM and ACLs, by the files of Secret {wanted.tls_secret}: see certificates.sh."
        if wanted.tls_secret
        else "Plain text between pods: --tls closes it.",
        "image": wanted.image,
        "data": DATA,
        "user_id": USER_ID,
        "tls_directory": TLS_DIRECTORY,
        "external": wanted.external,
        "is_monitored": wanted.is_monitored,
        "admins": ",".join(f"{wanted.host('controller', node)}:{ADMIN_PORT}" for node in wanted.nodes["controller"]),
        "roles": [_role(wanted, "controller"), _role(wanted, "broker")],
        "outside": [{"id": node, "node_port": NODE_PORT_BASE + node} for node in wanted.nodes["broker"]]
        if wanted.external
        else [],
        "counts_port": counts_port,
        "service_type": "NodePort" if counts_port else "LoadBalancer",
    }
    files = {
        "barnabas.yaml": filled_in("barnabas.yaml", facts),
        FIRST_START_FILE: filled_in(FIRST_START_FILE, shared | {"voters": voters}),
    }
    if wanted.tls_secret:
        pods = [_pod(wanted, role, node) for role, nodes in wanted.nodes.items() for node in nodes]
        from_files = " ".join(f"--from-file=pki/{each['pod']}.pem" for each in pods)
        files["certificates.sh"] = filled_in("certificates.sh", shared | {"pods": pods, "from_files": from_files})
    return files


def _role(wanted: Wanted, role: str) -> dict[str, Any]:
    """What differs between the StatefulSets, and the services with their pods' names."""
    is_controller = role == "controller"
    own = {"controller": CONTROLLER_PORT} if is_controller else {"kafka": KAFKA_PORT}
    nodes = {"internal": INTERNAL_PORT} if wanted.tls_secret and not is_controller else {}
    outside = {"external": EXTERNAL_PORT} if wanted.external and not is_controller else {}
    properties = _controller_properties(wanted) if is_controller else _broker_properties(wanted)
    return {
        "role": role,
        "is_controller": is_controller,
        "is_broker": not is_controller,
        "nodes": len(wanted.nodes[role]),
        "first": wanted.nodes[role].start,
        "storage": "10Gi" if is_controller else wanted.storage,
        "own_ports": [{"name": name, "port": port} for name, port in (own | nodes).items()],
        "ports": [{"name": name, "port": port} for name, port in (own | outside | nodes).items()],
        "counts_port": wanted.external == NODE_PORT and not is_controller,
        "node_port_start": NODE_PORT_START,
        "host_by_name": bool(outside and wanted.external_host),
        "host_of_machine": bool(outside and not wanted.external_host),
        "external_host": wanted.external_host.replace("{id}", "$(KAFKA_NODE_ID)"),
        "variables": variables(properties),
    }


def _pod(wanted: Wanted, role: str, node: int) -> dict[str, Any]:
    """The pod, and the hosts that its certificate names."""
    hosts = [wanted.host(role, node)]
    if role == "broker":
        hosts.append(f"barnabas.{wanted.namespace}.svc.cluster.local")
        if wanted.external and wanted.external_host:
            hosts.append(wanted.external_host.replace("{id}", str(node)))
    return {"pod": f"barnabas-{role}-{node}", "id": node, "hosts": " ".join(f"--host {host}" for host in hosts)}


NODE_PORT_START = (
    f'export KAFKA_ADVERTISED_LISTENERS="$KAFKA_ADVERTISED_LISTENERS,{EXTERNAL}://$EXTERNAL_HOST:$(({NODE_PORT_BASE} + KAFKA_NODE_ID))"; '
    "exec barnabas-server"
)
"""Kubernetes counts nothing in a variable, so a shell does, which the node then replaces."""


def _shared_properties(wanted: Wanted, role: str) -> dict[str, str]:
    found = {
        "controller.quorum.bootstrap.servers": wanted.bootstrap,
        "admin.listeners": f"0.0.0.0:{ADMIN_PORT}",
        "metrics.listeners": f"0.0.0.0:{METRICS_PORT}",
        "log.dirs": f"{DATA}/data",
        "log.format": "json",
        **replication_of(wanted.brokers),
    }
    if not wanted.tls_secret:
        return found | {"admin.listeners.allow.remote": "true"}
    pods = [f"barnabas-{role}-{node}" for role, nodes in wanted.nodes.items() for node in nodes]
    return found | secured_properties(
        keystore=f"{TLS_DIRECTORY}/$(POD_NAME).pem",
        truststore=f"{TLS_DIRECTORY}/ca.pem",
        node_names=pods,
        is_broker=role == "broker",
        client_listeners=[CLIENT_LISTENER, *([EXTERNAL] if wanted.external else [])],
    )


def _controller_properties(wanted: Wanted) -> dict[str, str]:
    advertised = f"$(POD_NAME).barnabas-controllers.{wanted.namespace}.svc.cluster.local"
    found = {
        "process.roles": "controller",
        "listeners": f"CONTROLLER://0.0.0.0:{CONTROLLER_PORT}",
        "advertised.listeners": f"CONTROLLER://{advertised}:{CONTROLLER_PORT}",
        "min.insync.replicas": str(max(1, min(3, wanted.brokers) - 1)),
    }
    if not wanted.tls_secret:
        found["controller.listeners.allow.remote"] = "true"
    return found | _shared_properties(wanted, "controller")


def _broker_properties(wanted: Wanted) -> dict[str, str]:
    own = f"$(POD_NAME).barnabas-brokers.{wanted.namespace}.svc.cluster.local"
    clients = CLIENT_LISTENER if wanted.tls_secret else "PLAINTEXT"
    listeners = {clients: KAFKA_PORT} | ({BROKER_LISTENER: INTERNAL_PORT} if wanted.tls_secret else {})
    advertised = [f"{name}://{own}:{port}" for name, port in listeners.items()]
    if wanted.external:
        listeners[EXTERNAL] = EXTERNAL_PORT
    if wanted.external == LOAD_BALANCER:
        advertised.append(f"{EXTERNAL}://$(EXTERNAL_HOST):{EXTERNAL_PORT}")
    found = {
        "process.roles": "broker",
        "listeners": ",".join(f"{name}://0.0.0.0:{port}" for name, port in listeners.items()),
        "advertised.listeners": ",".join(advertised),
    }
    if wanted.external and not wanted.tls_secret:
        found |= {
            "listener.security.protocol.map": f"PLAINTEXT:PLAINTEXT,{EXTERNAL}:PLAINTEXT,CONTROLLER:PLAINTEXT",
            "inter.broker.listener.name": "PLAINTEXT",
        }
    return found | _shared_properties(wanted, "broker")
