"""Vocabularies of exports: all words must be unique."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
import weft
from weft.extensions.interop.export.ctranslate2 import export_ctranslate2
from weft.extensions.interop.export.vocabulary import apart
from weft.runtime.checkpoint.checkpoint import open_checkpoint
from weft.runtime.checkpoint.saving import Contents, save, weights_of
from weft.runtime.codegen.build import build
from weft.runtime.data.symbols import Symbols
from weft.runtime.data.tokenizer import Tokenizer
from weft.runtime.spec.check import graph_of
from weft.runtime.train.plan import load_run


def test_words_that_come_twice_get_their_ids() -> None:
    """All but the last get their id appended, without colliding with another word."""
    assert apart(["a", ")", "(S", ")"]) == ("a", ")#1", "(S", ")")
    assert apart(["x", "x#0", "x", "x"]) == ("x#0#", "x#0", "x#2", "x")


@pytest.mark.integration
def test_a_parser_whose_pieces_are_also_symbols_is_exported(
    toy_checkpoint: Path, tmp_path: Path
) -> None:
    """Duplicate words would be confused, which the scores of tokens would show."""
    pytest.importorskip("ctranslate2", reason="the extra 'ctranslate2' is missing")
    pieces = Tokenizer.open(toy_checkpoint / "tokenizer.model")
    symbols = Symbols(["(S", *pieces.pieces([pieces.vocab_size - 1]), ")"], pieces)
    sizes = {"d_model": 16, "heads": 2, "d_ff": 24, "layers": 1}
    graph = graph_of(weft.load("parsing-copy", vocab=symbols.vocab_size, **sizes))
    model = build(graph)
    generator = torch.Generator().manual_seed(5)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.2 * torch.randn(parameter.shape, generator=generator))
    files = {"source.model": pieces.bytes, "target.symbols.json": symbols.bytes}
    run = load_run("parsing-craft")[0].model_dump(mode="json", by_alias=True)
    contents = Contents(graph=graph, weights=weights_of(model, graph), run=run, tokenizers=files)
    save(tmp_path / "parser", contents)

    checked = export_ctranslate2(open_checkpoint(tmp_path / "parser"), tmp_path / "out")

    assert checked.largest < 1e-4
    words = json.loads((tmp_path / "out" / "target_vocabulary.json").read_text())
    assert len({*words}) == symbols.vocab_size


@pytest.mark.integration
def test_a_language_model_is_exported_with_its_own_tokenizer(
    toy_checkpoint: Path, tmp_path: Path
) -> None:
    """Its tokenizer has the name that its run gives it, and there is only one."""
    pytest.importorskip("ctranslate2", reason="the extra 'ctranslate2' is missing")
    pieces = Tokenizer.open(toy_checkpoint / "tokenizer.model")
    sizes = {"d_model": 16, "heads": 2, "d_ff": 24, "layers": 1, "max_length": 32}
    graph = graph_of(weft.load("gpt2", vocab=pieces.vocab_size, **sizes))
    model = build(graph)
    run = load_run("language-model-multi30k")[0].model_dump(mode="json", by_alias=True)
    files = {"text.model": pieces.bytes}
    contents = Contents(graph=graph, weights=weights_of(model, graph), run=run, tokenizers=files)
    save(tmp_path / "model", contents)

    export_ctranslate2(open_checkpoint(tmp_path / "model"), tmp_path / "out", lines=["sun moon"])

    assert 'model_file="text.model"' in (tmp_path / "out" / "README.md").read_text()
    assert (tmp_path / "out" / "text.model").read_bytes() == pieces.bytes
