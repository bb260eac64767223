"""The command `weft parse`: parse lines of text into trees."""

from __future__ import annotations

import io
import json
import sys
from argparse import Namespace
from pathlib import Path
from typing import Any

from ....graphs.draw.render import SUFFIXES, check_suffix
from ...data.treebank.draw import draw_tree
from ...data.treebank.sentences import raw_words_of, words_of
from ...data.treebank.trees import pretty
from ...tasks.parsing.parse import Parse
from ..opened import opened, warn
from ..progress import Counter
from ..train.evaluate_trees import constrained
from .translate import utf8_lines

_EMPTY = "its tree is an empty line"


def parse(options: Namespace) -> None:
    """Parse stdin to stdout, line by line; an empty line gives an empty line.

    Raises:
        InputError: the checkpoint is not a parser, or a tree cannot be drawn.
    """
    pictures = _Pictures(options.draw)
    model = constrained(opened(options), options)
    cut = raw_words_of if options.raw else words_of
    sentences = map(cut, utf8_lines(sys.stdin.buffer, _EMPTY))
    buffer = max(1, options.buffer)
    shows = sys.stderr.isatty() and not sys.stdout.isatty()
    counter = Counter("lines parsed") if shows else None
    out = io.TextIOWrapper(sys.stdout.buffer, encoding="utf-8", newline="\n")
    try:
        found = model.parser.parse(sentences, buffer=buffer, warn=warn)
        for number, one in enumerate(found, 1):
            if options.json:
                text = json.dumps({"line": number, **record(one)}, ensure_ascii=False)
            elif one is None:
                text = ""
            else:
                text = pretty(one.tree) if options.pretty else str(one.tree)
            out.write(text + "\n")
            if buffer == 1:
                out.flush()
            pictures.draw(number, one)
            if counter is not None:
                counter.more(1)
        out.flush()
    finally:
        if counter is not None:
            counter.close()
        out.detach()


def record(found: Parse | None) -> dict[str, Any]:
    """Return a parse as plain data; the tree of a line without words is null."""
    if found is None:
        return {"tree": None}
    return {
        "tree": str(found.tree),
        "words": [leaf.word for leaf in found.tree.leaves()],
        "tags": [leaf.tag for leaf in found.tree.leaves()],
        "score": found.score,
        "log_probability": found.log_probability,
        "finished": found.finished,
        "repaired": found.repairs.any,
        "repairs": found.repairs.total,
    }


class _Pictures:
    """Draws trees into a folder or a file, or not at all."""

    def __init__(self, path: str | None) -> None:
        """Set the folder, created if missing, or the file, whose suffix is checked."""
        self.path = None if path is None else Path(path)
        self.is_file = self.path is not None and self.path.suffix != ""
        self.done = False
        if self.path is None:
            return
        if self.is_file:
            check_suffix(self.path, SUFFIXES)
        else:
            self.path.mkdir(parents=True, exist_ok=True)

    def draw(self, number: int, found: Parse | None) -> None:
        """Draw tree 17 into 000017.svg in the folder; into a file, draw the first tree only."""
        if self.path is None or found is None or (self.is_file and self.done):
            return
        out = self.path if self.is_file else self.path / f"{number:06d}.svg"
        draw_tree(found.tree, out)
        self.done = True
