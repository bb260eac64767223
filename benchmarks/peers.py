"""Transformer base as built by x-transformers, fairseq, Sockeye and Eole.

Only their public interfaces are used.  Each is installed in its own folder, named in PYTHONPATH;
`train.py` leaves out a missing peer, with the reason.
"""

from __future__ import annotations

import dataclasses
import logging
from argparse import Namespace
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn


@dataclass(frozen=True)
class Size:
    """Sizes of a model."""

    d_model: int
    heads: int
    d_ff: int
    dropout: float
    layers: int = 6
    """On each side."""
    vocab: int = 37_000
    spec: str = "transformer-base"
    """Weft's spec of the model."""

    def params(self) -> dict[str, float]:
        """Return the params of the spec."""
        return {name: value for name, value in dataclasses.asdict(self).items() if name != "spec"}


BASE = Size(512, 8, 2048, 0.1)
BIG = Size(1024, 16, 4096, 0.3)
"""The big model of the paper, table 3."""


class XTransformers(nn.Module):
    """x-transformers' encoder-decoder; one embedding for both sides, a separate projection."""

    def __init__(self, size: Size) -> None:
        super().__init__()
        from x_transformers import XTransformer

        side = {"depth": size.layers, "heads": size.heads, "num_tokens": size.vocab}
        side |= {"max_seq_len": 1024, "attn_dim_head": size.d_model // size.heads}
        side["ff_mult"] = size.d_ff // size.d_model
        drops = {"attn_dropout": 0.0, "ff_dropout": size.dropout, "emb_dropout": size.dropout}
        settings = {f"{s}_{k}": v for s in ("enc", "dec") for k, v in (side | drops).items()}
        self.inner = XTransformer(dim=size.d_model, tie_token_emb=True, **settings)

    def forward(self, source: Tensor, mask: Tensor, target: Tensor) -> Tensor:
        read = self.inner.encoder(source, mask=mask, return_embeddings=True)
        logits: Tensor = self.inner.decoder.net(target, context=read, context_mask=mask)
        return logits


def _hashable(real: Callable[..., Any]) -> Callable[..., Any]:
    """Return a `dataclass` that gives each class a hash, as fairseq needs in Python 3.11."""

    def dataclass(cls: type | None = None, **options: Any) -> Any:
        def made(one: type) -> Any:
            plain = "__hash__" not in vars(one) and not options.get("frozen")
            return real(one, **options, **({"unsafe_hash": True} if plain else {}))

        return made if cls is None else made(cls)

    return dataclass


class Fairseq(nn.Module):
    """fairseq's Transformer base, all embeddings shared."""

    def __init__(self, size: Size) -> None:
        super().__init__()
        logging.disable(logging.INFO)
        real = dataclasses.dataclass
        dataclasses.dataclass = _hashable(real)  # type: ignore[assignment]
        try:
            from fairseq.data import Dictionary
            from fairseq.models.transformer import TransformerModel, base_architecture
        finally:
            dataclasses.dataclass = real
        words = Dictionary()  # has four words from the start; padding is 1
        for index in range(size.vocab - len(words)):
            words.add_symbol(str(index))
        settings = Namespace(share_all_embeddings=True, dropout=0.1, max_source_positions=1024)
        settings.max_target_positions = 1024
        settings.share_decoder_input_output_embed = True
        base_architecture(settings)
        task = Namespace(source_dictionary=words, target_dictionary=words)
        self.inner = TransformerModel.build_model(settings, task)

    def forward(self, source: Tensor, mask: Tensor, target: Tensor) -> Tensor:
        pad = self.inner.encoder.padding_idx
        logits: Tensor = self.inner(
            source.masked_fill(~mask, pad), mask.sum(1), target.masked_fill(target == 0, pad)
        )[0]
        return logits


class Sockeye(nn.Module):
    """Sockeye 3's Transformer base in post-norm order; traces encoder and decoder at the start."""

    def __init__(self, size: Size) -> None:
        super().__init__()
        vocab = size.vocab
        logging.disable(logging.INFO)
        from sockeye import constants, data_io, encoder, model, transformer

        side = transformer.TransformerConfig(
            model_size=512,
            attention_heads=8,
            feed_forward_num_hidden=2048,
            act_type="relu",
            num_layers=6,
            dropout_attention=0.0,
            dropout_act=0.0,
            dropout_prepost=0.1,
            positional_embedding_type=constants.FIXED_POSITIONAL_EMBEDDING,
            preprocess_sequence="",
            postprocess_sequence="drn",
            max_seq_len_source=1024,
            max_seq_len_target=1024,
            depth_key_value=512,
        )
        seen = data_io.DataStatistics(
            *(1, 0, 1, 1, 0, 0, 1024, 1024, vocab, vocab, 1.0, 0.1), [(1024, 1024)], [1], [1.0]
        )
        embed = encoder.EmbeddingConfig(vocab_size=vocab, num_embed=512, dropout=0.1)
        self.inner = model.SockeyeModel(
            model.ModelConfig(
                config_data=data_io.DataConfig(seen, 1024, 1024, 1, 1),
                vocab_source_size=vocab,
                vocab_target_size=vocab,
                config_embed_source=embed,
                config_embed_target=embed,
                config_encoder=side,
                config_decoder=side,
                weight_tying_type=constants.WEIGHT_TYING_SRC_TRG_SOFTMAX,
            )
        )
        self.inner.apply(model.initialize_parameters)
        self.logits = constants.LOGITS_NAME

    def forward(self, source: Tensor, mask: Tensor, target: Tensor) -> Tensor:
        import torch

        lengths = torch.stack((mask.sum(1), torch.zeros_like(mask.sum(1))), 1).int()
        logits: Tensor = self.inner(
            source[..., None].int(), lengths, target[..., None].int(), (target != 0).sum(1).int()
        )[self.logits]
        return logits


def eole_parts(size: Size) -> Any:
    """Return Eole's Transformer, its vocabularies, and the settings of the model.

    It has biases in all maps and one embedding, as the others, but normalizes before each
    sublayer: its decoder has no other order.  Ids of special tokens are those of `decoders.py`.
    """
    import pyonmttok
    from eole.config.run import TrainConfig
    from eole.constants import DefaultTokens as Special
    from eole.models.model import EncoderDecoderModel

    logging.disable(logging.INFO)
    embeddings = {"word_vec_size": size.d_model, "position_encoding_type": "SinusoidalInterleaved"}
    biased = ("add_qkvbias", "add_final_linear_bias", "add_ffnbias")
    settings = TrainConfig(
        src_vocab="-",
        tgt_vocab="-",
        share_vocab=True,
        data={},
        model={
            "architecture": "transformer",
            "layers": size.layers,
            "hidden_size": size.d_model,
            "heads": size.heads,
            "transformer_ff": size.d_ff,
            "mlp_activation_fn": "relu",
            "embeddings": embeddings,
            "share_embeddings": True,
            "share_decoder_embeddings": True,
            "generator_bias": False,
            **dict.fromkeys(biased, True),
        },
        training={
            "dropout": [size.dropout],
            "attention_dropout": [0.0],
            "param_init_method": "xavier_uniform",
        },
    )
    special = [Special.PAD, Special.EOS, Special.UNK, Special.BOS]
    tokens = [*special, *(f"t{index}" for index in range(len(special), size.vocab))]
    words = pyonmttok.build_vocab_from_tokens(tokens)
    names = dict(zip(("pad_token", "eos_token", "unk_token", "bos_token"), special, strict=True))
    vocabs = {"src": words, "tgt": words, "specials": names, "decoder_start_token": Special.BOS}
    model = EncoderDecoderModel.build(settings.model, vocabs, settings.training)
    model.init_weights(settings.training)
    return model, vocabs, settings.model


class Eole(nn.Module):
    """Eole's Transformer in pre-norm order."""

    def __init__(self, size: Size) -> None:
        super().__init__()
        self.inner = eole_parts(size)[0]

    def forward(self, source: Tensor, mask: Tensor, target: Tensor) -> Tensor:
        import torch

        # Its model reads all tokens of a target but the last.
        given = torch.cat((target, target[:, :1]), 1)
        logits: Tensor = self.inner.generator(self.inner(source, given, mask.sum(1)).dec_out)
        return logits
