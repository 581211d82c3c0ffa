"""Console script `barnabas-server`: run a node, and the offline verbs that need the rooms.

May touch:  arguments, the properties file, process signals.   Must not touch: the wiring (node/node.py does it).
Invariants: a refusal is one line that names the fix, exit status 2; SIGTERM and SIGINT stop a node by controlled shutdown.
Read next:  node/node.py.
"""

from __future__ import annotations

import argparse
import gc
import importlib
import json
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, NoReturn

from barnabas_wire.host_system import SYSTEMS
from barnabas_wire.kafka.errors import ErrorCode, KafkaError
from barnabas_wire.kafka.ids import Uuid

if TYPE_CHECKING:
    from barnabas_broker.node.properties import NodeConfig, ServerConfig
    from barnabas_log.disk import RealDisk
    from barnabas_quorum.records_security import UserScramCredentialRecord

EXIT_FAILED = 1
EXIT_USAGE = 2
ORPHAN_STOP_S = 15.0
"""A node whose parent has gone and that has not stopped in order after this time ends at once."""
_VERBS_ELSEWHERE = {
    "fork-server": (
        "barnabas_broker.node.fork_server",
        "start nodes of a local cluster by fork: `barnabas dev` asks it",
    ),
    "host": (
        "barnabas_broker.host.command",
        "run a broker for each core of this host, and watch over them",
    ),
    "quorum": (
        "barnabas_broker.offline.recover_command",
        "recover a controller quorum that has lost its majority (offline)",
    ),
    "log": ("barnabas_broker.offline.log_dump", "look into log files (offline)"),
    "sim": (
        "barnabas_simulation.command",
        "run a whole cluster on virtual time: a leader dies, a network splits, a disk rots, two voters are lost",
    ),
}
"""Verbs whose arguments are with their code, and their lines in the help: others do not wait for what these import. The simulation is
a floor above, and known by its name alone."""


def main(arguments: Sequence[str] | None = None, *, open_disk: Callable[[], RealDisk] | None = None) -> int:
    """Run one verb; returns the process's exit status.

    open_disk: makes the disks of a node that is run, None: the operating system's (see run_node); the offline verbs keep that.
    """
    words = sys.argv[1:] if arguments is None else arguments
    options = argparse.Namespace(verb="")
    verbs = {
        "format": _format,
        "info": _info,
        "random-uuid": _random_uuid,
        "check": _check,
        "config-docs": _config_docs,
    }
    try:
        parser = _parser(words)
        options = parser.parse_args(words)
        _take_outer_options(parser, options)
        if options.verb in _VERBS_ELSEWHERE:
            return int(importlib.import_module(_VERBS_ELSEWHERE[options.verb][0]).run(options))
        return _run(options, open_disk) if options.verb is None else verbs[options.verb](options)
    except KafkaError as error:
        refusal = error
        if options.verb is None and "NOTIFY_SOCKET" in os.environ:
            from barnabas_broker.node.service_manager import ServiceManager

            ServiceManager.of(os.environ).notify(f"STATUS=refused: {refusal.message}")
    except OSError as error:
        if options.verb is None:
            raise  # of a node that runs: its log wants to know where
        if isinstance(error, BrokenPipeError):
            # The reader of our output has gone (`… | head`). What is still buffered must not fail when the interpreter
            # ends.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return 0
        refusal = KafkaError.of(ErrorCode.KAFKA_STORAGE_ERROR, str(error))  # names the path
    finally:
        gc.enable()  # `_run` turned it off; its caller continues
    if getattr(options, "output", "") == "json" or _asks_for_json(words):
        fields = {
            "code": int(refusal.code),
            "name": refusal.code.name,
            "message": refusal.message,
            "hint": "",
            "retriable": refusal.is_retriable,
        }
        print(json.dumps({"api_version": "v1", "error": fields}, ensure_ascii=False), file=sys.stderr)
    else:
        print(f"barnabas-server: {refusal.message}", file=sys.stderr)
    return EXIT_USAGE


class _Parser(argparse.ArgumentParser):
    """Raises wrong usage as the error that is reported, in its sub-parsers too."""

    def error(self, message: str) -> NoReturn:
        """See ArgumentParser.error, which prints the usage and ends the process."""
        raise KafkaError.of(ErrorCode.INVALID_REQUEST, f"{message}; see `{self.prog} --help`")


def _asks_for_json(words: Sequence[str]) -> bool:
    """Found in the words themselves: of a line that is refused no option is known."""
    pairs = {("-o", "json"), ("--output", "json")}
    return not pairs.isdisjoint(pairwise(words)) or not {"-ojson", "--output=json"}.isdisjoint(words)


def _parser(words: Sequence[str]) -> argparse.ArgumentParser:
    parser = _Parser(prog="barnabas-server", description="Run a Barnabas node, or prepare its storage.")
    parser.add_argument("-c", "--config", dest="outer_config", help="the node's server.properties")
    parser.add_argument(
        "--override",
        dest="outer_override",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="set a property over the file",
    )
    parser.add_argument(
        "--until-stdin-ends",
        action="store_true",
        help="stop, too, when standard input ends: as a pipe does when the process at its other end is gone",
    )
    parser.add_argument(
        "--format-for",
        metavar="CLUSTER_ID/ID@HOST:PORT:DIRECTORY_ID,…",
        default=os.environ.get("BARNABAS_FORMAT_FOR", ""),
        help="format first what is not formatted, for this cluster and these first voters: one start less than `format`; also "
        "as BARNABAS_FORMAT_FOR. For the first start of a new quorum: where one of these voters has a log, an empty node comes as an "
        "observer",
    )
    parser.add_argument(
        "--format-to-join",
        action="store_true",
        default=os.environ.get("BARNABAS_FORMAT_TO_JOIN", "").lower() == "true",
        help="format a controller that is not formatted as an observer of the quorum at controller.quorum.bootstrap.servers, once it "
        "answers; also as BARNABAS_FORMAT_TO_JOIN=true. Only where its volumes are mounted before it starts, as a container's are",
    )
    parser.add_argument(
        "--load-on-demand",
        action="store_true",
        help="load the handler of a request when the first such request comes: a faster start, for clusters that are thrown away; "
        "under a node that lives longer its package may be upgraded",
    )
    verbs = parser.add_subparsers(dest="verb")
    format_verb = verbs.add_parser("format", help="write meta.properties and, for a controller, the first voters")
    format_verb.add_argument("-c", "--config")
    format_verb.add_argument("--override", action="append", default=[], metavar="KEY=VALUE")
    format_verb.add_argument("--cluster-id", required=True, help="from: barnabas storage random-uuid")
    voters = format_verb.add_mutually_exclusive_group()
    voters.add_argument("--standalone", action="store_true", help="this controller is the only voter")
    voters.add_argument("--initial-controllers", metavar="ID@HOST:PORT:DIRECTORY_ID,…", help="the first voters")
    voters.add_argument(
        "--no-initial-controllers",
        action="store_true",
        help="this controller joins a quorum that runs: it is an observer until it is added",
    )
    format_verb.add_argument(
        "--add-scram",
        action="append",
        default=[],
        metavar="MECHANISM=[name=NAME,password=PASSWORD]",
        help="a user of the new cluster; with super.users it is closed from its first second. For each controller the same",
    )
    format_verb.add_argument(
        "--ignore-formatted", action="store_true", help="keep directories that are formatted already"
    )
    info = verbs.add_parser("info", help="show what the node's directories say")
    info.add_argument("-c", "--config")
    info.add_argument("--override", action="append", default=[], metavar="KEY=VALUE")
    for verb, (module, line) in _VERBS_ELSEWHERE.items():
        if verb in words:
            importlib.import_module(module).add_verbs(verbs)
        else:
            verbs.add_parser(verb, help=line)
    verbs.add_parser("random-uuid", help="print a new id for a cluster or a directory")
    check = verbs.add_parser("check", help="say what a node would refuse of its properties, without starting it")
    check.add_argument("-c", "--config")
    check.add_argument("--override", action="append", default=[], metavar="KEY=VALUE")
    check.add_argument(
        "--values",
        action="store_true",
        help="print every key with its value and where it is from: flag, environment, file",
    )
    check.add_argument("-o", "--output", choices=("text", "json"), default="text")
    docs = verbs.add_parser("config-docs", help="print every key with type, default and meaning")
    docs.add_argument("-o", "--output", choices=("text", "json"), default="text")
    return parser


def _take_outer_options(parser: argparse.ArgumentParser, options: argparse.Namespace) -> None:
    """-c and --override may come before a verb or after it. Refuses what the verb would not read."""
    if options.verb is None:
        options.config, options.override = options.outer_config, options.outer_override
        if not options.config and not _is_configured_by_environment():
            parser.error("name a properties file to run a node: barnabas-server -c server.properties")
        return
    if options.format_for and options.format_for != os.environ.get("BARNABAS_FORMAT_FOR"):
        parser.error(f"--format-for is of a node that runs, not of {options.verb}: leave it out")
    if not hasattr(options, "override"):
        if options.outer_override or options.outer_config:
            parser.error(f"{options.verb} reads no properties: leave out what stands before it")
        return
    if options.outer_config and options.config and options.outer_config != options.config:
        parser.error(f"-c names {options.outer_config} and {options.config}: name one file")
    options.config = options.config or options.outer_config
    options.override = options.outer_override + options.override
    if options.verb != "check" and not options.config and not _is_configured_by_environment():
        parser.error(f"name the node's properties file: barnabas-server {options.verb} -c server.properties")


def _is_configured_by_environment() -> bool:
    """Whether no file is needed: a container's environment says what the node is."""
    return not {"KAFKA_PROCESS_ROLES", "KAFKA_CFG_PROCESS_ROLES"}.isdisjoint(os.environ)


def _properties(options: argparse.Namespace) -> dict[str, str]:
    return {key: value for key, (value, _) in _sourced_properties(options).items()}


def _sourced_properties(options: argparse.Namespace) -> dict[str, tuple[str, str]]:
    """Key -> (value, where it is from): a flag wins over the environment, the environment over the file."""
    from barnabas_broker.config.environment import properties_of
    from barnabas_broker.config.keys import ConfigError
    from barnabas_broker.node.properties import read_properties, refuse_unknown

    given = {}
    for override in options.override:
        key, separator, value = override.partition("=")
        if not separator:
            raise ConfigError(f"--override {override}: write KEY=VALUE")
        given[key.strip()] = value.strip()
    refuse_unknown(given)
    sources = {
        "file": read_properties(options.config) if options.config else {},
        "environment": properties_of(os.environ),
        "flag": given,
    }
    return {key: (value, source) for source, found in sources.items() for key, value in found.items()}


def _run(options: argparse.Namespace, open_disk: Callable[[], RealDisk] | None) -> int:
    gc.disable()  # until run_node: what is imported stays, and a fifth of the imports' time would go to looking at it
    from barnabas_broker.api.registry import CARRIED, SERVED_KEYS, load_handlers
    from barnabas_broker.config.keys import load
    from barnabas_broker.config.log_output import LogOutputConfig, start_logging
    from barnabas_broker.node.process import run_node
    from barnabas_broker.node.properties import node_config
    from barnabas_broker.node.service_manager import ServiceManager
    from barnabas_log.disk import RealDisk

    if sys.platform not in SYSTEMS:
        raise KafkaError.of(
            ErrorCode.INVALID_REQUEST,
            f"a node runs on Linux, and on macOS where nobody has tried it; this is {sys.platform}",
        )
    properties = _properties(options)
    node_id = properties.get("node.id", "")
    start_logging(
        load(LogOutputConfig, properties),
        default_level=os.environ.get("BARNABAS_LOG_LEVEL", "INFO"),
        node_id=int(node_id) if node_id.isdigit() else None,
    )
    config = node_config(properties)
    _refuse_taken_ports(config.server)
    if not options.load_on_demand:
        load_handlers(SERVED_KEYS if config.server.is_broker else CARRIED)
    if options.until_stdin_ends:
        threading.Thread(target=_stop_when_stdin_ends, name="parent", daemon=True).start()
    _format_at_start(config, options)
    return run_node(config, open_disk=open_disk or RealDisk, service_manager=ServiceManager.of(os.environ))


def _format_at_start(config: NodeConfig, options: argparse.Namespace) -> None:
    from barnabas_log.disk import RealDisk

    if not (options.format_for or options.format_to_join):
        return
    from barnabas_broker.node.first_start import format_first, format_to_join  # loads gRPC

    disk = RealDisk()
    try:
        if options.format_for:
            format_first(disk, config, options.format_for)
        else:
            format_to_join(disk, config)
    finally:
        disk.close()


def _refuse_taken_ports(server: ServerConfig) -> None:
    """Check the ports before a directory is formatted or opened. Raises ConfigError that names the key."""
    from barnabas_broker.config.keys import ConfigError
    from barnabas_broker.node.properties import split_address

    controller = server.controller_endpoint()
    wanted = [("listeners", point.host, point.port) for point in server.kafka_endpoints()]
    wanted += [("listeners", controller.host, controller.port)] if controller else []
    wanted += [("admin.listeners", point.host, point.port) for point in server.admin_endpoints()]
    wanted += [("metrics.listeners", *split_address(text, "metrics.listeners")) for text in server.metrics_listeners]
    for key, host, port in wanted:
        try:
            family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
            with socket.socket(family, kind, protocol) as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                probe.bind(address)
        except OSError as error:
            raise ConfigError(
                f"{key}: cannot listen on {host}:{port}: {error.strerror}; stop what listens there (this node, already?), "
                f"or correct {key}"
            ) from error


def _stop_when_stdin_ends() -> None:
    """As SIGTERM does, but never for longer than ORPHAN_STOP_S: no parent is left to kill a node that hangs."""
    while os.read(sys.stdin.fileno(), 4096):
        pass
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(ORPHAN_STOP_S)
    os._exit(EXIT_FAILED)


def _format(options: argparse.Namespace) -> int:
    from barnabas_broker.metadata.meta_properties import StorageError
    from barnabas_broker.node.properties import node_config
    from barnabas_broker.node.storage import format_command, format_storage, initial_controllers
    from barnabas_log.disk import RealDisk
    from barnabas_quorum.raft.voters import VoterSet

    server = node_config(_properties(options)).server
    endpoint = server.controller_endpoint()
    names_voters = options.standalone or options.initial_controllers or options.no_initial_controllers
    if server.is_controller and not names_voters:
        raise StorageError(f"a controller needs its first voters. {format_command(server)}")
    if not server.is_controller and names_voters:
        raise StorageError("a broker without the controller role has no voters to write: leave the option out")

    def make_voters(directory_id: Uuid) -> VoterSet | None:
        if endpoint is None or options.no_initial_controllers:
            return None
        if options.standalone:
            return initial_controllers(f"{server.node_id}@{endpoint.host}:{endpoint.port}:{directory_id}")
        voters = initial_controllers(options.initial_controllers)
        if server.id not in {key.id for key in voters.keys}:
            raise StorageError(f"--initial-controllers does not name node {server.node_id}: add it")
        return voters

    first_users: Sequence[UserScramCredentialRecord] = ()
    if options.add_scram:
        from barnabas_broker.node.first_users import parse_users

        first_users = parse_users(options.add_scram)
    if first_users and (not server.is_controller or options.no_initial_controllers):
        raise StorageError("--add-scram is for the first controllers of a new cluster: leave it out")
    disk = RealDisk()
    try:
        storage = format_storage(
            disk,
            server,
            cluster_id=str(_parse_uuid(options.cluster_id)),
            make_voters=make_voters,
            new_uuid=new_uuid,
            is_formatted_ignored=options.ignore_formatted,
            first_records=first_users,
        )
    finally:
        disk.close()
    for directory, directory_id in storage.directory_ids.items():
        print(f"{directory}: node {storage.node_id}, cluster {storage.cluster_id}, directory {directory_id}")
    return 0


def _info(options: argparse.Namespace) -> int:
    from barnabas_broker.node.properties import node_config
    from barnabas_broker.node.storage import load_storage
    from barnabas_log.disk import RealDisk

    disk = RealDisk()
    try:
        storage = load_storage(disk, node_config(_properties(options)).server)
    finally:
        disk.close()
    print(
        json.dumps(
            {
                "api_version": "v1",
                "cluster_id": storage.cluster_id,
                "node_id": storage.node_id,
                "directories": {path: str(uuid) for path, uuid in storage.directory_ids.items()},
                "offline_directories": {path: str(error) for path, error in storage.offline.items()},
                "voters": str(storage.voters) if storage.voters else None,
            },
            indent=2,
        )
    )
    return 0


def _check(options: argparse.Namespace) -> int:
    from barnabas_broker.node.properties import node_config

    properties = _sourced_properties(options)
    config = node_config({key: value for key, (value, _) in properties.items()})
    if not options.values:
        return 0
    from barnabas_broker.node.facts import HIDDEN_VALUE
    from barnabas_broker.security.listener_security import has_secret

    values = {key.name: (value, "default", key.is_sensitive) for key, value in config.values()}
    for key, (value, source) in properties.items():
        is_sensitive = has_secret(key) or (key in values and values[key][2])
        values[key] = (values[key][0] if key in values else value, source, is_sensitive)
    rows = [
        {"key": key, "value": HIDDEN_VALUE if is_sensitive and value else value, "source": source}
        for key, (value, source, is_sensitive) in sorted(values.items())
    ]
    if options.output == "json":
        print(json.dumps({"api_version": "v1", "values": rows}, indent=2))
    else:
        width = max(len(row["key"]) for row in rows)
        print("\n".join(f"{row['key']:{width}}  {row['source']:11}  {row['value']}" for row in rows))
    return 0


def _random_uuid(options: argparse.Namespace) -> int:
    print(new_uuid())
    return 0


def _config_docs(options: argparse.Namespace) -> int:
    from barnabas_broker.node.properties import known_keys

    keys = known_keys()
    if options.output == "json":
        rows = [{"name": k.name, "type": k.type_name, "default": k.default_text, "doc": k.doc} for k in keys]
        print(json.dumps({"api_version": "v1", "keys": rows}, indent=2))
        return 0
    for key in keys:
        print(f"{key.name}\n    {key.doc}\n    type {key.type_name}, default {key.default_text or '(none)'}")
    return 0


def new_uuid() -> Uuid:
    """A random id whose text does not begin with a dash, so that it can be given on a command line."""
    while True:
        uuid = Uuid(os.urandom(16))
        if not str(uuid).startswith("-"):
            return uuid


def _parse_uuid(text: str) -> Uuid:
    from barnabas_broker.metadata.meta_properties import StorageError

    try:
        return Uuid.parse(text)
    except ValueError as error:
        raise StorageError(
            f"{text} is not a cluster id ({error}); make one with: barnabas storage random-uuid"
        ) from error


if __name__ == "__main__":
    sys.exit(main())
