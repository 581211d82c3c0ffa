"""`format("barnabas.meta")`: what a cluster says of itself, as tables. A package of its own, since Spark finds one format in each.

May touch:  pyspark; pyspark_barnabas inside methods.   Must not touch: gRPC, any room.
Invariants: importing this never raises and stays cheap, as in pyspark_barnabas.
Read next:  pyspark_barnabas/meta.py.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource, DataSourceReader

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

__all__ = ["DefaultSource"]


class DefaultSource(DataSource):
    """The data source that Spark finds and registers under the name `barnabas.meta`."""

    @classmethod
    def name(cls) -> str:
        """What stands in `format(...)`."""
        return "barnabas.meta"

    def schema(self) -> StructType:
        """Columns of the table that `load(...)` names."""
        from pyspark_barnabas.meta import table_of

        return table_of(self.options).schema

    def reader(self, schema: StructType) -> DataSourceReader:
        """A batch read of the table as it is when the query runs."""
        from pyspark_barnabas.meta import meta_reader

        return meta_reader(self.options, schema)
