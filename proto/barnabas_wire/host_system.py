"""Whether this process may use what Linux alone has, or goes the way of every other system.

May touch:  the environment, for BARNABAS_PORTABLE alone.   Must not touch: everything else.
Invariants: what is Linux's alone is called in the seams below and nowhere else, and each call there has a portable twin; with
            BARNABAS_PORTABLE=1 the twins are taken on Linux, too, so that the tests run them.
Read next:  the seams: barnabas_log/disk_calls.py (with flush_ring.py and worker_process.py), barnabas_broker/network/socket_calls.py and
            host/system_calls.py, barnabas_admin/forked.py and dev_control.py.
"""

from __future__ import annotations

import os
import sys

PORTABLE = "BARNABAS_PORTABLE"
SYSTEMS = ("linux", "darwin")
"""Systems that a node starts on, as sys.platform names them."""


def has_linux() -> bool:
    """Whether Linux's own calls may be used. The seams of a node ask once, when they are imported."""
    return sys.platform == "linux" and not os.environ.get(PORTABLE)
