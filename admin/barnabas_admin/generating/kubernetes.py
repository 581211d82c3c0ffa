"""Manifests for Kubernetes: controllers and brokers as StatefulSets, with what keeps them apart and in service.

May touch:  its arguments.            Must not touch: files, randomness (identities are given).
Invariants: probes judge one node, never the cluster; at most one pod of a kind is taken away at a time; a node's id is its ordinal; the
            controllers', the admin listeners and the console are reached from pods of the cluster alone (NetworkPolicy); what is applied
            again and again holds nothing that formats a voter.
Read next:  container.py; ../commands/generate.py.

Needs Kubernetes 1.31: StatefulSets whose ordinals begin where we say, and their number as a label. `broker.rack` is the zone that a pod
has as a label: Kubernetes puts it there from 1.35 on; before, a broker has no rack.

Not obvious: the first voters' identities are in a Secret of a file of its own (first-start.once: `kubectl apply -f DIRECTORY` takes
files by their endings, and not this one), which is created once and deleted once the cluster runs. A controller without it, and
without a formatted volume, waits for its quorum and joins it as an observer; and should the Secret come back, a voter that lost its
volume is an observer, too (broker/node/first_start.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from barnabas_admin.generating.container import (
    ADMIN_PORT,
    CONSOLE_PORT,
    CONTROLLER_PORT,
    DATA,
    EXTERNAL_PORT,
    INTERNAL_PORT,
    KAFKA_PORT,
    METRICS_PORT,
    USER_ID,
    environment,
    replication_of,
)
from barnabas_admin.generating.yaml import to_yaml
from barnabas_admin.local_security import BROKER_LISTENER, CLIENT_LISTENER, secured_properties

FIRST_CONTROLLER = 101
FIRST_BROKER = 1
FIRST_START = "barnabas-first-start"
FIRST_START_FILE = "first-start.once"
NODE_PORT_BASE = 31000
"""The NodePort of broker 0; each broker's is this and its id."""
ORDINAL_LABEL = "apps.kubernetes.io/pod-index"
POD_LABEL = "statefulset.kubernetes.io/pod-name"
ZONE_LABEL = "topology.kubernetes.io/zone"
TLS_DIRECTORY = "/etc/barnabas/tls"
EXTERNAL = "EXTERNAL"
NODE_PORT, LOAD_BALANCER = "nodeport", "loadbalancer"
APP = "barnabas"


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
    def controller_ids(self) -> range:
        """Their node ids, which are their ordinals."""
        return range(FIRST_CONTROLLER, FIRST_CONTROLLER + self.controllers)

    @property
    def broker_ids(self) -> range:
        """Their node ids, which are their ordinals."""
        return range(FIRST_BROKER, FIRST_BROKER + self.brokers)

    def host(self, role: str, node: object) -> str:
        """A pod's own name in the cluster; `node` may be a variable."""
        return f"barnabas-{role}-{node}.barnabas-{role}s.{self.namespace}.svc.cluster.local"

    @property
    def bootstrap(self) -> str:
        """controller.quorum.bootstrap.servers."""
        return ",".join(f"{self.host('controller', node)}:{CONTROLLER_PORT}" for node in self.controller_ids)


def kubernetes_files(wanted: Wanted, *, cluster_id: str, directory_ids: Sequence[str]) -> dict[str, str]:
    """barnabas.yaml, which may be applied at any time; first-start.once, which is created once; certificates.sh where TLS is wanted.
    `directory_ids`: one for each controller."""
    voters = ",".join(
        f"{node}@{wanted.host('controller', node)}:{CONTROLLER_PORT}:{directory_id}"
        for node, directory_id in zip(wanted.controller_ids, directory_ids, strict=True)
    )
    namespace = wanted.namespace
    first_start = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": _metadata(FIRST_START, namespace),
        "type": "Opaque",
        "stringData": {"format-for": f"{cluster_id}/{voters}"},
    }
    clients = {"kafka": KAFKA_PORT} | ({"external": EXTERNAL_PORT} if wanted.external else {})
    nodes = {"internal": INTERNAL_PORT} if wanted.tls_secret else {}
    documents = [
        _headless("barnabas-controllers", "controller", namespace, {"controller": CONTROLLER_PORT}),
        _headless("barnabas-brokers", "broker", namespace, {"kafka": KAFKA_PORT, **nodes}),
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": _metadata("barnabas", namespace),
            "spec": {
                "selector": _labels("broker"),
                "ports": [{"name": "kafka", "port": KAFKA_PORT, "targetPort": "kafka"}],
            },
        },
        _stateful_set(wanted, "controller", _controller_properties(wanted), ports={"controller": CONTROLLER_PORT}),
        _stateful_set(wanted, "broker", _broker_properties(wanted), ports={**clients, **nodes}),
        *(_disruption_budget(role, namespace) for role in ("controller", "broker")),
        _network_policy(wanted),
    ]
    if wanted.external:
        documents += [_external_service(wanted, node) for node in wanted.broker_ids]
    if wanted.has_console:
        documents += _console(wanted)
    if wanted.is_monitored:
        documents.append(_pod_monitor(namespace))
    files = {
        "barnabas.yaml": _header(wanted) + "---\n".join(to_yaml(document) for document in documents),
        FIRST_START_FILE: FIRST_START_HEADER + to_yaml(first_start),
    }
    if wanted.tls_secret:
        files["certificates.sh"] = _certificates(wanted, cluster_id)
    return files


FIRST_START_HEADER = f"""# Who votes first in a new cluster. Created once, before barnabas.yaml is applied for the first time:
#   kubectl create -f {FIRST_START_FILE}
# and deleted once `barnabas cluster health` is well, here too:
#   kubectl delete secret {FIRST_START}
"""


def _header(wanted: Wanted) -> str:
    security = (
        f"TLS, SCRAM and ACLs, by the files of Secret {wanted.tls_secret}: see certificates.sh."
        if wanted.tls_secret
        else "Plain text between pods: --tls closes it."
    )
    lines = [
        f"# Generated by `barnabas generate k8s`. For Kubernetes 1.31 and later. {security}",
        *(
            [f"#   sh certificates.sh                        # once: makes Secret {wanted.tls_secret}"]
            if wanted.tls_secret
            else []
        ),
        f"#   kubectl create -f {FIRST_START_FILE}          # once, for a new cluster: who votes first",
        "#   kubectl apply -f barnabas.yaml            # as often as you like",
        f"#   kubectl delete secret {FIRST_START}   # once `barnabas cluster health` is well: see docs/deploying.md",
    ]
    if wanted.has_console:
        lines.append(
            "#   kubectl port-forward service/barnabas-console 8080     # the console, at http://localhost:8080"
        )
    return "\n".join(lines) + "\n"


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
    pods = [f"barnabas-controller-{node}" for node in wanted.controller_ids]
    pods += [f"barnabas-broker-{node}" for node in wanted.broker_ids]
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


def _certificates(wanted: Wanted, cluster_id: str) -> str:
    """A script: the authority, a certificate for each pod, one for the operator, and the Secret of them."""
    lines = [
        "#!/bin/sh",
        "# The authority of this cluster, a certificate for each of its pods, and the Secret that they are mounted from.",
        "# pki/ca-key.pem belongs offline afterwards; `barnabas pki renew -d pki NAME` and the last command replace what runs out.",
        "set -eu",
        "barnabas pki init pki",
    ]
    pods = []
    for role, nodes in (("controller", wanted.controller_ids), ("broker", wanted.broker_ids)):
        for node in nodes:
            pod = f"barnabas-{role}-{node}"
            hosts = [wanted.host(role, node)]
            if role == "broker":
                hosts.append(f"barnabas.{wanted.namespace}.svc.cluster.local")
                hosts += (
                    [wanted.external_host.replace("{id}", str(node))]
                    if wanted.external and wanted.external_host
                    else []
                )
            named = " ".join(f"--host {host}" for host in hosts)
            lines.append(f"barnabas pki issue -d pki {pod} {named} --node {node} --cluster-id {cluster_id}")
            pods.append(pod)
    lines += [
        "# The operator, whom nodes know by this certificate at the brokers' own listener (INTERNAL): it makes the first users.",
        "barnabas pki issue -d pki admin",
        f"kubectl create secret generic {wanted.tls_secret} --namespace {wanted.namespace} --from-file=pki/ca.pem \\",
        "  " + " ".join(f"--from-file=pki/{pod}.pem" for pod in pods) + " \\",
        "  --dry-run=client -o yaml | kubectl apply -f -",
    ]
    if wanted.has_console:
        lines.append(
            f"# The console logs in by client.properties of Secret {wanted.tls_secret}-console (docs/deploying.md), users sign in to it."
        )
    return "\n".join(lines) + "\n"


def _labels(role: str) -> dict[str, str]:
    return {"app.kubernetes.io/name": APP, "app.kubernetes.io/component": role}


def _metadata(name: str, namespace: str, role: str | None = None) -> dict[str, Any]:
    labels = _labels(role) if role else {"app.kubernetes.io/name": APP}
    return {"name": name, "namespace": namespace, "labels": labels}


def _headless(name: str, role: str, namespace: str, ports: dict[str, int]) -> dict[str, Any]:
    """Names for the pods, which find each other before they are ready."""
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": _metadata(name, namespace, role),
        "spec": {
            "clusterIP": "None",
            "publishNotReadyAddresses": True,
            "selector": _labels(role),
            "ports": [
                {"name": port, "port": number, "targetPort": port}
                for port, number in {**ports, "admin": ADMIN_PORT, "metrics": METRICS_PORT}.items()
            ],
        },
    }


def _stateful_set(wanted: Wanted, role: str, properties: dict[str, str], *, ports: dict[str, int]) -> dict[str, Any]:
    is_controller = role == "controller"
    own: list[dict[str, Any]] = [
        {"name": "POD_NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
        {"name": "KAFKA_NODE_ID", "valueFrom": {"fieldRef": {"fieldPath": f"metadata.labels['{ORDINAL_LABEL}']"}}},
    ]
    if is_controller:
        token = {"secretKeyRef": {"name": FIRST_START, "key": "format-for", "optional": True}}
        own.append({"name": "BARNABAS_FORMAT_FOR", "valueFrom": token})
        own.append({"name": "BARNABAS_FORMAT_TO_JOIN", "value": "true"})
    else:
        own.append(
            {"name": "KAFKA_BROKER_RACK", "valueFrom": {"fieldRef": {"fieldPath": f"metadata.labels['{ZONE_LABEL}']"}}}
        )
        if wanted.external:
            own.append({"name": "EXTERNAL_HOST"} | _external_host(wanted))
    variables = [{"name": variable, "value": value} for variable, value in environment(properties).items()]
    container: dict[str, Any] = {"name": "node", "image": wanted.image}
    if not is_controller and wanted.external == NODE_PORT:
        container["command"] = ["/bin/sh", "-c", NODE_PORT_START]
    container |= {
        "env": [*own, *variables],
        "ports": [
            {"name": port, "containerPort": number}
            for port, number in {**ports, "admin": ADMIN_PORT, "metrics": METRICS_PORT}.items()
        ],
        "startupProbe": _probe("/livez", period_s=5, failures=120),
        "livenessProbe": _probe("/livez", period_s=10, failures=6),
        "readinessProbe": _probe("/readyz", period_s=5, failures=3),
        "resources": {"requests": {"cpu": "500m", "memory": "512Mi"}, "limits": {"memory": "2Gi"}},
        "securityContext": CONTAINER_SECURITY,
        "volumeMounts": [
            {"name": "data", "mountPath": DATA},
            {"name": "tmp", "mountPath": "/tmp"},
            *([{"name": "tls", "mountPath": TLS_DIRECTORY, "readOnly": True}] if wanted.tls_secret else []),
        ],
    }
    spread = {
        "maxSkew": 1,
        "topologyKey": "kubernetes.io/hostname",
        "whenUnsatisfiable": "ScheduleAnyway",
        "labelSelector": {"matchLabels": _labels(role)},
    }
    volumes: list[dict[str, Any]] = [{"name": "tmp", "emptyDir": {}}]
    if wanted.tls_secret:
        # 0440: a file with a secret that others may read is refused, and the group is that of the pod.
        volumes.append({"name": "tls", "secret": {"secretName": wanted.tls_secret, "defaultMode": 0o440}})
    return {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": _metadata(f"barnabas-{role}", wanted.namespace, role),
        "spec": {
            "serviceName": f"barnabas-{role}s",
            "replicas": wanted.controllers if is_controller else wanted.brokers,
            "ordinals": {"start": FIRST_CONTROLLER if is_controller else FIRST_BROKER},
            "podManagementPolicy": "Parallel",
            "updateStrategy": {"type": "RollingUpdate"},
            "selector": {"matchLabels": _labels(role)},
            "template": {
                "metadata": {"labels": _labels(role)},
                "spec": _pod(
                    container,
                    volumes,
                    topologySpreadConstraints=[spread, spread | {"topologyKey": ZONE_LABEL}],
                    terminationGracePeriodSeconds=120,
                ),
            },
            "volumeClaimTemplates": [
                {
                    "metadata": {"name": "data"},
                    "spec": {
                        "accessModes": ["ReadWriteOnce"],
                        "resources": {"requests": {"storage": "10Gi" if is_controller else wanted.storage}},
                    },
                }
            ],
        },
    }


CONTAINER_SECURITY = {
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
    "readOnlyRootFilesystem": True,
}
NODE_PORT_START = (
    f'export KAFKA_ADVERTISED_LISTENERS="$KAFKA_ADVERTISED_LISTENERS,{EXTERNAL}://$EXTERNAL_HOST:$(({NODE_PORT_BASE} + KAFKA_NODE_ID))"; '
    "exec barnabas-server"
)
"""Kubernetes counts nothing in a variable, so a shell does, which the node then replaces."""


def _pod(container: dict[str, Any], volumes: list[dict[str, Any]], **more: Any) -> dict[str, Any]:
    return {
        # A Service named kafka would give every pod KAFKA_PORT and the like, which would be properties.
        "enableServiceLinks": False,
        "automountServiceAccountToken": False,
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": USER_ID,
            "runAsGroup": USER_ID,
            "fsGroup": USER_ID,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        **more,
        "containers": [container],
        "volumes": volumes,
    }


def _external_host(wanted: Wanted) -> dict[str, Any]:
    if not wanted.external_host:
        return {"valueFrom": {"fieldRef": {"fieldPath": "status.hostIP"}}}
    return {"value": wanted.external_host.replace("{id}", "$(KAFKA_NODE_ID)")}


def _external_service(wanted: Wanted, node: int) -> dict[str, Any]:
    """A broker's own way in: a client that asked any of them goes to the leader."""
    port = {"name": "external", "port": EXTERNAL_PORT, "targetPort": "external"}
    is_node_port = wanted.external == NODE_PORT
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": _metadata(f"barnabas-broker-{node}-external", wanted.namespace, "broker"),
        "spec": {
            "type": "NodePort" if is_node_port else "LoadBalancer",
            # The machine's address that a broker advertises is that of its own pod.
            "externalTrafficPolicy": "Local",
            "selector": {POD_LABEL: f"barnabas-broker-{node}"},
            "ports": [port | ({"nodePort": NODE_PORT_BASE + node} if is_node_port else {})],
        },
    }


def _console(wanted: Wanted) -> list[dict[str, Any]]:
    """Reached by `kubectl port-forward` alone: without --sign-in whoever reaches it may do what it may do."""
    admins = ",".join(f"{wanted.host('controller', node)}:{ADMIN_PORT}" for node in wanted.controller_ids)
    probe = {
        # Its own names are those of loopback; a request by another is refused.
        "httpGet": {"path": "/livez", "port": "http", "httpHeaders": [{"name": "Host", "value": "localhost"}]},
        "periodSeconds": 10,
        "timeoutSeconds": 4,
    }
    words = ["console", "--host", "0.0.0.0", "--port", str(CONSOLE_PORT), "--allow-remote", "--admin", admins]
    mounts = [{"name": "state", "mountPath": DATA}, {"name": "tmp", "mountPath": "/tmp"}]
    volumes: list[dict[str, Any]] = [{"name": "state", "emptyDir": {}}, {"name": "tmp", "emptyDir": {}}]
    if wanted.tls_secret:
        words += ["--sign-in", "--client-config", "/etc/barnabas/console/client.properties"]
        words += ["--brokers", f"barnabas.{wanted.namespace}.svc.cluster.local:{KAFKA_PORT}"]
        mounts.append({"name": "login", "mountPath": "/etc/barnabas/console", "readOnly": True})  # type: ignore[dict-item]
        volumes.append(
            {"name": "login", "secret": {"secretName": f"{wanted.tls_secret}-console", "defaultMode": 0o440}}
        )
    container = {
        "name": "console",
        "image": wanted.image,
        "command": ["barnabas", *words],
        "ports": [{"name": "http", "containerPort": CONSOLE_PORT}],
        "livenessProbe": probe,
        "readinessProbe": probe,
        "resources": {"requests": {"cpu": "50m", "memory": "128Mi"}, "limits": {"memory": "512Mi"}},
        "securityContext": CONTAINER_SECURITY,
        "volumeMounts": mounts,
    }
    return [
        {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": _metadata("barnabas-console", wanted.namespace, "console"),
            "spec": {
                "replicas": 1,
                "selector": {"matchLabels": _labels("console")},
                "template": {"metadata": {"labels": _labels("console")}, "spec": _pod(container, volumes)},
            },
        },
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": _metadata("barnabas-console", wanted.namespace, "console"),
            "spec": {
                "selector": _labels("console"),
                "ports": [{"name": "http", "port": CONSOLE_PORT, "targetPort": "http"}],
            },
        },
    ]


def _pod_monitor(namespace: str) -> dict[str, Any]:
    """For the Prometheus operator: the label `node` is a node's id, as alerts and dashboards know it."""
    node = {
        "sourceLabels": ["__meta_kubernetes_pod_label_apps_kubernetes_io_pod_index"],
        "targetLabel": "node",
    }
    cluster = {"targetLabel": "cluster", "replacement": namespace}
    in_service = {"key": "app.kubernetes.io/component", "operator": "In", "values": ["broker", "controller"]}
    return {
        "apiVersion": "monitoring.coreos.com/v1",
        "kind": "PodMonitor",
        "metadata": _metadata("barnabas", namespace),
        "spec": {
            "selector": {"matchLabels": {"app.kubernetes.io/name": APP}, "matchExpressions": [in_service]},
            "podMetricsEndpoints": [{"port": "metrics", "interval": "15s", "relabelings": [node, cluster]}],
        },
    }


def _probe(path: str, *, period_s: int, failures: int) -> dict[str, Any]:
    return {
        "httpGet": {"path": path, "port": "metrics"},
        "periodSeconds": period_s,
        "timeoutSeconds": 4,
        "failureThreshold": failures,
    }


def _disruption_budget(role: str, namespace: str) -> dict[str, Any]:
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": _metadata(f"barnabas-{role}", namespace, role),
        "spec": {"maxUnavailable": 1, "selector": {"matchLabels": _labels(role)}},
    }


def _network_policy(wanted: Wanted) -> dict[str, Any]:
    """Strangers reach the Kafka and the metrics listeners; what administers a cluster is its own pods', and of those labelled so."""
    ours = {"matchLabels": {"app.kubernetes.io/name": APP}}
    operators = {"matchLabels": {"barnabas-operator": "true"}}
    open_ports = [KAFKA_PORT, METRICS_PORT, *([EXTERNAL_PORT] if wanted.external else [])]
    own_ports = [CONTROLLER_PORT, ADMIN_PORT, *([INTERNAL_PORT] if wanted.tls_secret else [])]
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": _metadata("barnabas", wanted.namespace),
        "spec": {
            "podSelector": ours,
            "policyTypes": ["Ingress"],
            "ingress": [
                {"ports": [{"port": port, "protocol": "TCP"} for port in open_ports]},
                {
                    "from": [{"podSelector": ours}, {"podSelector": operators}],
                    "ports": [{"port": port, "protocol": "TCP"} for port in own_ports],
                },
            ],
        },
    }
