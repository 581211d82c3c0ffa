"""JSON values as columns of a schema, by Spark's own parser: what cannot be read fails with its place, or is kept.

May touch:  Spark's expressions.      Must not touch: Python workers, sockets.
Invariants: a bad record fails the query with its topic, partition and offset, or goes to `_corrupt`, and never vanishes.
Read next:  avro.py, the same for Avro.
"""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import DataType, StringType, StructField, StructType, _parse_datatype_string

from pyspark_barnabas.avro import CORRUPT, PLACE

_RAW = "__barnabas_raw"


def from_json_schema(
    frame: DataFrame,
    column: str = "value",
    *,
    schema: StructType | str,
    into: str | None = None,
    on_error: str = "fail",
) -> DataFrame:
    """The frame with a column of JSON objects as a struct; with on_error="corrupt" also `_corrupt`, the bytes of what is none.

    schema: a StructType, or text as in `id bigint, name string`. A record is bad when it is no JSON object, or a field has another
    type; fields that the schema does not have are passed over. on_error="fail" names topic, partition and offset, if the frame has
    these columns. Raises ValueError.
    """
    if on_error not in ("fail", "corrupt"):
        raise ValueError(f'on_error={on_error}: write "fail" or "corrupt"')
    if column not in frame.columns:
        raise ValueError(f"there is no column {column}; there are {', '.join(frame.columns)}")
    wanted: DataType = _parse_datatype_string(schema) if isinstance(schema, str) else schema
    if not isinstance(wanted, StructType):
        raise ValueError(f"schema={schema}: write fields, such as id bigint, name string")
    options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": _RAW}
    read_as = StructType([*wanted.fields, StructField(_RAW, StringType())])
    raw, parsed = F.col(column), F.col(_RAW)
    made = frame.withColumn(_RAW, F.from_json(raw.cast("string"), read_as, options))
    is_bad = raw.isNotNull() & (parsed.isNull() | parsed[_RAW].isNotNull())
    value = F.when(
        raw.isNotNull() & ~is_bad, F.struct(*(parsed[field.name].alias(field.name) for field in wanted.fields))
    )
    if on_error == "fail":
        where = (
            F.concat(
                F.lit("the record at "),
                F.concat_ws(" ", F.concat_ws("-", "topic", "partition"), F.lit("offset"), "offset"),
            )
            if set(PLACE) <= set(frame.columns)
            else F.lit("a record")
        )
        words = F.concat(
            where,
            F.lit(" is no JSON of the schema: "),
            F.substring(raw.cast("string"), 1, 200),
            F.lit(f'. on_error="corrupt" puts such records into the column {CORRUPT}'),
        )
        return made.withColumn(into or column, F.when(is_bad, F.raise_error(words)).otherwise(value)).drop(_RAW)
    corrupt = F.when(is_bad, raw.cast("binary"))
    names = {CORRUPT: corrupt, into or column: value}
    return made.withColumns(names).drop(_RAW)
