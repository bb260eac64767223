"""Tests of docs/errors.md and docs/format.md against the code."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from weft.blocks.registry import registry
from weft.graphs.checker.check import analyse
from weft.graphs.ir.value_type import KINDS
from weft.specs.form import DecodeStep, RepeatedTemplate, ShareNode, SpecForm, Template, UseNode
from weft.specs.load import load

ROOT = Path(__file__).parents[2]
CODE = r"[SNEPWTDOX]\d\d"
ERRORS = (ROOT / "docs" / "errors.md").read_text(encoding="utf-8")
FORMAT = (ROOT / "docs" / "format.md").read_text(encoding="utf-8")
FAULTS = json.loads((Path(__file__).parent / "faults.json").read_text(encoding="utf-8"))
WARNINGS = json.loads((Path(__file__).parent / "advice/warnings.json").read_text("utf-8"))
EXAMPLES = re.findall(r"```json( complete)?\n(.*?)```", FORMAT, re.DOTALL)
SOURCES = "".join(
    path.read_text(encoding="utf-8")
    for folder in ("specs", "graphs")
    for path in sorted((ROOT / folder).rglob("*.py"))
)


def test_every_code_has_a_paragraph_and_a_fault_and_no_other_has() -> None:
    """The page, the table of faults and the source have the same codes, in order."""
    used = set(re.findall(rf'"({CODE})"', SOURCES))
    paragraphs = re.findall(rf"^### ({CODE})$", ERRORS, re.MULTILINE)

    assert set(paragraphs) == used == {fault["code"] for fault in [*FAULTS, *WARNINGS]}
    assert len(paragraphs) == len(set(paragraphs))
    assert [p[0] for p in paragraphs] == sorted((p[0] for p in paragraphs), key="SNEPWTDOX".index)


def test_every_paragraph_has_cause_example_and_fix() -> None:
    """In this order."""
    pattern = rf"^### ({CODE})\n(.*?)(?=^#|\Z)"
    for code, text in re.findall(pattern, ERRORS, re.MULTILINE | re.DOTALL):
        words = " ".join(text.split())
        assert 0 < words.find("Example: ") < words.find("Way out: "), code


def test_every_finding_has_its_own_code_and_help() -> None:
    """Every finding has help."""
    assert len({fault["name"] for fault in FAULTS}) == len(FAULTS) >= 45
    assert [fault["name"] for fault in [*FAULTS, *WARNINGS] if not fault["help"]] == []


@pytest.mark.parametrize("example", [text for _, text in EXAMPLES])
def test_every_example_is_json(example: str) -> None:
    """Without syntax errors."""
    json.loads(example)


@pytest.mark.parametrize("example", [text for complete, text in EXAMPLES if complete])
def test_every_complete_example_is_sound(example: str, tmp_path: Path) -> None:
    """A reader may copy it and start from it."""
    path = tmp_path / "spec.json"
    path.write_text(example, encoding="utf-8")
    spec = load(path)

    assert analyse(spec.form, registry(), spec.overrides)[1] == []


@pytest.mark.parametrize(
    "record", [SpecForm, Template, UseNode, RepeatedTemplate, ShareNode, DecodeStep]
)
def test_every_key_occurs_in_an_example(record: type[SpecForm]) -> None:
    """The page covers all keys."""
    text = "".join(example for _, example in EXAMPLES)

    for name, field in record.model_fields.items():
        assert f'"{field.alias or name}":' in text or f"| `{name}`" in FORMAT


def test_every_key_and_kind_of_a_spec_is_in_a_table() -> None:
    """In the order of the form."""
    rows = re.findall(r"^\| `([a-z_]+)(?::v)?` \|", FORMAT, re.MULTILINE)

    assert rows[: len(SpecForm.model_fields)] == list(SpecForm.model_fields)
    assert sorted(rows[len(SpecForm.model_fields) :]) == sorted(KINDS)
