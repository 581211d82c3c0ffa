"""Where Avro schemas come from: a schema registry over HTTP, or a directory of files.

May touch:  files, HTTP (urllib).     Must not touch: Spark, Kafka's sockets.
Invariants: a schema that was found is kept, since ids never change their meaning; an id that nobody knows is distinguished from a registry
    that does not answer: the first is a bad record, the second an error of the whole query.
Read next:  avro.py.
"""

from __future__ import annotations

import base64
import functools
import json
import time
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path
from typing import Any

TIMEOUT_S = 10.0
TRIES, PAUSE_S = 3, 0.5
ANSWER_BYTES_MAX = 16 * 1024 * 1024
CONTENT_TYPE = "application/vnd.schemaregistry.v1+json"


class RegistryError(RuntimeError):
    """The registry does not answer, or refuses; the message says what to do."""


class UnknownSchema(RegistryError):
    """The registry answers, and has no such schema."""


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """urllib would send the login along, to whatever host an answer names, and from https to plain http."""

    def redirect_request(self, *_: Any, **__: Any) -> None:
        """See urllib."""
        return None


_OPENER = urllib.request.build_opener(_NoRedirects())


class SchemaFiles:
    """A directory with `ID.avsc` of each schema, `SUBJECT.avsc` of subjects."""

    def __init__(self, directory: str) -> None:
        """Nothing is read before the first question."""
        self._directory = Path(directory)

    def by_id(self, schema_id: int) -> str:
        """The text of a schema. Raises UnknownSchema."""
        return self._text(str(schema_id))

    def latest(self, subject: str) -> tuple[int | None, str]:
        """(id, text) of a subject; files know no id of it. Raises UnknownSchema."""
        return None, self._text(subject)

    def register(self, subject: str, schema: str) -> int:
        """Raises RegistryError: a user who keeps schemas in files gives their ids."""
        raise RegistryError(f"{self._directory} is a directory: say the id of the schema with schema_id=")

    def _text(self, name: str) -> str:
        path = self._directory / f"{name}.avsc"
        try:
            return path.read_text(encoding="utf-8")
        except FileNotFoundError:
            raise UnknownSchema(f"there is no file {path}") from None
        except OSError as error:
            raise RegistryError(f"{path} cannot be read: {error.strerror}") from None


class HttpRegistry:
    """A schema registry that speaks Confluent's REST API; `user:password@` in the URL logs in."""

    def __init__(self, url: str) -> None:
        """Nothing is asked before the first question."""
        parts = urllib.parse.urlsplit(url)
        self._shown = f"{parts.scheme}://{parts.hostname}" + (f":{parts.port}" if parts.port else "") + parts.path
        self._url = self._shown.rstrip("/")
        self._login = ""
        if parts.username is not None:
            pair = f"{urllib.parse.unquote(parts.username)}:{urllib.parse.unquote(parts.password or '')}"
            self._login = "Basic " + base64.b64encode(pair.encode()).decode()

    def by_id(self, schema_id: int) -> str:
        """The text of a schema. Raises UnknownSchema, RegistryError."""
        return self._schema(self._ask(f"/schemas/ids/{schema_id}"), f"schema {schema_id}")

    def latest(self, subject: str) -> tuple[int | None, str]:
        """(id, text) of a subject's latest version. Raises UnknownSchema, RegistryError."""
        answer = self._ask(f"/subjects/{urllib.parse.quote(subject, safe='')}/versions/latest")
        return int(answer["id"]), self._schema(answer, f"subject {subject}")

    def register(self, subject: str, schema: str) -> int:
        """The id of a schema under a subject, which gets it if it has not. Raises RegistryError."""
        body = json.dumps({"schema": schema}).encode()
        return int(self._ask(f"/subjects/{urllib.parse.quote(subject, safe='')}/versions", body)["id"])

    def _schema(self, answer: Any, what: str) -> str:
        kind = answer.get("schemaType", "AVRO")
        if kind != "AVRO":
            raise RegistryError(f"{what} of {self._shown} is {kind}: only AVRO is read here")
        if answer.get("references"):
            raise RegistryError(f"{what} of {self._shown} refers to other schemas: register it whole")
        return str(answer["schema"])

    def _ask(self, path: str, body: bytes | None = None) -> Any:
        request = urllib.request.Request(self._url + path, data=body, headers={"Accept": CONTENT_TYPE})
        if body is not None:
            request.add_header("Content-Type", CONTENT_TYPE)
        if self._login:
            request.add_header("Authorization", self._login)
        for attempt in range(TRIES):
            try:
                with _OPENER.open(request, timeout=TIMEOUT_S) as answer:
                    text = answer.read(ANSWER_BYTES_MAX + 1)
                    if len(text) > ANSWER_BYTES_MAX:
                        raise RegistryError(f"{self._shown} answers {path} with more than {ANSWER_BYTES_MAX:,} bytes")
                    return json.loads(text)
            except urllib.error.HTTPError as error:
                if 300 <= error.code < 400:
                    raise RegistryError(
                        f"{self._shown} sends {path} elsewhere, to {error.headers.get('Location')!r}: it is not followed, for the login "
                        "would go along; name the registry's own address"
                    ) from None
                said = _message(error)
                if error.code == 404:
                    raise UnknownSchema(f"{self._shown} does not know {path}: {said}") from None
                if error.code < 500:
                    raise RegistryError(f"{self._shown} refuses {path}: {error.code} {said}") from None
                why = f"{error.code} {said}"
            except (OSError, ValueError) as error:
                why = str(getattr(error, "reason", error))
            if attempt + 1 < TRIES:
                time.sleep(PAUSE_S)
        raise RegistryError(f"the schema registry {self._shown} did not give {path} in {TRIES} tries: {why}")


def _message(error: urllib.error.HTTPError) -> str:
    try:
        return str(json.loads(error.read(ANSWER_BYTES_MAX))["message"])
    except (OSError, ValueError, KeyError, TypeError):
        return str(error.reason)


@functools.lru_cache(maxsize=16)
def open_registry(where: str) -> SchemaFiles | HttpRegistry:
    """The registry at a URL, or the directory of schema files. Raises RegistryError for what is neither."""
    if where.startswith(("http://", "https://")):
        return HttpRegistry(where)
    if "://" in where:
        raise RegistryError(f"registry={where}: write a URL with http or https, or a directory of ID.avsc files")
    return SchemaFiles(where)
