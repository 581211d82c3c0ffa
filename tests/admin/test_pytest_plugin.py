"""Laws of the pytest fixtures: every test begins with a whole cluster of the kind it asked for. Fake nodes, pytest within pytest."""

from __future__ import annotations

import itertools
import re
from pathlib import Path

import pytest

from barnabas_admin.cluster_pool import PORTS_PER_WORKER, ClusterPool, ClusterSpec, log_ends, logs_since
from barnabas_admin.errors import LocalClusterError
from barnabas_admin.local_cluster import LocalCluster

pytest_plugins = ["pytester"]
pytestmark = pytest.mark.usefixtures("fake_server")


def run(pytester: pytest.Pytester, source: str, *arguments: str) -> pytest.RunResult:
    pytester.makepyfile(source)
    return pytester.runpytest_inprocess("-p", "no:cacheprovider", "--barnabas-nodes=2", *arguments)


def run_apart(pytester: pytest.Pytester, source: str, *arguments: str) -> pytest.RunResult:
    """In a process of its own: within this one pytester forgets afterwards what was imported, and a broker is imported once."""
    pytester.makepyfile(source)
    return pytester.runpytest_subprocess("-p", "no:cacheprovider", *arguments)


def test_a_cluster_is_shared_and_mended_between_tests(pytester: pytest.Pytester) -> None:
    result = run(
        pytester,
        """
        def test_kills(barnabas_cluster):
            barnabas_cluster.kill(2)
            barnabas_cluster.pause(1)
            test_kills.cluster = barnabas_cluster

        def test_finds_it_whole(barnabas_cluster):
            assert barnabas_cluster is test_kills.cluster
            assert [node.is_running and not node.is_paused for node in barnabas_cluster.nodes.values()] == [True, True]
        """,
    )
    result.assert_outcomes(passed=2)


def test_a_marker_chooses_size_properties_and_who_shares(pytester: pytest.Pytester) -> None:
    result = run(
        pytester,
        """
        import pytest
        seen = {}

        @pytest.mark.barnabas(nodes=1, properties={"fake.words": "hello"})
        def test_one(barnabas_cluster):
            assert list(barnabas_cluster.nodes) == [1]
            assert "fake.words=hello" in barnabas_cluster.nodes[1].properties_file.read_text()
            seen["one"] = barnabas_cluster

        @pytest.mark.barnabas(nodes=1, properties={"fake.words": "hello"})
        def test_same(barnabas_cluster):
            assert barnabas_cluster is seen["one"]

        @pytest.mark.barnabas(nodes=1, properties={"fake.words": "hello"}, scope="function")
        def test_own(barnabas_cluster):
            assert barnabas_cluster is not seen["one"]
            seen["own"] = barnabas_cluster

        def test_factory(barnabas_factory):
            assert not any(node.is_running for node in seen["own"].nodes.values()), "it went with its test"
            first, second = barnabas_factory(), barnabas_factory(nodes=2)
            assert (len(first.nodes), len(second.nodes)) == (1, 2)
            seen["made"] = first

        def test_after():
            assert not seen["made"].nodes[1].is_running
        """,
    )
    result.assert_outcomes(passed=5)


def test_a_topic_has_a_name_of_its_own(pytester: pytest.Pytester) -> None:
    result = run_apart(
        pytester,
        """
        import pytest, re
        names = []

        @pytest.mark.barnabas_topic(partitions=3, configs={"retention.ms": 5})
        @pytest.mark.parametrize("what", ["a/b", "c d"])
        def test_topic(barnabas_in_process, barnabas_topic, what):
            assert re.fullmatch(r"test_topic-[a-z]-[a-z]--[0-9a-f]{8}", barnabas_topic), barnabas_topic
            assert barnabas_topic not in names
            names.append(barnabas_topic)
            with closing(BlockingCluster(barnabas_in_process.bootstrap_servers)) as client:
                assert client.partitions([barnabas_topic]) == {barnabas_topic: [0, 1, 2]}

        def test_they_are_gone_afterwards(barnabas_in_process):
            with closing(BlockingCluster(barnabas_in_process.bootstrap_servers)) as client:
                assert not set(names) & set(client.metadata().topic_ids)

        @pytest.mark.barnabas_topic(partitions=0)
        def test_refused(barnabas_in_process, barnabas_topic):
            pass
        """.replace("import pytest, re\n", IMPORTS, 1),
    )
    result.assert_outcomes(passed=3, errors=1)
    result.stdout.fnmatch_lines(["*0 partitions; at least 1 is needed*"])


IMPORTS = """import pytest, re
        from contextlib import closing
        from barnabas_wire.client.blocking import BlockingCluster
"""


def test_a_broker_in_this_process_is_shared_by_properties_and_replaced_once_closed(pytester: pytest.Pytester) -> None:
    result = run_apart(
        pytester,
        """
        import pytest
        seen = []

        def test_first(barnabas_in_process):
            seen.append(barnabas_in_process)

        def test_same(barnabas_in_process):
            assert barnabas_in_process is seen[0] and barnabas_in_process.is_running
            barnabas_in_process.close()

        def test_another(barnabas_in_process):
            assert barnabas_in_process is not seen[0] and barnabas_in_process.is_running
            seen.append(barnabas_in_process)

        @pytest.mark.barnabas(properties={"log.retention.ms": 1000})
        def test_other_properties(barnabas_in_process):
            assert barnabas_in_process not in seen

        @pytest.mark.barnabas(scope="function")
        def test_own(barnabas_in_process):
            assert barnabas_in_process not in seen
            seen.append(barnabas_in_process)

        def test_own_is_closed(barnabas_in_process):
            assert not seen[-1].is_running and barnabas_in_process is seen[1]

        @pytest.mark.barnabas(nodes=3)
        def test_three(barnabas_in_process):
            pass
        """,
    )
    result.assert_outcomes(passed=6, errors=1)
    result.stdout.fnmatch_lines(["*barnabas_in_process is one node*barnabas_cluster*"])


def test_a_failing_test_shows_what_the_broker_in_its_process_logged_and_passing_ones_stay_silent(
    pytester: pytest.Pytester,
) -> None:
    result = run_apart(
        pytester,
        """
        def test_fine(barnabas_in_process, caplog):
            assert caplog.messages == []

        def test_broken(barnabas_in_process):
            assert False
        """,
        "-rA",
    )
    result.assert_outcomes(passed=1, failed=1)
    text = result.stdout.str()
    assert text.count("broker 1 is unfenced") == 1
    assert "barnabas in this process: <barnabas.Broker at 127.0.0.1:" in text


def test_topics_of_a_test_load_no_grpc(pytester: pytest.Pytester) -> None:
    result = run_apart(
        pytester,
        """
        import atexit, sys
        atexit.register(lambda: print("loaded:", [name for name in sys.modules if name.split(".")[0] == "grpc"], file=sys.__stdout__))

        def test_topic(barnabas_in_process, barnabas_topic):
            pass
        """,
        "-s",
    )
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(["loaded: [[][]]"])


def test_a_failing_test_shows_what_its_nodes_logged_and_a_passing_one_nothing(pytester: pytest.Pytester) -> None:
    result = run(
        pytester,
        """
        import pytest
        pytestmark = pytest.mark.barnabas(nodes=1, properties={"fake.words": "said by the node"})

        def test_fine(barnabas_cluster):
            barnabas_cluster.restart(1)

        def test_broken(barnabas_cluster):
            barnabas_cluster.restart(1)
            barnabas_cluster.wait_until(lambda: barnabas_cluster.is_ready(1), what="ready")
            assert False
        """,
    )
    result.assert_outcomes(passed=1, failed=1)
    text = result.stdout.str()
    assert len(re.findall(r"barnabas node 1 of barnabas\d", text)) == 1
    assert "said by the node" in text.partition("barnabas node 1 of")[2]


@pytest.mark.parametrize(
    ("marker", "reported"),
    [
        ("barnabas(size=1)", "barnabas has no argument size; use nodes, scope, properties, roles"),
        ("barnabas(1)", "barnabas has no arguments without a name"),
        ("barnabas(scope='class')", "use session, module or function"),
        ("barnabas(nodes=0)", "barnabas(nodes=0): a cluster has at least one node"),
    ],
)
def test_a_marker_that_says_nothing_known_is_refused(pytester: pytest.Pytester, marker: str, reported: str) -> None:
    result = run(
        pytester,
        f"""
        import pytest

        @pytest.mark.{marker}
        def test_it(barnabas_cluster):
            pass
        """,
    )
    assert reported in result.stdout.str() + result.stderr.str()
    assert result.ret != 0


def test_what_a_cluster_cannot_do_is_one_line_without_frames(pytester: pytest.Pytester) -> None:
    result = run(
        pytester,
        """
        import pytest

        @pytest.mark.barnabas(nodes=1, properties={"fake.words": "num.partitions is no number", "fake.die": "2"})
        def test_it(barnabas_cluster):
            pass
        """,
    )
    text = result.stdout.str()
    assert "num.partitions" in text and result.ret != 0
    assert "pytest_plugin.py" not in text and "cluster_pool.py" not in text


def test_ports_are_chosen_by_an_option(pytester: pytest.Pytester) -> None:
    source = """
        def test_it(barnabas_clusters):
            assert barnabas_clusters._ports_from == 23_000
        """
    run(pytester, source, "--barnabas-port=23000").assert_outcomes(passed=1)
    result = run(pytester, source, "--barnabas-port=65000")
    assert "--barnabas-port=65000: there are 960 ports" in result.stdout.str() + result.stderr.str()


def test_workers_have_ports_of_their_own_below_the_ephemeral_range(tmp_path: Path) -> None:
    pools = [ClusterPool(lambda: tmp_path, worker=worker) for worker in range(10)]
    firsts = [pool._ports_from for pool in pools]
    assert all(later - earlier == PORTS_PER_WORKER for earlier, later in itertools.pairwise(firsts))
    assert firsts[-1] + PORTS_PER_WORKER <= 32768


def test_a_cluster_that_cannot_be_mended_is_never_given_out_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directories = (tmp_path / str(number) for number in range(9))
    pool = ClusterPool(lambda: next(directories))
    spec = ClusterSpec.of(nodes=1, roles="combined", properties={})
    try:
        first = pool.get(spec)
        assert pool.get(spec) is first

        def fail(self: LocalCluster) -> None:
            raise LocalClusterError("beyond help")

        with monkeypatch.context() as patch, pytest.raises(LocalClusterError):
            patch.setattr(LocalCluster, "heal", fail)
            pool.mend(first)
        second = pool.get(spec)
        assert second is not first and not first.nodes[1].is_running
        second.nodes[1].stderr_file.write_bytes(b"before\n")
        ends = log_ends(second)
        assert logs_since(second, ends) == {}
        with second.nodes[1].stderr_file.open("ab") as stream:
            stream.write(b"".join(b"line %d\n" % number for number in range(100)))
        shown = logs_since(second, ends)[1].splitlines()
        assert shown[0] == "… 40 lines before" and shown[-1] == "line 99" and len(shown) == 61
    finally:
        pool.close()
