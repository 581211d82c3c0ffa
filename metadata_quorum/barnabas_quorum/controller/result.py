"""The result of a decision: the records that carry it out, and the answer that leaves once they are committed.

May touch:  records.   Must not touch: everything else.
Invariants: a result changes nothing by itself.
Read next:  controller.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Generic, TypeVar

from barnabas_quorum.records import Record
from barnabas_wire.lazy_dataclass import dataclass

R = TypeVar("R")


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerResult(Generic[R]):
    """The outcome of one decision."""

    records: Sequence[Record]
    response: R
    is_atomic: bool = True
    """All records in one batch or one transaction of the log, or none. False where a prefix of them is a legal state too, so that
    a broker with a hundred thousand partitions can be fenced in several batches."""
    name: str = ""
    """The name in the log of the transaction, if this needs one."""
