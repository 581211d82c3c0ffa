"""Lines of Kafka's own scripts as lines of ours: for hands that know them, and for scripts that are written.

May touch:  its arguments.            Must not touch: the cluster, how commands work.
Invariants: a flag that is not understood is refused by name, never passed over; what Kafka's script does without asking is not asked.
Read next:  commands/apache.py, which runs the lines.

Differs from Kafka's scripts in what is printed: it is our commands'. `kafka-topics --list` prints names alone, as there.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence

from barnabas_admin.errors import WrongUsage

Flags = dict[str, list[str]]
"""Flag -> its values in order; a flag without values that is given has one empty string."""

_COMMON = {"--bootstrap-server": True, "--command-config": True}


def read_flags(words: Sequence[str], known: Mapping[str, bool]) -> Flags:
    """The flags of a line; `known` says which there are, and whether each takes a value. Raises WrongUsage."""
    found: Flags = {}
    at = 0
    while at < len(words):
        name, equals, value = words[at].partition("=")
        at += 1
        if name not in known:
            raise WrongUsage(
                f"{name} is not understood here; these are: {' '.join(sorted(known))}",
                hint="`barnabas --help` shows the commands that this stands for",
            )
        if known[name] and not equals:
            if at == len(words):
                raise WrongUsage(f"{name} needs a value")
            value = words[at]
            at += 1
        found.setdefault(name, []).append(value)
    return found


def _first(flags: Flags, *names: str) -> str | None:
    return next((flags[name][0] for name in names if name in flags), None)


def _need(flags: Flags, name: str) -> str:
    value = _first(flags, name)
    if value is None:
        raise WrongUsage(f"{name} is missing")
    return value


def _one_of(flags: Flags, *names: str) -> str:
    given = [name for name in names if name in flags]
    if len(given) != 1:
        raise WrongUsage(f"name one of {' '.join(names)}")
    return given[0]


def _where(flags: Flags) -> list[str]:
    brokers = _first(flags, "--bootstrap-server", "--broker-list")
    config = _first(flags, "--command-config", "--producer.config", "--consumer.config")
    return [*(["-b", brokers] if brokers else []), *(["--client-config", config] if config else [])]


def topics(words: Sequence[str]) -> list[str]:
    """kafka-topics."""
    with_values = dict.fromkeys(
        ("--topic", "--partitions", "--replication-factor", "--config", "--delete-config"), True
    )
    actions = ("--create", "--list", "--describe", "--delete", "--alter")
    switches = dict.fromkeys((*actions, "--if-not-exists", "--if-exists", "--exclude-internal"), False)
    flags = read_flags(words, _COMMON | with_values | switches)
    where = _where(flags)
    match _one_of(flags, *actions):
        case "--list":
            return ["topic", "list", "--names", *([] if "--exclude-internal" in flags else ["--internal"]), *where]
        case "--describe":
            if "--topic" not in flags:
                return ["topic", "list", "--internal", *where]
            return ["topic", "describe", *_need(flags, "--topic").split(","), *where]
        case "--delete":
            names = _need(flags, "--topic").split(",")
            return ["topic", "delete", *names, "--yes", *(["--if-exists"] if "--if-exists" in flags else []), *where]
        case "--alter":
            return ["topic", "add-partitions", _need(flags, "--topic"), "--total", _need(flags, "--partitions"), *where]
    line = ["topic", "create", _need(flags, "--topic")]
    for flag, ours in (("--partitions", "-p"), ("--replication-factor", "-r")):
        value = _first(flags, flag)
        line += [ours, value] if value is not None else []
    line += [word for config in flags.get("--config", []) for word in ("-c", config)]
    return [*line, *(["--if-not-exists"] if "--if-not-exists" in flags else []), *where]


def _properties(flags: Flags) -> dict[str, str]:
    found = {}
    for text in [
        *flags.get("--property", []),
        *flags.get("--reader-property", []),
        *flags.get("--formatter-property", []),
    ]:
        for pair in text.split(","):
            key, _, value = pair.partition("=")
            found[key] = value
    return found


def _refuse_rest(properties: dict[str, str]) -> None:
    if properties:
        raise WrongUsage(f"property {next(iter(properties))} is not understood here")


def console_producer(words: Sequence[str]) -> list[str]:
    """kafka-console-producer."""
    names = ("--topic", "--broker-list", "--property", "--reader-property", "--producer.config", "--compression-codec")
    more = ("--request-required-acks", "--producer-property")
    flags = read_flags(words, _COMMON | dict.fromkeys((*names, *more), True))
    properties = _properties(flags)
    line = ["topic", "produce", _need(flags, "--topic"), "--create", *_where(flags)]
    separator = properties.pop("key.separator", "\t")
    if properties.pop("parse.key", "false") == "true":
        line += ["-k", separator]
    headers = properties.pop("headers.delimiter", "\t")
    if properties.pop("parse.headers", "false") == "true":
        line += ["--headers-separator", headers]
    _refuse_rest(properties)
    for text in flags.get("--producer-property", []):
        key, _, value = text.partition("=")
        if key not in ("acks", "compression.type"):
            raise WrongUsage(f"producer property {key} is not understood here")
        flags["--request-required-acks" if key == "acks" else "--compression-codec"] = [value]
    acks, codec = _first(flags, "--request-required-acks"), _first(flags, "--compression-codec")
    line += ["--acks", "all" if acks == "-1" else acks] if acks is not None else []
    return line + (["-z", codec] if codec is not None else [])


def console_consumer(words: Sequence[str]) -> list[str]:
    """kafka-console-consumer."""
    names = (
        "--topic",
        "--include",
        "--whitelist",
        "--group",
        "--max-messages",
        "--partition",
        "--offset",
        "--property",
    )
    more = ("--formatter-property", "--consumer.config")
    flags = read_flags(words, _COMMON | dict.fromkeys((*names, *more), True) | {"--from-beginning": False})
    pattern = _first(flags, "--include", "--whitelist")
    line = [
        "topic",
        "consume",
        *(["-r", pattern] if pattern is not None else [_need(flags, "--topic")]),
        *_where(flags),
    ]
    place = {"earliest": "start", "latest": "end"}.get(_first(flags, "--offset") or "", _first(flags, "--offset"))
    line += ["--offset", "start" if "--from-beginning" in flags else place or "end"]
    for flag, ours in (("--group", "-g"), ("--max-messages", "-n"), ("--partition", "-p")):
        value = _first(flags, flag)
        line += [ours, value] if value is not None else []
    properties = _properties(flags)
    separator = properties.pop("key.separator", "\t")
    shown = {"print.key": ["-k", separator], "print.timestamp": ["--timestamps"], "print.headers": ["--headers"]}
    for key, options in (shown | {"print.offset": ["--offsets"], "print.partition": ["--offsets"]}).items():
        if properties.pop(key, "false") == "true" and options[0] not in line:
            line += options
    if properties.pop("print.value", "true") != "true":
        raise WrongUsage("print.value=false is not understood here: `barnabas topic consume -f` prints any part")
    _refuse_rest(properties)
    return line


def consumer_groups(words: Sequence[str]) -> list[str]:
    """kafka-consumer-groups."""
    places = {"--to-earliest": False, "--to-latest": False, "--to-offset": True, "--shift-by": True}
    places |= {"--to-datetime": True, "--by-duration": True, "--from-file": True}
    actions = ("--list", "--describe", "--delete", "--delete-offsets", "--reset-offsets")
    switches = (
        *actions,
        "--execute",
        "--dry-run",
        "--all-topics",
        "--all-groups",
        "--members",
        "--offsets",
        "--verbose",
    )
    flags = read_flags(words, _COMMON | places | {"--group": True, "--topic": True} | dict.fromkeys(switches, False))
    where = _where(flags)
    action = _one_of(flags, *actions)
    if action == "--list":
        return ["group", "list", *where]
    if action == "--describe" and "--all-groups" in flags:
        return ["group", "lag", "--topics", *where]
    group = _need(flags, "--group")
    topics_named = flags.get("--topic", [])
    match action:
        case "--describe":
            return ["group", "describe", group, *where]
        case "--delete":
            return ["group", "delete", *flags["--group"], "--yes", *where]
        case "--delete-offsets":
            return ["group", "delete-offsets", group, *topics_named, "--yes", *where]
    if not topics_named and "--all-topics" not in flags and "--from-file" not in flags:
        raise WrongUsage("name --topic or --all-topics")
    execute = ["--execute"] if "--execute" in flags else []
    place = _one_of(flags, *places)
    value = flags[place][0]
    if place == "--from-file":
        return ["group", "seek", group, "--from-file", value, *execute, *where]
    to = {"--to-earliest": "start", "--to-latest": "end", "--to-offset": value}.get(place)
    if place == "--shift-by":
        to = value if value.startswith(("-", "+")) else f"+{value}"
    elif place == "--to-datetime":
        to = f"@{value}"
    elif place == "--by-duration":
        to = f"@-{_duration_ms(value)}ms"
    assert to is not None
    return ["group", "seek", group, *topics_named, f"--to={to}", *execute, *where]


def _duration_ms(text: str) -> int:
    """ISO 8601, as PnDTnHnMnS."""
    found = re.fullmatch(r"P(?:(\d+)D)?(?:T(?:(\d+)H)?(?:(\d+)M)?(?:(\d+)S)?)?", text)
    if found is None or not any(found.groups()):
        raise WrongUsage(f"{text!r} is no duration like P1DT2H30M")
    days, hours, minutes, seconds = (int(part or 0) for part in found.groups())
    return 1000 * (((days * 24 + hours) * 60 + minutes) * 60 + seconds)


def configs(words: Sequence[str]) -> list[str]:
    """kafka-configs, of topics, brokers and broker loggers."""
    with_values = ("--entity-type", "--entity-name", "--add-config", "--delete-config", "--topic", "--broker")
    switches = ("--describe", "--alter", "--all", "--entity-default", "--broker-defaults")
    flags = read_flags(words, _COMMON | dict.fromkeys(with_values, True) | dict.fromkeys(switches, False))
    where = _where(flags)
    kind, name = _first(flags, "--entity-type"), _first(flags, "--entity-name")
    if "--topic" in flags:
        kind, name = "topics", flags["--topic"][0]
    elif "--broker" in flags:
        kind, name = "brokers", flags["--broker"][0]
    elif "--broker-defaults" in flags:
        kind = "brokers"
    if kind not in ("topics", "brokers", "broker-loggers") or (name is None and kind != "brokers"):
        raise WrongUsage("name --entity-type topics, brokers or broker-loggers, and --entity-name")
    is_describing = _one_of(flags, "--describe", "--alter") == "--describe"
    added = [pair for text in flags.get("--add-config", []) for pair in split_configs(text)]
    removed = [key for text in flags.get("--delete-config", []) for key in text.split(",")]
    if kind == "topics":
        if is_describing:
            return ["topic", "config", str(name), *([] if "--all" in flags else ["--overrides"]), *where]
        options = [word for pair in added for word in ("-c", pair)] + [word for key in removed for word in ("-d", key)]
        return ["topic", "alter", str(name), *options, *where]
    if kind == "broker-loggers":
        changes = [*added, *(f"{key}=" for key in removed)]
        return ["broker", "log-level", str(name), *(["--all"] if is_describing else changes), *where]
    target = ["cluster", "config"] if name is None else ["broker", "config"]
    of = [] if name is None else [name]
    if is_describing:
        return [*target, "get", *of, *(["--overrides"] if of and "--all" not in flags else []), *where]
    if added and removed:
        raise WrongUsage("set and delete configs of brokers in two lines")
    return [*target, "set" if added else "unset", *of, *(added or removed), *where]


def split_configs(text: str) -> list[str]:
    """`k=v,k=[a,b]` as pairs; brackets hold a value with commas."""
    pairs = re.findall(r"[^,=]+=(?:\[[^\]]*\]|[^,]*)", text)
    return [re.sub(r"=\[(.*)\]$", r"=\1", pair) for pair in pairs]


def reassign_partitions(words: Sequence[str]) -> list[str]:
    """kafka-reassign-partitions: --execute, --verify, --cancel, --list with Kafka's JSON."""
    actions = ("--execute", "--verify", "--cancel", "--list")
    names = ("--reassignment-json-file", "--throttle")
    flags = read_flags(words, _COMMON | dict.fromkeys(names, True) | dict.fromkeys((*actions, "--additional"), False))
    where = _where(flags)
    action = _one_of(flags, *actions)
    if action in ("--list", "--verify"):
        return ["topic", "reassign", "status", *where]
    path = _need(flags, "--reassignment-json-file")
    if action == "--cancel":
        return ["topic", "reassign", "cancel", "--file", path, *where]
    throttle = _first(flags, "--throttle")
    return ["topic", "reassign", "apply", "--file", path, *(["--throttle", throttle] if throttle else []), *where]


SCRIPTS: Mapping[str, Callable[[Sequence[str]], list[str]]] = {
    "kafka-topics": topics,
    "kafka-console-producer": console_producer,
    "kafka-console-consumer": console_consumer,
    "kafka-consumer-groups": consumer_groups,
    "kafka-configs": configs,
    "kafka-reassign-partitions": reassign_partitions,
}
"""The six of Kafka's scripts that are used most."""
