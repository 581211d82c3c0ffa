"""OAUTHBEARER (RFC 7628): a token that somebody else signed says who the client is. Verified over PyJWT.

May touch:  its arguments.            Must not touch: sockets, files (keys are given), key material of a symmetric kind.
Invariants: a token counts only with a signature of a known public key by an allowed algorithm, and with the issuer, an audience, an
            expiry and a subject that are expected: whatever is absent refuses (CVE-2026-33557, CVE-2026-110985, Pulsar's
            CVE-2021-22160); no refusal shows the token.
Read next:  ../jwks.py, where the keys come from; mechanism.py.

Behaviour: as in Kafka, time claims may be off by sasl.oauthbearer.clock.skew.seconds, extensions are read and mean nothing, and a login
ends with its token whatever connections.max.reauth.ms says. Unlike Kafka a refusal comes at once, not after an exchange of its reasons.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

import jwt

from barnabas_broker.security.sasl.mechanism import LoginRefused
from barnabas_wire.lazy_dataclass import dataclass

TOKEN_BYTES_MAX = 16 * 1024
ALGORITHMS = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA")
"""Those that may be allowed: all need a private key to sign. `none` and HMAC never are."""
_FIRST = re.compile(r"n,(?:a=(?P<authzid>[^,]*))?,\x01(?P<pairs>(?:[A-Za-z]+=[^\x01]*\x01)*)\x01")
_BEARER = re.compile(r"(?i:bearer) +(?P<token>[A-Za-z0-9._~+/=-]+)")


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenRules:
    """What a token must say."""

    algorithms: tuple[str, ...]
    issuer: str
    audiences: tuple[str, ...]
    clock_skew_s: int = 30
    subject_claim: str = "sub"

    def __post_init__(self) -> None:
        if not (self.algorithms and self.issuer and self.audiences and self.subject_claim):
            raise ValueError("a token is checked for algorithm, issuer, audience and subject: none may be left out")
        wrong = [name for name in self.algorithms if name not in ALGORITHMS]
        if wrong:
            raise ValueError(f"{wrong[0]} is no algorithm of public keys: use {', '.join(ALGORITHMS)}")


FindKey = Callable[[str | None], jwt.PyJWK | None]
"""A key by its `kid`; None when it is not known, or when a token without `kid` has several to choose from."""


def verify_token(token: str, *, rules: TokenRules, find_key: FindKey) -> tuple[str, int]:
    """The subject and the expiry (ms since 1970) of a token. Raises LoginRefused, without any part of it."""
    try:
        header: Mapping[str, Any] = jwt.get_unverified_header(token)
        if header.get("alg") not in rules.algorithms:
            raise LoginRefused(
                f"the token is signed by an algorithm that is not allowed: use {', '.join(rules.algorithms)}"
            )
        kid = header.get("kid")
        key = find_key(kid if isinstance(kid, str) else None)
        if key is None:
            raise LoginRefused("the token is signed with a key that this broker does not know")
        claims = jwt.decode(
            token,
            key,
            algorithms=list(rules.algorithms),
            issuer=rules.issuer,
            audience=list(rules.audiences),
            leeway=rules.clock_skew_s,
            options={"require": ["exp", "iss", "aud", rules.subject_claim]},
        )
    except jwt.ExpiredSignatureError:
        raise LoginRefused("the token has expired") from None
    except jwt.InvalidAudienceError:
        raise LoginRefused("the token is for another audience") from None
    except jwt.InvalidIssuerError:
        raise LoginRefused("the token is of another issuer") from None
    except jwt.MissingRequiredClaimError as error:
        raise LoginRefused(f"the token has no claim {error.claim}") from None
    except (jwt.PyJWTError, ValueError, TypeError, KeyError, RecursionError):
        raise LoginRefused("the token is not valid") from None
    subject = claims[rules.subject_claim]
    if not isinstance(subject, str) or not subject:
        raise LoginRefused(f"the token's claim {rules.subject_claim} is not a name")
    return subject, int(claims["exp"]) * 1000


def _unverified(token: str, subject_claim: str) -> str:
    """The user that the token names, unchecked: for the audit log, and for nothing else."""
    try:
        subject = jwt.decode(token, options={"verify_signature": False}).get(subject_claim)
    except (jwt.PyJWTError, ValueError, TypeError, RecursionError):
        return ""
    return subject if isinstance(subject, str) else ""


class OAuthBearer:
    """One login with a token."""

    def __init__(self, rules: TokenRules, find_key: FindKey) -> None:
        self.user: str | None = None
        self.claimed = ""
        self.expires_ms: int | None = None
        self.is_by_delegation_token = False
        self._rules = rules
        self._find_key = find_key

    def step(self, token: bytes) -> bytes:
        """GS2 header, then `auth=Bearer TOKEN`; the answer is empty. Raises LoginRefused."""
        if len(token) > TOKEN_BYTES_MAX:
            raise LoginRefused(f"the OAUTHBEARER message is longer than {TOKEN_BYTES_MAX} bytes")
        try:
            first = _FIRST.fullmatch(token.decode("utf-8"))
        except UnicodeDecodeError:
            first = None
        if first is None:
            raise LoginRefused("this is not an OAUTHBEARER message: n,,^Aauth=Bearer TOKEN^A^A")
        pairs = [pair.partition("=") for pair in first["pairs"].split("\x01") if pair]
        authorizations = [value for name, _, value in pairs if name == "auth"]
        bearer = _BEARER.fullmatch(authorizations[0]) if len(authorizations) == 1 else None
        if bearer is None:
            raise LoginRefused("the OAUTHBEARER message has no bearer token")
        self.claimed = _unverified(bearer["token"], self._rules.subject_claim)
        user, expires_ms = verify_token(bearer["token"], rules=self._rules, find_key=self._find_key)
        if first["authzid"] not in (None, "", user):
            raise LoginRefused("a client may log in for itself only: leave the authorization id empty")
        self.user, self.expires_ms = user, expires_ms
        return b""
