"""Settings of parsing: the encoding of trees as prediction targets, and their decoding."""

from __future__ import annotations

from typing import Literal

from ....plugin import Settings


class ParsingSettings(Settings):
    """Settings of the task `parsing`."""

    decoder: Literal["sequence", "chart", "tags"] = "sequence"
    """`sequence`: an encoder-decoder writes the tree symbol by symbol.  `chart`: an encoder
    scores every span, and CKY finds the tree.  `tags`: an encoder tags every word, and the
    tags encode the tree."""
    linearization: Literal["vinyals", "tensor2tensor", "top_down"] = "vinyals"
    """The form in which a `sequence` decoder writes trees; see docs/parsing.md."""
    clean: bool = True
    """Remove traces and function tags, and put TOP around each tree."""
    malformed: Literal["refuse", "skip"] = "refuse"
    """How to treat a malformed tree of a treebank: stop with an error, or skip the tree."""
    constrained: bool = True
    """Restrict the search to trees over exactly the given words; needs a symbol vocabulary."""
