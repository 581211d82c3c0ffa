"""What users that do not exist look like to SCRAM: as those of the cluster do, on every node and after every restart.

May touch:  the image's credentials.  Must not touch: clock, files, randomness.
Invariants: nodes with the same credentials make the same salts; without the keys of all witnesses they cannot be made.
Read next:  sasl/scram.py, which answers with them; logins.py.

Not obvious: no node has a secret that all of them share and that is always there. So the key of the salts comes from the keys of the
first users by name: it stays as it is while those do, and a user knows only the keys that its password gives.
"""

from __future__ import annotations

import hashlib
import hmac
from collections import Counter
from collections.abc import Mapping
from heapq import nsmallest
from typing import Final, NamedTuple

from barnabas_quorum.image.scram import ScramCredential, ScramUser
from barnabas_quorum.records_security import ScramMechanism

ITERATIONS: Final = 8192
SALT_BYTES: Final = 16
"""The iterations, and bytes of salt, of the users that `barnabas user create` and `format --add-scram` make."""
WITNESSES: Final = 3
"""How many users' keys the key is made of: all of them must be known to tell a made-up salt."""


class Likeness(NamedTuple):
    """How the first answer to a user looks who does not exist."""

    key: bytes
    iterations: int = ITERATIONS
    salt_bytes: int = SALT_BYTES

    def salt(self, user: str) -> bytes:
        """The salt of a user, always the same."""
        wanted = b""
        while len(wanted) < self.salt_bytes:
            wanted += hmac.digest(self.key, b"salt%d:%s" % (len(wanted), user.encode()), "sha512")
        return wanted[: self.salt_bytes]


def likeness(
    credentials: Mapping[ScramUser, ScramCredential], mechanism: ScramMechanism, *, lone_key: bytes
) -> Likeness:
    """Iterations and size of salt that most users of the mechanism have; of two that are as many, the larger.

    Args:
        lone_key: makes the salts where there is no user at all, and none to be told from.
    """
    kinds = Counter(
        (each.iterations, len(each.salt)) for user, each in credentials.items() if user.mechanism is mechanism
    )
    (iterations, salt_bytes), _ = max(
        kinds.items(), key=lambda kind: (kind[1], kind[0]), default=((ITERATIONS, SALT_BYTES), 0)
    )
    witnesses = hashlib.sha512(f"barnabas unknown users {mechanism.name}".encode())
    for user in nsmallest(WITNESSES, credentials):
        witnesses.update(credentials[user].stored_key + credentials[user].server_key)
    if not credentials:
        witnesses.update(lone_key)
    return Likeness(witnesses.digest(), iterations, salt_bytes)
