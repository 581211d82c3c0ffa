"""Spark's own Kafka connector, brought into a session; what ours stands beside.

May touch:  the session; Spark fetches the jars from its own package repositories, as `ADD JAR ivy://…` finds them.
Must not touch: the product.
Invariants: the product never needs these jars; where they are out of reach, the reason is said.
Read next:  test_stock_connector.py, ../bench/spark.py.
"""

from __future__ import annotations

import pyspark
from pyspark.sql import SparkSession

FORMAT = "kafka"
CLIENT = ("org.apache.kafka:kafka-clients:3.9.2", "org.apache.commons:commons-pool2:2.12.1")
VERSIONS = (
    (pyspark.__version__, pyspark.__version__),
    # A repository may not have the connector of the newest Spark, nor both parts of one version.
    ("4.2.0", "4.0.0"),
)
"""Of (connector, token provider), the first that is found."""


class StockConnectorMissing(Exception):
    """Its jars are out of reach; the message is the resolver's."""


def add_stock_connector(spark: SparkSession) -> str:
    """Give the session `format("kafka")`; returns the connector's version. Raises StockConnectorMissing."""
    failure = ""
    for connector, tokens in VERSIONS:
        jars = [
            f"org.apache.spark:spark-sql-kafka-0-10_2.13:{connector}",
            f"org.apache.spark:spark-token-provider-kafka-0-10_2.13:{tokens}",
            *CLIENT,
        ]
        try:
            for jar in jars:
                spark.sql(f"ADD JAR ivy://{jar}?transitive=false").collect()
            return connector
        except Exception as error:  # py4j and Spark wrap what the resolver throws in various ways
            failure = str(error).strip().partition("\n")[0]
    raise StockConnectorMissing(failure[:200])
