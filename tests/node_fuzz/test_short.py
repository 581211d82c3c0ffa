"""The short form of `make node-fuzz`: every decoder whole, some images of each file, and what is still known to be wrong by name."""

from __future__ import annotations

import re
from typing import Any, NamedTuple

import pytest

from tests.node_fuzz.damage import FILES, KINDS, Damage, choices

pytestmark = [pytest.mark.cluster]


class Known(NamedTuple):
    """A class of failures that is left out, until what mends it is here."""

    what: str
    """Pattern of `<decoder>` or of `<file> <kind>: <law>: <words>`."""
    reason: str


KNOWN: tuple[Known, ...] = (
    Known(
        r" old: gone: lone-compacted-\d+ shows removed keys again",
        "an older copy of one segment is sound in itself, and a lone replica has no second witness of what compaction left of it",
    ),
)


def reason_of(words: str) -> str | None:
    """Why it is left out; None when it is not."""
    return next((known.reason for known in KNOWN if re.search(known.what, words)), None)


def test_every_decoder_takes_every_flip_and_every_length(short_form: dict[str, Any]) -> None:
    wrong = {name: found for name, found in short_form["decoders"].items() if found}
    left_out = {name: reason for name in wrong if (reason := reason_of(name)) is not None}
    print("left out:", left_out)
    assert len(short_form["decoders"]) > 20
    assert not {name: found[:3] for name, found in wrong.items() if name not in left_out}


def test_every_image_keeps_the_laws(short_form: dict[str, Any]) -> None:
    broken = []
    for image in short_form["images"]:
        for each in image["broken"]:
            words = f"{image['file']} {image['kind']}: {each}"
            reason = reason_of(words)
            if reason is None:
                broken.append(f"{image['line']}   # {image['what']}: {each}")
            else:
                print("left out:", words, "-", reason)
    assert {image["file"] for image in short_form["images"]} >= FILES.keys()
    assert not broken, "\n".join(broken)


def test_images_are_what_their_seed_and_number_say() -> None:
    drawn = choices(7)
    first = [next(drawn) for _ in range(len(FILES) * len(KINDS))]
    again = choices(7)
    assert first == [next(again) for _ in first]
    assert {(each.file, each.kind) for each in first} >= {("partition.metadata", "zeroed"), ("index", "flipped")}


@pytest.mark.parametrize(
    ("after", "changed"),
    [(b"abXdef", (2, 3)), (b"abc", (3, 6)), (b"", (0, 6)), (b"abcdefgh", (6, 8)), (None, (0, 6)), (b"Xbcdef", (0, 1))],
)
def test_a_damage_knows_the_bytes_that_it_changed(after: bytes | None, changed: tuple[int, int]) -> None:
    assert Damage("what", "path", b"abcdef", after).changed == changed
