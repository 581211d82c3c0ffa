"""The container image, and what every node in a container has among its properties.

May touch:  its arguments.            Must not touch: files.
Invariants: the image runs as a user of its own and writes below DATA alone; a node is configured by its environment (KAFKA_…).
Read next:  compose.py, kubernetes.py.
"""

from __future__ import annotations

DATA = "/var/lib/barnabas"
USER_ID = 10001
KAFKA_PORT = 9092
CONTROLLER_PORT = 9093
ADMIN_PORT = 9190
METRICS_PORT = 9464
INTERNAL_PORT = 9091
"""Between brokers, where clients' listeners are others."""
EXTERNAL_PORT = 9094
"""Of clients outside."""
CONSOLE_PORT = 8080

DOCKERFILE = f"""# The image of a Barnabas node. Build it with: docker build -t barnabas .
# VERSION: what pip installs. A wheel in dist/ beside this file (in a clone: pip wheel --no-deps -w dist .) is taken instead.
FROM python:3.13-slim AS build
ARG VERSION=
RUN python -m venv /opt/barnabas
COPY dist* /dist/
RUN if ls /dist/barnabas-*.whl >/dev/null 2>&1; \\
    then /opt/barnabas/bin/pip install --no-cache-dir "$(ls /dist/barnabas-*.whl)[console,patterns]"; \\
    else /opt/barnabas/bin/pip install --no-cache-dir "barnabas[console,patterns]${{VERSION:+==$VERSION}}"; fi

FROM python:3.13-slim
RUN useradd --uid {USER_ID} --user-group --home-dir {DATA} --create-home --shell /usr/sbin/nologin barnabas
COPY --from=build /opt/barnabas /opt/barnabas
ENV PATH=/opt/barnabas/bin:$PATH PYTHONDONTWRITEBYTECODE=1 KAFKA_LOG_DIRS={DATA}/data
USER {USER_ID}
WORKDIR {DATA}
VOLUME {DATA}
EXPOSE {KAFKA_PORT} {CONTROLLER_PORT} {ADMIN_PORT} {METRICS_PORT}
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=10s --timeout=5s --start-period=120s \\
    CMD ["python", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:{METRICS_PORT}/livez', timeout=4)"]
ENTRYPOINT ["barnabas-server"]
"""


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
    }
