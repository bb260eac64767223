"""Rename a node of a spec that is known by its place, in one file."""

from __future__ import annotations

from pathlib import Path

from .....specs.findings import InputError
from ..document import document
from ..moves import apply
from ..names import names
from .rename import rename


def renamed_node(text: str, path: str, scope: str, name: str, new: str) -> str:
    """Return a text with another name of a node in wires, ties, outputs and patches.

    Args:
        text: the text of a spec.
        path: its file.
        scope: JSON Pointer of the template of the node; empty for a node of the spec itself.
        name: the node.
        new: its new name.

    Raises:
        InputError: the file does not define the node, the new name is not a name or is taken, or
            another file uses the old one, which this would not change.
    """
    occurrences = [
        occurrence
        for occurrence in names(document(text, path))
        if occurrence.symbol == ("node", scope, name)
    ]
    declaration = next((occurrence for occurrence in occurrences if occurrence.defines), None)
    if declaration is None:
        problem = f"'{name}' is written in another file"
        raise InputError(problem, location=path, help="rename it there")
    renaming = rename(text, declaration.start, new, path)
    resolved = Path(path).resolve()
    others = [file.name for file in renaming.edits if file.resolve() != resolved]
    if others:
        raise InputError(
            f"'{others[0]}' uses the name '{name}' as well, and only this file can be changed",
            location=path,
            help="rename it in an editor with 'weft lsp', which changes all files",
        )
    return apply(text, [edit for edits in renaming.edits.values() for edit in edits])
