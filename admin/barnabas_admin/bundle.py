"""The archive of `barnabas debug bundle`: what the nodes know, redacted, with a manifest of where each file is from.

May touch:  the archive, the files named, HTTP of metrics listeners.   Must not touch: anything of the cluster but to read it.
Invariants: nothing enters the archive but through redaction.py; what cannot be had is said in the manifest and stops nothing; the archive
            is readable by its owner only.
Read next:  commands/debug.py, which says what is collected.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import os
import urllib.error
import urllib.request
import zipfile
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from barnabas_admin.redaction import redact_json, redact_properties, redact_text

TAIL_BYTES = 512 * 1024
"""The last bytes of each log."""
HTTP_TIMEOUT_S = 5.0
PAGE_BYTES_MAX = 64 * 1024 * 1024


class Bundle:
    """One archive that is being filled. The manifest is its last file."""

    def __init__(self, path: Path) -> None:
        """Raises OSError when the file exists or cannot be made."""
        self.root = path.name.removesuffix(".zip")
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        self._file = open(descriptor, "wb")  # noqa: SIM115 - closed in close
        self._zip = zipfile.ZipFile(self._file, "w", zipfile.ZIP_DEFLATED)
        self.files: list[dict[str, Any]] = []

    def add_command(self, name: str, words: list[str], options: list[str], run: Callable[[list[str]], Any]) -> Any:
        """What `barnabas WORDS -o json` prints, as NAME.json; the JSON, None when it printed none.

        `options` say where the cluster is and are left out of the manifest."""
        out, err = io.StringIO(), io.StringIO()
        status = 0
        try:
            with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
                run([*words, "-o", "json", *options])
        except SystemExit as ended:
            status = ended.code if isinstance(ended.code, int) else int(ended.code is not None)
        source = f"barnabas {' '.join(words)}"
        try:
            values = [json.loads(line) for line in out.getvalue().splitlines()]  # one, or an object a line
        except ValueError:
            values = []
        if not values:
            self.files.append(
                {"file": None, "source": source, "status": status, "error": redact_text(_last_words(err.getvalue()))}
            )
            return None
        found = values[0] if len(values) == 1 else values
        self._write(f"{name}.json", json.dumps(redact_json(found), indent=1, ensure_ascii=False), source, status)
        return found

    def add_json(self, name: str, value: Any, source: str) -> None:
        """A JSON value that was made here."""
        self._write(f"{name}.json", json.dumps(redact_json(value), indent=1, ensure_ascii=False), source)

    def add_properties(self, name: str, path: Path) -> None:
        """A properties file."""
        with self._missing(str(path)):
            self._write(name, redact_properties(path.read_text(encoding="utf-8", errors="replace")), str(path))

    def add_tail(self, name: str, path: Path) -> None:
        """The end of a log."""
        with self._missing(str(path)), path.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - TAIL_BYTES))
            text = file.read(TAIL_BYTES).decode(errors="replace")
            if size > TAIL_BYTES:
                text = text.partition("\n")[2]
            self._write(name, redact_text(text), str(path), size_of_all=size)

    def add_page(self, name: str, url: str) -> None:
        """A page of a metrics listener; one that answers 503 (not ready) is a page too."""
        with self._missing(url):
            try:
                with urllib.request.urlopen(url, timeout=HTTP_TIMEOUT_S) as answer:
                    status, body = answer.status, answer.read(PAGE_BYTES_MAX)
            except urllib.error.HTTPError as error:
                status, body = error.code, error.read(PAGE_BYTES_MAX)
            self._write(name, redact_text(body.decode(errors="replace")), url, status)

    def close(self, about: dict[str, Any]) -> None:
        """Write the manifest, and finish the archive."""
        manifest = {
            "api_version": "v1",
            "created": datetime.now(UTC).isoformat(timespec="seconds"),
            **about,
            "redacted": "passwords, private keys, JAAS lines and tokens are replaced by [hidden]",
            "files": self.files,
        }
        self._zip.writestr(f"{self.root}/manifest.json", json.dumps(manifest, indent=1, ensure_ascii=False) + "\n")
        self._zip.close()
        self._file.close()

    @contextlib.contextmanager
    def _missing(self, source: str) -> Any:
        try:
            yield
        except OSError as error:
            self.files.append({"file": None, "source": source, "error": str(getattr(error, "reason", error))})

    def _write(self, name: str, text: str, source: str, status: int = 0, *, size_of_all: int | None = None) -> None:
        data = text.encode()
        self._zip.writestr(f"{self.root}/{name}", data)
        entry: dict[str, Any] = {"file": name, "source": source, "bytes": len(data)}
        entry["sha256"] = hashlib.sha256(data).hexdigest()
        if status:
            entry["status"] = status
        if size_of_all is not None and size_of_all > TAIL_BYTES:
            entry["tail_of_bytes"] = size_of_all
        self.files.append(entry)


def _last_words(text: str) -> str:
    lines = [line for line in text.strip().splitlines() if line]
    try:
        return str(json.loads(lines[-1])["error"]["message"])
    except (ValueError, KeyError, TypeError, IndexError):
        return lines[-1] if lines else "it printed nothing"
