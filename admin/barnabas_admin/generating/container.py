"""The container image, and what every node in a container has among its properties.

May touch:  its arguments.            Must not touch: files.
Invariants: the image runs as a user of its own and writes below DATA alone; a node is configured by its environment (KAFKA_…).
Read next:  compose.py, kubernetes.py.
"""

from __future__ import annotations

from barnabas_admin.generating.templates import filled_in

DATA = "/var/lib/barnabas"
USER_ID = 10001
KAFKA_PORT = 9092
CONTROLLER_PORT = 9093
ADMIN_PORT = 9190
METRICS_PORT = 9464
INTERNAL_PORT = 9091
"""Between brokers, where clients' listeners are others."""
EXTERNAL_PORT = 9094
"""The port of clients outside."""
CONSOLE_PORT = 8080

PORTS = {
    "kafka_port": KAFKA_PORT,
    "controller_port": CONTROLLER_PORT,
    "admin_port": ADMIN_PORT,
    "metrics_port": METRICS_PORT,
    "internal_port": INTERNAL_PORT,
    "external_port": EXTERNAL_PORT,
    "console_port": CONSOLE_PORT,
}
"""As templates name them."""


def dockerfile() -> str:
    """The image of a node."""
    return filled_in("Dockerfile", {**PORTS, "user_id": USER_ID, "data": DATA})


def variables(properties: dict[str, str]) -> list[dict[str, str]]:
    """A template's list of the environment's variables for properties."""
    return [{"variable": name, "value": value} for name, value in environment(properties).items()]


def environment(properties: dict[str, str]) -> dict[str, str]:
    """Variables for properties, by the rule that a node reads them with (Kafka's images: "." is "_", "_" is "__", "-" is "___")."""
    return {
        "KAFKA_" + key.replace("_", "__").replace("-", "___").replace(".", "_").upper(): value
        for key, value in properties.items()
    }


def replication_of(brokers: int) -> dict[str, str]:
    """How often topics are kept where nobody says it: three times, or as often as there are brokers."""
    copies = min(3, brokers)
    return {
        "default.replication.factor": str(copies),
        "offsets.topic.replication.factor": str(copies),
        "transaction.state.log.replication.factor": str(copies),
        "transaction.state.log.min.isr": str(max(1, copies - 1)),
        "share.coordinator.state.topic.replication.factor": str(copies),
        "share.coordinator.state.topic.min.isr": str(max(1, copies - 1)),
    }
