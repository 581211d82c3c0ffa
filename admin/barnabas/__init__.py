"""Barnabas: the Kafka you can `pip install`. This package is what a program of its users imports; the rooms are packages of their own.

May touch:  the installed distribution's metadata.   Must not touch: any room, before a broker is asked for.
Invariants: importing it loads nothing but the standard library, and little of that; the version is the one of pyproject.toml.
Read next:  in_process.py, a broker for tests; ../barnabas_admin/main.py, the command tree; the README's map of the house.
"""

TYPE_CHECKING = False  # as typing has it, whose import takes longer than all of this
if TYPE_CHECKING:
    from typing import Any

    from barnabas.in_process import Broker, BrokerError, broker

__all__ = ["Broker", "BrokerError", "__version__", "broker"]

__version__: str
"""The version of the installed distribution, as `barnabas --version` prints it; its metadata is read when it is asked for."""


def __getattr__(name: str) -> "Any":
    if name == "__version__":
        from importlib.metadata import version

        return version("barnabas")
    if name in ("Broker", "BrokerError", "broker"):
        from barnabas import in_process

        return getattr(in_process, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
