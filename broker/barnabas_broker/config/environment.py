"""Properties from the environment, by the convention of Kafka's container images: KAFKA_NODE_ID=1, or
KAFKA_CFG_NODE_ID=1, is node.id=1.

May touch:  the mapping that it is given.     Must not touch: files, os.environ (main.py hands it in).
Invariants: a flag wins over the environment, the environment over the file; what belongs to a Kafka's JVM is no property.
Read next:  ../node/properties.py, which reads files.

The rule (Kafka, docker/examples/README.md): KAFKA_ before it, capital letters, "." as "_", "_" as "__", "-" as "___".
"""

from __future__ import annotations

from collections.abc import Mapping

from barnabas_broker.config.keys import ConfigError

PREFIX = "KAFKA_"
OTHER_PREFIX = "KAFKA_CFG_"
"""The spelling of other images, whose configuration works unchanged."""
NOT_PROPERTIES = frozenset(
    {
        "KAFKA_DEBUG",
        "KAFKA_GC_LOG_OPTS",
        "KAFKA_HEAP_OPTS",
        "KAFKA_HOME",
        "KAFKA_JMX_OPTS",
        "KAFKA_JMX_PORT",
        "KAFKA_JVM_PERFORMANCE_OPTS",
        "KAFKA_LOG4J_LOGGERS",
        "KAFKA_LOG4J_OPTS",
        "KAFKA_LOG4J_ROOT_LOGLEVEL",
        "KAFKA_MODE",
        "KAFKA_OPTS",
        "KAFKA_TOOLS_LOG4J_LOGLEVEL",
        "KAFKA_VERSION",
    }
)
"""Variables of Kafka's own scripts and images: of a JVM, its memory and its logs."""


def key_of(variable: str) -> str:
    """The key that a variable KAFKA_… or KAFKA_CFG_… sets."""
    words = (
        variable.removeprefix(OTHER_PREFIX)
        .removeprefix(PREFIX)
        .replace("___", "-")
        .replace("__", "\0")
        .replace("_", ".")
    )
    return words.replace("\0", "_").lower()


def properties_of(environment: Mapping[str, str]) -> dict[str, str]:
    """The properties that an environment sets, by name. Raises ConfigError where two variables set one to different values."""
    found: dict[str, tuple[str, str]] = {}
    for variable, value in sorted(environment.items()):
        if not variable.startswith(PREFIX) or variable in NOT_PROPERTIES or variable in (PREFIX, OTHER_PREFIX):
            continue
        key, value = key_of(variable), value.strip()
        other, known = found.setdefault(key, (variable, value))
        if known != value:
            raise ConfigError(f"{other}={known} and {variable}={value} both set {key}: keep one of them")
    return {key: value for key, (_, value) in found.items()}
