"""One dict of options for reads and writes: each side leaves out what only the other knows.

May touch:  its arguments.            Must not touch: sockets, Spark.
Invariants: what neither side knows stays, and is refused as what it is: a slip.
Read next:  options.py, sink_options.py.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from pyspark_barnabas.kafka_properties import PREFIX, WITHOUT_MEANING
from pyspark_barnabas.options import MODES as SOURCE_MODES
from pyspark_barnabas.options import OPTIONS
from pyspark_barnabas.sink_options import MODES as SINK_MODES
from pyspark_barnabas.sink_options import SINK_OPTIONS

_OF_SOURCE = {name.lower() for name in (*OPTIONS, *(PREFIX + bare for bare in WITHOUT_MEANING))}
_OF_SINK = {name.lower() for name in SINK_OPTIONS}


def for_source(options: Mapping[str, str]) -> dict[str, str]:
    """The options without those of the sink alone."""
    return _without(options, _OF_SINK - _OF_SOURCE, SINK_MODES)


def for_sink(options: Mapping[str, str]) -> dict[str, str]:
    """The options without those of the source alone."""
    return _without(options, _OF_SOURCE - _OF_SINK, SOURCE_MODES)


def _without(options: Mapping[str, str], names: Collection[str], modes: Collection[str]) -> dict[str, str]:
    """`mode` is an option of both; its values say whose it is."""
    return {
        name: value
        for name, value in dict(options).items()
        if name.lower() not in names and not (name.lower() == "mode" and value.strip().lower() in modes)
    }
