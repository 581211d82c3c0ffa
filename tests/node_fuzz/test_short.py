"""The short form of `make node-fuzz`: every decoder whole, some images of each file."""

from __future__ import annotations

from typing import Any

import pytest

from tests.node_fuzz.damage import FILES, KINDS, Damage, choices
from tests.node_fuzz.laws import reason_of

pytestmark = [pytest.mark.cluster]


def test_every_decoder_takes_every_flip_and_every_length(short_form: dict[str, Any]) -> None:
    assert len(short_form["decoders"]) > 20
    assert not {name: found[:3] for name, found in short_form["decoders"].items() if found}


def test_every_image_keeps_the_laws(short_form: dict[str, Any]) -> None:
    broken = []
    for image in short_form["images"]:
        for each in image["broken"]:
            broken.append(f"{image['line']}   # {image['what']}: {each}")
    assert {image["file"] for image in short_form["images"]} >= FILES.keys()
    assert not broken, "\n".join(broken)


def test_what_is_known_to_be_wrong_is_left_out_of_every_verdict_and_nothing_else() -> None:
    assert reason_of("segment old: gone: lone-compacted-1 shows removed keys again: [b'removed-0']") is not None
    assert reason_of("segment flipped: gone: lone-compacted-1 shows removed keys again: [b'removed-0']") is None


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
