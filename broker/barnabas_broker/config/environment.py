"""Properties from the environment, by the convention of Kafka's container images: KAFKA_NODE_ID=1 is node.id=1.

May touch:  the mapping that it is given.     Must not touch: files, os.environ (main.py hands it in).
Invariants: a flag wins over the environment, the environment over the file; what belongs to a Kafka's JVM is no property.
Read next:  ../node/properties.py, which reads files.

The rule (Kafka, docker/examples/README.md): KAFKA_ before it, capital letters, "." as "_", "_" as "__", "-" as "___".
"""

from __future__ import annotations

from collections.abc import Mapping

PREFIX = "KAFKA_"
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
    """The key that a variable KAFKA_… sets."""
    words = variable.removeprefix(PREFIX).replace("___", "-").replace("__", "\0").replace("_", ".")
    return words.replace("\0", "_").lower()


def properties_of(environment: Mapping[str, str]) -> dict[str, str]:
    """The properties that an environment sets, by name."""
    return {
        key_of(variable): value.strip()
        for variable, value in sorted(environment.items())
        if variable.startswith(PREFIX) and len(variable) > len(PREFIX) and variable not in NOT_PROPERTIES
    }
