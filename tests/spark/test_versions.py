"""`make spark-versions`: the lowest and the newest Spark, each in an environment of its own, against a real cluster."""

from __future__ import annotations

import json
import os
import subprocess
import venv
from pathlib import Path

import pytest
from confluent_kafka import Producer

from barnabas_admin.local_cluster import LocalCluster
from tests.spark.conftest import Topics

VERSIONS = os.environ.get("BARNABAS_SPARK_VERSIONS", "").split()
pytestmark = [
    pytest.mark.cluster,
    pytest.mark.tools,
    pytest.mark.full,
    pytest.mark.skipif(not VERSIONS, reason="it installs other versions of Spark: make spark-versions"),
]
ROOT = Path(__file__).parents[2]
OTHERS = ("pyarrow", "pandas", "numpy", "numba", "fastcrc", "cramjam", "fastavro", "psutil")
SOURCES = ("proto", "spark")
INSTALL_TIMEOUT_S = 1800
RUN_TIMEOUT_S = 600

JOB = """
import json, sys, tempfile
from pyspark.sql import SparkSession
import pyspark
from pyspark_barnabas import configure, register

how, given = sys.argv[1], json.loads(sys.argv[2])
builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
spark = configure(builder).getOrCreate() if how == "configure" else register(builder.getOrCreate())
both = given | {"topic": given["subscribe"] + "-copy"}

def read(topic):
    return spark.read.format("barnabas").options(**(both | {"subscribe": topic})).load()

found = {"version": pyspark.__version__, "read": read(given["subscribe"]).count()}
found["filtered"] = read(given["subscribe"]).filter("offset >= 5").count()
read(given["subscribe"]).select("key", "value").write.format("barnabas").options(**both).mode("append").save()
found["written"] = read(both["topic"]).count()
rows = spark.readStream.format("barnabas").options(**both).option("startingOffsets", "earliest").load().select("value")
query = rows.writeStream.format("barnabas").options(**both).option("checkpointLocation", tempfile.mkdtemp())
query.trigger(availableNow=True).start().awaitTermination()
found["streamed"] = read(both["topic"]).count()
meta = spark.read.format("barnabas.meta").options(**{"kafka.bootstrap.servers": given["kafka.bootstrap.servers"]})
found["brokers"] = meta.load("brokers").count()
try:
    read("nosuch").count()
except Exception as error:
    found["refused"] = str(error)
spark.stop()
print("FOUND " + json.dumps(found))
"""


@pytest.fixture(scope="module", params=VERSIONS)
def python(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The interpreter of an environment with that version."""
    place = tmp_path_factory.mktemp(f"spark-{request.param}")
    venv.create(place, with_pip=True)
    found = str(place / "bin" / "python")
    install = [found, "-m", "pip", "install", "-q", f"pyspark=={request.param}", *OTHERS]
    pins = [line for line in (ROOT / "constraints.txt").read_text().splitlines() if not line.startswith("pyspark")]
    (place / "constraints.txt").write_text("\n".join(pins))
    done = subprocess.run(
        [*install, "-c", str(place / "constraints.txt")],
        capture_output=True,
        text=True,
        timeout=INSTALL_TIMEOUT_S,
        check=False,
    )
    if done.returncode:
        pytest.skip(f"pyspark {request.param} cannot be had here: {done.stderr.strip().rpartition(chr(10))[2]}")
    return found


@pytest.mark.parametrize("how", ["configure", "register"])
def test_a_version_reads_writes_streams_and_says_what_is_wrong(
    python: str, how: str, cluster: LocalCluster, topics: Topics
) -> None:
    topic = topics.create(2)
    topics.create(2, name=f"{topic}-copy")
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers})
    for number in range(20):
        producer.produce(topic, b"%d" % number, partition=number % 2)
    assert producer.flush(60) == 0
    given = {"kafka.bootstrap.servers": cluster.bootstrap_servers, "subscribe": topic}
    environment = {name: text for name, text in os.environ.items() if not name.startswith(("PYSPARK", "SPARK"))}
    environment["PYTHONPATH"] = os.pathsep.join(str(ROOT / each) for each in SOURCES)
    done = subprocess.run(
        [python, "-c", JOB, how, json.dumps(given)],
        env=environment | {"PATH": f"{Path(python).parent}{os.pathsep}{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        timeout=RUN_TIMEOUT_S,
        check=False,
    )
    line = next((each for each in done.stdout.splitlines() if each.startswith("FOUND ")), None)
    assert line is not None, done.stderr[-4000:]
    found = json.loads(line.removeprefix("FOUND "))
    refused = found.pop("refused")
    assert found | {"version": ""} == {
        "version": "", "read": 20, "filtered": 10, "written": 20, "streamed": 40, "brokers": len(cluster.nodes)
    }  # fmt: skip
    assert "nosuch" in refused and 'File "' not in refused, refused
