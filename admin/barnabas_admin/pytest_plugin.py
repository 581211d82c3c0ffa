"""Fixtures for the tests of any project that has Barnabas installed: a broker in their process, real clusters, topics of their own.

May touch:  pytest; LocalCluster and barnabas.broker when a fixture is used.   Must not touch: anything at import, for every pytest run
            loads this.
Invariants: a test begins with a whole cluster, whatever the one before did to it; nothing outlives the run; xdist workers share
            neither clusters nor ports; topics come and go by Kafka's protocol, and no gRPC is loaded for them.
Read next:  cluster_pool.py, which keeps the clusters; ../barnabas/in_process.py.

    def test_orders(barnabas_in_process, barnabas_topic):            # one broker, in this process: there in 20 ms
        producer = Producer({"bootstrap.servers": barnabas_in_process.bootstrap_servers})
        producer.produce(barnabas_topic, b"order")

    def test_orders_survive(barnabas_cluster, barnabas_topic):       # three nodes, processes that can be killed
        barnabas_cluster.kill(2)

    @pytest.mark.barnabas(nodes=1, properties={"log.retention.ms": 1000})     # another cluster, shared by all who ask for the same
    @pytest.mark.barnabas(scope="function")                                  # one that nobody else gets
    @pytest.mark.barnabas_topic(partitions=6, replicas=2, configs={"retention.ms": 1000})

A test may `kill(2)`, `restart(2)`, `stop_node(2)`, `pause(2)`, `resume(2)` nodes of its cluster: they are mended after it. What the
nodes logged during a test is shown when it fails.
"""

from __future__ import annotations

import os
import re
import secrets
from collections.abc import Callable, Generator, Iterator
from contextlib import closing
from typing import TYPE_CHECKING, Any, TypeVar

import pytest

if TYPE_CHECKING:
    from barnabas import Broker
    from barnabas_admin.cluster_pool import ClusterPool
    from barnabas_admin.local_cluster import LocalCluster

A = TypeVar("A")
T = TypeVar("T")
NODES_DEFAULT = 3
PORT_END = 65_536
TOPIC_NAME_LENGTH_MAX = 60
"""The longest part of a topic's name that comes from its test."""
TIMEOUT_MS = 30_000
"""How long a topic's deletion may take."""
_brokers_key = pytest.StashKey["list[Broker]"]()
"""Brokers in this process that a test has."""
_clusters_key = pytest.StashKey["dict[LocalCluster, dict[int, int]]"]()
"""Clusters of a test, with how long their nodes' logs were when it began."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """--barnabas-nodes, --barnabas-port."""
    group = parser.getgroup("barnabas")
    group.addoption(
        "--barnabas-port",
        type=int,
        default=None,
        metavar="PORT",
        help="first of the ports of clusters: 960 of them, for each xdist worker; default 20000",
    )
    group.addoption(
        "--barnabas-nodes",
        type=int,
        default=NODES_DEFAULT,
        help="nodes of the barnabas_cluster fixture, each broker and controller",
    )


def pytest_configure(config: pytest.Config) -> None:
    """The markers."""
    config.addinivalue_line(
        "markers",
        "barnabas(nodes=3, scope='session', properties={}, roles='combined'): the cluster that this test gets; scope is session, "
        "module or function",
    )
    config.addinivalue_line(
        "markers",
        "barnabas_topic(partitions=1, replicas=None, configs={}): how the barnabas_topic of this test is made",
    )


@pytest.fixture(scope="session")
def barnabas_clusters(pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterPool]:
    """Every cluster of the run; for session fixtures of your own: `barnabas_clusters.get(ClusterSpec(nodes=3))`."""
    from barnabas_admin.cluster_pool import PORTS_FIRST, PORTS_PER_WORKER, WORKERS_MAX, ClusterPool

    worker = int(re.sub(r"\D", "", os.environ.get("PYTEST_XDIST_WORKER", "")) or 0)
    given = pytestconfig.getoption("--barnabas-port")
    first = PORTS_FIRST if given is None else given
    last = first + (worker % WORKERS_MAX + 1) * PORTS_PER_WORKER
    if first < 1 or last > PORT_END:
        raise pytest.UsageError(
            f"--barnabas-port={first}: there are {PORTS_PER_WORKER} ports from there on for each worker"
        )
    pool = ClusterPool(lambda: tmp_path_factory.mktemp("barnabas"), worker=worker, ports_first=first)
    yield pool
    pool.close()


@pytest.fixture
def barnabas_cluster(request: pytest.FixtureRequest, barnabas_clusters: ClusterPool) -> Iterator[LocalCluster]:
    """A healthy cluster: `.bootstrap_servers` for Kafka clients, `.admin_addresses` for gRPC, `.kill(node_id)` to break it.

    Shared with every test that asks for one of the same kind, unless the marker `barnabas` says otherwise.
    """
    from barnabas_admin.cluster_pool import ClusterSpec

    wanted = _arguments(request, "barnabas", nodes=None, scope="session", properties={}, roles="combined")
    scope = wanted["scope"]
    _require_scope(scope)
    nodes = request.config.getoption("--barnabas-nodes") if wanted["nodes"] is None else wanted["nodes"]
    if not isinstance(nodes, int) or nodes < 1:
        raise pytest.UsageError(f"barnabas(nodes={nodes!r}): a cluster has at least one node")
    spec = ClusterSpec.of(
        nodes=nodes,
        roles=wanted["roles"],
        properties=wanted["properties"],
        owner=str(request.path) if scope == "module" else "",
    )
    cluster = _in_words(barnabas_clusters.start if scope == "function" else barnabas_clusters.get, spec)
    if scope != "function":
        module = request.node.getparent(pytest.Module)
        if scope == "module" and module is not None:
            module.addfinalizer(lambda: barnabas_clusters.stop(cluster))
    _show_logs_of(request, cluster)
    yield cluster
    if scope == "function":
        barnabas_clusters.stop(cluster)
    else:
        _in_words(barnabas_clusters.mend, cluster)


@pytest.fixture
def barnabas_factory(
    request: pytest.FixtureRequest, barnabas_clusters: ClusterPool
) -> Iterator[Callable[..., LocalCluster]]:
    """`barnabas_factory(nodes=1, properties={...}, roles="combined")` starts a cluster for this test alone; any number of them."""
    from barnabas_admin.cluster_pool import ClusterSpec

    started = []

    def start(*, nodes: int = 1, properties: dict[str, object] | None = None, roles: Any = "combined") -> LocalCluster:
        spec = ClusterSpec.of(nodes=nodes, roles=roles, properties=properties or {})
        cluster = _in_words(barnabas_clusters.start, spec)
        started.append(cluster)
        _show_logs_of(request, cluster)
        return cluster

    yield start
    for cluster in started:
        barnabas_clusters.stop(cluster)


@pytest.fixture(scope="session")
def barnabas_brokers() -> Iterator[dict[tuple[str, ...], Broker]]:
    """Brokers in this process that tests share, by what they asked for."""
    shared: dict[tuple[str, ...], Broker] = {}
    yield shared
    for broker in shared.values():
        broker.close()


@pytest.fixture
def barnabas_in_process(
    request: pytest.FixtureRequest, barnabas_brokers: dict[tuple[str, ...], Broker]
) -> Iterator[Broker]:
    """A real broker in this process: `.bootstrap_servers` for Kafka clients, `.log`, `.directory`. See `barnabas.broker`.

    Shared with every test that asks for the same properties, unless the marker `barnabas` says otherwise. One that a test closed is
    replaced for the next.
    """
    import barnabas

    wanted = _arguments(request, "barnabas", nodes=None, scope="session", properties={}, roles="combined")
    scope = wanted["scope"]
    if wanted["nodes"] not in (None, 1) or wanted["roles"] != "combined":
        raise pytest.UsageError(
            "barnabas_in_process is one node, broker and controller: ask for barnabas_cluster, whose nodes are processes"
        )
    _require_scope(scope)
    if scope == "function":
        with barnabas.broker(wanted["properties"]) as broker:
            _show_log_of(request, broker)
            yield broker
        return
    owner = str(request.path) if scope == "module" else ""
    spec = (owner, *sorted(f"{key}={value}" for key, value in wanted["properties"].items()))
    found = barnabas_brokers.get(spec)
    if found is None or not found.is_running:
        found = barnabas_brokers[spec] = barnabas.broker(wanted["properties"]).start()
        module = request.node.getparent(pytest.Module)
        if scope == "module" and module is not None:
            module.addfinalizer(found.close)
    _show_log_of(request, found)
    yield found


@pytest.fixture
def barnabas_topic(request: pytest.FixtureRequest) -> Iterator[str]:
    """Name of a topic that only this test has, made as the marker `barnabas_topic` says; deleted after the test.

    On barnabas_in_process where the test asks for that, else on barnabas_cluster.
    """
    from barnabas_wire.client.blocking import BlockingCluster
    from barnabas_wire.client.metadata import known_code
    from barnabas_wire.kafka.errors import KafkaError
    from barnabas_wire.kafka.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
    from barnabas_wire.kafka.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState

    wanted = _arguments(request, "barnabas_topic", partitions=1, replicas=None, configs={})
    stem = re.sub(r"[^A-Za-z0-9._-]+", "-", request.node.name)[:TOPIC_NAME_LENGTH_MAX]
    name = f"{stem}-{secrets.token_hex(4)}"
    is_in_process = "barnabas_in_process" in request.fixturenames
    where = request.getfixturevalue("barnabas_in_process" if is_in_process else "barnabas_cluster")
    topic = CreatableTopic(
        name=name,
        num_partitions=wanted["partitions"],
        replication_factor=wanted["replicas"] or -1,
        configs=[CreatableTopicConfig(name=key, value=str(value)) for key, value in wanted["configs"].items()],
    )
    with closing(BlockingCluster(where.bootstrap_servers)) as client:
        (made,) = client.call(CreateTopicsRequest(topics=[topic])).topics
        if made.error_code:
            raise KafkaError.of(known_code(made.error_code), made.error_message or f"{name} could not be made")
        yield name
        if not is_in_process:
            where.heal()  # a test may leave no quorum behind
        elif not where.is_running:
            return
        client.call(
            DeleteTopicsRequest(topics=[DeleteTopicState(name=name)], topic_names=[name], timeout_ms=TIMEOUT_MS)
        )


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Generator[None, Any, Any]:
    """Show with a failure what the nodes of the test's clusters have logged since it began."""
    report = yield
    if report.failed and _brokers_key in item.stash:
        from barnabas_admin.cluster_pool import LOG_LINES_MAX

        for broker in item.stash[_brokers_key]:
            lines = broker.log.splitlines()[-LOG_LINES_MAX:]
            report.sections.append((f"barnabas in this process: {broker!r}", "\n".join(lines)))
    if report.failed and _clusters_key in item.stash:
        from barnabas_admin.cluster_pool import logs_since

        for cluster, ends in item.stash[_clusters_key].items():
            for node_id, text in logs_since(cluster, ends).items():
                report.sections.append((f"barnabas node {node_id} of {cluster.directory.name}", text))
    return report


def _in_words(do: Callable[[A], T], argument: A) -> T:
    """What a cluster cannot do fails its test in words: no frame of ours helps whoever reads them."""
    from barnabas_admin.errors import LocalClusterError

    __tracebackhide__ = True
    try:
        return do(argument)
    except LocalClusterError as error:
        hint = error.hint or "--barnabas-port chooses other ports" if "port" in error.message else error.hint
        pytest.fail(f"{error.message}{f' ({hint})' if hint else ''}", pytrace=False)


def _show_log_of(request: pytest.FixtureRequest, broker: Broker) -> None:
    request.node.stash.setdefault(_brokers_key, []).append(broker)


def _require_scope(scope: object) -> None:
    if scope not in ("session", "module", "function"):
        raise pytest.UsageError(f"barnabas(scope={scope!r}): use session, module or function")


def _show_logs_of(request: pytest.FixtureRequest, cluster: LocalCluster) -> None:
    from barnabas_admin.cluster_pool import log_ends

    request.node.stash.setdefault(_clusters_key, {})[cluster] = log_ends(cluster)


def _arguments(request: pytest.FixtureRequest, marker: str, **defaults: Any) -> dict[str, Any]:
    """The marker's arguments, those of the closest first; raises UsageError for one that it does not have."""
    found = dict(defaults)
    for mark in reversed(list(request.node.iter_markers(marker))):
        unknown = sorted(mark.kwargs.keys() - defaults.keys())
        if mark.args or unknown:
            what = f"no argument {unknown[0]}" if unknown else "no arguments without a name"
            raise pytest.UsageError(f"{marker} has {what}; use {', '.join(defaults)}")
        found |= mark.kwargs
    return found
