"""The commands `weft schema` and `weft migrate`; no torch unless runs are involved."""

from __future__ import annotations

import json
import sys
from argparse import Namespace
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ....blocks.registry import registry
from ....graphs.json_schema import as_text
from ....graphs.json_schema import schema as schema_of
from ....specs.files import write_beside
from ....specs.findings import InputError, SpecError
from ....specs.form import Spec
from ....specs.load import load_as
from ....specs.reader import find, parse, read_json, read_text
from ....specs.upgrade import FORMATS, RUN_FORMATS, older_blocks, upgrade, upgrade_format
from ...spec.check import analysed

_WIDEST = 120
"""Most characters in one line of a written spec."""


def schema(options: Namespace) -> None:
    """Print or write the JSON Schema of a spec file, or of a run file."""
    if options.run:
        from ...train.run_schema import run_schema

        _give(as_text(run_schema()), options.out)
        return
    _give(as_text(schema_of(registry())), options.out)


def migrate(options: Namespace) -> None:
    """Write a spec, a run or a checkpoint in the current format, and report the changes.

    Raises:
        InputError: the file or folder cannot be read or written.
        SpecError: the upgraded file has mistakes; nothing is written.
    """
    if Path(options.spec).is_dir():
        _migrate_checkpoint(Path(options.spec), options.out)
        return
    path = find(options.spec)
    value = read_json(read_text(path), str(path))
    if not isinstance(value, dict):
        parse(Spec, value, str(path))
    if _is_run(value):
        from ...train.run import Run

        made, changes = upgrade_format(value, RUN_FORMATS)
        parse(Run, made, str(path), RUN_FORMATS)
    else:
        made, changes = upgrade(value, FORMATS, older_blocks(registry(), registered=True))
        _, findings = analysed(load_as(made, Path(options.out or path)))
        if findings:
            raise SpecError(findings)
    _give(_laid_out(made) + "\n", options.out)
    for change in changes or ["nothing to change: the file is in the current format"]:
        print(change, file=sys.stderr)


def _is_run(value: Mapping[str, Any]) -> bool:
    """Return whether a file is a run file, which names a spec and data."""
    return isinstance(value.get("spec"), str) and "data" in value


def _migrate_checkpoint(folder: Path, out: str | None) -> None:
    """Write a checkpoint in the current format; its weights and optimizer state are copied.

    Raises:
        InputError: no output folder is named, it exists already, or the checkpoint is damaged.
    """
    if out is None:
        raise InputError(
            "migrating a checkpoint needs an output folder",
            place=str(folder),
            help=f"add -o {folder.with_name(folder.name + '-format-2')}",
        )
    if Path(out).exists():
        raise InputError("the folder exists already", place=out, help="name a new folder")
    from ...checkpoint.checkpoint import open_checkpoint
    from ...checkpoint.migrate import migrated

    print(migrated(open_checkpoint(folder), Path(out)))


def _give(text: str, out: str | None) -> None:
    """Print a text, or write it to a file and print the file's name."""
    if out is None:
        sys.stdout.write(text)
        return
    write_beside(Path(out), text.encode(), "file")
    print(out)


def _laid_out(value: Any, indent: str = "", before: int = 0) -> str:
    """Return JSON formatted for reading: a value that fits on one line is put on one line.

    Args:
        value: any JSON value; the order of its keys is kept.
        indent: indentation of the line on which the value begins.
        before: characters of that line already used, and needed after the value.
    """
    short = json.dumps(value, ensure_ascii=False)
    fits = len(indent) + before + len(short) <= _WIDEST
    if not value or not isinstance(value, dict | list) or (indent and fits):
        return short
    inner = f"{indent}  "
    if isinstance(value, list):
        lines = [inner + _laid_out(item, inner, 1) for item in value]
        return "[\n" + ",\n".join(lines) + f"\n{indent}]"
    lines = []
    for key, item in value.items():
        head = json.dumps(key, ensure_ascii=False) + ": "
        lines.append(inner + head + _laid_out(item, inner, len(head) + 1))
    return "{\n" + ",\n".join(lines) + f"\n{indent}}}"
