"""Barnabas: the Kafka you can `pip install`. This package says which version is installed; the rooms are packages of their own.

May touch:  the installed distribution's metadata.   Must not touch: any room.
Invariants: importing it loads nothing but the standard library; the version is the one of pyproject.toml.
Read next:  ../barnabas_admin/main.py, the command tree; the README's map of the house.
"""

from importlib.metadata import version

__version__ = version("barnabas")
"""The version of the installed distribution, as `barnabas --version` prints it."""

__all__ = ["__version__"]
