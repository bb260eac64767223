"""Files and folders that a run names: whether they exist."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ....specs.findings import Finding, InputError, nearest, pointer
from ...data.settings import DataSettings, Files, TokenizerSettings
from ...data.text_files import resolve
from ..run import Run


def text_files(data: DataSettings) -> Iterator[Finding]:
    """Yield a finding for each text file that is missing, empty or outside of the data root."""
    parts: list[tuple[tuple[str, ...], Files]] = [
        (("train",), data.train),
        (("valid",), data.valid),
        *((("test", name), files) for name, files in data.test.items()),
    ]
    root = Path(data.root)
    if not root.is_dir():
        yield Finding(
            code="R02",
            at="/data/root",
            problem=f"there is no folder '{data.root}'",
            help="set data.root to the folder of the text: --set data.root=DIR",
        )
        return
    for where, files in parts:
        for side in ("source", "target", "trees"):
            for number, name in enumerate(getattr(files, side)):
                yield from _text_file(root, name, pointer("data", *where, side, number))


def _text_file(root: Path, name: str, at: str) -> Iterator[Finding]:
    try:
        path = resolve(root, name)
    except InputError as error:
        yield Finding(code="R02", at=at, problem=error.problem, help=error.help)
        return
    if path.is_dir():
        problem = f"'{name}' is a folder, not a file"
        yield Finding(code="R02", at=at, problem=problem, help="name the files in it")
    elif not path.exists():
        near = nearest(path.name, _names(path.parent))
        help_ = "name a file below data.root, or set data.root to its folder"
        yield Finding(
            code="R02",
            at=at,
            problem=f"'{root}' has no file '{name}'",
            help=f"did you mean '{Path(name).with_name(near)}'?" if near else help_,
        )
    elif path.is_file() and path.stat().st_size == 0:
        yield Finding(
            code="R02", at=at, problem=f"'{name}' is empty", help="name a file that contains text"
        )


def _names(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir()] if folder.is_dir() else []


def start_checkpoint(run: Run) -> Iterator[Finding]:
    """Yield a finding if the checkpoint to start from is missing or has another tokenizer."""
    if run.start is None:
        return
    folder = Path(run.start)
    wanted = ("spec.json", "state.json")
    weights = any((folder / name).exists() for name in ("weights.safetensors", "weights"))
    if not run.start or not weights or not all((folder / name).is_file() for name in wanted):
        yield Finding(
            code="R02",
            at="/start",
            problem=f"there is no checkpoint in '{run.start}'",
            help="give a folder such as outputs/RUN/averaged",
        )
        return
    trained = _tokenizer_in(folder / "run.json")
    known = TokenizerSettings.model_fields.keys() & trained.keys()
    own = run.tokenizer.model_dump(mode="json")
    if other := sorted(name for name in known if own[name] != trained[name]):
        name = other[0]
        yield Finding(
            code="R04",
            at="/start",
            problem=f"the tokenizer of '{run.start}' has another '{name}'",
            evidence=(
                f"given  {json.dumps(own[name])}  by tokenizer.{name}",
                f"wanted {json.dumps(trained[name])}  by {folder / 'run.json'}",
            ),
            help="use the data and the tokenizer settings of that checkpoint",
        )


def _tokenizer_in(path: Path) -> dict[str, Any]:
    """Return the tokenizer settings of a checkpoint's run; none if they cannot be read."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))["tokenizer"]
    except (OSError, ValueError, KeyError, TypeError):
        return {}
    return found if isinstance(found, dict) else {}
