"""The wheel in empty environments: with the lowest versions that pyproject.toml allows, and with the newest."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

from barnabas_broker.version import VERSION

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = (
    "barnabas",
    "barnabas_admin",
    "barnabas_broker",
    "barnabas_coordination",
    "barnabas_log",
    "barnabas_quorum",
    "barnabas_replication",
    "barnabas_simulation",
    "barnabas_wire",
)
INSTALL_TIMEOUT_S = 600
CLUSTER_TIMEOUT_S = 180
IMPORTS = """
OF_EXTRAS = (".compiled", ".compiled_inspection", ".compiled_keys", ".console.application", ".tracing.produce")
import importlib, pkgutil, sys, warnings
warnings.simplefilter("error")
for name in sys.argv[1:]:
    package = importlib.import_module(name)
    assert "site-packages" in package.__file__, package.__file__
    for module in pkgutil.walk_packages(package.__path__, name + "."):
        if not module.name.endswith(("__main__", "pytest_plugin", *OF_EXTRAS)):
            importlib.import_module(module.name)
print(len(sys.modules))
"""
ROUND_TRIP = """
set -e
barnabas topic create hello -p 3 -r 3
echo hi | barnabas topic produce hello
barnabas topic consume hello --from-beginning -n 1 -o json
barnabas cluster health
barnabas perf produce hello -n 1000
barnabas generate prometheus > scrape.yml
barnabas debug bundle -f bundle.zip > /dev/null
"""

TRACED = """
from concurrent import futures
import grpc
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2, trace_service_pb2_grpc
from barnabas_broker.tracing.config import TracingConfig
from barnabas_broker.tracing.export import open_traces
came = []
class Collector(trace_service_pb2_grpc.TraceServiceServicer):
    def Export(self, request, context):
        came.extend(span.name for of in request.resource_spans for scope in of.scope_spans for span in scope.spans)
        return trace_service_pb2.ExportTraceServiceResponse()
server = grpc.server(futures.ThreadPoolExecutor(1))
trace_service_pb2_grpc.add_TraceServiceServicer_to_server(Collector(), server)
address = f"http://127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
server.start()
traces = open_traces(TracingConfig(otlp_endpoint=address, sample_ratio=1.0), node_id=1, cluster_id="c", draw=lambda: 0.0)
span = traces.produce._tracer.start_span("produce")
span.set_attributes({"barnabas.topics": ("orders",), "barnabas.partitions": (0,)})
span.end()
traces.close()
server.stop(0)
print(came)
"""

pytestmark = [pytest.mark.package, pytest.mark.timeout(1200)]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of this tree."""
    directory = tmp_path_factory.mktemp("dist")
    pip = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", str(directory), str(ROOT)]
    subprocess.run(pip, check=True, timeout=INSTALL_TIMEOUT_S)
    (made,) = directory.glob("barnabas-*.whl")
    return made


def test_the_page_of_the_wheel_has_no_link_into_the_repository(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (each for each in archive.namelist() if each.endswith(".dist-info/METADATA"))
        page = archive.read(name).decode().partition("\n\n")[2]
    assert "barnabas dev -n 3" in page and "the console" in page, "the words stay"
    assert [each for each in re.findall(r"\]\(([^)]*)\)", page) if not each.startswith(("https:", "#"))] == []


def floors(extra: str = "") -> list[str]:
    """Each run-time dependency, or those of an extra, at the lowest version that pyproject.toml allows."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    lines = project["optional-dependencies"][extra] if extra else project["dependencies"]
    found = [re.fullmatch(r"([\w-]+)>=([\d.]+)(,<\d+)?", line) for line in lines]
    return [f"{match[1]}=={match[2]}" for match in found if match is not None]


@pytest.mark.parametrize("versions", ["lowest", "newest"])
def test_the_wheel_runs_a_cluster_in_an_empty_environment(wheel: Path, tmp_path: Path, versions: str) -> None:
    wanted = floors() if versions == "lowest" else []
    if wanted:
        project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
        assert len(wanted) == len(project["dependencies"]), "a dependency has no floor that this test understands"
        if sys.version_info >= (3, 13):
            pytest.skip("some floors are older than Python 3.13 and have no wheels for it")
    environment = tmp_path / "env"
    subprocess.run([sys.executable, "-m", "venv", str(environment)], check=True, timeout=INSTALL_TIMEOUT_S)
    scripts = environment / "bin"
    clean = {
        key: value for key, value in os.environ.items() if not key.startswith(("PYTHON", "BARNABAS", "VIRTUAL_ENV"))
    }
    clean |= {"PATH": f"{scripts}:{os.environ['PATH']}", "HOME": str(tmp_path)}

    def run(*command: str, timeout_s: float = INSTALL_TIMEOUT_S) -> str:
        done = subprocess.run(
            [str(scripts / command[0]), *command[1:]],
            cwd=tmp_path,
            env=clean,
            capture_output=True,
            text=True,
            check=False,
            timeout=timeout_s,
        )
        assert done.returncode == 0, f"{command}\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
        return done.stdout

    run("python", "-m", "pip", "install", "--quiet", "--only-binary", ":all:", str(wheel), *wanted)
    run("python", "-m", "pip", "check")
    assert run("barnabas", "--version").split() == ["barnabas", VERSION]
    assert run("python", "-c", "import barnabas; print(barnabas.__version__)").strip() == VERSION
    assert int(run("python", "-c", IMPORTS, *PACKAGES)) > 100
    written = json.loads(run("barnabas", "storage", "init", "mine", "-o", "json"))["files"]
    assert len(written) == 9 and all((tmp_path / name).stat().st_size for name in written)
    for what in ("grafana", "systemd", "alerts", "config", "compose", "k8s"):
        made = json.loads(run("barnabas", "generate", what, "-d", f"made/{what}", "-o", "json"))["files"]
        assert made and all((tmp_path / name).stat().st_size for name in made), what
    for file in (ROOT / "deploy" / "grafana").iterdir():
        assert (tmp_path / "made" / "grafana" / file.name).read_bytes() == file.read_bytes()
    if shutil.which("promtool") is not None:
        alerts = str(tmp_path / "made" / "alerts" / "alerts.yml")
        subprocess.run(["promtool", "check", "rules", alerts], check=True, capture_output=True, timeout=60)
    said = run("barnabas", "dev", "-n", "3", "--data", "data", "--exec", ROUND_TRIP, timeout_s=CLUSTER_TIMEOUT_S)
    assert '"hi"' in said
    assert (tmp_path / "scrape.yml").read_text().count("targets") == 3
    assert (tmp_path / "bundle.zip").stat().st_size > 10_000
    extra = floors("otel") if versions == "lowest" else []
    run("python", "-m", "pip", "install", "--quiet", "--only-binary", ":all:", f"{wheel}[otel]", *wanted, *extra)
    assert run("python", "-c", TRACED).strip() == "['produce']"
