"""How often docstrings and comments use words that readers stumble over, counted by room: the numbers may only shrink.

plain_words.txt has a line for each room and word: `room count word`. Whoever mends some lowers its number:
`python -m tests.architecture.test_plain_words` prints the table as it is now.
"""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.architecture.test_laws import ROOT, SOURCE_ROOTS

ALLOWED = Path(__file__).with_name("plain_words.txt")
WORDS = {
    "Of …": re.compile(r"\A\s*Of\b"),
    "who …": re.compile(r"(?:\A|[.;:] +|\. *\n+)\s*[Ww]ho\b(?![^.;]*\?)"),
    "anew": re.compile(r"\banew\b", re.IGNORECASE),
    "amid": re.compile(r"\bamid\b", re.IGNORECASE),
    "goes on": re.compile(r"\bgo(?:es|ing)? on\b", re.IGNORECASE),
    "of its own": re.compile(r"\bof its own\b", re.IGNORECASE),
    "stands": re.compile(r"\bstands?\b(?! for)", re.IGNORECASE),
    "nobody": re.compile(r"\bnobody\b", re.IGNORECASE),
}
"""Bare genitives and sentences without a noun, and words for which a plainer one serves; `stands for` is plain."""


def counted(root: str) -> Counter[str]:
    """Word -> how often the docstrings and comments below a source root use it."""
    found: Counter[str] = Counter()
    for path in (ROOT / root).rglob("*.py"):
        if "_pb2" not in path.name:
            for text in prose(path.read_text()):
                found.update({word: len(pattern.findall(text)) for word, pattern in WORDS.items()})
    return found


def prose(source: str) -> Iterator[str]:
    """Each docstring, those of fields too, and each comment of a file."""
    for node in ast.walk(ast.parse(source)):
        for statement in getattr(node, "body", ()) if isinstance(getattr(node, "body", ()), list) else ():
            value = getattr(statement, "value", None) if isinstance(statement, ast.Expr) else None
            if isinstance(value, ast.Constant) and isinstance(value.value, str):
                yield value.value
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield token.string.lstrip("# ")


def allowed() -> dict[tuple[str, str], int]:
    """(room, word) -> at most."""
    lines = (line.split(maxsplit=2) for line in ALLOWED.read_text().splitlines())
    return {(room, word): int(count) for room, count, word in lines}


@pytest.mark.parametrize("root", SOURCE_ROOTS)
def test_words_that_readers_stumble_over_only_grow_rarer(root: str) -> None:
    bounds = allowed()
    found = counted(root)
    grown = {word: (count, bounds[root, word]) for word, count in found.items() if count > bounds[root, word]}
    assert not grown, f"{root}: (now, at most) {grown}: say it plainer, as CONTRIBUTING.md asks"


def test_a_word_is_found_where_it_is_written() -> None:
    source = '''
class A:
    """Of a room."""

    size: int
    """Who asks goes on."""

    def run(self):
        """Well."""
        return "anew"  # anew: it stands there, and stands for much
'''
    texts = list(prose(source))
    counts = {word: sum(len(pattern.findall(text)) for text in texts) for word, pattern in WORDS.items()}
    assert {word: count for word, count in counts.items() if count} == {
        "Of …": 1, "who …": 1, "goes on": 1, "anew": 1, "stands": 1
    }  # fmt: skip


if __name__ == "__main__":
    for each in SOURCE_ROOTS:
        for each_word, number in counted(each).items():
            print(each, number, each_word)
