"""Which metrics each client is to push, and how often: the CLIENT_METRICS configs, and which clients they mean (KIP-714).

May touch:  the image's configs, RE2.  Must not touch: clock, sockets, what clients pushed.
Invariants: the same configs and the same client give the same subscription id on every broker, another set of metrics or another
            interval another id; a client's text is matched in time linear in it.
Read next:  instances.py.

Differs from Kafka: patterns are RE2's and not Java's; they are matched against the first TEXT_MAX characters of what a client says.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Final, NamedTuple

from barnabas_quorum.image.configs import ConfigsImage
from barnabas_quorum.records import ConfigResourceType
from barnabas_wire.java_values import java_int
from barnabas_wire.kafka.errors import ErrorCode, KafkaError
from barnabas_wire.kafka.ids import Uuid
from barnabas_wire.linear_pattern import InvalidPattern, compile_linear
from barnabas_wire.records.crc32c import crc32c

logger = logging.getLogger(__name__)

METRICS, INTERVAL_MS, MATCH = "metrics", "interval.ms", "match"
DEFAULTS: Final[Mapping[str, str]] = {INTERVAL_MS: "300000", MATCH: "", METRICS: ""}
"""The keys of a subscription, with what holds where one is not set."""
DOCS: Final[Mapping[str, str]] = {
    INTERVAL_MS: "Ms from one push of a client to the next.",
    MATCH: "Clients that are meant: SELECTOR=REGEX,… of which all must match as a whole; every client without any.",
    METRICS: "Prefixes of the names of metrics that clients push; * for all.",
}
INTERVAL_MS_RANGE: Final = (100, 3_600_000)
ALL_METRICS: Final = "*"
TEXT_MAX: Final = 256
"""Characters of a client's text that are looked at."""


class Client(NamedTuple):
    """What a client says of itself, and where it comes from."""

    instance_id: Uuid
    client_id: str
    software_name: str
    software_version: str
    host: str
    port: int


SELECTORS: Final[Mapping[str, Callable[[Client], str]]] = {
    "client_id": lambda client: client.client_id,
    "client_instance_id": lambda client: str(client.instance_id),
    "client_software_name": lambda client: client.software_name,
    "client_software_version": lambda client: client.software_version,
    "client_source_address": lambda client: client.host,
    "client_source_port": lambda client: str(client.port),
}


class Wanted(NamedTuple):
    """What one client is to push."""

    subscription_id: int
    """int32."""
    interval_ms: int
    metrics: tuple[str, ...]
    """Prefixes, sorted; only ALL_METRICS for everything; nothing: none."""


class Subscription(NamedTuple):
    """One CLIENT_METRICS resource."""

    metrics: tuple[str, ...]
    interval_ms: int
    match: tuple[tuple[Callable[[Client], str], Callable[[str], object]], ...]

    def means(self, client: Client) -> bool:
        """Whether all selectors match."""
        return all(matches(text_of(client)[:TEXT_MAX]) is not None for text_of, matches in self.match)


def subscription_value(name: str, key: str, value: str) -> str:
    """The value of a subscription's key in its normal form.

    Raises:
        KafkaError: INVALID_REQUEST for an unknown key and an interval out of bounds, INVALID_CONFIG for what cannot be read, as Kafka.
    """
    if key not in DEFAULTS:
        raise KafkaError.of(
            ErrorCode.INVALID_REQUEST,
            f"{key} is no key of a subscription of client metrics; known are {', '.join(DEFAULTS)}",
        )
    if key == INTERVAL_MS:
        try:
            interval_ms = java_int(value)
        except ValueError:
            raise KafkaError.of(
                ErrorCode.INVALID_CONFIG, f"{key}={value[:100]!r}: write a whole number of ms"
            ) from None
        least, most = INTERVAL_MS_RANGE
        if not least <= interval_ms <= most:
            raise KafkaError.of(ErrorCode.INVALID_REQUEST, f"{key}={interval_ms}: use {least} to {most}")
        return str(interval_ms)
    if key == MATCH:
        _compiled(value)
    return value


class Subscriptions:
    """The subscriptions of the current image, compiled once for each change of them."""

    def __init__(self) -> None:
        self._configs: ConfigsImage | None = None
        self._overrides: dict[str, Mapping[str, str]] = {}
        self._subscriptions: list[Subscription] = []
        self.version = 0
        """Counts the changes."""

    def follow(self, configs: ConfigsImage) -> None:
        """Take the subscriptions of an image."""
        if configs is self._configs:
            return
        self._configs = configs
        found = {
            name: values for kind, name, values in _resources(configs) if kind is ConfigResourceType.CLIENT_METRICS
        }
        if found == self._overrides:
            return
        self._overrides = found
        self._subscriptions = list(_read(found))
        self.version += 1

    def wanted_of(self, client: Client) -> Wanted:
        """What all subscriptions that mean a client come to: all their metrics, at the shortest interval."""
        meant = [each for each in self._subscriptions if each.means(client)]
        names = {name for each in meant for name in each.metrics}
        metrics = (ALL_METRICS,) if ALL_METRICS in names else tuple(sorted(names))
        interval_ms = min([int(DEFAULTS[INTERVAL_MS]), *(each.interval_ms for each in meant)])
        digest = crc32c(f"{','.join(metrics)} {interval_ms}".encode()) ^ crc32c(bytes(client.instance_id))
        return Wanted(digest - (1 << 32) if digest >> 31 else digest, interval_ms, metrics)


def _resources(configs: ConfigsImage) -> Iterable[tuple[ConfigResourceType, str, Mapping[str, str]]]:
    return ((resource.type, resource.name, values) for resource, values in configs.resources.items())


def _read(overrides: Mapping[str, Mapping[str, str]]) -> Iterable[Subscription]:
    for name, values in sorted(overrides.items()):
        try:
            match = _compiled(values.get(MATCH, ""))
        except KafkaError as error:  # the controller has a matcher, this broker has none
            logger.warning("subscription %r of client metrics means nobody here: %s", name, error.message)
            continue
        yield Subscription(
            tuple(_listed(values.get(METRICS, ""))), int(values.get(INTERVAL_MS, DEFAULTS[INTERVAL_MS])), match
        )


def _listed(value: str) -> list[str]:
    return [part.strip() for part in value.split(",") if part.strip()]


def _compiled(value: str) -> tuple[tuple[Callable[[Client], str], Callable[[str], object]], ...]:
    """Raises KafkaError INVALID_CONFIG. Of a selector that is there twice the last counts, as in Kafka."""
    found: dict[str, Callable[[str], object]] = {}
    for part in _listed(value):
        selector, *regexes = part.split("=")
        if len(regexes) != 1:
            raise KafkaError.of(ErrorCode.INVALID_CONFIG, f"{MATCH}: write SELECTOR=REGEX and not {part[:100]!r}")
        selector = selector.strip()
        if selector not in SELECTORS:
            raise KafkaError.of(
                ErrorCode.INVALID_CONFIG,
                f"{MATCH}: {selector[:100]!r} is no selector; known are {', '.join(SELECTORS)}",
            )
        try:
            found[selector] = compile_linear(regexes[0].strip()).fullmatch
        except InvalidPattern as error:
            raise KafkaError.of(ErrorCode.INVALID_CONFIG, f"{MATCH}: {part[:100]!r} is refused: {error}") from error
    return tuple((SELECTORS[selector], matches) for selector, matches in found.items())
