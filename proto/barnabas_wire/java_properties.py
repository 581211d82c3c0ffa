r"""Properties files as Java reads them: continued lines, `:` and blanks as separators, escapes, Latin-1.

May touch:  the file it is given.     Must not touch: everything else.
Invariants: what property_line writes, parse_properties reads; nothing is dropped that could change a value's meaning in silence.
Read next:  broker/barnabas_broker/node/properties.py and client/properties.py, which read files with it.

Form (java.util.Properties): `#` or `!` begins a comment; an odd number of backslashes at a line's end continues it, and the blanks
that the next line begins with are not part of it; a key ends at the first `=`, `:` or blank that has no backslash before it.
`\t \n \r \f \uXXXX` are characters, a backslash before a sign is dropped.

Differences from Java: UTF-8 is tried before Latin-1; a key without a separator is refused; so is a backslash before a letter, a digit
or a sign of regular expressions. Java drops it, and turns `\d` and `\.` of a mapping rule into a `d` and any character.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

LINE_END = re.compile(r"\r\n|\r|\n")
_BLANKS = " \t\f"
_KEY_AND_VALUE = re.compile(r"((?:\\.|[^\\=: \t\f])*)([ \t\f]*[=:]?[ \t\f]*)(.*)", re.DOTALL)
_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|.|$)", re.DOTALL)
_CHARACTERS = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_MEANT_OTHERWISE = frozenset(".()[]{}*+?^$|")
_CONTROL = re.compile(r"[\0-\x08\x0e-\x1f\x7f-\x9f]")
_TO_ESCAPE = str.maketrans({"\\": "\\\\", "\n": "\\n", "\r": "\\r", "\f": "\\f", "\t": "\\t"})


def read_properties_file(path: str | Path) -> dict[str, str]:
    """What a file says; of a key's lines the last. Raises ValueError that names the file, the line and what to do."""
    try:
        text = decode_properties(Path(path).read_bytes())
    except OSError as error:
        raise ValueError(f"cannot read {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is no text in UTF-8 or Latin-1 ({error}); restore it, or write it anew") from error
    try:
        return {key: value for _, key, value in parse_properties(text)}
    except ValueError as error:
        raise ValueError(f"{path}:{error}") from None


def decode_properties(data: bytes) -> str:
    """The text of a file: UTF-8, or else Latin-1 as Java has it. Raises UnicodeDecodeError for what is neither: damage, not text."""
    try:
        return data.decode()
    except UnicodeDecodeError:
        text = data.decode("latin-1")
        if _CONTROL.search(text):
            raise
        return text


def logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """(number of its first line from 1, line) without the blanks before it; continued lines are joined, empty ones left out.

    Comments come too. They are never continued.
    """
    lines = LINE_END.split(text)
    at = 0
    while at < len(lines):
        number, line = at + 1, lines[at].lstrip(_BLANKS)
        at += 1
        if not line.startswith(("#", "!")):
            while is_continued(line):
                more = lines[at].lstrip(_BLANKS) if at < len(lines) else ""
                line = line[:-1] + more
                at += 1
        if line.strip(_BLANKS):
            yield number, line


def is_continued(line: str) -> bool:
    """Whether the next line belongs to this one."""
    return (len(line) - len(line.rstrip("\\"))) % 2 == 1


def parse_line(line: str) -> tuple[str, str]:
    """Key and value of a logical line, without the blanks around them. Raises ValueError that says what is wrong, without the value."""
    found = _KEY_AND_VALUE.fullmatch(line)
    if found is None or not found[2]:
        raise ValueError("is not key=value")
    return _unescape(found[1]), _unescape(found[3]).strip()


def parse_properties(text: str) -> Iterator[tuple[int, str, str]]:
    """(line number, key, value) in their order; of a key that comes twice the last one counts.

    Raises ValueError that begins with the number of the line.
    """
    for number, line in logical_lines(text):
        if line[0] in "#!":
            continue
        try:
            yield number, *parse_line(line)
        except ValueError as error:
            raise ValueError(f"{number}: {error}") from None


def property_line(key: str, value: str) -> str:
    """The line of a file, its end included."""
    return f"{key}={value.translate(_TO_ESCAPE)}\n"


def _unescape(text: str) -> str:
    if "\\" not in text:
        return text
    plain = _ESCAPE.sub(_unescaped, text)
    try:  # two \u may make one character
        return plain.encode("utf-16", "surrogatepass").decode("utf-16")
    except UnicodeDecodeError:
        raise ValueError("has half a surrogate pair: write both \\u") from None


def _unescaped(found: re.Match[str]) -> str:
    sign = found[1]
    if len(sign) == 5:
        return chr(int(sign[1:], 16))
    if sign == "u":
        raise ValueError("has a \\u without four hexadecimal digits")
    if sign in _MEANT_OTHERWISE or (sign.isalnum() and sign not in _CHARACTERS):
        raise ValueError(f"has a backslash before {sign!r}, which Java drops: write two for a backslash, or none")
    return _CHARACTERS.get(sign, sign)
