"""Settings of parsing: what trees are made into, and how they come back."""

from __future__ import annotations

from typing import Literal

from ..settings import Settings


class ParsingSettings(Settings):
    """What the task `parsing` makes of trees."""

    decoder: Literal["sequence", "chart", "tags"] = "sequence"
    """`sequence`: an encoder-decoder writes the tree symbol by symbol.  `chart`: an encoder
    scores every span, and CKY finds the tree.  `tags`: it tags every word, and tags are a tree."""
    linearization: Literal["vinyals", "tensor2tensor", "top_down"] = "vinyals"
    """The form in which a `sequence` decoder writes trees; see docs/parsing.md."""
    clean: bool = True
    """Take out traces and function tags, and put TOP around each tree."""
    malformed: Literal["refuse", "skip"] = "refuse"
    """What to do with a malformed tree of a treebank: stop and tell, or leave it out."""
    constrained: bool = True
    """Whether the search writes nothing but trees over exactly the words; of symbols alone."""
