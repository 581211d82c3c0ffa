r"""Properties files as Java reads them. The cases follow java.util.Properties, load and store."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas_broker.config.keys import ConfigError
from barnabas_broker.node.properties import read_properties
from barnabas_wire.client.properties import read_client_properties
from barnabas_wire.java_properties import decode_properties, parse_properties, property_line

CASES = {
    "k=v": {"k": "v"},
    "k = v ": {"k": "v"},
    "k:v": {"k": "v"},
    "k : v": {"k": "v"},
    "k v w": {"k": "v w"},
    "k\tv": {"k": "v"},
    "k==v": {"k": "=v"},
    "k=": {"k": ""},
    "listeners=PLAINTEXT://h:9092": {"listeners": "PLAINTEXT://h:9092"},
    r"listeners=PLAINTEXT\://h\:9092": {"listeners": "PLAINTEXT://h:9092"},
    r"a\=b=c": {"a=b": "c"},
    r"a\ b=c": {"a b": "c"},
    "k=a,\\\n   b,\\\n\tc\nl=1": {"k": "a,b,c", "l": "1"},
    "k=a\\\r\n  b\r\nl=1": {"k": "ab", "l": "1"},
    "k=a\\\\\nl=1": {"k": "a\\", "l": "1"},
    "k=a\\\n# b": {"k": "a# b"},
    "# c \\\nk=v": {"k": "v"},
    "! c\n\n  \nk=v\\": {"k": "v"},
    r"k=\u00fc\t\u0041": {"k": "ü\tA"},
    r"k=\ud83d\ude00": {"k": "😀"},
    r"k=user\=\"a\" \#\!\\d": {"k": 'user="a" #!\\d'},
    "k=a\x0bb\u2028c\x85d": {"k": "a\x0bb\u2028c\x85d"},
    "k=1\nk=2": {"k": "2"},
}


@pytest.mark.parametrize("text", CASES)
def test_a_file_is_read_as_java_reads_it_by_brokers_and_clients(text: str, tmp_path: Path) -> None:
    file = tmp_path / "x.properties"
    file.write_bytes(text.encode())
    assert read_properties(file) == CASES[text]
    assert read_client_properties(file) == CASES[text]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a=1\nlonely", "2: .*is not key=value"),
        (r"k=\d+", "1: .*backslash before 'd'"),
        ("a=1\n" r"k=RULE:^CN=(.*)\.example$/$1/", "2: .*two for a backslash"),
        (r"k=\u00f", "1: .*four hexadecimal"),
        (r"k=\ud83d", "1: .*surrogate"),
    ],
)
def test_what_java_would_change_in_silence_is_refused_by_its_line(text: str, said: str, tmp_path: Path) -> None:
    file = tmp_path / "x.properties"
    file.write_text(text)
    with pytest.raises(ConfigError, match=said):
        read_properties(file)
    with pytest.raises(ValueError, match=said):
        read_client_properties(file)


def test_latin_1_is_read_and_damage_is_not(tmp_path: Path) -> None:
    file = tmp_path / "x.properties"
    file.write_bytes("sasl.user=Jürgen".encode("latin-1"))
    assert read_properties(file) == {"sasl.user": "Jürgen"} == read_client_properties(file)
    assert decode_properties("k=ü".encode()) == "k=ü"
    file.write_bytes(b"k=\x00\xff\x93")
    with pytest.raises(ConfigError, match="no text"):
        read_properties(file)
    with pytest.raises(ValueError, match="no text"):
        read_client_properties(file)


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_what_is_written_is_read(value: str) -> None:
    assert list(parse_properties(property_line("k", value))) == [(1, "k", value.strip())]
