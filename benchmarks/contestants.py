"""Transformer base as built by Weft, torch, Hugging Face and others, for the same job.

Each contestant has `build(size)`, which returns a module, and `logits(module, source, mask,
target)`.  The default sizes are those of the paper's base model: 6 + 6 layers, d_model 512,
8 heads, d_ff 2048, dropout 0.1, one tied embedding.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from peers import BASE, Eole, Fairseq, Size, Sockeye, XTransformers
from torch import Tensor, nn
from torch.nn import functional as F

VOCAB = BASE.vocab


@dataclass(frozen=True)
class Contestant:
    """One way to build and call the model."""

    build: Callable[..., nn.Module]
    logits: Callable[[Any, Tensor, Tensor, Tensor], Tensor]
    loss: Callable[[Tensor, Tensor], Tensor]
    """Summed label-smoothed loss (0.1) of logits [B, T, V] and targets [B, T], padding 0."""
    fused: bool = False
    """Whether the shipped training uses fused Adam."""


def torch_loss(logits: Tensor, target: Tensor) -> Tensor:
    """Return the loss as a torch user would write it."""
    return F.cross_entropy(
        logits.flatten(0, 1).float(),
        target.flatten(),
        ignore_index=0,
        label_smoothing=0.1,
        reduction="sum",
    )


def build_weft(size: Size = BASE) -> nn.Module:
    """Build the shipped spec `transformer-base`."""
    import weft

    return weft.build(weft.load(size.spec, **size.params()))


class TorchTransformer(nn.Module):
    """torch.nn.Transformer with embeddings and a tied projection added."""

    def __init__(self, size: Size = BASE) -> None:
        super().__init__()
        width, layers = size.d_model, size.layers
        self.embedding = nn.Embedding(size.vocab, width)
        nn.init.normal_(self.embedding.weight, std=width**-0.5)
        self.transformer = nn.Transformer(
            width, size.heads, layers, layers, size.d_ff, size.dropout, batch_first=True
        )
        self.dropout = nn.Dropout(size.dropout)
        position = torch.arange(2048)[:, None]
        angle = position * torch.exp(torch.arange(0, width, 2) * (-9.210340371976184 / width))
        table = torch.stack((angle.sin(), angle.cos()), -1).flatten(1)
        self.table: Tensor
        self.register_buffer("table", table, persistent=False)

    def embed(self, ids: Tensor) -> Tensor:
        scaled = self.embedding(ids) * self.embedding.embedding_dim**0.5
        return self.dropout(scaled + self.table[: ids.size(1)])

    def forward(self, source: Tensor, mask: Tensor, target: Tensor) -> Tensor:
        causal = nn.Transformer.generate_square_subsequent_mask(
            target.size(1), device=target.device
        )
        hidden = self.transformer(
            self.embed(source),
            self.embed(target),
            tgt_mask=causal,
            src_key_padding_mask=~mask,
            memory_key_padding_mask=~mask,
            tgt_is_causal=True,
        )
        return F.linear(hidden, self.embedding.weight)


def build_marian(size: Size = BASE) -> nn.Module:
    """Build Hugging Face Marian with random weights."""
    from transformers import MarianConfig, MarianMTModel

    return MarianMTModel(
        MarianConfig(
            vocab_size=size.vocab,
            d_model=size.d_model,
            encoder_layers=size.layers,
            decoder_layers=size.layers,
            encoder_attention_heads=size.heads,
            decoder_attention_heads=size.heads,
            encoder_ffn_dim=size.d_ff,
            decoder_ffn_dim=size.d_ff,
            activation_function="relu",
            dropout=size.dropout,
            attention_dropout=0.0,
            activation_dropout=0.0,
            scale_embedding=True,
            share_encoder_decoder_embeddings=True,
            max_position_embeddings=2048,
            pad_token_id=0,
            eos_token_id=1,
            decoder_start_token_id=3,
            forced_eos_token_id=None,
        )
    )


def build_gpt2(size: Size) -> nn.Module:
    """Build Hugging Face GPT-2 with random weights."""
    from transformers import GPT2Config, GPT2LMHeadModel

    return GPT2LMHeadModel(
        GPT2Config(
            vocab_size=size.vocab,
            n_embd=size.d_model,
            n_layer=size.layers,
            n_head=size.heads,
            n_inner=size.d_ff,
            resid_pdrop=size.dropout,
            embd_pdrop=size.dropout,
            attn_pdrop=size.dropout,
            bos_token_id=None,
            eos_token_id=None,
        )
    )


def _called(model: Any, source: Tensor, mask: Tensor, target: Tensor) -> Tensor:
    logits: Tensor = model(source, mask, target)
    return logits


def _of_weft(model: Any, source: Tensor, mask: Tensor, target: Tensor) -> Tensor:
    logits: Tensor = model(source=source, source_mask=mask, target=target)["logits"]
    return logits


CONTESTANTS = {
    "weft": Contestant(
        build_weft,
        _of_weft,
        torch_loss,
        fused=True,
    ),
    "torch.nn.Transformer": Contestant(
        TorchTransformer,
        _called,
        torch_loss,
    ),
    "Hugging Face Marian": Contestant(
        build_marian,
        lambda model, source, mask, target: (
            model(
                input_ids=source,
                attention_mask=mask.long(),
                decoder_input_ids=target,
                use_cache=False,
            ).logits
        ),
        torch_loss,
        fused=True,
    ),
    "Hugging Face GPT-2": Contestant(
        build_gpt2,
        lambda model, _source, _mask, target: model(target, use_cache=False).logits,
        torch_loss,
        fused=True,
    ),
    "x-transformers": Contestant(XTransformers, _called, torch_loss),
    "fairseq": Contestant(Fairseq, _called, torch_loss),
    "Sockeye": Contestant(Sockeye, _called, torch_loss),
    "Eole": Contestant(Eole, _called, torch_loss),
}
