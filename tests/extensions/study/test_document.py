"""Tests of study files: rows, grids, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import weft
from weft.extensions.interop.importing.table import load_table
from weft.extensions.study.document import rows_of
from weft.extensions.study.loading import study_of, study_schema
from weft.runtime.cli.main import main
from weft.specs.findings import SpecError

SMALLEST: dict[str, Any] = {
    "format": 1,
    "name": "s",
    "run": "r",
    "rows": {"a": {"params": {"heads": 1}}},
}


def names(**changes: Any) -> list[str]:
    """Return the names of the rows of a study."""
    return [row.name for row in rows_of(study_of({**SMALLEST, **changes}, "s.json"), "s.json")]


def test_levels_of_a_grid_are_rows_one_at_a_time_or_crossed() -> None:
    """Two factors with two and three levels give five rows, or six."""
    factors = {
        "h": {"param": "heads", "values": [1, 2]},
        "f": {"levels": {"s": {"params": {"d_ff": 8}}, "m": {"set": {"updates": 3}}}},
    }
    more = {"rate": {"set": "schedule.peak", "values": [0.1, 0.2, 0.3]}}

    assert names(grid={"factors": factors}) == ["baseline", "a", "h=1", "h=2", "f=s", "f=m"]
    crossed = names(grid={"factors": {"h": factors["h"], **more}, "cross": True})
    assert crossed[2:] == [f"h={h},rate={r}" for h in (1, 2) for r in (0.1, 0.2, 0.3)]


def test_a_crossed_row_has_the_changes_of_all_its_levels() -> None:
    """Params, settings and patches are joined, patches in the order of the factors."""
    first = {"params": {"heads": 1}, "patch": [{"select": "a", "remove": True}]}
    second = {"set": {"updates": 3}, "patch": [{"select": "b", "remove": True}]}
    factors = {"x": {"levels": {"1": first}}, "y": {"levels": {"1": second}}}
    study = study_of({**SMALLEST, "grid": {"factors": factors, "cross": True}}, "s.json")

    change = rows_of(study, "s.json")[-1].change

    assert (change.params, change.set) == ({"heads": 1}, {"updates": 3})
    assert [one["select"] for one in change.patch] == ["a", "b"]


def test_values_of_which_only_the_end_differs_are_rows_of_their_own() -> None:
    """Names are cut, and equal ones numbered."""
    long = [
        {"peak": 0.001, "pieces": [{"to": 1, "over": 400}, {"to": 0, "over": n}]} for n in (2, 4)
    ]

    [_, _, *found] = names(grid={"factors": {"s": {"set": "schedule", "values": long}}})

    assert len(found) == len(set(found)) == 2
    assert found[1] == f"{found[0]}-2"


def test_levels_that_change_a_setting_and_a_part_of_it_cannot_be_combined() -> None:
    """Else the second would erase the first."""
    clip = {"set": "optimizer.clip", "values": [1.0]}
    whole = {"set": "optimizer", "values": [{"type": "adam"}]}
    grid = {"factors": {"c": clip, "o": whole}, "cross": True}

    with pytest.raises(SpecError, match="change 'optimizer'"):
        names(grid=grid)
    names(grid={**grid, "factors": {"c": clip, "o": {**whole, "set": "optimize"}}})


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "no rows": ({"rows": {}}, ""),
    "row without change": ({"rows": {"a": {"doc": "x"}}}, "/rows/a"),
    "row named baseline": ({"rows": {"baseline": {"unset": ["x"]}}}, "/rows/baseline"),
    "a number as the base run": ({"run": 5}, "/run"),
    "unknown key": ({"rows": {"a": {"parms": {"heads": 2}}}}, "/rows/a/parms"),
    "seed twice": ({"seeds": [1, 1]}, "/seeds"),
    "negative seed alone": ({"seeds": [-1]}, "/seeds/0"),
    "test set twice": ({"measure": {"tests": ["a", "b", "a"]}}, "/measure/tests/2"),
    "two budgets": ({"budget": {"updates": 1, "flops": 2}}, "/budget/flops"),
    "unknown baseline": ({"compare": {"baseline": "b"}}, "/compare/baseline"),
    "baseline without effect": (
        {"compare": {"baseline": "a", "pairs": "all"}},
        "/compare/baseline",
    ),
    "factor without values": ({"grid": {"factors": {"f": {"param": "p"}}}}, "/grid/factors/f"),
    "levels and values": (
        {"grid": {"factors": {"f": {"levels": {"x": {"unset": ["p"]}}, "values": [1]}}}},
        "/grid/factors/f/values",
    ),
    "empty requirement": ({"require": [{"quantity": "flops"}]}, "/require/0"),
    "unknown metric": ({"measure": {"metrics": ["blue"]}}, "/measure/metrics/0"),
    "newer format": ({"format": 2}, "/format"),
    "two rows with one name": (
        {
            "rows": {"f=1": {"unset": ["x"]}},
            "grid": {"factors": {"f": {"param": "p", "values": [1]}}},
        },
        "/grid/factors/f",
    ),
    "levels that change the same": (
        {
            "grid": {
                "factors": {"f": {"param": "p", "values": [1]}, "g": {"param": "p", "values": [2]}},
                "cross": True,
            }
        },
        "/grid",
    ),
    "levels that remove the same": (
        {
            "grid": {
                "factors": {f: {"levels": {"x": {"unset": ["p"]}}} for f in ("f", "g")},
                "cross": True,
            }
        },
        "/grid",
    ),
    "too many rows": (
        {
            "grid": {
                "factors": {c: {"param": c, "values": list(range(11))} for c in "abc"},
                "cross": True,
            }
        },
        "/grid",
    ),
    "unknown baseline of a grid": (
        {
            "compare": {"baseline": "g=1"},
            "grid": {"factors": {"f": {"param": "p", "values": [1]}}},
        },
        "/compare/baseline",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_study_is_refused_with_the_place_and_a_way_out(name: str) -> None:
    """Each finding points to the mistake and has help."""
    changes, at = WRONG[name]

    with pytest.raises(SpecError) as caught:
        names(**changes)

    [finding] = caught.value.findings
    assert finding.at == at
    assert finding.help


def test_the_wrong_part_of_a_study_is_quoted_and_not_the_beginning_of_the_file() -> None:
    """A check of the complete file knows which part of it is wrong."""
    with pytest.raises(SpecError) as twice:
        names(seeds=[1, 1])
    with pytest.raises(SpecError) as without:
        names(rows={})

    assert twice.value.findings[0].evidence == ("given  [1, 1]",)
    assert without.value.findings[0].evidence == ()


def test_the_schema_accepts_a_study_and_refuses_a_misspelled_key() -> None:
    """Editors validate with it."""
    schema = json.loads(json.dumps(study_schema()))
    good = {"$schema": "x", **SMALLEST}

    jsonschema.validate(good, schema)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({**good, "sedes": [1]}, schema)


@pytest.mark.parametrize(
    "changes",
    [
        {"rows": {"größe": {"unset": ["x"]}}},
        {"rows": {"a": {"unset": ["x"]}}, "compare": {"baseline": "a/b"}},
        {"grid": {"factors": {"a b": {"param": "p", "values": [1]}}}},
        {"grid": {"factors": {"f": {"levels": {"a/b": {"unset": ["x"]}}}}}},
    ],
    ids=["row", "baseline", "factor", "level"],
)
def test_the_help_of_a_wrong_name_is_the_rule_for_names_of_rows(changes: dict[str, Any]) -> None:
    """They may have other characters than names in specs."""
    with pytest.raises(SpecError) as caught:
        names(**changes)

    [finding] = caught.value.findings
    assert finding.code == "N06"
    assert "'_.=,+-', at most 100" in finding.help


FILES = {
    "a spec": {"axes": {"B": "batch"}, "nodes": {}},
    "a run": {"objective": "translation", "data": {}},
    "a study": {"run": "demo", "rows": {}},
    "a study of a grid": {"run": "demo", "grid": {}},
    "a study by search": {"run": "demo", "search": {}},
    "an import table": {"spec": "bert", "model_type": ["bert"], "params": {}, "weights": {}},
}
READERS = {"spec": weft.load, "run": weft.train, "study": weft.Study, "import table": load_table}


@pytest.mark.parametrize(
    ("kind", "reader"), [(kind, one) for kind in FILES for one in READERS if one not in kind]
)
def test_a_file_of_another_kind_is_named(kind: str, reader: str, tmp_path: Path) -> None:
    """One finding with the commands for it, instead of one for each key."""
    path = tmp_path / "file.json"
    path.write_text(json.dumps({"format": 1, "name": "file", **FILES[kind]}))
    described = kind.partition(" of ")[0].partition(" by ")[0]

    with pytest.raises(weft.SpecError, match=f"this is {described}, and not an? {reader}") as error:
        READERS[reader](str(path))

    [finding] = error.value.findings
    assert str(path) in finding.help


def test_weft_check_checks_a_study(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A file or a shipped name, as `weft check` does with specs and runs."""
    wrong = tmp_path / "wrong.json"
    wrong.write_text(json.dumps({**SMALLEST, "budgt": {"updates": 3}}))

    assert main(["check", "study-demo"]) == 0
    assert "study-demo: valid" in capsys.readouterr().out
    assert main(["check", str(wrong)]) == 1
    assert "unknown key 'budgt'" in capsys.readouterr().err


def test_the_schema_of_studies_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    """By the name of the kind; a misspelled kind is refused."""
    assert main(["schema", "study"]) == 0
    assert json.loads(capsys.readouterr().out) == study_schema()
    assert main(["schema", "studi"]) == 1
    assert "no kind of file 'studi'" in capsys.readouterr().err
