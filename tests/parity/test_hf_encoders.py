"""ELECTRA, ModernBERT and the towers of CLIP: outputs as Hugging Face's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

Padded = Callable[..., tuple[Tensor, Tensor]]
Close = Callable[[Tensor, Tensor], None]

VOCAB = 40
SIZES = {
    "vocab_size": VOCAB,
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 24,
    "max_position_embeddings": 20,
}
TOWER = {**SIZES, "projection_dim": 6, "hidden_act": "quick_gelu"}


@pytest.mark.parametrize("width", [16, 6])
def test_electra_scores_the_tokens(
    hf: Any, imported: Callable[..., Any], padded: Padded, close: Close, width: int
) -> None:
    """With embeddings as wide as the layers, as in its base size, and narrower ones."""
    theirs = hf.ElectraForPreTraining(hf.ElectraConfig(**SIZES, embedding_size=width))
    ours = imported(theirs)
    tokens, mask = padded(3, 9, VOCAB)
    types = tokens % 2

    with torch.no_grad():
        expected = theirs(tokens, attention_mask=mask.long(), token_type_ids=types).logits
        found = ours(tokens=tokens, token_types=types, mask=mask)["logits"][..., 0]

    close(found[mask], expected[mask])


def test_modernbert_with_padding(
    hf: Any, imported: Callable[..., Any], padded: Padded, close: Close
) -> None:
    """Five layers, the first and the fourth global, and a window shorter than the inputs."""
    config = hf.ModernBertConfig(
        **SIZES | {"num_hidden_layers": 5},
        local_attention=6,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=2,
        cls_token_id=1,
        sep_token_id=2,
    )
    theirs = hf.ModernBertForMaskedLM(config)
    ours = imported(theirs)
    tokens, mask = padded(3, 13, VOCAB)

    with torch.no_grad():
        expected = theirs(tokens, attention_mask=mask.long()).logits
        found = ours(tokens=tokens, mask=mask)["logits"]

    close(found[mask], expected[mask])


def test_the_text_tower_of_clip(
    hf: Any, imported: Callable[..., Any], padded: Padded, close: Close
) -> None:
    """The vector of each text is that of its end token, the last one before the padding."""
    config = hf.CLIPTextConfig(**TOWER, bos_token_id=1, eos_token_id=39, pad_token_id=0)
    theirs = hf.CLIPTextModelWithProjection(config)
    ours = imported(theirs)
    tokens, mask = padded(3, 9, 39)
    tokens.scatter_(1, mask.sum(1, keepdim=True) - 1, 39)

    with torch.no_grad():
        expected = theirs(tokens, attention_mask=mask.long()).text_embeds
        found = ours(tokens=tokens, mask=mask)["text_embeds"]

    close(found, expected)


def test_the_image_tower_of_clip(hf: Any, imported: Callable[..., Any], close: Close) -> None:
    """The vector of each image is that of its class token."""
    sizes = {key: size for key, size in TOWER.items() if key in hf.CLIPVisionConfig().to_dict()}
    theirs = hf.CLIPVisionModelWithProjection(
        hf.CLIPVisionConfig(**sizes, image_size=12, patch_size=4)
    )
    ours = imported(theirs)
    image = torch.randn(3, 3, 12, 12, generator=torch.Generator().manual_seed(4))

    with torch.no_grad():
        expected = theirs(image).image_embeds
        found = ours(image=image)["image_embeds"]

    close(found, expected)


@pytest.mark.parametrize("legacy", [True, False])
def test_deberta_with_padding(
    hf: Any, imported: Callable[..., Any], padded: Padded, close: Close, *, legacy: bool
) -> None:
    """Six buckets up to a distance of 10, both of which the inputs exceed; either form of head."""
    config = hf.DebertaV2Config(
        **SIZES,
        relative_attention=True,
        max_relative_positions=10,
        position_buckets=6,
        position_biased_input=False,
        pos_att_type=["p2c", "c2p"],
        share_att_key=True,
        norm_rel_ebd="layer_norm",
        legacy=legacy,
    )
    theirs = hf.DebertaV2ForMaskedLM(config)
    ours = imported(theirs)
    tokens, mask = padded(3, 17, VOCAB)

    with torch.no_grad():
        expected = theirs(tokens, attention_mask=mask.long()).logits
        found = ours(tokens=tokens, mask=mask)["logits"]

    close(found[mask], expected[mask])
