"""`weft schema` and `weft migrate`: output, files and errors."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from weft.blocks.registry import registry
from weft.graphs.ir.block_type import Registry
from weft.graphs.json_schema import schema
from weft.runtime.cli.main import main
from weft.runtime.cli.specs import language as language_commands
from weft.specs.findings import SpecError
from weft.specs.reader import SHIPPED

Capture = pytest.CaptureFixture[str]
GOLDEN = Path(__file__).parents[2] / "golden" / "format-2" / "every-key.json"
OLD: dict[str, Any] = {
    "format": 0,
    "doc": "Kept.",
    "name": "old",
    "axes": {"B": "batch"},
    "inputs": {"x": "f[B 4]"},
    "outputs": {"y": "map.y"},
    "nodes": {"map": {"use": "linear@1", "in": {"x": "x"}, "params": {"width": 3}}},
}


@pytest.fixture
def later(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pretend a later version of weft with an older format 0 and a second version of `linear`."""

    def second(use: dict[str, Any]) -> dict[str, Any]:
        use["params"]["d_out"] = use["params"].pop("width")
        return use

    blocks = [block for block in registry() if block.key != "linear@1"]
    [linear] = [block for block in registry() if block.key == "linear@1"]
    known = Registry([*blocks, replace(linear, major=2, upgrade=second)])
    monkeypatch.setattr(language_commands, "FORMATS", {0: dict, 1: dict})
    monkeypatch.setattr(language_commands, "registry", lambda: known)
    monkeypatch.setattr("weft.runtime.spec.check.registry", lambda *_: known)


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


def test_a_spec_of_today_s_form_comes_back_letter_by_letter(
    tmp_path: Path, capsys: Capture
) -> None:
    """Docs, key order and lines are kept, and the command reports that nothing changed."""
    path = tmp_path / "every-key.json"
    text = GOLDEN.read_text(encoding="utf-8").replace("attention@1", "attention@2")
    path.write_text(text, encoding="utf-8")

    assert main(["migrate", str(path)]) == 0

    printed = capsys.readouterr()
    assert printed.out == text
    assert "nothing to change" in printed.err


@pytest.mark.integration
def test_a_spec_that_names_its_schema_is_checked_and_valid(tmp_path: Path, capsys: Capture) -> None:
    """A spec with `$schema`, as in the README, passes the check and the schema."""
    whole = json.loads((SHIPPED / "models" / "transformer-base.json").read_text(encoding="utf-8"))
    child = {"format": 2, "extends": "transformer-base", "name": "child", "params": {"layers": 2}}
    for value in (whole, child):
        named = {"$schema": "./weft.schema.json", **value}
        path = tmp_path / "spec.json"
        path.write_text(json.dumps(named), encoding="utf-8")

        assert main(["check", str(path)]) == 0
        jsonschema.Draft202012Validator(schema(registry())).validate(named)
    capsys.readouterr()


@pytest.mark.usefixtures("later")
def test_an_old_spec_is_written_in_today_s_form(tmp_path: Path, capsys: Capture) -> None:
    """Format and blocks are upgraded, changes are reported, and the old file stays."""
    old, new = tmp_path / "old.json", tmp_path / "new.json"
    old.write_text(json.dumps(OLD), encoding="utf-8")

    assert main(["migrate", str(old), "-o", str(new)]) == 0

    node = {"use": "linear@2", "in": {"x": "x"}, "params": {"d_out": 3}}
    made = json.loads(new.read_text(encoding="utf-8"))
    assert made == {**OLD, "format": 2, "nodes": {"map": node}}
    assert list(made) == list(OLD)
    assert json.loads(old.read_text(encoding="utf-8")) == OLD
    printed = capsys.readouterr()
    assert printed.out == f"{new}\n"
    assert printed.err.splitlines() == [
        "/format: 0 is now 1",
        "/format: 1 is now 2",
        "/nodes/map/use: linear@1 is now linear@2",
    ]


@pytest.mark.usefixtures("later")
def test_a_spec_with_remaining_mistakes_is_not_written(tmp_path: Path) -> None:
    """The findings list the remaining mistakes."""
    old, new = tmp_path / "old.json", tmp_path / "new.json"
    old.write_text(json.dumps({**OLD, "outputs": {"y": "mop.y"}}), encoding="utf-8")

    with pytest.raises(SpecError) as error:
        language_commands.migrate(str(old), out=str(new))

    assert [(f.code, f.at) for f in error.value.findings] == [("N02", "/outputs/y")]
    assert not new.exists()


@pytest.mark.parametrize(
    ("text", "said"),
    [("[]", "S04"), ('{"format": 7}', "S05"), ("{", "S01"), ('{"format": 0}', "S05")],
)
def test_a_file_that_cannot_be_migrated_exits_1(
    text: str, said: str, tmp_path: Path, capsys: Capture
) -> None:
    """Not a spec, a newer format, invalid JSON, and a format that never existed."""
    path = tmp_path / "spec.json"
    path.write_text(text, encoding="utf-8")

    assert main(["migrate", str(path)]) == 1
    printed = capsys.readouterr()
    assert said in printed.err
    assert printed.out == ""


def test_only_a_file_can_be_migrated(capsys: Capture) -> None:
    """Names of shipped specs are refused; they are in the current format."""
    assert main(["migrate", "transformer-base"]) == 1
    assert "transformer-base" in capsys.readouterr().err
