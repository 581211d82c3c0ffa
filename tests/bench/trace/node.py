"""A `barnabas-server` whose steps are marked: the entry of a traced node's process.

May touch:  the functions that points.py names, one file.     Must not touch: anything else of the node.
Invariants: marks are kept in memory while the node runs and written when it has stopped.
Read next:  points.py.

    python -m tests.bench.trace.node MARKS_FILE (arguments of barnabas-server)
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from barnabas_broker.main import main as serve
from tests.bench.trace.points import Marks, install


def main() -> int:
    """Run the node, then write its marks."""
    path, *arguments = sys.argv[1:]
    marks: Marks = []
    if not arguments or arguments[0] != "format":
        install(marks)
    try:
        return serve(arguments)
    finally:
        if marks:
            Path(path).write_text(json.dumps(marks))


if __name__ == "__main__":
    sys.exit(main())
