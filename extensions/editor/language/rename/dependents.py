"""Find the files that depend on a spec: those that extend it, import it, or hold it in a param."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path

from .....specs.findings import InputError
from .....specs.inherit import FOLDERS, parent_of
from .....specs.json_tree import Value, parts_of, tree
from .....specs.reader import LARGEST, RUN_FOLDER, SHIPPED, read_text
from .....specs.references import files_named

MOST_FILES = 5_000
"""Maximum number of files of a workspace that are searched."""
_SKIPPED = ("node_modules", "site-packages", "__pycache__")


def dependents(
    path: Path, texts: Mapping[Path, str], folders: Iterable[Path] = ()
) -> dict[Path, str]:
    """Return the files that depend on a spec, directly or through others, with their texts.

    Args:
        path: the spec.
        texts: resolved path of a file to its text in an editor, if it is open.
        folders: folders to search, besides the folder of the spec.
    """
    files = dict.fromkeys([path.resolve()])
    waiting = {file: text for file, text in _texts(path, texts, folders) if file not in files}
    readers: dict[Path, str] = {}
    while True:
        stems = {file.stem for file in files}
        more = {file: text for file, text in waiting.items() if _depends(file, text, files, stems)}
        if not more:
            return readers
        readers |= more
        files |= dict.fromkeys(more)
        waiting = {file: text for file, text in waiting.items() if file not in more}


def _depends(file: Path, text: str, files: Collection[Path], stems: Iterable[str]) -> bool:
    if not any(f'"{stem}"' in text or f'"{stem}.json"' in text for stem in stems):
        return False
    return any(target in files for _, target in targets(text, file))


def targets(text: str, file: Path) -> Iterator[tuple[Value, Path]]:
    """Yield every place in a file that names a spec: the record around it, and the spec's file."""
    root = tree(text)
    for at, name in files_named(root.json()):
        target, record = parent_of(name, file), root.get(*parts_of(at))
        if target is not None and record is not None:
            yield record, target.resolve()


def _texts(
    path: Path, texts: Mapping[Path, str], folders: Iterable[Path]
) -> Iterator[tuple[Path, str]]:
    """Yield the files that may depend on a spec."""
    shipped = path.resolve().is_relative_to(SHIPPED)
    beside = [path.resolve().parent]
    if shipped:
        beside = [SHIPPED / name for name in (*FOLDERS, RUN_FOLDER)]
    files = dict.fromkeys(texts)
    for folder in beside:
        files |= dict.fromkeys(sorted(file.resolve() for file in folder.glob("*.json")))
    for folder in folders:
        files |= dict.fromkeys(_below(folder))
    for file in list(files)[:MOST_FILES]:
        try:
            yield file, texts[file] if file in texts else read_text(file)
        except InputError:
            continue  # too large for a spec, or not readable


def _below(folder: Path) -> Iterator[Path]:
    """Yield the JSON files in a folder and those below, at most `MOST_FILES`."""
    count = 0
    for where, inner, files in os.walk(folder):
        inner[:] = sorted(name for name in inner if name[:1] != "." and name not in _SKIPPED)
        for name in sorted(files):
            file = Path(where, name)
            if name.endswith(".json") and file.is_file() and file.stat().st_size <= LARGEST:
                yield file.resolve()
                count += 1
        if count > MOST_FILES:
            return
