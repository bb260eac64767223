"""`weft schema`: output, files and errors."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import pytest
from weft.blocks.registry import registry
from weft.graphs.json_schema import schema
from weft.runtime.cli.main import main
from weft.specs.reader import SHIPPED

Capture = pytest.CaptureFixture[str]


@pytest.mark.integration
def test_the_schema_is_printed_or_written(tmp_path: Path, capsys: Capture) -> None:
    """Both outputs are the schema."""
    out = tmp_path / "new" / "weft.schema.json"

    assert main(["schema"]) == 0
    printed = capsys.readouterr().out
    assert main(["schema", "-o", str(out)]) == 0

    assert capsys.readouterr().out == f"{out}\n"
    assert out.read_text(encoding="utf-8") == printed
    assert json.loads(printed) == schema(registry())
    assert [path.name for path in out.parent.iterdir()] == [out.name]


def test_a_place_that_cannot_be_written_is_named(tmp_path: Path, capsys: Capture) -> None:
    """Writing to a folder is an error that names it."""
    assert main(["schema", "-o", str(tmp_path)]) == 1
    assert "cannot write the file" in capsys.readouterr().err


@pytest.mark.integration
def test_a_spec_that_names_its_schema_is_checked_and_valid(tmp_path: Path, capsys: Capture) -> None:
    """A spec with `$schema`, as in the README, passes the check and the schema."""
    whole = json.loads((SHIPPED / "models" / "transformer-base.json").read_text(encoding="utf-8"))
    child = {"format": 1, "extends": "transformer-base", "name": "child", "params": {"layers": 2}}
    for value in (whole, child):
        named = {"$schema": "./weft.schema.json", **value}
        path = tmp_path / "spec.json"
        path.write_text(json.dumps(named), encoding="utf-8")

        assert main(["check", str(path)]) == 0
        jsonschema.Draft202012Validator(schema(registry())).validate(named)
    capsys.readouterr()
