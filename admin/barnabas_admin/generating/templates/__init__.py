"""Templates of generated files, and what fills them in.

May touch:  its own files.            Must not touch: everything else.
Invariants: a name that a template does not know is an error; in YAML text that is no plain word is quoted as JSON, which YAML reads.
Read next:  ../kubernetes.py.

    <<name>>                  the value; in YAML a number stays a number, if nothing stands beside it
    #if name … #end name      lines that are there if the value is true
    #each name … #end name    lines for each mapping of a list, whose names come before those outside
    #: …                      a remark on the template, left out
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from importlib.resources import files
from typing import Any

YAML_ENDINGS = (".yaml", ".yml", ".once")
_PART = re.compile(r"^#(?:if|each) (\w+)\n((?:.*\n)*?)#end \1\n|^ *#: .*\n|^(.*\n)", re.MULTILINE)
_NAME = re.compile(r"<<(\w+)>>")
_YAML_LINE = re.compile(r"""( *+(?:- )?+(?:[^\s"]+: )?+)([^\s"#].*[^:])""")
_PLAIN = re.compile(r"[A-Za-z/][\w./-]*")
_WORDS_WITH_A_MEANING = frozenset({"true", "false", "yes", "no", "on", "off", "null", "y", "n"})


def template(name: str) -> str:
    """The text of a template."""
    return (files(__name__) / name).read_text(encoding="utf-8")


def filled_in(name: str, facts: Mapping[str, Any]) -> str:
    """The template `name` with `facts`. Raises KeyError for a name that is not among them."""
    return _filled(template(name), facts, is_yaml=name.endswith(YAML_ENDINGS))


def yaml_scalar(value: str | int) -> str:
    """A text, number or boolean as YAML has it."""
    if isinstance(value, str) and _PLAIN.fullmatch(value) and value.lower() not in _WORDS_WITH_A_MEANING:
        return value
    return json.dumps(value, ensure_ascii=False)


def _filled(text: str, facts: Mapping[str, Any], *, is_yaml: bool) -> str:
    def part(found: re.Match[str]) -> str:
        section, inside, line = found.groups()
        if section is not None:
            value = facts[section]
            each = value if isinstance(value, list) else [{}] if value else []
            return "".join(_filled(inside, {**facts, **more}, is_yaml=is_yaml) for more in each)
        if not line or "<<" not in line:
            return line or ""
        if is_yaml and (scalar := _YAML_LINE.fullmatch(line.rstrip("\n"))) and "<<" in scalar[2]:
            alone = _NAME.fullmatch(scalar[2])
            return with_values(scalar[1]) + yaml_scalar(facts[alone[1]] if alone else with_values(scalar[2])) + "\n"
        return with_values(line)

    def with_values(line: str) -> str:
        return _NAME.sub(lambda found: str(facts[found[1]]), line)

    return _PART.sub(part, text)
