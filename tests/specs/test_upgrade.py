"""Files of older formats are upgraded step by step; none is older yet."""

from __future__ import annotations

from typing import Any

import pytest
from weft.blocks.registry import registry
from weft.extensions.interop.importing.table import ImportTable
from weft.graphs.checker.check import analyse
from weft.runtime.train.run import Run
from weft.specs.form import FORMAT, SpecForm
from weft.specs.reader import RUNS, SPECS, TABLES, upgrade_format

OLDER = FORMAT - 1
OLD: dict[str, Any] = {
    "format": OLDER,
    "name": "old",
    "sizes": {"d": 4},
    "doc": "Kept.",
    "axes": {"B": "batch"},
    "inputs": {"x": "f[B d]"},
    "outputs": {"y": "map.y"},
    "nodes": {"map": {"use": "linear@1", "in": {"x": "x"}, "params": {"d_out": "=d"}}},
}


def renamed(value: dict[str, Any]) -> dict[str, Any]:
    """Upgrade a made-up older format, which calls `params` `sizes`."""
    return {"params" if key == "sizes" else key: inner for key, inner in value.items()}


@pytest.mark.parametrize("formats", [SPECS, RUNS, TABLES])
def test_no_release_has_written_an_older_format(formats: Any) -> None:
    """The next release writes the first format of everything."""
    assert formats == {}


@pytest.mark.parametrize(
    ("form", "formats"), [(SpecForm, SPECS), (Run, RUNS), (ImportTable, TABLES)]
)
def test_every_older_format_has_an_upgrade(form: Any, formats: Any) -> None:
    """A gap would refuse files that a release has written."""
    [newest] = form.model_fields["format"].annotation.__args__
    assert sorted(formats) == list(range(newest - len(formats), newest))


def test_an_older_format_becomes_the_current_one_and_opens() -> None:
    """The order of keys and the docs are unchanged, and so is the argument."""
    value = upgrade_format(OLD, {OLDER: renamed})

    assert value["format"] == FORMAT
    assert list(value) == ["params" if key == "sizes" else key for key in OLD]
    assert (OLD["format"], OLD["sizes"]) == (OLDER, {"d": 4})
    graph, findings = analyse(SpecForm.model_validate(value), registry())
    assert findings == []
    assert graph is not None
    assert graph.parameters() == 4 * 4 + 4


def test_formats_are_upgraded_one_by_one() -> None:
    """Each upgrader converts to the next format only."""
    upgraders = {-1: lambda value: {**value, "a": 1}, 0: lambda value: {**value, "b": value["a"]}}

    assert upgrade_format({"format": -1}, upgraders) == {"format": 1, "a": 1, "b": 1}


@pytest.mark.parametrize("number", [FORMAT, FORMAT + 1, "0", None, True, 0.0, [0], -7])
def test_current_newer_and_invalid_formats_are_unchanged(number: Any) -> None:
    """The reader reports what is wrong with them."""
    assert upgrade_format({"format": number}, {0: renamed}) == {"format": number}


def test_an_upgrader_that_fails_leaves_the_file_as_it_is() -> None:
    """An invalid file of an older format must not cause a crash."""
    broken = {"format": OLDER, "nodes": 3}

    def strict(value: dict[str, Any]) -> dict[str, Any]:
        value["nodes"].clear()
        return value

    assert upgrade_format(broken, {OLDER: strict}) == broken
