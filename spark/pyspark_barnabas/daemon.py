"""Spark's daemon of Python workers, which has our compiled code loaded before it forks: `spark.python.daemon.module`.

May touch:  numba and numpy, by way of what loops over records; Spark's daemon.   Must not touch: pyarrow and pandas, standard output.
Invariants: no thread of ours runs when a worker is forked; workers draw different random numbers, as if each had imported numpy itself;
    a machine without barnabas[spark] runs Spark's daemon as it is.
Read next:  session.py, which sets it; scan.py and record_layout.py, what is loaded.

Not obvious
- Spark's own daemon imports nothing before it forks, since pyarrow and pandas start threads at import. numba, numpy and our loops take
  0.4 CPU seconds of the 0.6 that a worker needs to start, and Spark ends workers that rested for a minute.
- OpenBLAS, which numpy loads, starts threads too; it stops them before a fork and starts them again on demand (pthread_atfork).
- What the workers share is not copied: the collector must not write into it (gc.freeze).
"""

from __future__ import annotations

import gc
import os
import sys
from typing import Any


def preload() -> None:
    """Load what decodes and encodes. What is missing is reported by the task that needs it (reader.lacking)."""
    try:
        import pyspark_barnabas.record_layout
        import pyspark_barnabas.scan
        import pyspark_barnabas.stream
        import pyspark_barnabas.writer  # noqa: F401
    except Exception as error:  # tasks that never read our format must run
        print(f"pyspark_barnabas.daemon: each worker loads the compiled code itself: {error}", file=sys.stderr)
    os.register_at_fork(after_in_child=_reseed)
    gc.freeze()


def _reseed() -> None:
    """numpy seeds its global generator at import: forked later, all workers would draw the same numbers."""
    random = sys.modules.get("numpy.random")
    if random is not None:
        random.seed()


def say(*words: object, **how: Any) -> None:
    """What Spark's daemon prints, but for a task that Spark has ended because a limit was reached: nobody reads its last bytes
    then, which Unix sockets report."""
    if not any("BrokenPipeError" in str(each) for each in words):
        print(*words, **how)


def main() -> None:
    """What Spark starts: `python -m pyspark_barnabas.daemon pyspark.worker`."""
    from pyspark import daemon

    daemon.print = say  # type: ignore[attr-defined]
    preload()
    daemon.manager()


if __name__ == "__main__":
    main()
