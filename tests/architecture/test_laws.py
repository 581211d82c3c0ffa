"""Every room states its law, no file has a name without meaning, generated code is fresh, no config key is undocumented."""

from __future__ import annotations

import ast
import filecmp
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SOURCE_ROOTS = ("proto", "metadata_quorum", "log", "replication", "broker", "admin", "spark")
NAMELESS = {"utils", "util", "helpers", "helper", "common", "base", "misc"}
LAW = ("May touch:", "Must not touch:", "Invariants:", "Read next:")


def modules() -> list[Path]:
    """Every hand-written module of the product."""
    found = [path for root in SOURCE_ROOTS for path in (ROOT / root).rglob("*.py")]
    return sorted(path for path in found if "_pb2" not in path.name)


def test_every_package_states_its_law() -> None:
    packages = [path for path in modules() if path.name == "__init__.py"]
    assert len(packages) > 15
    silent = []
    for path in packages:
        doc = ast.get_docstring(ast.parse(path.read_text())) or ""
        if not all(word in doc for word in LAW):
            silent.append(str(path.relative_to(ROOT)))
    assert not silent


def test_every_module_says_what_it_is_for() -> None:
    silent = [str(path.relative_to(ROOT)) for path in modules() if not ast.get_docstring(ast.parse(path.read_text()))]
    assert not silent


def test_no_module_is_named_after_nothing() -> None:
    assert not [path for path in modules() if path.stem in NAMELESS]


def test_no_source_root_is_a_package() -> None:
    assert not [root for root in SOURCE_ROOTS if (ROOT / root / "__init__.py").exists()]


def test_no_exception_is_swallowed_without_a_word() -> None:
    guilty = []
    for path in modules():
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ExceptHandler) and all(isinstance(part, ast.Pass) for part in node.body):
                guilty.append(f"{path.relative_to(ROOT)}:{node.lineno}")
    assert not guilty


def test_generated_grpc_code_is_fresh(tmp_path: Path) -> None:
    protos = sorted((ROOT / "proto/barnabas_wire/rpc").glob("*.proto"))
    assert protos
    command = [
        sys.executable,
        "-m",
        "grpc_tools.protoc",
        "-I",
        ".",
        f"--python_out={tmp_path}",
        f"--pyi_out={tmp_path}",
    ]
    command += [f"--grpc_python_out={tmp_path}", *(str(path.relative_to(ROOT / "proto")) for path in protos)]
    subprocess.run(command, cwd=ROOT / "proto", check=True)
    made = sorted(path.relative_to(tmp_path) for path in tmp_path.rglob("*_pb2*"))
    assert made
    stale = [str(path) for path in made if not filecmp.cmp(tmp_path / path, ROOT / "proto" / path, shallow=False)]
    assert not stale, f"run `make proto` and commit: {stale}"


def test_every_config_key_has_a_doc() -> None:
    from barnabas_broker.config.server import known_keys

    keys = known_keys()
    assert len(keys) > 40
    assert not [key.name for key in keys if not key.doc]


@pytest.mark.parametrize("name", [f"{role}-{number}" for role in ("broker", "controller") for number in (1, 2, 3)])
def test_shipped_configs_are_accepted_without_a_warning_and_make_durable_topics(
    name: str, caplog: pytest.LogCaptureFixture
) -> None:
    """What counts of min.insync.replicas is the controllers', and of default.replication.factor that of the node asked."""
    from barnabas_broker.config.server import known_keys, node_config, read_properties

    properties = read_properties(ROOT / f"deploy/config/{name}.properties")
    config = node_config(properties)
    assert config.server.process_roles == (name.partition("-")[0],) and not caplog.messages
    assert not set(properties) - {key.name for key in known_keys()}
    assert properties["default.replication.factor"] == "3"
    assert config.controller.min_insync_replicas == 2 or not config.server.is_controller
    node_config(properties | {"min.insync.replicas": "2"})
    assert any("does not count" in told for told in caplog.messages) == config.server.is_broker


def test_no_list_of_a_request_is_counted_once_for_each_of_its_elements() -> None:
    """`names.count(name)` for 8,000 names is three seconds of a loop, in one C call each: a Counter is one pass."""
    guilty = []
    for path in modules():
        if not {"api", "controller", "coordinator"} & set(path.relative_to(ROOT).parts):
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "count":
                guilty.append(f"{path.relative_to(ROOT)}:{node.lineno}")
    assert not guilty


CIRCLES: frozenset[frozenset[str]] = frozenset(
    {
        frozenset(
            {
                "barnabas_broker.metrics.exporter",
                "barnabas_broker.metrics.groups",
                "barnabas_broker.metrics.sources",
                "barnabas_broker.metrics.traffic",
            }
        ),
        frozenset({"barnabas_broker.network.connection", "barnabas_broker.network.listener"}),
    }
)
"""Those that still stand; the list may only become shorter."""


def imported_modules() -> dict[str, set[str]]:
    """By module of the product: the modules of the product that it imports, for types alone too."""
    files = {}
    for root in SOURCE_ROOTS:
        for path in (ROOT / root).rglob("*.py"):
            if "_pb2" not in path.name:
                name = ".".join(path.relative_to(ROOT / root).with_suffix("").parts)
                files[name.removesuffix(".__init__")] = path
    found: dict[str, set[str]] = {}
    for name, path in files.items():
        imports: set[str] = set()
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                imports |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module is not None and node.level == 0:
                # `from package import module` means the module
                imports |= {
                    inner if (inner := f"{node.module}.{alias.name}") in files else node.module for alias in node.names
                }
        found[name] = (imports & files.keys()) - {name}
    return found


def circles(imports: dict[str, set[str]]) -> set[frozenset[str]]:
    """Groups of modules that reach each other."""

    def reached(start: str) -> set[str]:
        seen: set[str] = set()
        todo = [start]
        while todo:
            new = imports.get(todo.pop(), set()) - seen
            seen |= new
            todo += new
        return seen

    reach = {name: reached(name) for name in imports}
    return {
        frozenset(other for other in reach[name] if name in reach[other]) for name in imports if name in reach[name]
    }


def test_no_modules_import_each_other_in_a_circle() -> None:
    found = circles(imported_modules())
    assert not found - CIRCLES, "new circles: a type that both need stands in neither"
    assert not CIRCLES - found, "these circles are gone: take them off the list"


def test_a_circle_is_found_over_any_number_of_modules() -> None:
    assert circles({"a": {"b"}, "b": {"c"}, "c": {"a", "d"}, "d": set()}) == {frozenset({"a", "b", "c"})}
    assert not circles({"a": {"b", "c"}, "b": {"c"}, "c": set()})
