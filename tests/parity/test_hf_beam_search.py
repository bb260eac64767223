"""Beam search equals that of Hugging Face, sentence by sentence, on the same weights."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import weft
from weft.runtime.model.model import Model

VOCAB, PAD, EOS = 40, 0, 1
SENTENCES, BATCH = 1000, 100
CONFIG = {
    "d_model": 16,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "encoder_attention_heads": 2,
    "decoder_attention_heads": 2,
    "encoder_ffn_dim": 24,
    "decoder_ffn_dim": 24,
    "max_position_embeddings": 40,
    "vocab_size": VOCAB,
    "pad_token_id": PAD,
    "eos_token_id": EOS,
    "decoder_start_token_id": PAD,
    "forced_eos_token_id": None,
    "activation_function": "swish",
    "scale_embedding": False,
}


def sharp(model: Any, end: float, gain: float) -> Any:
    """Draw weights so large that outputs differ; `end` is the logit bias of the end token."""
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if not weight.requires_grad:
                continue
            if weight.dim() == 2:
                scale = 0.7 if "shared" in name else gain / weight.size(1) ** 0.5
                weight.copy_(scale * torch.randn(weight.shape, generator=generator))
            elif name.endswith("norm.weight"):
                last = name.startswith("model.decoder.layers.1.final_layer_norm")
                weight.fill_(1.5 if last else 1.0)
            else:
                weight.zero_()
        model.final_logits_bias.zero_()
        model.final_logits_bias[0, EOS] = end
    return model.eval()


def sources() -> list[list[int]]:
    """Return 1,000 sentences of 3 to 11 words and an end token, sorted by length."""
    generator = torch.Generator().manual_seed(3)
    lengths = torch.randint(3, 12, (SENTENCES,), generator=generator).sort().values.tolist()
    return [[*torch.randint(2, VOCAB, (n,), generator=generator).tolist(), EOS] for n in lengths]


def theirs_of(model: Any, sentences: list[list[int]], **settings: Any) -> list[tuple[int, ...]]:
    """Return Hugging Face's outputs, `num_return_sequences` for each sentence."""
    longest = max(map(len, sentences))
    ids = torch.tensor([[*one, *[PAD] * (longest - len(one))] for one in sentences])
    mask = torch.arange(longest) < torch.tensor([[len(one)] for one in sentences])
    written = model.generate(
        ids, attention_mask=mask.long(), do_sample=False, bad_words_ids=[[PAD]], **settings
    )
    outputs = []
    for row in written[:, 1:].tolist():
        end = row.index(EOS) if EOS in row else len(row)
        outputs.append(tuple(token for token in row[:end] if token != PAD))
    return outputs


@pytest.mark.slow
@pytest.mark.parametrize(
    ("beam", "alpha", "no_repeat", "nbest", "end", "gain"),
    [(4, 1.0, 2, 4, 1.5, 2.0), (6, 0.6, 1, 1, 2.0, 2.5), (5, 1.4, 0, 2, 6.5, 2.8)],
)
def test_a_thousand_sentences(
    hf: Any,
    tmp_path: Path,
    beam: int,
    alpha: float,
    no_repeat: int,
    nbest: int,
    end: float,
    gain: float,
) -> None:
    """All n best outputs are equal, in order; in float64, so that close scores stay distinct.

    Hugging Face needs `early_stopping="never"`: otherwise it stops before a longer output,
    whose penalty is smaller, can be found.
    """
    theirs = sharp(hf.MarianMTModel(hf.MarianConfig(**CONFIG)), end, gain)
    theirs.save_pretrained(tmp_path / "theirs")
    weft.import_hf(tmp_path / "theirs").save(tmp_path / "ours")
    search = {"beam": beam, "nbest": nbest, "penalty": "length", "alpha": alpha}
    more = {"no_repeat": no_repeat, "max_length": 24, "ends": "best"}
    ours: Model = weft.open(tmp_path / "ours", predict={**search, **more})
    theirs.double()
    ours.module.double()
    different, seen, cut = 0, set(), 0
    given = sources()

    for start in range(0, SENTENCES, BATCH):
        part = given[start : start + BATCH]
        wanted = theirs_of(
            theirs,
            part,
            num_beams=beam,
            num_return_sequences=nbest,
            length_penalty=alpha,
            early_stopping="never",
            no_repeat_ngram_size=no_repeat,
            max_new_tokens=24,
        )
        for row, found in enumerate(ours.decode(part)):
            got = [one.tokens for one in found]
            different += got != wanted[row * nbest : (row + 1) * nbest]
            seen.add(got[0])
            cut += not found[0].finished

    assert different == 0
    # The test would be weak if all outputs were equal, or none were finished.
    assert len(seen) > 150
    assert 0 < cut < SENTENCES - 200
