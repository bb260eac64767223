"""Shipped tables: each can be read and matches the specs that it names."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from weft.extensions.interop.importing.inherit import FOLDER
from weft.extensions.interop.importing.table import load_table
from weft.runtime.checkpoint.mapping.names import matcher
from weft.runtime.checkpoint.mapping.origin import assigned
from weft.runtime.spec.check import graph_of
from weft.specs.expressions import evaluate, is_expression
from weft.specs.load import FOLDERS, load
from weft.specs.reader import SHIPPED, shipped_names

NAMES = [name.removeprefix("hf-") for name in shipped_names(FOLDER)]
EVERY = pytest.mark.parametrize("name", NAMES)


def specs_of(value: Any) -> list[str]:
    """Return every spec that a table may select."""
    cases = value["cases"].values() if isinstance(value, dict) else ()
    return [spec for case in cases for spec in specs_of(case)] or [value]


def expressions_in(value: Any) -> Iterator[str]:
    """Yield the expressions inside a value of a table."""
    if is_expression(value):
        yield value[1:]
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    for part in inner:
        yield from expressions_in(part)


@EVERY
def test_a_table_fits_its_specs(name: str) -> None:
    """Every parameter matches one line, every line some parameter, and every param exists.

    A param that the spec lacks is null, or the value of a key that may be.
    """
    table, source = load_table(name)
    fitted: set[str] = set()
    for spec in specs_of(table.spec):
        plan, without = assigned(table.weights, source, graph_of(spec).weights())
        fitted |= {origin.pattern for origin in plan.values()}
        assert without == []
        null = [None, *(f"={key}" for key, value in table.defaults.items() if value is None)]
        given = {param for param, value in table.params.items() if value not in null}
        assert given <= set(load(spec).form.params)

    assert fitted == set(table.weights)


@EVERY
def test_every_expression_of_a_table_can_be_read(name: str) -> None:
    """With 4 for each name, which finds errors without a model that needs the expression."""
    table, _ = load_table(name)
    written = json.loads((SHIPPED / FOLDER / f"hf-{name}.json").read_text(encoding="utf-8"))

    class Fours(dict[str, Any]):
        def __contains__(self, key: object) -> bool:
            return True

        def __getitem__(self, key: str) -> int:
            return 4

    for text in expressions_in(written):
        assert evaluate(text, Fours()) is not None
    for condition in table.require:
        assert condition.that is None or evaluate(condition.that, Fours()) in (True, False)


@EVERY
def test_a_tensor_cannot_be_both_ignored_and_used(name: str) -> None:
    """A pattern that ignores a used tensor would hide errors."""
    table, _ = load_table(name)
    read = [name for parts in table.weights.values() for line in parts for name in line.names]

    assert [n for rule in table.ignore for n in read if matcher(rule).fullmatch(n)] == []
    assert table.name == f"hf-{name}"


def test_the_page_has_a_row_for_every_table() -> None:
    """The page has the specs of each table, and no other rows."""
    page = (Path(__file__).parents[4] / "docs" / "importing.md").read_text(encoding="utf-8")
    rows = re.search(r"^\| `--as` .*?\n\n", page, re.DOTALL | re.MULTILINE)
    assert rows is not None

    documented = {
        name: set(re.findall(r"`([^`]+)`", specs))
        for name, specs in re.findall(r"^\| `([^`]+)` \| ([^|]+) \|", rows[0], re.MULTILINE)
    }

    documented.pop("--as")
    assert documented == {name: set(specs_of(load_table(name)[0].spec)) for name in NAMES}


def test_the_lines_of_the_page_are_those_of_the_files() -> None:
    """The page counts the lines of specs and tables, and has a row for every pretrained spec."""
    page = (Path(__file__).parents[4] / "docs" / "importing.md").read_text(encoding="utf-8")
    part = page[page.index("## Lines of JSON") : page.index("## Findings")]
    rows = re.findall(
        r"^\| [^|]+ \| ([^|]+) \| ([^|]+) \| `([^`]+)` \| (\d+) \|", part, re.MULTILINE
    )
    specs, tables = shipped_names(*FOLDERS), shipped_names(FOLDER)

    def lines(file: Path) -> int:
        return len(file.read_text(encoding="utf-8").splitlines())

    listed = set()
    for names, counts, table, count in rows:
        found = re.findall(r"`([^`]+)`", names)
        listed |= {*found}
        assert [lines(specs[name]) for name in found] == [int(n) for n in counts.split(" + ")], (
            names
        )
        assert lines(tables[table]) == int(count), table
        assert {*found} == {*specs_of(load_table(table)[0].spec)}
    assert shipped_names("pretrained").keys() <= listed
