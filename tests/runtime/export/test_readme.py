"""READMEs of exports name only files that exist."""

from __future__ import annotations

import re

import pytest
import weft
from weft.runtime.data.symbols import SYMBOLS
from weft.runtime.decode.decode import SpecialTokens
from weft.runtime.export.readme import ct2_readme
from weft.runtime.export.vocabulary import Words
from weft.runtime.spec.check import graph_of

PIECES = ("<pad>", "</s>", "<unk>", "<s>", "a", "b")


@pytest.mark.parametrize(
    "files", [("tokenizer.model",), ("source.model", "target.model"), ("source.model", SYMBOLS), ()]
)
def test_the_code_opens_files_that_were_written(files: tuple[str, ...]) -> None:
    """This includes parsers, whose target has symbols and no SentencePiece model."""
    graph = graph_of(weft.load("transformer-tiny", d_model=8, heads=2, layers=1, vocab=6))
    special_tokens = SpecialTokens(3, 1, 0, frozenset({2}))
    words = Words(PIECES, PIECES, special_tokens, 2, True, dict.fromkeys(files, b""))

    page = ct2_readme(graph, words, decoder_only=False)

    code = page.split("```python\n")[1].split("```")[0]
    compile(code, "README.md", "exec")
    opened = set(re.findall(r'model_file="([^"]+)"', code))
    assert opened == {file for file in files if file.endswith(".model")}
    assert 'suppress_sequences=[["<s>"], ["<pad>"], ["<unk>"]]' in page
