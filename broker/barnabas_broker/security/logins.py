"""The logins of one listener: a session for each connection, with the credentials of the moment.

May touch:  the image's SCRAM credentials, through what it is given.     Must not touch: sockets, files, clock.
Invariants: a credential is looked up when a user names itself, so that a changed password counts for the next login.
Read next:  sasl/session.py; metadata_quorum/image/scram.py.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING

from barnabas_broker.config.keys import ConfigError
from barnabas_broker.security.config import SecurityConfig
from barnabas_broker.security.sasl.mechanism import OAUTHBEARER, PLAIN, MechanismFactory
from barnabas_broker.security.sasl.plain import Plain
from barnabas_broker.security.sasl.session import SaslSession
from barnabas_broker.security.unknown_users import Likeness, likeness
from barnabas_quorum.image.scram import ScramCredential, ScramImage, ScramUser
from barnabas_quorum.records_security import ScramMechanism

if TYPE_CHECKING:
    from barnabas_broker.security.jwks import JwksSource
    from barnabas_broker.security.sasl.oauthbearer import TokenRules
    from barnabas_broker.security.sasl.scram import FindToken, Verifier

SCRAM_MECHANISMS = {"SCRAM-SHA-256": ScramMechanism.SCRAM_SHA_256, "SCRAM-SHA-512": ScramMechanism.SCRAM_SHA_512}


def token_rules(config: SecurityConfig) -> TokenRules:
    """What OAUTHBEARER's tokens must say. Raises ConfigError for what is not said of them: none is taken unchecked."""
    from barnabas_broker.security.sasl.oauthbearer import TokenRules

    try:
        return TokenRules(
            algorithms=config.sasl_oauthbearer_algorithms,
            issuer=config.sasl_oauthbearer_expected_issuer or "",
            audiences=config.sasl_oauthbearer_expected_audience,
            clock_skew_s=config.sasl_oauthbearer_clock_skew_seconds,
            subject_claim=config.sasl_oauthbearer_sub_claim_name,
        )
    except ValueError as error:
        raise ConfigError(
            f"OAUTHBEARER: {error}; set sasl.oauthbearer.expected.issuer, sasl.oauthbearer.expected.audience and, for others than the "
            "default, sasl.oauthbearer.algorithms"
        ) from None


class Logins:
    """Makes sessions."""

    def __init__(
        self,
        config: SecurityConfig,
        passwords: Mapping[str, str],
        credentials: Callable[[], ScramImage],
        *,
        jwks: JwksSource | None = None,
        find_token: FindToken | None = None,
    ) -> None:
        """
        Args:
            passwords: of PLAIN's users.
            credentials: of SCRAM's users, read again each time.
            jwks: the keys of OAUTHBEARER's tokens.
            find_token: a delegation token by its id; None: they are not taken.
        """
        self._credentials = credentials
        self._lifetime_ms = config.connections_max_reauth_ms
        self._lone_key = secrets.token_bytes(32)
        self._likenesses: dict[ScramMechanism, tuple[Mapping[ScramUser, ScramCredential], Likeness]] = {}
        """By mechanism, with the credentials that it was found in."""
        self._mechanisms: dict[str, MechanismFactory] = {}
        for name in config.sasl_enabled_mechanisms:
            if name == PLAIN:
                self._mechanisms[name] = partial(Plain, passwords)
            elif name == OAUTHBEARER:
                from barnabas_broker.security.sasl.oauthbearer import OAuthBearer

                assert jwks is not None, "listener_security.py makes one with the mechanism"
                self._mechanisms[name] = partial(OAuthBearer, token_rules(config), jwks.find)
            else:
                from barnabas_broker.security.sasl.scram import Scram  # its library is loaded where it is needed

                find = partial(self._verifier, SCRAM_MECHANISMS[name])
                self._mechanisms[name] = partial(
                    Scram,
                    name,
                    find,
                    unknown=partial(self._likeness, SCRAM_MECHANISMS[name]),
                    find_token=find_token or (lambda token_id: None),
                )

    @property
    def names(self) -> list[str]:
        """Mechanisms that are taken."""
        return list(self._mechanisms)

    def factory(self, mechanism: str) -> MechanismFactory | None:
        """What makes an exchange of a mechanism; None for one that is not taken."""
        return self._mechanisms.get(mechanism)

    def new_session(self) -> SaslSession:
        """A session for a connection that was just accepted."""
        return SaslSession(self._mechanisms, lifetime_ms=self._lifetime_ms)

    def _likeness(self, mechanism: ScramMechanism) -> Likeness:
        """Found once for each change of the credentials, when somebody asks: it looks at all of them."""
        credentials = self._credentials().credentials
        seen, found = self._likenesses.get(mechanism, (None, None))
        if found is None or seen is not credentials:
            found = likeness(credentials, mechanism, lone_key=self._lone_key)
            self._likenesses[mechanism] = (credentials, found)
        return found

    def _verifier(self, mechanism: ScramMechanism, user: str) -> Verifier | None:
        from barnabas_broker.security.sasl.scram import Verifier

        found = self._credentials().credentials.get(ScramUser(user, mechanism))
        return None if found is None else Verifier(found.salt, found.stored_key, found.server_key, found.iterations)
