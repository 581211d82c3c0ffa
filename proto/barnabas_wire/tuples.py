"""Making a named tuple where each step counts.

May touch:  nothing.                  Must not touch: anything.
Read next:  nothing; whoever imports it says what it makes.
"""

from __future__ import annotations

from typing import Final

new_tuple: Final = tuple.__new__
"""new_tuple(Class, (field, ...)): half the price of naming a NamedTuple's class, which calls a function of its own."""
