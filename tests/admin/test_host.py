"""What `barnabas host resize` does to a properties file."""

from __future__ import annotations

import pytest

from barnabas_admin.commands.host import with_property


@pytest.mark.parametrize(
    ("text", "after"),
    [
        ("node.id=1\nbrokers=2\nlog.dirs=/d\n", "node.id=1\nbrokers=4\nlog.dirs=/d\n"),
        ("# brokers=2\nnode.id=1", "# brokers=2\nnode.id=1\nbrokers=4\n"),
        (" brokers : auto\r\nbrokers=3\nx=1\n", "brokers=4\nx=1\n"),
        ("x=a\\\n  brokers=2\n", "x=a\\\n  brokers=2\nbrokers=4\n"),
        ("brokers=4\n", "brokers=4\n"),
        ("", "brokers=4\n"),
    ],
)
def test_a_property_is_set_in_its_place_and_every_other_line_stays(text: str, after: str) -> None:
    assert "".join(with_property(text.splitlines(keepends=True), "brokers", "4")) == after


def test_a_property_over_several_lines_is_refused_in_words() -> None:
    with pytest.raises(ValueError, match="write it in one"):
        with_property(["brokers=\\\n", "2\n"], "brokers", "4")
