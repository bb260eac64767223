"""The page of run settings and their schema are complete and up to date."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from pydantic import BaseModel
from run_page import PAGE, page
from weft.runtime.cli.main import main
from weft.runtime.data.readers.registry import READERS
from weft.runtime.train.plan import load_run
from weft.runtime.train.run import Run
from weft.runtime.train.run import run_schema as schema
from weft.specs.reader import SHIPPED, read_json

DOCS = Path(__file__).parents[2] / "docs"
VALIDATOR = jsonschema.Draft202012Validator(schema())
RUNS = sorted((SHIPPED / "runs").glob("*.json"))


def test_the_page_is_of_today() -> None:
    """If this fails, run `make catalogue`."""
    assert (DOCS / PAGE).read_text(encoding="utf-8") == page(), "run make catalogue"


def test_every_link_leads_to_a_heading() -> None:
    """Anchors are made as by GitHub: lower case, no dots or colons, hyphens for spaces."""
    headings = re.findall(r"^## (.*)$", page(), re.MULTILINE)
    anchors = {re.sub(r"[.:]", "", title.lower()).replace(" ", "-") for title in headings}
    links = set(re.findall(r"\]\(#(.*?)\)", page()))

    assert links == anchors
    assert len(headings) == len(anchors)


def settings_of(kind: type[BaseModel]) -> list[str]:
    """Return every setting of a record and of those inside it."""
    found = []
    for name, field in kind.model_fields.items():
        found.append(name)
        if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
            found += settings_of(field.annotation)
    return found


def test_every_setting_is_listed_with_a_description() -> None:
    """Each setting, or its record, has a description."""
    text = page()

    settings = {*settings_of(Run), *Run.model_fields} - {"reader", "settings"}  # of a split
    for name in (*settings, *READERS.names(), "sources", "weights"):
        assert f"| `{name}` |" in text
    rows = [line for line in text.splitlines() if line.startswith("| `")]
    assert len(rows) > 80
    assert [row for row in rows if row.endswith("| |")] == []


def test_listed_defaults_and_bounds_are_those_of_a_run() -> None:
    """A run's default overrides the record's: a batch has 1024 tokens."""
    rows = {line.split("|")[1].strip(): line for line in page().splitlines() if "| `" in line}

    assert Run.model_fields["batch"].default.tokens == 1024
    assert rows["`tokens`"].startswith("| `tokens` | whole number from 2 or list of")
    assert "| `1024` |" in rows["`tokens`"]
    assert "`1` | required" in rows["`format`"]
    assert "number from 0 | `0.01`" in rows["`auxiliary`"]


@pytest.mark.parametrize("path", RUNS, ids=lambda path: path.stem)
def test_shipped_runs_fit_the_schema(path: Path) -> None:
    """They fit with and without the `$schema` key."""
    written = read_json(path.read_text(encoding="utf-8"), str(path))

    VALIDATOR.validate(written)
    VALIDATOR.validate({"$schema": "run.schema.json", **written})


def test_a_run_with_a_schema_key_loads(tmp_path: Path) -> None:
    """A run with `$schema` loads as the same run."""
    written = json.loads(RUNS[0].read_text(encoding="utf-8"))
    file = tmp_path / "run.json"
    file.write_text(json.dumps({"$schema": "run.schema.json", **written}))

    assert load_run(file)[0] == load_run(RUNS[0])[0]


@pytest.mark.parametrize(
    ("path", "value"),
    [(("padding",), "pakced"), (("batch", "tokens"), 1), (("optimizer", "beta"), [0.9, 0.98])],
)
def test_a_mistake_does_not_fit(path: tuple[str, ...], value: Any) -> None:
    """Wrong words, bounds and names do not fit the schema."""
    written = json.loads(RUNS[0].read_text(encoding="utf-8"))
    here = written
    for key in path[:-1]:
        here = here.setdefault(key, {})
    here[path[-1]] = value

    with pytest.raises(jsonschema.ValidationError):
        VALIDATOR.validate(written)


def test_the_schema_is_one() -> None:
    """The schema is valid JSON Schema."""
    jsonschema.Draft202012Validator.check_schema(schema())


def test_the_command_prints_it(capsys: pytest.CaptureFixture[str]) -> None:
    """The command prints the schema as text."""
    assert main(["schema", "run"]) == 0

    assert json.loads(capsys.readouterr().out) == schema()
