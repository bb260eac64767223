"""Import tables that extend other tables."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ....plugin import Finding, InputError, SpecError, did_you_mean
from ....specs.reader import TABLES, find, read_file, refuse_other, shipped_names, upgrade_format

FOLDER = "imports"
"""Folder of `specs/` with the shipped tables."""
LIBRARY = "hf"
"""Prefix of the shipped tables for Hugging Face's library: `hf-NAME`."""
LONGEST_CHAIN = 8
"""Maximum number of tables in a chain of `extends`."""
MERGED = ("defaults", "params", "weights", "tokens", "endings", "config")
"""Objects of a table whose keys are merged with those of the extended table."""
REMOVED = ("weights", "endings")
"""Those of them in which null removes a key; in the others, null is a value."""

Json = dict[str, Any]


def inherited(name: str | Path) -> tuple[Any, str]:
    """Return the value of a table merged with the tables that it extends, and its file.

    Args:
        name: a path, or the name of a shipped table with or without `hf-`.

    Raises:
        InputError: a file does not exist.
        SpecError: a text is not JSON, or a chain of `extends` is invalid.
    """
    value, source = read_file(_found(str(name)))
    chain, below = [value], [Path(source).resolve()]
    origin = source
    while isinstance(value, dict) and "extends" in value:
        path = _parent(value["extends"], origin)
        if isinstance(path, Finding):
            raise SpecError([path])
        if path.resolve() in below or len(below) >= LONGEST_CHAIN:
            problem = f"'{value['extends']}' itself extends this table"
            if path.resolve() not in below:
                problem = f"the chain of 'extends' is longer than {LONGEST_CHAIN} tables"
            raise SpecError([_finding(problem, "extend another table", origin)])
        below.append(path.resolve())
        value, origin = read_file(path)
        chain.append(value)
    table = _current(chain[-1])
    for child in reversed(chain[:-1]):
        table = merged(table, _current(child))
    refuse_other(table, source, "import table")
    return table, source


def _current(value: Any) -> Any:
    """Return the value of a table, with or without a parent, in the current format."""
    return upgrade_format(value, TABLES) if isinstance(value, dict) else value


def _found(name: str) -> Path:
    is_name = "/" not in name and not name.endswith(".json") and not Path(name).is_file()
    if is_name and not name.startswith(f"{LIBRARY}-"):
        name = f"{LIBRARY}-{name}"
    return find(name, FOLDER)


def _parent(name: Any, source: str) -> Path | Finding:
    """Return the file of an extended table: one next to the table, or a shipped one."""
    if not isinstance(name, str) or "/" in name or "\\" in name:
        return _finding(
            "'extends' is not the name of a table",
            'write the name of a shipped table, such as "hf-bart", or that of a file next to it',
            source,
        )
    beside = Path(source).parent / (name if name.endswith(".json") else f"{name}.json")
    if beside.is_file():
        return beside
    try:
        return _found(name)
    except InputError:
        shipped = shipped_names(FOLDER)
        return _finding(f"unknown table '{name}'", did_you_mean(name, shipped), source)


def _finding(problem: str, help_: str, source: str) -> Finding:
    return Finding(code="I01", at="/extends", problem=problem, help=help_, source=source)


def merged(base: Any, child: Any) -> Any:
    """Return a table's value with the changes of a table that extends it.

    Keys of objects are merged, requirements by their `key` or `that`, and other values are
    replaced.  Null removes a line of weights and an ending, and a requirement whose `else` is null
    is removed; in `defaults`, `params`, `tokens` and `config`, null is a value like others.

    Args:
        base: the extended table.
        child: the extending table.
    """
    if not isinstance(base, dict) or not isinstance(child, dict):
        return child
    combined = dict(base)
    for key, value in child.items():
        if key == "extends":
            continue
        if key in MERGED and isinstance(value, dict) and isinstance(base.get(key, {}), dict):
            joined = {**base.get(key, {}), **value}
            if key in REMOVED:
                joined = {name: entry for name, entry in joined.items() if entry is not None}
            combined[key] = joined
        elif key == "require" and isinstance(value, list) and isinstance(base.get(key), list):
            combined[key] = _requirements(base[key], value)
        else:
            combined[key] = value
    return {key: value for key, value in combined.items() if value is not None}


def _requirements(base: list[Any], child: list[Any]) -> list[Any]:
    """Return requirements of which those for the same key or comparison are replaced."""
    by_subject: dict[Any, Any] = {}
    for number, requirement in enumerate([*base, *child]):
        is_condition = isinstance(requirement, Mapping)
        by_subject[_subject(requirement) if is_condition else number] = requirement
    return [
        requirement
        for requirement in by_subject.values()
        if not (isinstance(requirement, Mapping) and _is_removal(requirement))
    ]


def _subject(condition: Mapping[str, Any]) -> tuple[str, str]:
    return str(condition.get("key")), str(condition.get("that"))


def _is_removal(condition: Mapping[str, Any]) -> bool:
    return "else" in condition and condition["else"] is None
