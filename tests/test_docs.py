"""The documentation: its commands, settings and files exist."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import TypeAdapter
from typer.main import get_command
from weft.runtime.cli.main import app, completed, load_commands
from weft.runtime.data.readers.split import Split
from weft.runtime.data.table_settings import DataSettings, Tokenizers
from weft.runtime.decode.predictors.registry import PREDICTORS
from weft.runtime.train.run import Run

ROOT = Path(__file__).parents[1]
PAGES = (*sorted((ROOT / "docs").glob("*.md")), *sorted(ROOT.glob("*.md")))
HISTORY = ("CHANGELOG.md", "results.md")
"""Pages that also name files of older versions."""


def blocks(page: Path, language: str) -> list[str]:
    """Return the code blocks of a language in a page."""
    text = page.read_text(encoding="utf-8")
    found = re.findall(r"^```(\w*)\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    return [inner for named, inner in found if named == language]


def parts_of_runs() -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the JSON examples that are runs or parts of runs, with their pages."""
    for page in PAGES:
        for block in blocks(page, "json"):
            text = block.strip()
            value = json.loads(text if text[:1] in "{[" else f"{{{text}}}")
            is_run = {"data", "objective", "train"} & {*value} and "rows" not in value
            if is_run and "nodes" not in value:
                yield page.name, value


def test_every_command_exists() -> None:
    """Each `weft ...` line is a correct command line, with options of its command."""
    load_commands()
    commands = get_command(app).commands  # type: ignore[attr-defined]
    checked = 0
    for page in PAGES:
        lines = "\n".join(blocks(page, "")).replace("\\\n", " ").splitlines()
        for line in (one for one in lines if one.startswith("weft ")):
            written = re.split(r" +#| [<>|]", line)[0]
            _, name, *words = shlex.split(written)
            command = commands[name]
            if hasattr(command, "commands"):
                command = command.commands[words.pop(0)]
            command.make_context(name, completed(words))
            checked += 1
    assert checked > 100


@pytest.mark.parametrize(("page", "value"), [*parts_of_runs()])
def test_every_example_of_a_run_is_valid(page: str, value: dict[str, Any]) -> None:
    """A reader copies them; the settings of older formats were forgotten once."""
    assert page
    if "format" in value:
        Run.model_validate(value)
        return
    if "train" in value:
        Split.model_validate(value["train"])
    if "data" in value:
        DataSettings.model_validate(value["data"])
    if "predict" in value:
        PREDICTORS.parse(value["predict"], page)
    TypeAdapter(Tokenizers).validate_python(value.get("tokenizers", {}))


def test_every_file_of_the_code_exists() -> None:
    """Files move; `blocks/FAMILY/x.py` and the like stand for any file."""
    known = {path.relative_to(ROOT).as_posix() for path in ROOT.glob("[a-z]*/**/*.py")}
    for page in PAGES:
        if page.name in HISTORY:
            continue
        folders = "specs|graphs|blocks|runtime|extensions|tests|tools|benchmarks|examples|studio"
        path = rf"(?<![\w/])(?:{folders})/[a-z0-9_/]+\.py\b"
        named = re.findall(path, page.read_text(encoding="utf-8"))
        assert {*named} <= known, page.name


def test_every_promise_of_security_names_tests_that_exist() -> None:
    """A promise that nothing tests is one that the next change may break."""
    text = (ROOT / "SECURITY.md").read_text(encoding="utf-8")
    section = text.partition("## What Weft promises")[2].partition("\nA case in which")[0]
    promises = section.split("\n- ")[1:]

    assert len(promises) >= 6
    for promise in promises:
        named = re.findall(r"`(tests/[\w/]+\.py)`", promise)
        assert named, promise
        assert all("def test_" in (ROOT / path).read_text(encoding="utf-8") for path in named)
