"""READMEs of exports name only files that exist."""

from __future__ import annotations

import re
from types import SimpleNamespace
from typing import Any

import pytest
import weft
from weft.extensions.interop.export.ctranslate2 import ct2_readme
from weft.extensions.interop.export.vocabulary import VocabularyTokens
from weft.runtime.decode.decode import SpecialTokens
from weft.runtime.spec.check import graph_of

PIECES = ("<pad>", "</s>", "<unk>", "<s>", "a", "b")


PIECE, HUB, SYMBOL = "m.model", "m.tokenizer.json", "m.symbols.json"


@pytest.mark.parametrize(
    "files", [(PIECE, PIECE), (PIECE, "n.model"), (PIECE, SYMBOL), (HUB, HUB), (SYMBOL, PIECE), ()]
)
def test_the_code_opens_files_that_were_written(files: tuple[str, ...]) -> None:
    """Whatever their names; a parser's target has symbols and no SentencePiece model."""
    graph = graph_of(weft.load("transformer-tiny", d_model=8, heads=2, layers=1, vocab=6))
    special_tokens = SpecialTokens(3, 1, 0, frozenset({2}))
    sides: Any = [SimpleNamespace(bytes=name.encode()) for name in files] or [None, None]
    contents = {name: name.encode() for name in files}
    words = VocabularyTokens(PIECES, PIECES, special_tokens, 2, True, *sides, contents)

    for decoder_only in (False, True):
        page = ct2_readme(graph, words, decoder_only=decoder_only)
        code = page.split("```python\n")[1].split("```")[0]
        compile(code, "README.md", "exec")
        opened = set(re.findall(r'(?:model_file=|from_file\()"([^"]+)"', code))
        needed = files[:1] if decoder_only else files
        assert opened == {file for file in needed if not file.endswith(".symbols.json")}
        for side in ("reads", "writes"):
            assert (f"{side} = " in code) == (f"{side}." in code)
    assert 'suppress_sequences=[["<s>"], ["<pad>"], ["<unk>"]]' in page
