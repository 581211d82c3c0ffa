"""Barnabas: the Kafka you can `pip install`. This package says which version is installed; the rooms are packages of their own.

May touch:  the installed distribution's metadata.   Must not touch: any room.
Invariants: importing it loads nothing but the standard library, and little of that; the version is the one of pyproject.toml.
Read next:  ../barnabas_admin/main.py, the command tree; the README's map of the house.
"""

__all__ = ["__version__"]

__version__: str
"""The version of the installed distribution, as `barnabas --version` prints it; its metadata is read when it is asked for."""


def __getattr__(name: str) -> str:
    if name == "__version__":
        from importlib.metadata import version

        return version("barnabas")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
