"""A cluster of real `barnabas-server` processes on this host: started, broken, mended and stopped.

May touch:  files below its directory, child processes it started, loopback sockets.    Must not touch: broker code.
Invariants: one cluster per directory (a lock that every node inherits); only its own processes are ever signalled;
            the identity (cluster id, directory ids) of a directory never changes once written.
Read next:  local_node.py, one of its nodes; commands/dev.py, its face; pytest_plugin.py, its fixture.

Layout below the directory: that of cluster_directory.py, `prometheus.yml`, and beside each node's data `server.properties`,
`stdout.log`, `stderr.log`.

Not obvious
- Only controllers are formatted here: a broker formats itself on first boot, a voter never does (a wiped voter that
  did would forget its vote). That is why the identity is written before anything is formatted. A node formats and runs in
  one process at its first start (an interpreter less to wait for): `voters` is written once all have, and never asked again.
- A node gets its own session, so that Ctrl-C in a terminal reaches only the parent, which then stops nodes in order.
- The lock descriptor is inherited by every node: while one runs, no second cluster can start on its files.
- Every node's standard input is a pipe that only this process can write, and nobody does: when this process ends, by SIGKILL
  too, the pipe does, and the nodes stop (PR_SET_PDEATHSIG would stop them with the thread that started them).
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from barnabas_admin.cluster_directory import (
    Roles,
    lock_directory,
    new_identity,
    node_directory,
    read_identity,
    refuse_wiped_voter,
    voters_file,
    write_durably,
    write_identity,
)
from barnabas_admin.errors import AdminError, LocalClusterError
from barnabas_admin.forked import NotForked, forget_server, fork_server
from barnabas_admin.local_node import (
    LocalNode,
    NodeDeath,
    describe_exit,
    live_processes,
    node_environment,
    prepare_output,
    server_command,
    tail,
)
from barnabas_admin.local_ports import DEFAULT_PORT, HOST, PORTS_SPAN, ephemeral_ports, is_port_free
from barnabas_wire.java_properties import property_line

if TYPE_CHECKING:
    from barnabas_admin.local_security import LocalSecurity

INTERNAL_PORT_OFFSET = 10
CONTROLLER_PORT_OFFSET = 20
ADMIN_PORT_OFFSET = 40
METRICS_PORT_OFFSET = 60
SEPARATE_CONTROLLER_OFFSET = 10
"""In separate roles the controllers' admin and metrics ports lie this far above the brokers'."""
SEPARATE_CONTROLLER_ID = 100
"""In separate roles broker ids are 1…n and controller ids 101…100+n."""

READY_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 15.0
SHUTDOWN_TIMEOUT_MS = 2000
FORMAT_TIMEOUT_S = 30.0
PROBE_TIMEOUT_S = 2.0
PROBE_PAUSE_S = 0.03
PER_NODE_KEYS = frozenset(
    ("node.id", "log.dirs", "listeners", "advertised.listeners", "admin.listeners", "metrics.listeners")
)
"""Two nodes with one value would be in each other's way."""


class LocalCluster:
    """Nodes of one cluster on loopback. Use as a context manager, or call start() and stop().

    Args: `nodes` per kind (1…NODES_MAX), None = what the directory holds, else 3; `directory` keeps everything;
    `base_port` is the first Kafka port (see PORTS_SPAN); `roles` "combined" (every node is broker and controller) or
    "separate" (`nodes` controllers and `nodes` brokers); `overrides` are properties for every node; `is_secured`: TLS on every
    listener but metrics, nobody without a login or a certificate, and ACLs (local_security.py), None = as the directory has it;
    `brokers_per_host`: so many brokers, in the order of their ids, say that they are on one host, None = each is one of its own.
    Methods are for one thread at a time. Raises LocalClusterError with a hint.
    """

    _starts = 0
    """How many clusters this process has started."""

    def __init__(
        self,
        directory: str | os.PathLike[str],
        *,
        nodes: int | None = None,
        base_port: int = DEFAULT_PORT,
        roles: Roles = "combined",
        overrides: Mapping[str, str] | None = None,
        is_secured: bool | None = None,
        brokers_per_host: int | None = None,
    ) -> None:
        self.directory = Path(directory).absolute()
        self.base_port = base_port
        self.overrides = dict(overrides or {})
        self._brokers_per_host = brokers_per_host
        self._lock: IO[bytes] | None = None
        self._lifeline: tuple[int, int] | None = None
        """The pipe that is the nodes' standard input: (what they read, what nobody writes)."""
        if not 0 < base_port <= 65536 - PORTS_SPAN:
            raise LocalClusterError(
                f"port {base_port} leaves no room for the {PORTS_SPAN} ports of a cluster",
                f"use a port between 1 and {65536 - PORTS_SPAN}",
            )
        ephemeral = ephemeral_ports()
        if base_port + PORTS_SPAN > ephemeral.start and base_port < ephemeral.stop:
            raise LocalClusterError(
                f"ports {base_port} to {base_port + PORTS_SPAN - 1} lie in the range {ephemeral.start} to {ephemeral.stop - 1}, "
                "which the system gives to outgoing connections: a node may find its port taken",
                f"use a port up to {ephemeral.start - PORTS_SPAN}",
            )
        identity = read_identity(self.directory)
        if identity is None:
            identity = new_identity(nodes=3 if nodes is None else nodes, roles=roles, is_secured=bool(is_secured))
        elif (nodes is not None and nodes != identity.nodes) or roles != identity.roles:
            raise LocalClusterError(
                f"{self.directory} holds a cluster of {identity.nodes} nodes ({identity.roles})",
                f"start it with {identity.nodes} nodes, or choose another directory for a new cluster",
            )
        elif is_secured is not None and is_secured != identity.is_secured:
            raise LocalClusterError(
                f"{self.directory} holds a cluster {'with' if identity.is_secured else 'without'} security",
                "start it as it is, or choose another directory for a new cluster",
            )
        self._identity = identity
        self.cluster_id = identity.cluster_id
        self.roles: Roles = identity.roles
        self.nodes: dict[int, LocalNode] = {node.id: node for node in self._layout()}
        self.security: LocalSecurity | None = None
        if identity.is_secured:
            from barnabas_admin.local_security import LocalSecurity  # loads gRPC and cryptography

            self.security = LocalSecurity(self.directory, self.cluster_id, dict.fromkeys(self.nodes, HOST))

    def __enter__(self) -> LocalCluster:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    # -- where it is -----------------------------------------------------------------------------------------------

    @property
    def brokers(self) -> list[LocalNode]:
        """Nodes with the broker role, by id."""
        return [node for node in self.nodes.values() if node.is_broker]

    @property
    def controllers(self) -> list[LocalNode]:
        """Nodes with the controller role, by id."""
        return [node for node in self.nodes.values() if node.is_controller]

    @property
    def bootstrap_servers(self) -> str:
        """host:port,… of the Kafka listeners."""
        return ",".join(f"{HOST}:{node.kafka_port}" for node in self.brokers)

    @property
    def admin_addresses(self) -> str:
        """host:port,… of the gRPC admin listeners."""
        return ",".join(f"{HOST}:{node.admin_port}" for node in self.nodes.values())

    @property
    def metrics_urls(self) -> list[str]:
        """One /metrics URL per node."""
        return [f"http://{HOST}:{node.metrics_port}/metrics" for node in self.nodes.values()]

    @property
    def prometheus_file(self) -> Path:
        """A Prometheus configuration whose targets are these nodes."""
        return self.directory / "prometheus.yml"

    def find_refusal(self) -> str | None:
        """Why nodes would not start with these overrides, or None; asks `barnabas-server`, which knows the keys. It refuses
        unknown keys too, of which a node that has them in its file only warns. Writes nothing."""
        own = sorted(PER_NODE_KEYS & self.overrides.keys())
        if own and len(self.nodes) > 1:
            return f"{own[0]}: each of {len(self.nodes)} nodes has its own"
        if "node.id" in own:
            return "node.id: nodes are numbered from 1, and the voters are formatted with these numbers; leave it out"
        node = next(iter(self.nodes))
        words = [f"--override={key}={value}" for key, value in self.properties(node).items()]
        done = subprocess.run(
            server_command("check", "-o", "json", *words), capture_output=True, text=True, env=node_environment()
        )
        if done.returncode == 0:
            return None
        try:
            return str(json.loads(done.stderr.splitlines()[-1])["error"]["message"])
        except (ValueError, LookupError, TypeError):
            raise LocalClusterError(
                f"`barnabas-server check` {describe_exit(done.returncode)}: {done.stderr}"
            ) from None

    # -- start and stop ------------------------------------------------------------------------------------------------------

    def start(self, *, timeout_s: float = READY_TIMEOUT_S) -> None:
        """Write the files, format what needs it, start every node in parallel and wait until the cluster is healthy."""
        self.launch()
        try:
            deadline = time.monotonic() + timeout_s
            self._wait_until_ready(deadline)
            if self.security is not None:  # by whom the admin listeners are asked for health
                internal = ",".join(f"{HOST}:{node.internal_port}" for node in self.brokers)
                self.security.make_first_user(internal, timeout_s=timeout_s)
            self._wait_for_health(deadline)
        except BaseException:
            self.stop(is_clean=False)
            raise

    def launch(self) -> None:
        """start() without the wait."""
        self.directory.mkdir(parents=True, exist_ok=True)
        self._take_lock()
        # Other accounts of this host have no business in it: the metadata log holds SCRAM keys, the logs everybody's records.
        self.directory.chmod(0o700)
        self._lifeline = os.pipe()
        try:
            self._check_ports()
            self._write_files()
            identity = self._format_controllers()
            for node in self.nodes.values():
                self._spawn(node, format_for=identity if node.is_controller else None)
            if identity is not None:
                self._wait_until_formatted(identity)
        except BaseException:
            self.stop(is_clean=False)
            raise

    def stop(self, *, is_clean: bool = True, timeout_s: float = STOP_TIMEOUT_S) -> list[int]:
        """Stop every node: brokers first, so that they can hand over their leaderships, then the other controllers.

        SIGTERM, then SIGKILL for what still runs after `timeout_s`; `is_clean=False` kills at once.
        Returns the ids of the nodes that had to be killed.
        """
        killed: list[int] = []
        for wave in (self.brokers, [node for node in self.controllers if not node.is_broker]):
            killed += self._stop_nodes(wave, is_clean=is_clean, timeout_s=timeout_s)
        if self._lock is not None:
            self._lock.close()
            self._lock = None
        if self._lifeline is not None:
            for end in self._lifeline:
                os.close(end)
            self._lifeline = None
        return killed

    def wait_until_healthy(self, *, timeout_s: float = READY_TIMEOUT_S) -> None:
        """Wait until every node that should run is ready and the admin service calls the cluster healthy.

        While a node is stopped or paused the cluster cannot be healthy: then a controller that is neither is enough.

        Raises LocalClusterError with the last words of a node that died, or with what is still missing at the deadline.
        """
        deadline = time.monotonic() + timeout_s
        self._wait_until_ready(deadline)
        self._wait_for_health(deadline)

    def _wait_until_ready(self, deadline: float) -> None:
        waiting = [node for node in self.nodes.values() if node.is_expected_to_run and not node.is_paused]
        while waiting:
            waiting = [node for node in waiting if self.http_get(node.id, "/readyz")[0] != 200]
            if waiting:
                self._pause_before_next_probe(deadline, f"nodes {[node.id for node in waiting]} are not ready")

    def _wait_for_health(self, deadline: float) -> None:
        working = {node.id for node in self.nodes.values() if node.is_expected_to_run and not node.is_paused}
        while True:
            try:
                reasons, controller_id = self._health(working)
                amiss = [reason for reason in reasons if reason not in self._reasons_by_design]
                if not amiss if len(working) == len(self.nodes) else controller_id in working:
                    return
                reason = f"the cluster is unhealthy: {', '.join(amiss)}"
            except AdminError as error:
                reason = f"the admin service answered {error}"
            self._pause_before_next_probe(deadline, reason)

    def _health(self, working: Iterable[int]) -> tuple[Sequence[str], int]:
        """Why the cluster is not well, and its active controller: by HTTP, for gRPC is half of what this process would import."""
        for node_id in working:
            status, body = self.http_get(node_id, "/healthz")
            if status in (200, 503):
                *reasons, last = body.splitlines()
                return reasons, int(last.removeprefix("controller "))
        from barnabas_admin.client import AdminClient  # all are of a version before /healthz

        security = None if self.security is None else self.security.admin_security()
        with AdminClient(self.admin_addresses, timeout_s=PROBE_TIMEOUT_S, security=security) as admin:
            health = admin.describe_health()
            return health.reasons, health.controller_id

    @property
    def _reasons_by_design(self) -> set[str]:
        """What health says of a cluster of this shape however well it is: with two controllers both are needed."""
        return {"quorum_no_tolerance"} if len(self.controllers) == 2 else set()

    def _pause_before_next_probe(self, deadline: float, reason: str) -> None:
        for death in self.find_deaths():
            raise LocalClusterError(
                f"node {death.node_id} {death.status} before the cluster was ready; it last said:\n{death.last_words}",
                f"its whole output is {self.nodes[death.node_id].stderr_file}",
            )
        if time.monotonic() >= deadline:
            words = "\n".join(f"node {node_id}: {self.last_words(node_id)}" for node_id in self.nodes)
            raise LocalClusterError(f"{reason} in time; the nodes last said:\n{words}")
        time.sleep(PROBE_PAUSE_S)

    def is_ready(self, node_id: int) -> bool:
        """Whether the node's /readyz answers 200."""
        return self.http_get(node_id, "/readyz")[0] == 200

    def http_get(self, node_id: int, path: str) -> tuple[int, str]:
        """(status, body) of a path on the node's metrics listener; (0, reason) when it does not answer."""
        return _http_get(self.nodes[node_id].metrics_port, path)

    def find_deaths(self) -> Iterator[NodeDeath]:
        """Nodes that ended unasked since the last call, each reported once."""
        for node in self.nodes.values():
            if not node.is_expected_to_run or node.process is None:
                continue
            code = node.process.poll()
            if code is not None:
                node.is_expected_to_run = False
                yield NodeDeath(node_id=node.id, status=describe_exit(code), last_words=self.last_words(node.id))

    def last_words(self, node_id: int) -> str:
        """The end of what the node printed since its last start: stderr, or stdout when that is empty."""
        node = self.nodes[node_id]
        words = tail(node.stderr_file, node.stderr_start) or tail(node.stdout_file, node.stdout_start)
        return words or "(nothing)"

    # -- breaking and mending one node -----------------------------------------------------------------------------

    def start_node(self, node_id: int) -> None:
        """Start a node that is not running; does not wait."""
        node = self.nodes[node_id]
        if node.is_running:
            raise LocalClusterError(f"node {node_id} is already running")
        self._spawn(node)

    def stop_node(self, node_id: int, *, timeout_s: float = STOP_TIMEOUT_S) -> bool:
        """Controlled shutdown of one node (SIGTERM); False when it had to be killed after `timeout_s`."""
        return not self._stop_nodes([self.nodes[node_id]], is_clean=True, timeout_s=timeout_s)

    def kill(self, node_id: int) -> None:
        """SIGKILL the node and reap it."""
        self._stop_nodes([self.nodes[node_id]], is_clean=False, timeout_s=STOP_TIMEOUT_S)

    def restart(self, node_id: int, *, is_clean: bool = True) -> None:
        """Stop (or kill) a node, if it runs, and start it again; does not wait until it is ready."""
        self._stop_nodes([self.nodes[node_id]], is_clean=is_clean, timeout_s=STOP_TIMEOUT_S)
        self.start_node(node_id)

    def pause(self, node_id: int) -> None:
        """SIGSTOP: the process keeps its sockets and answers nothing."""
        self._signal(self.nodes[node_id], signal.SIGSTOP)
        self.nodes[node_id].is_paused = True

    def resume(self, node_id: int) -> None:
        """SIGCONT after pause()."""
        self._signal(self.nodes[node_id], signal.SIGCONT)
        self.nodes[node_id].is_paused = False

    def heal(self, *, timeout_s: float = READY_TIMEOUT_S) -> None:
        """Start every node that does not run, resume those that are paused, and wait until the cluster is healthy.

        Raises LocalClusterError as wait_until_healthy does.
        """
        for node in self.nodes.values():
            if not node.is_running:
                self.start_node(node.id)
            elif node.is_paused:
                self.resume(node.id)
        self.wait_until_healthy(timeout_s=timeout_s)

    def wait_until(self, condition: Callable[[], bool], *, timeout_s: float = READY_TIMEOUT_S, what: str) -> None:
        """Poll `condition` until it holds; LocalClusterError naming `what` when it does not in time."""
        deadline = time.monotonic() + timeout_s
        while not condition():
            if time.monotonic() >= deadline:
                raise LocalClusterError(f"{what} did not happen within {timeout_s:g} s")
            time.sleep(PROBE_PAUSE_S)

    def _signal(self, node: LocalNode, number: signal.Signals) -> None:
        if node.process is None or node.process.poll() is not None:
            raise LocalClusterError(f"node {node.id} is not running")
        node.process.send_signal(number)

    def _stop_nodes(self, nodes: Sequence[LocalNode], *, is_clean: bool, timeout_s: float) -> list[int]:
        running = [node for node in nodes if node.process is not None]
        for node in running:
            node.is_expected_to_run = False
            if node.is_running:
                if node.is_paused:
                    self.resume(node.id)
                self._signal(node, signal.SIGTERM if is_clean else signal.SIGKILL)
        deadline = time.monotonic() + timeout_s
        killed = []
        for node in running:
            process = node.process
            assert process is not None
            try:
                process.wait(max(0.0, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
                killed.append(node.id)
            live_processes.discard(process)
            node.process = None
        return killed if is_clean else []

    # -- files and processes ---------------------------------------------------------------------------------------

    def _layout(self) -> Iterator[LocalNode]:
        is_combined = self.roles == "combined"
        for index in range(self._identity.nodes):
            yield LocalNode(
                id=index + 1,
                is_broker=True,
                is_controller=is_combined,
                directory=node_directory(self.directory, index + 1),
                directory_id=self._identity.directory_ids[index],
                kafka_port=self.base_port + index,
                controller_port=self.base_port + CONTROLLER_PORT_OFFSET + index if is_combined else None,
                admin_port=self.base_port + ADMIN_PORT_OFFSET + index,
                metrics_port=self.base_port + METRICS_PORT_OFFSET + index,
                internal_port=self.base_port + INTERNAL_PORT_OFFSET + index if self._identity.is_secured else None,
            )
        if is_combined:
            return
        for index in range(self._identity.nodes):
            node_id = SEPARATE_CONTROLLER_ID + index + 1
            above = SEPARATE_CONTROLLER_OFFSET + index
            yield LocalNode(
                id=node_id,
                is_broker=False,
                is_controller=True,
                directory=node_directory(self.directory, node_id),
                directory_id=self._identity.directory_ids[index],
                kafka_port=None,
                controller_port=self.base_port + CONTROLLER_PORT_OFFSET + index,
                admin_port=self.base_port + ADMIN_PORT_OFFSET + above,
                metrics_port=self.base_port + METRICS_PORT_OFFSET + above,
            )

    def properties(self, node_id: int) -> dict[str, str]:
        """The server.properties of a node, overrides included."""
        node = self.nodes[node_id]
        replicas = min(3, len(self.brokers))
        listeners = []
        if node.kafka_port is not None and self.security is not None:
            listeners += self.security.listeners(node)
        elif node.kafka_port is not None:
            listeners.append(f"PLAINTEXT://{HOST}:{node.kafka_port}")
        advertised = ",".join(listeners)
        if node.controller_port is not None:
            listeners.append(f"CONTROLLER://{HOST}:{node.controller_port}")
        properties = {
            "process.roles": node.roles,
            "node.id": str(node.id),
            "controller.quorum.bootstrap.servers": ",".join(f"{HOST}:{c.controller_port}" for c in self.controllers),
            "controller.listener.names": "CONTROLLER",
            "log.dirs": str(node.data_directory),
            "admin.listeners": f"{HOST}:{node.admin_port}",
            "metrics.listeners": f"{HOST}:{node.metrics_port}",
            "default.replication.factor": str(replicas),
            "offsets.topic.replication.factor": str(replicas),
            "transaction.state.log.replication.factor": str(replicas),
            "transaction.state.log.min.isr": str(max(1, replicas - 1)),
            "share.coordinator.state.topic.replication.factor": str(replicas),
            "share.coordinator.state.topic.min.isr": str(max(1, replicas - 1)),
            # When a whole cluster stops, its last voters find no quorum that could give them leave.
            "controlled.shutdown.timeout.ms": str(SHUTDOWN_TIMEOUT_MS),
            # In production it waits for more members of a new group; here the first poll of a test would wait 3 s.
            "group.initial.rebalance.delay.ms": "0",
        }
        if node.is_controller:  # a broker's own does not count
            properties["min.insync.replicas"] = str(max(1, replicas - 1))
        if node.is_broker and self._brokers_per_host is not None:
            properties["broker.host"] = f"host-{self.brokers.index(node) // self._brokers_per_host + 1}"
        if listeners:
            properties["listeners"] = ",".join(listeners)
        if advertised:
            properties["advertised.listeners"] = advertised
        if self.security is not None:
            properties |= self.security.properties(node)
        return properties | self.overrides

    def _write_files(self) -> None:
        from barnabas_admin.prometheus import prometheus_config

        write_identity(self.directory, self._identity)
        if self.security is not None:
            self.security.write(self.nodes.values())
        for node in self.nodes.values():
            node.directory.mkdir(exist_ok=True)
            lines = [property_line(key, value) for key, value in self.properties(node.id).items()]
            node.properties_file.touch(mode=0o600)  # it may have passwords
            node.properties_file.write_text("".join(lines), encoding="utf-8")
        targets = {node.id: f"{HOST}:{node.metrics_port}" for node in self.nodes.values()}
        self.prometheus_file.write_text(prometheus_config(targets, rule_file=""), encoding="utf-8")

    def _format_controllers(self) -> str | None:
        """Cluster and voters that the controllers are to be formatted for as they start; None when they are formatted.

        Again with the same identities when their ports have changed; by `barnabas-server format`, since of a formatted
        directory nobody sees from here that it was written again, and since a node of another version may know no other way.
        """
        voters = ",".join(f"{c.id}@{HOST}:{c.controller_port}:{c.directory_id}" for c in self.controllers)
        done = voters_file(self.directory).read_text(encoding="utf-8") if voters_file(self.directory).exists() else None
        if done is not None:
            for node in self.controllers:
                refuse_wiped_voter(self.directory, node.id, self._metadata_directory(node))
        if done == voters:
            return None
        if done is None and not any(node.server for node in self.controllers):
            return f"{self.cluster_id}/{voters}"
        running = []
        for node in self.controllers:
            arguments = [
                *("format", "-c", str(node.properties_file)),
                *("--cluster-id", self.cluster_id, "--initial-controllers", voters, "--ignore-formatted"),
            ]
            process = self._run_server(
                node, arguments, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
            )
            running.append((node, process))
        failures = []
        for node, process in running:
            try:
                output, _ = process.communicate(timeout=FORMAT_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                process.kill()
                output, _ = process.communicate()
            if process.returncode != 0:
                words = output.decode(errors="replace").strip()
                failures.append(f"formatting node {node.id} {describe_exit(process.returncode)}: {words}")
        if failures:
            raise LocalClusterError("\n".join(failures))
        write_durably(voters_file(self.directory), voters)
        return None

    def _wait_until_formatted(self, identity: str) -> None:
        """Until every controller has formatted itself: from then on an empty directory is one that was wiped."""
        deadline = time.monotonic() + FORMAT_TIMEOUT_S
        while not all((self._metadata_directory(node) / "meta.properties").exists() for node in self.controllers):
            self._pause_before_next_probe(deadline, "the controllers are not formatted")
        write_durably(voters_file(self.directory), identity.partition("/")[2])

    def _metadata_directory(self, node: LocalNode) -> Path:
        properties = self.properties(node.id)
        return Path(properties.get("metadata.log.dir") or properties["log.dirs"].split(",")[0])

    def _spawn(self, node: LocalNode, *, format_for: str | None = None) -> None:
        node.stderr_start = prepare_output(node.stderr_file)
        node.stdout_start = prepare_output(node.stdout_file)
        words = ["-c", str(node.properties_file), "--until-stdin-ends"]
        if not node.server:  # of another version, which may not know it
            words.append("--load-on-demand")
        if format_for is not None:
            words += ["--format-for", format_for]
        assert self._lock is not None and self._lifeline is not None, "the directory is locked before a node starts"
        with node.stdout_file.open("ab") as stdout, node.stderr_file.open("ab") as stderr:
            node.process = self._run_server(
                node,
                words,
                stdin=self._lifeline[0],
                stdout=stdout,
                stderr=stderr,
                start_new_session=True,
                pass_fds=(self._lock.fileno(),),
            )
        live_processes.add(node.process)
        node.is_expected_to_run = True
        node.is_paused = False

    def _run_server(self, node: LocalNode, arguments: Sequence[str], **options: Any) -> subprocess.Popen[bytes]:
        """Start a node's `barnabas-server`; options as for Popen. Several nodes, and those of a process's later clusters, are forked from
        one process that has imported them."""
        server = None if node.server else fork_server(starts=len(self.nodes) > 1 or LocalCluster._starts > 1)
        if server is not None:
            try:
                return server.popen(arguments, environment=node_environment(), **options)
            except NotForked as error:
                print(f"{error}: node {node.id} is started by exec", file=sys.stderr)
                forget_server()
        return subprocess.Popen([*(node.server or server_command()), *arguments], env=node_environment(), **options)

    def _take_lock(self) -> None:
        if self._lock is not None:
            raise LocalClusterError("the cluster is already started")
        self._lock = lock_directory(self.directory)
        LocalCluster._starts += 1

    def _check_ports(self) -> None:
        wanted: dict[int, str] = {}
        for node in self.nodes.values():
            for port, what in (
                (node.kafka_port, "Kafka"),
                (node.internal_port, "inter-broker"),
                (node.controller_port, "controller"),
                (node.admin_port, "admin"),
                (node.metrics_port, "metrics"),
            ):
                if port is not None:
                    wanted[port] = f"{what} port {port} of node {node.id}"
        taken = [what for port, what in wanted.items() if not is_port_free(port)]
        if taken:
            raise LocalClusterError(
                f"already in use: {', '.join(taken)}",
                f"choose another first port: a cluster uses {PORTS_SPAN} ports from there upwards",
            )


def _http_get(port: int, path: str) -> tuple[int, str]:
    """Speaks HTTP without http.client, which takes 30 ms to import: what answers is ours."""
    try:
        with socket.create_connection((HOST, port), timeout=PROBE_TIMEOUT_S) as connection:
            connection.sendall(f"GET {path} HTTP/1.0\r\nHost: {HOST}\r\n\r\n".encode())
            with connection.makefile("rb") as stream:
                head, _, body = stream.read().partition(b"\r\n\r\n")
        words = head.split(b" ", 2)
        return (int(words[1]), body.decode()) if len(words) == 3 else (0, "this was no answer")
    except (OSError, ValueError) as error:
        return 0, str(error)


def wait_until_ready(metrics_port: int, *, timeout_s: float) -> bool:
    """Whether a node of this host answers /readyz with 200 in time."""
    deadline = time.monotonic() + timeout_s
    while _http_get(metrics_port, "/readyz")[0] != 200:
        if time.monotonic() >= deadline:
            return False
        time.sleep(PROBE_PAUSE_S)
    return True
