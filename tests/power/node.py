"""A real node on a RecordingDisk: `python -m tests.power.node --journal DIRECTORY [--faults FILE] -c server.properties …`.

All further arguments are those of `barnabas-server`.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from barnabas_broker.main import main
from tests.power.journal import Journal
from tests.power.recording_disk import Recorder


def run(arguments: list[str]) -> int:
    """Run the node; returns its exit status."""
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("--journal", type=Path, required=True, help="on the file system of the data, beside it")
    parser.add_argument("--faults", type=Path, help="rules as write_faults writes them; the file may come later")
    options, rest = parser.parse_known_args(arguments)
    recorder = Recorder(Journal(options.journal.absolute()), options.faults)
    return main(rest, open_disk=recorder.open_disk)


if __name__ == "__main__":
    sys.exit(run(sys.argv[1:]))
