"""The errors in a group that a TaskGroup raised.

May touch:  nothing.                  Must not touch: anything.
Read next:  nothing; whoever imports it says what it does with them.
"""

from __future__ import annotations

from collections.abc import Iterator


def leaves(error: BaseException) -> Iterator[BaseException]:
    """The errors that a group contains at any depth; the error itself when it is no group."""
    if isinstance(error, BaseExceptionGroup):
        for each in error.exceptions:
            yield from leaves(each)
    else:
        yield error


def first_error(error: BaseException) -> BaseException:
    """The first of `leaves`."""
    return next(leaves(error))
