"""Byte fallback: characters missing from training are encoded as bytes, and never broken."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import weft
from hypothesis import given
from hypothesis import strategies as st
from weft.runtime.checkpoint.saving import Contents, save, weights_of
from weft.runtime.data.settings import PieceSettings
from weft.runtime.data.tokenizer import UNKNOWN, Tokenizer, train_tokenizer
from weft.runtime.decode.predictors.text import LINE
from weft.runtime.model.model import Model
from weft.runtime.spec.check import graph_of

FOREIGN = "😀 漢字"
TEXT = {"type": "text", "tokenizer": "tokenizer"}
FILES = {"lines": {"source": ["a"], "target": ["b"]}}
RUN = {
    "format": 1,
    "name": "bytes",
    "objective": "translation",
    "data": {"columns": {"source": TEXT, "target": TEXT}, "train": FILES, "valid": FILES},
    "tokenizers": {"tokenizer": {"type": "bpe", "vocab_size": 300, "byte_fallback": True}},
    "predict": {"type": "beam", "beam": 3, "max_extra": 12},
    "answers": "target",
}
"""What a checkpoint needs to know of its run to translate; the files are not read."""
SMALL = {"d_model": 16, "heads": 2, "d_ff": 24, "layers": 1}


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    """Return a tokenizer trained on four words that encodes the rest as bytes."""
    settings = PieceSettings(vocab_size=300, byte_fallback=True)
    path = tmp_path_factory.mktemp("bytes") / "tokenizer.model"
    return train_tokenizer(["sun moon tree river"] * 20, settings, path)


@pytest.fixture(scope="module")
def model(tokenizer: Tokenizer, tmp_path_factory: pytest.TempPathFactory) -> Model:
    """Return a model of random weights to which the unknown token is the most probable."""
    spec = weft.load("transformer-tiny", vocab=tokenizer.vocab_size, **SMALL)
    module, graph = weft.build(spec), graph_of(spec)
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for weight in module.parameters():
            weight.add_(0.3 * torch.randn(weight.shape, generator=generator))
    contents = Contents(
        graph=graph,
        weights=weights_of(module, graph),
        run=RUN,
        tokenizers={"tokenizer.model": tokenizer.bytes},
    )
    return weft.open(save(tmp_path_factory.mktemp("model") / "checkpoint", contents))


def test_unseen_characters_are_encoded_as_bytes(tokenizer: Tokenizer) -> None:
    """No id is the unknown one, and decoding restores the text."""
    ids = tokenizer.encode(FOREIGN)

    assert tokenizer.unk not in ids
    assert sum(piece.startswith("<0x") for piece in tokenizer.pieces(ids)) == 4 + 2 * 3
    assert tokenizer.decode(ids) == FOREIGN


@pytest.mark.parametrize("search", [{"beam": 1}, {"beam": 3, "nbest": 3}, {"type": "sample"}])
def test_forced_text_with_unseen_characters_is_copied(
    model: Model, tokenizer: Tokenizer, search: dict[str, object]
) -> None:
    """Unseen characters in the source, in the prefix and in required phrases."""
    wanted = weft.open(model.checkpoint.folder, predict=search)
    module: Any = wanted.module
    step, stepped = module.step, []

    def likeliest(**given: Any) -> Any:
        stepped.append(given["position"])
        outputs = step(**given)
        unknown = torch.tensor([tokenizer.unk])
        return {**outputs, "logits": outputs["logits"].index_fill(-1, unknown, 50.0)}

    module.step = likeliest
    rows = [
        {**LINE, "source": f"sun {FOREIGN}", "prefix": FOREIGN},
        {**LINE, "source": "moon", "include": ["漢"]},
    ]
    found = list(wanted.line_predictor().stream(rows))

    assert stepped
    assert all(answer.value.startswith(FOREIGN) for answer in found[0])
    for answer in (*found[0], *found[1]):
        assert tokenizer.unk not in answer.hypothesis.tokens
        assert UNKNOWN not in answer.value
        assert "\ufffd" not in answer.value
    assert all("漢" in answer.value for answer in found[1])


def test_half_characters_are_left_out_at_the_end_and_in_the_middle(tokenizer: Tokenizer) -> None:
    """Cut after any token, the text consists of the complete characters."""
    ids = tokenizer.encode("sun 漢 moon")
    first = next(n for n, piece in enumerate(tokenizer.pieces(ids)) if piece.startswith("<0x"))

    assert tokenizer.decode(ids[: first + 1]).rstrip() == "sun"
    assert tokenizer.decode(ids[: first + 2]).rstrip() == "sun"
    assert tokenizer.decode(ids[: first + 3]) == "sun 漢"
    assert tokenizer.decode([*ids[: first + 1], *ids[first + 3 :]]).split() == ["sun", "moon"]
    # Removing a broken character must not remove the next one.
    assert tokenizer.decode([*ids[: first + 2], *ids[first : first + 3]]) == "sun 漢"


@given(data=st.data())
def test_any_ids_decode_to_complete_characters(tokenizer: Tokenizer, data: st.DataObject) -> None:
    """All complete characters among arbitrary bytes are kept in order; the rest is removed."""
    parts = data.draw(
        st.lists(st.sampled_from(["é", "漢", "😀", b"\xe6", b"\xf0\x9f", b"\x80", b"\xff"]))
    )
    number = {piece: n for n, piece in enumerate(tokenizer.pieces(range(tokenizer.vocab_size)))}
    codes = [part.encode() if isinstance(part, str) else part for part in parts]
    # A letter separates the parts, so that two halves cannot form a character.
    ids = [number[f"<0x{code:02X}>"] for part in codes for code in (*part, ord("x"))]

    text = tokenizer.decode(ids)

    assert text == "".join((part if isinstance(part, str) else "") + "x" for part in parts)
