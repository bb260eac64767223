"""Hugging Face `tokenizer.json` files: encoding of prompts and decoding of outputs."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import weft
from weft.blocks.registry import registry
from weft.extensions.interop.importing.hf import tokenizers_for
from weft.extensions.interop.importing.table import load_table
from weft.graphs.checker.check import check
from weft.runtime.checkpoint.saving import Contents, save, weights_of
from weft.runtime.cli.main import main
from weft.runtime.codegen.build import build
from weft.runtime.data.hub import HubTokenizer
from weft.runtime.data.settings import HUB
from weft.specs.findings import InputError
from weft.specs.load import load

SMALL = {"d_model": 16, "heads": 2, "kv_heads": 1, "d_ff": 24, "layers": 1}
BEGIN, END = "<s>", "</s>"
Save = Callable[..., Path]


@pytest.fixture(scope="module")
def file() -> bytes:
    """Return a small tokenizer: bytes and a few words, with a beginning token before each text."""
    tokenizers = pytest.importorskip("tokenizers", reason="the extra 'tokenizers'")
    from tokenizers import decoders, models, pre_tokenizers, processors, trainers  # noqa: PLC0415

    made: Any = tokenizers.Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=300,
        special_tokens=[BEGIN, END],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    made.train_from_iterator(["sun moon tree river"] * 20, trainer)
    made.post_processor = processors.TemplateProcessing(
        single=f"{BEGIN} $A {END}", special_tokens=[(BEGIN, 0), (END, 1)]
    )
    text: str = made.to_str()
    return text.encode()


@pytest.fixture
def saved(tmp_path: Path) -> Save:
    """Return a function that saves a checkpoint of a small Llama with a tokenizer."""

    def make(data: bytes, vocab: int = 300, name: str = HUB) -> Path:
        graph = check(load("llama").form, registry(), {**SMALL, "vocab": vocab})
        model = build(graph).eval()
        generator = torch.Generator().manual_seed(1)
        with torch.no_grad():
            for weight in model.parameters():
                weight.add_(0.3 * torch.randn(weight.shape, generator=generator))
        state = {"imported": {"tokens": {"end": 1}}}
        contents = Contents(
            graph=graph, weights=weights_of(model, graph), state=state, tokenizers={name: data}
        )
        return save(tmp_path / "checkpoint", contents)

    return make


def test_a_prompt_begins_and_does_not_end(file: bytes) -> None:
    """The special token before a text is kept, the one after it is removed; text round-trips."""
    tokenizer = HubTokenizer(file, ends={1})

    ids = tokenizer.prompt("sun räven 🙂")

    assert ids[0] == 0
    assert 1 not in ids
    assert tokenizer.decode(ids) == "sun räven 🙂"
    assert tokenizer.pieces(ids)[:2] == [BEGIN, "sun"]
    assert tokenizer.prompt("") == [0]
    assert HubTokenizer(file).prompt("")[-1] == 1
    assert max(ids) < tokenizer.vocab_size <= 300
    assert tokenizer.pieces([299 + 1]) == [""]


def test_a_checkpoint_continues_text(file: bytes, saved: Save) -> None:
    """Generating from text gives the same outputs as from its ids."""
    model = weft.open(saved(file))
    tokenizer = HubTokenizer(file, ends={1})

    [written] = model.generate_text(["sun moon"], max_new=6)

    [[one]] = model.generate([tokenizer.prompt("sun moon")], max_new=6)
    assert written == tokenizer.decode(one.tokens)


def test_a_missing_tokenizer_library_names_the_extra(
    saved: Save, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The message names the extra, and the option to give ids."""
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    folder = saved(b"{}")

    assert main(["generate", str(folder)]) == 1

    output = capsys.readouterr().err
    assert "pip install 'weft[tokenizers]'" in output
    assert "--ids" in output


def test_an_invalid_tokenizer_is_reported(saved: Save, file: bytes) -> None:
    """A damaged file, and the tokenizer of another model, raise errors."""
    with pytest.raises(InputError, match="not a tokenizer"):
        weft.open(saved(b"\xff{")).generate_text(["sun"])
    with pytest.raises(InputError, match="but the model has 40"):
        weft.open(saved(file, vocab=40)).generate_text(["sun"])


def test_an_imported_decoder_takes_it_along(tmp_path: Path) -> None:
    """Only decoders without another tokenizer copy it; translation models do not."""
    (tmp_path / HUB).write_bytes(b"{}")
    decoder = check(load("llama").form, registry(), {**SMALL, "vocab": 9})
    translator = check(load("transformer-tiny").form, registry(), {"vocab": 9})
    table, _ = load_table("llama")

    assert tokenizers_for(table, tmp_path, decoder) == ({HUB: b"{}"}, ())
    assert tokenizers_for(table, tmp_path, translator)[0] == {}
    (tmp_path / "t.model").write_bytes(b"other")
    other_table = table.model_copy(update={"tokenizers": ("t.model",)})
    assert tokenizers_for(other_table, tmp_path, decoder)[0] == {"t.model": b"other"}
