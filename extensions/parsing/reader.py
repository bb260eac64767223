"""Treebanks: the words of each tree, its target symbols, and the tree itself."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from ...plugin import FilesReader, Record, refuse_missing
from .trees.reader import ESCAPES, read_bank, source_text, writer

FIELDS = ("source", "target", "tree")


class TreesReader(FilesReader):
    """Reader of bracketed trees.  A skipped tree has empty texts, which the filter drops."""

    def records(self, part: int, fields: Sequence[str]) -> Iterator[Record]:
        """Yield the words (`source`), the symbols (`target`) and the tree of each tree.

        Raises:
            InputError: the file cannot be read, a tree is malformed and must not be skipped, or
                there is no such field.
        """
        name, settings = self.settings.files[part], self.settings
        for field in fields:
            refuse_missing(field, FIELDS, f"trees: {name}")
        write, escapes = writer(settings.parsing), ESCAPES if settings.pieces else {}
        for number, tree in enumerate(read_bank((name,), self.root, settings.parsing), start=1):
            values: dict[str, Any] = {"source": "", "target": "", "tree": None}
            if tree is not None:
                values["tree"] = tree
                if "source" in fields:
                    values["source"] = source_text(leaf.word for leaf in tree.leaves())
                if "target" in fields:
                    values["target"] = " ".join(write(tree)).translate(escapes)
            yield Record(values, f"{name}, tree {number}")
